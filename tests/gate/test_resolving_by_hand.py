"""Which unmerged paths are mended and which side each recording is taken from, without git: every way by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import make_run, with_trials

from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.gate import resolving
from pytest_fanout.gate.resolving import Conflict, find_conflict, resolve
from pytest_fanout.records import Run
from pytest_fanout.store.conflicts import Sides
from pytest_fanout.store.recordings import slug_of

SIDES = Sides("ours-rev", "theirs-rev", "theirs-rev")
ROOT = Path("/p")


def settings(recordings: str = "/p/fixtures/recordings") -> Settings:
    return Settings(ROOT, "pyproject.toml", ROOT / "baselines", Path(recordings), {})


def found(
    monkeypatch: pytest.MonkeyPatch, *paths: str, main: str | None = None, sides: Sides | None = SIDES, **more: Any
) -> Conflict | None:
    monkeypatch.setattr(resolving, "unmerged", lambda repo: paths)
    monkeypatch.setattr(resolving, "sides_of", lambda repo: sides)
    return find_conflict(None, settings(**more), main)  # type: ignore[arg-type]


def slug(*words: Any, **more: Any) -> str:
    with pytest.raises(UsageError) as caught:
        found(*words, **more)
    return f"{caught.value.slug}: {str(caught.value).splitlines()[0]}"


SUPPORT = ("baselines/support.json", "baselines/support.sites.json")


@pytest.mark.parametrize(
    ("paths", "files", "tasks"),
    [
        ([SUPPORT[0]], SUPPORT, ()),
        ([SUPPORT[1]], SUPPORT, ()),
        ([*SUPPORT], SUPPORT, ()),
        (["baselines/approvals/x.json"], ("baselines/approvals/x.json",), ()),
        (["baselines/approvals/x.json", SUPPORT[0], "baselines/approvals/y.json"],
         ("baselines/approvals/x.json", *SUPPORT, "baselines/approvals/y.json"), ()),
        (["fixtures/recordings/a/b/t1.jsonl", "fixtures/recordings/a/b/t2.jsonl", "fixtures/recordings/a/c/t1.jsonl"],
         (), ("a/b", "a/c")),
        ([SUPPORT[0], "fixtures/recordings/a/b/t1.jsonl"], SUPPORT, ("a/b",)),
        (["fixtures/recordings/a/b/t1.jsonl", SUPPORT[0]], SUPPORT, ("a/b",)),
    ],
)  # fmt: skip
def test_what_is_mended(
    monkeypatch: pytest.MonkeyPatch, paths: list[str], files: Sequence[str], tasks: Sequence[str]
) -> None:
    """Anchors with their call sites, approvals, and recordings by the folder of their task."""
    conflict = found(monkeypatch, *paths)

    assert conflict is not None
    assert (conflict.files, conflict.tasks, conflict.main) == (tuple(files), tuple(tasks), "theirs-rev")


@pytest.mark.parametrize(
    "path",
    [
        "shop.py", "baselines/budget.toml", "other/support.json", "baselines.json", "fixtures/recordings/a/t1.jsonl",
        "fixtures/recordings/a/b/c/t1.jsonl", "recordings/a/b/t1.jsonl", "/elsewhere/a/b.jsonl",
    ],
)  # fmt: skip
def test_what_is_not_ours_is_named(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Behind what is ours as well."""
    for paths in ([path], [SUPPORT[0], path]):
        assert slug(monkeypatch, *paths) == f"conflict-elsewhere: other files are unmerged as well: {path}"


def test_recordings_beside_the_project_are_no_conflict_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of three parts is none of theirs then."""
    assert slug(monkeypatch, "a/b/t1.jsonl", recordings="/elsewhere").startswith("conflict-elsewhere")
    assert slug(monkeypatch, "/a/b", recordings="/elsewhere").startswith("conflict-elsewhere")
    assert found(monkeypatch, SUPPORT[0], recordings="/elsewhere") is not None


def test_nothing_unmerged_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything where git is in the middle of nothing."""
    assert found(monkeypatch) is None
    assert found(monkeypatch, SUPPORT[0], sides=None) is None


@pytest.mark.parametrize(
    ("main", "told", "side"),
    [
        (None, "theirs-rev", "theirs-rev"), (None, "ours-rev", "ours-rev"), ("ours", "theirs-rev", "ours-rev"),
        ("theirs", "ours-rev", "theirs-rev"), ("ours", None, "ours-rev"), (None, None, None),
    ],
)  # fmt: skip
def test_whose_anchors_hold(
    monkeypatch: pytest.MonkeyPatch, main: str | None, told: str | None, side: str | None
) -> None:
    """Who is asked says it, before what the branches tell."""
    sides = replace(SIDES, main=told)
    if side is None:
        assert slug(monkeypatch, SUPPORT[0], main=main, sides=sides).startswith("main-side-unknown")
    else:
        conflict = found(monkeypatch, SUPPORT[0], main=main, sides=sides)
        assert conflict is not None
        assert conflict.main == side


