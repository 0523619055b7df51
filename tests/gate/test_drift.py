"""Slow growth: many approved steps have a budget of their own, counted from the approval files of HEAD's tree.

The anchor on main has fanout p95 19; GROWN has 25. The budget is the default one: 25 % in 90 days, of 2026-11-29.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from gate_world import TODAY, TWENTY, World, git, make_run, started

from pytest_fanout.gate.acceptance import plan_accept
from pytest_fanout.gate.plan import carry_out
from pytest_fanout.records import Base, Change, Verdict
from pytest_fanout.store.approvals import parse_approval

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
CEILINGS = {"fanout.p95": 27, "tokens.p95": 3000}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def told(verdict: Verdict) -> dict[str, str]:
    """slug -> text, of every problem and notice of the classes."""
    return {problem.slug: problem.text for result in verdict.classes for problem in (*result.problems, *result.notices)}


def earlier(world: World, *steps: tuple[str, int | None, int]) -> None:
    """Approved steps of fanout p95 on main: day, old, new. A new branch departs from there."""
    git(world.root, "switch", "-q", "main")
    for number, (day, old, new) in enumerate(steps, 1):
        world.approve(
            None,
            {"fanout.p95": new},
            from_digest=None if old is None else "sha256:" + str(number) * 64,
            nonce=str(number) * 16,
            requested_on=day,
            changes=(Change("metric", "fanout.p95", "all", old, new),),
        )
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit()


def step(world: World, *changes: Change) -> None:
    """HEAD's anchor is GROWN, by an approval that covers it and has these further lines."""
    origin = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    first: Sequence[Change] = (Change("metric", "fanout.p95", "all", 19, 25),)
    world.approve(origin, CEILINGS, changes=(*first, *changes), nonce="f" * 16)
    world.commit()


def test_growth_that_the_base_has_already_is_said(world: World) -> None:
    """Two approved steps from 15 to 19 within the window: 27 % in all. No later change could mend it."""
    earlier(world, ("2026-10-01", 15, 17), ("2026-10-02", 17, 19))

    found = world.judge(make_run())

    assert found.verdict == "pass"
    assert told(found)["drift"] == "support: fanout.p95 grew 15 -> 19 over the approvals of 90 days, more than 25 %"
    assert "drift" not in told(world.judge(make_run(), today=date(2027, 1, 1)))


def test_a_step_beyond_the_drift_budget_needs_a_line_of_its_own(world: World) -> None:
    """The approval covers 19 -> 25; that it is 15 -> 25 within the window, its reviewer was not told."""
    earlier(world, ("2026-10-01", 15, 19))
    step(world)

    found = world.judge(make_run(GROWN))

    assert found.verdict == "unapproved"
    assert told(found)["drift-unapproved"] == (
        "support: fanout.p95 grew 15 -> 25 over the approvals of 90 days, more than 25 %, "
        "and no approval has a drift line that reaches it; "
        'mend: fanout-baseline accept --agent support --reason "…" writes it'
    )


def test_a_drift_line_covers_the_growth(world: World) -> None:
    """Then it is approved, and still said."""
    earlier(world, ("2026-10-01", 15, 19))
    step(world, Change("drift", "fanout.p95", "all", 15, 25))

    found = world.judge(make_run(GROWN))

    assert found.verdict == "approved"
    assert "drift" in told(found)


def test_a_line_of_another_metric_covers_nothing(world: World) -> None:
    """Each metric that drifted is named."""
    earlier(world, ("2026-10-01", 15, 19))
    step(world, Change("drift", "tokens.p95", "all", 1500, 2500))

    assert world.judge(make_run(GROWN)).verdict == "unapproved"


@pytest.mark.parametrize(
    ("day", "old", "verdict"),
    [("2026-08-31", 15, "unapproved"), ("2026-08-30", 15, "approved"), ("2026-10-01", 20, "approved")],
    ids=["90 days ago", "91 days ago", "25 % are within 25 %"],
)
def test_what_counts(world: World, day: str, old: int, verdict: str) -> None:
    """Steps of the last 90 days, and growth of more than 25 %: 20 -> 25 is exactly that."""
    earlier(world, (day, old, 19))
    step(world)

    assert world.judge(make_run(GROWN)).verdict == verdict


def test_one_step_alone_is_no_drift(world: World) -> None:
    """19 -> 25 is 32 %, and its own approval shows it."""
    step(world)

    found = world.judge(make_run(GROWN))

    assert found.verdict == "approved"
    assert not {"drift", "drift-unapproved"} & told(found).keys()


def test_growth_since_the_first_anchor_stands_beside(world: World) -> None:
    """The first anchor had 9, long before the window; the window begins with 15."""
    earlier(world, ("2025-01-01", None, 9), ("2026-10-01", 15, 19))

    assert told(world.judge(make_run()))["drift"] == (
        "support: fanout.p95 grew 15 -> 19 over the approvals of 90 days, more than 25 % "
        "(since the first anchor 9 -> 19)"
    )


