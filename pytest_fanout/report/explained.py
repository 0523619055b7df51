"""`--explain`: each formula with its values, so that a planner can check a figure with a pocket calculator.

A line is ``name = words = numbers = value``; its numbers are those of lines above it, of fleet.toml, of a profile or as
recorded. What is drawn, or found by trying, has its value and how it came about in brackets.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.capacity.constraints import Rates, Stream
from pytest_fanout.capacity.figures import exact
from pytest_fanout.capacity.flight import stretch_of, tool_seconds
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides
from pytest_fanout.capacity.side import stream_of
from pytest_fanout.records import Boundary, Calibration, Fleet, Projection
from pytest_fanout.report.explained_gpus import (
    GpuQuestion,
    beside_context,
    compute,
    drawn_lines,
    other_fit_lines,
    whole,
)

_SECONDS = "86,400"


def formulas(
    projection: Projection, sides: Sides, fleet: Fleet, profile: Profile, calibration: Calibration | None = None
) -> list[str]:
    """From demand to GPUs and money, of the run of one class."""
    agent, load, rate = projection.agent, projection.run, projection.demand.tasks_per_second
    if projection.demand.per_1000:
        lines = [f"tasks/s = 1,000 / 3,600 = {exact(rate)}"]
        stream = Stream(agent, rate, sides.run)
    else:
        d = fleet.demand[agent]
        lines = [
            "tasks/s = dau x tasks_per_user_day / 86,400 x peak_factor = "
            f"{d.dau:,} x {exact(d.tasks_per_user_day)} / {_SECONDS} x {exact(d.peak_factor)} = {exact(rate)}"
        ]
        stream = stream_of(agent, sides.run, fleet)
    lines += _recorded(sides.run)
    asked = GpuQuestion([stream], fleet, profile, calibration, fleet.target_utilisation)
    lines += asked.rates_lines() if load.gpus is not None or fleet.serves == "provider" else asked.counts_lines()
    if fleet.serves != "provider":
        lines += asked.gpu_lines()
        if load.gpus is not None:
            lines.append(whole("GPUs at peak", "mean", load.gpus, projection.gpus_run, fleet, profile))
            lines += other_fit_lines(asked, load.gpus_other)
        spread = projection.gpus_spread_run
        if spread is not None:
            lines += drawn_lines("", spread.p50, spread.p95, spread.p99, spread.p95_interval)
            lines.append(whole("GPUs for p95", "p95", spread.p95, projection.gpus_for_p95_run, fleet, profile))
    lines += _flight(stream, load.boundaries, asked.rates, fleet)
    lines += _ratio(projection, sides, profile)
    return lines + _of_money(projection, sides.run, fleet)


def _recorded(means: TaskMeans) -> list[str]:
    """What the formulas take from the samples: means over tasks."""
    pairs = (
        ("calls", means.calls),
        ("new input", means.new_input),
        ("cached input", means.cached_input),
        ("output", means.output),
        ("cache writes", means.cache_write),
        ("seconds at the model", means.model_s),
        ("seconds at tools", means.tool_s),
        ("seconds", means.residency_s),
        ("token-seconds at the model", means.running_token_s),
        ("token-seconds at tools", means.idle_token_s),
        ("output x context", beside_context(means)),
    )
    lines = [
        f"{name} per task = not known" if value is None else f"{name} per task = {exact(value)} (mean over tasks)"
        for name, value in pairs
    ]
    if means.tokens is not None:
        parts = (means.new_input or 0.0, means.cached_input or 0.0, means.output or 0.0)
        words, numbers = "new input + cached input + output", " + ".join(map(exact, parts))
        lines.append(f"tokens per task = {words} = {numbers} = {exact(means.tokens)}")
    return lines


def _flight(stream: Stream, places: Sequence[Boundary], rates: Rates, fleet: Fleet) -> list[str]:
    means, provider = stream.means, fleet.serves == "provider"
    stretch = 1.0 if provider else stretch_of(means, rates)
    rate = exact(stream.rate)
    lines = []
    if not provider and means.model_s is not None and places:
        if rates.call_s is not None and means.calls and means.model_s:
            numbers = f"{exact(rates.call_s)} x {exact(means.calls)} / {exact(means.model_s)}"
            lines.append(
                f"stretch = seconds of a call x calls per task / seconds at the model = {numbers} = {exact(stretch)}"
            )
        elif rates.call_s is None:
            lines.append(f"stretch = 1 / (1 - utilisation) = 1 / (1 - {exact(rates.rho)}) = {exact(stretch)}")
    tools = tool_seconds(means)
    for place in places:
        if place.name == "model":
            words = "tasks/s x seconds at the model x stretch"
            numbers = f"{rate} x {exact(means.model_s or 0.0)} x {exact(stretch)}"
        elif place.name == "front" and means.model_s is not None:
            words = "tasks/s x (seconds + (stretch - 1) x seconds at the model, the task's at most)"
            at_model = min(means.model_s, means.residency_s or 0.0)
            numbers = f"{rate} x ({exact(means.residency_s or 0.0)} + ({exact(stretch)} - 1) x {exact(at_model)})"
        else:
            seconds = means.residency_s if place.name == "front" else tools.get(place.name.removeprefix("tool "), 0.0)
            words, numbers = "tasks/s x seconds per task", f"{rate} x {exact(seconds or 0.0)}"
        lines.append(f"in flight at {place.name} = {words} = {numbers} = {exact(place.in_flight)}")
        lines.append(
            f"in flight at {place.name} in 99 % of moments = {place.in_flight_p99:,} (the 99th percentile of a "
            f"{_law(place, stream, rates, fleet)})"
        )
    return lines


def _law(place: Boundary, stream: Stream, rates: Rates, fleet: Fleet) -> str:
    shared = place.name == "model" or (place.name == "front" and stream.means.model_s is not None)
    rho = 0.0 if fleet.serves == "provider" else rates.rho
    iod = max(1 / (1 - rho), stream.iod) if shared else stream.iod
    if iod == 1:
        return f"Poisson law of mean {exact(place.in_flight)}"
    return f"negative binomial law of mean {exact(place.in_flight)} and variance {exact(iod)} times that"


def _ratio(projection: Projection, sides: Sides, profile: Profile) -> list[str]:
    """Run over anchor, on the tasks that both have."""
    if projection.ratio_gpu_time is None:
        return []
    lines = []
    for fit, ratio, of in ((profile, projection.ratio_gpu_time, ""),
                           (profile.other, projection.ratio_gpu_time_other, ", other fit")):  # fmt: skip
        if fit is None or ratio is None:
            continue
        told = []
        for name, means in (("base", sides.same_base), ("run", sides.same_run)):
            words, value = compute([Stream(projection.agent, 1.0, means)], fit, 1.0, anew=False)
            told.append(value)
            numbers = words.rpartition(" = ")[2].removesuffix(" / 1")
            lines.append(f"GPU-seconds per task of the {name}{of} = {numbers} = {exact(value)}")
        lines.append(f"GPU time{of} = run / base = {exact(told[1])} / {exact(told[0])} = {exact(ratio)}")
    return lines


def _of_money(projection: Projection, means: TaskMeans, fleet: Fleet) -> list[str]:
    load, prices, lines = projection.run, fleet.prices, []
    new, write, kept = means.new_input, prices.usd_per_million_cache_write_tokens, means.cache_write
    if load.usd_per_1000_tasks is not None and new is not None:
        words, numbers = "new input", exact(new)
        written = ""
        if write is not None and kept is not None:
            words, numbers = "(new input - cache writes)", f"({exact(new)} - {exact(kept)})"
            written = f" + {exact(kept)} x {exact(write)}"
        words += " x its price + cached input x its price + output x its price"
        words += " + cache writes x their price" if written else ""
        lines.append(
            f"USD per 1,000 tasks = ({words}) / 1,000 = ({numbers} x "
            f"{exact(prices.usd_per_million_new_input_tokens or 0.0)} + {exact(means.cached_input or 0.0)} x "
            f"{exact(prices.usd_per_million_cached_input_tokens or 0.0)} + {exact(means.output or 0.0)} x "
            f"{exact(prices.usd_per_million_output_tokens or 0.0)}{written}) / 1,000 = {exact(load.usd_per_1000_tasks)}"
        )
    if load.usd_per_day is None:
        return lines
    if fleet.serves != "provider":
        lines.append(
            f"USD a day = GPUs at peak x USD an hour x 24 = {projection.gpus_run:,} x "
            f"{exact(prices.usd_per_gpu_hour or 0.0)} x 24 = {exact(load.usd_per_day)}"
        )
    elif load.usd_per_1000_tasks is not None:
        peak = fleet.demand[projection.agent].peak_factor
        lines.append(
            f"USD a day = USD per 1,000 tasks / 1,000 x tasks/s / peak_factor x 86,400 = "
            f"{exact(load.usd_per_1000_tasks)} / 1,000 x {exact(projection.demand.tasks_per_second)} / {exact(peak)} x "
            f"{_SECONDS} = {exact(load.usd_per_day)}"
        )
    return lines
