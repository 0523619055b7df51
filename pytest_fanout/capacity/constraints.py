"""GPUs of a load as the largest of what compute, memory of contexts and promised latencies ask for.

Each task costs GPU-seconds of each kind; times tasks a second they are GPUs. ``Rates`` holds what a task's tokens and
seconds are multiplied with, so that means, windows of the Monte Carlo and cliffs are all priced alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_fanout.capacity.contexts import pool_gb, shape_of
from pytest_fanout.capacity.figures import counted, number
from pytest_fanout.capacity.means import TaskMeans, TaskRow
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.saturation import Replica, Sized, most_in_flight, replica_near, replicas_within
from pytest_fanout.records import Calibration, Constraint, Fleet

GB = 1e9


@dataclass(frozen=True, slots=True)
class Stream:
    """Tasks of one class at a rate (tasks/s). ``iod``: index of dispersion of their arrivals."""

    agent: str
    rate: float
    means: TaskMeans
    iod: float = 1.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What is multiplied with a task's tokens and seconds. None: that constraint is not known, and ``why`` says why."""

    rho: float
    profile: Profile
    token_gpus: float | None  # GPUs that hold one token of context
    sequence_gpus: float  # and the constant part of one sequence
    stretch: float  # seconds of a call under load over those that were recorded
    work_gpus: float | None  # GPUs that give one output token a second within the promised latencies
    why_memory: str = ""
    why_latency: str = ""
    pool_gb: float | None = None
    call_s: float | None = None  # seconds of a call under load, by the calibration
    refused: str | None = None
    replica: Replica | None = None  # of the calibration, near its operating point
    sized: Sized | None = None  # the replicas that keep the promises


@dataclass(frozen=True, slots=True)
class Costs:
    """GPU-seconds of one task, or GPUs of a load. None: not known."""

    compute: float
    compute_other: float | None
    compute_uncached: float  # were nothing of its input cached
    memory_running: float | None
    memory_idle: float | None  # of contexts that are kept while tools run
    latency: float | None


def rates_of(
    streams: Sequence[Stream], fleet: Fleet, profile: Profile, calibration: Calibration | None, rho: float
) -> Rates:
    """What the streams together are priced with at a utilisation of ``rho``."""
    shape = shape_of(profile.model)
    memory = fleet.memory
    per_token = memory.kv_bytes_per_token or (shape.bytes_per_token if shape else None)
    per_sequence = shape.bytes_per_sequence if shape and memory.kv_bytes_per_token is None else 0
    pool = memory.kv_pool_gb_per_gpu or pool_gb(profile.model, profile.gpu, profile.weights, profile.gpus_per_replica)
    why = ""
    if per_token is None:
        why = f"the KV cache of {profile.model or profile.name} is not known: give [memory] kv_bytes_per_token"
    elif pool is None:
        why = (
            f"what {profile.gpu or 'a GPU'} has left beside the weights of {profile.model} is not known: give [memory] "
            "kv_pool_gb_per_gpu"
        )
    token_gpus = per_token / pool / GB if per_token and pool else None
    sequence_gpus = per_sequence / pool / GB if pool else 0.0
    refused = None
    if token_gpus is not None:
        refused = _too_long(streams, token_gpus, sequence_gpus, profile)
    if calibration is None:
        return Rates(
            rho, profile, token_gpus, sequence_gpus, 1 / (1 - rho), None, why,
            "the time between tokens under load is not known without a calibration", pool, None, refused,
        )  # fmt: skip
    return _calibrated(streams, fleet, profile, calibration, Rates(
        rho, profile, token_gpus, sequence_gpus, 1.0, None, why, "", pool, None, refused
    ))  # fmt: skip


def _too_long(streams: Sequence[Stream], token_gpus: float, sequence_gpus: float, profile: Profile) -> str | None:
    room = profile.gpus_per_replica
    for stream in streams:
        longest = stream.means.context_max
        if longest is not None and longest * token_gpus + sequence_gpus > room:
            fits = math.floor((room - sequence_gpus) / token_gpus)
            return (
                f"a context of {longest:,.0f} tokens ({stream.agent}) does not fit one replica of "
                f"{counted(room, 'GPU')}, which holds {max(0, fits):,}"
            )
    return None


