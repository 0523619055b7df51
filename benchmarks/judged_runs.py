"""The judge of pytest-fanout on drawn runs, driven as the session drives it: trial by trial, by what it needs next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from agent_draws import Ints

from pytest_fanout.judge import Draw, TrialTable, compare, judge_draws
from pytest_fanout.records import Comparison, JudgeRules, Limit

BASE_RUNS = 5
MOST_RUNS = 5
METRICS = ("fanout", "tokens")


@dataclass(frozen=True)
class Outcome:
    """One gate: its verdict, the new runs of each task on average, and their calls beside those of the fixed design."""

    verdict: str
    runs: float
    calls: int
    calls_fixed: int  # of five runs of every task

    @property
    def is_red(self) -> bool:
        return self.verdict != "pass"


def gate(base: Ints, new: Ints) -> Outcome:
    """One run of each task, then what the judge needs, until it needs nothing: at most five runs of a task."""
    anchor = _samples(base)

    def judged(runs: Ints) -> Comparison:
        return compare(anchor, _samples(new, runs), mode="live", tolerance=0.10, alpha=0.05)

    return _driven(judged, new, MOST_RUNS)


def gate_of_ten(base: Ints, new: Ints) -> Outcome:
    """The same for a class whose budget says ``trials = 10``, which are looked at five times."""
    anchor = _table(base)
    limits = tuple(Limit(metric, "p95", Fraction(10, 100)) for metric in METRICS)

    def judged(runs: Ints) -> Comparison:
        return judge_draws({"agent": Draw(anchor, _table(new, runs), limits, JudgeRules(trials=10))})["agent"]

    return _driven(judged, new, 10)


def _driven(judged: Callable[[Ints], Comparison], new: Ints, most: int) -> Outcome:
    runs = np.ones(len(new), dtype=np.int64)
    comparison = judged(runs)
    while comparison.needs:
        wanted = [int(task) for task in comparison.needs.tasks]
        if runs[wanted].max() + comparison.needs.trials > most:
            break
        runs[wanted] += comparison.needs.trials
        comparison = judged(runs)
    done = np.arange(new.shape[1]) < runs[:, None]
    fixed = int(new[:, :MOST_RUNS, 0].sum())
    return Outcome(comparison.verdict, float(runs.mean()), int(new[..., 0][done].sum()), fixed)


def _samples(table: Ints, runs: Ints | None = None) -> dict[str, dict[str, list[int]]]:
    """The shape that ``compare`` takes; of each task its first ``runs``, or all."""
    ends = np.full(len(table), table.shape[1]) if runs is None else runs
    return {
        f"{task:05d}": {metric: rows[:end, place].tolist() for place, metric in enumerate(METRICS)}
        for task, (rows, end) in enumerate(zip(table, ends, strict=True))
    }


def _table(table: Ints, runs: Ints | None = None) -> TrialTable:
    """The shape that ``judge_draws`` takes: tokens are the sum of two columns there."""
    samples, statuses, passed = {}, {}, {}
    for task, row in _samples(table, runs).items():
        trials = len(row["fanout"])
        zeros = (0,) * trials
        samples[task] = {"fanout": tuple(row["fanout"]), "input_tokens": tuple(row["tokens"]), "output_tokens": zeros}
        statuses[task], passed[task] = ("ok",) * trials, (True,) * trials
    return TrialTable(samples, statuses, passed)
