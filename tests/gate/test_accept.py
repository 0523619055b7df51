"""Accepting a run: what is written, what is refused, and what a kill on the way leaves."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import TODAY, TWENTY, World, git, make_run, slugs, started, with_trials, without

from pytest_fanout.errors import FanoutError, GitError, IntegrityError, NotAccepted, StorageError, UsageError
from pytest_fanout.gate import Accepted, accept, plan_accept
from pytest_fanout.records import (
    Base,
    Exchange,
    HttpAnswer,
    HttpRequest,
    Problem,
    Recording,
    Run,
    SessionFacts,
)
from pytest_fanout.store import files, tape
from pytest_fanout.store.approvals import parse_approval
from pytest_fanout.store.recordings import RecordingStore

SEE = "\n  see: docs/messages.md#"
GROWN = {**TWENTY, "t19": [25], "t20": [25]}
REASON = "The planner now verifies its citations."
AGAIN = "\n  mend: mend that first, then run `pytest --fanout-budget` again"
UNSELECTED = "\n  mend: run `pytest --fanout-budget` without -k, -m, node ids or --fanout-agent, then accept again"
WHOLE = "\n  mend: run `pytest --fanout-budget` on the whole class, then accept again"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def words(world: World, **changes: Any) -> dict[str, Any]:
    return {
        "reason": REASON,
        "requested_by": "dana@example.com",
        "today": TODAY,
        "ci": False,
        "base": Base(world.repo.resolve("main"), "test"),
        **changes,
    }


def take(world: World, run: Run, **changes: Any) -> Accepted:
    return accept(world.measured(run), world.repo, world.settings, **words(world, **changes))


def approval_files(world: World) -> list[str]:
    folder = world.folder / "baselines" / "approvals"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_growth_is_written_with_its_approval_and_is_green_once_committed(world: World) -> None:
    """The whole way: red, accepted and still red, committed and approved."""
    digest12 = world.anchor(make_run()).digest[7:19]
    assert world.judge(make_run(GROWN)).verdict == "regressed"

    done = take(world, make_run(GROWN))

    name = f"2026-11-29-support-{digest12}.json"
    assert done.written == (
        "baselines/support.sites.json",
        f"baselines/approvals/{name}",
        "baselines/support.json",
    )
    assert world.judge(make_run(GROWN)).verdict == "regressed"
    world.commit()
    assert world.judge(make_run(GROWN)).verdict == "approved"


def test_the_approval_holds_ceilings_changes_and_reason(world: World) -> None:
    """25 x 1.1 = 27 and 2500 + 500 = 3000 are what is covered; the changes are for the reviewer."""
    take(world, make_run(GROWN))

    (name,) = approval_files(world)
    approval = parse_approval((world.folder / "baselines/approvals" / name).read_bytes(), name)
    assert approval.ceilings == {"fanout.p95": 27, "tokens.p95": 3000}
    assert [(c.what, c.name, c.scope, c.old, c.new) for c in approval.changes] == [
        ("metric", "fanout.p95", "all", 19, 25),
        ("metric", "tokens.p95", "all", 1900, 2500),
    ]
    assert (approval.reason, approval.requested_by, approval.requested_on) == (REASON, "dana@example.com", "2026-11-29")


def test_a_first_anchor_is_approved_from_nothing(tmp_path: Path) -> None:
    """Without an anchor the verdict is no-baseline; accepted and committed it is approved."""
    world = World.make(tmp_path / "project")
    world.commit()
    world.branch()
    assert world.judge(make_run()).verdict == "no-baseline"

    take(world, make_run())
    world.commit()

    assert approval_files(world) == ["2026-11-29-support-first.json"]
    assert world.judge(make_run()).verdict == "approved"


def test_a_better_anchor_needs_no_approval(world: World) -> None:
    """It moves down, and pass is pass."""
    better = make_run({**TWENTY, "t19": [18]})

    take(world, better)
    world.commit()

    assert approval_files(world) == []
    assert world.judge(better).verdict == "pass"


def test_accepting_what_is_committed_already_writes_nothing(world: World) -> None:
    """The plan says that there is nothing to do."""
    plan = plan_accept(world.measured(make_run()), world.repo, world.settings, **words(world))

    assert (plan.classes, plan.unchanged) == ((), ("support",))


def test_a_second_try_replaces_this_branchs_approval(world: World) -> None:
    """One approval a class and branch: the older one is removed, those of the base stay."""
    git(world.root, "switch", "-q", "main")
    world.approve(None, {"fanout.p95": 1}, nonce="a" * 16, changes=(), requested_on="2026-01-01")
    world.approve(None, {"fanout.p95": 1}, nonce="b" * 16, changes=(), requested_on="2026-01-01", subject="triage")
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    kept = approval_files(world)
    take(world, make_run({**TWENTY, "t19": [22]}))
    world.commit()
    (old,) = set(approval_files(world)) - set(kept)
    os.rename(
        world.folder / "baselines/approvals" / old,
        world.folder / "baselines/approvals" / old.replace("2026-11-29", "2026-11-28"),
    )
    path = world.folder / "baselines/approvals" / old.replace("2026-11-29", "2026-11-28")
    path.write_text(path.read_text().replace("2026-11-29", "2026-11-28"))

    done = take(world, make_run(GROWN))

    assert done.removed == (f"baselines/approvals/{path.name}",)
    assert set(approval_files(world)) == {*kept, old}


def test_an_approval_does_not_overwrite_one_of_the_base(world: World) -> None:
    """The same step was approved and reverted today: the log keeps both."""
    git(world.root, "switch", "-q", "main")
    name = world.approve(world.anchor(make_run()), {"fanout.p95": 1}, changes=(), requested_on="2026-11-29").path
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")

    take(world, make_run(GROWN))
    world.commit()

    assert approval_files(world) == sorted([Path(name).name, Path(name).stem + "-2.json"])
    assert world.judge(make_run(GROWN)).verdict == "approved"


def test_a_removed_line_of_the_evalset_is_accepted(world: World) -> None:
    """incomplete until accepted: the only missing task left the eval set."""
    fewer = without(make_run(), "t20", defined=False)
    assert world.judge(fewer).verdict == "incomplete"

    take(world, fewer)
    world.commit()

    assert world.judge(fewer).verdict == "approved"


def test_a_removed_marked_test_is_accepted_when_it_is_named(world: World) -> None:
    """Nothing but the developer's word tells a deleted test from a lost one."""
    run = make_run(definitions={}, evalsets={"support": None})
    run = replace(run, tasks=tuple(replace(task, definition=None) for task in run.tasks))
    git(world.root, "switch", "-q", "main")
    world.anchor(run)
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    fewer = without(run, "t20")
    with pytest.raises(NotAccepted):
        take(world, fewer)

    take(world, fewer, removals=["t20"])
    world.commit()

    assert world.judge(fewer).verdict == "approved"


