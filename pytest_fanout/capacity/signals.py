"""At what an autoscaler adds a replica: the state of a measured server at the load that still keeps its promises."""

from __future__ import annotations

import itertools
import math

from pytest_fanout.capacity.saturation import RHO_MAX, Replica, most_in_flight, replica_near
from pytest_fanout.records import Calibration, CalibrationPoint, ScalingSignal, Slo


def scaling_signals(calibration: Calibration, slo: Slo, sequences_max: int | None = None) -> tuple[ScalingSignal, ...]:
    """Calls in flight, time to the first token, share of the KV pool and queue of one replica to scale at.

    The load is the largest mean at which 95 % of moments keep the promises. A figure that was not measured on both
    sides of it is left out; none where the promises are never kept.
    """
    ceiling = most_in_flight(calibration, slo, sequences_max).concurrency
    if ceiling is None:
        return ()
    load = _largest_mean(replica_near(calibration, ceiling), ceiling)
    found = [ScalingSignal("calls_in_flight", load)]
    for name in ("ttft_ms", "kv_share", "queue_depth"):
        value = _at(calibration.points, name, load)
        if value is not None:
            found.append(ScalingSignal(name, value))
    return tuple(found)


def _largest_mean(replica: Replica, most: float) -> float:
    low, high = 0.0, RHO_MAX
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if replica.in_flight_quantile(middle, 0.95) <= most else (low, middle)
    return replica.in_flight(low)


def _at(points: tuple[CalibrationPoint, ...], name: str, load: float) -> float | None:
    """Between two measured loads, linear in the logarithm of concurrency."""
    for below, above in itertools.pairwise(points):
        low, high = getattr(below, name), getattr(above, name)
        if below.concurrency <= load <= above.concurrency and low is not None and high is not None:
            part = math.log(load / below.concurrency) / math.log(above.concurrency / below.concurrency)
            return float(low + part * (high - low))
    return None
