"""The within-task permutation test against all permutations counted out."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from pytest_fanout.judge.shuffles import FLOOR, Block, Sum, p_values


def block(values: Any, trials_base: int, *, at: Any = None, still: bool = False) -> Block:
    array = np.array(values, dtype=float)
    return Block(np.arange(array.shape[1]) if at is None else np.array(at), array, trials_base, still)


def counted_out(values: Any, trials_base: int, weights: Any) -> float:
    """The share of all choices of new trials whose sum over its standard error reaches that of the choice seen."""
    rows = np.array(values, dtype=float)
    trials = rows.shape[1]
    new = trials - trials_base
    squares = ((rows - rows.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    share = 1 / trials_base + 1 / new
    floor = FLOOR * float((weights**2 * squares).sum()) * share / (trials - 1)

    def score(chosen: tuple[tuple[int, ...], ...]) -> float:
        total = error = 0.0
        for row, places, weight in zip(rows, chosen, weights, strict=True):
            inside = row[list(places)]
            outside = np.delete(row, list(places))
            total += weight * (inside.mean() - outside.mean())
            within = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
            error += weight**2 * share * within / (trials - 2)
        return total / float(np.sqrt(error + floor))

    seen = score(tuple(tuple(range(trials_base, trials)) for _ in rows))
    choices = list(product(*(list(combinations(range(trials), new)) for _ in rows)))
    return sum(score(choice) >= seen - 1e-9 for choice in choices) / len(choices)


def test_p_is_the_share_of_all_choices_that_reach_what_was_seen() -> None:
    """Three tasks, 3 + 2 trials: 10^3 choices counted out one by one, beside the same drawn at random."""
    values = [[3, 5, 4, 6, 5], [10, 9, 12, 11, 14], [7, 7, 8, 9, 6]]
    weights = np.array([0.5, 0.3, 0.2])

    (p,), _, drawn = p_values([block([values], 3)], [Sum(0, weights, 0)], 0.01)

    assert p == pytest.approx(counted_out(values, 3, weights), abs=0.03)
    assert drawn < 9_999  # far from any level: it stops early


def test_the_smallest_p_is_reached_by_a_growth_that_no_choice_beats() -> None:
    """Every new trial is above every old one in 12 tasks: only the choice that was seen itself reaches it."""
    values = [[1, 2, 3, 4, 5, 10 + i] for i in range(12)]

    (p,), _, drawn = p_values([block([values], 5)], [Sum(0, np.full(12, 1 / 12), 0)], 0.01)

    assert (p, drawn) == (1 / 10_000, 9_999)


def test_more_choices_are_drawn_where_the_level_asks_for_them() -> None:
    """20 choices below the level at least: a level of .0005 takes 40,000, else nothing could ever be found."""
    values = [[1, 2, 3, 4, 5, 10 + i] for i in range(12)]

    (p,), _, drawn = p_values([block([values], 5)], [Sum(0, np.full(12, 1 / 12), 0)], 0.0005)

    assert (p, drawn) == (1 / 40_001, 40_000)


def test_whole_runs_are_shuffled() -> None:
    """Two metrics that move together have the very same p: the same choices serve both."""
    values = [[3, 5, 4, 6, 5], [10, 9, 12, 11, 14], [7, 7, 8, 9, 6], [2, 4, 3, 3, 5]]
    weights = np.full(4, 0.25)
    thousandfold = [[1000 * value for value in row] for row in values]

    ps, _, _ = p_values([block([values, thousandfold], 3)], [Sum(0, weights, 0), Sum(1, weights, 1)], 0.01)

    assert ps[0] == ps[1]


def test_the_largest_of_two_sums_speaks_for_a_hypothesis() -> None:
    """Its p is that of the larger one at most twice, and never that of the smaller one."""
    weights = np.full(8, 1 / 8)
    grown = [[4, 5, 6, 5, 4, 8] for _ in range(8)]
    flat = [[4, 5, 6, 5, 4, 5] for _ in range(8)]

    (p,), scores, _ = p_values([block([grown, flat], 5)], [Sum(0, weights, 0), Sum(1, weights, 0)], 0.01)

    assert p < 0.001
    assert scores[0] > 3 > scores[1]


def test_still_tasks_are_not_shuffled() -> None:
    """On the anchor's own recordings nothing is chance: their difference stands in every choice alike."""
    moving = block([[[3, 5, 4, 6, 5], [10, 9, 12, 11, 14]]], 3, at=[0, 1])
    weights = np.array([0.25, 0.25, 0.5])

    with_zero = p_values([moving, block([[[4, 4, 4, 4]]], 2, at=[2], still=True)], [Sum(0, weights, 0)], 0.01)
    alone = p_values([moving], [Sum(0, weights[:2], 0)], 0.01)

    assert with_zero[0] == alone[0]
    assert p_values([block([[[4, 4, 9, 9]]], 2, still=True)], [Sum(0, np.ones(1), 0)], 0.01)[0] == [1.0]


def test_many_tasks_are_summed_as_normal() -> None:
    """Above 500 tasks no choice is drawn; the p is near the one that drawing gives for 500."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(500, 6))
    rows[:, 5] += 0.08
    weights = np.full(500, 1 / 500)
    drawn = p_values([block([rows], 5)], [Sum(0, weights, 0)], 0.01)
    more = np.concatenate([rows, np.zeros((1, 6))])
    summed = p_values([block([more], 5)], [Sum(0, np.append(weights, 0.0), 0)], 0.01)

    assert drawn[2] > 0
    assert summed[2] == 0
    assert summed[0][0] == pytest.approx(drawn[0][0], abs=0.02)
