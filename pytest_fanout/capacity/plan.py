"""All classes of fleet.toml on one fleet, anchors beside run: percentiles with intervals, cliffs, quotas, money.

Every class that has demand takes part. Percentiles are over windows at peak (windows.py); their intervals say what
another eval set of the same size could give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_fanout.capacity.cliffs import cliffs_of, cliffs_on
from pytest_fanout.capacity.constraints import Costs, Rates, Stream, costs_of, mean_costs, rates_of, size, total
from pytest_fanout.capacity.demand import SECONDS_PER_DAY, peak_demand
from pytest_fanout.capacity.flight import boundaries, stretch_of
from pytest_fanout.capacity.means import TaskMeans, with_cached_share
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, usd_per_1000, whole_gpus
from pytest_fanout.capacity.quotas import Asked, uses_of
from pytest_fanout.capacity.reservation import best_reservation, burst_share, hours_of, reservation_cost
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.capacity.signals import scaling_signals
from pytest_fanout.capacity.windows import WINDOWS, Drawn, Rows, draw, rows_of, shifted_gamma, summed, window_of
from pytest_fanout.records import (
    Calibration,
    Caps,
    Cliffs,
    Fleet,
    FleetPlan,
    Growth,
    Load,
    Projection,
    QuotaUse,
    Reservation,
    Side,
    Spread,
    WorstCase,
)

if TYPE_CHECKING:
    from pytest_fanout.capacity.windows import Array

#: Quantities of a task, in the order of their columns; the last five are GPU-seconds.
_COUNTS = ("calls", "new_input", "cached_input", "output")
_KINDS = ("compute", "compute_uncached", "memory_running", "memory_idle", "latency")
_GPU_COLUMNS = slice(len(_COUNTS), None)
_SHARES = (0.50, 0.95, 0.99)
#: An index of dispersion that real minutes reach: 3 to 150 in public traces.
BURSTY = 10.0
#: Eval sets of the bootstrap that each hour of a day is worked out on.
_DAYS = 100
DAYS_PER_MONTH = 30


@dataclass(frozen=True, slots=True)
class GpuWindows:
    """GPUs of one side: in each window, and the conditional 50th, 95th and 99th percentile given its eval tasks."""

    drawn: Array
    given: tuple[Array, Array, Array]
    mean: Array  # given its eval tasks

    def spread(self) -> Spread:
        return _spread(self.drawn, self.given)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of the fleet, and the windows of GPUs (anchor or None, run) of each class and of the whole."""

    fleet: FleetPlan | None
    classes: Mapping[str, tuple[GpuWindows | None, GpuWindows]]
    whole: tuple[GpuWindows | None, GpuWindows] | None = None


def plan_fleet(
    sides: Sequence[Sides],
    fleet: Fleet,
    profile: Profile,
    calibration: Calibration | None = None,
    caps: Mapping[str, Caps] | None = None,
    *,
    windows: int = WINDOWS,
) -> Planned:
    """Price every class that has demand, together and each alone.

    Args:
        caps: of each class, for the worst case.

    Returns:
        Without demand, or where the tokens of a class are not known, no plan; the classes that are known still stand.
    """
    known = [each for each in sides if each.agent in fleet.demand and each.run.tokens is not None]
    if not known:
        return Planned(None, {})
    has_base = all(each.base.tokens is not None for each in known)
    run = _Fleet([_stream(each.agent, each.run, fleet) for each in known], fleet, profile, calibration)
    base = None
    if has_base:
        base = _Fleet([_stream(each.agent, each.base, fleet) for each in known], fleet, profile, calibration)
    both = [side for side in (base, run) if side is not None]
    drawn = {
        each.agent: draw(
            each.agent,
            [side.rows(each.agent) for side in both],
            peak_demand(each.agent, fleet).tasks_per_second,
            fleet.demand[each.agent].iod,
            windows=windows,
        )
        for each in known
    }
    classes: dict[str, tuple[GpuWindows | None, GpuWindows]] = {}
    if fleet.serves != "provider":
        for agent, found in drawn.items():
            of_run = run.gpus(found[-1])
            if of_run is not None:
                classes[agent] = (base.gpus(found[0]) if base else None, of_run)
    if len(known) < len({each.agent for each in sides}):
        return Planned(None, classes)
    made = [side.side([found[index] for found in drawn.values()]) for index, side in enumerate(both)]
    side_run, of_run = made[-1]
    side_base, of_base = made[0] if base else (None, None)
    side_run = replace(side_run, gpus_p95_bursty=None if of_run is None else run.bursty(windows))
    growth = growth_of(of_base, of_run) if of_base is not None and of_run is not None else None
    worst = tuple(_worst_case(each, run, (caps or {}).get(each.agent)) for each in known)
    signals = scaling_signals(calibration, fleet.slo, fleet.memory.sequences_per_replica_max) if calibration else ()
    notes = tuple(_notes(run, side_run))
    plan = FleetPlan(tuple(sorted(drawn)), side_base, side_run, growth, worst, notes, signals)
    return Planned(plan, classes, None if of_run is None else (of_base, of_run))


