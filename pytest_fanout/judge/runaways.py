"""The backstop on single runs: a trial far beyond all that its task did in the anchor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import comb

from pytest_fanout.judge.arranged import SHARES, Arranged
from pytest_fanout.records import Runaway

#: A trial is a runaway above so many times the robust maximum of its task's own trials in the anchor.
TIMES = 3
#: A repeated runaway fails when an unchanged class of this noise would show so many such tasks, at most.
BY_CHANCE = 0.005
#: The chance that a task which ran away once does so again, where the anchor shows no higher one.
AGAIN = 0.1


def robust_maximum(values: Sequence[int]) -> int:
    """The largest value that is no runaway itself: at most three times the (lower) median."""
    ordered = sorted(values)
    median = ordered[(len(ordered) - 1) // 2]
    return max(value for value in ordered if value <= TIMES * median)


def runaways(arranged: Arranged) -> tuple[Runaway, ...]:
    """Tasks with a runaway in their new trials, at most one entry a task: that of the metric it is worst in.

    A task whose anchor ran away in as large a part of its trials is no news.
    """
    out = []
    columns = [
        (metric, arranged.anchor.column(metric), arranged.run.column(metric))
        for metric in arranged.metrics
        if metric not in SHARES
    ]
    fresh = [task for task in arranged.tasks if task not in arranged.still]
    chances = {metric: chance_of_runaway(before, fresh) for metric, before, _ in columns}
    for task in fresh:
        worst: tuple[bool, int, Fraction] | None = None
        entry: Runaway | None = None
        for metric, before, after in columns:
            known = [value for value in before[task] if value is not None]
            new = [value for value in after[task] if value is not None]
            if not known or not new:
                continue
            bound = max(TIMES * robust_maximum(known), TIMES)
            beyond = sum(value > bound for value in new)
            of_anchor = sum(value > bound for value in known)
            if not beyond or beyond * len(known) <= of_anchor * len(new):
                continue
            # how many tasks would be expected to repeat this by chance
            once, again = chances[metric]
            by_chance = len(fresh) * comb(len(new), beyond) * once * again ** (beyond - 1)
            repeated = beyond >= 2 and 2 * beyond >= len(new) and by_chance <= BY_CHANCE
            rank = (repeated, beyond, Fraction(max(new), bound))
            if worst is None or rank > worst:
                worst, entry = rank, Runaway(task, metric, max(new), bound, len(new), beyond, repeated)
        if entry is not None:
            out.append(entry)
    return tuple(out)


def chance_of_runaway(before: Mapping[str, Sequence[int | None]], tasks: Iterable[str]) -> tuple[float, float]:
    """How often the anchor's own trials run away from the others of their task: noise of the class, not of a change.

    Returns:
        The chance of a trial (half an event is added, so that a class that never did it is not held to never do it),
        and that of a further trial of a task that did it once, which is higher: tasks differ.
    """
    seen = of = trials_of_such = 0
    for task in tasks:
        known = [value for value in before[task] if value is not None]
        if len(known) < 2:
            continue
        away = 0
        if max(known) <= TIMES * max(min(known), 1):  # none can be beyond the others
            of += len(known)
            continue
        for index, value in enumerate(known):
            others = known[:index] + known[index + 1 :]
            away += value > max(TIMES * robust_maximum(others), TIMES)
        seen, of = seen + away, of + len(known)
        trials_of_such += len(known) if away else 0
    return (seen + 0.5) / (of + 1), max(AGAIN, seen / trials_of_such if trials_of_such else 0.0)


def is_open(runaway: Runaway) -> bool:
    """Whether a further trial can still tell: a first runaway is repeated twice, and on while most trials run away."""
    return not runaway.repeated and (runaway.trials < 3 or 2 * runaway.beyond > runaway.trials)
