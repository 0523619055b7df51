"""How many tasks are in flight: Little's law for the mean, the law of the arrivals for the spread."""

from __future__ import annotations

import math


def in_flight(rate_per_s: float, residency_s: float) -> float:
    """Mean number in the system, L = lambda x W. Holds for any arrival law and any order of service."""
    return rate_per_s * residency_s


def in_flight_quantile(mean: float, share: float, iod: float = 1.0) -> int:
    """The smallest count that is not exceeded in ``share`` (0-1) of moments.

    With Poisson arrivals (``iod`` 1) and no queueing the count in flight is Poisson, whatever the residency times; with
    a larger index of dispersion it is taken as negative binomial of variance iod x mean, which is an upper estimate.

    Raises:
        ValueError: a mean below 0, a share outside (0, 1), an iod below 1.
    """
    if not (0 <= mean < math.inf and 0 < share < 1 and 1 <= iod < math.inf):
        raise ValueError(f"no quantile for mean {mean}, share {share}, iod {iod}")
    if mean == 0:
        return 0
    deviation = math.sqrt(mean * iod)
    if deviation > 50_000:  # the sum would be long, and the bell curve is right to 5 digits
        from statistics import NormalDist

        return math.ceil(mean + NormalDist().inv_cdf(share) * deviation)
    # 12 deviations below the mean there is less than 1e-30 of the mass.
    count = max(0, math.floor(mean - 12 * deviation))
    mass = math.exp(_log_mass(count, mean, iod))
    total = mass
    while total < share:
        # Ratios of neighbours: exact, and cheaper than a gamma function for each count.
        if iod == 1:
            mass *= mean / (count + 1)
        else:
            mass *= (count + mean / (iod - 1)) / (count + 1) * (1 - 1 / iod)
        count += 1
        total += mass
        if count > mean + 60 * deviation + 1_000:  # rounding has eaten the last of a share close to 1
            break
    return count


def _log_mass(count: int, mean: float, iod: float) -> float:
    if iod == 1:
        return count * math.log(mean) - mean - math.lgamma(count + 1)
    size = mean / (iod - 1)
    ways = math.lgamma(count + size) - math.lgamma(count + 1) - math.lgamma(size)
    return ways - size * math.log(iod) + count * math.log1p(-1 / iod)
