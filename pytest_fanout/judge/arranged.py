"""A class on a new draw as arrays, and what its trials show at one look: effects, their intervals, the heavy tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_fanout.judge.comparison import TrialTable, Values, value_of
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.looks import schedule
from pytest_fanout.judge.shuffles import Block
from pytest_fanout.judge.small_samples import student_quantile
from pytest_fanout.records import Limit

#: A new draw of fewer tasks is never a pass, and its heavy tasks are judged from the second number on.
FEWEST_TASKS = 10
FEWEST_TASKS_HEAVY = 20
#: The dearest tasks, ranked by base and new draw pooled: a part of all, and at least so many.
HEAVY_SHARE = 0.2
FEWEST_HEAVY = 3
#: Shares of trials, e.g. of capped ones, are compared as differences, not as ratios.
SHARES = ("capped", "failed")
#: By so much, in parts of 1, the share of capped trials may rise where no limit says otherwise.
CAPPED_RISE = 0.05
#: Differences of the anchor's trials that it takes to believe that a metric has no noise.
FEWEST_REPEATS = 10


@dataclass(frozen=True, slots=True)
class Test:
    """A hypothesis of the family: this metric did not grow, over these weights of the tasks."""

    metric: str
    statistic: str  # body heavy share


@dataclass(frozen=True, slots=True)
class Shown:
    """What a look shows of one test. ``effect``: ratio, or difference of shares."""

    test: Test
    effect: float
    interval: tuple[float | None, float | None]
    threshold: float
    weights: Any  # tasks
    scale: str  # log, raw or share
    unit: float  # what a raw difference is divided by
    n: int  # tasks that take part

    @property
    def is_over(self) -> bool:
        return self.effect > self.threshold

    @property
    def is_shown_within(self) -> bool:
        upper = self.interval[1]
        return upper is not None and upper < self.threshold


class Arranged:
    """The tasks that anchor and new draw share, sorted, and their values as arrays by numbers of trials."""

    def __init__(self, draw: Draw) -> None:
        import numpy as np

        self.draw = draw
        self.tasks: tuple[str, ...] = tuple(
            sorted(task for task in set(draw.anchor.statuses) & set(draw.run.statuses) if draw.run.statuses[task])
        )
        self.still = frozenset(draw.same) & set(self.tasks)
        self.anchor, self.run = draw.anchor.only(self.tasks), draw.run.only(self.tasks)
        self.counts = {task: len(self.run.statuses[task]) for task in self.tasks}
        self.trials = max((self.counts[task] for task in self.tasks if task not in self.still), default=0)
        self.limits: dict[str, list[Limit]] = {}
        for limit in draw.limits:
            if limit.evidence and limit.increase is not None:
                self.limits.setdefault(limit.metric, []).append(limit)
        if any("capped" in self.run.statuses[task] for task in self.tasks):
            self.limits.setdefault("capped", [])
        self.metrics = tuple(self.limits)
        self.tests = tuple(self._tests())
        self.unknown: tuple[str, ...] = ()
        base, run = self._values()
        shapes = [(len(self.anchor.statuses[task]), self.counts[task], task in self.still) for task in self.tasks]
        self._blocks = []
        for shape in sorted(set(shapes)):
            at = np.array([place for place, of_task in enumerate(shapes) if of_task == shape])
            parts = [np.array([rows[place] for place in at], dtype=float) for side in (base, run) for rows in side]
            half = len(self.metrics)
            self._blocks.append((at, np.stack(parts[:half]), np.stack(parts[half:]), shape[2]) if half else None)
        fresh = [shape[0] for shape in shapes if not shape[2]]
        self.trials_base = len(fresh) / sum(1 / count for count in fresh) if fresh else 1.0
        self.schedule = schedule(max(draw.rules.trials, self.trials, 1))

    def _tests(self) -> Iterable[Test]:
        for metric, limits in self.limits.items():
            if metric in SHARES:
                yield Test(metric, "share")
                continue
            yield Test(metric, "body")
            if len(self.tasks) >= FEWEST_TASKS_HEAVY and any(limit.statistic != "p50" for limit in limits):
                yield Test(metric, "heavy")

    def _values(self) -> tuple[list[list[Values]], list[list[Values]]]:
        """By metric and task the values of both sides; what is not known is taken the unfavourable way round."""
        base: list[list[Values]] = []
        run: list[list[Values]] = []
        unknown = []
        for metric in self.metrics:
            before, after = self.anchor.column(metric), self.run.column(metric)
            gaps = sum(value is None for task in self.tasks for value in (*before[task], *after[task]))
            if gaps:
                every = sum(len(before[task]) + len(after[task]) for task in self.tasks)
                if gaps * 20 > every:
                    unknown.append(metric)
                before, after = _filled(before, after, self.tasks)
            base.append([before[task] for task in self.tasks])
            run.append([after[task] for task in self.tasks])
        self.unknown = tuple(unknown)
        return base, run

    def blocks(self, first: int, last: int) -> list[Block]:
        """Anchor and the new trials ``first`` … ``last`` (from 1) of every task that has them; raw values."""
        import numpy as np

        out = []
        for block in self._blocks:
            if block is None:
                continue
            at, base, run, still = block
            new = run if still else run[:, :, first - 1 : last]
            if new.shape[2]:
                out.append(Block(at, np.concatenate([base, new], axis=2), base.shape[2], still))
        return out

    def threshold(self, metric: str, unit: float) -> float:
        """The effect that the limits of a metric allow: the tightest of them."""
        bounds = []
        for limit in self.limits[metric]:
            assert limit.increase is not None
            value = value_of(self.anchor, metric, limit.statistic, unknown="low")
            if metric in SHARES:
                bounds.append(max(value or 0, 1) * float(limit.increase) / 100 + limit.at_least / 100)
            else:
                bounds.append(max(1 + float(limit.increase), 1 + limit.at_least / (value or unit)))
        return min(bounds, default=CAPPED_RISE)

    def is_exact(self, metric: str, last: int) -> bool:
        """Whether the metric repeats exactly in the anchor and in the new trials so far: then nothing is chance."""
        before, after = self.anchor.column(metric), self.run.column(metric)
        fresh = [task for task in self.tasks if task not in self.still]
        if not fresh or sum(len(before[task]) - 1 for task in fresh) < FEWEST_REPEATS:
            return False
        return all(
            len(before[task]) > 1 and len(set(before[task])) == 1 and len(set(after[task][:last])) == 1
            for task in fresh
        )

    def trials_between(self, first: int, last: int) -> TrialTable:
        """The new draw with only these trials, of the tasks that have them; still tasks whole."""

        def cut(task: str, row: Values) -> Values:
            return row if task in self.still else row[first - 1 : last]

        kept = [task for task in self.tasks if task in self.still or self.counts[task] >= first]
        return TrialTable(
            {task: {name: cut(task, row) for name, row in self.run.samples[task].items()} for task in kept},
            {
                task: self.run.statuses[task] if task in self.still else self.run.statuses[task][first - 1 : last]
                for task in kept
            },
        )


def _filled(
    before: dict[str, Values], after: dict[str, Values], tasks: Sequence[str]
) -> tuple[dict[str, Values], dict[str, Values]]:
    base, run = {}, {}
    for task in tasks:
        known = [value for value in before[task] if value is not None]
        both = known + [value for value in after[task] if value is not None]
        if not known or len(both) == len(known):  # one side knows nothing of this task: it takes no part
            base[task], run[task] = (0,) * len(before[task]), (0,) * len(after[task])
            continue
        low, high = min(known), max(both)
        base[task] = tuple(low if value is None else value for value in before[task])
        run[task] = tuple(high if value is None else value for value in after[task])
    return base, run


def look(arranged: Arranged, last: int, first: int = 1) -> tuple[list[Shown], list[Block], list[float | None]]:
    """What the new trials ``first`` … ``last`` show.

    Returns:
        Each test's effect, the blocks whose values are on the scale of the tests (for the shuffles), and each metric's
        noise (SD of the logarithm within tasks; None where no task was repeated).
    """
    import numpy as np

    blocks = arranged.blocks(first, last)
    n = len(arranged.tasks)
    scaled: list[list[Any]] = [[] for _ in blocks]
    shown: dict[Test, Shown] = {}
    noises: list[float | None] = []
    for place, metric in enumerate(arranged.metrics):
        live = np.zeros(n, dtype=bool)
        for block in blocks:
            live[block.at] = (block.values[place] != 0).any(axis=1)
        if metric in SHARES:
            live[:] = False
            for block in blocks:
                live[block.at] = True
        has_zero = any(bool((block.values[place][live[block.at]] == 0).any()) for block in blocks)
        scale = "share" if metric in SHARES else "raw" if has_zero else "log"
        base, new, pooled = np.zeros(n), np.zeros(n), np.full(n, -np.inf)
        squares = degrees = 0.0
        for index, block in enumerate(blocks):
            values = block.values[place]
            logs = np.log(np.maximum(values, 1.0))
            used = logs if scale == "log" else values
            scaled[index].append(used)
            split = block.trials_base
            base[block.at], new[block.at] = used[:, :split].mean(axis=1), used[:, split:].mean(axis=1)
            pooled[block.at] = used.mean(axis=1)
            if not block.still:
                for side in (logs[:, :split], logs[:, split:]):
                    if side.shape[1] > 1:
                        squares += float(((side - side.mean(axis=1, keepdims=True)) ** 2).sum())
                        degrees += side.shape[0] * (side.shape[1] - 1)
        noises.append(math.sqrt(squares / degrees) if degrees else None)
        count = int(live.sum())
        difference = new - base
        for test in arranged.tests:
            if test.metric != metric:
                continue
            weights = _weights(test, live, pooled, scale)
            unit = 1.0
            if scale == "raw":
                unit = float(weights @ base) or 1.0
            if count == 0:
                shown[test] = Shown(test, 1.0, (1.0, 1.0), arranged.threshold(metric, 1.0), weights, scale, 1.0, 0)
                continue
            effect = float(weights @ difference) / unit
            spread = _spread(weights, difference / unit)
            members = int((weights > 0).sum())
            ends: tuple[float | None, float | None] = (None, None)
            if spread is not None:
                reach = student_quantile(0.95, members - 1) * spread
                ends = (_told(effect - reach, scale), _told(effect + reach, scale))
            threshold = arranged.threshold(metric, unit)
            shown[test] = Shown(test, _told(effect, scale), ends, threshold, weights, scale, unit, members)
    stacked = [
        Block(block.at, np.stack(values), block.trials_base, block.still)
        for block, values in zip(blocks, scaled, strict=True)
        if values
    ]
    return [shown[test] for test in arranged.tests if test in shown], stacked, noises


def _told(value: float, scale: str) -> float:
    return math.exp(value) if scale == "log" else value if scale == "share" else 1 + value


def _weights(test: Test, live: Any, pooled: Any, scale: str) -> Any:
    """Of the tasks, summing to 1. Ranking and weights are those of both sides pooled: no shuffle changes them."""
    import numpy as np

    count = int(live.sum())
    if test.statistic != "heavy" or count == 0:
        return live / max(count, 1)
    size = min(count, max(FEWEST_HEAVY, math.ceil(HEAVY_SHARE * count)))
    ranked = np.where(live, pooled, -np.inf)
    chosen = np.argsort(-ranked, kind="stable")[:size]
    weights = np.zeros(len(live))
    weights[chosen] = np.exp(pooled[chosen] - pooled[chosen].max()) if scale == "log" else pooled[chosen]
    total = weights.sum()
    return weights / total if total else live / count


def _spread(weights: Any, difference: Any) -> float | None:
    """Standard error of a weighted mean of the tasks' differences; None for a single task."""
    members = weights > 0
    count = int(members.sum())
    if count < 2:
        return None
    of, w = difference[members], weights[members]
    rest = of - w @ of
    return math.sqrt(float((w**2) @ rest**2) * count / (count - 1))
