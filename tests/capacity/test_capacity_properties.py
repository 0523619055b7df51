"""What holds of every fleet: more never takes less, equal sides differ by nothing, and nothing is lost or made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fanout.capacity.forecast import Forecaster
from pytest_fanout.capacity.plan import plan_fleet, with_windows
from pytest_fanout.capacity.profiles import find_profile
from pytest_fanout.capacity.project import load_of, project_sides, sides_of
from pytest_fanout.capacity.saturation import RHO_MAX, Replica
from pytest_fanout.records import ClassDemand, Customer, Demand, Fleet, Load, Outlook

Tasks = Mapping[str, Sequence[Mapping[str, int]]]
FEW = settings(max_examples=15, deadline=None, derandomize=True)


@st.composite
def trials(draw: st.DrawFn) -> dict[str, int]:
    """One trial that a run can have made."""
    calls = draw(st.integers(1, 60))
    given = draw(st.integers(0, 200_000))
    cached = draw(st.integers(0, given))
    ms = draw(st.integers(1, 600_000))
    return {
        "fanout": calls, "input_tokens": given, "cached_input_tokens": cached,
        "output_tokens": draw(st.integers(1, 20_000)), "duration_ms": ms, "model_ms": ms // 2, "tool_ms": ms // 4,
        "context_max": given // calls,
    }  # fmt: skip


SETS = st.dictionaries(
    st.sampled_from([f"t{n}" for n in range(8)]), st.lists(trials(), min_size=1, max_size=3), min_size=1
)
DEMAND = st.builds(
    lambda dau, tasks, peak: ClassDemand("support", dau, tasks, peak),
    st.integers(1, 10**6), st.floats(0.1, 50.0), st.floats(1.0, 10.0),
)  # fmt: skip


def fleet(demand: ClassDemand, **more: Any) -> Fleet:
    return Fleet("", "fleet.toml", demand={"support": demand}, **more)


def load(run: Tasks, where: Fleet) -> Load:
    figures = where.demand["support"]
    rate = figures.dau * figures.tasks_per_user_day / 86_400 * figures.peak_factor
    sides = sides_of("support", None, run, where)
    return load_of(sides.run, Demand("support", rate, per_1000=False), where, find_profile(where))


def grown(run: Tasks, name: str, ratio: int) -> Tasks:
    return {task: [{**trial, name: trial[name] * ratio} for trial in rows] for task, rows in run.items()}


def at_least(more: float | None, less: float | None) -> bool:
    """No number is more than any number: the fleet does not hold it."""
    return more is None or (less is not None and more >= less * (1 - 1e-9))


@FEW
@given(SETS, DEMAND, st.integers(2, 5))
def test_more_of_anything_never_takes_fewer_gpus(run: Tasks, demand: ClassDemand, ratio: int):
    """Users, output, or input that nobody cached: GPUs rise or stay."""
    plain = load(run, fleet(demand)).gpus

    assert at_least(load(run, fleet(replace(demand, dau=demand.dau * ratio))).gpus, plain)
    assert at_least(load(grown(run, "output_tokens", ratio), fleet(demand)).gpus, plain)
    assert at_least(load(grown(run, "input_tokens", ratio), fleet(demand)).gpus, plain)


@FEW
@given(SETS, DEMAND, st.floats(0.0, 1.0), st.floats(0.05, 0.85))
def test_a_worse_cache_or_more_room_never_takes_fewer_gpus(run: Tasks, demand: ClassDemand, share: float, rho: float):
    """A lower cap on what counts as cached, and a lower utilisation, take as many GPUs or more."""
    assert at_least(load(run, fleet(demand, cached_input_share_max=share)).gpus, load(run, fleet(demand)).gpus)
    assert at_least(
        load(run, fleet(demand, target_utilisation=rho)).gpus, load(run, fleet(demand, target_utilisation=0.85)).gpus
    )


@FEW
@given(SETS, DEMAND)
def test_tokens_are_conserved(run: Tasks, demand: ClassDemand):
    """New, cached and output a second are all tokens a second, which are tasks a second x the mean over tasks."""
    found = load(run, fleet(demand))
    rate = demand.dau * demand.tasks_per_user_day / 86_400 * demand.peak_factor
    means = [
        math.fsum(trial["input_tokens"] + trial["output_tokens"] for trial in rows) / len(rows) for rows in run.values()
    ]

    parts = (found.new_input_per_s, found.cached_input_per_s, found.output_per_s)
    assert math.fsum(part for part in parts if part is not None) == pytest.approx(found.tokens_per_s)
    assert found.tokens_per_s == pytest.approx(rate * math.fsum(means) / len(means))


@settings(max_examples=5, deadline=None, derandomize=True)
@given(SETS, DEMAND)
def test_equal_sides_grow_by_exactly_nothing(run: Tasks, demand: ClassDemand):
    """The same tasks in another order: growth of 0 and 1 to the last bit, whatever the fleet."""
    where = fleet(demand)
    turned = dict(reversed(list(run.items())))

    plan = plan_fleet([sides_of("support", turned, run, where)], where, find_profile(where), windows=50).fleet

    assert plan is not None
    if plan.growth is not None:
        assert (plan.growth.delta, plan.growth.delta_interval) == (0.0, (0.0, 0.0))
        assert (plan.growth.ratio, plan.growth.ratio_interval) == (1.0, (1.0, 1.0))
    assert plan.base is None or plan.base.gpus_spread == plan.run.gpus_spread


def intervals(record: Any) -> Iterator[tuple[str, float, tuple[float, float]]]:
    """Every estimate of a record, however deep, that has an interval of its own."""
    if isinstance(record, tuple):
        for each in record:
            yield from intervals(each)
    if not is_dataclass(record):
        return
    for field in fields(record):
        value = getattr(record, field.name)
        ends = getattr(record, f"{field.name}_interval", None)
        if ends is not None and value is not None:
            yield field.name, value, ends
        yield from intervals(value)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    SETS,
    SETS,
    DEMAND,
    st.floats(1.0, 200.0),
    st.dictionaries(st.sampled_from(["t0", "t1", "t2"]), st.floats(1e-6, 1e6)),
)
def test_every_estimate_lies_in_its_own_interval(
    base: Tasks, run: Tasks, demand: ClassDemand, iod: float, weights: dict[str, float]
):
    """Percentiles of GPUs, calls and tokens, their growth, and the weeks of a forecast: whatever the eval set."""
    where = fleet(replace(demand, iod=iod), gpus_reserved=10)
    profile = find_profile(where)
    sides = sides_of("support", base, run, where, {**dict.fromkeys({*base, *run}, 1.0), **weights})

    planned = plan_fleet([sides], where, profile, windows=40)
    one = with_windows(project_sides(sides, where, profile, weights), planned, profile, where)
    week = Forecaster([sides], where, profile, windows=40).forecast(Outlook(), date(2026, 11, 30), 1)

    found = list(intervals((planned.fleet, one, week.weeks)))
    assert {name for name, _, _ in found} >= {"p50", "p95", "p99"}
    assert one.run.refused or {name for name, _, _ in found} >= {"delta", "gpus_p95"}
    for name, value, (low, high) in found:
        assert low <= value <= high, name


@FEW
@given(st.floats(0.001, 1.0), st.floats(1e-5, 1.0), st.floats(0.01, RHO_MAX), st.floats(0.01, RHO_MAX))
def test_more_load_means_more_in_flight(t0: float, t1: float, one: float, two: float):
    """Mean and quantiles of calls in flight rise with utilisation, and no quantile lies below a lower one."""
    replica, (low, high) = Replica(t0, t1), sorted((one, two))

    assert replica.in_flight(low) <= replica.in_flight(high)
    if replica.in_flight(high) < 1e6:
        assert replica.in_flight_quantile(low, 0.95) <= replica.in_flight_quantile(high, 0.95)
        assert replica.in_flight_quantile(high, 0.95) <= replica.in_flight_quantile(high, 0.99)


@FEW
@given(
    st.lists(st.tuples(st.integers(-5, 60), st.integers(1, 10**6), st.floats(0.1, 20.0)), max_size=4),
    st.integers(0, 12),
)
def test_customers_are_counted_once(signed: list[tuple[int, int, float]], week: int):
    """Without growth the tasks of a week are those of today and of each customer who is live: none lost, none twice."""
    start = date(2026, 11, 30)
    demand = ClassDemand("support", 1_000, 2.0, 3.0)
    customers = tuple(
        Customer(f"c{n}", start + timedelta(days=days), dau, tasks) for n, (days, dau, tasks) in enumerate(signed)
    )
    trial = {"fanout": 1, "input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1}
    where = fleet(demand)
    made = Forecaster([sides_of("support", None, {"t": [trial]}, where)], where, find_profile(where))

    found = made.demand(Outlook(customers), start, week)["support"]

    live = [customer for customer in customers if customer.live < start + timedelta(weeks=week + 1)]
    assert found.dau == 1_000 + sum(customer.dau for customer in live)
    assert found.dau * found.tasks_per_user_day == pytest.approx(
        2_000.0 + math.fsum(customer.dau * customer.tasks_per_user_day for customer in live)
    )
