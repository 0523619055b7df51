"""What an eval set can show, worked by hand from the noise of its anchor, and how often its own draws are red."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from drawn_agents import BOTH, FANOUT, RULES, Calls, calls, drawn, table

from pytest_fanout.judge import Draw, judge_draws
from pytest_fanout.judge.looks import level
from pytest_fanout.judge.power import power_of
from pytest_fanout.judge.reasons import percent
from pytest_fanout.judge.selfcheck import selfcheck
from pytest_fanout.judge.smallest import Sight, smallest_growth, standard_error, z
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
    """So many tasks find +25 %, and one fewer does not; the noise is that of the anchor."""
    (entry,) = power_of(table(calls(20, 5, seed=4, noise=0.45)), TOLERANCE, RULES)

    assert (entry.metric, entry.tasks, entry.trials_base, entry.allowed) == ("fanout", 20, 5, 1.1)
    assert entry.noise == pytest.approx(0.45, abs=0.04)
    assert [trials for trials, _ in entry.finds] == [1, 2, 3, 4, 5]
    assert entry.finds[0][1] > entry.finds[-1][1] > 1.1
    assert entry.tasks_for_quarter is not None
    assert entry.tasks_for_quarter < 20  # so few are asked about all tasks together only
    found = [
        smallest_growth(standard_error(entry.noise or 0, tasks, 5, 5), BAR, 1.1)
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


BAR = level(0.05, (1, 2, 3, 4, 5), 5)
#: 15 tasks of this noise find a quarter by five trials beside five: 15 = .4 x (noise / needed) ^ 2.
NEEDED = min(math.log(1.25) / (z(1 - BAR) + z(0.80)), math.log(1.25 / 1.1) / z(0.80))


def sight(noise: float, allowed: float = 1.1) -> Sight:
    return Sight(noise, 5, 0.05, tests=1, tests_heavy=1, allowed=allowed)


def test_no_number_of_tasks_is_advised_that_cannot_pass() -> None:
    """Four tasks would find a quarter, but a new draw of fewer than ten never passes: ten are said."""
    quiet = sight(NEEDED * math.sqrt(4 / 0.4))

    assert quiet.finds(4, 5) == pytest.approx(1.25)
    assert quiet.tasks_for(1.25, 5) == 10
    assert [quiet.tasks_for(1.25, 5, least) for least in (7, 12, 30)] == [10, 12, 30]
    (entry,) = power_of(table(calls(6, 5, seed=4, noise=0.05)), TOLERANCE, RULES)
    assert (entry.tasks, entry.tasks_for_quarter) == (6, 10)


def test_from_twenty_tasks_on_the_dearest_ones_are_a_second_question() -> None:
    """Where 20 tasks would find a quarter with one question they are asked two, and it takes more."""
    few, many = sight(NEEDED * math.sqrt(18.99 / 0.4)), sight(NEEDED * math.sqrt(19.99 / 0.4))

    assert few.tasks_for(1.25, 5) == 19
    assert many.finds(20, 5) > 1.25
    needed = many.tasks_for(1.25, 5)
    assert needed is not None
    assert many.finds(needed, 5) <= 1.25 < many.finds(needed - 1, 5)
    assert few.tasks_for(1.25, 5, 21) == needed - 1  # who has 20 is not told to take one away


def test_more_trials_help_as_far_as_the_anchor_lets_them() -> None:
    """20 tasks of noise .55 beside five trials find a quarter by eight new ones; of noise .9 by no number of them."""
    assert sight(0.55).trials_for(1.25, 20, 5) == 8
    assert sight(0.55).finds(20, 8) <= 1.25 < sight(0.55).finds(20, 7)
    assert sight(0.9).trials_for(1.25, 20, 5) is None
    assert sight(0.1).trials_for(1.25, 9, 5) is None  # nine tasks never pass


def test_a_limit_that_can_be_told_apart_finds_half_as_much_again() -> None:
    """Noise .9, 20 tasks: beside 35 % allowed, 52.5 % is found; beside 30 % the 45 % are not."""
    assert sight(0.9).increase_for(20, 5) == 35
    assert sight(0.9, 1.35).finds(20, 5) <= 1.525
    assert sight(0.9, 1.30).finds(20, 5) > 1.45
    assert sight(0.2, 1.22).increase_for(20, 5) == 25  # no tighter one is advised
    assert sight(0.9).increase_for(9, 5) is None
    assert sight(5.0).increase_for(20, 5) is None


def beyond(draw: Draw) -> list[str]:
    return [reason.text for reason in judge_draws({"a": draw})["a"].reasons if reason.slug == "budget-beyond-evidence"]


def test_a_limit_below_what_the_tasks_can_show_is_told() -> None:
    """Ten tasks of noise .85 find growth of 64 % only; fifty of .33 find less than a quarter."""
    few = drawn(calls(10, 5, seed=4, noise=0.9), calls(10, 5, seed=40, noise=0.9), TOLERANCE)
    some = drawn(calls(20, 5, seed=4, noise=0.55), calls(20, 5, seed=40, noise=0.55), TOLERANCE)
    many = drawn(calls(50, 5, seed=1), calls(50, 2, seed=16), TOLERANCE)

    assert beyond(few) == [
        "the limit allows fanout 10 % more, and by the anchor's noise 10 tasks x 5 trials find growth of 64 % and "
        "more; mend: to find 25 %, add 50 tasks (fanout-baseline power); or allow what can be told apart: "
        'increase = "45%", and fanout-baseline accept'
    ]
    assert beyond(some) == [
        "the limit allows fanout 10 % more, and by the anchor's noise 20 tasks x 5 trials find growth of 28 % and "
        "more; mend: to find 25 %, add 5 tasks or set trials = 8 in its [judge] (fanout-baseline power); or allow what "
        'can be told apart: increase = "20%", and fanout-baseline accept'
    ]
    assert beyond(many) == []


def test_the_notice_and_power_name_the_same_growth() -> None:
    """Both go by the anchor's noise, whatever this draw's own is."""
    anchor = calls(10, 5, seed=4, noise=0.9)
    (entry,) = power_of(table(anchor), TOLERANCE, RULES)
    said = f"find growth of {percent(entry.finds[-1][1]).lstrip('+')} and more; mend: to find 25 %, add "

    for noise in (0.3, 1.4):
        (text,) = beyond(drawn(anchor, calls(10, 5, seed=40, noise=noise), TOLERANCE))
        assert f"by the anchor's noise 10 tasks x 5 trials {said}{(entry.tasks_for_quarter or 0) - 10} tasks" in text


def test_the_noise_of_an_anchor_of_one_trial_is_that_of_the_draw() -> None:
    """One trial a task shows no noise: what is said goes by the trials of this draw, and says so."""
    (text,) = beyond(drawn(calls(10, 1, seed=4, noise=0.9), calls(10, 5, seed=40, noise=0.9), TOLERANCE))

    assert " more, and by the noise of this draw 10 tasks x 5 trials find growth of " in text


def test_more_trials_than_budgeted_are_reckoned_with() -> None:
    """Eight trials ran where five are usual: what they find is said of eight."""
    (text,) = beyond(drawn(calls(10, 5, seed=4, noise=0.9), calls(10, 8, seed=40, noise=0.9), TOLERANCE))

    assert "by the anchor's noise 10 tasks x 8 trials find growth of " in text


def test_pairs_are_not_told_of_a_noise_that_they_do_not_have() -> None:
    """Trials that go on from the anchor's differ from them by a call, however much those differ among themselves."""
    anchor = calls(10, 5, seed=4, noise=0.9)
    run = {task: [value + place % 2 for place, value in enumerate(row)] for task, row in anchor.items()}
    begun = {task: tuple(f"{task}/{place}" for place in range(5)) for task in anchor}
    plain = drawn(anchor, run, TOLERANCE)
    pairs = replace(plain, anchor=replace(plain.anchor, beginnings=begun), run=replace(plain.run, beginnings=begun))

    assert len(beyond(plain)) == 1
    assert beyond(pairs) == []


def test_a_limit_that_allows_a_quarter_is_told_only_beside_what_is_far_above_it() -> None:
    """30 % allowed: growth of 45 % should be found. Noise .58, 30 tasks: it is. Noise .9, 20 tasks: 60 % is found."""
    wide = (Limit("fanout", "p95", Fraction(3, 10), 0),)
    quiet = drawn(calls(30, 5, seed=4, noise=0.6), calls(30, 5, seed=40, noise=0.6), wide)
    noisy = drawn(calls(20, 5, seed=4, noise=0.9), calls(20, 5, seed=40, noise=0.9), wide)

    assert beyond(quiet) == []
    (text,) = beyond(noisy)
    assert text.startswith("the limit allows fanout 30 % more, and by the anchor's noise 20 tasks x 5 trials find")
    assert "; mend: to find 45 %, add " in text
