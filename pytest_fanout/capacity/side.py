"""One side of a plan, anchors or run: all classes on one fleet, their windows at peak, and what these ask for.

A percentile of windows is one of arrivals, given which eval tasks stand for traffic; over the eval sets of the
bootstrap its median is the estimate, and the middle 90 % its interval. So an estimate and its interval are of the same
thing, and the one lies in the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_fanout.capacity.constraints import Costs, Rates, Stream, costs_of, mean_costs, rates_of, size, total
from pytest_fanout.capacity.demand import SECONDS_PER_DAY, peak_demand
from pytest_fanout.capacity.flight import boundaries, stretch_of
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import usd_per_1000, whole_gpus
from pytest_fanout.capacity.quotas import Asked, asked_of, kinds_of, uses_of
from pytest_fanout.capacity.windows import Drawn, Rows, Weighed, rows_of, shifted_gamma, summed, weigh
from pytest_fanout.records import Calibration, Fleet, Load, QuotaUse, Spread

if TYPE_CHECKING:
    from pytest_fanout.capacity.windows import Array

#: Quantities of a task, in the order of their columns: counts, GPU-seconds, then what quotas count.
COUNTS = ("calls", "new_input", "cached_input", "output")
KINDS = ("compute", "compute_uncached", "memory_running", "memory_idle", "latency")
GPU_COLUMNS = slice(len(COUNTS), len(COUNTS) + len(KINDS))
_QUOTA_COLUMN = len(COUNTS) + len(KINDS)
_SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class GpuWindows:
    """GPUs of one side: in each window, and the conditional 50th, 95th and 99th percentile given its eval tasks."""

    drawn: Array
    given: tuple[Array, Array, Array]
    mean: Array  # given its eval tasks
    at: Callable[[float], Array] = field(compare=False)  # the same at any share (0-1) of windows

    def spread(self) -> Spread:
        return spread_of(self.given)


@dataclass(slots=True)
class Kept:
    """What is worked out once for many demands on the same tasks and fleet, by class and prices."""

    costs: dict[tuple[str, Rates], Costs | None] = field(default_factory=dict)
    weighed: dict[tuple[str, Rates], Weighed] = field(default_factory=dict)


def stream_of(agent: str, means: TaskMeans, fleet: Fleet) -> Stream:
    """The tasks of a class at the peak that fleet.toml says."""
    return Stream(agent, peak_demand(agent, fleet).tasks_per_second, means, fleet.demand[agent].iod)


class PricedSide:
    """The streams of one side, and how their tasks are priced."""

    def __init__(
        self,
        streams: Sequence[Stream],
        fleet: Fleet,
        profile: Profile,
        calibration: Calibration | None,
        kept: Kept | None = None,
    ) -> None:
        self.streams = streams
        self.fleet = fleet
        self.profile = profile
        self.calibration = calibration
        self.rates = rates_of(streams, fleet, profile, calibration, fleet.target_utilisation)
        self._kept = kept or Kept()
        self._unit = _unit_of(self.rates)
        self._costs = {stream.agent: self._mean(stream) for stream in streams}
        self._unknown = frozenset(
            kind for kind in KINDS if any(c is None or getattr(c, kind) is None for c in self._costs.values())
        )

    def _mean(self, stream: Stream) -> Costs | None:
        key = (stream.agent, self._unit)
        if key not in self._kept.costs:
            self._kept.costs[key] = mean_costs(stream.means, self._unit)
        return self._kept.costs[key]

    def rows(self, agent: str) -> Rows:
        """What each task of a class costs, before ``scale``."""
        stream = next(stream for stream in self.streams if stream.agent == agent)
        quota = self.fleet.quota
        found = {}
        for row in stream.means.rows:
            costs = costs_of(row, self._unit)
            counts = tuple(getattr(row, name) or 0.0 for name in COUNTS)
            kinds = tuple((getattr(costs, kind) or 0.0) if costs else 0.0 for kind in KINDS)
            asked = asked_of(quota, *counts) if quota is not None else ()
            found[row.task] = (row.weight, counts + kinds + asked)
        return rows_of(found)

    def scale(self) -> Array | None:
        """What the load makes of each column: seconds of a call and GPUs of a token are the measured server's."""
        call_s, work = self.rates.call_s, self.rates.work_gpus
        if call_s is None and work is None:
            return None
        import numpy as np

        found = np.ones(_QUOTA_COLUMN + (len(kinds_of(self.fleet.quota)) if self.fleet.quota else 0))
        found[len(COUNTS) + KINDS.index("memory_running")] = 1.0 if call_s is None else call_s
        found[len(COUNTS) + KINDS.index("latency")] = 1.0 if work is None else work
        return found

    def windows(self, *, drawn: bool = True, windows: int) -> Drawn:
        """The windows of all classes together; the weights of their tasks are kept for another demand."""
        scale = self.scale()
        made = []
        for stream in self.streams:
            key = (stream.agent, self._unit)
            if key not in self._kept.weighed:
                self._kept.weighed[key] = weigh(stream.agent, [self.rows(stream.agent)], windows=windows)
            made.append(self._kept.weighed[key].windows(0, stream.rate, stream.iod, scale, drawn=drawn))
        return summed(made)

    def gpus(self, drawn: Drawn) -> GpuWindows | None:
        """None where there is no number: saturated, outside the calibration, or too long a context."""
        if self.rates.refused is not None:
            return None
        given = [self.gpus_in(drawn, share) for share in _SHARES]
        of_windows = self.combined(drawn.rate[:, GPU_COLUMNS])
        mean = self.combined(drawn.mean[:, GPU_COLUMNS])
        return GpuWindows(of_windows, (given[0], given[1], given[2]), mean, lambda share: self.gpus_in(drawn, share))

    def gpus_in(self, drawn: Drawn, share: float) -> Array:
        """GPUs that are enough in a share (0-1) of arrivals, by each eval set of the bootstrap."""
        from statistics import NormalDist

        mean, variance, third = (each[:, GPU_COLUMNS] for each in (drawn.mean, drawn.variance, drawn.third))
        return self.combined(shifted_gamma(mean, variance, third, NormalDist().inv_cdf(share)))

    def combined(self, columns: Array) -> Array:
        """GPUs of windows, from their GPU columns: the largest constraint, contexts kept where that takes fewer."""
        import numpy as np

        by_name = {kind: columns[:, index] for index, kind in enumerate(KINDS)}
        parts = {kind: values for kind, values in by_name.items() if kind not in self._unknown}
        nothing = np.zeros(len(columns))
        running, idle = (parts.get(kind, nothing) for kind in ("memory_running", "memory_idle"))
        latency = parts.get("latency", nothing)
        kept = np.maximum(np.maximum(by_name["compute"], running + idle), latency)
        if "memory_running" not in parts or "memory_idle" not in parts:
            return np.maximum(kept, 0.0)
        dropped = np.maximum(np.maximum(by_name["compute_uncached"], running), latency)
        return np.maximum(np.minimum(kept, dropped), 0.0)

    def load(self) -> Load:
        """The whole fleet at the mean of the peak hour."""
        fleet, provider = self.fleet, self.fleet.serves == "provider"
        sizing = size(None if provider else self._together(), self.rates)
        stretches = [1.0 if provider else stretch_of(stream.means, self.rates) for stream in self.streams]
        places = boundaries(self.streams, stretches, rho=0.0 if provider else fleet.target_utilisation)
        front = next((place for place in places if place.name == "front"), None)
        day: float | None = None
        if provider:
            days = [self._usd_per_day(stream) for stream in self.streams]
            day = math.fsum(value for value in days if value is not None) if None not in days else None
        else:
            held, hourly = whole_gpus(sizing.gpus, self.profile, fleet.spare_replicas), fleet.prices.usd_per_gpu_hour
            day = None if held is None or hourly is None else held * hourly * 24
        return Load(
            calls_per_s=self._per_s("calls"),
            new_input_per_s=self._per_s("new_input"),
            cached_input_per_s=self._per_s("cached_input"),
            output_per_s=self._per_s("output"),
            tokens_per_s=self._per_s("tokens"),
            tasks_in_flight=front.in_flight if front else None,
            gpus=sizing.gpus,
            tasks_in_flight_p99=front.in_flight_p99 if front else None,
            usd_per_day=day,
            constraints=sizing.constraints,
            binding=sizing.binding,
            gpus_other=sizing.gpus_other,
            kv_gb=sizing.kv_gb,
            boundaries=places,
            keeps_prefixes=sizing.keeps_prefixes,
            refused=None if provider else self.rates.refused,
        )

    def _together(self) -> Costs | None:
        parts = [(stream.rate, self._costs[stream.agent]) for stream in self.streams]
        known = [(rate, _scaled(costs, self.rates)) for rate, costs in parts if costs is not None]
        return total(known) if len(known) == len(parts) else None

    def _per_s(self, name: str) -> float | None:
        values = [(stream.rate, getattr(stream.means, name)) for stream in self.streams]
        if any(value is None for _, value in values):
            return None
        return math.fsum(rate * value for rate, value in values)

    def _usd_per_day(self, stream: Stream) -> float | None:
        price = usd_per_1000(stream.means, self.fleet.prices)
        return None if price is None else price / 1_000 * stream.rate / self._peak(stream) * SECONDS_PER_DAY

    def _peak(self, stream: Stream) -> float:
        return self.fleet.demand[stream.agent].peak_factor

    def quotas(self, whole: Drawn, load: Load) -> tuple[QuotaUse, ...]:
        """Each quota beside what 99 % of minutes ask of it; none with GPUs of one's own."""
        quota = self.fleet.quota
        if quota is None:
            return ()
        model = next((place for place in load.boundaries if place.name == "model"), None)
        p99 = {name: column_spread(whole, _QUOTA_COLUMN + n).p99 for n, name in enumerate(kinds_of(quota))}
        tokens = math.fsum(
            stream.rate / self._peak(stream) * SECONDS_PER_DAY * (stream.means.tokens or 0.0) for stream in self.streams
        )
        iod = max(stream.iod for stream in self.streams)
        return uses_of(quota, Asked(p99, tokens, model.in_flight_p99 if model else None, iod))


