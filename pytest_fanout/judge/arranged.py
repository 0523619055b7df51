"""A class on a new draw as arrays, and what its trials show at one look: effects, their intervals, the heavy tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_fanout.judge.comparison import TrialTable, Values, value_of
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.looks import schedule
from pytest_fanout.judge.shuffles import Block
from pytest_fanout.judge.small_samples import student_quantile
from pytest_fanout.judge.strata import Beginnings, is_paired, strata_of
from pytest_fanout.records import Limit

#: A new draw of fewer tasks is never a pass, and its heavy tasks are judged from the second number on.
FEWEST_TASKS = 10
FEWEST_TASKS_HEAVY = 20
#: The dearest tasks, ranked by base and new draw pooled: a part of all, and at least so many.
HEAVY_SHARE = 0.2
FEWEST_HEAVY = 3
#: Their weights: their size to this power, so that the very dearest count most.
WEIGHT = 1.5
#: A trial farther from its task's median than so many usual differences is drawn in, in the second sum of a body test.
FAR = 3.0
#: Shares of trials, e.g. of capped ones, are compared as differences, not as ratios.
SHARES = ("capped", "failed", "timed-out")
#: By so much, in parts of 1, the share of capped trials may rise where no limit says otherwise; of timed-out ones too.
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
    bounds: tuple[Any, Any] | None = None  # of each task's values, where single far ones are drawn in

    @property
    def is_over(self) -> bool:
        return self.effect > self.threshold

    @property
    def is_shown_within(self) -> bool:
        upper = self.interval[1]
        return upper is not None and upper <= self.threshold


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
        self.fresh = tuple(task for task in self.tasks if task not in self.still)
        self.whole = min((self.counts[task] for task in self.fresh), default=0)
        self.trials = max((self.counts[task] for task in self.fresh), default=0)
        self._base_values: dict[str, int | None] = {}
        self.limits: dict[str, list[Limit]] = {}
        for limit in draw.limits:
            if limit.evidence and limit.increase is not None:
                self.limits.setdefault(limit.metric, []).append(limit)
        statuses = {status for task in self.tasks for status in self.run.statuses[task]}
        if "capped" in statuses:
            self.limits.setdefault("capped", [])
        if "timeout" in statuses and "failed" not in self.limits:  # the cap on wall_seconds; failed.share counts it
            self.limits["timed-out"] = []
        self.metrics = tuple(self.limits)
        self.tests = tuple(self._tests())
        self.unknown: tuple[str, ...] = ()
        base, run = self._values()
        # places of tasks with new trials that share their beginnings with the anchor's
        fresh = [at for at, task in enumerate(self.tasks) if task not in self.still]
        self._paired = [at for at in fresh if is_paired(*self._of(self.tasks[at]))]
        self._paired_values = [
            (np.array([row[at] for row in base], dtype=float), np.array([row[at] for row in run], dtype=float))
            for at in self._paired
        ]
        shapes = [(len(self.anchor.statuses[task]), self.counts[task], task in self.still) for task in self.tasks]
        paired = set(self._paired)
        plain = [at for at in range(len(self.tasks)) if at not in paired]
        self._blocks = []
        for shape in sorted({shapes[at] for at in plain}):
            at = np.array([place for place in plain if shapes[place] == shape])
            parts = [np.array([rows[place] for place in at], dtype=float) for side in (base, run) for rows in side]
            half = len(self.metrics)
            self._blocks.append((at, np.stack(parts[:half]), np.stack(parts[half:]), shape[2]) if half else None)
        # what is compared with its like becomes known in proportion to its trials, as beside an endless anchor
        told = [0.0 if at in paired else 1 / shapes[at][0] for at in fresh]
        self.trials_base = (len(told) / sum(told) if sum(told) else math.inf) if told else 1.0
        self.schedule = schedule(max(draw.rules.trials, self.trials, 1))

    @property
    def is_paired(self) -> bool:
        """Whether new trials share their beginnings with the anchor's."""
        return bool(self._paired)

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
        return out + self._strata(first, last)

    def _of(self, task: str) -> tuple[Beginnings, Beginnings]:
        """The beginnings of a task's trials, of the anchor and new."""
        return self.anchor.beginnings.get(task, ()), self.run.beginnings.get(task, ())

    def _strata(self, first: int, last: int) -> list[Block]:
        """The same of tasks whose new trials share beginnings with the anchor's: a row for each stratum."""
        import numpy as np

        if not self.metrics:
            return []

        shapes: dict[tuple[int, int], list[tuple[int, float, Any]]] = {}
        for at, (base, run) in zip(self._paired, self._paired_values, strict=True):
            for stratum in strata_of(*self._of(self.tasks[at]), first, last):
                row = np.concatenate([base[:, stratum.base], run[:, stratum.run]], axis=1)
                shape = len(stratum.base), len(stratum.run)
                shapes.setdefault(shape, []).append((at, stratum.share, row))
        return [
            Block(
                np.array([at for at, _, _ in rows]),
                np.stack([row for _, _, row in rows], axis=1),
                shape[0],
                shares=np.array([share for _, share, _ in rows]),
            )
            for shape, rows in sorted(shapes.items())
        ]

    def base_value(self, metric: str, statistic: str) -> int | None:
        """A statistic of the anchor over the shared tasks; what is not known ranks low."""
        key = f"{metric}.{statistic}"
        if key not in self._base_values:
            self._base_values[key] = value_of(self.anchor, metric, statistic, unknown="low")
        return self._base_values[key]

    def threshold(self, metric: str, unit: float, *, rounded: bool = True) -> float:
        """The effect that the limits of a metric allow: the tightest of them.

        Growth by ``at_least`` itself is over. An effect is a mean over many tasks, and rarely a whole number: what
        rounds to ``at_least`` or more counts as such, or else a class that goes from one call to two never would; not
        ``rounded``: only what is all of it.
        """
        bounds = []
        for limit in self.limits[metric]:
            assert limit.increase is not None
            value = self.base_value(metric, limit.statistic)
            least = max(limit.at_least - 0.5, 0.0) if rounded else limit.at_least
            if metric in SHARES:
                bounds.append(max(max(value or 0, 1) * float(limit.increase), least) / 100)
            else:
                bounds.append(max(1 + float(limit.increase), 1 + least / (value or unit)))
        return min(bounds, default=CAPPED_RISE)

    def is_exact(self, metric: str, last: int) -> bool:
        """Whether the metric repeats exactly in the anchor and in the new trials so far: then nothing is chance."""
        before, after = self.anchor.column(metric), self.run.column(metric)
        if metric in SHARES or sum(len(before[task]) - 1 for task in self.fresh) < FEWEST_REPEATS:
            return False
        return all(
            len(before[task]) > 1 and len(set(before[task])) == 1 and len(set(after[task][:last])) == 1
            for task in self.fresh
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
    before: Mapping[str, Values], after: Mapping[str, Values], tasks: Sequence[str]
) -> tuple[dict[str, Values], dict[str, Values]]:
    base: dict[str, Values] = {}
    run: dict[str, Values] = {}
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


