"""Statistics of a class over its tasks: exact, in integers, every task counting once.

A statistic of a class is taken over the samples of all trials, each weighted 1/(trials of its task). A percentile is
``inverted_cdf``: the smallest value at which the cumulated weight reaches p of the whole, so that it is a number that
a real trial had (Hyndman and Fan 1996, definition 1, with weights).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Literal

#: What an unknown sample counts as: the statistic is then unknown, or the sample ranks as the largest or the smallest.
Unknown = Literal["refuse", "high", "low"]

PERCENTILES: Mapping[str, Fraction] = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p95": Fraction(95, 100),
    "p99": Fraction(99, 100),
    "p99.9": Fraction(999, 1000),
}


def percentile(values: Sequence[int], weights: Sequence[int | Fraction], p: Fraction) -> int:
    """The smallest value whose cumulated weight is at least ``p`` (0 < p <= 1) of the total.

    Raises:
        ValueError: no values, lengths that differ, or a weight that is not positive.
    """
    if not values or len(values) != len(weights) or min(weights) <= 0:
        raise ValueError("percentile needs values, each with a positive weight")
    need = p * sum(weights)
    reached: int | Fraction = 0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        reached += weight
        if reached >= need:
            return value
    return ordered[-1][0]


def statistic(samples: Mapping[str, Sequence[int | None]], name: str, *, unknown: Unknown = "refuse") -> int | None:
    """``mean``, ``p50`` … ``p99.9`` or ``max`` of a metric.

    Args:
        samples: task -> one value a trial. A task without trials takes no part.
        name: one of ``records.STATISTICS``.
        unknown: how unknown values (None) rank in a percentile. ``high`` gives an upper bound, ``low`` a lower one;
            the answer is None where it would itself be an unknown value. Mean and max are None with any unknown.

    Returns:
        An integer (the mean rounded half up), or None when it is not known.
    """
    tasks = [values for values in samples.values() if len(values)]
    if not tasks:
        return None
    has_unknown = any(None in values for values in tasks)
    if has_unknown and (unknown == "refuse" or name not in PERCENTILES):
        return None
    if name == "max":
        return max(value for values in tasks for value in values if value is not None)
    if name == "mean":
        total = mean(samples)
        return None if total is None else math.floor(total + Fraction(1, 2))
    if not has_unknown and len(set(map(len, tasks))) == 1:  # every value weighs the same
        ordered = sorted(chain.from_iterable(tasks))  # type: ignore[type-var]
        return ordered[math.ceil(PERCENTILES[name] * len(ordered)) - 1]
    # the least common multiple of the trial counts makes every weight an integer
    scale = math.lcm(*{len(values) for values in tasks})
    known = sorted((value, scale // len(values)) for values in tasks for value in values if value is not None)
    missing = sum(scale // len(values) for values in tasks for value in values if value is None)
    # weights are whole numbers: they reach a fraction when they reach the next whole one
    need = math.ceil(PERCENTILES[name] * scale * len(tasks)) - (missing if unknown == "low" else 0)
    if need <= 0:
        return None
    reached = 0
    for value, weight in known:
        reached += weight
        if reached >= need:
            return value
    return None


def mean(samples: Mapping[str, Sequence[int | None]]) -> Fraction | None:
    """The mean over tasks of each task's mean over its trials, exactly; None when empty or with any unknown value."""
    sums: dict[int, int] = {}  # trials of a task -> sum over all such tasks: mostly one fraction instead of hundreds
    tasks = 0
    for values in samples.values():
        if len(values):
            if None in values:
                return None
            sums[len(values)] = sums.get(len(values), 0) + sum(values)  # type: ignore[arg-type]
            tasks += 1
    return sum((Fraction(total, trials) for trials, total in sums.items()), Fraction(0)) / tasks if tasks else None


def largest(samples: Mapping[str, Sequence[int | None]]) -> tuple[int | None, str | None]:
    """The largest known single trial and its task (the first by name among equals)."""
    best: tuple[int, str] | None = None
    for task in sorted(samples):
        for value in samples[task]:
            if value is not None and (best is None or value > best[0]):
                best = (value, task)
    return best if best is not None else (None, None)


def share_percent(marks: Mapping[str, Sequence[int | None]]) -> int | None:
    """Share of marked trials (1 or 0), every task counting once, in percent **rounded up**: one in 1,000 is not 0."""
    share = mean(marks)
    return None if share is None else math.ceil(share * 100)
