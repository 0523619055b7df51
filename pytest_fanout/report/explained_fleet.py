"""`--explain` of all classes together: percentiles, quotas, money, cliffs, reservation, signals and the worst case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_fanout.capacity.cliffs import stepped
from pytest_fanout.capacity.constraints import Stream
from pytest_fanout.capacity.demand import SECONDS_PER_DAY
from pytest_fanout.capacity.figures import exact
from pytest_fanout.capacity.means import with_cached_share
from pytest_fanout.capacity.plan import BURSTY, DAYS_PER_MONTH
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.capacity.side import stream_of
from pytest_fanout.records import Calibration, Cliffs, Fleet, FleetPlan, Growth, QuotaUse, Side, WorstCase
from pytest_fanout.report.explained_gpus import GpuQuestion, beside_context, drawn_lines, other_fit_lines, whole

_OF = " of all classes"


def of_fleet(
    plan: FleetPlan, sides: Sequence[Sides], fleet: Fleet, profile: Profile, calibration: Calibration | None = None
) -> list[str]:
    """Of all classes together, of the run."""
    run, provider = plan.run, fleet.serves == "provider"
    streams = [stream_of(each.agent, each.run, fleet) for each in sides if each.agent in fleet.demand]
    asked = GpuQuestion(streams, fleet, profile, calibration, fleet.target_utilisation, _OF)
    lines = asked.counts_lines() if provider else asked.rates_lines()
    for name, counts in (
        ("calls", run.calls_per_s), ("new input", run.new_input_per_s), ("cached input", run.cached_input_per_s),
        ("output", run.output_per_s),
    ):  # fmt: skip
        lines += drawn_lines(f" of {name}/s{_OF}", counts.p50, counts.p95, counts.p99, counts.p95_interval)
    if not provider:
        lines += asked.gpu_lines()
        if run.load.gpus is not None:
            lines.append(whole("GPUs at peak" + _OF, "mean", run.load.gpus, run.gpus, fleet, profile))
            lines += other_fit_lines(asked, run.load.gpus_other)
    spread = run.gpus_spread
    if spread is not None:
        lines += drawn_lines(_OF, spread.p50, spread.p95, spread.p99, spread.p95_interval)
        lines.append(whole("GPUs for p95" + _OF, "p95", spread.p95, run.gpus_for_p95, fleet, profile))
    if run.gpus_p95_bursty is not None:
        lines.append(f"p95{_OF}, uneven minutes = {exact(run.gpus_p95_bursty)} (drawn: index of dispersion {BURSTY:g})")
    if plan.base is not None and plan.growth is not None and spread is not None:
        lines += _growth(plan.base, spread.p95, plan.growth)
    lines += _worse_cache(run, streams, fleet, profile, calibration)
    lines += _money(run, streams, fleet)
    for use in run.quotas:
        lines += _quota(use, streams, fleet, run)
    if run.cliffs is not None:
        lines += _cliffs(run.cliffs, streams, fleet, profile, calibration)
    lines += _reservation(run, fleet, profile)
    lines += [f"{signal.name} to scale at = {exact(signal.value)} (the points of the calibration at the largest load "
              "that keeps the promises in 95 % of moments)" for signal in plan.scaling]  # fmt: skip
    for worst in plan.worst_case:
        lines += _of_worst(worst)
    return lines


def _growth(base: Side, p95: float, growth: Growth) -> list[str]:
    if base.gpus_spread is None:
        return []
    low, high = growth.delta_interval
    return [
        f"p95{_OF} of the base = {exact(base.gpus_spread.p95)} (drawn, with the luck of the run)",
        f"growth of p95 = run - base = {exact(p95)} - {exact(base.gpus_spread.p95)} = {exact(growth.delta)}",
        f"growth of p95 with 90 % of eval sets = {exact(low)} to {exact(high)} (drawn)",
    ]


def _worse_cache(
    run: Side, streams: Sequence[Stream], fleet: Fleet, profile: Profile, calibration: Calibration | None
) -> list[str]:
    if run.gpus_worse_cache is None:
        return []
    made, lines = [], []
    for stream in streams:
        new, cached = stream.means.new_input or 0.0, stream.means.cached_input or 0.0
        share = cached / (new + cached) if new + cached else 0.0
        left = max(0.0, share - fleet.cache_loss_points / 100)
        made.append(replace(stream, means=with_cached_share(stream.means, left)))
        if cached:
            given, points = f"({exact(new)} + {exact(cached)})", exact(fleet.cache_loss_points)
            after = made[-1].means
            lines += [
                f"cached input per task with a worse cache, {stream.agent} = (its share - points lost / 100, 0 at "
                f"least) x input = max(0, {exact(cached)} / {given} - {points} / 100) x {given} = "
                f"{exact(after.cached_input or 0.0)}",
                f"new input per task with a worse cache, {stream.agent} = input - cached input = {given} - "
                f"{exact(after.cached_input or 0.0)} = {exact(after.new_input or 0.0)}",
            ]
    asked = GpuQuestion(made, fleet, profile, calibration, fleet.target_utilisation, " with a worse cache")
    return lines + asked.rates_lines() + asked.gpu_lines(constants=False)


def _money(run: Side, streams: Sequence[Stream], fleet: Fleet) -> list[str]:
    day, month = run.load.usd_per_day, run.usd_per_month
    if day is None or month is None:
        return []
    if fleet.serves == "provider":
        first = f"USD a day{_OF} = {exact(day)} (the sum of the classes)"
    else:
        first = (
            f"USD a day{_OF} = GPUs at peak x USD an hour x 24 = {run.gpus:,} x "
            f"{exact(fleet.prices.usd_per_gpu_hour or 0.0)} x 24 = {exact(day)}"
        )
    numbers = f"{exact(day)} x {DAYS_PER_MONTH}"
    return [first, f"USD in {DAYS_PER_MONTH} days = USD a day x {DAYS_PER_MONTH} = {numbers} = {exact(month)}"]


def _quota(use: QuotaUse, streams: Sequence[Stream], fleet: Fleet, run: Side) -> list[str]:
    told = []
    if use.name == "tokens_per_day":
        terms = " + ".join(
            f"{exact(s.rate)} / {exact(fleet.demand[s.agent].peak_factor)} x {SECONDS_PER_DAY:,} x "
            f"{exact(s.means.tokens or 0.0)}"
            for s in streams
        )
        used = (
            f"asked of {use.name} = tasks/s / peak_factor x 86,400 x tokens per task = {terms} = {exact(use.used_p99)}"
        )
    elif use.name == "requests_per_second":
        minute = next(each.used_p99 for each in run.quotas if each.name == "requests_per_minute")
        used = (
            f"asked of {use.name} = {exact(use.used_p99)} (the 99th percentile of a second of a minute of "
            f"{exact(minute)} calls)"
        )
        told.append(f"quota of {use.name} = {use.quota:,} (a sixtieth of that of a minute, rounded down)")
    elif use.name == "concurrent_requests":
        used = f"asked of {use.name} = {exact(use.used_p99)} (in flight at the model in 99 % of moments)"
    else:
        used = f"asked of {use.name} = {exact(use.used_p99)} (drawn: the 99th percentile of minutes at peak)"
    return [
        *told,
        used,
        f"share of {use.name} = asked / quota = {exact(use.used_p99)} / {use.quota:,} = {exact(use.share)}",
    ]


def _cliffs(
    cliffs: Cliffs, streams: Sequence[Stream], fleet: Fleet, profile: Profile, calibration: Calibration | None
) -> list[str]:
    """Each combination through the whole model, at the utilisation that a fleet may be driven to."""
    lines = [
        f"GPUs that can be had = gpus_reserved + gpus_burst = {fleet.gpus_reserved:,} + {fleet.gpus_burst:,} = "
        f"{exact(cliffs.gpus_available)}"
    ]
    plain = next(cell.gpus for cell in cliffs.cells if not cell.cliffs)
    for cell in cliffs.cells:
        name = " + ".join(cell.cliffs) or "no cliff"
        moved = [stepped(stream, cell.cliffs, fleet) for stream in streams]
        for before, after in zip(streams, moved, strict=True):
            lines += _step(before, after, cell.cliffs, fleet, name)
        asked = GpuQuestion(moved, fleet, profile, calibration, RHO_MAX, f" with {name}")
        lines += asked.rates_lines() + asked.gpu_lines(constants=False)
        if cell.gpus is None:
            continue
        if cell.demand_ratio is not None and plain:
            numbers = f"{exact(cell.gpus)} / {exact(plain)} = {exact(cell.demand_ratio)}"
            lines.append(f"GPUs of today with {name} = GPUs / those with no cliff = {numbers}")
        if cell.degradation:
            numbers = f"1 - {exact(cliffs.gpus_available)} / {exact(cell.gpus)} = {exact(cell.degradation)}"
            lines.append(f"to be shed with {name} = 1 - GPUs that can be had / GPUs = {numbers}")
    return lines


def _step(before: Stream, after: Stream, cliffs: Sequence[str], fleet: Fleet, name: str) -> list[str]:
    demand, lines = fleet.demand[before.agent], []
    numbers = exact(before.rate)
    if "onboarding" in cliffs:
        numbers += f" x ({demand.dau:,} + {demand.onboarding_dau:,}) / {demand.dau:,}"
    if "behavioural" in cliffs:
        numbers += f" x {exact(fleet.cliffs.tasks_per_user_ratio or 1.0)}"
    if numbers != exact(before.rate):
        words = "tasks/s x what each cliff makes of it"
        lines.append(f"tasks/s of {before.agent} with {name} = {words} = {numbers} = {exact(after.rate)}")
    if "fanout" in cliffs:
        one, other = before.means, after.means
        in_proportion = (
            ("calls", one.calls, other.calls),
            ("output", one.output, other.output),
            ("seconds at the model", one.model_s, other.model_s),
            ("seconds at tools", one.tool_s, other.tool_s),
        )
        for what, was, value in in_proportion:
            if was is not None and value is not None:
                numbers = f"{exact(was)} x {exact(fleet.cliffs.fanout_ratio or 1.0)} = {exact(value)}"
                words = f"{what} per task x fanout_ratio"
                lines.append(f"{what} per task of {before.agent} with {name} = {words} = {numbers}")
        as_loops = (
            ("new input", other.new_input),
            ("cached input", other.cached_input),
            ("token-seconds at the model", other.running_token_s),
            ("token-seconds at tools", other.idle_token_s),
            ("output x context", beside_context(other)),
        )
        how = "(of each task as a loop: input is k b + a k (k - 1) / 2)"
        for what, value in as_loops:
            if value is not None:
                lines.append(f"{what} per task of {before.agent} with {name} = {exact(value)} {how}")
    return lines


def _reservation(run: Side, fleet: Fleet, profile: Profile) -> list[str]:
    found = run.reservation
    if found is None:
        return []
    ratio = fleet.burst_price_ratio
    hours = "drawn: hours of a day like that of the peak"
    return [
        f"share of hours that what is reserved is enough for = 1 - 1 / burst_price_ratio = 1 - 1 / {exact(ratio)} = "
        f"{exact(1 - 1 / ratio)}",
        f"GPUs to reserve = {found.gpus_newsvendor:,} ({hours}; in whole replicas of {profile.gpus_per_replica})",
        f"GPUs that every hour needs = {found.gpus_minimum:,} ({hours})",
        f"cost of an hour = {exact(found.cost_newsvendor)} ({hours}: reserved + burst_price_ratio x what is above it)",
        f"cost of an hour with the minimum = {exact(found.cost_minimum)} ({hours})",
        f"cost of an hour with the 99th percentile = {exact(found.cost_peak)} ({hours})",
        f"blended cost = {exact(found.blended_index)} ({hours}: cost of an hour / GPUs of a mean hour)",
        f"share of GPU hours that are rented = {exact(found.burst_share)} ({hours})",
    ]


def _of_worst(worst: WorstCase) -> list[str]:
    if worst.tokens_per_task is None:
        return [f"worst case of {worst.agent} = unbounded: budget.toml has no cap on tokens"]
    if worst.tokens_in_flight is None:
        return [f"worst case of {worst.agent} = not known: how long tasks take is not"]
    of, price = worst.agent, None
    if worst.usd_per_task is not None and worst.tokens_per_task:
        price = worst.usd_per_task / worst.tokens_per_task * 1e6
    tasks = f"{worst.tokens_in_flight / worst.tokens_per_task:,.0f}"
    lines = [
        f"tasks in flight in 99 % of moments, {of} = {tasks} (as in flight at front, on the fleet of all classes)",
        f"tokens in flight at worst, {of} = cap x tasks in flight in 99 % of moments = {worst.tokens_per_task:,} x "
        f"{tasks} = {exact(worst.tokens_in_flight)}",
    ]
    if price is not None and worst.usd_per_task is not None:
        numbers = f"{worst.tokens_per_task:,} x {exact(price)} / 1,000,000"
        lines.append(f"USD a task at worst, {of} = cap x dearest price = {numbers} = {exact(worst.usd_per_task)}")
    if worst.tokens_per_s is not None and worst.wall_s_min is not None:
        lines.append(f"seconds of the quickest task, {of} = {exact(worst.wall_s_min)} (as recorded)")
        lines.append(
            f"tokens/s at worst, {of} = tokens in flight / seconds of the quickest task = "
            f"{exact(worst.tokens_in_flight)} / {exact(worst.wall_s_min)} = {exact(worst.tokens_per_s)}"
        )
    if worst.usd_per_day is not None and price is not None and worst.tokens_per_s is not None:
        lines.append(
            f"USD a day at worst, {of} = tokens/s x dearest price x 86,400 = {exact(worst.tokens_per_s)} x "
            f"{exact(price)} / 1,000,000 x 86,400 = {exact(worst.usd_per_day)}"
        )
    return lines