def test_new_heavy_tasks_raise_the_ceiling_of_the_common_ones(world: World) -> None:
    """Cheap new tasks dilute: p95 of all falls to 18, that of the common tasks rises to 25, and 25 is covered."""
    run = make_run({**GROWN, **{f"cheap{number:02d}": [1] for number in range(40)}})

    take(world, run)
    world.commit()

    assert world.judge(run).verdict == "approved"
    (name,) = approval_files(world)
    assert json.loads((world.folder / "baselines/approvals" / name).read_text())["ceilings"]["fanout.p95"] == 27


def test_a_class_that_the_settings_dropped_is_given_up(world: World) -> None:
    """Its anchor goes, by an approval without ceilings."""
    git(world.root, "switch", "-q", "main")
    world.anchor(make_run(agent="triage"), "triage")
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    assert world.judge(make_run()).verdict == "incomplete"

    done = accept(world.measured(make_run()), world.repo, world.settings, agents=["triage"], **words(world))
    world.commit()

    assert done.removed == ("baselines/triage.json",)
    assert world.judge(make_run()).verdict == "approved"


def test_a_looser_budget_is_approved_by_its_digests(world: World) -> None:
    """budget.toml of the work tree is what will be committed."""
    world.write("baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "20%" }\n')

    done = take(world, make_run())
    world.commit()

    assert [Path(name).name[:18] for name in done.written] == ["2026-11-29-budget-"]
    found = world.judge(make_run())
    assert (found.verdict, "budget-approved" in slugs(found)) == ("pass", True)


def test_a_changed_calibration_is_a_changed_fleet(world: World) -> None:
    """What a GPU can do moves every limit on capacity, so that it is approved like the fleet.toml that names it."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/fleet.toml", '[fleet]\ncalibration = "calibrations/h200.json"\n')
    world.write("baselines/calibrations/h200.json", '{"tokens_per_s": 1}\n')
    base = world.commit("fleet")
    git(world.root, "switch", "-q", "-c", "faster")
    world.write("baselines/calibrations/h200.json", '{"tokens_per_s": 1}\r\n')
    world.commit("line ends")
    same = world.judge(make_run())
    world.write("baselines/calibrations/h200.json", '{"tokens_per_s": 1000}\n')
    world.commit("a much faster GPU")
    changed = world.judge(make_run())

    accept(world.measured(make_run()), world.repo, world.settings, **words(world, base=Base(base, "test")))
    world.commit("accepted")

    assert same.verdict == "pass"
    assert (changed.verdict, slugs(changed) & {"fleet-changed"}) == ("unapproved", {"fleet-changed"})
    assert world.judge(make_run()).verdict == "pass"


def test_a_changed_fleet_is_approved_by_its_digests(world: World) -> None:
    """Demand that changes is reviewed like a limit."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/fleet.toml", "peak = 1\n")
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    world.write("baselines/fleet.toml", "peak = 2\n")

    take(world, make_run())
    world.commit()

    assert world.judge(make_run()).verdict == "pass"


