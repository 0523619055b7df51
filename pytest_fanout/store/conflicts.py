"""A merge, rebase or cherry-pick that git could not finish: its two sides, what is unmerged, and a side taken whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fanout.errors import GitError, StorageError
from pytest_fanout.store.files import write_atomically
from pytest_fanout.store.git import Repository

_OTHER_SIDES = ("MERGE_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_MAIN_BRANCHES = (
    "refs/remotes/origin/HEAD",
    "refs/remotes/origin/main",
    "refs/remotes/origin/master",
    "refs/heads/main",
    "refs/heads/master",
)


@dataclass(frozen=True, slots=True)
class Sides:
    """The two commits that are being merged. In a rebase ``ours`` is what the branch is put upon."""

    ours: str
    theirs: str
    main: str | None  # which of them is the main branch's, or in it; None: cannot be told


def sides_of(repo: Repository) -> Sides | None:
    """The sides of what git is in the middle of; None: of nothing."""
    ours = repo.resolve("HEAD")
    for name in _OTHER_SIDES:
        theirs = repo.resolve(name)
        if ours is not None and theirs is not None:
            return Sides(ours, theirs, ours if name != "MERGE_HEAD" else _main_of(repo, ours, theirs))
    return None


def _main_of(repo: Repository, ours: str, theirs: str) -> str | None:
    tips = [tip for name in _MAIN_BRANCHES if (tip := repo.resolve(name))]
    for side in (theirs, ours):
        if any(_holds(repo, tip, side) for tip in tips):
            return side
    return None


def _holds(repo: Repository, tip: str, commit: str) -> bool:
    try:
        repo._run("merge-base", "--is-ancestor", commit, tip)
    except GitError:
        return False
    return True


def unmerged(repo: Repository) -> tuple[str, ...]:
    """Paths that git left unmerged, sorted: those of the project relative to it, others beginning with ``/``."""
    paths = set()
    for line in repo._run("ls-files", "-z", "--unmerged", "--full-name").split(b"\0"):
        if line:
            paths.add(line.split(b"\t", 1)[1].decode("utf-8", "surrogateescape"))
    return tuple(
        sorted(path.removeprefix(repo.prefix) if path.startswith(repo.prefix) else f"/{path}" for path in paths)
    )


def take_file(repo: Repository, root: Path, rev: str, path: str) -> None:
    """Make a file of the work tree that of a commit: written as it stands there, or removed.

    Args:
        root: of the project.

    Raises:
        IntegrityError, GitError, StorageError: it cannot be read, or not be written.
    """
    data = repo.read(rev, path)
    if data is not None:
        write_atomically(root / path, data)
        return
    try:
        (root / path).unlink(missing_ok=True)
    except OSError as error:
        raise _not_removed(path, error) from None


def take_folder(repo: Repository, root: Path, rev: str, path: str) -> None:
    """Make a folder of files the one of a commit, without anything else in it. Raises as ``take_file`` does."""
    names = repo.list(rev, path)
    content = {name: repo.read(rev, f"{path}/{name}") for name in names}
    try:
        if (root / path).is_dir() and not (root / path).is_symlink():
            shutil.rmtree(root / path)
    except OSError as error:
        raise _not_removed(path, error) from None
    for name, data in content.items():
        write_atomically(root / path / name, data or b"")


def _not_removed(path: str, error: OSError) -> StorageError:
    return StorageError(
        "cannot-write",
        f"could not be removed: {error.strerror}",
        where=path,
        mend="mend the permissions, then run the same command again",
    )


def stage(repo: Repository, paths: Sequence[str]) -> None:
    """Add these paths of the project to the index as they are now: they are unmerged no more. Raises GitError."""
    full = [repo.prefix + path for path in paths]
    # git refuses a path that is neither there nor known to it
    known = [path for path in full if (repo.root / path).exists() or repo._run("ls-files", "-z", "--", path)]
    if known:
        repo._run("add", "--all", "--", *known)
