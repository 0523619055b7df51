"""Names of things in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first names, and how many there are beside them."""
    known = list(names)
    shown = ", ".join(known[:most])
    return f"{shown} and {len(known) - most} more" if len(known) > most else shown
