"""From the samples of a class to tokens a second, tasks in flight, GPUs and money; anchor beside run.

tasks/s = dau x tasks per user and day / 86,400 x peak factor
calls/s = tasks/s x calls per task                tokens/s = tasks/s x tokens per task
tasks in flight = tasks/s x seconds per task      GPUs = the largest of compute, memory of contexts and latency
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.assumptions import of_demand, of_model, of_tokens
from pytest_fanout.capacity.constraints import Rates, Stream, mean_costs, rates_of, size, total
from pytest_fanout.capacity.demand import SECONDS_PER_DAY, peak_demand
from pytest_fanout.capacity.figures import band, times
from pytest_fanout.capacity.flight import boundaries, stretch_of
from pytest_fanout.capacity.means import (
    UNKNOWN_SHARE,
    TaskMeans,
    Trials,
    check_weights,
    task_means,
    with_cached_share,
)
from pytest_fanout.capacity.profiles import Profile, calibrated, find_profile
from pytest_fanout.records import Calibration, Demand, Fleet, Load, Prices, Projection

NO_ANCHOR = "There is no anchor to compare with."


def project(
    agent: str,
    base: Trials | None,
    run: Trials,
    fleet: Fleet,
    profiles: Sequence[Profile] = (),
    weights: Mapping[str, float] | None = None,
    calibration: Calibration | None = None,
) -> Projection:
    """What the class asks of the fleet at peak, by its anchor and by its run.

    Args:
        base: samples by task of the anchor, one mapping a trial; None or empty: there is no anchor.
        run: the same of the run. Without a task every figure is None.
        profiles: GPU profiles beside the built-in ones.
        weights: share of each task in production, relative; 1 where it is not given.
        calibration: measurements of the user's own, in place of a profile.

    Raises:
        ConfigError: the fleet names an unknown profile; a profile or weights that cannot be used.
        IntegrityError: samples that no run can have made.
    """
    sides = sides_of(agent, base, run, fleet, weights)
    profile = profile_of(fleet, profiles, calibration)
    return project_sides(sides, fleet, profile, weights or {}, calibration)


@dataclass(frozen=True, slots=True)
class Sides:
    """One class by its anchor and by its run, ready to be priced. ``same_*``: only the tasks that both have."""

    agent: str
    base: TaskMeans
    run: TaskMeans
    same_base: TaskMeans
    same_run: TaskMeans
    shared: int
    cache_known: bool


def sides_of(
    agent: str, base: Trials | None, run: Trials, fleet: Fleet, weights: Mapping[str, float] | None = None
) -> Sides:
    """The means of both sides, with the cache that fleet.toml allows.

    Raises:
        ConfigError, IntegrityError: as ``project``.
    """
    weights = weights or {}
    base = {task: trials for task, trials in (base or {}).items() if trials}
    run = {task: trials for task, trials in run.items() if trials}
    for side in (base, run):
        check_weights(agent, weights, set(side))
    means_base, means_run = (task_means(agent, side, weights) for side in (base, run))
    # Where one side does not say what was cached, comparing would show the gap in the count, not the agent.
    cache_known = _says_cached(means_base) and _says_cached(means_run)
    if not cache_known:
        means_base, means_run = (task_means(agent, side, weights, use_cache=False) for side in (base, run))
    shared = set(base) & set(run)
    same_base, same_run = (
        whole if len(side) == len(shared) else _means_of(shared, agent, side, weights, cache_known)
        for side, whole in ((base, means_base), (run, means_run))
    )
    most = fleet.cached_input_share_max
    base_made, run_made, same_base, same_run = (
        with_cached_share(means, most) for means in (means_base, means_run, same_base, same_run)
    )
    return Sides(agent, base_made, run_made, same_base, same_run, len(shared), cache_known)


def project_sides(
    sides: Sides, fleet: Fleet, profile: Profile, weights: Mapping[str, float], calibration: Calibration | None = None
) -> Projection:
    """The projection of one class."""
    agent = sides.agent
    demand = peak_demand(agent, fleet)
    ratios = _ratios(sides.same_base, sides.same_run, profile)
    load_base = load_of(sides.base, demand, fleet, profile, calibration) if sides.base.tasks else None
    load_run = load_of(sides.run, demand, fleet, profile, calibration)
    return Projection(
        agent=agent,
        demand=demand,
        base=load_base,
        run=load_run,
        profile=profile.title,
        gpus_base=whole_gpus(load_base.gpus, profile, fleet.spare_replicas) if load_base else None,
        gpus_run=whole_gpus(load_run.gpus, profile, fleet.spare_replicas),
        assumptions=(
            *_comparison(sides, ratios),
            *of_demand(agent, fleet, demand),
            *of_tokens(sides.base, sides.run, fleet, cache_known=sides.cache_known),
            *of_model(fleet, profile, weights, sides.run, load_run),
        ),
        ratio_calls=ratios.calls,
        ratio_gpu_time=ratios.gpu_time,
        tasks_shared=sides.shared,
        ratio_gpu_time_other=ratios.gpu_time_other,
        serves=fleet.serves,
    )


def profile_of(fleet: Fleet, profiles: Sequence[Profile], calibration: Calibration | None) -> Profile:
    """The profile that the fleet is priced with: that of its calibration, or the one that it names."""
    return find_profile(fleet, profiles) if calibration is None else calibrated(calibration)


def whole_gpus(gpus: float | None, profile: Profile, spare_replicas: int = 0) -> int | None:
    """Rounded up to whole replicas of the profile, with the spare ones where there is any load."""
    if gpus is None:
        return None
    size = profile.gpus_per_replica
    # A billionth less: 21.000000000000004 is 21 that floating point has touched.
    replicas = math.ceil(gpus / size * (1 - 1e-9))
    return size * (replicas + spare_replicas if replicas else 0)


def _means_of(tasks: set[str], agent: str, side: Trials, weights: Mapping[str, float], cache_known: bool) -> TaskMeans:
    return task_means(agent, {task: side[task] for task in tasks}, weights, use_cache=cache_known)


def _says_cached(means: TaskMeans) -> bool:
    return means.trials_without_cache_count <= UNKNOWN_SHARE * means.trials


@dataclass(frozen=True, slots=True)
class _Ratios:
    calls: float | None = None
    gpu_time: float | None = None
    gpu_time_other: float | None = None


def _ratios(base: TaskMeans, run: TaskMeans, profile: Profile) -> _Ratios:
    def quotient(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None or before == 0 else after / before

    # memory and latency are the fleet's, and play no part in a ratio of two agents
    rates = Rates(1.0, profile, None, 0.0, 1.0, None)
    before, after = mean_costs(base, rates), mean_costs(run, rates)
    if before is None or after is None:
        return _Ratios(quotient(base.calls, run.calls))
    other = quotient(before.compute_other, after.compute_other)
    return _Ratios(quotient(base.calls, run.calls), quotient(before.compute, after.compute), other)


def load_of(
    means: TaskMeans, demand: Demand, fleet: Fleet, profile: Profile, calibration: Calibration | None = None
) -> Load:
    """What tasks with these means ask for at peak."""
    rate, iod = demand.tasks_per_second, 1.0
    if demand.agent in fleet.demand:
        iod = fleet.demand[demand.agent].iod

    def per_s(per_task: float | None) -> float | None:
        return None if per_task is None else rate * per_task

    stream = Stream(demand.agent, rate, means, iod)
    provider = fleet.serves == "provider"
    rates = rates_of([stream], fleet, profile, calibration, fleet.target_utilisation)
    costs = None if provider else mean_costs(means, rates)
    sizing = size(None if costs is None else total([(rate, costs)]), rates)
    # a provider's times are as they were met: its load is not ours
    stretch = 1.0 if provider else stretch_of(means, rates)
    places = boundaries([stream], [stretch], rho=0.0 if provider else fleet.target_utilisation)
    front = next((place for place in places if place.name == "front"), None)
    usd = usd_per_1000(means, fleet.prices)
    day = None
    if provider:
        if usd is not None and not demand.per_1000:
            day = usd / 1_000 * rate * SECONDS_PER_DAY / fleet.demand[demand.agent].peak_factor
    else:
        whole, hourly = whole_gpus(sizing.gpus, profile, fleet.spare_replicas), fleet.prices.usd_per_gpu_hour
        day = None if whole is None or hourly is None else whole * hourly * 24
    return Load(
        calls_per_s=per_s(means.calls),
        new_input_per_s=per_s(means.new_input),
        cached_input_per_s=per_s(means.cached_input),
        output_per_s=per_s(means.output),
        tokens_per_s=per_s(means.tokens),
        tasks_in_flight=front.in_flight if front else None,
        gpus=sizing.gpus,
        tasks_in_flight_p99=front.in_flight_p99 if front else None,
        usd_per_1000_tasks=usd,
        usd_per_day=day,
        constraints=sizing.constraints,
        binding=sizing.binding,
        gpus_other=sizing.gpus_other,
        kv_gb=sizing.kv_gb,
        boundaries=places,
        keeps_prefixes=sizing.keeps_prefixes,
        refused=sizing.refused if costs is not None else None,
    )


def usd_per_1000(means: TaskMeans, prices: Prices) -> float | None:
    """Dollars per 1,000 tasks by token prices; None where a price or the tokens are not known."""
    write = 0.0
    new = means.new_input
    if prices.usd_per_million_cache_write_tokens is not None and new is not None and means.cache_write is not None:
        new -= means.cache_write
        write = means.cache_write * prices.usd_per_million_cache_write_tokens / 1_000
    pairs = (
        (new, prices.usd_per_million_new_input_tokens),
        (means.cached_input, prices.usd_per_million_cached_input_tokens),
        (means.output, prices.usd_per_million_output_tokens),
    )
    parts = [tokens * price / 1000 for tokens, price in pairs if tokens is not None and price is not None]
    return math.fsum([*parts, write]) if len(parts) == len(pairs) else None


def _comparison(sides: Sides, ratios: _Ratios) -> tuple[str, ...]:
    if not sides.run.tasks:
        return ("No task was measured: nothing can be projected.",)
    if not sides.base.tasks:
        return (NO_ANCHOR,)
    if not sides.shared:
        return ("Anchor and run share no task: no ratio.",)
    tasks = f"the {sides.shared} tasks" if sides.shared > 1 else "the 1 task"
    shown = [f"calls x{times(ratios.calls)}"] if ratios.calls is not None else []
    if ratios.gpu_time is not None:
        shown.append(f"GPU time x{band(ratios.gpu_time, ratios.gpu_time_other)}")
    lines = [f"Run over anchor, on {tasks} that both have: {', '.join(shown)}."] if shown else []
    added, removed = sides.run.tasks - sides.shared, sides.base.tasks - sides.shared
    if added or removed:
        lines.append(f"The task sets differ ({added} added, {removed} removed): absolute figures compare unlike sets.")
    return tuple(lines)