def with_windows(projection: Projection, planned: Planned) -> Projection:
    """The projection with the windows of its class, where there are any."""
    if projection.agent not in planned.classes:
        return projection
    base, run = planned.classes[projection.agent]
    return replace(
        projection,
        gpus_spread_base=base.spread() if base else None,
        gpus_spread_run=run.spread(),
        gpus_growth=growth_of(base, run) if base else None,
    )


def growth_of(base: GpuWindows, run: GpuWindows) -> Growth:
    """How much the 95th percentile of GPUs moves, each pair of eval sets compared with itself."""
    import numpy as np

    delta = run.given[1] - base.given[1]
    low, middle, high = (float(value) for value in np.quantile(delta, (0.05, 0.5, 0.95)))
    if not np.all(base.given[1] > 0):
        return Growth(middle, (low, high), None, None)
    least, usual, most = (float(value) for value in np.quantile(run.given[1] / base.given[1], (0.05, 0.5, 0.95)))
    return Growth(middle, (low, high), usual, (least, most))


def _stream(agent: str, means: TaskMeans, fleet: Fleet) -> Stream:
    return Stream(agent, peak_demand(agent, fleet).tasks_per_second, means, fleet.demand[agent].iod)


class _Fleet:
    """One side of the plan: its streams, and how their tasks are priced."""

    def __init__(
        self, streams: Sequence[Stream], fleet: Fleet, profile: Profile, calibration: Calibration | None
    ) -> None:
        self.streams = streams
        self.fleet = fleet
        self.profile = profile
        self.calibration = calibration
        self.rates = rates_of(streams, fleet, profile, calibration, fleet.target_utilisation)
        self.unknown = self._unknown()

    def _unknown(self) -> frozenset[str]:
        costs = [mean_costs(stream.means, self.rates) for stream in self.streams]
        return frozenset(kind for kind in _KINDS if any(c is None or getattr(c, kind) is None for c in costs))

    def rows(self, agent: str) -> Rows:
        stream = next(stream for stream in self.streams if stream.agent == agent)
        found = {}
        for row in stream.means.rows:
            costs = costs_of(row, self.rates)
            counts = tuple(getattr(row, name) or 0.0 for name in _COUNTS)
            kinds = tuple((getattr(costs, kind) or 0.0) if costs else 0.0 for kind in _KINDS)
            found[row.task] = (row.weight, counts + kinds)
        return rows_of(found)

    def gpus(self, drawn: Drawn) -> GpuWindows | None:
        """None where there is no number: saturated, outside the calibration, or too long a context."""
        if self.rates.refused is not None:
            return None
        from statistics import NormalDist

        mean, variance, third = (each[:, _GPU_COLUMNS] for each in (drawn.mean, drawn.variance, drawn.third))
        given = [self._combined(shifted_gamma(mean, variance, third, NormalDist().inv_cdf(share))) for share in _SHARES]
        of_windows = self._combined(drawn.rate[:, _GPU_COLUMNS])
        return GpuWindows(of_windows, (given[0], given[1], given[2]), self._combined(mean))

    def _combined(self, columns: Array) -> Array:
        """GPUs of windows, from their GPU columns: the largest constraint, contexts kept where that takes fewer."""
        import numpy as np

        by_name = {kind: columns[:, index] for index, kind in enumerate(_KINDS)}
        parts = {kind: values for kind, values in by_name.items() if kind not in self.unknown}
        nothing = np.zeros(len(columns))
        running, idle = (parts.get(kind, nothing) for kind in ("memory_running", "memory_idle"))
        latency = parts.get("latency", nothing)
        kept = np.maximum(np.maximum(by_name["compute"], running + idle), latency)
        if "memory_running" not in parts or "memory_idle" not in parts:
            return np.maximum(kept, 0.0)
        dropped = np.maximum(np.maximum(by_name["compute_uncached"], running), latency)
        return np.maximum(np.minimum(kept, dropped), 0.0)

    def side(self, drawn: Sequence[Drawn]) -> tuple[Side, GpuWindows | None]:
        """The side, and its windows of GPUs."""
        fleet = self.fleet
        whole = summed(drawn)
        gpus = self.gpus(whole) if fleet.serves != "provider" else None
        spread = gpus.spread() if gpus is not None else None
        counts = [_spread_of(whole, index) for index in range(len(_COUNTS))]
        load = self._load()
        made = Side(
            gpus=whole_gpus(load.gpus, self.profile, fleet.spare_replicas),
            load=load,
            gpus_spread=spread,
            calls_per_s=counts[0],
            new_input_per_s=counts[1],
            cached_input_per_s=counts[2],
            output_per_s=counts[3],
            quotas=self._quotas(whole, load),
            usd_per_month=None if load.usd_per_day is None else load.usd_per_day * DAYS_PER_MONTH,
            cliffs=self._cliffs(),
        )
        if gpus is None:
            return made, None
        made = replace(
            made,
            reservation=self._reservation(drawn),
            eval_share=_eval_share(gpus),
            gpus_worse_cache=self._worse_cache(),
        )
        return made, gpus

    def _costs(self, streams: Sequence[Stream], rates: Rates) -> Costs | None:
        parts = [(stream.rate, mean_costs(stream.means, rates)) for stream in streams]
        known = [(rate, costs) for rate, costs in parts if costs is not None]
        return total(known) if len(known) == len(parts) else None

    def _load(self) -> Load:
        """The whole fleet at the mean of the peak hour."""
        fleet, provider = self.fleet, self.fleet.serves == "provider"
        sizing = size(None if provider else self._costs(self.streams, self.rates), self.rates)
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

    def _quotas(self, whole: Drawn, load: Load) -> tuple[QuotaUse, ...]:
        quota = self.fleet.quota
        if quota is None:
            return ()
        model = next((place for place in load.boundaries if place.name == "model"), None)
        columns = [whole.rate[:, index] for index in range(len(_COUNTS))]
        tokens = math.fsum(
            stream.rate / self._peak(stream) * SECONDS_PER_DAY * (stream.means.tokens or 0.0) for stream in self.streams
        )
        iod = max(stream.iod for stream in self.streams)
        in_flight = model.in_flight_p99 if model else None
        return uses_of(quota, Asked(columns[0], columns[1], columns[2], columns[3], tokens, in_flight, iod))

    def _cliffs(self) -> Cliffs | None:
        fleet = self.fleet
        if fleet.serves == "provider" or fleet.gpus_reserved is None or not cliffs_of(fleet):
            return None

        def gpus_of(streams: Sequence[Stream]) -> float | None:
            rates = rates_of(streams, fleet, self.profile, self.calibration, RHO_MAX)
            return size(self._costs(streams, rates), rates).gpus

        return cliffs_on(self.streams, fleet, float(fleet.gpus_reserved + fleet.gpus_burst), gpus_of)

    def _reservation(self, drawn: Sequence[Drawn]) -> Reservation | None:
        """On hours that each have their share of the peak rate, over the eval sets of the windows."""
        demand: list[float] = []
        shares = [
            hours_of(self.fleet.demand[stream.agent].peak_factor, self.fleet.demand[stream.agent].hourly_shares)
            for stream in self.streams
        ]
        for hour in zip(*shares, strict=True):
            columns = sum(each.mean[:_DAYS, _GPU_COLUMNS] * share for each, share in zip(drawn, hour, strict=True))
            demand += [float(value) for value in self._combined(columns)]
        if not any(demand):
            return None
        price = self.fleet.burst_price_ratio
        best, least, peak = best_reservation(demand, price), min(demand), sorted(demand)[int(0.99 * len(demand))]
        cost = reservation_cost(best, demand, price)
        return Reservation(
            gpus_newsvendor=whole_gpus(best, self.profile) or 0,
            gpus_minimum=whole_gpus(least, self.profile) or 0,
            cost_newsvendor=cost,
            cost_minimum=reservation_cost(least, demand, price),
            cost_peak=reservation_cost(peak, demand, price),
            blended_index=cost / (math.fsum(demand) / len(demand)),
            burst_share=burst_share(best, demand),
        )

    def bursty(self, windows: int) -> float | None:
        """The 95th percentile of GPUs where minutes are as uneven as in public traces."""
        if all(stream.iod >= BURSTY for stream in self.streams):
            return None
        import numpy as np

        drawn = [
            draw(stream.agent, [self.rows(stream.agent)], stream.rate, max(BURSTY, stream.iod), windows=windows)[0]
            for stream in self.streams
        ]
        return float(np.quantile(self._combined(summed(drawn).rate[:, _GPU_COLUMNS]), 0.95))

    def _worse_cache(self) -> float | None:
        """GPUs where so many points less of the input are cached; None where nothing is."""
        streams = []
        for stream in self.streams:
            given = (stream.means.new_input or 0.0) + (stream.means.cached_input or 0.0)
            share = (stream.means.cached_input or 0.0) / given if given else 0.0
            left = max(0.0, share - self.fleet.cache_loss_points / 100)
            streams.append(replace(stream, means=with_cached_share(stream.means, left)))
        if all(not stream.means.cached_input for stream in self.streams):
            return None
        rates = rates_of(streams, self.fleet, self.profile, self.calibration, self.fleet.target_utilisation)
        return size(self._costs(streams, rates), rates).gpus