def refused_runs() -> list[tuple[str, Run, dict[str, Any], str]]:
    run = make_run()
    shard, partial = SessionFacts(shard="1/2"), SessionFacts(partial=True)
    return [
        (
            "ci",
            run,
            {"ci": True},
            "a run is not accepted in CI: a build must not approve itself\n  mend: run `fanout-baseline accept` on "
            f"your machine, with the report that CI kept{SEE}accept-in-ci",
        ),
        (
            "shard",
            replace(run, session=shard),
            {},
            f"the report is of shard 1/2 only{WHOLE}{SEE}accept-shard",
        ),
        (
            "partial",
            replace(run, session=partial),
            {},
            f"the report is of a partial run: tasks were left out{UNSELECTED}{SEE}accept-partial",
        ),
        (
            "class",
            replace(run, session=partial, agents=("support", "triage")),
            {},
            f"the report is of a partial run: triage was not run{UNSELECTED}{SEE}accept-partial",
        ),
        (
            "task",
            replace(run, session=partial, tasks=tuple(task for task in run.tasks if task.task != "t01")),
            {},
            f"the report is of a partial run: t01 of support was left out{UNSELECTED}{SEE}accept-partial",
        ),
        (
            "live",
            replace(run, mode="live"),
            {},
            "the report is of a live run, which keeps no recordings: an anchor without them cannot be replayed\n"
            "  mend: pytest --fanout-budget --fanout-mode=record, then accept that; --fanout-mode=rerecord where the "
            f"recordings still fit{SEE}accept-live",
        ),
        (
            "stale",
            with_trials(run, "t03", status="stale"),
            {},
            "support cannot be accepted, its verdict is stale: support: the requests of t03 differ from the "
            f"recordings; mend: pytest --fanout-budget --fanout-mode=record{AGAIN}{SEE}not-measured",
        ),
        (
            "incomplete",
            without(run, "t03"),
            {},
            "support cannot be accepted, its verdict is incomplete: support: no completed run of t03; mend: run the "
            f"whole class, without -k, -m, -x or skips{AGAIN}{SEE}not-measured",
        ),
        (
            "invalid",
            replace(run, problems=(Problem("hook-failed", "the hook is gone", "invalid"),)),
            {},
            f"the run cannot be accepted, its verdict is invalid: the hook is gone{AGAIN}{SEE}not-measured",
        ),
        (
            "stale as a whole",
            replace(run, problems=(Problem("x", "it is old", "stale"),)),
            {},
            f"the run cannot be accepted, its verdict is stale: it is old{AGAIN}{SEE}not-measured",
        ),
        (
            "pass share",
            with_trials(make_run({**TWENTY, "t19": [18]}), "t19", passed=False),
            {},
            "the anchor of support would be lowered by a run in which fewer trials pass (20/20 -> 19/20)\n  mend: mend "
            f"what fails first: an anchor goes down only when the work is still done{SEE}pass-share-fell",
        ),
    ]


