"""What an eval set can show, worked by hand from the noise of its anchor, and how often its own draws are red."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from drawn_agents import BOTH, FANOUT, RULES, Calls, calls, drawn, table

from pytest_fanout.judge import judge_draws
from pytest_fanout.judge.power import power_of, selfcheck
from pytest_fanout.judge.smallest import smallest_growth, standard_error
from pytest_fanout.records import Limit, SelfCheck

TOLERANCE = (Limit("fanout", "p95", Fraction(1, 10), 0),)


def test_the_standard_error_is_that_of_a_mean_log_ratio() -> None:
    """Noise .33, 20 tasks, 5 + 5 trials: .33 x sqrt(.4 / 20) = .0467."""
    assert standard_error(0.33, 20, 5, 5) == pytest.approx(0.33 * math.sqrt(0.02))


def test_a_growth_has_to_pass_its_bound_and_the_limit() -> None:
    """Bound 2.063 (p .01954), four of five 0.842: 2.905 x .1 is more than ln 1.1 + .084; at .01 the limit binds."""
    assert smallest_growth(0.1, 0.01954, 1.1) == pytest.approx(math.exp(2.905 * 0.1), rel=1e-3)
    assert smallest_growth(0.01, 0.01954, 1.1) == pytest.approx(1.1 * math.exp(0.00842), rel=1e-4)


def test_power_says_what_is_found_and_what_a_quarter_takes() -> None:
    """Two tasks more than it takes find +25 %, two tasks fewer do not; the noise is that of the anchor."""
    (entry,) = power_of(table(calls(20, 5, seed=4)), TOLERANCE, RULES)

    assert (entry.metric, entry.tasks, entry.trials_base, entry.allowed) == ("fanout", 20, 5, 1.1)
    assert entry.noise == pytest.approx(0.33, abs=0.04)
    assert [trials for trials, _ in entry.finds] == [1, 2, 3, 4, 5]
    assert entry.finds[0][1] > entry.finds[-1][1] > 1.1
    assert entry.tasks_for_quarter is not None
    found = [
        smallest_growth(standard_error(entry.noise or 0, tasks, 5, 5), 0.00912284, 1.1)
        for tasks in (entry.tasks_for_quarter - 1, entry.tasks_for_quarter)
    ]
    assert found[0] > 1.25 >= found[1] - 1e-9


def test_recordings_of_an_anchor_are_no_pairs_with_themselves() -> None:
    """An anchor that knows where its trials began says the same: the draw that is planned begins for itself."""
    plain = table(calls(20, 5, seed=4))
    begun = replace(plain, beginnings={task: tuple(f"{task}/{n}" for n in range(5)) for task in plain.statuses})

    assert power_of(begun, TOLERANCE, RULES) == power_of(plain, TOLERANCE, RULES)
    assert power_of(begun, TOLERANCE, RULES)[0].noise == pytest.approx(0.33, abs=0.04)


def test_one_trial_a_task_says_nothing_of_noise() -> None:
    """Not known is not zero; a limit that allows a quarter needs no tasks to find it."""
    (entry,) = power_of(table(calls(20, 1, seed=4)), TOLERANCE, RULES)

    assert (entry.noise, entry.finds, entry.red, entry.tasks_for_quarter) == (None, (), None, None)
    (wide,) = power_of(table(calls(20, 5, seed=4)), (Limit("fanout", "p95", Fraction(1, 4), 0),), RULES)
    assert wide.tasks_for_quarter is None


def test_an_anchor_without_noise_is_never_red_against_itself() -> None:
    """Every draw of constant tasks is the anchor again: one trial each."""
    base: Calls = {f"t{place:02d}": [10 + place] * 5 for place in range(12)}

    assert selfcheck(table(base), FANOUT, RULES, draws=3) == SelfCheck(3, 0, 0, 1.0)


def test_a_selfcheck_is_seeded() -> None:
    """The same anchor gives the same answer; few of its draws are red."""
    anchor = table(calls(20, 5, seed=4))

    first = selfcheck(anchor, BOTH, RULES, draws=4)

    assert first == selfcheck(anchor, BOTH, RULES, draws=4)
    assert first.regressed + first.inconclusive <= 2
    assert 1 <= first.trials <= 5


def test_a_limit_below_what_the_tasks_can_show_is_told() -> None:
    """Ten tasks of noise .9 find growth of 65 % only; fifty of .33 find less than a quarter.

    The error falls by the root of the tasks: 10 x (log 1.65 / log 1.25) ^ 2 = 50 find a quarter.
    """
    few = judge_draws({"a": drawn(calls(10, 5, seed=4, noise=0.9), calls(10, 5, seed=40, noise=0.9), TOLERANCE)})["a"]
    many = judge_draws({"a": drawn(calls(50, 5, seed=1), calls(50, 2, seed=16), TOLERANCE)})["a"]

    (text,) = [reason.text for reason in few.reasons if reason.slug == "budget-beyond-evidence"]
    assert text == (
        "the limit allows fanout 10 % more, and 10 tasks x 5 trials find growth of 65 % and more; "
        "mend: add 40 tasks to find 25 % (fanout-baseline power)"
    )
    assert "budget-beyond-evidence" not in {reason.slug for reason in many.reasons}
