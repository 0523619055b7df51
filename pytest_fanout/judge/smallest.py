"""The smallest growth of all tasks together that a new draw finds in four of five cases."""

from __future__ import annotations

import math

from pytest_fanout.judge.looks import information

#: A growth counts as one that can be seen when so many draws find it.
FOUND = 0.80


def standard_error(noise: float, tasks: int, trials_run: float, trials_base: float) -> float:
    """Of the mean log ratio of ``tasks`` tasks; ``noise``: SD of the logarithm between trials of one task."""
    return noise * math.sqrt(1 / information(trials_run, trials_base) / tasks)


def smallest_growth(error: float, level: float, allowed: float) -> float:
    """As a ratio. It has to pass the bound of its p value, and the limit itself."""
    bound, reach = z(1 - level), z(FOUND)
    return math.exp(max((bound + reach) * error, math.log(allowed) + reach * error))


def tasks_for(growth: float, error: float, tasks: int, level: float, allowed: float) -> int | None:
    """How many tasks find this growth where ``tasks`` have that standard error; None: the limit allows the growth."""
    if allowed >= growth:
        return None
    needed = min(math.log(growth) / (z(1 - level) + z(FOUND)), math.log(growth / allowed) / z(FOUND))
    return max(1, math.ceil(tasks * (error / needed) ** 2))


def z(share: float) -> float:
    """The standard normal quantile."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)
