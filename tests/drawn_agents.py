"""Agents whose growth is known: integer counts, about lognormal, the same on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

from pytest_fanout.judge import Draw, TrialTable
from pytest_fanout.records import JudgeRules, Limit

FANOUT = (Limit("fanout", "p95", Fraction(1, 10), 1),)
RULES = JudgeRules()
BOTH = (*FANOUT, Limit("tokens", "p95", Fraction(1, 10), 500))

#: task -> the calls of each trial.
Calls = dict[str, list[int]]


def calls(
    tasks: int, trials: int, seed: int, *, noise: float = 0.33, times: Callable[[int], float] = lambda place: 1.0
) -> Calls:
    """Tasks of 6 to 24 calls, evenly spread on the log scale, the dearest last; ``times``: growth by place."""
    chance = random.Random(seed)
    return {
        f"t{place:03d}": [
            max(1, round(6 * 4 ** (place / max(tasks - 1, 1)) * times(place) * math.exp(chance.gauss(0, noise))))
            for _ in range(trials)
        ]
        for place in range(tasks)
    }


def table(fanout: Mapping[str, list[int]], capped: frozenset[str] = frozenset()) -> TrialTable:
    """100 tokens a call; every trial of the ``capped`` tasks was stopped by its cap."""
    return TrialTable(
        {
            task: {
                "fanout": tuple(row),
                "input_tokens": tuple(80 * value for value in row),
                "output_tokens": tuple(20 * value for value in row),
            }
            for task, row in fanout.items()
        },
        {task: (("capped" if task in capped else "ok"),) * len(row) for task, row in fanout.items()},
        {task: (True,) * len(row) for task, row in fanout.items()},
    )


def drawn(
    base: Mapping[str, list[int]],
    run: Mapping[str, list[int]],
    limits: tuple[Limit, ...] = FANOUT,
    rules: JudgeRules = RULES,
    **kwargs: frozenset[str],
) -> Draw:
    return Draw(table(base), table(run), limits, rules, **kwargs)


def first(run: Mapping[str, list[int]], trials: int) -> Calls:
    """Only the first trials of every task."""
    return {task: row[:trials] for task, row in run.items()}
