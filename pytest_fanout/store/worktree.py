"""Another commit checked out beside the work tree, for as long as it is needed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pytest_fanout.errors import GitError
from pytest_fanout.store.git import Repository


class Worktree:
    """A commit in a temporary folder, by ``git worktree``; hooks do not run, submodules are not fetched.

    Attributes:
        root: where the repository's root is there.

    Raises:
        GitError: git cannot check the commit out.
    """

    def __init__(self, repo: Repository, rev: str) -> None:
        self._repo = repo
        self._folder = tempfile.TemporaryDirectory(prefix="fanout-base-")
        self.root = Path(self._folder.name).resolve() / "tree"
        try:
            repo.add_worktree(self.root, rev)
        except BaseException:
            self._folder.cleanup()
            raise

    def remove(self) -> None:
        """Nothing is left of it, in git's own records either."""
        with contextlib.suppress(GitError):
            self._repo.remove_worktree(self.root)
        self._folder.cleanup()

    def moved(self, text: str) -> str:
        """A path of the work tree as the path of the same file here; any other text as it is.

        What the commit does not hold, say a virtual environment in the project's folder, stays where it is.
        """
        for there in dict.fromkeys((self._repo.root, self._repo.root.resolve())):
            path, _, member = text.partition("::")
            with contextlib.suppress(ValueError, OSError):
                here = self.root / Path(path).relative_to(there)
                if Path(path).is_absolute() and here.exists():
                    return f"{here}::{member}" if member else str(here)
        return text

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Which of these files are those of the work tree although the commit holds them too, sorted."""
        return tuple(sorted({file for file in files if self.moved(file) != file}))
