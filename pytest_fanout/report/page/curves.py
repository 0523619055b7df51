"""Distributions as a picture needs them: cumulated shares, every task counting once, as the judge counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_fanout.judge.distribution import largest, statistic
from pytest_fanout.records import MEASURED, BaselineTask, TaskRun

#: What a picture marks on a curve, and what its table says of it.
MARKS = ("p50", "p95", "p99")
STATISTICS = (*MARKS, "max")
_SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

#: Task -> one value a trial.
Values = Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One side of a distribution. ``steps``: value, and the share of trials up to it; of unknown values a curve ends
    below 1. ``marks``: value and share of each percentile that is known."""

    steps: tuple[tuple[int, float], ...]
    marks: tuple[tuple[int, float], ...]
    statistics: Mapping[str, int | None]
    max_task: str | None
    tasks: int
    trials: int
    unknown: int  # trials


def of_run(trials: Sequence[TaskRun], metric: str) -> Values:
    """The values of a class's measured trials by task, in order of task and trial."""
    found: dict[str, list[int | None]] = {}
    for trial in sorted(trials, key=lambda trial: (trial.task, trial.trial)):
        if trial.status in MEASURED:
            found.setdefault(trial.task, []).append(value_of(trial.samples, metric))
    return found


def of_anchor(tasks: Mapping[str, BaselineTask], metric: str) -> Values:
    """The same of an anchor."""
    found: dict[str, list[int | None]] = {}
    for name, task in sorted(tasks.items()):
        for at, facts in enumerate(task.trials):
            if facts.status in MEASURED:
                samples = {key: values[at] for key, values in _needed(task, metric).items()}
                found.setdefault(name, []).append(value_of(samples, metric))
    return found


def _needed(task: BaselineTask, metric: str) -> Mapping[str, Sequence[int | None]]:
    keys = ("input_tokens", "output_tokens") if metric == "tokens" else (metric,)
    return {key: task.samples[key] for key in keys if key in task.samples}


def value_of(samples: Mapping[str, int | None], metric: str) -> int | None:
    """A metric of one trial; ``tokens`` is input and output, not known where one of them is not."""
    if metric != "tokens":
        return samples.get(metric)
    given, made = samples.get("input_tokens"), samples.get("output_tokens")
    return None if given is None or made is None else given + made


def curve(values: Values) -> Curve | None:
    """The curve of a distribution; None where nothing of it is known."""
    tasks = [row for row in values.values() if len(row)]
    scale = math.lcm(*{len(row) for row in tasks}) if tasks else 1
    weights: dict[int, int] = {}
    for row in tasks:
        for value in row:
            if value is not None:
                weights[value] = weights.get(value, 0) + scale // len(row)
    if not weights:
        return None
    total, reached, steps = scale * len(tasks), 0, []
    for value in sorted(weights):
        reached += weights[value]
        steps.append((value, reached / total))
    told = {name: statistic(values, name) for name in STATISTICS}
    marks = tuple((value, _SHARES[name]) for name in MARKS if (value := told[name]) is not None)
    return Curve(
        tuple(steps),
        marks,
        told,
        largest(values)[1],
        len(tasks),
        sum(map(len, tasks)),
        sum(value is None for row in tasks for value in row),
    )


def thinned(steps: Sequence[tuple[int, float]], low: float, high: float, most: int) -> list[tuple[int, float]]:
    """The steps without those that a picture of so many columns cannot show: the last of each column stays."""
    width = (high - low) / most or 1.0
    kept: dict[int, tuple[int, float]] = {}
    for step in steps:
        kept[int((step[0] - low) / width)] = step
    return list(kept.values())
