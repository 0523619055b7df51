"""What a limit allows, as one integer that the check and the message both use."""

from __future__ import annotations

import math
from fractions import Fraction

from pytest_fanout.records import Limit


def limit_value(limit: Limit, base: int | None) -> int | None:
    """The largest integer that is not over the limit; None when nothing bounds it (no base value and no ``max``).

    A run is over when ``run > base x (1 + increase)`` and ``run - base >= at_least``, or ``run > max``. Integers fulfil
    the first two up to floor(base x (1 + increase)) or up to base + at_least - 1, whichever is larger.
    """
    bounds = []
    if limit.increase is not None and base is not None:
        bounds.append(max(math.floor(base * (1 + limit.increase)), base + limit.at_least - 1))
    if limit.max is not None:
        bounds.append(limit.max)
    return min(bounds) if bounds else None


def is_over(limit: Limit, base: int | None, run: int) -> bool:
    """Whether ``run`` exceeds the limit."""
    bound = limit_value(limit, base)
    return bound is not None and run > bound


def ceiling(limit: Limit, measured: int) -> int:
    """What an approval of ``measured`` covers: the larger of measured x (1 + increase) and measured + at_least.

    Never above ``max``; a limit that has only ``max`` is covered up to it.
    """
    bound = max(math.floor(measured * (1 + (limit.increase or Fraction(0)))), measured + limit.at_least)
    if limit.increase is None and limit.max is not None:
        return limit.max
    return bound if limit.max is None else min(bound, limit.max)


def describe(limit: Limit) -> str:
    """The limit in the words of budget.toml, e.g. ``increase 10%, at_least 1, max 25``."""
    words = []
    if limit.increase is not None:
        words.append(f"increase {percent(limit.increase)}")
        if limit.at_least:
            words.append(f"at_least {limit.at_least}")
    if limit.max is not None:
        words.append(f"max {limit.max}")
    if not limit.evidence:
        words.append("evidence off")
    return ", ".join(words)


def percent(share: Fraction) -> str:
    """A share as percent, exactly where it has a finite decimal form: 1/10 -> ``10%``."""
    hundredfold = share * 100
    if hundredfold.denominator == 1:
        return f"{hundredfold.numerator}%"
    return f"{float(hundredfold):g}%"