REFUSED = refused_runs()


@pytest.mark.parametrize(("run", "changes", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_runs_that_are_not_accepted(world: World, run: Run, changes: dict[str, Any], message: str) -> None:
    """Every not-measured verdict but no-baseline, CI, shards, partial runs; nothing is written."""
    before = sorted(path.name for path in (world.folder / "baselines").rglob("*"))

    with pytest.raises(NotAccepted) as caught:
        take(world, run, **changes)

    assert str(caught.value) == message
    assert sorted(path.name for path in (world.folder / "baselines").rglob("*")) == before


def test_a_stale_run_is_not_accepted_under_a_waiver(world: World) -> None:
    """A waiver lets a build pass; it makes no measurement."""
    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_000_000)
    world.commit()

    with pytest.raises(NotAccepted):
        take(world, with_trials(make_run(), "t03", status="stale"))


def test_a_value_above_its_maximum_is_not_accepted(world: World) -> None:
    """No ceiling lies above max."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { max = 22 }\n')
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")

    with pytest.raises(NotAccepted) as caught:
        take(world, make_run(GROWN))

    assert str(caught.value) == (
        "support: fanout.p95 is 25, above the maximum 22 of budget.toml, which no approval and no waiver lifts\n"
        f"  mend: bring it back, or raise the maximum in budget.toml and have that approved first{SEE}accept-over-max"
    )


def test_a_report_of_another_tree_is_not_accepted(world: World) -> None:
    """The eval set and the budget were edited since."""
    run = world.measured(make_run())
    world.write("fixtures/support.jsonl", "{}\n")
    world.write("baselines/budget.toml", "schema = 1\n")

    with pytest.raises(NotAccepted) as caught:
        accept(run, world.repo, world.settings, **words(world))

    assert str(caught.value) == (
        "the report is of another tree: budget.toml, the eval set of support differ now\n"
        "  mend: run `pytest --fanout-budget` again (or merge the main branch first, for a report of CI)"
        f"{SEE}inputs-changed"
    )


def test_recordings_are_inputs_and_line_endings_are_not(world: World) -> None:
    """A report survives a CRLF checkout, and no other recording."""
    world.write("fixtures/recordings/support/a/1.jsonl", "{}\n")
    run = world.measured(make_run(GROWN))
    world.write("fixtures/recordings/support/a/1.jsonl", "{}\r\n")
    accept(run, world.repo, world.settings, **words(world))

    world.write("fixtures/recordings/support/a/1.jsonl", "{ }\n")
    with pytest.raises(NotAccepted, match="the recordings of support differs now"):
        accept(run, world.repo, world.settings, **words(world))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"reason": "  because  "},
            UsageError,
            "the reason has 7 characters; the reviewer needs at least 20\n"
            f'  mend: --reason "Why this growth is worth its cost"{SEE}reason-too-short',
        ),
        (
            {"reason": "x" * 2001},
            UsageError,
            "the reason has 2,001 characters; at most 2,000 are kept\n"
            f"  mend: shorten it, and link to the rest{SEE}reason-too-long",
        ),
        (
            {"agents": ["suport"]},
            UsageError,
            "'suport' is no agent class of this report or of the baselines; known: support\n"
            f"  mend: use one of these with --agent{SEE}unknown-agent",
        ),
        (
            {"base": Base(None, "CI", problem="no base here")},
            GitError,
            "no base here\n  mend: set `fetch-depth: 0` on actions/checkout (elsewhere: `git fetch --unshallow`)"
            f"{SEE}no-base",
        ),
    ],
)
def test_words_that_cannot_be_acted_on(
    world: World, changes: dict[str, Any], error: type[FanoutError], message: str
) -> None:
    """The full text of each."""
    with pytest.raises(error) as caught:
        take(world, make_run(GROWN), **changes)

    assert str(caught.value) == message


def test_without_a_repository_there_is_nothing_to_depart_from(world: World) -> None:
    """accept needs the base's anchors."""
    with pytest.raises(GitError) as caught:
        accept(world.measured(make_run()), None, world.settings, **words(world))

    assert str(caught.value) == (
        f"the project is in no git repository\n  mend: git init, and commit the project{SEE}no-git-repository"
    )


def test_a_full_disk_leaves_the_old_anchor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear line; what stood there is whole, and no half-written file is left."""
    old = (world.folder / "baselines/support.json").read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match="could not be written: No space left on device"):
        take(world, make_run(GROWN))

    assert (world.folder / "baselines/support.json").read_bytes() == old
    assert sorted(path.name for path in (world.folder / "baselines").iterdir()) == ["support.json"]


KILLED = """
import os, pickle, signal, sys
from datetime import date
from pathlib import Path
import pytest_fanout.gate.plan as room
from pytest_fanout.config import find_settings
from pytest_fanout.gate import accept
from pytest_fanout.store.git import Repository
from pytest_fanout.records import Base
folder, stop = Path(sys.argv[1]), int(sys.argv[2])
run = pickle.loads(sys.stdin.buffer.read())
real, count = room.write_atomically, 0
def write(path, data):
    global count
    count += 1
    if count == stop:
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / f".{path.name}.x.tmp").write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, data)
room.write_atomically = write
repo = Repository.find(folder)
accept(run, repo, find_settings(folder), reason="The planner now verifies its citations.", requested_by="d",
    today=date(2026, 11, 29), ci=False, base=Base(repo.resolve("main"), "test"))
