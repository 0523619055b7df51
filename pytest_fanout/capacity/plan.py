"""All classes of fleet.toml on one fleet, anchors beside run: percentiles with intervals, cliffs, quotas, money.

Every class that has demand takes part. Percentiles are over windows at peak (side.py); their intervals say what
another eval set of the same size could give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_fanout.capacity.cliffs import cliffs_of, cliffs_on
from pytest_fanout.capacity.constraints import Costs, Rates, Stream, mean_costs, rates_of, size, total
from pytest_fanout.capacity.demand import SECONDS_PER_DAY
from pytest_fanout.capacity.flight import boundaries, stretch_of
from pytest_fanout.capacity.means import with_cached_share
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, whole_gpus
from pytest_fanout.capacity.reservation import best_reservation, burst_share, hours_of, reservation_cost
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.capacity.side import (
    COUNTS,
    GPU_COLUMNS,
    GpuWindows,
    PricedSide,
    column_spread,
    spread_of,
    stream_of,
)
from pytest_fanout.capacity.signals import scaling_signals
from pytest_fanout.capacity.windows import WINDOWS, Drawn, summed, weigh, window_of
from pytest_fanout.records import (
    Calibration,
    Caps,
    Cliffs,
    Fleet,
    FleetPlan,
    Growth,
    Projection,
    Reservation,
    Side,
    WorstCase,
)

#: An index of dispersion that real minutes reach: 3 to 150 in public traces.
BURSTY = 10.0
#: Eval sets of the bootstrap that each hour of a day is worked out on.
_DAYS = 100
DAYS_PER_MONTH = 30


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
    run = PricedSide([stream_of(each.agent, each.run, fleet) for each in known], fleet, profile, calibration)
    base = None
    if has_base:
        base = PricedSide([stream_of(each.agent, each.base, fleet) for each in known], fleet, profile, calibration)
    both = [side for side in (base, run) if side is not None]
    drawn = {stream.agent: _drawn(both, stream, windows) for stream in run.streams}
    classes: dict[str, tuple[GpuWindows | None, GpuWindows]] = {}
    if fleet.serves != "provider":
        for agent, found in drawn.items():
            of_run = run.gpus(found[-1])
            if of_run is not None:
                classes[agent] = (base.gpus(found[0]) if base else None, of_run)
    if len(known) < len({each.agent for each in sides}):
        return Planned(None, classes)
    made = [_side(side, [found[index] for found in drawn.values()]) for index, side in enumerate(both)]
    side_run, of_run = made[-1]
    side_base, of_base = made[0] if base else (None, None)
    side_run = replace(side_run, gpus_p95_bursty=None if of_run is None else _bursty(run, windows))
    growth = growth_of(of_base, of_run) if of_base is not None and of_run is not None else None
    worst = tuple(_worst_case(each, run, (caps or {}).get(each.agent)) for each in known)
    signals = scaling_signals(calibration, fleet.slo, fleet.memory.sequences_per_replica_max) if calibration else ()
    notes = tuple(_notes(run, side_run))
    plan = FleetPlan(tuple(sorted(drawn)), side_base, side_run, growth, worst, notes, signals)
    return Planned(plan, classes, None if of_run is None else (of_base, of_run))


def _drawn(both: Sequence[PricedSide], stream: Stream, windows: int) -> tuple[Drawn, ...]:
    """The windows of one class on each side, with the same luck."""
    weighed = weigh(stream.agent, [side.rows(stream.agent) for side in both], windows=windows)
    return tuple(weighed.windows(index, stream.rate, stream.iod, side.scale()) for index, side in enumerate(both))


def with_windows(projection: Projection, planned: Planned, profile: Profile, fleet: Fleet) -> Projection:
    """The projection with the windows of its class, where there are any."""
    if projection.agent not in planned.classes:
        return projection
    base, run = (None if each is None else each.spread() for each in planned.classes[projection.agent])
    of_base, of_run = planned.classes[projection.agent]
    return replace(
        projection,
        gpus_spread_base=base,
        gpus_spread_run=run,
        gpus_for_p95_base=whole_gpus(base.p95, profile, fleet.spare_replicas) if base else None,
        gpus_for_p95_run=whole_gpus(run.p95, profile, fleet.spare_replicas) if run else None,
        gpus_growth=growth_of(of_base, of_run) if of_base else None,
    )


def growth_of(base: GpuWindows, run: GpuWindows) -> Growth:
    """How much the 95th percentile of GPUs moves: that of the estimates, and over pairs of equal eval sets."""
    import numpy as np

    before, after = (spread_of((side.given[1],) * 3).p95 for side in (base, run))

    def ends(values: object, estimate: float) -> tuple[float, float]:
        low, high = (float(value) for value in np.quantile(np.asarray(values), (0.05, 0.95)))
        # the difference of two medians is not always the median of differences
        return min(low, estimate), max(high, estimate)

    delta = after - before
    interval = ends(run.given[1] - base.given[1], delta)
    if not np.all(base.given[1] > 0):
        return Growth(delta, interval, None, None)
    return Growth(delta, interval, after / before, ends(run.given[1] / base.given[1], after / before))


def _side(priced: PricedSide, drawn: Sequence[Drawn]) -> tuple[Side, GpuWindows | None]:
    """The side, and its windows of GPUs."""
    fleet = priced.fleet
    whole = summed(drawn)
    gpus = priced.gpus(whole) if fleet.serves != "provider" else None
    spread = gpus.spread() if gpus is not None else None
    counts = [column_spread(whole, index) for index in range(len(COUNTS))]
    load = priced.load()
    made = Side(
        gpus=whole_gpus(load.gpus, priced.profile, fleet.spare_replicas),
        load=load,
        gpus_spread=spread,
        calls_per_s=counts[0],
        new_input_per_s=counts[1],
        cached_input_per_s=counts[2],
        output_per_s=counts[3],
        quotas=priced.quotas(whole, load),
        usd_per_month=None if load.usd_per_day is None else load.usd_per_day * DAYS_PER_MONTH,
        cliffs=_cliffs(priced),
    )
    if gpus is None or spread is None:
        return made, None
    made = replace(
        made,
        gpus_for_p95=whole_gpus(spread.p95, priced.profile, fleet.spare_replicas),
        reservation=_reservation(priced, drawn),
        eval_share=_eval_share(gpus),
        gpus_worse_cache=_worse_cache(priced),
    )
    return made, gpus


def _costs(streams: Sequence[Stream], rates: Rates) -> Costs | None:
    parts = [(stream.rate, mean_costs(stream.means, rates)) for stream in streams]
    known = [(rate, costs) for rate, costs in parts if costs is not None]
    return total(known) if len(known) == len(parts) else None


def _cliffs(priced: PricedSide) -> Cliffs | None:
    fleet = priced.fleet
    if fleet.serves == "provider" or fleet.gpus_reserved is None or not cliffs_of(fleet):
        return None

    def gpus_of(streams: Sequence[Stream]) -> float | None:
        rates = rates_of(streams, fleet, priced.profile, priced.calibration, RHO_MAX)
        return size(_costs(streams, rates), rates).gpus

    return cliffs_on(priced.streams, fleet, float(fleet.gpus_reserved + fleet.gpus_burst), gpus_of)


def _reservation(priced: PricedSide, drawn: Sequence[Drawn]) -> Reservation | None:
    """On hours that each have their share of the peak rate, over the eval sets of the windows."""
    demand: list[float] = []
    fleet = priced.fleet
    shares = [
        hours_of(fleet.demand[stream.agent].peak_factor, fleet.demand[stream.agent].hourly_shares)
        for stream in priced.streams
    ]
    for hour in zip(*shares, strict=True):
        columns = sum(each.mean[:_DAYS, GPU_COLUMNS] * share for each, share in zip(drawn, hour, strict=True))
        demand += [float(value) for value in priced.combined(columns)]
    if not any(demand):
        return None
    price = fleet.burst_price_ratio
    best, least, peak = best_reservation(demand, price), min(demand), sorted(demand)[int(0.99 * len(demand))]
    cost = reservation_cost(best, demand, price)
    return Reservation(
        gpus_newsvendor=whole_gpus(best, priced.profile) or 0,
        gpus_minimum=whole_gpus(least, priced.profile) or 0,
        cost_newsvendor=cost,
        cost_minimum=reservation_cost(least, demand, price),
        cost_peak=reservation_cost(peak, demand, price),
        blended_index=cost / (math.fsum(demand) / len(demand)),
        burst_share=burst_share(best, demand),
    )


def _bursty(priced: PricedSide, windows: int) -> float | None:
    """The 95th percentile of GPUs where minutes are as uneven as in public traces."""
    if all(stream.iod >= BURSTY for stream in priced.streams):
        return None
    import numpy as np

    scale = priced.scale()
    drawn = [
        weigh(stream.agent, [priced.rows(stream.agent)], windows=windows).windows(
            0, stream.rate, max(BURSTY, stream.iod), scale, drawn=False
        )
        for stream in priced.streams
    ]
    return float(np.median(priced.gpus_in(summed(drawn), 0.95)))


def _worse_cache(priced: PricedSide) -> float | None:
    """GPUs where so many points less of the input are cached; None where nothing is."""
    streams = []
    for stream in priced.streams:
        given = (stream.means.new_input or 0.0) + (stream.means.cached_input or 0.0)
        share = (stream.means.cached_input or 0.0) / given if given else 0.0
        left = max(0.0, share - priced.fleet.cache_loss_points / 100)
        streams.append(replace(stream, means=with_cached_share(stream.means, left)))
    if all(not stream.means.cached_input for stream in priced.streams):
        return None
    fleet = priced.fleet
    rates = rates_of(streams, fleet, priced.profile, priced.calibration, fleet.target_utilisation)
    return size(_costs(streams, rates), rates).gpus


def _eval_share(gpus: GpuWindows) -> float | None:
    """How much of the variance another eval set would change; the rest is arrivals."""
    whole = float(gpus.drawn.var())
    return None if whole == 0 else min(1.0, float(gpus.mean.var()) / whole)


def _worst_case(sides: Sides, run: PricedSide, caps: Caps | None) -> WorstCase:
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


def _notes(run: PricedSide, side: Side) -> list[str]:
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
