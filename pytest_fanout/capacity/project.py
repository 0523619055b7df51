"""From the samples of a class to tokens a second, tasks in flight, GPUs and money; anchor beside run.

tasks/s = dau x tasks per user and day / 86,400 x peak factor
calls/s = tasks/s x calls per task                tokens/s = tasks/s x tokens per task
tasks in flight = tasks/s x seconds per task      GPUs = tasks/s x (new input / P + output / D) / utilisation
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_fanout.capacity.demand import peak_demand
from pytest_fanout.capacity.littles_law import in_flight, in_flight_quantile
from pytest_fanout.capacity.means import UNKNOWN_SHARE, TaskMeans, Trials, check_weights, task_means
from pytest_fanout.capacity.profiles import Profile, find_profile
from pytest_fanout.records import Demand, Fleet, Load, Prices, Projection


def project(
    agent: str,
    base: Trials | None,
    run: Trials,
    fleet: Fleet,
    profiles: Sequence[Profile] = (),
    weights: Mapping[str, float] | None = None,
) -> Projection:
    """What the class asks of the fleet at peak, by its anchor and by its run.

    Args:
        base: samples by task of the anchor, one mapping a trial; None or empty: there is no anchor.
        run: the same of the run. Without a task every figure is None.
        profiles: GPU profiles beside the built-in ones.
        weights: share of each task in production, relative; 1 where it is not given.

    Raises:
        ConfigError: the fleet names an unknown profile; a profile or weights that cannot be used.
        IntegrityError: samples that no run can have made.
    """
    profile = find_profile(fleet, profiles)
    weights = weights or {}
    base = {task: trials for task, trials in (base or {}).items() if trials}
    run = {task: trials for task, trials in run.items() if trials}
    for side in (base, run):
        check_weights(agent, weights, set(side))
    demand = peak_demand(agent, fleet)

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
    ratio_calls, ratio_gpu_time = _ratios(same_base, same_run, profile)

    iod = fleet.demand[agent].iod if agent in fleet.demand else 1.0
    load_base = _load(means_base, demand, iod, profile, fleet) if base else None
    load_run = _load(means_run, demand, iod, profile, fleet)
    return Projection(
        agent=agent,
        demand=demand,
        base=load_base,
        run=load_run,
        profile=profile.title,
        gpus_base=whole_gpus(load_base.gpus, profile) if load_base else None,
        gpus_run=whole_gpus(load_run.gpus, profile),
        assumptions=(
            *_comparison(base, run, shared, ratio_calls, ratio_gpu_time),
            *_of_demand(agent, fleet, demand),
            *_of_tokens(means_base, means_run, cache_known),
            *_of_model(fleet, profile, weights, means_run),
        ),
        ratio_calls=ratio_calls,
        ratio_gpu_time=ratio_gpu_time,
        tasks_shared=len(shared),
    )


def whole_gpus(gpus: float | None, profile: Profile) -> int | None:
    """Rounded up to whole replicas of the profile."""
    if gpus is None:
        return None
    size = profile.gpus_per_replica
    # A billionth less: 21.000000000000004 is 21 that floating point has touched.
    return size * math.ceil(gpus / size * (1 - 1e-9))


def _means_of(tasks: set[str], agent: str, side: Trials, weights: Mapping[str, float], cache_known: bool) -> TaskMeans:
    return task_means(agent, {task: side[task] for task in tasks}, weights, use_cache=cache_known)


def _says_cached(means: TaskMeans) -> bool:
    return means.trials_without_cache_count <= UNKNOWN_SHARE * means.trials


def _ratios(base: TaskMeans, run: TaskMeans, profile: Profile) -> tuple[float | None, float | None]:
    def quotient(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None or before == 0 else after / before

    return quotient(base.calls, run.calls), quotient(_gpu_seconds(base, profile), _gpu_seconds(run, profile))


def _gpu_seconds(means: TaskMeans, profile: Profile) -> float | None:
    if means.new_input is None or means.output is None:
        return None
    return profile.gpu_seconds(means.new_input, means.output)


def _load(means: TaskMeans, demand: Demand, iod: float, profile: Profile, fleet: Fleet) -> Load:
    rate = demand.tasks_per_second

    def per_s(per_task: float | None) -> float | None:
        return None if per_task is None else rate * per_task

    seconds = _gpu_seconds(means, profile)
    gpus = None if seconds is None else rate * seconds / fleet.target_utilisation
    whole = whole_gpus(gpus, profile)
    hourly = fleet.prices.usd_per_gpu_hour
    flying = None if means.residency_s is None else in_flight(rate, means.residency_s)
    return Load(
        calls_per_s=per_s(means.calls),
        new_input_per_s=per_s(means.new_input),
        cached_input_per_s=per_s(means.cached_input),
        output_per_s=per_s(means.output),
        tokens_per_s=per_s(means.tokens),
        tasks_in_flight=flying,
        gpus=gpus,
        tasks_in_flight_p99=None if flying is None else in_flight_quantile(flying, 0.99, iod),
        usd_per_1000_tasks=_usd_per_1000(means, fleet.prices),
        usd_per_day=None if whole is None or hourly is None else whole * hourly * 24,
    )


def _usd_per_1000(means: TaskMeans, prices: Prices) -> float | None:
    pairs = (
        (means.new_input, prices.usd_per_million_new_input_tokens),
        (means.cached_input, prices.usd_per_million_cached_input_tokens),
        (means.output, prices.usd_per_million_output_tokens),
    )
    parts = [tokens * price / 1000 for tokens, price in pairs if tokens is not None and price is not None]
    return math.fsum(parts) if len(parts) == len(pairs) else None


# --- what the numbers stand on -------------------------------------------------------------------------------------


def _comparison(
    base: Trials, run: Trials, shared: set[str], calls: float | None, gpu_time: float | None
) -> tuple[str, ...]:
    if not run:
        return ("No task was measured: nothing can be projected.",)
    if not base:
        return ("There is no anchor to compare with.",)
    if not shared:
        return ("Anchor and run share no task: no ratio.",)
    tasks = f"the {len(shared)} tasks" if len(shared) > 1 else "the 1 task"
    shown = [f"{name} x{ratio:.2f}" for name, ratio in (("calls", calls), ("GPU time", gpu_time)) if ratio is not None]
    lines = [f"Run over anchor, on {tasks} that both have: {', '.join(shown)}."] if shown else []
    added, removed = len(set(run) - shared), len(set(base) - shared)
    if added or removed:
        lines.append(f"The task sets differ ({added} added, {removed} removed): absolute figures compare unlike sets.")
    return tuple(lines)


def _of_demand(agent: str, fleet: Fleet, demand: Demand) -> tuple[str, ...]:
    if demand.per_1000:
        others = ", ".join(sorted(fleet.demand))
        named = f" (it has: {others})" if others else ""
        return (f"No demand for {agent} in {fleet.source}{named}: figures are per 1,000 tasks an hour, evenly spread.",)
    figures = fleet.demand[agent]
    peak = f"Peak factor {figures.peak_factor:g}"
    if f"demand.{agent}.peak_factor" in fleet.defaulted:
        peak += " is the default"
    spread = f"arrivals with index of dispersion {figures.iod:g}"
    if f"demand.{agent}.iod" in fleet.defaulted:
        spread = "arrivals taken as Poisson (default; real traffic is burstier)"
    return (f"{peak}; {spread}.",)


def _of_tokens(base: TaskMeans, run: TaskMeans, cache_known: bool) -> tuple[str, ...]:
    lines = []
    for side, means in (("anchor", base), ("run", run)):
        missing = means.trials_without_tokens
        if not missing:
            continue
        share = f"Tokens are not known for {missing} of {means.trials} trials of the {side}"
        if means.tokens is None:
            lines.append(f"{share}: no tokens per second and no GPUs.")
        else:
            lines.append(f"{share}: the other trials of their tasks stand in.")
    if not cache_known:
        lines.append("Cached tokens are not reported: all input counts as new, on both sides.")
    elif (run.cached_input or 0) > 0:
        lines.append("Cache hits are those of the eval set; production hits less often, and then needs more GPUs.")
    return tuple(lines)


def _of_model(fleet: Fleet, profile: Profile, weights: Mapping[str, float], run: TaskMeans) -> tuple[str, ...]:
    rho = f"GPUs are planned at {fleet.target_utilisation:.0%} utilisation"
    if "fleet.target_utilisation" in fleet.defaulted:
        rho += " (default)"
    which = f"GPU profile {profile.name}"
    if "fleet.profile" in fleet.defaulted:
        which += " is the default"
    traffic = "weighted by the eval set" if weights else "every task counts the same"
    tasks = f"{run.tasks} task" + ("" if run.tasks == 1 else "s")
    return (
        f"{which}: {profile.source}.",
        "Compute only: the memory of long contexts and the reading of cached ones are not in it.",
        f"{rho}; no spare, no retries, no failover.",
        f"An eval set of {tasks} is not traffic ({traffic}).",
        "Durations are not known: no tasks in flight."
        if run.residency_s is None
        else "Tasks in flight use recorded durations, of an idle server: under load they are more.",
    )
