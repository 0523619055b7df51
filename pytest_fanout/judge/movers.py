"""Which tasks moved most between anchor and run."""

from __future__ import annotations

from fractions import Fraction

from pytest_fanout.judge.comparison import TrialTable, Values
from pytest_fanout.records import TaskDelta


def top_movers(base: TrialTable, run: TrialTable, most: int = 10) -> tuple[TaskDelta, ...]:
    """The tasks whose mean fanout moved most, then whose mean tokens did; tasks that did not move are left out.

    A task that only one side knows is compared with nothing at all, so that a heavy new task stands first.
    """
    columns = [(base.column(metric), run.column(metric)) for metric in ("fanout", "tokens")]
    ranked = []
    for task in sorted(run.statuses):  # what did not run has not moved: it is missing or removed
        (fanout_base, fanout_run), (tokens_base, tokens_run) = (
            (before.get(task, ()), after.get(task, ())) for before, after in columns
        )
        if fanout_base == fanout_run and tokens_base == tokens_run:
            continue
        moved = (_distance(fanout_base, fanout_run), _distance(tokens_base, tokens_run))
        if any(moved):
            ranked.append((moved, TaskDelta(task, fanout_base, fanout_run, tokens_base, tokens_run)))
    ranked.sort(key=lambda entry: (-entry[0][0], -entry[0][1], entry[1].task))
    return tuple(delta for _, delta in ranked[:most])


def _distance(base: Values, run: Values) -> Fraction:
    before, after = _mean(base), _mean(run)
    return abs(after - before)


def _mean(values: Values) -> Fraction:
    known = [value for value in values if value is not None]
    return Fraction(sum(known), len(known)) if known else Fraction(0)
