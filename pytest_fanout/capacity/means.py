"""What one task of a class costs on average: each task counts once, weighted by its share in production.

Per-task sums already hold every call of the task, so fanout never multiplies tokens here or later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.records import Samples

Trials = Mapping[str, Sequence[Samples]]  # task -> its trials

#: Up to this share of trials without known tokens the others of the same task stand in for them.
UNKNOWN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task, as the mean of its trials; tokens are sums over its calls. None: not known."""

    task: str
    weight: float
    calls: float | None = None
    new_input: float | None = None  # input tokens that were not cached (cache writes are among them)
    cached_input: float | None = None
    output: float | None = None
    cache_write: float | None = None
    held_token_s: float | None = None  # token-seconds that its calls hold in a KV cache, by recorded durations
    model_s: float | None = None  # of all calls, overlapping ones in full
    tool_s: float | None = None
    residency_s: float | None = None
    context_max: float | None = None  # tokens of the longest input
    tools: Mapping[str, float] = field(default_factory=dict)  # seconds by name of the tool

    @property
    def context(self) -> float:
        """Mean tokens of context while a call runs: its input and half of its output."""
        if not self.calls or self.new_input is None or self.cached_input is None or self.output is None:
            return 0.0
        return (self.new_input + self.cached_input + self.output / 2) / self.calls

    @property
    def running_token_s(self) -> float | None:
        """Token-seconds held while its calls run."""
        if self.held_token_s is not None:
            return self.held_token_s
        return None if self.model_s is None or self.output is None else self.model_s * self.context

    @property
    def idle_token_s(self) -> float | None:
        """Token-seconds held while it waits for tools, so that the next call finds its prefix."""
        return None if self.tool_s is None or self.output is None else self.tool_s * self.context


@dataclass(frozen=True, slots=True)
class TaskMeans:
    """Means per task: calls, tokens, seconds. None: not known. ``trials`` and the rest count trials."""

    tasks: int = 0
    trials: int = 0
    calls: float | None = None
    new_input: float | None = None
    cached_input: float | None = None
    output: float | None = None
    cache_write: float | None = None
    residency_s: float | None = None
    model_s: float | None = None
    tool_s: float | None = None
    running_token_s: float | None = None
    idle_token_s: float | None = None
    trials_without_tokens: int = 0
    trials_without_cache_count: int = 0
    rows: tuple[TaskRow, ...] = ()

    @property
    def context_max(self) -> float | None:
        """Tokens of the longest input of any task with a weight."""
        known = [row.context_max for row in self.rows if row.weight > 0]
        return max((value for value in known if value is not None), default=None)

    @property
    def tokens(self) -> float | None:
        if self.new_input is None or self.cached_input is None or self.output is None:
            return None
        return self.new_input + self.cached_input + self.output


#: Fields of a row that are means over its trials, and the samples that they come from, with their scale.
_SUMS = (
    ("calls", "fanout", 1.0),
    ("model_s", "model_ms", 1_000.0),
    ("tool_s", "tool_ms", 1_000.0),
    ("residency_s", "duration_ms", 1_000.0),
    ("held_token_s", "context_token_ms", 1_000.0),
    ("context_max", "context_max", 1.0),
)


def task_means(agent: str, trials: Trials, weights: Mapping[str, float], *, use_cache: bool = True) -> TaskMeans:
    """Means over tasks of the means over their trials; a task without a weight has 1.

    ``use_cache`` False counts cached tokens as new ones. A trial that does not say how much was cached counts as
    uncached, which can only make the estimate larger.

    Raises:
        IntegrityError: samples that cannot be (negative, or more cached than input tokens), naming task and trial.
    """
    rows: list[TaskRow] = []
    total = no_tokens = no_cache = 0
    for task in sorted(trials):
        if not trials[task]:
            continue
        known = [_known(agent, task, number, sample) for number, sample in enumerate(trials[task], 1)]
        total += len(known)
        parts = []
        for sample in known:
            given, cached, written = sample["input_tokens"], sample["cached_input_tokens"], sample["output_tokens"]
            if given is None or written is None:
                no_tokens += 1
                continue
            no_cache += cached is None and given > 0
            reused = (cached or 0) if use_cache else 0
            parts.append((given - reused, reused, written, min(sample["cache_write_tokens"] or 0, given - reused)))
        new, reused_mean, output, write = (_mean([part[position] for part in parts]) for position in range(4))
        sums: dict[str, Any] = {
            name: None if (value := _mean([sample[source] for sample in known])) is None else value / scale
            for name, source, scale in _SUMS
        }
        row = TaskRow(task, weights.get(task, 1.0), None, new, reused_mean, output, write)
        rows.append(replace(row, **sums, tools=_tools(trials[task])))
    if no_tokens > UNKNOWN_SHARE * total:
        rows = [replace(row, new_input=None, cached_input=None, output=None, cache_write=None) for row in rows]
    return replace(means_of(rows), trials=total, trials_without_tokens=no_tokens, trials_without_cache_count=no_cache)


def means_of(rows: Sequence[TaskRow]) -> TaskMeans:
    """The weighted means of some tasks; a field is None where a task with a weight does not know it."""
    names = (
        "calls", "new_input", "cached_input", "output", "cache_write", "residency_s", "model_s", "tool_s",
        "running_token_s", "idle_token_s",
    )  # fmt: skip
    means: dict[str, Any] = {name: _weighted([(row.weight, getattr(row, name)) for row in rows]) for name in names}
    return TaskMeans(tasks=len(rows), rows=tuple(rows), **means)


def with_cached_share(means: TaskMeans, most: float) -> TaskMeans:
    """The same tasks where at most ``most`` (0-1) of all input tokens are cached; what is not, is new."""
    if means.new_input is None or means.cached_input is None or means.tokens is None:
        return means
    given = means.new_input + means.cached_input
    if given == 0 or means.cached_input <= most * given:
        return means
    kept = most * given / means.cached_input
    rows = [
        row
        if row.new_input is None or row.cached_input is None
        else replace(row, new_input=row.new_input + (1 - kept) * row.cached_input, cached_input=kept * row.cached_input)
        for row in means.rows
    ]
    return replace(
        means_of(rows),
        trials=means.trials,
        trials_without_tokens=means.trials_without_tokens,
        trials_without_cache_count=means.trials_without_cache_count,
    )


def _tools(trials: Sequence[Samples]) -> dict[str, float]:
    """Seconds per trial by tool; a trial that does not name a tool did not use it."""
    names = sorted({name for sample in trials for name in sample if name.startswith("tool_ms[")})
    return {
        name[len("tool_ms[") : -1]: sum(sample.get(name) or 0 for sample in trials) / len(trials) / 1_000
        for name in names
    }


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
    names = (
        "input_tokens",
        "cached_input_tokens",
        "output_tokens",
        "cache_write_tokens",
        *(name for _, name, _ in _SUMS),
    )
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
