"""What the figures stand on, one sentence each: printed with every projection."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_fanout.capacity.figures import counted
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.records import Demand, Fleet, Load


def of_demand(agent: str, fleet: Fleet, demand: Demand) -> tuple[str, ...]:
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


def of_tokens(base: TaskMeans, run: TaskMeans, fleet: Fleet, *, cache_known: bool) -> tuple[str, ...]:
    lines = []
    for side, means in (("anchor", base), ("run", run)):
        missing = means.trials_without_tokens
        if not missing:
            continue
        share = f"Tokens are not known for {missing:,} of {means.trials:,} trials of the {side}"
        if means.tokens is None:
            lines.append(f"{share}: no tokens per second and no GPUs.")
        else:
            lines.append(f"{share}: the other trials of their tasks stand in.")
    if not cache_known:
        lines.append("Cached tokens are not reported: all input counts as new, on both sides.")
    elif (run.cached_input or 0) > 0:
        most = fleet.cached_input_share_max
        if most < 1:
            lines.append(f"At most {most * 100:.0f} % of input counts as cached, as fleet.toml says of production.")
        else:
            lines.append("Cache hits are those of the eval set; production hits less often, and then needs more GPUs.")
    return tuple(lines)


def of_model(
    fleet: Fleet, profile: Profile, weights: Mapping[str, float], run: TaskMeans, load: Load
) -> tuple[str, ...]:
    # weights that are all alike are none
    weighted = len({weights.get(row.task, 1.0) for row in run.rows}) > 1
    traffic = "weighted by the eval set" if weighted else "every task counts the same"
    tasks = counted(run.tasks, "task")
    lines = []
    if fleet.serves == "provider":
        lines.append("A provider serves the model: quotas and token prices, no GPUs.")
    else:
        lines += _of_gpus(fleet, profile, load)
    return (*lines, f"An eval set of {tasks} is not traffic ({traffic}).", _of_times(fleet, run))


def _of_gpus(fleet: Fleet, profile: Profile, load: Load) -> list[str]:
    which = f"GPU profile {profile.name}"
    if "fleet.profile" in fleet.defaulted:
        which += " is the default"
    lines = [f"{which}: {profile.source}."]
    unknown = [f"{c.name} ({c.text})" for c in load.constraints if c.gpus is None]
    if unknown:
        lines.append(f"Not among what GPUs are counted for: {'; '.join(unknown)}.")
    if load.keeps_prefixes is False:
        lines.append(
            "Contexts do not stay cached while tools run: keeping them takes more GPUs than reading them anew."
        )
    rho = f"By compute, GPUs are planned at {fleet.target_utilisation * 100:.0f} % utilisation"
    if "fleet.target_utilisation" in fleet.defaulted:
        rho += " (default)"
    spare = counted(fleet.spare_replicas, "spare replica") if fleet.spare_replicas else "no spare"
    lines.append(f"{rho}; {spare}, no retries, no failover.")
    return lines


def _of_times(fleet: Fleet, run: TaskMeans) -> str:
    if run.residency_s is None:
        return "Durations are not known: no tasks in flight."
    if fleet.serves == "provider":
        return "Tasks in flight use recorded durations, as the provider answered then."
    if run.model_s is None:
        return "Tasks in flight use recorded durations, of an idle server: under load they are more."
    if fleet.calibration is not None:
        return "Time at the model is that of the calibration, on the fewest replicas that keep the promises of [slo]."
    return "Time at the model is taken as recorded on an idle server and stretched to the planned utilisation."
