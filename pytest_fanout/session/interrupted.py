"""What is said of a run that was interrupted: that nothing is wrong with it, and how it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pytest_fanout.gate.commands import AGAIN
from pytest_fanout.records import Problem


def command_of(args: Sequence[str]) -> str | None:
    """The command that was given, from pytest's arguments; None where it is not repeated.

    The report may be read by others than who typed the command, and options of other plugins may hold anything.
    """
    if any(arg.startswith("--") and not arg.startswith("--fanout-") for arg in args):
        return None
    return shlex.join(["pytest", *args])


def interrupted(lost: Sequence[str], command: str | None, *, records: bool) -> Problem:
    """The problem of an interrupted run.

    Args:
        lost: node ids that gave no number.
        command: that was given, where it may be shown.
        records: whether the run keeps what it measures as recordings.
    """
    said = "the run was interrupted"
    if lost:
        said += f", and {len(lost)} trial{'s' if len(lost) > 1 else ''} gave no number"
    if records:
        said += "; what was recorded is kept"
    return Problem("interrupted", f"{said}; mend: {AGAIN}{f': {command}' if command else ''}", "incomplete")