class Done:
    """What was done to the work tree, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *runs: Run) -> None:
        self.steps: list[str] = []
        self.staged: list[str] = []
        self._runs = list(runs)
        take = lambda repo, root, rev, path: self.steps.append(f"{rev.partition('-')[0]} {path.rpartition('/')[2]}")  # noqa: E731
        monkeypatch.setattr(resolving, "take_file", take)
        monkeypatch.setattr(resolving, "take_folder", take)
        monkeypatch.setattr(resolving, "stage", lambda repo, paths: self.staged.extend(paths))

    def replay(self) -> Run:
        return self._runs.pop(0)

    def resolve(self, conflict: Conflict) -> resolving.Resolved:
        done = resolve(conflict, None, settings(), self.replay, self.steps.append)  # type: ignore[arg-type]
        assert self._runs == []
        return done


RUN = make_run({"a": [1], "b": [2], "c": [3]})
FOLDERS = {task: f"support/{slug_of(task)}" for task in "abc"}
NAMES = {task: slug_of(task) for task in "abc"}


def stale(*tasks: str) -> Run:
    return with_trials(RUN, tasks, status="stale")


@pytest.mark.parametrize("main", ["ours", "theirs"])
def test_a_side_that_fits_is_taken_task_by_task(monkeypatch: pytest.MonkeyPatch, main: str) -> None:
    """a fits as it is on main; b on the other side; c, which nobody has, stays main's and is to be recorded."""
    other = "theirs" if main == "ours" else "ours"
    conflict = Conflict(SIDES, f"{main}-rev", SUPPORT, (FOLDERS["a"], FOLDERS["c"], FOLDERS["b"]))
    done = Done(monkeypatch, stale("b", "c"), stale("c"))

    result = done.resolve(conflict)

    assert done.steps == [
        f"{main} support.json", f"{main} support.sites.json",
        f"{main} {NAMES['a']}", f"{main} {NAMES['c']}", f"{main} {NAMES['b']}",
        "replaying the main branch's recordings",
        f"{other} {NAMES['c']}", f"{other} {NAMES['b']}",
        "replaying the other side's recordings of 2 tasks",
        f"{main} {NAMES['c']}",
    ]  # fmt: skip
    assert (result.main, result.other, result.to_record) == ((FOLDERS["a"],), (FOLDERS["b"],), ("support::c",))
    assert done.staged == [*SUPPORT, *(f"fixtures/recordings/{FOLDERS[task]}" for task in "acb")]
    assert result.files == SUPPORT


def test_where_all_fits_nothing_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replay; and a task that git saw no conflict in is told, not tried."""
    conflict = Conflict(SIDES, "ours-rev", (), (FOLDERS["a"],))
    done = Done(monkeypatch, stale("b"))

    result = done.resolve(conflict)

    assert (result.main, result.other, result.to_record) == ((FOLDERS["a"],), (), ("support::b",))
    assert done.steps == [f"ours {NAMES['a']}", "replaying the main branch's recordings"]


def test_what_the_second_replay_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side of b fits, and a no longer does: its recordings are main's, and it is to be recorded."""
    conflict = Conflict(SIDES, "ours-rev", (), (FOLDERS["a"], FOLDERS["b"]))

    result = Done(monkeypatch, stale("b"), stale("a")).resolve(conflict)

    assert (result.main, result.other, result.to_record) == ((), (FOLDERS["b"],), ("support::a",))


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"status": "failed"}, True),
        ({"status": "failed", "leftover": 1}, False),
        ({"status": "ok", "leftover": 1}, True),
        ({"status": "capped", "leftover": 1}, True),
        ({"status": "timeout", "leftover": 1}, True),
        ({"samples": {"fanout": 0}}, False),
        ({"samples": {"fanout": None}}, False),
        ({"samples": {"fanout": 0}, "no_calls": True}, True),
        ({"samples": {"fanout": 0}, "no_calls": True, "status": "stale"}, False),
        *(({"status": status}, False) for status in ("stale", "invalid", "crashed")),
    ],
)
def test_when_a_recording_fits(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], fits: bool) -> None:
    """The agent asked, or need not ask, and came to its end; one trial that does not speaks for its task."""
    run = make_run({"a": [1, 1, 1], "b": [2]})
    made = with_trials(run, "a", **changes)
    mixed = replace(run, tasks=(run.tasks[0], made.tasks[1], *run.tasks[2:]))

    result = Done(monkeypatch, mixed).resolve(Conflict(SIDES, "ours-rev", (), ()))

    assert result.to_record == (() if fits else ("support::a",))