def spread_of(given: Sequence[Array]) -> Spread:
    """Median and middle 90 % over eval sets of the 50th, 95th and 99th percentile of windows."""
    import numpy as np

    low, middle, high = zip(*(np.quantile(each, (0.05, 0.50, 0.95)).tolist() for each in given), strict=True)
    p50, p95, p99 = middle
    return Spread(p50, p95, p99, *((one, other) for one, other in zip(low, high, strict=True)))


def column_spread(drawn: Drawn, column: int) -> Spread:
    """The same of one quantity a second."""
    from statistics import NormalDist

    import numpy as np

    mean, variance, third = (each[:, column] for each in (drawn.mean, drawn.variance, drawn.third))
    return spread_of(
        [np.maximum(shifted_gamma(mean, variance, third, NormalDist().inv_cdf(share)), 0.0) for share in _SHARES]
    )


def _unit_of(rates: Rates) -> Rates:
    """The prices without what depends on the load: seconds of a call and GPUs of a token are 1."""
    return replace(
        rates,
        call_s=None if rates.call_s is None else 1.0,
        work_gpus=None if rates.work_gpus is None else 1.0,
        why_latency="",
        refused=None,
        sized=None,
    )


def _scaled(costs: Costs, rates: Rates) -> Costs:
    running, latency = costs.memory_running, costs.latency
    return replace(
        costs,
        memory_running=running if running is None or rates.call_s is None else running * rates.call_s,
        latency=latency if latency is None or rates.work_gpus is None else latency * rates.work_gpus,
    )