def _calibrated(
    streams: Sequence[Stream], fleet: Fleet, profile: Profile, calibration: Calibration, rates: Rates
) -> Rates:
    longest = max((stream.means.context_max or 0.0 for stream in streams), default=0.0)
    if longest > calibration.context_tokens_max and rates.refused is None:
        text = (
            f"outside calibration: contexts of {longest:,.0f} tokens, measured up to "
            f"{calibration.context_tokens_max:,} ({calibration.name})"
        )
        return replace(rates, refused=text)
    ceiling = most_in_flight(calibration, fleet.slo, fleet.memory.sequences_per_replica_max)
    if ceiling.concurrency is None:
        promised = fleet.slo.itl_ms_max if ceiling.bound == "itl" else fleet.slo.ttft_ms_max
        text = (
            f"[slo] {ceiling.bound}_ms_max of {promised:,g} does not hold even at the lowest measured load "
            f"({calibration.name})"
        )
        return replace(rates, refused=rates.refused or text)
    replica = replica_near(calibration, ceiling.concurrency)
    if any(stream.means.new_input is None or stream.means.output is None for stream in streams):
        return replace(rates, why_latency="tokens are not known")
    work = math.fsum(stream.rate * work_tokens(row_of(stream.means), profile) for stream in streams)
    sized = replicas_within(replica, work, ceiling.concurrency)
    if sized is None:
        most = math.floor(ceiling.concurrency)
        text = f"saturated: no number of replicas keeps {most} calls in flight ({calibration.name})"
        return replace(rates, refused=rates.refused or text)
    calls = math.fsum(stream.rate * (stream.means.calls or 0.0) for stream in streams)
    call_s = sized.in_flight * sized.replicas / calls if calls else None
    stops = {"measured": "the highest load measured", "sequences": "sequences_per_replica_max"}
    why = (
        f"{counted(math.floor(ceiling.concurrency), 'call')} in flight a replica at most "
        f"({stops.get(ceiling.bound, f'{ceiling.bound}_ms_max')}), {sized.in_flight_p95} in 95 % of moments on "
        f"{counted(sized.replicas, 'replica')}, which then work at {sized.rho * 100:.0f} % of their throughput on "
        "average"
    )
    gpus = sized.replicas * profile.gpus_per_replica
    return replace(
        rates,
        work_gpus=gpus / work if work else 0.0,
        why_latency=why,
        call_s=call_s,
        replica=replica,
        sized=sized,
    )


def row_of(means: TaskMeans) -> TaskRow:
    """The mean task as a task of its own."""
    return TaskRow(
        "", 1.0, means.calls, means.new_input, means.cached_input, means.output, means.cache_write,
        means.running_token_s, means.model_s, means.tool_s, means.residency_s, means.context_max,
    )  # fmt: skip


def work_tokens(row: TaskRow, profile: Profile) -> float:
    """Work of a task in output tokens: input counts as the output that takes as long."""
    return (row.output or 0.0) + (row.new_input or 0.0) * profile.decode_tokens_per_s / profile.prefill_tokens_per_s


def costs_of(row: TaskRow, rates: Rates) -> Costs | None:
    """GPU-seconds of one task; None where its tokens are not known."""
    if row.new_input is None or row.cached_input is None or row.output is None:
        return None
    profile, calls = rates.profile, row.calls or 0.0
    # the fits take the input alone as context of the output
    context = (row.new_input + row.cached_input) / calls if calls else 0.0
    compute = profile.gpu_seconds(row.new_input, row.output, context) / rates.rho
    other = None
    if profile.other is not None:
        other = profile.other.gpu_seconds(row.new_input, row.output, context) / rates.rho
    uncached = profile.gpu_seconds(row.new_input + row.cached_input, row.output, context) / rates.rho
    running = idle = None
    if rates.token_gpus is not None:
        if rates.call_s is not None:
            running = calls * rates.call_s * (row.context * rates.token_gpus + rates.sequence_gpus)
        elif row.running_token_s is not None:
            held = row.running_token_s * rates.token_gpus + (row.model_s or 0.0) * rates.sequence_gpus
            running = rates.stretch * held
        if row.idle_token_s is not None:
            idle = row.idle_token_s * rates.token_gpus + (row.tool_s or 0.0) * rates.sequence_gpus
    latency = None if rates.work_gpus is None else work_tokens(row, profile) * rates.work_gpus
    return Costs(compute, other, uncached, running, idle, latency)


