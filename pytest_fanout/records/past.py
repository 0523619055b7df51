"""What git holds that a page shows beside a run: anchors, and the steps by which approvals have moved them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.records.committed import Baseline


@dataclass(frozen=True, slots=True)
class TrendStep:
    """One approved value of a metric. ``day``: ISO date of its approval."""

    day: str
    value: int
    approval: str  # path
    reason: str


@dataclass(frozen=True, slots=True)
class Trend:
    """The approved values of one metric of a class, oldest first, as the approval files of a commit tell them."""

    agent: str
    metric: str  # e.g. "fanout.p95"
    steps: tuple[TrendStep, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """The anchors that a run is compared with, by class, and their trends."""

    anchors: Mapping[str, Baseline]
    trends: tuple[Trend, ...]
