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
#: Above this many tasks the sum over them is normal for all that a verdict needs: its variance is exact.
MOST_TASKS = 1_000
#: Choices of one task that are held ready: all of them where there are no more, else a random part.
MOST_CHOICES = 4_096


@dataclass(frozen=True, slots=True)
class Block:
    """Tasks with the same numbers of trials. ``values``: metrics x tasks x (anchor's trials, then new ones)."""

    at: Any  # places of the tasks among all, shape (tasks,)
    values: Any  # float array
    trials_base: int
    still: bool = False  # on the anchor's own recordings: nothing to shuffle


def p_values(
    blocks: Sequence[Block], weights: Any, seen: Any, needed: float, *, seed: int = SEED
) -> tuple[list[float], int]:
    """The p value of each test, one-sided for growth, and how many choices were drawn at most.

    Args:
        blocks: all tasks of a class.
        weights: tests x tasks; a test is the weighted sum of the tasks' differences between the means of both sides.
        seen: tests: the metric's place of each test.
        needed: the smallest level that a p value is held against; more choices are drawn where it asks for them.

    Returns:
        p of each test, in order: (1 + choices that reach what was seen) / (1 + choices).
    """
    import numpy as np

    blocks = [block for block in blocks if len(block.at)]
    observed = np.zeros(len(seen))
    fixed = np.zeros(len(seen))
    moving = []
    for block in blocks:
        split = block.trials_base
        difference = block.values[:, :, split:].mean(axis=2) - block.values[:, :, :split].mean(axis=2)
        part = np.array([weights[test, block.at] @ difference[metric] for test, metric in enumerate(seen)])
        observed += part
        if block.still:
            fixed += part
        else:
            moving.append(block)
    tasks = sum(len(block.at) for block in moving)
    if tasks == 0:
        return [1.0] * len(seen), 0
    if tasks > MOST_TASKS:
        return _normal(moving, weights, seen, observed - fixed), 0
    rng = np.random.default_rng(seed)
    tables = [_table(block, rng, tasks) for block in moving]
    scale = np.maximum(1.0, np.abs(weights).sum(axis=1) * max(float(np.abs(block.values).max()) for block in moving))
    bar = observed - fixed - 1e-12 * scale  # equal choices differ by the rounding of their sums
    most = min(199_999, max(MOST, math.ceil(20 / needed)))
    reached = np.zeros(len(seen), dtype=np.int64)
    drawn = 0
    frozen: list[float | None] = [None] * len(seen)
    while drawn < most:
        size = min(CHUNK - 1 if drawn == 0 else CHUNK, most - drawn)
        sums = np.zeros((size, len(seen)))
        for block, table in zip(moving, tables, strict=True):
            choice = rng.integers(0, table.shape[2], size=(size, len(block.at)))
            rows = np.arange(len(block.at))
            for metric in range(table.shape[0]):
                tests = [test for test, place in enumerate(seen) if place == metric]
                if tests:
                    sums[:, tests] += table[metric][rows, choice] @ weights[np.ix_(tests, block.at)].T
        reached += (sums >= bar).sum(axis=0)
        drawn += size
        for test in range(len(seen)):
            if frozen[test] is None and reached[test] >= ENOUGH:
                frozen[test] = (1 + int(reached[test])) / (1 + drawn)
        if all(value is not None for value in frozen):
            break
    return [
        value if value is not None else (1 + int(count)) / (1 + drawn)
        for value, count in zip(frozen, reached, strict=True)
    ], drawn


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


def _normal(blocks: Sequence[Block], weights: Any, seen: Any, observed: Any) -> list[float]:
    import numpy as np

    variance = np.zeros(len(seen))
    for block in blocks:
        trials = block.values.shape[2]
        if trials < 2:
            continue
        spread = block.values.var(axis=2, ddof=1) * (1 / block.trials_base + 1 / (trials - block.trials_base))
        for test, metric in enumerate(seen):
            variance[test] += (weights[test, block.at] ** 2) @ spread[metric]
    return [
        0.5 * math.erfc(value / math.sqrt(2 * spread)) if spread > 0 else 1.0 if value <= 0 else 0.0
        for value, spread in zip(observed.tolist(), variance.tolist(), strict=True)
    ]
