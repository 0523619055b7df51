"""Which approval allows what: every word of it has to be the very one, not one that sorts before or after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from gate_world import EVALSET, TODAY, make_run, sha

from pytest_fanout.gate.permits import Target, covers, find_budget_permit, find_permit, split_spent, waiver_in_force
from pytest_fanout.records import Approval, Baseline
from pytest_fanout.store.baselines import build_baseline

ORIGIN, GOAL = sha("origin"), sha("goal")
TARGET = Target(EVALSET, {"fanout.p95": 20, "tokens.p95": 2000})
GIVEN = Approval(
    path="baselines/approvals/one.json",
    kind="baseline",
    subject="support",
    from_digest=ORIGIN,
    to_digest=None,
    evalset=EVALSET,
    ceilings={"fanout.p95": 20, "tokens.p95": 2000},
    changes=(),
    reason="The planner now verifies its citations.",
    requested_by="dana@example.com",
    requested_on=TODAY.isoformat(),
    nonce="5b1f0c9e7d3a2468",
)
BESIDE = [f"sha256:{digit * 64}" for digit in "0f"]  # before and after every other digest


def find(*new: Approval, spent: tuple[Approval, ...] = (), between: Any = tuple) -> tuple[Approval | None, str | None]:
    permit = find_permit("support", new, spent, ORIGIN, TARGET, TODAY, between)
    return permit.approval, permit.why


def test_the_approval_of_the_step_is_found() -> None:
    """Up to its ceilings it covers; it says no more than that."""
    assert find(GIVEN) == (GIVEN, None)


@pytest.mark.parametrize(
    "changes",
    [
        *({"kind": kind} for kind in ("aaa", "budget", "waiver")),
        *({"subject": subject} for subject in ("aaa", "zzz")),
    ],
)
def test_an_approval_of_something_else_is_none(changes: dict[str, str]) -> None:
    """Of another kind, or of another class."""
    assert find(replace(GIVEN, **changes)) == (None, "HEAD holds no approval for it")


@pytest.mark.parametrize("digest", [*BESIDE, None])
def test_an_approval_that_departs_from_another_anchor_is_none(digest: str | None) -> None:
    """It was given for another step."""
    assert find(replace(GIVEN, from_digest=digest)) == (
        None,
        "one.json departs from another anchor than the base's",
    )


@pytest.mark.parametrize("evalset", [*BESIDE, None])
def test_an_approval_of_another_eval_set_covers_nothing(evalset: str | None) -> None:
    """Other tasks, other numbers."""
    assert find(replace(GIVEN, evalset=evalset)) == (None, "one.json: it was given for another eval set")


@pytest.mark.parametrize(
    ("value", "why"), [(19, None), (20, None), (21, "it covers fanout.p95 up to 20, and this is 21")]
)
def test_a_ceiling_is_the_last_value_that_it_covers(value: int, why: str | None) -> None:
    """20 is allowed up to 20."""
    assert covers(GIVEN, Target(EVALSET, {"tokens.p95": 2000, "fanout.p95": value}), TODAY) == why


def test_every_value_has_to_be_covered() -> None:
    """A metric that the approval does not name is not covered by those that it names."""
    bare = replace(GIVEN, ceilings={"tokens.p95": 2000})

    assert covers(bare, TARGET, TODAY) == "it says nothing of fanout.p95"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "one.json is spent: the base commit holds it already"),
        *(({"kind": kind}, None) for kind in ("aaa", "budget", "waiver")),
        *(({"subject": subject}, None) for subject in ("aaa", "zzz")),
        *(({"from_digest": digest}, None) for digest in BESIDE),
    ],
)
def test_a_spent_approval_is_told_where_it_was_of_this_step(changes: dict[str, str], told: str | None) -> None:
    """One of another class, kind or step says nothing of this one."""
    assert find(spent=(replace(GIVEN, **changes),)) == (None, told or "HEAD holds no approval for it")


def test_the_newest_of_two_that_cover_is_named() -> None:
    """Names begin with their day; one that covers is enough, whatever the others are."""
    later = replace(GIVEN, path=GIVEN.path.replace("one", "two"))
    poor = replace(GIVEN, path=GIVEN.path.replace("one", "zero"), evalset=None)

    assert find(GIVEN, later, poor) == (later, None)


def anchor(number: int) -> Baseline:
    return build_baseline(make_run({"a": [number]}), "support")


@pytest.mark.parametrize("order", [1, -1])
def test_a_chain_is_followed_in_whatever_order_its_anchors_come(order: int) -> None:
    """ORIGIN -> 1 -> 2 -> the target: each link has an approval; without one of them nothing is reached."""
    first, second = anchor(1), anchor(2)
    links = [
        replace(GIVEN, path="a/1.json", ceilings={"fanout.p95": 1, "tokens.p95": 100}),
        replace(GIVEN, path="a/2.json", from_digest=first.digest, ceilings={"fanout.p95": 2, "tokens.p95": 200}),
        replace(GIVEN, path="a/3.json", from_digest=second.digest),
    ]
    targets = [
        (first, Target(EVALSET, {"fanout.p95": 1, "tokens.p95": 100})),
        (second, Target(EVALSET, {"fanout.p95": 2, "tokens.p95": 200})),
    ]

    assert find(*links, between=lambda: targets[::order]) == (links[2], None)
    for missing in (0, 1):
        rest = [link for index, link in enumerate(links) if index != missing]
        assert find(*rest, between=lambda: targets[::order])[0] is None


def test_what_the_base_holds_is_spent_under_whatever_name() -> None:
    """The nonce says which approval it is."""
    copy, other = replace(GIVEN, path="a/copy.json"), replace(GIVEN, nonce="0123456789abcdef")

    assert split_spent((copy, other), (GIVEN,)) == ((other,), (copy,))


def budget(**changes: Any) -> Approval:
    return replace(GIVEN, **{"kind": "budget", "subject": "budget", "to_digest": GOAL, "ceilings": {}, **changes})


def find_budget(*new: Approval) -> tuple[Approval | None, str | None]:
    permit = find_budget_permit("budget", new, ORIGIN, GOAL, TODAY)
    return permit.approval, permit.why


def test_the_approval_of_a_budget_is_found() -> None:
    """From the very content to the very content."""
    assert find_budget(budget()) == (budget(), None)


@pytest.mark.parametrize(
    "changes",
    [
        *({"kind": kind} for kind in ("aaa", "baseline", "waiver")),
        *({"subject": subject} for subject in ("aaa", "fleet")),
    ],
)
def test_an_approval_of_something_else_allows_no_budget(changes: dict[str, str]) -> None:
    """Not even one of fleet.toml."""
    assert find_budget(budget(**changes)) == (None, "HEAD holds no approval for it")


@pytest.mark.parametrize("field", ["from_digest", "to_digest"])
@pytest.mark.parametrize("digest", BESIDE)
def test_an_approval_of_another_content_allows_no_budget(field: str, digest: str) -> None:
    """It says from where to where."""
    assert find_budget(budget(**{field: digest})) == (None, "one.json: it leads from or to another content")


def test_a_chain_of_budgets_ends_with_the_last_link() -> None:
    """In whatever order its files are read; one that is too old breaks it."""
    first = budget(path="a/1.json", to_digest=sha("between"))
    second = budget(path="a/2.json", from_digest=sha("between"))
    old = replace(first, requested_on=(TODAY - timedelta(days=31)).isoformat())

    assert find_budget(first, second) == find_budget(second, first) == (second, None)
    assert find_budget(old, second) == (
        None,
        "1.json: it is 31 days old, and an approval is used within 30 days; "
        "2.json: it leads from or to another content",
    )


def seconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


ENDS = seconds(TODAY) + 3 * 86_400
BEGINS = seconds(TODAY) - 86_400
WAIVER = replace(GIVEN, kind="waiver", from_digest=None, expires_at=ENDS, ceilings={})


@pytest.mark.parametrize(
    ("now", "holds"), [(BEGINS - 1, False), (BEGINS, True), (seconds(TODAY), True), (ENDS - 1, True), (ENDS, False)]
)
def test_a_waiver_holds_from_a_day_before_its_date_to_its_end(now: int, holds: bool) -> None:
    """A day before, for the time zones; at its end it holds no more."""
    assert waiver_in_force((WAIVER,), "support", now) == (WAIVER if holds else None)


@pytest.mark.parametrize(
    "changes",
    [
        *({"kind": kind} for kind in ("baseline", "zzz")),
        *({"subject": subject} for subject in ("aaa", "zzz")),
        {"requested_on": "someday"},
        {"expires_at": None},
    ],
)
def test_what_is_no_waiver_of_the_class_is_passed_over(changes: dict[str, Any]) -> None:
    """The one behind it holds."""
    other = replace(WAIVER, **changes)

    assert waiver_in_force((other,), "support", seconds(TODAY)) is None
    assert waiver_in_force((other, WAIVER), "support", seconds(TODAY)) == WAIVER