def test_a_first_anchor_within_the_window_is_where_growth_begins(world: World) -> None:
    """It has no old value: its own is the start, 15 of 2026-10-01."""
    earlier(world, ("2026-10-01", None, 15), ("2026-10-02", 17, 19))

    assert " 15 -> 19 " in told(world.judge(make_run()))["drift"]


def test_taking_an_approval_away_takes_no_growth_away(world: World) -> None:
    """The file is what growth is counted from; HEAD has to keep it as long as the window lasts."""
    earlier(world, ("2026-10-01", 15, 19))
    (path,) = (world.folder / "baselines/approvals").iterdir()
    path.unlink()
    world.commit()

    found = world.judge(make_run())

    assert found.verdict == "unapproved"
    assert told(found)["approval-removed"] == (
        f"support: baselines/approvals/{path.name} is gone or altered, and growth over 90 days is counted from it; "
        f"mend: git checkout <base> -- baselines/approvals/{path.name}"
    )
    assert world.judge(make_run(), today=date(2027, 1, 1)).verdict == "pass"


def test_an_approval_that_is_taken_away_with_a_step_still_counts(world: World) -> None:
    """Otherwise the next step would begin from nothing."""
    earlier(world, ("2026-10-01", 15, 19))
    for path in (world.folder / "baselines/approvals").iterdir():
        path.unlink()
    step(world)

    assert "drift-unapproved" in told(world.judge(make_run(GROWN)))


@pytest.mark.parametrize(
    "altered",
    [
        {"requested_on": "2026-08-01"},
        {"changes": (Change("metric", "fanout.p95", "all", 19, 19),)},
        {"changes": (Change("metric", "fanout.p95", "all", 15, 19), Change("drift", "fanout.p95", "all", 15, 19))},
    ],
    ids=["another day", "another start", "a drift line"],
)
def test_an_approval_that_is_altered_hides_no_growth(world: World, altered: dict[str, Any]) -> None:
    """Growth is counted from the file as the base holds it, and HEAD has to hold the same one."""
    earlier(world, ("2026-10-01", 15, 19))
    (path,) = (world.folder / "baselines/approvals").iterdir()
    stood = parse_approval(path.read_bytes(), f"baselines/approvals/{path.name}")
    path.unlink()
    world.approve(None, CEILINGS, **{name: getattr(stood, name) for name in ("from_digest", "nonce")} | altered)
    world.commit()

    assert told(world.judge(make_run()))["approval-removed"] == (
        f"support: baselines/approvals/{path.name} is gone or altered, and growth over 90 days is counted from it; "
        f"mend: git checkout <base> -- baselines/approvals/{path.name}"
    )
    step(world)

    assert "drift-unapproved" in told(world.judge(make_run(GROWN)))


def test_two_steps_of_one_day_are_counted_from_the_first(world: World) -> None:
    """15 -> 17 and 17 -> 19 on one day: which of the two files comes first says nothing, its name is a digest."""
    earlier(world, ("2026-10-01", 17, 19), ("2026-10-01", 15, 17))

    assert " 15 -> 19 " in told(world.judge(make_run()))["drift"]


def test_a_step_that_is_reverted_takes_no_earlier_approval_with_it(world: World) -> None:
    """15 -> 17 of October stands; only 19 -> 25 of November is undone, with its approval."""
    earlier(world, ("2026-10-01", 15, 17))
    git(world.root, "switch", "-q", "main")
    (october,) = (world.folder / "baselines/approvals").iterdir()
    step(world)
    git(world.root, "switch", "-q", "-C", "feature")
    world.anchor(make_run())
    for path in (world.folder / "baselines/approvals").iterdir():
        path.unlink()
    world.commit()

    found = world.judge(make_run())

    assert found.verdict == "unapproved"
    assert october.name in told(found)["approval-removed"]


def test_accept_writes_the_line_and_its_commit_is_approved(world: World) -> None:
    """The whole way: an earlier step from 15, a run of 25, accept, commit, judge."""
    earlier(world, ("2026-10-01", 15, 19))
    run = world.measured(make_run(GROWN))

    plan = plan_accept(
        run,
        world.repo,
        world.settings,
        reason="The planner considers three alternatives.",
        requested_by="dana@example.com",
        today=TODAY,
        ci=False,
        base=Base(world.repo.resolve("main"), "test"),
    )

    assert Change("drift", "fanout.p95", "all", 15, 25) in plan.classes[0].changes
    carry_out(plan, world.settings)
    world.commit()
    assert world.judge(make_run(GROWN)).verdict == "approved"
