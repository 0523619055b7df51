"""What of a merge is ours to mend, by the paths that git left unmerged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.gate import resolving
from pytest_fanout.gate.resolving import Conflict, find_conflict
from pytest_fanout.store.conflicts import Sides

SIDES = Sides("a" * 40, "b" * 40, "b" * 40)
SETTINGS = Settings(Path("/p"), "pyproject.toml", Path("/p/baselines"), Path("/p/fixtures/recordings"), {})
ANCHOR, CALL_SITES = "baselines/support.json", "baselines/support.sites.json"
RECORDING = "fixtures/recordings/support/t01/t1.jsonl"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    def find(
        *paths: str, sides: Sides | None = SIDES, main: str | None = None, settings: Settings = SETTINGS
    ) -> Conflict | None:
        monkeypatch.setattr(resolving, "unmerged", lambda repo: paths)
        monkeypatch.setattr(resolving, "sides_of", lambda repo: sides)
        return find_conflict(None, settings, main)  # type: ignore[arg-type]

    return find


def test_nothing_is_mended_without_a_path_or_without_two_sides(found: Any) -> None:
    """A merge whose files are all resolved, and files that no merge has left."""
    assert found() is None
    assert found(sides=None) is None
    assert found(ANCHOR, sides=None) is None


@pytest.mark.parametrize(
    ("paths", "files", "tasks"),
    [
        ((ANCHOR,), (ANCHOR, CALL_SITES), ()),
        ((CALL_SITES,), (ANCHOR, CALL_SITES), ()),
        ((ANCHOR, CALL_SITES), (ANCHOR, CALL_SITES), ()),
        (("baselines/approvals/x.json",), ("baselines/approvals/x.json",), ()),
        (("baselines/approvals/x.json", ANCHOR), ("baselines/approvals/x.json", ANCHOR, CALL_SITES), ()),
        ((RECORDING, RECORDING.replace("t1.jsonl", "t2.jsonl")), (), ("support/t01",)),
        ((ANCHOR, RECORDING), (ANCHOR, CALL_SITES), ("support/t01",)),
    ],
)
def test_anchors_with_their_call_sites_and_recordings_by_task(
    found: Any, paths: tuple[str, ...], files: tuple[str, ...], tasks: tuple[str, ...]
) -> None:
    """Git may have merged one of a pair without a conflict."""
    assert found(*paths) == Conflict(SIDES, "b" * 40, files, tasks)


@pytest.mark.parametrize(
    "other",
    [
        "shop.py",
        "baselines/budget.toml",
        "aaa/support.json",
        "zzz.json",
        "fixtures/recordings/support/t1.jsonl",
        "fixtures/recordings/support/t01/deeper/t1.jsonl",
        "fixtures/other/support/t1.jsonl",
    ],
)
def test_other_files_are_resolved_by_hand_first(found: Any, other: str) -> None:
    """Recordings are replayed against the code as it will be."""
    with pytest.raises(UsageError, match=f"other files are unmerged as well: {other}"):
        found(ANCHOR, other)


def test_recordings_outside_the_project_are_none_of_ours(found: Any) -> None:
    """They are in no commit of it."""
    with pytest.raises(UsageError, match="other files are unmerged as well"):
        found(RECORDING, settings=replace(SETTINGS, recordings=Path("/elsewhere")))


@pytest.mark.parametrize(("main", "side"), [("ours", "a"), ("theirs", "b"), (None, None)])
def test_the_main_side_is_named_where_no_branch_tells(found: Any, main: str | None, side: str | None) -> None:
    """Otherwise nobody knows whose anchors hold."""
    unknown = replace(SIDES, main=None)
    if side is None:
        with pytest.raises(UsageError, match="main-side-unknown"):
            found(ANCHOR, sides=unknown, main=main)
        return
    assert found(ANCHOR, sides=unknown, main=main).main == side * 40
