"""Names and numbers of things in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many there are beside them."""
    known = list(names)
    shown = ", ".join(known[:most])
    return f"{shown} and {len(known) - most} more" if len(known) > most else shown


def counted(number: int, thing: str) -> str:
    """``1 task``, ``1,200 tasks``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
