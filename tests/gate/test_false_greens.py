"""Further ways to a false green, each on a real repository: none of them gets one. Listed in docs/threat-model.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import NOW, TODAY, TWENTY, World, git, make_run, sha, slugs, started, without

from pytest_fanout.config import is_ci
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate import Verified, verify
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Base, Head, Run, SessionFacts
from pytest_fanout.store.baselines import build_baseline, write_baseline
from pytest_fanout.store.evalsets import read_evalset

SEE = "\n  see: docs/messages.md#"
GROWN = {**TWENTY, "t19": [25], "t20": [25]}
CEILINGS = {"fanout.p95": 27, "tokens.p95": 3000}
EVALSET = "fixtures/support.jsonl"
RECORDING = "fixtures/recordings/support/x/t1.jsonl"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def with_evalset(world: World) -> Run:
    """A run of an eval set that is committed; on the main branch as well, so that nothing but the attack differs."""
    lines = [json.dumps({"id": task, "input": task}) for task in TWENTY]
    git(world.root, "switch", "-q", "main")
    world.write(EVALSET, "\n".join(lines) + "\n")
    evalset = read_evalset(world.folder / EVALSET, "support")
    definitions = {task.id: task.definition for task in evalset.tasks}
    run = make_run()
    run = replace(
        run,
        tasks=tuple(replace(trial, definition=definitions[trial.task]) for trial in run.tasks),
        definitions={"support": definitions},
        evalsets={"support": evalset.digest},
    )
    world.write(RECORDING, "{}\n")
    world.anchor(run)
    world.commit("with its eval set")
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit("feature")
    return run


def reported(world: World, run: Run, **changes: Any) -> Run:
    repo = world.repo
    base = Base(repo.resolve("main"), "merge-base main")
    return replace(world.measured(run), base=base, head=Head(repo.resolve("HEAD")), **changes)


def check(world: World, run: Run, **environ: str) -> Verified:
    return verify(run, world.repo, world.settings, option=None, environ=environ, today=TODAY, now=NOW)


# --- what is committed -----------------------------------------------------------------------------------------------


def moved(world: World, fanout: dict[str, list[int]], *, approve: bool) -> Run:
    """The baselines folder has another name at HEAD, and an anchor in it."""
    text = (world.folder / "pyproject.toml").read_text()
    world.write("pyproject.toml", f'[tool.fanout]\nbaselines = "elsewhere"\n{text}')
    git(world.root, "rm", "-q", "-r", "baselines")
    run = make_run(fanout)
    anchor = build_baseline(run, "support")
    world.write("elsewhere/support.json", write_baseline(anchor, stats_of(anchor)))
    if approve:
        made = world.approve(None, CEILINGS)
        (world.folder / "elsewhere" / "approvals").mkdir()
        (world.folder / made.path).rename(world.folder / made.path.replace("baselines", "elsewhere"))
    world.commit("moved")
    return run


def test_an_anchor_does_not_begin_anew_in_another_folder(world: World) -> None:
    """Moved and grown, with the approval of a first anchor: it departs from the anchor in the old folder."""
    found = world.judge(moved(world, GROWN, approve=True))

    assert (found.verdict, "unapproved" in slugs(found)) == ("unapproved", True)


def test_moving_the_folder_alone_is_free(world: World) -> None:
    """The same anchor in another folder is the same anchor."""
    assert world.judge(moved(world, TWENTY, approve=False)).verdict == "pass"


def test_a_budget_does_not_get_looser_by_being_moved(world: World) -> None:
    """The stricter limit of the old folder holds."""
    git(world.root, "switch", "-q", "main")
    world.write(
        "baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "10%", max = 19 }\n'
    )
    world.commit("a maximum")
    git(world.root, "switch", "-q", "-C", "feature")

    found = world.judge(moved(world, TWENTY, approve=False))

    assert (found.verdict, "budget-loosened" in slugs(found)) == ("unapproved", True)


def emptied(world: World) -> None:
    path = world.folder / "baselines" / "support.json"
    anchor = build_baseline(make_run({"t01": [1]}), "support")
    path.write_bytes(write_baseline(replace(anchor, tasks={}), {}))


def as_pointer(world: World) -> None:
    oid = sha("an anchor")[7:]
    world.write("baselines/support.json", f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 9\n")


def as_folder(world: World) -> None:
    (world.folder / "baselines" / "support.json").unlink()
    world.write("baselines/support.json/support.json", "{}")


def nested_deeply(world: World) -> None:
    world.write("baselines/support.json", "[" * 100_000 + "]" * 100_000)


def in_capitals(world: World) -> None:
    (world.folder / "baselines" / "support.json").rename(world.folder / "baselines" / "Support.json")


def with_two_digests(world: World) -> None:
    path = world.folder / "baselines" / "support.json"
    first, rest = path.read_text().split("\n", 1)
    path.write_text(f'{first}\n "digest": "{sha("x")}",\n{rest}')


def with_an_endless_number(world: World) -> None:
    path = world.folder / "baselines" / "support.json"
    path.write_text(path.read_text().replace('"fanout":[1]', '"fanout":[' + "9" * 5000 + "]", 1))


@pytest.mark.parametrize(
    "attack",
    [emptied, as_pointer, as_folder, nested_deeply, in_capitals, with_two_digests, with_an_endless_number],
    ids=lambda attack: attack.__name__,
)
def test_an_anchor_that_says_nothing_is_no_anchor(world: World, attack: Callable[[World], None]) -> None:
    """Emptied, a pointer of git-lfs, a folder, too deep, misspelt, ambiguous, endless: refused, and no traceback."""
    attack(world)
    world.commit("attack")

    assert world.judge(make_run()).verdict in ("integrity", "unapproved")


def test_approvals_do_not_add_up(world: World) -> None:
    """Two that each cover one of two limits cover neither: a reviewer has seen the growth in one of them."""
    base = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(base, {"fanout.p95": 27}, nonce="1" * 16)
    world.approve(base, {"tokens.p95": 3000}, nonce="2" * 16, requested_on="2026-11-27")
    world.commit("half and half")

    assert world.judge(make_run(GROWN)).verdict == "unapproved"


def test_an_approval_that_is_edited_later_is_spent(world: World) -> None:
    """The base holds one with this nonce: other ceilings under it were reviewed by nobody."""
    git(world.root, "switch", "-q", "main")
    base = world.anchor(make_run())
    world.approve(base, {"fanout.p95": 20, "tokens.p95": 2000})
    world.commit("approved once")
    git(world.root, "switch", "-q", "-C", "feature")
    world.anchor(make_run(GROWN))
    world.approve(base, CEILINGS)
    world.commit("edited")

    assert world.judge(make_run(GROWN)).verdict == "unapproved"


def test_an_approval_in_a_folder_of_its_own_counts_for_nothing(world: World) -> None:
    """Rules of code owners name `approvals/*`: what lies deeper could be owned by nobody."""
    base = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    made = world.approve(base, CEILINGS)
    deeper = world.folder / made.path.replace("approvals/", "approvals/more/")
    deeper.parent.mkdir()
    (world.folder / made.path).rename(deeper)
    world.commit("deeper")

    assert world.judge(make_run(GROWN)).verdict == "unapproved"


def test_a_limit_of_one_class_is_loosened_as_well_as_the_default(world: World) -> None:
    """An entry for the class alone, beside a default that stays as it was."""
    world.write(
        "baselines/budget.toml",
        'schema = 1\n[agents.support.limits]\n"fanout.p95" = { increase = "80%", at_least = 1 }\n',
    )
    world.commit("for support alone")

    found = world.judge(make_run(GROWN))

    assert (found.verdict, "budget-loosened" in slugs(found)) == ("unapproved", True)


def test_a_task_is_not_said_to_make_no_calls(tmp_path: Path) -> None:
    """`no_calls` on a line makes its silence valid; it is part of the definition, so that it redefines the task."""
    path = tmp_path / "support.jsonl"
    definitions = []
    for more in ({}, {"no_calls": True}):
        path.write_text(json.dumps({"id": "a", "input": "x", **more}) + "\n")
        definitions.append(read_evalset(path, "support").tasks[0].definition)

    assert definitions[0] != definitions[1]


# --- what is reported ------------------------------------------------------------------------------------------------


def test_a_report_that_leaves_a_class_out(world: World) -> None:
    """Its anchor stands at HEAD: it is expected, whatever the report lists."""
    run = replace(make_run(agent="other"), agents=(), definitions={}, evalsets={})

    found = {result.agent: result.verdict for result in world.judge(run).classes}

    assert found["support"] == "incomplete"


@pytest.mark.parametrize("part", ["a task", "the class", "the digest"])
def test_a_report_that_knows_fewer_tasks_than_the_eval_set(world: World, part: str) -> None:
    """The tasks that are expected are read from the commit once more, not taken from the report."""
    run = with_evalset(world)
    good = reported(world, run)
    assert check(world, good).exit_code == 0
    tasks = dict(run.definitions["support"])
    del tasks["t20"]
    changes: dict[str, dict[str, Any]] = {
        "a task": {"definitions": {"support": tasks}},
        "the class": {"definitions": {}},
        "the digest": {"evalsets": {"support": sha("another")}},
    }

    with pytest.raises(IntegrityError) as caught:
        check(world, replace(good, **changes[part]))

    assert str(caught.value).startswith("the report was made with other inputs: the eval set of support\n")


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_rules_that_a_run_is_measured_by_are_not_hidden(world: World, is_committed: bool) -> None:
    """Caps, and what matching ignores, are read in the work tree: HEAD's budget would not have let it pass."""
    run = with_evalset(world)
    where = "baselines/budget.toml"
    if is_committed:
        world.write(where, "schema = 1\n[default.caps]\nfanout = 200\n")
        world.commit("budget")
        git(world.root, "update-index", "--assume-unchanged", where)
    else:
        world.write(".gitignore", "*.toml\n")
        world.commit("ignore")
    world.write(where, 'schema = 1\n[measure]\nvolatile = ["headers.*"]\n')
    assert not git(world.root, "status", "--porcelain")

    with pytest.raises(IntegrityError) as caught:
        check(world, reported(world, run))

    assert str(caught.value).startswith(f"{where} is hidden from git status: ")


