"""The baselines folder is the one that a commit's own pyproject.toml names, and what is kept in git with a verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError
from pytest_fanout.gate.tree import kept_in, settings_at, to_commit

NOW = Settings(
    root=Path("/p"),
    source="pyproject.toml",
    baselines=Path("/p/baselines"),
    recordings=Path("/p/fixtures/recordings"),
    agents={},
)


class Commit:
    """Stands for a repository with one file, or one that does not answer."""

    def __init__(self, held: bytes | GitError | None) -> None:
        self._held = held

    def read(self, rev: str, where: str) -> bytes | None:
        assert where == "pyproject.toml"
        if isinstance(self._held, GitError):
            raise self._held
        return self._held


@pytest.mark.parametrize(
    ("held", "folder"),
    [
        (b'[tool.fanout]\nbaselines = "old/place"\n', "/p/old/place"),
        (b'[tool.fanout]\nbaselines = "old/../older"\n', "/p/older"),
        (b"[tool.fanout]\n", "/p/baselines"),
        (None, "/p/baselines"),
        (b'[tool.fanout]\nbaselines = "../outside"\n', "/p/now"),
        (b"[tool.fanout]\nbaselines = 1\n", "/p/now"),
        (b"[tool]\nfanout = 1\n", "/p/now"),
        (b"tool = 1\n", "/p/now"),
        (b"no toml", "/p/now"),
        (b"\xff", "/p/now"),
        (b"x = " + b"[" * 100_000, "/p/now"),
        (GitError("no-git", "git does not answer"), "/p/now"),
    ],
    ids=lambda value: None if isinstance(value, str) else "held",
)
def test_where_the_baselines_of_a_commit_are(held: bytes | GitError | None, folder: str) -> None:
    """The default without an entry; where it cannot be told, or lies outside, the folder of today."""
    today = NOW if folder == "/p/baselines" else replace(NOW, baselines=Path("/p/now"))

    assert settings_at(Commit(held), "rev", today).baselines == Path(folder)  # type: ignore[arg-type]


def test_what_is_to_be_committed() -> None:
    """Baselines and recordings, each once, and only what lies in the project."""
    assert to_commit(NOW) == "baselines fixtures/recordings"
    outside = replace(NOW, recordings=Path("/elsewhere"))
    assert (kept_in(outside), to_commit(outside)) == (("baselines",), "baselines")
    same = replace(NOW, recordings=Path("/p/baselines"))
    assert kept_in(same) == ("baselines",)
