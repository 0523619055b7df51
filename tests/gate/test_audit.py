"""The audit of the main line, and a main line that is over budget itself."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from gate_world import TWENTY, World, git, make_run, slugs, started

from pytest_fanout.cli.baseline import main
from pytest_fanout.gate.audit import steps
from pytest_fanout.records import Baseline
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
#: The age of an approval counts on the day of its commit, which is that of the clock here.
DAY = datetime.now(UTC).date().isoformat()
LARGER = {**TWENTY, "t19": [30], "t20": [30]}
LOOSE = 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "50%", at_least = 1 }\n'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World.make(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    world.commit("begin")
    return world


def first(world: World) -> Baseline:
    anchor = world.anchor(make_run())
    world.approve(None, {"fanout.p95": 20, "tokens.p95": 2400}, nonce="1" * 16, requested_on=DAY)
    world.commit("first anchor")
    return anchor


def told(world: World, *agents: str) -> list[tuple[str, str, str]]:
    return [
        (step.commit.subject, step.subject, step.kind) for step in steps(world.repo, "HEAD", world.settings, agents)
    ]


def test_each_step_is_told_with_what_allowed_it(world: World) -> None:
    """First anchor and growth by approval; a growth without one; a fall that needs none; a waiver; a looser budget."""
    one = first(world)
    two = world.anchor(make_run(GROWN))
    world.approve(one, {"fanout.p95": 27, "tokens.p95": 3000}, nonce="2" * 16, requested_on=DAY)
    world.commit("growth, approved")
    world.anchor(make_run(LARGER))
    world.commit("growth, pushed past the gate")
    world.anchor(make_run())
    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_000_000, nonce="3" * 16)
    world.commit("back again, and an emergency")
    world.write("baselines/budget.toml", LOOSE)
    world.write("notes.txt", "nothing of the gate's")
    world.commit("a looser budget")
    world.write("notes.txt", "still nothing")
    world.commit("notes")

    assert told(world) == [
        ("a looser budget", "budget", "unapproved"),
        ("back again, and an emergency", "support", "tightening"),
        ("back again, and an emergency", "support", "waiver"),
        ("growth, pushed past the gate", "support", "unapproved"),
        ("growth, approved", "support", "approved"),
        ("first anchor", "support", "approved"),
    ]
    assert told(world, "budget") == [("a looser budget", "budget", "unapproved")]
    assert two.digest != one.digest


def test_the_text_names_approval_reason_and_who_asked(world: World) -> None:
    """And, where nothing allowed a step, why not; an empty history is said."""
    assert CliRunner().invoke(main, ["log"]).output == "no commit of this history changed an anchor or the budget\n"
    first(world)
    world.anchor(make_run(GROWN))
    grown = world.commit("growth\x1b[31m")
    rev = git(world.root, "rev-parse", "HEAD~1")

    done = CliRunner().invoke(main, ["log", "--agent", "support"], catch_exceptions=False)

    assert done.exit_code == 0
    assert done.output == (
        f"{DAY} {grown[:12]} support: NO APPROVAL  growth?[31m\n"
        "  metric fanout.p95: 19 -> 25\n"
        "  metric tokens.p95: 1,900 -> 2,500\n"
        "  HEAD holds no approval for it\n"
        f"{DAY} {rev[:12]} support: approved  first anchor\n"
        "  class added support\n"
        "  metric fanout.p95: none -> 19\n"
        "  metric tokens.p95: none -> 1,900\n"
        f"  baselines/approvals/{DAY}-support-first.json, asked for by dana@example.com:\n"
        "    The planner now verifies its citations.\n"
    )


def test_the_json_holds_the_same(world: World) -> None:
    """For another program: whole digests, null for what is not there."""
    first(world)
    (step,) = json.loads(CliRunner().invoke(main, ["log", "--format", "json"]).output)

    assert (step["commit"], step["kind"], step["why"]) == (git(world.root, "rev-parse", "HEAD"), "approved", None)
    assert step["approval"]["reason"] == "The planner now verifies its citations."
    assert step["changes"][1] == {"what": "metric", "name": "fanout.p95", "scope": "all", "old": None, "new": 19}


def test_a_merge_is_one_step_of_the_main_line(world: World) -> None:
    """Two approved changes come in by one merge: a step from anchor to anchor, whatever the branch did on its way."""
    one = first(world)
    world.branch()
    two = world.anchor(make_run(GROWN))
    world.approve(one, {"fanout.p95": 27, "tokens.p95": 3000}, nonce="2" * 16, requested_on=DAY)
    world.commit("one")
    world.anchor(make_run(LARGER))
    world.approve(two, {"fanout.p95": 33, "tokens.p95": 3500}, nonce="4" * 16, requested_on=DAY)
    world.commit("two")
    git(world.root, "switch", "-q", "main")
    git(world.root, "merge", "-q", "--no-ff", "-m", "the merge", "feature")

    assert told(world) == [("the merge", "support", "approved"), ("first anchor", "support", "approved")]


def test_a_red_main_is_named(tmp_path: Path) -> None:
    """The base holds the same recordings, anchor and budget: it has been over budget since they changed last.

    Whatever characters the subject of that commit holds.
    """
    world = started(tmp_path / "red")
    git(world.root, "switch", "-q", "main")
    world.write("fixtures/recordings/support/t19/t1.jsonl", "grown")
    since = world.commit("merged past\x01 the gate")
    world.write("notes.txt", "nothing of the gate's")
    base = world.commit("notes")
    git(world.root, "switch", "-q", "-c", "next")
    world.write("shop.py", "print()")
    world.commit("innocent")

    verdict = world.judge(make_run(GROWN))

    assert verdict.verdict == "regressed"
    (notice,) = [notice for notice in verdict.classes[0].notices if notice.slug == "main-over-budget"]
    day = git(world.root, "show", "-s", "--format=%cs", since)
    assert notice.text == (
        f"support: main itself is over budget since {since[:12]} of {day} (merged past\x01 the gate): the base commit "
        f"{base[:12]} holds the same recordings, anchor and budget; mend: mend or accept it there, by a change of its "
        "own, and merge that"
    )


def test_main_is_not_blamed_for_what_the_change_did(tmp_path: Path) -> None:
    """Recordings, anchor or budget that the change touched, or a new draw: then it is its own growth."""
    world = started(tmp_path / "project")
    git(world.root, "switch", "-q", "main")
    world.write("fixtures/recordings/support/t19/t1.jsonl", "calm")
    world.commit("main")
    git(world.root, "switch", "-q", "-c", "next")
    world.commit("nothing yet")
    new_draw = replace(make_run(GROWN), mode="record")
    assert "main-over-budget" in slugs(world.judge(make_run(GROWN)))
    assert "main-over-budget" not in slugs(world.judge(new_draw))
    assert "main-over-budget" not in slugs(world.judge(make_run()))
    world.write("fixtures/recordings/support/t19/t1.jsonl", "loose in the work tree")
    assert "main-over-budget" not in slugs(world.judge(make_run(GROWN)))

    world.commit("recorded anew")
    assert "main-over-budget" not in slugs(world.judge(make_run(GROWN)))
    git(world.root, "reset", "-q", "--hard", "HEAD~1")
    world.write(
        "baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "1%", at_least = 1 }\n'
    )
    world.commit("tighter")
    assert "main-over-budget" not in slugs(world.judge(make_run(GROWN)))


def budget(percent: int) -> str:
    return f'schema = 1\n[default.limits]\n"fanout.p95" = {{ increase = "{percent}%", at_least = 1 }}\n'


@pytest.mark.parametrize("is_lower", [True, False])
def test_a_step_is_a_step_whichever_digest_sorts_first(world: World, is_lower: bool) -> None:
    """An anchor that got lower, and a budget that got stricter."""
    world.write("baselines/budget.toml", budget(50))
    one, old = first(world), parse_budget(budget(50).encode()).digest
    anchors = (make_run({**TWENTY, "t19": [18], "t01": [number]}) for number in range(1, 16))
    world.anchor(next(run for run in anchors if (build_baseline(run, "support").digest < one.digest) == is_lower))
    world.commit("lower")
    budgets = (budget(percent) for percent in range(50))
    world.write(
        "baselines/budget.toml",
        next(text for text in budgets if (parse_budget(text.encode()).digest < old) == is_lower),
    )
    world.commit("stricter")
    world.write("baselines/approvals/notes.txt", "no anchor and no budget")
    world.commit("neither")

    assert told(world)[:2] == [("stricter", "budget", "tightening"), ("lower", "support", "tightening")]


def test_a_class_that_is_given_up_by_an_approval_without_ceilings(world: World) -> None:
    """One that allows numbers allows no removal."""
    one = first(world)
    for number, ceilings in enumerate(({"fanout.p95": 99, "tokens.p95": 9999}, {})):
        world.anchor(make_run())
        world.commit("back")
        (world.folder / "baselines/support.json").unlink()
        world.approve(one, ceilings, evalset=None, nonce=f"{number + 7}" * 16, requested_on=DAY)
        world.commit(f"removed {number}")

    assert [step for step in told(world) if step[0].startswith("removed")] == [
        ("removed 1", "support", "approved"),
        ("removed 0", "support", "unapproved"),
    ]


def test_each_change_of_the_fleet_is_a_step_but_the_first(world: World) -> None:
    """There was no demand before it; what is in between changes nothing of it."""
    first(world)
    for number, reserved in enumerate((4, 8, 2)):
        world.write("baselines/fleet.toml", f"schema = 1\n[fleet]\ngpus_reserved = {reserved}\n")
        world.commit(f"fleet {number}")
        world.write("baselines/approvals/notes.txt", f"{number}")
        world.commit("notes")
    (world.folder / "baselines/fleet.toml").unlink()
    world.commit("fleet 3")

    assert [step for step in told(world) if step[1] == "fleet"] == [
        (f"fleet {number}", "fleet", "unapproved") for number in (3, 2, 1)
    ]
    assert [step for step in told(world) if step[0] == "notes"] == []


def test_a_class_that_stayed_hides_no_other(world: World) -> None:
    """Of three classes the first and the last change in one commit."""
    for agent in ("aaa", "bbb", "ccc"):
        world.anchor(make_run(agent=agent), agent)
    world.commit("three")
    for agent in ("aaa", "ccc"):
        world.anchor(make_run(GROWN, agent=agent), agent)
    world.commit("two of them")

    assert [step for step in told(world) if step[0] == "two of them"] == [
        ("two of them", "aaa", "unapproved"),
        ("two of them", "ccc", "unapproved"),
    ]
