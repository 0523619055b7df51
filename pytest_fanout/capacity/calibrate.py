"""From load tests to a calibration: one curve of one server, held to Little's law, and never of mixed shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.profiles import calibrated
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Calibration, CalibrationPoint, MeasuredLoad, ServerState

#: How far throughput x residency may be from the requests that were kept in flight.
LITTLE_TOLERANCE = 0.10
#: How far mean lengths of two loads may be apart and still be one shape.
SHAPE_TOLERANCE = 0.10
#: With more failures than this share of requests a load is beyond what the server carries.
FAILED_SHARE = 0.01
#: Long input and short output: a run that measures reading, and is no point of the curve.
PREFILL_INPUT, PREFILL_OUTPUT = 4_000, 100
#: Reused prefixes make reading look faster than it is.
_PREFIX_HITS = 0.05


@dataclass(frozen=True, slots=True)
class Subject:
    """What no result file says reliably. ``model`` None: as the files name it."""

    name: str
    source: str
    gpu: str
    gpus_per_replica: int
    model: str | None = None
    prefill_tokens_per_s: float | None = None  # of one GPU


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration, and what was left out or taken for granted."""

    calibration: Calibration
    notes: tuple[str, ...]


def calibrate(measured: Sequence[MeasuredLoad | ServerState], subject: Subject) -> Calibrated:
    """One curve from the loads of one server.

    Raises:
        ConfigError: loads of several models, machines or lengths; a load that Little's law contradicts; no rate of
            reading; fewer than two loads; a scrape of no load.
    """
    loads = [each for each in measured if isinstance(each, MeasuredLoad)]
    states = [each for each in measured if isinstance(each, ServerState)]
    served = _one("model", [(each.source, each.model) for each in measured])
    _one("hardware", [(each.source, each.hardware) for each in loads])
    notes: list[str] = []
    curve = []
    for load in loads:
        if load.failed is not None and load.failed > FAILED_SHARE * (load.completed + load.failed):
            notes.append(f"{load.source}: {load.failed} of {load.completed + load.failed} requests failed: left out")
        elif not _is_prefill(load):
            curve.append(load)
    _one_shape(curve)
    points = _points([(_in_flight(load, notes), load) for load in curve], notes)
    points = _with_states(points, states, notes)
    longest = max((load.input_tokens + load.output_tokens for load in curve), default=1.0)
    given, written = (
        max(low, round(_mean([getattr(load, key) for load in curve], [load.completed for load in curve])))
        for key, low in (("input_tokens", 0), ("output_tokens", 1))
    )
    best = max((point.output_tokens_per_s for point in points[:-1]), default=math.inf)
    knee = bool(points) and points[-1].output_tokens_per_s < 1.02 * best
    calibration = Calibration(
        name=subject.name,
        source=subject.source,
        model=subject.model or served or "unknown",
        gpu=subject.gpu,
        gpus_per_replica=subject.gpus_per_replica,
        points=points,
        prefill_tokens_per_s=_prefill(loads, subject),
        input_tokens=given,
        output_tokens=written,
        context_tokens_max=math.ceil(longest),
        knee_reached=knee,
    )
    calibrated(calibration)  # its own checks: two points that rise, and time left to write
    if not knee:
        notes.append("throughput still rose at the highest load: what the server can do at most is not known")
    return Calibrated(calibration, tuple(notes))


def little(load: MeasuredLoad) -> float | None:
    """Requests in flight by Little's law: throughput x residency; None where the residency is not known."""
    return None if load.residency_ms is None else load.requests_per_s * load.residency_ms / 1_000


def _is_prefill(load: MeasuredLoad) -> bool:
    return load.input_tokens >= PREFILL_INPUT and load.output_tokens <= PREFILL_OUTPUT


def _one(what: str, named: Sequence[tuple[str, str | None]]) -> str | None:
    """The one name that all of them have that have one."""
    first: tuple[str, str] | None = None
    for source, name in named:
        if name is None:
            continue
        if first is None:
            first = (source, name)
        elif name != first[1]:
            raise ConfigError(
                "mixed-shapes",
                f"its {what} is {name!r}, and that of {first[0]} is {first[1]!r}: no curve is of both",
                where=source,
                mend="calibrate each of them by itself",
            )
    return first[1] if first else None


def _one_shape(curve: Sequence[MeasuredLoad]) -> None:
    for load in curve[1:]:
        for key in ("input_tokens", "output_tokens"):
            ours, first = getattr(load, key), getattr(curve[0], key)
            if abs(ours - first) > SHAPE_TOLERANCE * max(first, 1.0):
                raise ConfigError(
                    "mixed-shapes",
                    f"its requests have {ours:,.0f} {key.replace('_', ' ')}, and those of {curve[0].source} "
                    f"{first:,.0f}: no curve is of both",
                    where=load.source,
                    mend="calibrate each shape by itself; a run of 4,000 tokens in and 100 out, or more extreme, may "
                    "stand beside a curve and gives its rate of reading",
                )


