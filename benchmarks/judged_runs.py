"""The judge of pytest-fanout on drawn runs, driven as the session drives it: trial by trial, by what it needs next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from agent_draws import Ints

from pytest_fanout.judge import compare

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


def gate(base: Ints, new: Ints, *, most: int = MOST_RUNS) -> Outcome:
    """One run of each task, then what the judge needs, until it needs nothing: at most ``most`` runs of a task."""
    anchor = samples_of(base)
    runs = np.ones(len(new), dtype=np.int64)
    while True:
        comparison = compare(anchor, samples_of(new, runs), mode="live", tolerance=0.10, alpha=0.05, trials=most)
        wanted = [int(task) for task in comparison.needs.tasks]
        if not wanted or runs[wanted].max() + comparison.needs.trials > most:
            break
        runs[wanted] += comparison.needs.trials
    done = np.arange(new.shape[1]) < runs[:, None]
    fixed = int(new[:, :MOST_RUNS, 0].sum())
    return Outcome(comparison.verdict, float(runs.mean()), int(new[..., 0][done].sum()), fixed)


def samples_of(table: Ints, runs: Ints | None = None) -> dict[str, dict[str, list[int]]]:
    """The shape that ``compare`` takes; of each task its first ``runs``, or all."""
    ends = np.full(len(table), table.shape[1]) if runs is None else runs
    return {
        f"{task:05d}": {metric: rows[:end, place].tolist() for place, metric in enumerate(METRICS)}
        for task, (rows, end) in enumerate(zip(table, ends, strict=True))
    }
