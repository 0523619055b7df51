"""The full text of each problem that a verdict can rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_verdicts as scenes
from gate_world import NOW, TODAY, World, make_run, started, with_trials, without

from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate import evaluate
from pytest_fanout.gate.tree import read_file
from pytest_fanout.records import Problem, Run, StaleNote

ACCEPT = 'fanout-baseline accept --agent support --reason "…"'


def invalid_trial(world: World) -> Run:
    """A trial that says no more than that it is invalid."""
    return with_trials(make_run(), "t07", status="invalid")


def silent(problem: Problem | None = None, **changes: Any) -> Callable[[World], Run]:
    """Two tasks without a call, and what is known of why."""

    def scene(world: World) -> Run:
        problems = (problem,) if problem else ()
        return with_trials(make_run(), ("t07", "t09"), samples={"fanout": 0}, problems=problems, **changes)

    return scene


def told(slug: str) -> Callable[[World], Run]:
    """A task is missing, and the session has told of something that explains it."""

    def scene(world: World) -> Run:
        return replace(without(make_run(), "t07"), problems=(Problem(slug, "it broke", "incomplete"),))

    return scene


def nothing_and_told(world: World) -> Run:
    return replace(make_run({}), problems=(Problem("bad-mark", "it broke", "incomplete"),))


def never_recorded(world: World) -> Run:
    return with_trials(make_run(), ("t07", "t09"), status="stale", recording=None, stale=NEVER)


def recorded_once(world: World) -> Run:
    return with_trials(never_recorded(world), "t09", recording="sha256:" + "a" * 64, stale=replace(NEVER, recorded=3))


NEVER = StaleNote(1, "model", ("no recording of this trial",), 0, 1)
#: Further texts: the scene, its slug, the text.
KNOWN_CAUSES: list[tuple[str, Callable[[World], Run], str, str]] = [
    (
        "failed",
        silent(status="failed", passed=False, error="KeyError: 'sku'"),
        "no-calls",
        "support: no model call was counted in t07, t09, which failed first: KeyError: 'sku'; mend: mend that, and run "
        "again",
    ),
    (
        "unclassified",
        silent(Problem("unclassified-request", "POST http://h/x: sent to a model host\n  mend: …")),
        "no-calls",
        "support: no model call was counted in t07, t09: POST http://h/x: sent to a model host; mend: add a codec by "
        "the hook pytest_fanout_codecs",
    ),
    (
        "other",
        silent(Problem("only-other-requests", "others did: POST http://h/ask", "notice")),
        "no-calls",
        "support: no model call was counted in t07, t09: others did: POST http://h/ask; mend: if one of them asks a "
        'model, add a codec by the hook pytest_fanout_codecs; if none does, put "no_calls": true on the line of the '
        "task",
    ),
    (
        "collection",
        told("collection-failed"),
        "tasks-missing",
        "support: no completed run of t07; mend: mend what [collection-failed] says, and run again",
    ),
    (
        "set-up",
        told("setup-failed"),
        "tasks-missing",
        "support: no completed run of t07; mend: mend what [setup-failed] says, and run again",
    ),
    (
        "nothing",
        nothing_and_told,
        "nothing-measured",
        "no task ran (0/0); mend: mend what [bad-mark] says, and run again",
    ),
    (
        "never",
        never_recorded,
        "stale",
        "support: there are no recordings of t07, t09 yet; mend: pytest --fanout-budget --fanout-mode=record",
    ),
    (
        "one",
        recorded_once,
        "stale",
        "support: the requests of t07, t09 differ from the recordings (of 1 there is none yet); "
        "mend: pytest --fanout-budget --fanout-mode=record",
    ),
]


TEXTS: list[tuple[Callable[[World], Run], str, str]] = [
    (
        scenes.approval_without_its_anchor,
        "anchor-not-committed",
        "support: {approval} is committed and the anchor that it allows is not; mend: git add the anchor of support "
        "and commit it",
    ),
    (
        scenes.anchor_deleted,
        "anchor-removed",
        "support: the base commit holds an anchor and HEAD does not; mend: bring it back with git checkout",
    ),
    (
        scenes.anchor_without_its_approval,
        "unapproved",
        "support: its anchor got looser without an approval that covers it (HEAD holds no approval for it); mend: "
        + ACCEPT,
    ),
    (
        scenes.approval_spent,
        "unapproved",
        "support: its anchor got looser without an approval that covers it (2026-11-28-support-{from12}.json is spent: "
        "the base commit holds it already); mend: " + ACCEPT,
    ),
    (
        scenes.edited_by_hand_with_the_digest,
        "mismatch",
        "support: the recordings that the committed anchor names do not give its numbers, or are gone: t19 (trial 1); "
        "mend: " + ACCEPT,
    ),
    (
        scenes.run_beyond_the_ceiling,
        "over-ceiling",
        "support: fanout.p95 is 28, above the ceiling 27 of {approval}",
    ),
    (
        scenes.max_exceeded,
        "over-max",
        "support: fanout.p95 is 25, above the maximum 22 of budget.toml, which no approval and no waiver lifts",
    ),
    (
        scenes.diluted_by_cheap_tasks,
        "over-limit",
        "support: tokens.p95 of the common tasks 1,900 -> 2,500 (limit 2,399)",
    ),
    (
        scenes.task_missing,
        "tasks-missing",
        "support: no completed run of t07; mend: run the whole class, without -k, -m, -x or skips",
    ),
    (
        scenes.shard_with_a_hole,
        "tasks-missing",
        "shard 2/2: 9 of its 10 tasks completed; mend: run it again whole",
    ),
    (
        scenes.task_removed_from_the_evalset_only,
        "tasks-removed",
        "support: t20 stand in the anchor and no longer in the eval set; mend: put them back, or have the removal "
        "approved: " + ACCEPT,
    ),
    (
        scenes.task_redefined,
        "tasks-redefined",
        "support: the eval lines of t20 are not those of the anchor; mend: restore them, or have the change approved: "
        + ACCEPT,
    ),
    (
        scenes.worker_crashed,
        "trial-crashed",
        "support: the process died in t07 (trial 1); mend: find out why it died, and run again",
    ),
    (
        scenes.trial_missing,
        "trials-missing",
        "support: fewer trials ran than the anchor names, on its own recordings: t20; mend: restore the recordings "
        "from git, or record the tasks anew with --fanout-mode=rerecord",
    ),
    (
        scenes.stale_task,
        "stale",
        "support: the requests of t07 differ from the recordings; mend: pytest --fanout-budget --fanout-mode=record",
    ),
    (
        scenes.silent_task,
        "no-calls",
        'support: no model call was counted in t07; mend: find out why, or put "no_calls": true on the line of a task '
        "that makes none",
    ),
    (
        invalid_trial,
        "invalid-trial",
        "support: the measurement of t07 cannot be trusted",
    ),
    (
        scenes.usage_unknown,
        "usage-unknown",
        "support: 12 of 210 model calls came without usage, more than 5 %, so that tokens.p95 cannot be judged; mend: "
        "let the client ask for usage (stream_options.include_usage)",
    ),
    (
        scenes.usage_lost,
        "value-unknown",
        "support: tokens.p95 of this run is not known; mend: let the client ask for usage",
    ),
    (
        scenes.times_lost,
        "value-unknown",
        "support: duration_ms.p95 of this run is not known; mend: record anew what was imported: "
        "pytest --fanout-budget --fanout-mode=rerecord",
    ),
    (
        scenes.depth_unseen,
        "value-unknown",
        "support: spawn_depth.p95 of this run is not known; mend: run the agent, or those that it starts, through the "
        "gateway, which alone sees it",
    ),
    (
        scenes.unattributed,
        "unattributed-calls",
        "1 model call belongs to no task; mend: make it inside a task, or in aside()",
    ),
    (
        scenes.unclassified,
        "unclassified-calls",
        "1 request went to a model endpoint that no codec reads; mend: add one with the hook pytest_fanout_codecs",
    ),
    (scenes.stopped_early, "stopped-early", "the session ended early: -x; mend: run it whole"),
    (
        scenes.pytest_interrupted,
        "pytest-stopped",
        "pytest itself ended with exit code 2; mend: see its own output above",
    ),
    (
        scenes.nothing_ran,
        "nothing-measured",
        "no task ran (0/20); mend: configure an agent in [tool.fanout.agents], or mark a test",
    ),
]


def found_texts(world: World, run: Run) -> list[str]:
    verdict = world.judge(run)
    problems = list(verdict.problems)
    for result in verdict.classes:
        problems += [*result.problems, *result.notices]
    return [f"{problem.slug}: {problem.text}" for problem in problems]


@pytest.mark.parametrize(("scene", "slug", "text"), TEXTS, ids=[f"{slug}-{scene.__name__}" for scene, slug, _ in TEXTS])
def test_problems_say_class_reason_and_mend(
    tmp_path: Path, scene: Callable[[World], Run], slug: str, text: str
) -> None:
    """One line that names the class, what was found, and what to do."""
    world = started(tmp_path / "project")
    run = scene(world)
    approvals = sorted((world.folder / "baselines").glob("approvals/*.json"))
    if approvals:
        text = text.replace("{approval}", f"baselines/approvals/{approvals[0].name}")
        text = text.replace("{from12}", approvals[0].stem.rsplit("-", 1)[-1])

    assert f"{slug}: {text}" in found_texts(world, run)


@pytest.mark.parametrize(
    ("scene", "slug", "text"), [case[1:] for case in KNOWN_CAUSES], ids=[case[0] for case in KNOWN_CAUSES]
)
def test_what_is_known_of_the_cause_is_said(
    tmp_path: Path, scene: Callable[[World], Run], slug: str, text: str
) -> None:
    """Advice is for the cause: what failed, which URLs were asked, what the session has told, nothing recorded yet."""
    world = started(tmp_path / "project")
    found = found_texts(world, scene(world))

    assert f"{slug}: {text}" in found
    assert not [said for said in found if "without -k" in said or "configure an agent" in said]


def test_a_class_without_an_anchor_says_how_to_get_one(tmp_path: Path) -> None:
    """no-baseline."""
    world = World.make(tmp_path / "project")
    world.commit()

    assert f"no-baseline: support: HEAD holds no anchor for this class; mend: {ACCEPT}, then commit baselines/" in (
        found_texts(world, make_run())
    )


def test_a_project_without_git_or_commits_says_how_to_begin(tmp_path: Path) -> None:
    """no-git-repository and no-commit."""
    world = World.make(tmp_path / "project")

    (without_git,) = evaluate(make_run(), None, world.settings, today=TODAY, now=NOW).problems
    (without_commit,) = evaluate(make_run(), world.repo, world.settings, today=TODAY, now=NOW).problems

    assert without_git.text == (
        "the project is in no git repository, so that there is no base to compare with; "
        "mend: git init, and commit the project"
    )
    assert (without_commit.slug, without_commit.text) == (
        "no-commit",
        "HEAD has no commit yet; mend: commit the project first",
    )


def test_an_edited_work_tree_is_said(tmp_path: Path) -> None:
    """uncommitted: the head of the run was dirty."""
    world = started(tmp_path / "project")
    (world.folder / "pyproject.toml").write_text((world.folder / "pyproject.toml").read_text() + "# edited\n")
    run = replace(make_run(), base=world.repo.resolve_base("main", {}), head=world.repo.head())

    problems = evaluate(run, world.repo, world.settings, today=TODAY, now=NOW).problems

    assert [f"{problem.slug}: {problem.text}" for problem in problems] == [
        "uncommitted: the work tree differs from HEAD: budget, fleet, anchors and approvals were read from commits; "
        "agents, eval sets and recordings ran as they stand in the work tree"
    ]


def test_a_work_tree_file_that_cannot_be_read(tmp_path: Path) -> None:
    """cannot-read for a folder, not-a-regular-file for a symbolic link."""
    (tmp_path / "budget.toml").mkdir()
    with pytest.raises(IntegrityError) as caught:
        read_file(tmp_path / "budget.toml")
    assert str(caught.value) == (
        f"{tmp_path}/budget.toml: could not be read: Is a directory\n"
        "  mend: mend its permissions\n  see: docs/messages.md#cannot-read"
    )

    (tmp_path / "link.toml").symlink_to(tmp_path / "budget.toml")
    with pytest.raises(IntegrityError) as caught:
        read_file(tmp_path / "link.toml")
    assert str(caught.value) == (
        f"{tmp_path}/link.toml: is a symbolic link\n"
        "  mend: put a regular file in its place\n  see: docs/messages.md#not-a-regular-file"
    )
