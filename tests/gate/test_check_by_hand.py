"""The required check on trees made by hand: each thing that it asks of a report, by itself and in its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import NOW, TODAY, TWENTY, make_run, slugs, without
from test_one_class import WAIVER
from test_verdict_on_trees import BASE, GROWN, HEAD, Files, Trees, anchored

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate import Verified, verify
from pytest_fanout.gate.inputs import inputs_now
from pytest_fanout.records import Base, Head, Problem, Run, SessionFacts
from pytest_fanout.store.approvals import write_approval
from pytest_fanout.store.evalsets import read_evalset


@dataclass
class Clone(Trees):
    """What git says of the work tree as well."""

    base: Base = field(default_factory=lambda: Base(BASE, "merge-base main"))
    loose: Sequence[str] = ()
    unseen: Sequence[str] = ()
    options: list[str | None] = field(default_factory=list)
    looked: list[Sequence[str]] = field(default_factory=list)

    def resolve_base(self, option: str | None, environ: Any) -> Base:
        self.options.append(option)
        return self.base

    def uncommitted(self, paths: Sequence[str]) -> Sequence[str]:
        self.looked.append(tuple(paths))
        return tuple(self.loose)

    def hidden(self, paths: Sequence[str]) -> Sequence[str]:
        self.looked.append(tuple(paths))
        return tuple(self.unseen)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project whose eval set has the twenty tasks."""
    (tmp_path / "p").mkdir()
    path = tmp_path / "p/support.jsonl"
    path.write_text("".join(f'{{"id": "{task}", "input": "x"}}\n' for task in TWENTY))
    agent = AgentSettings("support", "x:y", path)
    return Settings(tmp_path / "p", "pyproject.toml", tmp_path / "p/baselines", tmp_path / "r", {"support": agent})


def reported(settings: Settings, fanout: dict[str, list[int]] = TWENTY, **changes: Any) -> Run:
    """A run of the eval set, as its report has it."""
    held = read_evalset(settings.agents["support"].evalset, "support")
    definitions = {task.id: task.definition for task in held.tasks}
    run = make_run(fanout, definitions={"support": definitions}, evalsets={"support": held.digest})
    run = replace(run, tasks=tuple(replace(trial, definition=definitions[trial.task]) for trial in run.tasks))
    run = replace(run, base=Base(BASE, "merge-base main"), head=Head(HEAD), inputs=inputs_now(run, settings))
    return replace(run, **changes)


def clone(settings: Settings, more: Files | None = None, **changes: Any) -> Clone:
    files = anchored(reported(settings))
    return Clone({BASE: files, HEAD: files | (more or {})}, **changes)


def check(run: Run, repo: Clone, settings: Settings, option: str | None = None, ci: bool = False) -> Verified:
    environ = {"CI": "true"} if ci else {}
    return verify(run, repo, settings, option=option, environ=environ, today=TODAY, now=NOW)  # type: ignore[arg-type]


def refused(*words: Any, **more: Any) -> str:
    with pytest.raises(IntegrityError) as caught:
        check(*words, **more)
    return f"{caught.value.slug}: {str(caught.value).partition('  see: ')[0].strip()}"


@pytest.mark.parametrize(
    ("fanout", "code", "exits", "why"),
    [
        (TWENTY, 0, 0, None),
        (TWENTY, 1, 1, "pytest ended with exit code 1, so that the check cannot pass"),
        (GROWN, 0, 1, None),
        (GROWN, 1, 1, None),
        (TWENTY, 2, 3, None),
    ],
)
def test_how_the_check_ends(
    settings: Settings, fanout: dict[str, list[int]], code: int, exits: int, why: str | None
) -> None:
    """By the verdict; by pytest's own end only where that would have passed."""
    run = reported(settings, fanout, session=SessionFacts(expected=20, pytest_exit=code))

    found = check(run, clone(settings), settings)

    assert (found.exit_code, found.why) == (exits, why)


@pytest.mark.parametrize("code", [0, 1])
def test_a_waiver_lifts_no_failure_of_pytest(settings: Settings, code: int) -> None:
    """The class is waived; a test that failed is none of it."""
    held = {"approvals/2026-11-29-support-waiver.json": write_approval(replace(WAIVER, changes=()))}
    run = reported(settings, GROWN, session=SessionFacts(expected=20, pytest_exit=code))

    found = check(run, clone(settings, held), settings)

    assert (found.verdict.verdict, found.exit_code) == ("waived", code)


def test_a_base_that_is_head_is_no_gate(settings: Settings) -> None:
    """Whatever the verdict."""
    for fanout in (TWENTY, GROWN):
        found = check(reported(settings, fanout), clone(settings, base=Base(BASE, "x", is_gate=False)), settings)
        assert (found.exit_code, found.why) == (4, "the base is HEAD itself: that is not a gate result")


@pytest.mark.parametrize("slug", ["aaa", "run-not-finished", "zzz"])
def test_a_run_that_did_not_finish(settings: Settings, slug: str) -> None:
    """Behind other problems as well."""
    problems = (Problem("first", "…", "notice"), Problem(slug, "…", "notice"))
    run = reported(settings, problems=problems)

    if slug == "run-not-finished":
        assert refused(run, clone(settings), settings).startswith("run-not-finished: ")
    else:
        assert check(run, clone(settings), settings).exit_code == 0


