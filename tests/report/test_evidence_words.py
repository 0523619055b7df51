"""How reports speak of a new draw: what is ruled out, what is not estimable, and what each further limit costs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from drawn_agents import Calls, calls, drawn, first

from pytest_fanout.judge import judge_draws
from pytest_fanout.records import ClassResult, Comparison, Limit
from pytest_fanout.report.evidence import evidence_texts

FANOUT = Limit("fanout", "p95", Fraction(1, 10))
TOKENS = Limit("tokens", "p95", Fraction(1, 10))


def judged(base: Calls, run: Calls, *limits: Limit) -> Comparison:
    return judge_draws({"a": drawn(base, run, limits or (FANOUT,))})["a"]


def texts(comparison: Comparison) -> list[str]:
    result = ClassResult("a", comparison.verdict, "new", (), (), comparison.n, comparison.n, 1)
    return evidence_texts(replace(result, evidence=comparison))


def test_growth_is_ruled_out_and_never_said_to_be_absent() -> None:
    """Fifty tasks, two trials: what is ruled out, with 95 %; nowhere that nothing grew."""
    said = texts(judged(calls(50, 5, seed=1), calls(50, 2, seed=16)))

    assert said[0].startswith("fanout of a typical task ")
    assert said[0].endswith("): growth above 1.4 % ruled out (95 %)")
    assert not any("no regression" in text or "no growth" in text for text in said)


def test_what_is_not_told_either_way_is_marked() -> None:
    """~: twelve tasks of noise .33, one trial, are open."""
    said = texts(judged(calls(12, 5, seed=4), calls(12, 1, seed=31)))

    assert said[0].startswith("~ fanout of a typical task ")
    assert said[0].endswith(", more trials are needed to tell")


@pytest.mark.parametrize(
    ("tasks", "base", "run"),
    [
        # the 19th value of 19: below 20 tasks none has a twentieth of them above it
        (19, "p95 28 (not estimable)", " -> 28 (not estimable), 19 tasks, 5 and 1 trial"),
        # the 19th of 20: the 17th is a lower end (16 or fewer below p95: 1.6 %), and below 59 nothing is an upper one
        (20, "p95 28 (at least 26)", " -> 28 (at least 26), 20 tasks, 5 and 1 trial"),
        # the 57th of 59, between the 53rd and the last (.95 ^ 59 = 4.8 %)
        (59, "p95 66 (62 to 68)", " -> 66 (62 to 68), 59 tasks, 5 and 1 trial"),
    ],
)
def test_percentiles_that_so_few_tasks_cannot_support(tasks: int, base: str, run: str) -> None:
    """Tasks of 10, 11, 12 ... calls, each the same in all its trials."""
    anchor: Calls = {f"t{place:02d}": [10 + place] * 5 for place in range(tasks)}

    assert f"fanout.{base}{run}, a rerun of a task moves it by 0 %" in texts(judged(anchor, first(anchor, 1)))


def test_a_further_limit_is_said_to_cost_what_it_hides() -> None:
    """Twenty tasks of noise .33: with a limit on calls alone growth by 16 % is found, with one on tokens too 18 %."""
    base, run = calls(20, 5, seed=4), calls(20, 2, seed=31)

    one, both = judged(base, run), judged(base, run, FANOUT, TOKENS)

    assert (both.level_one_less, both.finds_one_less) == (one.level, one.finds)
    assert (one.finds or 0) < (both.finds or 0)
    assert texts(one)[-1] == (
        "2 tests in this run, one chance of a false alarm for all: growth needs p 0.0091, and +16 % of fanout is found "
        "in four of five draws of 5 trials"
    )
    assert texts(both)[-1] == (
        "4 tests in this run, one chance of a false alarm for all: growth needs p 0.0043, and +18 % of fanout is found "
        "in four of five draws of 5 trials (0.0091 and +16 % with one limit less)"
    )


def test_a_further_limit_that_hides_nothing_is_not_told() -> None:
    """+17.6 % and +17.7 % are both 18 %: that costs nothing that could be seen."""
    both = judged(calls(20, 5, seed=4), calls(20, 2, seed=31), FANOUT, TOKENS)
    alike = replace(both, finds=1.177, finds_one_less=1.176)

    assert texts(alike)[-1].endswith(", and +18 % of fanout is found in four of five draws of 5 trials")


def test_what_is_found_is_that_of_all_trials_however_few_ran() -> None:
    """After one trial of five the figure is that of five, as ``power`` has it in its last column, and says so."""
    base = calls(20, 5, seed=4)

    after_one, after_two = judged(base, calls(20, 1, seed=31)), judged(base, calls(20, 2, seed=31))

    assert (after_one.finds, after_one.finds_trials) == (after_two.finds, 5)
    assert texts(after_one)[-1].endswith("four of five draws of 5 trials")


def test_the_cost_is_told_of_the_metric_that_has_any() -> None:
    """500 tokens more are always allowed: growth of tokens is harder to find, and a further limit changes nothing."""
    comparison = judged(calls(20, 5, seed=4), calls(20, 2, seed=31), FANOUT, replace(TOKENS, at_least=500))

    assert comparison.finds_of == "fanout"


def test_without_noise_nothing_is_hidden() -> None:
    """Tasks that repeat exactly are compared exactly."""
    anchor: Calls = {f"t{place:02d}": [10 + place] * 5 for place in range(12)}

    assert texts(judged(anchor, first(anchor, 1)))[-1] == (
        "1 test in this run, one chance of a false alarm for all: growth needs p 0.02"
    )