def mean_costs(means: TaskMeans, rates: Rates) -> Costs | None:
    """The weighted mean of its tasks' costs; None where the tokens of the class are not known."""
    rows = [row for row in means.rows if row.weight > 0]
    if means.tokens is None or not rows:
        return None
    whole = math.fsum(row.weight for row in rows)
    parts = [(row.weight / whole, costs_of(row, rates)) for row in rows]
    return total([(weight, costs) for weight, costs in parts if costs is not None])


def total(parts: Sequence[tuple[float, Costs]]) -> Costs:
    """The sum of costs, each times a rate; a kind that one of them does not know is not known."""

    def known(name: str) -> float | None:
        values = [(rate, getattr(costs, name)) for rate, costs in parts]
        if any(value is None for _, value in values):
            return None
        return math.fsum(rate * value for rate, value in values)

    return Costs(
        known("compute") or 0.0, known("compute_other"), known("compute_uncached") or 0.0,
        known("memory_running"), known("memory_idle"), known("latency"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizing:
    """The GPUs of a load, what asks for most of them, and whether contexts stay cached while tools run."""

    gpus: float | None
    gpus_other: float | None
    binding: str | None
    constraints: tuple[Constraint, ...]
    keeps_prefixes: bool | None
    kv_gb: float | None
    refused: str | None = None


def size(costs: Costs | None, rates: Rates) -> Sizing:
    """The largest constraint binds; contexts are kept through tool calls where reading them anew takes more GPUs."""
    if costs is None:
        return Sizing(None, None, None, (), None, None, rates.refused)
    kept = _kept(costs, costs.compute)
    dropped = _dropped(costs)
    keeps: bool | None = None
    if costs.memory_running is not None and costs.memory_idle is not None:
        keeps = kept <= dropped
    compute = costs.compute if keeps is not False else costs.compute_uncached
    memory = _memory(costs, keeps)
    constraints = (
        Constraint("compute", compute, _compute_text(rates, keeps)),
        Constraint("memory", memory, rates.why_memory if memory is None else _memory_text(memory, rates, keeps)),
        Constraint("latency", costs.latency, rates.why_latency),
    )
    if memory is None and not rates.why_memory:
        unknown = Constraint("memory", None, "how long calls take is not known")
        constraints = (constraints[0], unknown, constraints[2])
    known = [(constraint.gpus, constraint.name) for constraint in constraints if constraint.gpus is not None]
    gpus, binding = max(known, key=lambda pair: pair[0])
    other = None
    if costs.compute_other is not None:
        other = max(
            [costs.compute_other if keeps is not False else gpus, *(g for g, name in known if name != "compute")]
        )
    kv = None if memory is None or rates.pool_gb is None else memory * rates.pool_gb
    if rates.refused is not None:
        return Sizing(None, None, None, constraints, keeps, kv, rates.refused)
    return Sizing(gpus, other, binding if gpus > 0 else None, constraints, keeps, kv)


def _memory(costs: Costs, keeps: bool | None) -> float | None:
    if costs.memory_running is None:
        return None
    return costs.memory_running + (costs.memory_idle or 0.0 if keeps is not False else 0.0)


def _kept(costs: Costs, compute: float) -> float:
    return max(compute, (costs.memory_running or 0.0) + (costs.memory_idle or 0.0), costs.latency or 0.0)


def _dropped(costs: Costs) -> float:
    return max(costs.compute_uncached, costs.memory_running or 0.0, costs.latency or 0.0)


def _compute_text(rates: Rates, keeps: bool | None) -> str:
    text = f"planned at {rates.rho * 100:.0f} % utilisation"
    return text if keeps is not False else f"{text}, all input read anew: prefixes are not kept while tools run"


def _memory_text(gpus: float, rates: Rates, keeps: bool | None) -> str:
    gb = gpus * (rates.pool_gb or 0.0)
    held = (
        "contexts of running calls" if keeps is False else "contexts of running calls and of those that wait for tools"
    )
    return f"{number(gb)} GB of {held}, {number(rates.pool_gb or 0.0)} GB on a GPU"