@pytest.mark.parametrize("rev", ["1" * 40, "f" * 40, None])
def test_a_report_of_other_commits(settings: Settings, rev: str | None) -> None:
    """It says nothing of these two, whichever sorts first."""
    named = rev[:12] if rev else "none"
    for changes in ({"head": Head(rev)}, {"head": rev and Head(rev)}):
        assert refused(reported(settings, **changes), clone(settings), settings).splitlines()[0] == (
            f"report-of-another-commit: the report is of commit {named}, and HEAD is {HEAD[:12]}"
        )
    for changes in ({"base": Base(rev, "x")}, {"base": rev and Base(rev, "x")}):
        assert refused(reported(settings, **changes), clone(settings), settings).splitlines()[0] == (
            f"report-of-another-base: the report compares with {named}, and the base here is {BASE[:12]} "
            "(merge-base main)"
        )


def test_without_a_base_the_verdict_says_so(settings: Settings) -> None:
    """A report that names another one is no fault then."""
    found = check(reported(settings), clone(settings, base=Base(None, "CI", problem="none is here")), settings)

    assert (found.verdict.verdict, found.exit_code) == ("no-base", 4)


@pytest.mark.parametrize(
    ("ci", "option", "asked", "taken"),
    [
        (False, None, None, True), (False, BASE, BASE, True), (False, HEAD, HEAD, True), (True, None, None, True),
        (True, BASE, None, True), (True, HEAD, None, False), (True, "1" * 40, None, False), (True, "", None, True),
    ],
)  # fmt: skip
def test_in_ci_the_option_may_only_repeat_the_base(
    settings: Settings, ci: bool, option: str | None, asked: str | None, taken: bool
) -> None:
    """At home it names it."""
    repo = clone(settings)
    if taken:
        assert check(reported(settings), repo, settings, option, ci).exit_code == 0
    else:
        assert refused(reported(settings), repo, settings, option, ci).splitlines()[0] == (
            f"base-overridden: --base {option} is not the base that this CI run names ({BASE[:12]}, merge-base main)"
        )
    assert repo.options == [asked]


@pytest.mark.parametrize(
    ("paths", "loose", "hidden"),
    [
        (["a"], "a differs from HEAD", "a is hidden from git status"),
        (["a", "b c"], "a, b c differ from HEAD", "a, b c are hidden from git status"),
    ],
)
def test_what_a_clone_would_not_have(settings: Settings, paths: list[str], loose: str, hidden: str) -> None:
    """One path and several, in words and in a command."""
    said = refused(reported(settings), clone(settings, loose=paths), settings)
    assert said.startswith(f"not-committed: {loose}: a clone of this commit would not give this verdict\n")
    assert ("git add a && " in said, "git add a 'b c' && " in said) == (len(paths) == 1, len(paths) == 2)
    said = refused(reported(settings), clone(settings, unseen=paths), settings)
    assert said.startswith(f"hidden-from-git: {hidden}: a clone of this commit would not give this verdict\n")


def test_which_paths_git_is_asked_of(settings: Settings) -> None:
    """All that is kept; of the baselines only the budget may not be hidden, for the rest is read from commits."""
    inside = replace(settings, recordings=settings.root / "rec")
    repo = clone(inside)

    assert check(reported(inside), repo, inside).exit_code == 0
    assert repo.looked == [("baselines", "rec", "support.jsonl"), ("rec", "support.jsonl", "baselines/budget.toml")]


def test_a_report_of_other_inputs_or_tasks(settings: Settings) -> None:
    """Each by itself, named."""
    other = reported(settings, inputs={})
    assert (
        refused(other, clone(settings), settings)
        .splitlines()[0]
        .startswith(
            "report-of-another-tree: the report was made with other inputs: budget.toml, the eval set of support"
        )
    )
    fewer = without(reported(settings), "t20", defined=False)
    assert refused(fewer, clone(settings), settings).splitlines()[0] == (
        "report-of-another-tree: the report was made with other inputs: the eval set of support"
    )


@pytest.mark.parametrize(("dirty", "told"), [(True, True), (False, False)])
def test_that_the_tree_was_dirty_is_the_reports_word(settings: Settings, dirty: bool, told: bool) -> None:
    """The check itself leaves files of its own."""
    found = check(reported(settings, head=Head(HEAD, dirty=dirty)), clone(settings), settings)

    assert ("uncommitted" in slugs(found.verdict)) == told


@pytest.mark.parametrize(("of_run", "ci", "whole"), [(False, False, False), (True, False, True), (False, True, True)])
def test_in_ci_a_part_is_no_whole(settings: Settings, of_run: bool, ci: bool, whole: bool) -> None:
    """Whichever of the two ran there."""
    run = without(reported(settings, session=SessionFacts(expected=20, partial=True), ci=of_run), "t20")

    assert check(run, clone(settings), settings, ci=ci).exit_code == (3 if whole else 0)
