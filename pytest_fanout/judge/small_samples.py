"""What few tasks can support: Student's t, and the interval of a percentile from order statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache


@lru_cache(maxsize=1024)
def student_quantile(share: float, degrees: int) -> float:
    """The value that Student's t with ``degrees`` >= 1 of freedom stays below with probability ``share`` in (0, 1).

    Up to 200 degrees from the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4, beyond from the expansion
    26.7.5; either is right to 1e-8 for shares between 0.001 and 0.999.
    """
    from statistics import NormalDist

    if share == 0.5:
        return 0.0
    if share < 0.5:
        return -student_quantile(1 - share, degrees)
    z = NormalDist().inv_cdf(share)
    if degrees > 200:
        return _expanded(z, degrees)
    low, high = 0.0, 1.0
    while _student_below(high, degrees) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _student_below(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_below(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    if degrees % 2:
        total, term = 0.0, math.cos(angle)
        for index in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine2 * (2 * index) / (2 * index + 1)
        between = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        total, term = 0.0, 1.0
        for index in range(1, degrees // 2 + 1):
            total += term
            term *= cosine2 * (2 * index - 1) / (2 * index)
        between = math.sin(angle) * total
    return 0.5 + between / 2


def _expanded(z: float, degrees: int) -> float:
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / float(degrees) ** (index + 1) for index, term in enumerate(terms))


@lru_cache(maxsize=256)
def percentile_ranks(tasks: int, share: Fraction, confidence: float = 0.90) -> tuple[int | None, int | None]:
    """Ranks (from 1) of the order statistics that hold the percentile ``share`` between them.

    Each end is wrong with probability (1 - confidence) / 2 at most, by the binomial distribution of the number of
    tasks below the percentile. None: no value among so few tasks can be that end; for the upper end of a p95 with
    90 % that is so below 59 tasks.
    """
    tail = (1 - confidence) / 2
    p = float(share)
    below = 0.0  # P(B <= rank - 1) with B ~ Binomial(tasks, p)
    lower: int | None = None
    for count in range(tasks):
        below += _binomial(count, tasks, p)
        rank = count + 1
        # the order statistic of this rank is above the percentile when fewer than `rank` tasks are below it
        if below <= tail:
            lower = rank
        if below >= 1 - tail:
            return lower, rank
    return lower, None


def _binomial(count: int, trials: int, p: float) -> float:
    log = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return math.exp(log + count * math.log(p) + (trials - count) * math.log1p(-p))


def percentile_interval(
    column: Mapping[str, Sequence[int | None]], share: Fraction
) -> tuple[int | None, int | None] | None:
    """The 90 % interval of a percentile over tasks; None where ``share`` is not estimable from so few of them.

    Trials of one task are no independent tasks: they share its weight, and the ranks are those of the tasks alone.
    """
    tasks = [[value for value in values if value is not None] for values in column.values()]
    tasks = [values for values in tasks if values]
    if len(tasks) * (1 - share) < 1:
        return None
    import numpy as np

    lower, upper = percentile_ranks(len(tasks), share)
    scale = math.lcm(*{len(values) for values in tasks})
    flat = np.array([value for values in tasks for value in values], dtype=object if _is_huge(tasks) else np.int64)
    # tasks of 1 to 50 different numbers of trials have a common multiple of 21 digits
    of_weights = object if scale * len(tasks) >= 2**62 else np.int64
    weights = np.array([scale // len(values) for values in tasks for _ in values], dtype=of_weights)
    order = np.argsort(flat, kind="stable")
    reached = np.cumsum(weights[order])

    def at(rank: int | None) -> int | None:
        return None if rank is None else int(flat[order[np.searchsorted(reached, rank * scale)]])

    return at(lower), at(upper)


def _is_huge(tasks: Sequence[Sequence[int]]) -> bool:
    return any(abs(value) >= 2**62 for values in tasks for value in values)