@pytest.mark.parametrize("way", ["ignored", "assume-unchanged", "skip-worktree"])
def test_what_git_status_does_not_show_decides_nothing(world: World, way: str) -> None:
    """A recording that only this work tree has: no clone of the commit would give this verdict."""
    run = with_evalset(world)
    where = RECORDING
    if way == "ignored":
        world.write(".gitignore", "*-mine/\n")
        world.commit("ignore")
        where = "fixtures/recordings/support/x-mine/t1.jsonl"
    else:
        git(world.root, "update-index", f"--{way}", where)
    world.write(where, '{"cheap": true}\n')
    assert not git(world.root, "status", "--porcelain")

    with pytest.raises(IntegrityError) as caught:
        check(world, reported(world, run))

    assert str(caught.value) == (
        f"{where} is hidden from git status: a clone of this commit would not give this verdict\n"
        "  mend: take it out of .gitignore and commit it, or remove it; "
        f"git update-index --no-assume-unchanged --no-skip-worktree shows a file again{SEE}hidden-from-git"
    )


@pytest.mark.parametrize("name", ["GITHUB_ACTIONS", "GITLAB_CI"])
def test_ci_is_not_talked_out_of_being_ci(world: World, name: str) -> None:
    """`CI: false`, which some build tools want, does not make a part of the tasks enough."""
    part = SessionFacts(partial=True, expected=20)
    run = reported(world, without(make_run(), "t20"), session=part)

    assert is_ci({"CI": "false", name: "true"})
    assert check(world, run).exit_code == 0
    git(world.root, "update-ref", "refs/remotes/origin/main", "main")
    assert check(world, run, CI="false", CI_DEFAULT_BRANCH="main", **{name: "true"}).exit_code == 3
