"""A class's run beside its anchor: for each metric the two values, the bound, and whether it is over. Raw numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from pytest_fanout.judge.distribution import Unknown, largest, mean, share_percent, statistic
from pytest_fanout.judge.limits import is_over, limit_value
from pytest_fanout.records import MEASURED, Baseline, ControlTrial, Limit, MetricResult, TaskRun

Values = tuple[int | None, ...]

#: Metrics that mark trials by their status.
STATUSES: Mapping[str, frozenset[str]] = {
    "capped": frozenset({"capped"}),
    "failed": frozenset({"failed", "timeout"}),
    "timed-out": frozenset({"timeout"}),
}
#: Shown always, gated or not.
SHOWN = (
    ("fanout", "p50"),
    ("fanout", "p95"),
    ("fanout", "max"),
    ("tokens", "p50"),
    ("tokens", "p95"),
    ("tokens", "max"),
)


@dataclass(frozen=True, slots=True)
class TrialTable:
    """The trials of a class: task -> metric -> one value a trial. ``statuses`` and ``passed`` in the same order.

    ``beginnings``: of each trial, the recording that its beginning was first drawn for; where that is known.
    """

    samples: Mapping[str, Mapping[str, Values]]
    statuses: Mapping[str, tuple[str, ...]]
    passed: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    beginnings: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    _columns: dict[str, Mapping[str, Values]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _known: dict[tuple[str, str, str], int | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def trials(self) -> int:
        return sum(len(statuses) for statuses in self.statuses.values())

    @property
    def pass_share(self) -> tuple[int, int]:
        """Trials passed, trials."""
        return sum(sum(values) for values in self.passed.values()), self.trials

    def only(self, tasks: Iterable[str]) -> TrialTable:
        """The same table with only these tasks."""
        keep = set(tasks)
        return TrialTable(
            {task: row for task, row in self.samples.items() if task in keep},
            {task: row for task, row in self.statuses.items() if task in keep},
            {task: row for task, row in self.passed.items() if task in keep},
            {task: row for task, row in self.beginnings.items() if task in keep},
        )

    def column(self, metric: str) -> Mapping[str, Values]:
        """task -> values of ``metric``. ``tokens`` is input + output; a tool that a trial never called is 0."""
        if metric not in self._columns:  # a verdict asks for each of the few some fifty times
            self._columns[metric] = self._column(metric)
        return self._columns[metric]

    def _column(self, metric: str) -> dict[str, Values]:
        if metric in STATUSES:
            marked = STATUSES[metric]
            return {task: tuple(int(status in marked) for status in row) for task, row in self.statuses.items()}
        out: dict[str, Values] = {}
        for task, row in self.samples.items():
            trials = len(self.statuses[task])
            if metric == "tokens" and "tokens" not in row:
                unknown: Values = (None,) * trials
                pairs = zip(row.get("input_tokens", unknown), row.get("output_tokens", unknown), strict=True)
                out[task] = tuple(None if a is None or b is None else a + b for a, b in pairs)
            else:
                absent: Values = ((0,) if "[" in metric else (None,)) * trials
                out[task] = tuple(row.get(metric, absent))
        return out


_OF_BASELINES: dict[int, tuple[Baseline, TrialTable]] = {}
_MOST_TABLES = 128


def table_of_baseline(baseline: Baseline) -> TrialTable:
    """The anchor's trials."""
    kept = _OF_BASELINES.get(id(baseline))  # kept with its anchor, so that no other one can have its id
    if kept is not None:
        return kept[1]
    if len(_OF_BASELINES) >= _MOST_TABLES:
        _OF_BASELINES.pop(next(iter(_OF_BASELINES)), None)
    table = _table_of_baseline(baseline)
    _OF_BASELINES[id(baseline)] = (baseline, table)
    return table


def _table_of_baseline(baseline: Baseline) -> TrialTable:
    return TrialTable(
        {task: entry.samples for task, entry in baseline.tasks.items()},
        {task: tuple(trial.status for trial in entry.trials) for task, entry in baseline.tasks.items()},
        {task: tuple(trial.passed for trial in entry.trials) for task, entry in baseline.tasks.items()},
        {task: tuple(trial.beginning for trial in entry.trials) for task, entry in baseline.tasks.items()},
    )


