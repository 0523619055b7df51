"""`--explain`: each formula with its values, so that a planner can check a figure with a pocket calculator."""

from __future__ import annotations

from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.records import Fleet, Projection


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
    if load.usd_per_1000_tasks is not None:
        p = fleet.prices
        lines.append(
            f"USD per 1,000 tasks = (new input x {p.usd_per_million_new_input_tokens:g} + cached input x "
            f"{p.usd_per_million_cached_input_tokens:g} + output x {p.usd_per_million_output_tokens:g}) / 1,000 = "
            f"{load.usd_per_1000_tasks:,.2f}"
        )
    return lines


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
