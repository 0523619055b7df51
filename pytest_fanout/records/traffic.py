"""What production did, as its traces tell: distributions over tasks, weeks, and how unlike the eval set is.

Tokens are None where they are not known. A percentile is the gate's: the smallest value that this share of tasks does
not exceed, a value that a real task had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

#: The column that names the file of a row: no column of somebody's own is called so.
FILE_COLUMN = "__fanout_file"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over the tasks of a class. ``tasks`` know their value, ``missing`` do not and take no part.

    Percentiles and mean are None where more than 5 % of the tasks do not know their value, ``max`` where none does.
    """

    metric: str  # fanout, tool_calls, input_tokens, cached_input_tokens, output_tokens, tokens, duration_ms
    tasks: int
    missing: int
    mean: float | None
    p50: int | None
    p95: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class Unlike:
    """One metric of production beside the anchor of the class."""

    metric: str
    eval_p50: int | None
    eval_p95: int | None
    production_p50: int | None
    production_p95: int | None
    ratio_p95: float | None  # production's p95 over the gate's
    distance: float | None  # 0-1: largest gap between the two distribution functions (Kolmogorov-Smirnov)
    beyond: float | None  # share (0-1) of production's tasks above the largest eval trial


@dataclass(frozen=True, slots=True)
class Week:
    """One calendar week (Monday to Sunday, UTC) of a class. ``whole``: the traces reach from before it to after it."""

    monday: date
    whole: bool
    tasks: int
    users_per_day: float | None  # distinct users of a day, mean over the days with any task; None: users not known
    tasks_per_user_day: float | None
    tokens_per_task: float | None  # of the tasks that know them


@dataclass(frozen=True, slots=True)
class PlanningEvent:
    """Tasks per user and day that moved by 10 % or more from one whole week to the next. Changes are shares (0.1)."""

    monday: date  # of the later week
    before: float
    after: float
    change: float
    users_change: float | None
    tokens_change: float | None


@dataclass(frozen=True, slots=True)
class ClassTraffic:
    """Production of one class."""

    agent: str
    tasks: int
    distributions: tuple[Distribution, ...]
    weeks: tuple[Week, ...] = ()
    events: tuple[PlanningEvent, ...] = ()
    unlike: tuple[Unlike, ...] = ()  # where the class has an anchor
    weights: Mapping[str, float] = field(default_factory=dict)  # eval task -> share (0-1) of production's tasks
    weights_by: str | None = None  # the metric that the weights go by

    def of(self, metric: str) -> Distribution:
        return next(each for each in self.distributions if each.metric == metric)


@dataclass(frozen=True, slots=True)
class Traffic:
    """All classes that the sources hold, and what was found while they were read."""

    classes: tuple[ClassTraffic, ...]
    rows: int
    calls: int  # model calls that were counted
    repeated: int = 0  # calls that only repeat a call below them, or were exported twice
    failed: int = 0  # calls that ended in an error and told no usage: not counted
    unknown: int = 0  # counted calls whose usage is not known
    no_task: int = 0  # calls and tool calls that name no task: left out
    copies: int = 0  # of a source with a row a task: rows that say what another row says, counted once
    namesakes: int = 0  # rows whose task has the name of another row's, with other figures: each counts