def _in_flight(load: MeasuredLoad, notes: list[str]) -> float:
    if load.itl_ms is None or load.itl_ms == 0:
        raise _unsteady(load, "does not say the time between two tokens", "measure with streaming")
    by_law = little(load)
    if by_law is None or by_law == 0:
        raise _unsteady(load, "does not say how long a request took, so that nothing can be checked", "measure again")
    if not load.pinned or not load.concurrency:
        notes.append(f"{load.source}: its load was not pinned; {by_law:,.1f} in flight by Little's law, unchecked")
        return by_law
    if abs(by_law / load.concurrency - 1) > LITTLE_TOLERANCE:
        raise _unsteady(
            load,
            f"kept {load.concurrency:,.0f} requests in flight, and {load.requests_per_s:,.3g} a second x "
            f"{(load.residency_ms or 0) / 1_000:,.3g} s are {by_law:,.1f}: "
            f"more than {LITTLE_TOLERANCE * 100:.0f} % apart",
            "measure it for longer: 10 requests for each one in flight, after as many to warm up",
        )
    return load.concurrency


def _unsteady(load: MeasuredLoad, what: str, mend: str) -> ConfigError:
    return ConfigError("unsteady-load", what, where=load.source, mend=mend)


def _points(pairs: Sequence[tuple[float, MeasuredLoad]], notes: list[str]) -> tuple[CalibrationPoint, ...]:
    by_load: dict[int, list[MeasuredLoad]] = {}
    for in_flight, load in pairs:
        by_load.setdefault(max(1, round(in_flight)), []).append(load)
    found = []
    for concurrency, same in sorted(by_load.items()):
        if len(same) > 1:
            notes.append(f"{len(same)} runs with {concurrency} in flight: their mean, by requests")
        share = [load.completed for load in same]
        ttft = [load.ttft_ms for load in same if load.ttft_ms]
        found.append(
            CalibrationPoint(
                concurrency,
                _mean([load.output_tokens_per_s for load in same], share),
                _mean([load.itl_ms or 0.0 for load in same], share),
                _mean(ttft, share) if len(ttft) == len(same) else None,
            )
        )
    return tuple(found)


def _mean(values: Sequence[float], shares: Sequence[int]) -> float:
    if len(values) == 1:
        return values[0]  # to the last digit
    whole = math.fsum(shares)
    return math.fsum(value * share for value, share in zip(values, shares, strict=True)) / whole if whole else 0.0


def _with_states(
    points: tuple[CalibrationPoint, ...], states: Sequence[ServerState], notes: list[str]
) -> tuple[CalibrationPoint, ...]:
    """KV share and queue of the load under which each scrape was made, told by how many requests were in flight."""
    of_point: dict[int, list[ServerState]] = {}
    for state in states:
        held = state.running + state.waiting
        near = min(points, key=lambda point: abs(point.concurrency - held), default=None)
        if near is None or abs(near.concurrency - held) > max(0.5, LITTLE_TOLERANCE * near.concurrency):
            raise ConfigError(
                "scrape-of-no-load",
                f"{state.running:,.0f} requests ran and {state.waiting:,.0f} waited, and no load had so many in flight",
                where=state.source,
                mend="scrape /metrics while a load runs, or leave the file out",
            )
        of_point.setdefault(near.concurrency, []).append(state)
        if state.prefix_hit_share is not None and state.prefix_hit_share > _PREFIX_HITS:
            notes.append(
                f"{state.source}: {state.prefix_hit_share * 100:.0f} % of the input was found in the prefix cache: the "
                "server reads new input more slowly than this says; switch it off, or use prompts that differ"
            )

    def averaged(same: Sequence[ServerState], value: Callable[[ServerState], float | None]) -> float | None:
        known = [found for state in same if (found := value(state)) is not None]
        return math.fsum(known) / len(known) if known else None

    return tuple(
        CalibrationPoint(
            point.concurrency,
            point.output_tokens_per_s,
            point.itl_ms,
            point.ttft_ms,
            averaged(of_point.get(point.concurrency, ()), lambda state: state.kv_share),
            averaged(of_point.get(point.concurrency, ()), lambda state: state.waiting),
        )
        for point in points
    )


def _prefill(loads: Sequence[MeasuredLoad], subject: Subject) -> float:
    """Uncached input tokens a second of one GPU: as given, else of the fastest run that mostly reads."""
    if subject.prefill_tokens_per_s is not None:
        return subject.prefill_tokens_per_s
    rates = [load.input_tokens * load.requests_per_s / subject.gpus_per_replica for load in loads if _is_prefill(load)]
    if not rates:
        raise ConfigError(
            "no-prefill-rate",
            "no run says how fast the server reads new input",
            mend="add a run of 4,000 tokens in or more and 100 out or fewer at high load, or give "
            "--prefill-tokens-per-s of one GPU",
        )
    return max(rates)
