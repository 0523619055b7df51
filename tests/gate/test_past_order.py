"""The trend of approved values stands in the order in which they followed each other."""

from __future__ import annotations

from pathlib import Path

from gate_world import TWENTY, make_run, started

from pytest_fanout.gate.past import past_of, trends_of
from pytest_fanout.records import Approval, Change


def approval(path: str, old: str | None, new: str | None, value: int, day: str = "2026-11-30") -> Approval:
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


def test_a_first_anchor_stands_first_on_its_day() -> None:
    """Approvals of anchors do not say where they lead to, and their files are in the order of digests."""
    assert values(approval("a-9b95.json", "A", None, 9), approval("b-first.json", None, None, 7)) == [7, 9]


def test_the_past_is_read_from_heads_tree(tmp_path: Path) -> None:
    """Anchors of both commits, and what HEAD's approvals say; without a repository there is none."""
    world = started(tmp_path / "project")
    world.anchor(make_run({**TWENTY, "t19": [25], "t20": [25]}))
    change = Change("metric", "fanout.p95", "all", 19, 25)
    world.approve(None, {"fanout.p95": 27, "tokens.p95": 3000}, changes=(change,))
    world.commit()
    verdict = world.judge(make_run())

    found = past_of(verdict, world.repo, world.settings)
    assert [(trend.metric, [step.value for step in trend.steps]) for trend in found.trends] == [("fanout.p95", [25])]
    assert list(found.anchors) == ["support"]
    none = past_of(verdict, None, world.settings)
    assert (none.trends, dict(none.anchors)) == ((), {})
