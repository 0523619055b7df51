"""The within-task permutation test: whole runs change sides inside their task, all metrics and tests together.

Where nothing changed, the trials of a task are alike on both sides, so that every choice of which of them are "new"
is as likely as the one that was seen. What such choices show is what chance shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

#: Derived from nothing: the same input gives the same bytes.
SEED = 20_261_130
#: Choices drawn for a test whose p value is small; others stop as soon as chance has reached them often enough.
MOST = 9_999
CHUNK = 1_000
ENOUGH = 60
#: Of the spread without regard to sides, so much is added to that within them: few trials can look too even.
FLOOR = 0.05
#: Above this many tasks the sum over them is normal for all that a verdict needs: its variance is exact.
MOST_TASKS = 500
#: Choices of one task that are held ready: all of them where there are no more, else a random part.
MOST_CHOICES = 4_096


@dataclass(frozen=True, slots=True)
class Block:
    """Tasks with the same numbers of trials. ``values``: metrics x tasks x (anchor's trials, then new ones).

    Where new trials share their beginnings with the anchor's, a row is a stratum of a task, not all of it.
    """

    at: Any  # places of the tasks among all, shape (rows,)
    values: Any  # float array
    trials_base: int
    still: bool = False  # on the anchor's own recordings: nothing to shuffle
    shares: Any = 1.0  # of each row in its task; those of one task sum to 1

    def by_task(self, rows: Any, tasks: int) -> Any:
        """A value of each task from one of each row; 0 where a task has no row here."""
        import numpy as np

        return np.bincount(self.at, weights=self.shares * rows, minlength=tasks)


@dataclass(frozen=True, slots=True)
class Sum:
    """A weighted sum over tasks of the difference between the sides, of one metric's values.

    ``hypothesis``: the place of the hypothesis that it speaks for; of several sums the largest speaks.
    """

    metric: int
    weights: Any  # tasks
    hypothesis: int


def p_values(
    blocks: Sequence[Block], sums: Sequence[Sum], needed: float, *, seed: int = SEED
) -> tuple[list[float], list[float], int]:
    """The p value of each hypothesis, one-sided for growth.

    A sum is divided by its standard error from the spread within the sides, for what was seen and for each choice
    anew: a growth that is there would else hide itself in the spread of the shuffled trials.

    Args:
        blocks: all tasks of a class.
        sums: what is tested; hypotheses are numbered from 0.
        needed: the smallest level that a p value is held against; more choices are drawn where it asks for them.

    Returns:
        p of each hypothesis: (1 + choices that reach what was seen) / (1 + choices); each sum over its standard
        error; how many choices were drawn (0: the sums of so many tasks are normal).
    """
    import numpy as np

    moving = [block for block in blocks if len(block.at) and not block.still]
    parts = [_Part(block, sums) for block in moving]
    fixed = np.zeros(len(sums))
    for block in blocks:
        if block.still and len(block.at):
            fixed += _seen(block, sums)
    observed = fixed + sum((_seen(block, sums) for block in moving), np.zeros(len(sums)))
    floor = FLOOR * sum((part.whole for part in parts), np.zeros(len(sums)))
    of_seen = [part.error(_differences(part.block)) for part in parts]
    errors = np.sqrt(np.maximum(sum(of_seen, floor.copy()), 1e-300))
    score = observed / errors
    count = max(entry.hypothesis for entry in sums) + 1
    members = [[place for place, entry in enumerate(sums) if entry.hypothesis == index] for index in range(count)]
    best = np.array([score[places].max() for places in members])
    tasks = sum(len(block.at) for block in moving)
    if tasks == 0:
        return [1.0] * count, score.tolist(), 0
    if tasks > MOST_TASKS:
        tails = [0.5 * math.erfc(value / math.sqrt(2)) for value in best.tolist()]
        return [min(1.0, len(places) * p) for places, p in zip(members, tails, strict=True)], score.tolist(), 0
    rng = np.random.default_rng(seed)
    tables = [_table(block, rng, tasks) for block in moving]
    bar = best - 1e-9 * np.maximum(1.0, np.abs(best))  # equal choices differ by the rounding of their sums
    most = min(199_999, max(MOST, math.ceil(20 / needed)))
    reached = np.zeros(count, dtype=np.int64)
    drawn = 0
    settled: dict[int, float] = {}
    while drawn < most and len(settled) < count:
        size = min(CHUNK - 1 if drawn == 0 else CHUNK, most - drawn)
        total = np.tile(fixed, (size, 1))
        error = np.tile(floor, (size, 1))
        for part, table in zip(parts, tables, strict=True):
            choice = rng.integers(0, table.shape[2], size=(size, len(part.block.at)))
            rows = np.arange(len(part.block.at))
            for metric in {entry.metric for entry in sums}:
                part.add(metric, table[metric][rows, choice], total, error)
        scores = total / np.sqrt(np.maximum(error, 1e-300))
        for index, places in enumerate(members):
            reached[index] += int((scores[:, places].max(axis=1) >= bar[index]).sum())
        drawn += size
        for index in range(count):
            if index not in settled and reached[index] >= ENOUGH:
                settled[index] = (1 + int(reached[index])) / (1 + drawn)
    left = {index: (1 + int(reached[index])) / (1 + drawn) for index in range(count) if index not in settled}
    return [(settled | left)[index] for index in range(count)], score.tolist(), drawn


class _Part:
    """What one block adds to the sums and to the squares of their standard errors."""

    def __init__(self, block: Block, sums: Sequence[Sum]) -> None:
        import numpy as np

        self.block = block
        trials = block.values.shape[2]
        share = 1 / block.trials_base + 1 / (trials - block.trials_base)
        squares = ((block.values - block.values.mean(axis=2, keepdims=True)) ** 2).sum(axis=2) * share
        self.metrics = [entry.metric for entry in sums]
        self.weights = np.array([entry.weights[block.at] * block.shares for entry in sums])
        of_task = np.array([squares[entry.metric] for entry in sums])
        # the variance of a difference, had the sides no difference at all: no choice changes it
        self.whole = (self.weights**2 * of_task).sum(axis=1) / max(trials - 1, 1)
        # within the sides: what is left of a task's squares when the square of its difference is taken off
        self.factor = self.weights**2 / (trials - 2) if trials > 2 else np.zeros_like(self.weights)
        self.constant = (self.factor * of_task).sum(axis=1) if trials > 2 else self.whole

    def add(self, metric: int, differences: Any, total: Any, error: Any) -> None:
        """``differences``: choices x tasks."""
        places = [place for place, of_sum in enumerate(self.metrics) if of_sum == metric]
        total[:, places] += differences @ self.weights[places].T
        error[:, places] += self.constant[places] - differences**2 @ self.factor[places].T

    def error(self, differences: Any) -> Any:
        """``differences``: metrics x tasks."""
        import numpy as np

        return np.array(
            [
                self.constant[place] - self.factor[place] @ differences[metric] ** 2
                for place, metric in enumerate(self.metrics)
            ]
        )


def _differences(block: Block) -> Any:
    split = block.trials_base
    return block.values[:, :, split:].mean(axis=2) - block.values[:, :, :split].mean(axis=2)


def _seen(block: Block, sums: Sequence[Sum]) -> Any:
    import numpy as np

    differences = _differences(block)
    return np.array([(entry.weights[block.at] * block.shares) @ differences[entry.metric] for entry in sums])


def _table(block: Block, rng: Any, tasks: int) -> Any:
    """Metrics x tasks x choices: the difference between the sides for each choice of new trials."""
    import numpy as np

    metrics, _, trials = block.values.shape
    new = trials - block.trials_base
    most = max(256, min(MOST_CHOICES, 4_000_000 // (metrics * tasks)))
    if math.comb(trials, new) <= most:
        chosen = np.array(list(combinations(range(trials), new)))
    else:
        chosen = np.argsort(rng.random((most, trials)), axis=1)[:, :new]
    sides = np.full((len(chosen), trials), -1.0 / block.trials_base)
    np.put_along_axis(sides, chosen, 1.0 / new, axis=1)
    return block.values @ sides.T
