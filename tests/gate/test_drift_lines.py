"""Which lines of which approvals growth is counted from, and which lines speak of it: each bound from both sides.

The anchor has fanout p95 25 and the budget is the default one: 25 % in 90 days, of 2026-11-29.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from gate_world import EVALSET, TODAY, TWENTY, make_run, sha

from pytest_fanout.gate.drift import Growth, drift_lines, drift_words, growth_of, of_drift, of_taken_away
from pytest_fanout.records import Approval, Change, JudgeRules, Limit
from pytest_fanout.store.baselines import build_baseline

ANCHOR = build_baseline(make_run({**TWENTY, "t19": [25], "t20": [25]}), "support")
LIMITS = (Limit("fanout", "p95"),)
RULES = JudgeRules()
NOT_US = [*({"kind": kind} for kind in ("aaa", "budget", "waiver")), *({"subject": name} for name in ("aaa", "zzz"))]


def day(back: int) -> str:
    return (TODAY - timedelta(days=back)).isoformat()


def approval(*changes: Change, back: int = 10, **others: Any) -> Approval:
    made = Approval(
        path=f"baselines/approvals/{back:03d}.json",
        kind="baseline",
        subject="support",
        from_digest=sha(f"{back}"),
        to_digest=None,
        evalset=EVALSET,
        ceilings={"fanout.p95": 25},
        changes=changes,
        reason="The planner now verifies its citations.",
        requested_by="dana@example.com",
        requested_on=day(back),
        nonce="5b1f0c9e7d3a2468",
    )
    return replace(made, **others)


def step(old: int | str | None, new: int | str, name: str = "fanout.p95", scope: str = "all") -> Change:
    return Change("metric", name, scope, old, new)


def growth(*approvals: Approval) -> Growth:
    (found,) = growth_of(approvals, "support", ANCHOR, LIMITS, 90, TODAY)
    return found


@pytest.mark.parametrize(
    "other",
    [
        *(approval(step(1, 2), back=20, **changes) for changes in NOT_US),
        approval(step(1, 2), back=20, requested_on="someday"),
        approval(step(1, 2, scope="common"), back=20),
        approval(step("1/2", "2/2"), back=20),
        approval(step(1, 2, name="aaa.p95"), back=20),
        approval(step(1, 2, name="tokens.p95"), back=20),
        *(approval(Change(what, "fanout.p95", "all", 1, 2), back=20) for what in ("drift", "task_added")),
    ],
)
def test_what_growth_is_not_counted_from(other: Approval) -> None:
    """Other kinds, classes, metrics and scopes, shares, lines that are no step: 19 of ten days ago is the start."""
    assert growth(other, approval(step(19, 25))) == Growth("fanout.p95", 25, 19, 19)


@pytest.mark.parametrize(("back", "before"), [(89, 15), (90, 15), (91, None)])
def test_the_window_holds_its_last_day(back: int, before: int | None) -> None:
    """What lies before it is the first anchor's, and no growth of the window."""
    assert growth(approval(step(15, 25), back=back)) == Growth("fanout.p95", 25, 15, before)


def test_the_start_is_that_of_the_earliest_day_and_there_the_lowest() -> None:
    """Of three on one day the names do not tell their order; a later one is lower and does not count."""
    same = [replace(approval(step(old, 25), back=30), path=f"{old}.json") for old in (18, 16, 17)]

    assert growth(*same, approval(step(12, 25))).before == 16
    assert growth(approval(step(12, 25)), *same[::-1]).before == 16


def test_without_approvals_nothing_is_known_to_have_grown() -> None:
    """Neither since the first anchor nor within the window."""
    assert growth() == Growth("fanout.p95", 25, None, None)
    assert not growth().exceeds(RULES.drift)


@pytest.mark.parametrize(("start", "lines"), [(19, 1), (20, 0), (21, 0)])
def test_an_approval_has_a_drift_line_from_beyond_the_budget(start: int, lines: int) -> None:
    """20 -> 25 is 25 %, and that is allowed."""
    found = drift_lines([approval(step(start, 24))], "support", ANCHOR, LIMITS, RULES, TODAY)

    assert found == (Change("drift", "fanout.p95", "all", start, 25),) * lines