def _spread(drawn: Array, given: Sequence[Array]) -> Spread:
    import numpy as np

    p50, p95, p99 = (float(value) for value in np.quantile(drawn, _SHARES))
    ends = [tuple(float(value) for value in np.quantile(each, (0.05, 0.95))) for each in given]
    return Spread(p50, p95, p99, *((low, high) for low, high in ends))


def _spread_of(drawn: Drawn, column: int) -> Spread:
    from statistics import NormalDist

    import numpy as np

    mean, variance, third = (each[:, column] for each in (drawn.mean, drawn.variance, drawn.third))
    given = [np.maximum(shifted_gamma(mean, variance, third, NormalDist().inv_cdf(share)), 0.0) for share in _SHARES]
    return _spread(drawn.rate[:, column], given)


def _eval_share(gpus: GpuWindows) -> float | None:
    """How much of the variance another eval set would change; the rest is arrivals."""
    whole = float(gpus.drawn.var())
    return None if whole == 0 else min(1.0, float(gpus.mean.var()) / whole)


def _worst_case(sides: Sides, run: _Fleet, caps: Caps | None) -> WorstCase:
    tokens = caps.tokens if caps else None
    calls = caps.fanout if caps else None
    stream = next(stream for stream in run.streams if stream.agent == sides.agent)
    provider = run.fleet.serves == "provider"
    stretch = 1.0 if provider else stretch_of(stream.means, run.rates)
    places = boundaries([stream], [stretch], rho=0.0 if provider else run.fleet.target_utilisation)
    front = next((place for place in places if place.name == "front"), None)
    prices = run.fleet.prices
    dearest = max(
        (
            price
            for price in (prices.usd_per_million_new_input_tokens, prices.usd_per_million_output_tokens)
            if price is not None
        ),
        default=None,
    )
    in_flight = None if tokens is None or front is None else float(tokens) * front.in_flight_p99
    walls = [row.residency_s for row in stream.means.rows if row.weight > 0 and row.residency_s]
    shortest = min(walls, default=None)
    per_s = None if in_flight is None or shortest is None else in_flight / shortest
    return WorstCase(
        sides.agent,
        tokens,
        calls,
        in_flight,
        None if tokens is None or dearest is None else tokens * dearest / 1e6,
        shortest,
        per_s,
        None if per_s is None or dearest is None else per_s * dearest / 1e6 * SECONDS_PER_DAY,
    )


