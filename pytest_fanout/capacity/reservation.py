"""How many GPUs to reserve and how many to rent by the hour: the newsvendor's answer on hourly demand.

Reserving the k-th GPU pays when demand reaches k in more than 1 / p of the hours, p being the price of a burst hour
over that of a reserved one. So the best reservation is the quantile 1 - 1/p of hourly demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

HOURS = 24


def reservation_cost(reserved: float, demand: Sequence[float], price_ratio: float) -> float:
    """Mean cost of an hour, in hours of a reserved GPU: what is reserved, and p for each GPU above it."""
    return reserved + price_ratio * math.fsum(max(0.0, each - reserved) for each in demand) / len(demand)


def best_reservation(demand: Sequence[float], price_ratio: float) -> float:
    """The demand that is not exceeded in a share 1 - 1/p of hours: the cheapest reservation."""
    ordered = sorted(demand)
    return ordered[min(len(ordered) - 1, max(0, math.ceil((1 - 1 / price_ratio) * len(ordered)) - 1))]


def burst_share(reserved: float, demand: Sequence[float]) -> float:
    """Share (0-1) of the GPU hours used that are rented."""
    used = math.fsum(demand)
    return math.fsum(max(0.0, each - reserved) for each in demand) / used if used else 0.0


@cache
def hours_of(peak_factor: float, shares: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Rate of each hour of a day over that of the peak hour: as given, or a bell with that peak over its mean."""
    if shares:
        return tuple(share / max(shares) for share in shares)
    low, high = 0.0, 10_000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if HOURS / math.fsum(_bell(middle)) < peak_factor else (low, middle)
    return _bell(high)


def _bell(sharpness: float) -> tuple[float, ...]:
    return tuple(((1 + math.cos(2 * math.pi * hour / HOURS)) / 2) ** sharpness for hour in range(HOURS))
