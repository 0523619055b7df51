"""What is in flight at each boundary at peak: tasks at the front, calls at the model, calls of each tool."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_fanout.capacity.constraints import Rates, Stream
from pytest_fanout.capacity.littles_law import in_flight, in_flight_quantile
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.records import Boundary


def stretch_of(means: TaskMeans, rates: Rates) -> float:
    """Seconds of a call under load over the recorded ones: by the calibration, else 1 / (1 - utilisation)."""
    if rates.call_s is not None and means.model_s and means.calls:
        return rates.call_s * means.calls / means.model_s
    return rates.stretch


def boundaries(streams: Sequence[Stream], stretches: Sequence[float], *, rho: float) -> tuple[Boundary, ...]:
    """Mean and 99th percentile at each place, by Little's law; a place whose times are not known is left out.

    Under load the time at the model is stretched, that at tools is not. The spread is that of arrivals, or of a shared
    server (variance over mean 1 / (1 - rho)) where that is wider.
    """
    at_model = max(1 / (1 - rho), *(stream.iod for stream in streams))
    arrivals = max(stream.iod for stream in streams)
    front: list[float | None] = []
    model: list[float | None] = []
    tools: dict[str, float] = {}
    for stream, stretch in zip(streams, stretches, strict=True):
        means = stream.means
        seconds = means.residency_s
        if seconds is not None and means.model_s is not None:
            # calls that overlap are no longer at the model than the task is
            seconds += (stretch - 1) * min(means.model_s, seconds)
        front.append(None if seconds is None else in_flight(stream.rate, seconds))
        model.append(None if means.model_s is None else in_flight(stream.rate, means.model_s * stretch))
        for name, waited in tool_seconds(means).items():
            tools[name] = tools.get(name, 0.0) + in_flight(stream.rate, waited)
    known_times = all(stream.means.model_s is not None for stream in streams)
    places: list[tuple[str, list[float | None], float]] = [
        ("front", front, at_model if known_times else arrivals),
        ("model", model, at_model),
    ]
    places += [(f"tool {name}", [value], arrivals) for name, value in sorted(tools.items())]
    found = []
    for name, values, iod in places:
        if values and None not in values:
            mean = math.fsum(value for value in values if value is not None)
            found.append(Boundary(name, mean, in_flight_quantile(mean, 0.99, iod)))
    return tuple(found)


def tool_seconds(means: TaskMeans) -> dict[str, float]:
    """Mean seconds per task at each tool."""
    rows = [row for row in means.rows if row.weight > 0]
    whole = math.fsum(row.weight for row in rows)
    names = sorted({name for row in rows for name in row.tools})
    return {name: math.fsum(row.weight * row.tools.get(name, 0.0) for row in rows) / whole for name in names}
