"""What few tasks can support: published quantiles of Student's t, and order statistics of a p95."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pytest_fanout.judge.small_samples import percentile_interval, percentile_ranks, student_quantile

P95 = Fraction(95, 100)


@pytest.mark.parametrize(
    ("share", "degrees", "published"),
    [
        (0.95, 1, 6.313752),
        (0.95, 2, 2.919986),
        (0.95, 9, 1.833113),
        (0.95, 19, 1.729133),
        (0.975, 30, 2.042272),
        (0.95, 49, 1.676551),
        (0.95, 120, 1.657651),
        (0.995, 7, 3.499483),
        (0.95, 1000, 1.646379),
        (0.05, 19, -1.729133),
    ],
)
def test_students_t_is_that_of_the_tables(share: float, degrees: int, published: float) -> None:
    """NIST/SEMATECH e-Handbook 1.3.6.7.2 and the usual tables, six decimals."""
    assert student_quantile(share, degrees) == pytest.approx(published, abs=1e-6)


def test_both_ways_of_students_t_meet() -> None:
    """Sums up to 200 degrees, an expansion beyond: from one to the next it falls by (z^3 + z) / 4 / 200^2."""
    step = student_quantile(0.95, 200) - student_quantile(0.95, 201)

    assert step == pytest.approx((1.6449**3 + 1.6449) / 4 / 200**2, rel=0.03)


@pytest.mark.parametrize(
    ("tasks", "ranks"), [(20, (17, None)), (58, (52, None)), (59, (53, 59)), (60, (54, 60)), (100, (91, 99))]
)
def test_ranks_of_a_p95(tasks: int, ranks: tuple[int | None, int | None]) -> None:
    """.95^58 is above 5 % and .95^59 below: the largest of 59 is the first upper end. 17 of 20: P(B <= 16) is 1.6 %."""
    assert percentile_ranks(tasks, P95) == ranks


def test_a_p95_of_nineteen_tasks_is_not_estimable() -> None:
    """Below 20 tasks the p95 is simply the largest value; from 20 on it has a lower end, from 59 on an upper one."""
    assert percentile_interval({f"t{i}": (i,) for i in range(1, 20)}, P95) is None
    assert percentile_interval({f"t{i}": (i,) for i in range(1, 21)}, P95) == (17, None)
    assert percentile_interval({f"t{i}": (i,) for i in range(1, 60)}, P95) == (53, 59)


def test_trials_of_one_task_are_no_further_tasks() -> None:
    """Three equal trials of each of 20 tasks say what one trial of each says; unknown values take no part."""
    column = {f"t{i}": (i, i, i) for i in range(1, 21)}

    assert percentile_interval(column, P95) == (17, None)
    assert percentile_interval({**column, "t21": (None,)}, P95) == (17, None)