def _notes(run: _Fleet, side: Side) -> list[str]:
    """What dominates the uncertainty, and what was left out."""
    notes = []
    longest = max(window_of(stream.rate) for stream in run.streams)
    if longest > 60:
        notes.append(f"Few tasks arrive at peak: windows are {longest:,.0f} s long, not 60.")
    if side.eval_share is not None:
        tasks = min(stream.means.tasks for stream in run.streams)
        if side.eval_share > 0.5:
            notes.append(
                f"{100 * side.eval_share:.0f} % of the variance of GPUs is that of {tasks} eval tasks, not of traffic: "
                "add eval tasks before you buy GPUs."
            )
        else:
            notes.append(
                f"{100 - 100 * side.eval_share:.0f} % of the variance of GPUs is that of arrivals, the rest the eval "
                "set's."
            )
    other = side.load.gpus_other
    if other is not None and side.load.gpus:
        far = max(other, side.load.gpus) / min(other, side.load.gpus)
        if far > 1.1:
            notes.append(f"Two fits of the same published rows are x{far:.2f} apart: calibrate to know which holds.")
    fleet = run.fleet
    if fleet.serves != "provider" and fleet.gpus_reserved is None and cliffs_of(fleet):
        notes.append("Cliffs are not tried: [fleet] gpus_reserved says what they are tried on.")
    return notes
