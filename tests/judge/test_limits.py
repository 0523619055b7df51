"""A limit's bound is one integer, and the check and the message use the same one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.judge.limits import ceiling, describe, is_over, limit_value
from pytest_fanout.records import Limit

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    ("limit", "base", "bound"),
    [
        (Limit("fanout", "p95", TENTH, 1), 7, 7),  # 7.7: 8 is over and has grown by 1
        (Limit("fanout", "p95", TENTH, 2), 7, 8),  # 8 has grown by 1 only
        (Limit("fanout", "p95", TENTH, 1), 10, 11),  # 11 is not above 11.0
        (Limit("fanout", "p95", TENTH, 1), 0, 0),
        (Limit("tokens", "p95", TENTH, 500), 1900, 2399),
        (Limit("tokens", "p95", TENTH, 500), 18400, 20240),
        (Limit("fanout", "p95", TENTH, 1, max=25), 30, 25),
        (Limit("fanout", "p95", TENTH, 1, max=25), 10, 11),
        (Limit("fanout", "p95", None, 0, max=25), 10, 25),
        (Limit("fanout", "p95", Fraction(0), 0), 10, 10),
        (Limit("fanout", "p95", TENTH, 1), None, None),
        (Limit("fanout", "p95", TENTH, 1, max=25), None, 25),
    ],
)
def test_bounds_by_hand(limit: Limit, base: int | None, bound: int | None) -> None:
    """The largest integer that is not over."""
    assert limit_value(limit, base) == bound


@given(
    st.integers(0, 10_000),
    st.integers(0, 12_000),
    st.fractions(0, 3, max_denominator=1000),
    st.integers(0, 600),
    st.none() | st.integers(0, 12_000),
)
def test_the_bound_is_the_rule(base: int, run: int, increase: Fraction, at_least: int, most: int | None) -> None:
    """Over by the bound exactly when over by the words of the rule."""
    limit = Limit("fanout", "p95", increase, at_least, most)
    by_words = (run > base * (1 + increase) and run - base >= at_least) or (most is not None and run > most)

    assert is_over(limit, base, run) == by_words


@pytest.mark.parametrize(
    ("limit", "measured", "expected"),
    [
        (Limit("fanout", "p95", TENTH, 1), 11, 12),  # 12.1 and 12
        (Limit("fanout", "p95", TENTH, 1), 5, 6),  # 5.5 and 6
        (Limit("tokens", "p95", TENTH, 500), 31250, 34375),
        (Limit("fanout", "p95", TENTH, 1, max=12), 12, 12),  # never above max
        (Limit("fanout", "p95", None, 0, max=25), 12, 25),
    ],
)
def test_ceilings_by_hand(limit: Limit, measured: int, expected: int) -> None:
    """The larger of measured x (1 + increase) and measured + at_least, never above max."""
    assert ceiling(limit, measured) == expected


def test_a_limit_is_described_in_the_words_of_the_file() -> None:
    """What a message shows is what the file says."""
    limit = Limit("fanout", "p95", Fraction(125, 1000), 2, 25, evidence=False)

    assert describe(limit) == "increase 12.5%, at_least 2, max 25, evidence off"
