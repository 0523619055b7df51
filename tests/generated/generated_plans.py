"""Agents put together by chance: clients x threads x async x children x streams x faults, from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from generated_clients import HOW, SDKS, Op

#: How a stage runs its requests.
SYNC_CARRIERS = (
    "in order", "threads", "pool", "pool from import", "multiprocessing pool", "timer", "asyncio.run",
    "asyncio in a thread", "worker from before", "stream ended by another thread", "late thread",
    "child", "child by the gateway", "fork",
)  # fmt: skip
ASYNC_CARRIERS = (
    "in order", "gather", "task group", "to_thread", "run_in_executor", "anyio", "async generator", "late task",
    "child", "child by the gateway",
)  # fmt: skip
FAULTS = ("none",) * 8 + ("429", "500", "cut", "redirect")
WHATS = ("model",) * 8 + ("tool_call", "tool", "count", "models", "embed")


@dataclass(frozen=True)
class Stage:
    carrier: str
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Plan:
    """One agent. ``is_async``: its entry point is a coroutine function."""

    seed: int
    is_async: bool
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        stages = "; ".join(
            f"{stage.carrier}: " + ", ".join(f"{op.client}/{op.how}/{op.fault}/{op.what}" for op in stage.ops)
            for stage in self.stages
        )
        return f"seed {self.seed}: {'async' if self.is_async else 'sync'} agent: {stages}"


def make_plan(
    seed: int, url: str, sync_clients: Sequence[str], async_clients: Sequence[str], carriers: frozenset[str]
) -> Plan:
    """The agent of this seed; the same arguments always give the same one."""
    chance = random.Random(seed)
    is_async = chance.random() < 0.45
    stages = []
    for number in range(chance.randint(1, 3)):
        possible = [c for c in (ASYNC_CARRIERS if is_async else SYNC_CARRIERS) if c in carriers]
        carrier = chance.choice(possible)
        of_threads = carrier in ("to_thread", "run_in_executor", "anyio") or carrier.startswith("child")
        wants_async = (is_async and not of_threads) or carrier.startswith("asyncio")
        clients = async_clients if wants_async else sync_clients
        ops = tuple(
            _make_op(chance, url, clients, carrier, f"s{seed}-{number}-{at}") for at in range(chance.randint(1, 4))
        )
        stages.append(Stage(carrier, ops))
    return Plan(seed, is_async, tuple(stages))


def _make_op(chance: random.Random, url: str, clients: Sequence[str], carrier: str, text: str) -> Op:
    client = chance.choice(clients)
    if carrier.startswith("child") or carrier == "fork":
        client = "urllib"  # starts fast
    how, fault, what = chance.choice(HOW), chance.choice(FAULTS), chance.choice(WHATS)
    if client in SDKS:
        fault = "none" if fault == "redirect" else fault
        what = what if what in ("model", "tool_call") else "model"
    if client == "raw socket":
        fault = "none" if fault == "redirect" else fault
    if what in ("tool", "count", "models", "embed"):
        how = "whole"
        fault = "none" if fault in ("cut", "500", "429") else fault
    if carrier == "stream ended by another thread":
        client, how, fault, what = "httpx2", "stream", "none", "model"
    if carrier.startswith("child"):
        fault = "none" if fault in ("cut", "redirect") else fault
    return Op(client, how, fault, what, text, url)
