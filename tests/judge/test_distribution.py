"""Percentiles, means and shares: exact, every task counting once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.judge.distribution import largest, mean, percentile, share_percent, statistic
from pytest_fanout.records import STATISTICS

TWENTY = {f"t{number:02d}": (number,) for number in range(1, 21)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("p50", 10), ("p90", 18), ("p95", 19), ("p99", 20), ("p99.9", 20), ("max", 20), ("mean", 11)],
)
def test_statistics_of_one_to_twenty(name: str, expected: int) -> None:
    """k = ceil(p n): p95 of 20 is the 19th; the mean 10.5 is rounded half up."""
    assert statistic(TWENTY, name) == expected


def test_every_task_counts_once() -> None:
    """A task with four trials weighs as much as one with a single trial: the mean is (1 + 9) / 2."""
    samples = {"a": (1, 1, 1, 1), "b": (9,)}

    assert mean(samples) == 5
    assert statistic(samples, "p50") == 1
    assert statistic(samples, "p90") == 9


def test_p95_of_uneven_trials_by_hand() -> None:
    """Nine tasks of 1 (weight 9) and one task with trials 2 and 8 (weight 1/2 each): 9.5 of 10 is reached at 2."""
    samples = {**{f"t{number}": (1,) for number in range(9)}, "last": (2, 8)}

    assert statistic(samples, "p95") == 2
    assert statistic(samples, "p99") == 8


def test_an_unknown_value_makes_the_statistic_unknown() -> None:
    """None is not 0, and leaving it out would hide the expensive trial."""
    samples = {"a": (1, None), "b": (3, 4)}

    assert [statistic(samples, name) for name in STATISTICS] == [None] * len(STATISTICS)


def test_unknown_values_can_rank_as_the_largest_or_the_smallest() -> None:
    """Of 19 known tasks and one unknown, p95 is the 19th value: 19 as an upper bound, 18 as a lower one."""
    samples = {**{f"t{number:02d}": (number,) for number in range(1, 20)}, "lost": (None,)}

    assert statistic(samples, "p95", unknown="high") == 19
    assert statistic(samples, "p95", unknown="low") == 18
    assert statistic(samples, "p99", unknown="high") is None
    assert statistic(samples, "max", unknown="high") is None


def test_nothing_measured_has_no_statistic() -> None:
    """An empty class is unknown, never 0."""
    assert statistic({}, "p95") is None
    assert statistic({"a": ()}, "mean") is None
    assert largest({}) == (None, None)


def test_the_largest_trial_names_its_task() -> None:
    """p95 of 20 tasks hides the worst one: it stands beside it, with its name."""
    assert largest({"b": (3, 9), "a": (9, None)}) == (9, "a")


def test_a_share_is_rounded_up() -> None:
    """One of 300 trials is 1 %, so that a maximum of 0 sees it."""
    assert share_percent({str(number): (int(number == 0),) for number in range(300)}) == 1
    assert share_percent({"a": (0,), "b": (0,)}) == 0


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.sampled_from([50, 90, 95, 99]))
def test_unweighted_percentiles_are_those_of_numpy(values: list[int], percent: int) -> None:
    """inverted_cdf, an independent implementation of the same definition."""
    exact = percentile(values, [1] * len(values), Fraction(percent, 100))
    # numpy works in floats: p is lowered by less than one part in the sample so that its rounding cannot step over
    theirs = np.percentile(np.array(values), percent - 1e-9, method="inverted_cdf")

    assert exact == int(theirs)


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1)
)
def test_weights_by_lcm_equal_weights_by_fraction(samples: dict[str, list[int]]) -> None:
    """Integer weights change nothing against 1/trials exactly."""
    values = [value for row in samples.values() for value in row]
    weights = [Fraction(1, len(row)) for row in samples.values() for _ in row]

    assert statistic(samples, "p95") == percentile(values, weights, Fraction(95, 100))


@pytest.mark.parametrize(("values", "weights"), [([], []), ([1], [0]), ([1, 2], [1])])
def test_percentile_refuses_what_it_cannot_weigh(values: list[int], weights: list[int]) -> None:
    """No values, a weight of 0, or lengths that differ."""
    with pytest.raises(ValueError, match="percentile needs values, each with a positive weight"):
        percentile(values, weights, Fraction(1, 2))
