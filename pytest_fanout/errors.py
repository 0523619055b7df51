"""One tree of errors. Each says what happened, where, and the command that mends it; ``slug`` is its anchor in
docs/messages.md.

    FanoutError
    ├── UsageError        the call's words are off              exit 2 (commands), 4 (pytest)
    │   └── ConfigError   pyproject.toml, an eval set, an entry point
    ├── IntegrityError    a committed or recorded file is altered, malformed or misplaced   exit 4
    ├── GitError          git is missing or does not answer     exit 4
    ├── NotAccepted       `accept` refuses                      exit 3
    └── StorageError      a file could not be written           exit 4
    TaskStopped           (BaseException) ends a task whose cap was reached; no SDK can swallow it
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_WITHIN = 0
EXIT_OVER = 1
EXIT_USAGE = 2
EXIT_NOT_MEASURED = 3
EXIT_INTEGRITY = 4


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that a misspelt one was most likely meant as; None: none is near."""
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[near[0]] if near else None


class FanoutError(Exception):
    """Root of all errors that a user can mend. No traceback is shown for them."""

    exit_code = EXIT_INTEGRITY

    def __init__(self, slug: str, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        self.slug = slug
        self.what = what
        self.where = where
        self.mend = mend
        super().__init__(str(self))

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        if self.mend:
            line += f"\n  mend: {self.mend}"
        return f"{line}\n  see: docs/messages.md#{self.slug}"


class UsageError(FanoutError):
    """Words, options or settings that cannot be acted on."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A setting, an eval set or an entry point that cannot be used."""


class IntegrityError(FanoutError):
    """A committed or recorded file that is altered, malformed or misplaced."""

    exit_code = EXIT_INTEGRITY


class GitError(FanoutError):
    """git is missing, too old, or does not answer."""

    exit_code = EXIT_INTEGRITY


class NotAccepted(FanoutError):
    """`accept` does not accept this run."""

    exit_code = EXIT_NOT_MEASURED


class StorageError(FanoutError):
    """A file could not be written; what stood there before is whole."""

    exit_code = EXIT_INTEGRITY


class MeasurementWarning(UserWarning):
    """What ``measure()`` counted cannot be trusted; the text says why, and ``problems`` of its meter holds it all."""


class TaskStopped(BaseException):
    """Raised into a task whose cap was reached. Not an Exception: SDK retries and broad handlers let it pass."""
