"""Another commit checked out beside the work tree, for as long as it is needed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_fanout.errors import GitError
from pytest_fanout.store.git import Repository

_PREFIX = "fanout-base-"
#: Beside the checked-out tree: locked for as long as the process lives that made it.
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Moved:
    """Paths of the work tree at ``origin`` as those of the same files at ``root``."""

    origin: Path
    root: Path

    def path(self, text: str) -> str:
        """A path, also with ``::`` behind it, where it is there; any other text as it is.

        What the commit does not hold, say a virtual environment in the project's folder, stays where it is.
        """
        path, _, member = text.partition("::")
        for there in dict.fromkeys((self.origin, self.origin.resolve())):
            with contextlib.suppress(ValueError, OSError):
                here = self.root / Path(path).relative_to(there)
                if here.exists():
                    return f"{here}::{member}" if member else str(here)
        return text

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Which of these files are those of the work tree although the commit holds them too, sorted."""
        return tuple(sorted({file for file in files if self.path(file) != file}))


class Worktree:
    """A commit in a temporary folder, by ``git worktree``; hooks do not run, submodules are not fetched.

    Those that killed processes have left behind are removed first.

    Attributes:
        moved: from the repository's work tree to the commit's.

    Raises:
        GitError: git cannot check the commit out.
    """

    def __init__(self, repo: Repository, rev: str) -> None:
        self._repo = repo
        remove_left(repo)
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self._owner = _locked(Path(self._folder.name) / _OWNER, "w")
        self.moved = Moved(repo.root, Path(self._folder.name).resolve() / "tree")
        try:
            repo.add_worktree(self.moved.root, rev)
        except BaseException:
            self._give_up()
            raise

    def remove(self) -> None:
        """Nothing is left of it, in git's own records either."""
        with contextlib.suppress(GitError):
            self._repo.remove_worktree(self.moved.root)
        self._give_up()

    def _give_up(self) -> None:
        if self._owner is not None:
            self._owner.close()
        self._folder.cleanup()


def remove_left(repo: Repository) -> None:
    """Remove the work trees of a repository that were made here by a process that is gone, and no others."""
    for tree in repo.worktrees():
        folder = tree.parent
        if folder.name.startswith(_PREFIX) and (folder / _OWNER).is_file():
            owner = _locked(folder / _OWNER, "r+")  # what no living process holds
            if owner is not None:
                with owner, contextlib.suppress(GitError):
                    repo.remove_worktree(tree)
                shutil.rmtree(folder, ignore_errors=True)


def _locked(path: Path, mode: str) -> IO[str] | None:
    """The file, locked until it is closed or the process ends; None: another holds it, or files have no locks here."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        file = path.open(mode)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
