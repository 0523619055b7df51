"""How many calls run at once on a model server under load, and where it is no longer estimated.

With ITL(B) = t0 + t1 B the calls in flight on one replica are negative binomial for Poisson tasks, random routing and
processor sharing, whatever the laws of work and of tool times (product form of Baskett, Chandy, Muntz and Palacios):
size r = 1 + t0/t1, success 1 - rho, mean r rho / (1 - rho), variance mean / (1 - rho). Little's law with the latency of
an idle server is low by 3 times at rho 0.7 and by 6 times at 0.85.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.littles_law import in_flight_quantile
from pytest_fanout.records import Calibration, CalibrationPoint, Slo

#: Above this share of its throughput a server is saturated: queues grow so long that no formula here holds.
RHO_MAX = 0.85
#: The most replicas that are tried before a demand counts as beyond estimation.
_MOST_REPLICAS = 1_000_000


@dataclass(frozen=True, slots=True)
class Replica:
    """One model server near its operating point: seconds between tokens are t0 + t1 x calls in flight."""

    t0_s: float
    t1_s: float

    @property
    def size(self) -> float:
        return 1 + self.t0_s / self.t1_s

    def in_flight(self, rho: float) -> float:
        """Mean calls in flight at a utilisation.

        Raises:
            ValueError: a utilisation that is not in [0, 0.85].
        """
        _check(rho)
        return self.size * rho / (1 - rho)

    def in_flight_quantile(self, rho: float, share: float) -> int:
        """The count that is not exceeded in ``share`` (0-1) of moments. Raises ValueError like ``in_flight``."""
        return in_flight_quantile(self.in_flight(rho), share, 1 / (1 - rho))


def _check(rho: float) -> None:
    if not 0 <= rho <= RHO_MAX:
        raise ValueError(f"saturated: utilisation {rho:.2f} is not estimated, only up to {RHO_MAX}")


def fleet_in_flight_quantile(replica: Replica, rho: float, replicas: int, waiting_on_tools: float, share: float) -> int:
    """Tasks in flight on a fleet in ``share`` of moments: calls that run and, independent of them, waits for tools.

    Args:
        waiting_on_tools: mean number of tasks that wait for a tool, Poisson.

    Raises:
        ValueError: saturated.
    """
    running = replica.in_flight(rho) * replicas
    if running == 0:
        return in_flight_quantile(waiting_on_tools, share)
    variance = running / (1 - rho)
    mean, spread = running + waiting_on_tools, math.sqrt(variance + waiting_on_tools)
    if mean > 1_000:  # the sum would be long; a shifted gamma of the same three moments is right to a call or two
        third = variance * (1 + rho) / (1 - rho) + waiting_on_tools
        return math.ceil(mean + spread * pearson_quantile(third / spread**3, share))
    import numpy as np

    top = math.ceil(mean + 12 * spread) + 20
    masses = np.convolve(_negative_binomial(replica.size * replicas, rho, top), _poisson(waiting_on_tools, top))
    return int(np.searchsorted(np.cumsum(masses[: top + 1]), share))


def _negative_binomial(size: float, rho: float, top: int) -> list[float]:
    masses, log = [], size * math.log1p(-rho)
    for count in range(top + 1):
        masses.append(math.exp(log))
        log += math.log((count + size) / (count + 1) * rho)
    return masses


def _poisson(mean: float, top: int) -> list[float]:
    if mean == 0:
        return [1.0] + [0.0] * top
    return [math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in range(top + 1)]


def pearson_quantile(skew: float, share: float) -> float:
    """Standardised quantile of a shifted gamma with that skewness (Wilson and Hilferty's approximation)."""
    from statistics import NormalDist

    z = NormalDist().inv_cdf(share)
    if abs(skew) < 1e-6:
        return z
    shape = 4 / skew**2
    return float(math.sqrt(shape) * ((1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3 - 1))


# --- calibrations --------------------------------------------------------------------------------------------------


def itl_ms(calibration: Calibration, concurrency: float) -> float | None:
    """Milliseconds between tokens at so many calls in flight, interpolated in the logarithm of concurrency.

    None outside the measured points: a line through the points up to 128 is 22 % off at 512.
    """
    points = calibration.points
    if not points[0].concurrency <= concurrency <= points[-1].concurrency:
        return None
    for below, above in itertools.pairwise(points):
        if below.concurrency <= concurrency <= above.concurrency:
            part = math.log(concurrency / below.concurrency) / math.log(above.concurrency / below.concurrency)
            return math.exp((1 - part) * math.log(below.itl_ms) + part * math.log(above.itl_ms))
    return points[-1].itl_ms


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most calls in flight on a replica within its promises; ``bound`` says what stops there."""

    concurrency: float | None  # None: the promise does not hold even at the lowest measured load
    bound: str  # itl ttft measured sequences


def most_in_flight(calibration: Calibration, slo: Slo, sequences_max: int | None) -> Ceiling:
    """How many calls in flight a replica may have: within both promises, the measured loads and the server's limit."""
    points = calibration.points
    found = Ceiling(float(points[-1].concurrency), "measured")
    times = (
        ("itl", slo.itl_ms_max, [(point, point.itl_ms) for point in points]),
        ("ttft", slo.ttft_ms_max, [(point, point.ttft_ms) for point in points if point.ttft_ms is not None]),
    )
    for bound, limit, row in times:
        if not row or row[-1][1] <= limit:
            continue
        reached = _reached(row, limit)
        if reached is None:
            return Ceiling(None, bound)
        if found.concurrency is not None and reached < found.concurrency:
            found = Ceiling(reached, bound)
    if sequences_max is not None and found.concurrency is not None and sequences_max < found.concurrency:
        return Ceiling(float(sequences_max), "sequences")
    return found


def _reached(row: Sequence[tuple[CalibrationPoint, float]], limit: float) -> float | None:
    """The first load at which the time is the limit, interpolated in both logarithms; None: above from the start."""
    if row[0][1] > limit:
        return None
    for (below, low), (above, high) in itertools.pairwise(row):
        if low <= limit < high:
            part = math.log(limit / low) / math.log(high / low)
            return math.exp((1 - part) * math.log(below.concurrency) + part * math.log(above.concurrency))
    return float(row[-1][0].concurrency)


def replica_near(calibration: Calibration, concurrency: float) -> Replica:
    """The line through the two measured points around a load; never flatter than the highest throughput allows."""
    points = calibration.points
    index = next((i for i, point in enumerate(points[1:], 1) if point.concurrency >= concurrency), len(points) - 1)
    below, above = points[index - 1], points[index]
    slope = (above.itl_ms - below.itl_ms) / (above.concurrency - below.concurrency) / 1_000
    if slope <= 0:
        slope = 1 / max(point.output_tokens_per_s for point in points)
    return Replica(max(0.0, above.itl_ms / 1_000 - slope * above.concurrency), slope)


@dataclass(frozen=True, slots=True)
class Sized:
    """Replicas that keep the promises, and what runs on each."""

    replicas: int
    rho: float
    in_flight: float  # calls on each, mean
    in_flight_p95: int


def replicas_within(replica: Replica, work_tokens_per_s: float, most: float, rho_max: float = RHO_MAX) -> Sized | None:
    """The fewest replicas on which 95 % of moments have at most ``most`` calls in flight each.

    Args:
        work_tokens_per_s: of the whole fleet, in output tokens (input counts as the output that takes as long).

    Returns:
        None where no number of replicas is enough.
    """
    if work_tokens_per_s == 0:
        return Sized(0, 0.0, 0.0, 0)

    def on(count: int) -> Sized | None:
        rho = work_tokens_per_s * replica.t1_s / count
        if rho > rho_max:
            return None
        p95 = replica.in_flight_quantile(rho, 0.95)
        return Sized(count, rho, replica.in_flight(rho), p95) if p95 <= most else None

    high = 1
    while on(high) is None:
        high *= 2
        if high > _MOST_REPLICAS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if on(middle) is not None else (middle, high)
    return on(high)
