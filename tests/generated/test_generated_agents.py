"""Agents put together by chance are counted exactly, or are not green. A thousand run by command; here is a handful."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from generated_agents import Outcome, Truth, World, run_plan, tally
from generated_clients import Op
from generated_plans import ASYNC_CARRIERS, SYNC_CARRIERS, Plan, Stage, make_plan
from model_server import ModelServer

pytestmark = pytest.mark.slow

EVERY = frozenset(SYNC_CARRIERS) | frozenset(ASYNC_CARRIERS)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ModelServer() as server:
        made = World(server)
        yield made
        made.close()


def plan_of(world: World, seed: int) -> Plan:
    return make_plan(seed, world.server.base_url, list(world.sync), list(world.asyncs), EVERY)


def test_a_seed_is_one_agent(world: World) -> None:
    """The same seed gives the same agent, another seed another one."""
    assert plan_of(world, 5) == plan_of(world, 5)
    assert len({str(plan_of(world, seed)) for seed in range(1, 101)}) == 100


def test_every_client_and_carrier_is_drawn(world: World) -> None:
    """Among 1,000 seeds each client, carrier, way of reading and fault stands in at least 20 agents."""
    plans = [plan_of(world, seed) for seed in range(1, 1001)]
    drawn = [
        {part for s in plan.stages for op in s.ops for part in (s.carrier, op.client, op.how, op.fault, op.what)}
        for plan in plans
    ]
    wanted = EVERY | set(world.sync) | set(world.asyncs) | {"whole", "stream", "early", "429", "500", "cut", "redirect"}

    assert {part: n for part in wanted if (n := sum(part in parts for parts in drawn)) < 20} == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("first", range(1, 61, 20))
def test_no_agent_is_counted_wrong_and_green(world: World, first: int) -> None:
    """Ten agents of each batch run for real: none is green with other numbers than the server's."""
    outcomes = [run_plan(world, plan_of(world, seed)) for seed in range(first, first + 10)]
    gc.collect()  # what these agents left lying around is not to be found during another test

    assert [str(outcome.plan) for outcome in outcomes if outcome.kind == "silent"] == []
    assert tally(outcomes)["exact"] >= 3


def test_an_undercount_would_be_found() -> None:
    """An outcome with one call less than the server saw, and no problem, is silent; with a problem it is not green."""
    op = Op("httpx", "whole", "none", "model", "t", "http://127.0.0.1:1")
    plan = Plan(1, False, (Stage("in order", (op, op)),))
    short = {"fanout": 1, "attempts": 1, "tool_calls": 0, "input_tokens": 3, "output_tokens": 4}
    right = {"fanout": 2, "attempts": 2, "tool_calls": 0, "input_tokens": 6, "output_tokens": 8}
    truth = Truth(calls=2, attempts=2, tool_calls=0, tokens=14)

    assert Outcome(plan, truth, short, ()).kind == "silent"
    assert Outcome(plan, truth, right, ()).kind == "exact"
    assert Outcome(plan, truth, {**right, "output_tokens": 9}, ()).kind == "silent"
