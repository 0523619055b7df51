"""What git remembers of files of the project: the commits of the main line that changed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pytest_fanout.errors import GitError
from pytest_fanout.store.git import Repository


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. ``parent``: the first one; None: it has none, or this clone is cut off there."""

    rev: str
    parent: str | None
    day: date  # of the commit, by its committer's clock
    subject: str


def main_line(repo: Repository, rev: str, paths: Sequence[str], most: int) -> tuple[Commit, ...]:
    """The newest commits on the first-parent line to ``rev`` that changed any of these paths, newest first.

    Args:
        paths: of the project, with ``/``.

    Raises:
        GitError: git does not answer.
    """
    # a subject can hold any character but NUL, so that nothing else parts the fields
    words = ("log", "--first-parent", "-m", f"--max-count={most}", "--format=%H%x00%P%x00%cs%x00%s%x00", "--no-patch")
    out = repo._run(*words, rev, "--", *(repo.prefix + path for path in paths))
    fields = out.decode("utf-8", "replace").split("\0")
    found = []
    for at in range(0, len(fields) - 3, 4):
        commit, parents, day, subject = fields[at].lstrip("\n"), *fields[at + 1 : at + 4]
        parent = parents.split()[0] if parents else None
        found.append(
            Commit(commit, parent if parent and repo.resolve(parent) else None, date.fromisoformat(day), subject)
        )
    return tuple(found)


def tree_of(repo: Repository, rev: str, path: str) -> str | None:
    """The id of what a commit holds at a path: alike where its content is; None where it holds nothing."""
    try:
        return repo._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}:{repo.prefix}{path}").decode()
    except GitError:
        return None