"""


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_killed_on_the_way_nothing_is_allowed_and_the_same_command_mends_it(world: World, stop: int) -> None:
    """kill -9 before each of the three files: the old anchor is whole, the gate still red, and accept repeats."""
    import pickle

    old = (world.folder / "baselines/support.json").read_bytes()
    run = world.measured(make_run(GROWN))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(world.folder), str(stop)],
        input=pickle.dumps(replace(run, inputs=dict(run.inputs))),
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr

    assert (world.folder / "baselines/support.json").read_bytes() == old
    world.commit()
    assert world.judge(make_run(GROWN)).verdict == "regressed"
    take(world, make_run(GROWN))
    world.commit()
    assert world.judge(make_run(GROWN)).verdict == "approved"


def test_a_draw_that_was_repeated_is_said(world: World) -> None:
    """Recording until green is seen by the reviewer."""
    run = world.measured(with_trials(make_run(GROWN), "t19", draw=3))

    plan = plan_accept(run, world.repo, world.settings, **words(world))

    assert [planned.draw for planned in plan.classes] == [3]


def test_failures_get_into_an_anchor_by_approval_only(world: World) -> None:
    """A failure that the anchor holds fails no test any more: with the same fanout it is a loosening by itself."""
    run = with_trials(make_run(), ("t01", "t02"), passed=False, status="failed", error="no")

    done = accept(world.measured(run), world.repo, world.settings, **words(world))
    world.commit()
    approved = world.judge(run)
    for name in done.written:
        if "/approvals/" in name:
            git(world.root, "rm", "-q", name)
    world.commit()
    unapproved = world.judge(run)

    assert approved.verdict == "approved"
    assert unapproved.verdict == "unapproved"
    (approval,) = [name for name in done.written if "/approvals/" in name]
    assert approval == approved.classes[0].approval


def test_nothing_is_written_through_a_link(world: World, tmp_path: Path) -> None:
    """A checkout of somebody else's branch can hold a link in place of a folder: it leads to no other folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.folder / "baselines" / "approvals").symlink_to(outside)

    with pytest.raises(IntegrityError) as caught:
        take(world, make_run(GROWN))

    assert str(caught.value).startswith(f"{world.folder / 'baselines' / 'approvals'}: is a symbolic link")
    assert list(outside.iterdir()) == []


