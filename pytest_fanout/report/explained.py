"""`--explain`: each formula with its values, so that a planner can check a figure with a pocket calculator."""

from __future__ import annotations

from pytest_fanout.capacity.plan import DAYS_PER_MONTH
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.capacity.windows import WINDOWS
from pytest_fanout.records import Fleet, FleetPlan, Projection, WorstCase


def formulas(projection: Projection, fleet: Fleet, profile: Profile) -> list[str]:
    """From demand to GPUs, of the run of one class."""
    agent, load, rate = projection.agent, projection.run, projection.demand.tasks_per_second
    if projection.demand.per_1000:
        lines = [f"tasks/s = 1,000 / 3,600 = {rate:.4g}"]
    else:
        d = fleet.demand[agent]
        lines = [
            "tasks/s = dau x tasks_per_user_day / 86,400 x peak_factor = "
            f"{d.dau:,} x {d.tasks_per_user_day:g} / 86,400 x {d.peak_factor:g} = {rate:.4g}"
        ]
    for name, value in (
        ("calls", load.calls_per_s),
        ("new input", load.new_input_per_s),
        ("cached input", load.cached_input_per_s),
        ("output", load.output_per_s),
    ):
        if value is None:
            lines.append(f"{name}/s = not known")
        else:
            lines.append(f"{name}/s = tasks/s x {name} per task = {rate:.4g} x {value / rate:,.1f} = {value:,.1f}")
    if fleet.serves != "provider":
        lines += _of_gpus(projection, fleet, profile)
    for place in load.boundaries:
        lines.append(
            f"in flight at {place.name} = tasks/s x seconds per task = {rate:.4g} x {place.in_flight / rate:,.2f} = "
            f"{place.in_flight:,.1f}; 99 % of moments {place.in_flight_p99:,}"
        )
    return lines + _of_money(projection, fleet)


def of_fleet(plan: FleetPlan, fleet: Fleet, profile: Profile) -> list[str]:
    """Of all classes together: percentiles, quotas, cliffs, reservation and the worst case, of the run."""
    run, lines = plan.run, []
    spread = run.gpus_spread
    if spread is not None:
        lines.append(
            f"GPUs in 95 % of windows at peak = the 95th percentile of {WINDOWS:,} windows, each with eval tasks drawn "
            f"anew and its arrivals = {spread.p95:,.2f}; its interval is what 90 % of eval sets give: "
            f"{spread.p95_interval[0]:,.2f} to {spread.p95_interval[1]:,.2f}"
        )
    if run.usd_per_month is not None and fleet.serves != "provider":
        lines.append(
            f"USD in {DAYS_PER_MONTH} days = GPUs x USD an hour x 24 x {DAYS_PER_MONTH} = {run.gpus} x "
            f"{fleet.prices.usd_per_gpu_hour:g} x 24 x {DAYS_PER_MONTH} = {run.usd_per_month:,.0f}"
        )
    for use in run.quotas:
        lines.append(f"share of {use.name} = {use.used_p99:,.0f} (99 % of them) / {use.quota:,} = {use.share:.2f}")
    if run.cliffs is not None:
        cliffs = run.cliffs
        lines.append(
            f"a combination of cliffs fits where its GPUs at {RHO_MAX * 100:.0f} % utilisation are at most "
            f"gpus_reserved + gpus_burst = {fleet.gpus_reserved} + {fleet.gpus_burst} = {cliffs.gpus_available:,.0f}"
        )
        for cell in cliffs.cells:
            if cell.degradation and cell.gpus is not None:
                lines.append(
                    f"shed with {' + '.join(cell.cliffs) or 'no cliff'} = 1 - GPUs that can be had / GPUs = "
                    f"1 - {cliffs.gpus_available:,.0f} / {cell.gpus:,.2f} = {cell.degradation * 100:.0f} %"
                )
    if run.reservation is not None:
        ratio = fleet.burst_price_ratio
        lines.append(
            f"GPUs to reserve = hourly demand that is not exceeded in a share of 1 - 1 / {ratio:g} = "
            f"{(1 - 1 / ratio) * 100:.0f} % of hours = {run.reservation.gpus_newsvendor:,}, in whole replicas of "
            f"{profile.gpus_per_replica}"
        )
    for worst in plan.worst_case:
        lines += _of_worst(worst)
    return lines


def _of_worst(worst: WorstCase) -> list[str]:
    if worst.tokens_per_task is None:
        return [f"worst case of {worst.agent} = unbounded: budget.toml has no cap on tokens"]
    if worst.tokens_in_flight is None:
        return [f"worst case of {worst.agent} = not known: how long tasks take is not"]
    lines = [
        f"tokens in flight at worst, {worst.agent} = cap x tasks in flight in 99 % of moments = "
        f"{worst.tokens_per_task:,} x {worst.tokens_in_flight / worst.tokens_per_task:,.0f} = "
        f"{worst.tokens_in_flight:,.0f}"
    ]
    if worst.tokens_per_s is not None and worst.wall_s_min is not None:
        lines.append(
            f"tokens/s at worst, {worst.agent} = tokens in flight / seconds of the quickest task = "
            f"{worst.tokens_in_flight:,.0f} / {worst.wall_s_min:,.4g} = {worst.tokens_per_s:,.0f}"
        )
    if worst.usd_per_day is not None and worst.usd_per_task is not None and worst.tokens_per_s is not None:
        dearest = worst.usd_per_task / worst.tokens_per_task * 1e6
        lines.append(
            f"USD a day at worst, {worst.agent} = tokens/s x dearest price x 86,400 = {worst.tokens_per_s:,.0f} x "
            f"{dearest:g} / 1,000,000 x 86,400 = {worst.usd_per_day:,.0f}"
        )
    return lines


def _of_money(projection: Projection, fleet: Fleet) -> list[str]:
    load, prices = projection.run, fleet.prices
    if load.usd_per_1000_tasks is None:
        return []
    write = prices.usd_per_million_cache_write_tokens
    new = f"new input x {prices.usd_per_million_new_input_tokens:g}"
    if write is not None:
        new = f"new input but what is kept x {prices.usd_per_million_new_input_tokens:g} + cache writes x {write:g}"
    return [
        f"USD per 1,000 tasks = ({new} + cached input x {prices.usd_per_million_cached_input_tokens:g} + output x "
        f"{prices.usd_per_million_output_tokens:g}) / 1,000 = {load.usd_per_1000_tasks:,.2f}"
    ]


def _of_gpus(projection: Projection, fleet: Fleet, profile: Profile) -> list[str]:
    load = projection.run
    lines = []
    for constraint in load.constraints:
        if constraint.gpus is None:
            lines.append(f"GPUs by {constraint.name} = not known: {constraint.text}")
        elif constraint.name == "compute":
            context = f" + output x context x {profile.context_s:.3g} s" if profile.context_s else ""
            lines.append(
                f"GPUs by compute = (new input/s / {profile.prefill_tokens_per_s:,.0f} + output/s / "
                f"{profile.decode_tokens_per_s:,.0f}{context}) / {fleet.target_utilisation:g} = {constraint.gpus:,.2f}"
            )
        else:
            lines.append(f"GPUs by {constraint.name} = {constraint.gpus:,.2f}: {constraint.text}")
    if load.refused is not None:
        lines.append(f"GPUs = no number: {load.refused}")
    elif load.gpus is not None:
        lines.append(
            f"GPUs = the largest, {load.binding or 'none'}: {load.gpus:,.2f}, so {projection.gpus_run} "
            f"in whole replicas of {profile.gpus_per_replica} and {fleet.spare_replicas} spare"
        )
    return lines
