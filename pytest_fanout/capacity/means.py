"""What one task of a class costs on average: each task counts once, weighted by its share in production.

Per-task sums already hold every call of the task, so fanout never multiplies tokens here or later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.records import Samples

Trials = Mapping[str, Sequence[Samples]]  # task -> its trials

#: Up to this share of trials without known tokens the others of the same task stand in for them.
UNKNOWN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class TaskMeans:
    """Means per task: calls, tokens, seconds. None: not known. ``trials`` and the rest count trials."""

    tasks: int = 0
    trials: int = 0
    calls: float | None = None
    new_input: float | None = None  # input tokens that were not cached (cache writes are among them)
    cached_input: float | None = None
    output: float | None = None
    residency_s: float | None = None
    trials_without_tokens: int = 0
    trials_without_cache_count: int = 0

    @property
    def tokens(self) -> float | None:
        if self.new_input is None or self.cached_input is None or self.output is None:
            return None
        return self.new_input + self.cached_input + self.output


def task_means(agent: str, trials: Trials, weights: Mapping[str, float], *, use_cache: bool = True) -> TaskMeans:
    """Means over tasks of the means over their trials; a task without a weight has 1.

    ``use_cache`` False counts cached tokens as new ones. A trial that does not say how much was cached counts as
    uncached, which can only make the estimate larger.

    Raises:
        IntegrityError: samples that cannot be (negative, or more cached than input tokens), naming task and trial.
    """
    rows: dict[str, list[tuple[float, float | None]]] = {
        name: [] for name in ("calls", "new_input", "cached_input", "output", "residency_s")
    }
    total = no_tokens = no_cache = 0
    for task in sorted(trials):
        if not trials[task]:
            continue
        known = [_known(agent, task, number, sample) for number, sample in enumerate(trials[task], 1)]
        weight = weights.get(task, 1.0)
        total += len(known)
        triples = []
        for sample in known:
            given, cached, written = sample["input_tokens"], sample["cached_input_tokens"], sample["output_tokens"]
            if given is None or written is None:
                no_tokens += 1
                continue
            no_cache += cached is None and given > 0
            reused = (cached or 0) if use_cache else 0
            triples.append((given - reused, reused, written))
        rows["calls"].append((weight, _mean([sample["fanout"] for sample in known])))
        for position, name in enumerate(("new_input", "cached_input", "output")):
            rows[name].append((weight, _mean([triple[position] for triple in triples])))
        duration = _mean([sample["duration_ms"] for sample in known])
        rows["residency_s"].append((weight, None if duration is None else duration / 1000))
    means = {name: _weighted(row) for name, row in rows.items()}
    if no_tokens > UNKNOWN_SHARE * total:
        means |= {"new_input": None, "cached_input": None, "output": None}
    return TaskMeans(
        tasks=len(rows["calls"]),
        trials=total,
        trials_without_tokens=no_tokens,
        trials_without_cache_count=no_cache,
        **means,
    )


def check_weights(agent: str, weights: Mapping[str, float], tasks: set[str]) -> None:
    """Raises ConfigError when a weight is no number from 0 up, or the weights of the ``tasks`` are all 0."""
    for task in sorted(weights):
        if not 0 <= weights[task] < math.inf:
            raise ConfigError(
                "bad-weight",
                f"the weight of task {task!r} is {weights[task]}; it must be a finite number, 0 or more",
                where=f"eval set of {agent}",
                mend="mend its weight in the eval set",
            )
    if tasks and not any(weights.get(task, 1.0) > 0 for task in tasks):
        raise ConfigError(
            "bad-weight",
            f"the weights of all {len(tasks)} tasks that were measured are 0, so no task stands for production",
            where=f"eval set of {agent}",
            mend="give at least one task a weight above 0",
        )


def _known(agent: str, task: str, number: int, sample: Samples) -> dict[str, int | None]:
    names = ("fanout", "input_tokens", "cached_input_tokens", "output_tokens", "duration_ms")
    values = {name: sample.get(name) for name in names}
    wrong = next((name for name, value in values.items() if value is not None and value < 0), None)
    given, cached = values["input_tokens"], values["cached_input_tokens"]
    what = None
    if wrong is not None:
        what = f"{wrong} is {values[wrong]}"
    elif given is not None and cached is not None and cached > given:
        what = f"{cached} cached tokens are more than its {given} input tokens"
    if what is not None:
        raise IntegrityError(
            "impossible-samples",
            f"{what}: no run can have made that",
            where=f"{agent}::{task}::t{number}",
            mend="record the task again",
        )
    return values


def _mean(values: Sequence[int | None]) -> float | None:
    """Of the known ones; None when there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _weighted(row: Sequence[tuple[float, float | None]]) -> float | None:
    """None when one task with a weight is not known: leaving it out could hide the most expensive one."""
    counted = [(weight, value) for weight, value in row if weight > 0]
    if not counted or any(value is None for _, value in counted):
        return None
    # fsum: the same tasks in another order must give the same number.
    return math.fsum(weight * value for weight, value in counted if value is not None) / math.fsum(
        w for w, _ in counted
    )