@pytest.mark.parametrize(
    ("spoken", "verdict"),
    [
        ({}, "notice"),
        ({"ceilings": {"fanout.p95": 26}}, "notice"),
        ({"ceilings": {"fanout.p95": 24}}, "unapproved"),
        ({"ceilings": {"tokens.p95": 99}}, "unapproved"),
        ({"requested_on": day(90)}, "notice"),
        ({"requested_on": day(91)}, "unapproved"),
        *((changes, "unapproved") for changes in NOT_US),
        *(
            ({"changes": (Change("drift", name, "all", 15, 25),)}, "unapproved")
            for name in ("aaa.p95", "fanout.p99", "tokens.p95")
        ),
        *(
            ({"changes": (Change(what, "fanout.p95", "all", 15, 25),)}, "unapproved")
            for what in ("metric", "class_added")
        ),
    ],
)
def test_which_approval_speaks_of_the_growth(spoken: dict[str, Any], verdict: str) -> None:
    """One of the class and of the window, with a drift line of the metric and a ceiling that reaches 25."""
    line = replace(approval(Change("drift", "fanout.p95", "all", 15, 25), back=5), **spoken)

    (problem,) = of_drift(
        [approval(step(15, 19), back=60)], [line], "support", ANCHOR, LIMITS, RULES, TODAY, moved=True
    )

    assert (problem.slug, problem.verdict) == ("drift" if verdict == "notice" else "drift-unapproved", verdict)


def test_growth_within_the_budget_is_not_told() -> None:
    """20 -> 25."""
    assert of_drift([approval(step(20, 25))], [], "support", ANCHOR, LIMITS, RULES, TODAY, moved=True) == []


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (None, ""),
        (15, ""),
        (14, " (since the first anchor 14 -> 25)"),
        (16, " (since the first anchor 16 -> 25)"),
    ],
)
def test_the_first_anchor_is_told_where_it_is_another_start(first: int | None, more: str) -> None:
    """Higher or lower."""
    assert drift_words(Growth("fanout.p95", 25, first, 15), RULES) == (
        f"fanout.p95 grew 15 -> 25 over the approvals of 90 days, more than 25 %{more}"
    )


@pytest.mark.parametrize(("back", "told"), [(90, True), (91, False)])
def test_an_approval_is_missed_as_long_as_growth_is_counted_from_it(back: int, told: bool) -> None:
    """Its last day is that of the window."""
    found = of_taken_away([approval(step(15, 19), back=back)], ANCHOR, RULES, TODAY)

    assert [problem.slug for problem in found] == ["approval-removed"] * told


@pytest.mark.parametrize("changes", NOT_US)
def test_an_approval_of_something_else_is_not_missed(changes: dict[str, str]) -> None:
    """It is missed where it belongs."""
    assert of_taken_away([approval(step(15, 19), **changes)], ANCHOR, RULES, TODAY) == []


def test_a_revert_takes_its_own_approval_and_those_since() -> None:
    """The anchor is the one that the approval of twenty days ago departed from: only the one before it is missed."""
    reverted = approval(step(25, 40), back=20, from_digest=ANCHOR.digest)
    gone = [approval(step(15, 19), back=21), reverted, approval(step(40, 50), back=20), approval(step(50, 60), back=5)]

    assert [problem.text.split()[1] for problem in of_taken_away(gone, ANCHOR, RULES, TODAY)] == [gone[0].path]


@pytest.mark.parametrize("digest", ["sha256:" + digit * 64 for digit in "0f"])
def test_an_approval_that_departs_from_another_anchor_is_no_revert(digest: str) -> None:
    """Whether its digest sorts before or after that of the anchor."""
    assert len(of_taken_away([approval(step(15, 19), from_digest=digest)], ANCHOR, RULES, TODAY)) == 1


def test_a_day_that_is_none_is_of_no_window() -> None:
    """Such an approval covers nothing, and is reported as a file that cannot be used."""
    assert growth(approval(step(15, 19), requested_on=str(date.max) + "x")).before is None