@dataclass(frozen=True, slots=True)
class Look:
    """What some new trials show: for each test its sums, the plain one first, and what the shuffles are given.

    ``blocks``: values on the scale of the tests, one plane a sum of a metric; ``planes``: the plane of each sum.
    ``noises``: SD of the logarithm within tasks by metric; None where no task was repeated.
    """

    shown: Mapping[Test, tuple[Shown, ...]]
    planes: Mapping[tuple[Test, int], int]
    blocks: tuple[Block, ...]
    noises: Mapping[str, float | None]


def look(arranged: Arranged, last: int) -> Look:
    """What the new trials up to ``last`` show."""
    import numpy as np

    blocks = arranged.blocks(1, last)
    planes: list[list[Any]] = [[] for _ in blocks]
    shown: dict[Test, tuple[Shown, ...]] = {}
    places: dict[tuple[Test, int], int] = {}
    noises: dict[str, float | None] = {}
    for at, metric in enumerate(arranged.metrics):
        column = _Column(arranged, blocks, at, metric)
        noises[metric] = column.noise
        versions: list[tuple[Sequence[Any], tuple[Any, Any] | None]] = [(column.used, None)]
        if metric not in SHARES:
            bounds = column.bounds()
            drawn_in = [
                np.clip(v, bounds[0][b.at, None], bounds[1][b.at, None])
                for v, b in zip(column.used, blocks, strict=True)
            ]
            versions.append((drawn_in, bounds))
        for test in arranged.tests:
            if test.metric != metric:
                continue
            weights = column.weights(test)
            entries = []
            for version, (values, of_task) in enumerate(versions if test.statistic == "body" else versions[:1]):
                entries.append(column.shown(test, weights, values, of_task))
                places[test, version] = len(planes[0]) + version if planes else 0
            shown[test] = tuple(entries)
        for values, _ in versions:
            for index, block_values in enumerate(values):
                planes[index].append(block_values)
    stacked = tuple(
        Block(block.at, np.stack(values), block.trials_base, block.still, block.shares)
        for block, values in zip(blocks, planes, strict=True)
        if values
    )
    return Look(shown, places, stacked, noises)


