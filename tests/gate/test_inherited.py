"""A main branch that is over budget itself is named, and it is blamed for nothing that the change did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import make_run, with_trials

from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError
from pytest_fanout.gate.inherited import with_inherited
from pytest_fanout.gate.tree import Tree
from pytest_fanout.records import Base, ClassResult, Head, Run
from pytest_fanout.store.budget import parse_budget

BASE, HEAD = "b" * 40, "c" * 40
SETTINGS = Settings(Path("/p"), "pyproject.toml", Path("/p/baselines"), Path("/p/fixtures/recordings"), {})
ANCHOR = "sha256:" + "8" * 64
RED = ClassResult("support", "regressed", "same", (), (), 20, 20, 20, baseline_base=ANCHOR, baseline_head=ANCHOR)


class Repo:
    """Stands for git: which recordings each commit holds, what is loose, and the last commit that touched them."""

    prefix = ""

    def __init__(self, base: str | None = "t1", head: str | None = "t1", loose: bool = False, log: str = "") -> None:
        self._trees = {BASE: base, HEAD: head}
        self._loose = loose
        self._log = log
        self.asked: list[str] = []

    def _run(self, *words: str) -> bytes:
        if words[0] == "log":
            assert "--max-count=1" in words
            assert words[words.index("--") - 1] == BASE
            return self._log.encode()
        rev, _, path = words[-1].partition(":")
        self.asked.append(path)
        held = self._trees[rev]
        if held is None:
            raise GitError("git-failed", "no such path")
        return held.encode()

    def uncommitted(self, paths: list[str]) -> list[str]:
        return paths if self._loose else []

    def resolve(self, rev: str) -> str | None:
        return rev


def budget(percent: int) -> Tree:
    text = f'schema = 1\n[default.limits]\n"fanout.p95" = {{ increase = "{percent}%" }}\n'
    return Tree({}, parse_budget(text.encode()), None, ())


def told(
    result: ClassResult = RED,
    run: Run | None = None,
    repo: Repo | None = None,
    settings: Settings = SETTINGS,
    base: str | None = BASE,
    head: str | None = HEAD,
    budgets: tuple[int, int] = (10, 10),
) -> list[str]:
    commits, trees = (Base(base, "test"), Head(head)), (budget(budgets[0]), budget(budgets[1]))
    found: Any = with_inherited(
        [result],
        run or make_run(),
        repo or Repo(),
        settings,
        commits,
        trees,  # type: ignore[arg-type]
    )
    assert [each.verdict for each in found] == [result.verdict]
    return [notice.text for notice in found[0].notices]


def test_the_base_is_named_with_the_commit_since_which_it_is_so() -> None:
    """The same recordings, anchor and budget on both sides."""
    log = f"{'d' * 40}\x00{'e' * 40}\x002026-11-01\x00{'s' * 90}\x00\n"
    text = (
        "support: main itself is over budget{}: the base commit bbbbbbbbbbbb holds the same recordings, anchor and "
        "budget; mend: mend or accept it there, by a change of its own, and merge that"
    ).format

    assert told(repo=Repo(log=log)) == [text(f" since {'d' * 12} of 2026-11-01 ({'s' * 80})")]
    assert told() == [text("")]


@pytest.mark.parametrize("mode", ["live", "record", "rerecord"])
def test_another_mode_measured_something_else(mode: str) -> None:
    """Only replay gives the numbers of the same recordings."""
    assert told(run=make_run(mode=mode)) == []


@pytest.mark.parametrize(
    "commits", [{"base": None}, {"head": None}, {"base": None, "head": None}, {"base": HEAD}, {"head": BASE}]
)
def test_without_two_commits_there_is_no_other_side(commits: dict[str, str | None]) -> None:
    """A base that is HEAD itself is none."""
    assert told(**commits) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), [(10, number) for number in range(20) if number != 10])
def test_another_budget_is_the_changes_own(before: int, after: int) -> None:
    """Whichever digest sorts first."""
    assert told(budgets=(before, after)) == []


def test_recordings_outside_the_project_are_in_no_commit() -> None:
    """Nobody can say what the base had."""
    assert told(settings=replace(SETTINGS, recordings=Path("/elsewhere"))) == []


@pytest.mark.parametrize(
    "repo",
    [Repo(head="t0"), Repo(head="t2"), Repo(base=None), Repo(head=None), Repo(None, None), Repo(loose=True)],
    ids=["lower", "higher", "new", "gone", "never there", "loose"],
)
def test_other_recordings_are_the_changes_own(repo: Repo) -> None:
    """Added, taken away, changed, or not committed."""
    assert told(repo=repo) == []
    assert set(repo.asked) <= {"fixtures/recordings/support"}


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "pass"},
        {"verdict": "stale"},
        {"verdict": "inconclusive"},
        {"baseline_head": "sha256:" + "0" * 64},
        {"baseline_head": "sha256:" + "f" * 64},
        {"baseline_head": None},
        {"baseline_base": None},
        {"baseline_base": None, "baseline_head": None},
    ],
)
def test_another_anchor_or_verdict_is_the_changes_own(changes: dict[str, str | None]) -> None:
    """Only a class that is red by the same anchor was red before."""
    assert told(replace(RED, **changes)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recording": None}, False),
        ({"new_draw": True}, False),
        ({"recording": None, "status": "crashed"}, True),
        ({"new_draw": True, "agent": "aaa"}, True),
        ({"new_draw": True, "agent": "zzz"}, True),
    ],
)
def test_every_measured_trial_of_the_class_was_replayed(changes: dict[str, Any], said: bool) -> None:
    """One that ran live is enough to make the numbers its own; trials of others say nothing."""
    assert bool(told(run=with_trials(make_run(), "t20", **changes))) == said


def test_a_class_without_trials_was_not_red_before() -> None:
    """Of nothing nothing is known."""
    assert told(run=make_run({})) == []