def table_of_runs(runs: Sequence[TaskRun]) -> TrialTable:
    """The measured trials among ``runs``, capped, failed and timed-out ones included: they are the expensive ones."""
    by_task: dict[str, list[TaskRun]] = {}
    for run in sorted(runs, key=lambda run: run.trial):
        if run.status in MEASURED:
            by_task.setdefault(run.task, []).append(run)
    samples: dict[str, dict[str, Values]] = {}
    for task, trials in by_task.items():
        rows = [trial.samples for trial in trials]
        names = sorted({"input_tokens", "output_tokens"}.union(*rows))
        if all(len(row) == len(names) for row in rows):  # each has all of them
            columns = zip(*(map(row.__getitem__, names) for row in rows), strict=True)
            samples[task] = dict(zip(names, columns, strict=True))
        else:
            samples[task] = {name: _row(rows, name, 0 if "[" in name else None) for name in names}
    return TrialTable(
        samples,
        {task: tuple(trial.status for trial in trials) for task, trials in by_task.items()},
        {task: tuple(trial.passed for trial in trials) for task, trials in by_task.items()},
        {task: tuple(trial.shared_prefix or trial.recording for trial in trials) for task, trials in by_task.items()},
    )


def _row(rows: Sequence[Mapping[str, int | None]], name: str, absent: int | None) -> Values:
    return tuple([row.get(name, absent) for row in rows])


def table_of_control(trials: Sequence[ControlTrial]) -> TrialTable:
    """The trials of a control arm, of one class."""
    return table_of_runs(
        [TaskRun(made.agent, made.task, made.trial, made.status, made.passed, made.samples) for made in trials]
    )


def value_of(table: TrialTable, metric: str, statistic_name: str, *, unknown: Unknown = "refuse") -> int | None:
    """One statistic of one metric of a class; ``share`` in percent rounded up; None: not known."""
    key = (metric, statistic_name, unknown)
    if key not in table._known:
        column = table.column(metric)
        table._known[key] = (
            share_percent(column) if statistic_name == "share" else statistic(column, statistic_name, unknown=unknown)
        )
    return table._known[key]


def beside(
    base: TrialTable | None, run: TrialTable, limits: Sequence[Limit], *, scope: str = "all"
) -> tuple[MetricResult, ...]:
    """Every gated metric and the always-shown ones, base beside run, by raw numbers.

    Unknown samples are taken the unfavourable way round (largest in the run, smallest in the base), unless both sides
    hold the very same values, so that a replay of the anchor never differs from it.
    """
    gated = {limit.name: limit for limit in limits}
    names = [(metric, stat) for metric, stat in SHOWN if f"{metric}.{stat}" not in gated]
    names = [(limit.metric, limit.statistic) for limit in limits] + names
    results = []
    for metric, stat in names:
        run_column = run.column(metric)
        same = base is not None and base.column(metric) == run_column
        run_value = value_of(run, metric, stat, unknown="high")
        base_value = None if base is None else run_value if same else value_of(base, metric, stat, unknown="low")
        limit = gated.get(f"{metric}.{stat}")
        top, top_task = largest(run_column)
        results.append(
            MetricResult(
                name=f"{metric}.{stat}",
                base=base_value,
                run=run_value,
                limit=None if limit is None else limit_value(limit, base_value),
                over=limit is not None and run_value is not None and is_over(limit, base_value, run_value),
                gated=limit is not None,
                n=sum(1 for values in run_column.values() if values),
                trials=run.trials,
                max=top,
                max_task=top_task,
                scope=scope,
            )
        )
    return tuple(results)


def tasks_needed(statistic_name: str) -> int:
    """Tasks from which on a percentile is not simply the largest value: 20 for p95, 100 for p99; 1 for the others."""
    shares = {"p90": Fraction(1, 10), "p95": Fraction(1, 20), "p99": Fraction(1, 100), "p99.9": Fraction(1, 1000)}
    share = shares.get(statistic_name)
    return 1 if share is None else int(1 / share)


def stats_of(baseline: Baseline) -> dict[str, dict[str, int | str | None]]:
    """What an anchor's file shows its reviewer: mean (two decimals, as text) and percentiles of the main metrics."""
    table = table_of_baseline(baseline)
    stats: dict[str, dict[str, int | str | None]] = {}
    for metric in ("fanout", "tokens", "tool_calls"):
        average = mean(table.column(metric))
        stats[metric] = {"mean": None if average is None else two_decimals(average)}
        stats[metric] |= {name: value_of(table, metric, name) for name in ("p50", "p90", "p95", "p99", "max")}
    return stats


def two_decimals(value: Fraction) -> str:
    """A number that is not negative, rounded half up, e.g. ``4.90``."""
    hundredths = floor(value * 100 + Fraction(1, 2))
    return f"{hundredths // 100}.{hundredths % 100:02d}"
