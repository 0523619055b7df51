"""Another commit checked out beside the work tree, for as long as it is needed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_fanout.errors import GitError
from pytest_fanout.store.git import Repository


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

    Attributes:
        moved: from the repository's work tree to the commit's.

    Raises:
        GitError: git cannot check the commit out.
    """

    def __init__(self, repo: Repository, rev: str) -> None:
        self._repo = repo
        self._folder = tempfile.TemporaryDirectory(prefix="fanout-base-")
        self.moved = Moved(repo.root, Path(self._folder.name).resolve() / "tree")
        try:
            repo.add_worktree(self.moved.root, rev)
        except BaseException:
            self._folder.cleanup()
            raise

    def remove(self) -> None:
        """Nothing is left of it, in git's own records either."""
        with contextlib.suppress(GitError):
            self._repo.remove_worktree(self.moved.root)
        self._folder.cleanup()
