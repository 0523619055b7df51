"""The last column of a limit: what the figure means for the verdict."""

from __future__ import annotations

from dataclasses import replace

from pytest_fanout.records import ClassResult, MetricResult
from pytest_fanout.report import facts

ROW = MetricResult("fanout.p95", base=12, run=14, limit=13, over=False, gated=True, n=20, trials=100)
CLASS = ClassResult("support", "pass", "new", (), (), 20, 20, 20)


def state(verdict: str = "pass", **fields: object) -> str:
    result = replace(CLASS, verdict=verdict)
    return facts.state(result, replace(ROW, **fields))  # type: ignore[arg-type]


def test_a_figure_above_its_limit_without_shown_growth_is_never_ok() -> None:
    """14 where 13 is the limit, and evidence sees no growth: a new draw passes, and its row says `~`."""
    assert state(evidence="shown") == "~"
    assert state(evidence="shown", run=13) == "ok"
    assert state(evidence="low", run=13) == "~"


def test_raw_numbers_are_over_or_ok() -> None:
    """A replay has no luck in it."""
    assert state("regressed", over=True) == "OVER"
    assert state(run=13) == "ok"
    assert state(run=None) == "unknown"
