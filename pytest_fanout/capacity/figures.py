"""How a figure is written, wherever it stands: the same value always gives the same text.

The lowest room whose figures people read holds this; the rooms above write theirs with it.
"""

from __future__ import annotations

import math


def number(value: float | None) -> str:
    """Whole from 100 up, with two decimals from 1 up, three digits below; unknown is a dash, never a zero."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size >= 99.995 or size == 0:
        return f"{value:,.0f}"
    if size >= 0.9995:
        return f"{value:,.2f}"
    return f"{value:.3g}" if size >= 0.0001 else f"{value:.1e}"


def signed(value: float) -> str:
    """The same of a difference, with its sign."""
    return f"+{number(value)}" if value >= 0 else f"-{number(-value)}"


def interval(ends: tuple[float, float]) -> str:
    """``80.20 to 107``."""
    return f"{number(ends[0])} to {number(ends[1])}"


def times(ratio: float | None) -> str:
    """A ratio, like ``2.31``."""
    return "-" if ratio is None else f"{ratio:,.2f}"


def band(one: float | None, other: float | None) -> str:
    """Ratios by two fits, smaller first, like ``2.31 to 4.16``; one where both are shown alike."""
    shown = dict.fromkeys(times(value) for value in sorted(value for value in (one, other) if value is not None))
    return " to ".join(shown)


def counted(count: int, noun: str, many: str | None = None) -> str:
    """``1 task``, ``1,200 tasks``; ``many`` where an s is not enough."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def listed(names: tuple[str, ...] | list[str], joined: str, most: int = 5) -> str:
    """Some of many names, and how many more there are."""
    more = len(names) - most
    return joined.join(names) if more <= 1 else f"{joined.join(names[:most])}{joined}{more:,} more"


def exact(value: float) -> str:
    """With seven digits, as a formula shows its operands: a figure worked out from them is right to six."""
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.6e}"
    decimals = max(0, 6 - size)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