def test_how_the_trials_ended_is_shown_to_the_reviewer(world: World) -> None:
    """Capped and failed trials may be accepted, never without a word: they stand in the plan and in the approval."""
    run = with_trials(make_run({**GROWN}), "t01", status="capped", passed=False, capped="fanout")
    run = with_trials(run, "t02", status="timeout", passed=False, capped="wall_seconds")
    run = with_trials(run, "t03", status="failed", passed=False, error="no")
    run = with_trials(run, "t04", passed=False)

    (planned,) = plan_accept(world.measured(run), world.repo, world.settings, **words(world)).classes

    assert planned.endings == {"trials": 20, "passed": 16, "capped": 2, "failed": 1}
    assert planned.approval is not None
    assert [
        (change.name, change.old, change.new) for change in planned.approval.changes if "p95" not in change.name
    ] == [("pass.share", "20/20", "16/20"), ("capped.trials", 0, 2), ("failed.trials", 0, 1)]
    (clean,) = plan_accept(world.measured(make_run(GROWN)), world.repo, world.settings, **words(world)).classes
    assert clean.endings == {"trials": 20, "passed": 20, "capped": 0, "failed": 0}
    assert {change.name for change in clean.changes} == {"fanout.p95", "tokens.p95"}


SECRET = "sk-proj-" + "Ab1" * 10
NOT_TAKEN = (
    "\n  mend: take it out of --reason, of the agent's prompts and tools, or have the hook pytest_fanout_redact remove "
    "it, and record anew; a key that stands in git or in a report of CI is to be renewed"
)


def test_a_reason_that_holds_a_secret_is_not_taken(world: World) -> None:
    """An approval is committed and read by many: the value of a secret-looking variable must not stand in it."""
    world.anchor(make_run())
    name = f"2026-11-29-support-{world.anchor(make_run()).digest[7:19]}.json"

    with pytest.raises(NotAccepted) as caught:
        take(world, make_run(GROWN), reason="The token is tea-for-two-42.", environ={"SHOP_TOKEN": "tea-for-two-42"})

    assert str(caught.value) == (
        f"baselines/approvals/{name}: not accepted: what would be written there holds the value of the environment "
        f"variable SHOP_TOKEN{NOT_TAKEN}{SEE}secret-not-accepted"
    )
    assert approval_files(world) == []


def test_a_recording_that_holds_a_secret_is_not_taken(world: World) -> None:
    """Whoever made it, by whatever version: what is accepted is committed."""
    sent = HttpRequest(
        "POST", "https://api.openai.com/v1/chat/completions", (), b'{"messages":[{"content":"my PLACE"}]}'
    )
    heard = HttpAnswer(200, (), (b"{}",), (1,), 2)
    made = Recording(
        "support", "t1", 1, None, 0, 9, "ok", True, (Exchange(0, "httpx", "model", "agent", sent, heard, 0),)
    )
    data = tape.encode(made)
    lines = data.replace(b"PLACE", SECRET.encode()).split(b"\n")[:-2]
    end = b'{"end":"sha256:' + hashlib.sha256(b"\n".join(lines)).hexdigest().encode() + b'"}'
    path = RecordingStore(world.settings.recordings).path("support", "t1", 1)
    world.anchor(make_run())
    world.write(str(path.relative_to(world.folder)), b"\n".join([*lines, end]) + b"\n")

    with pytest.raises(NotAccepted) as caught:
        take(world, make_run(GROWN))

    assert str(caught.value) == (
        f"{path.relative_to(world.folder)}: not accepted: messages[0].content of request 1 (POST "
        f"/v1/chat/completions) holds an OpenAI key (sk-…)"
        f"{NOT_TAKEN}{SEE}secret-not-accepted"
    )
    assert approval_files(world) == []


def test_recordings_of_another_run_are_not_accepted(world: World) -> None:
    """Two runs that recorded at once: each report names its own recordings, and only one's stand there."""
    run = make_run()
    sent = HttpRequest("POST", "https://api.openai.com/v1/chat/completions", (), b"{}")
    exchange = Exchange(0, "httpx", "model", "agent", sent, HttpAnswer(200, (), (b"{}",), (1,), 2), 0)
    store = RecordingStore(world.settings.recordings, {})
    stored = store.save(Recording("support", "t01", 1, None, 0, 9, "ok", True, (exchange,)))

    with pytest.raises(NotAccepted) as caught:
        take(world, run)

    assert str(caught.value) == (
        "other recordings stand there than the run made or replayed: support::t01::t1\n"
        "  mend: let no two runs record the same tasks at once; run `pytest --fanout-budget` again, then accept"
        f"{SEE}recordings-replaced"
    )
    assert take(world, with_trials(run, "t01", recording=stored.digest)).written
