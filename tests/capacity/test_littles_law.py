"""Little's law and the spread of the count in flight."""

from __future__ import annotations

import math

import pytest

from pytest_fanout.capacity.littles_law import in_flight, in_flight_quantile


@pytest.mark.parametrize(("rate", "residency", "expected"), [(10, 90, 900), (10, 180, 1800), (0, 90, 0)])
def test_tasks_in_flight(rate, residency, expected):
    """10 tasks a second of 90 seconds are 900 in flight; twice the time, twice the tasks."""
    assert in_flight(rate, residency) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.95, 950), (0.99, 971), (0.999, 994)])
def test_poisson_spread_of_900(share, expected):
    """Slots for the 99th percentile of 900 are 971, not 900."""
    assert in_flight_quantile(900, share) == expected


def test_small_mean_by_hand():
    """Poisson of mean 1: P(0)=.3679, P(<=1)=.7358, P(<=2)=.9197, P(<=3)=.9810, P(<=4)=.9963."""
    assert [in_flight_quantile(1, share) for share in (0.36, 0.37, 0.74, 0.92, 0.982)] == [0, 1, 2, 3, 4]


def test_bursty_arrivals_by_hand():
    """Mean 1 with variance 2 is geometric with one half: P(<=k) = 1 - 2**-(k+1), so 99 % needs k = 6."""
    assert [in_flight_quantile(1, share, 2) for share in (0.5, 0.6, 0.75, 0.76, 0.99)] == [0, 1, 1, 2, 6]


def test_burstier_arrivals_need_more_slots():
    """With an index of dispersion of 10 the spread is about the root of 10 wider."""
    assert in_flight_quantile(900, 0.99, 10) - 900 == pytest.approx(math.sqrt(10) * 71, rel=0.1)


def test_long_sum_and_bell_curve_agree():
    """At the border between the exact sum and the bell curve the results differ by less than 1 in 10,000."""
    below = in_flight_quantile(2_499_000_000, 0.99)
    above = in_flight_quantile(2_501_000_000, 0.99)

    assert above - below == pytest.approx(2_000_000, rel=0.01)


def test_nothing_in_flight():
    """No traffic needs no slot."""
    assert in_flight_quantile(0, 0.99) == 0


@pytest.mark.parametrize(
    ("mean", "share", "iod"), [(-1, 0.9, 1), (1, 0, 1), (1, 1, 1), (1, 0.9, 0.5), (float("nan"), 0.9, 1)]
)
def test_impossible_questions_are_refused(mean, share, iod):
    """A negative mean, a share outside (0, 1) or arrivals more even than a clock give no number."""
    with pytest.raises(ValueError, match="no quantile"):
        in_flight_quantile(mean, share, iod)
