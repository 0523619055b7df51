"""The trend of approved values stands in the order in which they followed each other."""

from __future__ import annotations

from pytest_fanout.gate.past import trends_of
from pytest_fanout.records import Approval, Change


def approval(path: str, old: str | None, new: str, value: int, day: str = "2026-11-30") -> Approval:
    change = Change("metric", "fanout.p95", "all", None, value)
    return Approval(path, "baseline", "support", old, new, None, {}, (change,), "a reason", "dana", day, "n")


def values(*approvals: Approval) -> list[int]:
    (trend,) = trends_of(sorted(approvals, key=lambda each: each.path), "support")
    return [step.value for step in trend.steps]


def test_approvals_of_one_day_follow_the_anchors_that_they_replaced() -> None:
    """7, then 12, then 9, whatever their files are called; a day later comes later."""
    first = approval("z-first.json", None, "A", 7)
    second = approval("b-second.json", "A", "B", 12)
    third = approval("a-third.json", "B", "C", 9)
    later = approval("a-later.json", "C", "D", 20, "2026-12-01")

    assert values(first, second, third) == [7, 12, 9]
    assert values(first, second, third, later) == [7, 12, 9, 20]
    assert values(second, third) == [12, 9]


def test_approvals_without_a_chain_stand_by_their_files() -> None:
    """Digests that lead nowhere, or in a circle, lose none of them."""
    assert values(approval("a.json", "X", "Y", 1), approval("b.json", "P", "Q", 2)) == [1, 2]
    assert values(approval("a.json", "X", "Y", 1), approval("b.json", "Y", "X", 2)) == [1, 2]