class _Column:
    """One metric over all tasks at a look."""

    def __init__(self, arranged: Arranged, blocks: Sequence[Block], at: int, metric: str) -> None:
        import numpy as np

        self.arranged, self.blocks, self.metric = arranged, blocks, metric
        n = len(arranged.tasks)
        self.live = np.zeros(n, dtype=bool)  # tasks that have any of it on either side
        for block in blocks:
            self.live[block.at[(block.values[at] != 0).any(axis=1) | (metric in SHARES)]] = True
        has_zero = any(bool((block.values[at][self.live[block.at]] == 0).any()) for block in blocks)
        self.scale = "share" if metric in SHARES else "raw" if has_zero else "log"
        logs = [np.log(np.maximum(block.values[at], 1.0)) for block in blocks]
        self.used = logs if self.scale == "log" else [block.values[at] for block in blocks]
        self.pooled = np.zeros(n)
        squares = degrees = 0.0
        for block, values, of_log in zip(blocks, self.used, logs, strict=True):
            self.pooled += block.by_task(values.mean(axis=1), n)
            if block.still:
                continue
            for side in (of_log[:, : block.trials_base], of_log[:, block.trials_base :]):
                if side.shape[1] > 1:
                    squares += float(((side - side.mean(axis=1, keepdims=True)) ** 2).sum())
                    degrees += side.shape[0] * (side.shape[1] - 1)
            if of_log.shape[1] == 2 and np.ndim(block.shares):
                # two that share their beginning: twice the variance of what followed, about what all have grown by
                pairs = of_log[:, 1] - of_log[:, 0]
                squares += float(((pairs - pairs.mean()) ** 2).sum()) / 2
                degrees += len(pairs) - 1
        # equal values differ from their mean by the rounding of it: that is no noise
        self.noise = round(math.sqrt(squares / degrees), 12) if degrees else None

    def bounds(self) -> tuple[Any, Any]:
        """Around each task's median of both sides, three times what its trials usually differ by in this class."""
        import numpy as np

        middle = np.zeros(len(self.arranged.tasks))
        rest = [np.zeros(0)]
        for block, values in zip(self.blocks, self.used, strict=True):
            middle += block.by_task(np.median(values, axis=1), len(middle))
        for block, values in zip(self.blocks, self.used, strict=True):
            if not block.still:
                rest.append(np.abs(values - middle[block.at, None]).ravel())
        every = np.concatenate(rest)
        every = every[every > 0]
        reach = FAR * 1.4826 * float(np.median(every)) if len(every) else 0.0
        return middle - reach, middle + reach

    def weights(self, test: Test) -> Any:
        """Of the tasks, summing to 1. Ranks and weights are those of both sides pooled: no shuffle changes them."""
        import numpy as np

        count = int(self.live.sum())
        if test.statistic != "heavy" or count == 0:
            return self.live / max(count, 1)
        size = min(count, max(FEWEST_HEAVY, math.ceil(HEAVY_SHARE * count)))
        chosen = np.argsort(-np.where(self.live, self.pooled, -np.inf), kind="stable")[:size]
        weights = np.zeros(len(self.live))
        top = self.pooled[chosen]
        weights[chosen] = np.exp(WEIGHT * (top - top.max())) if self.scale == "log" else top**WEIGHT
        return weights / weights.sum()

    def shown(self, test: Test, weights: Any, values: Sequence[Any], bounds: tuple[Any, Any] | None) -> Shown:
        import numpy as np

        n = len(self.arranged.tasks)
        base, new = np.zeros(n), np.zeros(n)
        for block, of_block in zip(self.blocks, values, strict=True):
            base += block.by_task(of_block[:, : block.trials_base].mean(axis=1), n)
            new += block.by_task(of_block[:, block.trials_base :].mean(axis=1), n)
        unit = (float(weights @ base) or 1.0) if self.scale == "raw" else 1.0
        difference = (new - base) / unit
        effect = float(weights @ difference)
        members = int((weights > 0).sum())
        spread = _spread(weights, difference)
        nothing = told(0.0, self.scale)
        ends: tuple[float | None, float | None] = (None, None) if members else (nothing, nothing)
        if spread is not None:
            reach = student_quantile(0.95, members - 1) * spread
            low = told(effect - reach, self.scale)
            # nothing falls below nothing, whatever the sums of a few tasks allow
            ends = (max(low, 0.0) if self.scale == "raw" else low, told(effect + reach, self.scale))
        threshold = self.arranged.threshold(self.metric, unit)
        return Shown(test, told(effect, self.scale), ends, threshold, weights, self.scale, unit, members, bounds)


def told(value: float, scale: str) -> float:
    return math.exp(value) if scale == "log" else value if scale == "share" else 1 + value


def _spread(weights: Any, difference: Any) -> float | None:
    """Standard error of a weighted mean of the tasks' differences; None for a single task."""
    members = weights > 0
    count = int(members.sum())
    if count < 2:
        return None
    of, w = difference[members], weights[members]
    rest = of - w @ of
    return math.sqrt(float((w**2) @ rest**2) * count / (count - 1))
