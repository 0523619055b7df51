"""Looking several times: the bound that holds for all looks together, and for all tests together."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from pytest_fanout.judge.looks import holm, level, over_all_looks, schedule

#: Looks at equal steps of information, as many trials in the anchor as in no real one.
UNBOUNDED = 1e12


@pytest.mark.parametrize(
    ("trials", "looks"),
    [(1, (1,)), (3, (1, 2, 3)), (5, (1, 2, 3, 4, 5)), (7, (2, 3, 5, 6, 7)), (10, (2, 4, 6, 8, 10))],
)
def test_there_are_at_most_five_looks(trials: int, looks: tuple[int, ...]) -> None:
    """Up to five trials each is looked at; more are spread over five looks, the last one at the end."""
    assert schedule(trials) == looks


@pytest.mark.parametrize(("looks", "bound"), [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413)])
def test_equal_steps_give_pococks_published_bounds(looks: int, bound: float) -> None:
    """Pocock 1977, table 1 (and Jennison and Turnbull 2000, table 2.1): two-sided 5 % is one-sided 2.5 %."""
    p = level(0.025, tuple(range(1, looks + 1)), UNBOUNDED)

    assert NormalDist().inv_cdf(1 - p) == pytest.approx(bound, abs=0.0006)


def test_the_bound_for_five_trials_beside_five_holds_in_a_simulation() -> None:
    """400,000 unchanged agents, looked at five times, reach the bound for 5 % in 5 % (within 4 standard errors)."""
    z = NormalDist().inv_cdf(1 - level(0.05, (1, 2, 3, 4, 5), 5.0))
    rng = np.random.default_rng(5)
    count = 400_000
    base = rng.standard_normal(count) / np.sqrt(5)
    new = np.zeros(count)
    reached = np.zeros(count, dtype=bool)
    for k in range(1, 6):
        new += rng.standard_normal(count)
        reached |= (new / k - base) / np.sqrt(1 / k + 1 / 5) > z

    assert reached.mean() == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / count))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("trials", "chance"), [(100, 0.046169), (300, 0.039511), (1000, 0.035191)])
def test_looks_that_tell_nearly_the_same_are_never_taken_for_one(trials: int, chance: float) -> None:
    """The last of hundreds of trials add little: any look's chance is that of a far finer grid, or more."""
    found = over_all_looks(0.03, schedule(trials), 5.0)

    assert chance - 1e-6 < found < chance * 1.06
    assert 0.03 < over_all_looks(0.03, schedule(10**18), 5.0) < found


def test_one_look_costs_nothing_and_more_looks_cost_more() -> None:
    """A p value stays what it is at a single look; each further look lowers what it has to be."""
    assert over_all_looks(0.03, (1,), 5.0) == 0.03
    levels = [level(0.05, tuple(range(1, looks + 1)), 5.0) for looks in range(1, 6)]

    assert levels == sorted(levels, reverse=True)
    assert levels[0] == pytest.approx(0.05)


def test_holm_adjusts_in_order() -> None:
    """By hand: 3 x .01, then 2 x .02, then 1 x .03, which is not below the one before it."""
    adjusted = holm({"b": 0.02, "c": 0.03, "a": 0.01})

    assert adjusted == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04})
