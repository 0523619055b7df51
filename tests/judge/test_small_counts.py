"""Classes of few calls a task: where ``at_least`` decides, growth by ``at_least`` is over, as it is by raw numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest
from drawn_agents import Calls, calls, drawn, table

from pytest_fanout.judge import Draw, TrialTable, compare, judge_draws
from pytest_fanout.records import Comparison, JudgeRules, Limit

TASKS = [f"t{place:02d}" for place in range(20)]


def judged(draw: Draw) -> Comparison:
    return judge_draws({"": draw})[""]


def even(value: int, trials: int = 5, first: list[int] | None = None) -> Calls:
    """Every task the same, except the first one where ``first`` says so."""
    return {task: first if first is not None and task == TASKS[0] else [value] * trials for task in TASKS}


@pytest.mark.parametrize("calls_before", [1, 2, 5, 9])
@pytest.mark.parametrize("noise", ["one trial of 100 differs", "an anchor of one trial a task"])
def test_one_call_more_in_every_task_is_over(calls_before: int, noise: str) -> None:
    """at_least = 1 is reached; neither the noise of one trial nor an anchor that cannot show any hides it."""
    row = [calls_before] * 4 + [calls_before + 1]
    base = even(calls_before, 1) if "one trial a" in noise else even(calls_before, first=row)

    comparison = judged(drawn(base, even(calls_before + 1, 2)))

    assert comparison.metrics[0].threshold == pytest.approx(max(1.1, 1 + 0.5 / calls_before))
    assert comparison.verdict == "regressed"


def test_a_tool_that_every_task_begins_to_call_is_over() -> None:
    """No trial of the anchor but one calls it: its p95 is 0, and 1 afterwards."""
    before, after = even(0, first=[0, 0, 1, 0, 0]), even(1, 2)
    limits = (Limit("tool_calls[search]", "p95", Fraction(1, 10), 1),)

    comparison = compare(
        {task: {"tool_calls[search]": row} for task, row in before.items()},
        {task: {"tool_calls[search]": row} for task, row in after.items()},
        limits=limits,
    )

    assert comparison.verdict == "regressed"


def test_less_than_half_of_at_least_is_within() -> None:
    """One of five trials takes a call more than the 4 of the anchor: 5 % a task, and 12.5 % is what half a call is."""
    comparison = judged(drawn(even(4, first=[4, 4, 4, 4, 5]), {task: [4, 4, 4, 4, 5] for task in TASKS}))

    assert comparison.verdict == "pass"


@pytest.mark.parametrize(
    ("statistic", "verdict"), [("p95", "pass"), ("max", "inconclusive")], ids=["p95 fell", "max rose"]
)
def test_doubt_about_the_dearest_tasks_is_settled_by_what_is_limited(statistic: str, verdict: str) -> None:
    """They grew by 45 %, p 0.015, and no trials are left: p95 went from 42 to 41, the largest from 150 to 275."""
    base = calls(40, 5, seed=4, noise=0.7)
    run = calls(40, 5, seed=26, noise=0.7, times=lambda place: 1.4 if place >= 32 else 0.92)

    comparison = judged(drawn(base, run, (Limit("fanout", statistic, Fraction(1, 10), 1),)))

    (heavy,) = [entry for entry in comparison.metrics if entry.statistic == "heavy"]
    assert heavy.p == pytest.approx(0.015, abs=0.004)
    assert comparison.verdict == verdict


@pytest.mark.parametrize(
    "limits",
    [(), (Limit("fanout", "p95", None, 0, max=100),), (Limit("fanout", "p95", Fraction(1, 10), 1, evidence=False),)],
    ids=["none", "a maximum", "evidence off"],
)
def test_shared_beginnings_need_no_limit_that_evidence_decides(limits: Any) -> None:
    """Trials that go on from the anchor's recordings, and only limits on raw numbers: nothing to test."""
    base = table(calls(20, 2, seed=4))
    beginnings = {task: (f"{task}-1", f"{task}-2") for task in base.statuses}
    begun = TrialTable(base.samples, base.statuses, base.passed, beginnings)

    comparison = judged(Draw(begun, begun, limits, JudgeRules()))

    assert (comparison.verdict, comparison.metrics) == ("pass", ())


def searches(rows: Calls, tasks: int = 20) -> Calls:
    """A tool that the first tasks call as ``rows`` says, and the others never."""
    trials = len(rows["t000"])
    return {f"t{place:03d}": rows.get(f"t{place:03d}", [0] * trials) for place in range(tasks)}


def of_searches(base: Calls, run: Calls, statistic: str = "p95") -> Comparison:
    sides = ({task: {"tool_calls[search]": row} for task, row in rows.items()} for rows in (base, run))
    return compare(*sides, limits=(Limit("tool_calls[search]", statistic, Fraction(1, 10), 1),))


@pytest.mark.parametrize(("statistic", "verdict"), [("p95", "pass"), ("max", "inconclusive")])
def test_a_metric_of_one_task_is_over_where_its_limited_figure_is(statistic: str, verdict: str) -> None:
    """One task of twenty searches: 2 to 4 times, now 2 to 9; p95 is 0 on both sides, the largest rose from 4 to 9."""
    comparison = of_searches(searches({"t000": [2, 4, 3, 4, 2]}), searches({"t000": [9, 2, 5, 4, 9]}), statistic)

    assert (comparison.verdict, comparison.metrics[0].effect) == (verdict, pytest.approx(1.76, abs=0.01))


def test_what_nobody_does_on_either_side_needs_no_further_trial() -> None:
    """Nothing is nothing, whatever an anchor of one trial a task can show of noise."""
    comparison = of_searches(searches({"t000": [0]}), searches({"t000": [0]}))

    assert (comparison.verdict, comparison.needs.trials) == ("pass", 0)
    assert comparison.metrics[0].interval == (1.0, 1.0)


def few_calls(seed: int, grown: float = 1.0) -> Calls:
    """20 tasks of about 1, 2 or 3 calls, five trials of each, as loud as such agents are."""
    chance = random.Random(seed)
    return {
        f"t{place:02d}": [max(1, round((1 + place % 3) * grown * math.exp(chance.gauss(0, 0.5)))) for _ in range(5)]
        for place in range(20)
    }


@pytest.mark.parametrize(
    ("seed", "p95", "verdict"), [(22, (5, 5), "pass"), (5, (5, 6), "inconclusive")], ids=["p95 stays", "p95 is over"]
)
def test_a_best_guess_that_only_rounds_to_at_least_is_borne_out_by_the_figure(
    seed: int, p95: tuple[int, int], verdict: str
) -> None:
    """About 15 % more, which the evidence cannot tell: one call of a p95 of 5 is 20 %, and 10 % rounds to it."""
    comparison = judged(drawn(few_calls(100 + seed), few_calls(500 + seed, 1.12)))

    body = comparison.metrics[0]
    assert (body.effect, body.threshold) == (pytest.approx(1.15, abs=0.01), 1.1)
    assert ((body.p95_base, body.p95_run), comparison.verdict) == (p95, verdict)
