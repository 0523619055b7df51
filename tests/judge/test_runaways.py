"""The backstop: single runs far beyond all that their task did, told always, and failing when they repeat."""

from __future__ import annotations

import pytest
from drawn_agents import Calls, calls, drawn, first

from pytest_fanout.judge import judge_draws
from pytest_fanout.judge.runaways import chance_of_runaway, robust_maximum
from pytest_fanout.records import Comparison, Needs

#: Fifty quiet tasks: no trial of the anchor is three times the others.
BASE = calls(50, 5, seed=1, noise=0.1)

APPROVED = 'have it approved: fanout-baseline accept --reason "…"'


def judged(run: Calls, base: Calls = BASE) -> Comparison:
    return judge_draws({"support": drawn(base, run)})["support"]


def with_runaway(trials: int, *away: int) -> Calls:
    """Unchanged trials, and those of the numbers ``away`` (from 1) ten times as many calls in t007."""
    run = calls(50, trials, seed=2, noise=0.1)
    for number in away:
        run["t007"][number - 1] = 10 * max(BASE["t007"])
    return run


@pytest.mark.parametrize(
    ("values", "largest"),
    [([4, 5, 6], 6), ([4, 5, 6, 90], 6), ([4, 5, 90, 90], 5), ([7], 7), ([0, 0, 0], 0), ([2, 6, 7], 7)],
)
def test_one_runaway_of_the_anchor_does_not_disarm_it(values: list[int], largest: int) -> None:
    """The robust maximum is the largest value of at most three times the lower median."""
    assert robust_maximum(values) == largest


def test_a_first_runaway_is_run_again_before_the_class_passes() -> None:
    """One trial, ten times as many calls: that task alone is asked for, and nothing passes before it is known."""
    comparison = judged(with_runaway(1, 1))

    assert (comparison.verdict, comparison.needs) == ("inconclusive", Needs(("t007",), 1, "backstop"))
    (stray,) = comparison.runaways
    assert (stray.task, stray.beyond, stray.trials, stray.repeated) == ("t007", 1, 1, False)
    assert stray.bound == 3 * max(BASE["t007"])


def test_a_runaway_that_stays_alone_is_told_and_passes() -> None:
    """Two further trials of the task are as ever: a notice."""
    run = first(with_runaway(3, 1), 1) | {"t007": with_runaway(3, 1)["t007"]}

    comparison = judged(run)

    assert (comparison.verdict, comparison.needs) == ("pass", Needs())
    assert [reason.slug for reason in comparison.reasons] == ["runaway"]


def test_a_runaway_that_repeats_fails_the_class() -> None:
    """Three of three trials: no noise of this class explains it, though the class as a whole has not grown."""
    run = first(with_runaway(3, 1, 2, 3), 1) | {"t007": with_runaway(3, 1, 2, 3)["t007"]}

    comparison = judged(run)

    assert comparison.verdict == "regressed"
    assert comparison.reasons[0].slug == "runaway-repeated"
    assert comparison.runaways[0].repeated


def test_a_task_that_ran_away_in_the_anchor_as_often_is_no_news() -> None:
    """Two of its five trials were ten times the others, and one of three new ones is."""
    base = {task: list(row) for task, row in BASE.items()}
    base["t007"] = [5, 50, 5, 50, 5]

    assert judged(first(calls(50, 2, seed=2, noise=0.1), 2) | {"t007": [5, 50, 5]}, base).runaways == ()


def test_the_chance_of_a_runaway_is_that_of_the_anchors_own_trials() -> None:
    """One of ten trials is more than three times the others of its task: 1.5 of 11; again: 1 of that task's five."""
    before = {"a": (4, 5, 6, 5, 30), "b": (4, 5, 6, 5, 4)}

    once, again = chance_of_runaway(before, before)

    assert once == pytest.approx(1.5 / 11)
    assert again == pytest.approx(0.2)


def test_tasks_of_a_class_that_run_away_are_one_reason() -> None:
    """Five are named, the others counted, and the figures are those of the furthest."""
    run = calls(50, 3, seed=2, noise=0.1)
    for number in range(1, 8):
        run[f"t{number:03}"] = [10 * max(BASE[f"t{number:03}"]) + number] * 3

    texts = [reason.text for reason in judged(run).reasons if reason.slug.startswith("runaway")]

    (text,) = texts
    assert text.startswith("7 tasks ran away: t001, t002, t003, t004, t005 and 2 more; furthest: fanout of t0")
    assert text.endswith(f"in 3 of 3 trials: they repeat; mend: find the loop, or {APPROVED}")


def test_a_class_that_grew_as_a_whole_is_not_told_to_find_a_loop() -> None:
    """All fifty tasks take ten times as many calls."""
    run = {task: [10 * max(row)] * 3 for task, row in BASE.items()}

    (text,) = [reason.text for reason in judged(run).reasons if reason.slug.startswith("runaway")]

    assert text.startswith("50 tasks ran away: t000, t001, t002, t003, t004 and 45 more; furthest: fanout of t0")
    assert text.endswith(f"they repeat, and the class grew as a whole; mend: bring it back, or {APPROVED}")


def test_tasks_that_ran_away_once_are_one_notice() -> None:
    """Of three tasks one trial of three did."""
    run = calls(50, 3, seed=2, noise=0.1)
    for number in (1, 2, 3):
        run[f"t{number:03}"][0] = 10 * max(BASE[f"t{number:03}"])

    (reason,) = [reason for reason in judged(run).reasons if reason.slug.startswith("runaway")]

    assert (reason.slug, reason.verdict) == ("runaway", "notice")
    assert reason.text.startswith("3 tasks ran away: t001, t002, t003; furthest: fanout of t00")
    assert reason.text.endswith("in 1 of 3 trials")
