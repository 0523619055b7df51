"""``compare``: one class judged from its samples, and what it refuses."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drawn_agents import calls

from pytest_fanout.errors import UsageError
from pytest_fanout.judge import compare
from pytest_fanout.records import Limit


def samples(tasks: int, trials: int, seed: int, **kwargs: Any) -> dict[str, dict[str, list[int]]]:
    return {
        task: {"fanout": row, "tokens": [100 * value for value in row]}
        for task, row in calls(tasks, trials, seed, **kwargs).items()
    }


BASE = samples(20, 5, seed=4)


def test_the_same_samples_give_the_same_bytes() -> None:
    """In any order of tasks and metrics, as plain JSON."""
    run = samples(20, 2, seed=31)
    turned = {task: dict(reversed(run[task].items())) for task in reversed(run)}

    first, second = compare(BASE, run).to_dict(), compare(dict(reversed(BASE.items())), turned).to_dict()

    assert json.dumps(first, allow_nan=False) == json.dumps(second, allow_nan=False)
    assert list(first)[:4] == ["verdict", "metrics", "needs", "reasons"]


def test_without_limits_every_metric_is_gated_at_the_tolerance() -> None:
    """Two metrics, body and heavy each: four tests, all of them allowed 10 %."""
    comparison = compare(BASE, samples(20, 1, seed=31))

    assert {(entry.name, entry.threshold) for entry in comparison.metrics} == {("fanout", 1.1), ("tokens", 1.1)}
    assert comparison.tests == 4
    assert {entry.threshold for entry in compare(BASE, samples(20, 1, seed=31), tolerance=0.25).metrics} == {1.25}


def test_replay_is_exact_and_names_what_changed() -> None:
    """One more call in two tasks: no p value, no needs; the limit decides on the raw p95."""
    base = {f"t{place:02d}": {"fanout": [10 + place]} for place in range(5)}
    run = base | {"t03": {"fanout": [14]}, "t04": {"fanout": [15]}}

    comparison = compare(base, run, mode="replay", limits=(Limit("fanout", "p95", Fraction(5, 100), 1),))

    assert (comparison.verdict, bool(comparison.needs)) == ("regressed", False)
    (entry,) = comparison.metrics
    assert (entry.p95_base, entry.p95_run, entry.p) == (14, 15, None)
    assert [f"{reason.slug}: {reason.text}" for reason in comparison.reasons] == [
        "over-limit: fanout.p95 14 -> 15 (limit 14)",
        "tasks-changed: fanout changed in 2 of 5 tasks: t03, t04",
    ]


def test_a_replay_that_is_the_same_passes_with_few_tasks() -> None:
    """Nothing of it is chance: a single task is enough."""
    assert compare({"a": {"fanout": [3, 4]}}, {"a": {"fanout": [4, 3]}}, mode="replay").verdict == "pass"


def test_all_tasks_equal_is_no_fault() -> None:
    """Twenty tasks of five calls each, twice: no spread anywhere, and it passes."""
    same = {f"t{place:02d}": {"fanout": [5] * 5} for place in range(20)}

    assert compare(same, {task: {"fanout": [5]} for task in same}).verdict == "pass"


def test_one_task_is_never_enough() -> None:
    """Its growth has no interval: a right answer, and no fault."""
    comparison = compare({"a": {"fanout": [3, 4, 5]}}, {"a": {"fanout": [4]}})

    assert comparison.verdict == "inconclusive"
    assert comparison.metrics[0].interval == (None, None)


def test_a_tenth_of_the_tasks_may_be_missing_and_not_more() -> None:
    """What was left out may be what grew: 18 of 20 are judged, 17 are not."""
    run = samples(20, 2, seed=33)
    some = {task: run[task] for task in sorted(run)[:18]}
    fewer = {task: run[task] for task in sorted(run)[:17]}

    assert compare(BASE, some).missing == ("t018", "t019")
    comparison = compare(BASE, fewer)
    assert comparison.verdict == "invalid"
    assert [f"{reason.slug}: {reason.text}" for reason in comparison.reasons] == [
        "coverage-short: only 17 of 20 tasks of the anchor were measured, and 90 % are needed: what is left out may be "
        "what grew; mend: run the whole class"
    ]


def test_a_run_without_a_call_is_no_fanout_of_zero() -> None:
    """An anchor whose tasks all have calls: a new trial with none was not measured."""
    run = samples(20, 1, seed=33) | {"t004": {"fanout": [0], "tokens": [0]}}

    comparison = compare(BASE, run)

    assert comparison.verdict == "invalid"
    assert comparison.reasons[0].text == (
        "no model call was counted in a trial of t004, whose anchor has some: that is no fanout of 0; mend: find out "
        "why, and run again"
    )


def test_a_replay_without_a_call_or_of_fewer_trials_is_no_pass() -> None:
    """Both would lower the numbers: no call is no fanout of 0, and the dear trial may be the one that was left out."""
    base = {"a": {"fanout": [3, 3, 9]}, "b": {"fanout": [4, 4, 4]}}
    silent = compare(base, base | {"b": {"fanout": [4, 0, 4]}}, mode="replay")
    fewer = compare(base, base | {"a": {"fanout": [3, 3]}}, mode="replay")

    assert (silent.verdict, silent.reasons[0].slug) == ("invalid", "no-calls")
    assert (fewer.verdict, fewer.reasons[0].text) == (
        "invalid",
        "a replay of fewer trials than the anchor has of a: what is left out may be what grew; mend: run all that are "
        "recorded",
    )


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit("fanout", "max", max=20), "fanout.max 24 -> 48 (limit 20)"),
        (Limit("fanout", "p95", Fraction(10), 1, max=30), "fanout.p95 23 -> 46 (limit 30)"),
        (Limit("fanout", "p95", Fraction(1, 10), 1, evidence=False), "fanout.p95 23 -> 46 (limit 25)"),
    ],
    ids=["max alone", "max beside growth", "evidence off"],
)
def test_maxima_and_limits_without_evidence_are_judged_on_raw_numbers(limit: Limit, said: str) -> None:
    """Twice the calls on a new draw, and no test that asks for growth: the bare number decides, without more trials."""
    base = {f"t{place:02d}": {"fanout": [5 + place]} for place in range(20)}
    run = {task: {"fanout": [2 * value for value in row["fanout"]]} for task, row in base.items()}

    comparison = compare(base, run, limits=(limit,))

    assert (comparison.verdict, bool(comparison.needs)) == ("regressed", False)
    assert (comparison.reasons[0].slug, comparison.reasons[0].text) == ("over-limit", said)
    assert comparison.metrics[-1].verdict == "regressed"
    assert compare(base, base, limits=(limit,)).verdict == ("regressed" if "limit 20" in said else "pass")


def test_different_numbers_of_trials_are_judged_as_they_are() -> None:
    """Tasks of three to five trials in the anchor, and of one or two in the run: the whole first trial is looked at."""
    base = {
        task: {name: values[: 3 + place % 3] for name, values in row.items()}
        for place, (task, row) in enumerate(BASE.items())
    }
    run = {
        task: {name: values[: 1 + place % 2] for name, values in row.items()}
        for place, (task, row) in enumerate(samples(20, 2, seed=33).items())
    }

    entry = compare(base, run).metrics[0]

    assert (entry.trials_base, entry.trials_run) == (3, 1)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    """Samples may come out of an array."""
    assert compare({"a": {"fanout": np.array([3, 4])}}, {"a": {"fanout": np.array([3])}}).n == 1  # type: ignore[dict-item]


GOOD: Any = {"a": {"fanout": [3, 4], "tokens": [300, 400]}}
FORM = "measured: is not of the form {task: {metric: [numbers]}}\n  mend: give the samples by task and metric"
NO_METRIC = (
    "measured: task 'a': {} is no metric that can be given\n"
    "  mend: call each by its name, like fanout; how trials ended is no sample"
)
EACH = "give one whole number for each trial, in the same order for every metric"


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        ({}, "measured: holds no task\n  mend: give at least one task with its samples"),
        (
            {"a": {"fanout": [3, float("nan")], "tokens": [1, 2]}},
            f"measured: task 'a', fanout, trial 2: nan is no whole number\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [2.5], "tokens": [1]}},
            f"measured: task 'a', fanout, trial 1: 2.5 is no whole number\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [True], "tokens": [1]}},
            f"measured: task 'a', fanout, trial 1: True is no whole number\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [None], "tokens": [1]}},
            f"measured: task 'a', fanout, trial 1: None is no whole number\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [-1], "tokens": [1]}},
            f"measured: task 'a', fanout, trial 1: -1 is below 0 or above 2**53\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": 3, "tokens": [1]}},
            f"measured: task 'a', fanout: 3 is no list of numbers\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [], "tokens": []}},
            "measured: task 'a': holds no trials\n  mend: leave the task out, or give its samples",
        ),
        (
            {"a": {"fanout": [3, 4], "tokens": [300]}},
            f"measured: task 'a': its metrics have different numbers of trials: fanout 2, tokens 1\n  mend: {EACH}",
        ),
        (
            [3, 4],
            FORM,
        ),
        (
            {"a": [3, 4]},
            FORM,
        ),
        (
            {1: {"fanout": [3], "tokens": [1]}},
            FORM,
        ),
        ({"a": {"fanout": [3]}}, f"measured: task 'a': has no tokens, and other tasks have\n  mend: {EACH}"),
        (
            {"a": {"fanout": [3], "tokens": [2**70]}},
            f"measured: task 'a', tokens, trial 1: {2**70} is below 0 or above 2**53\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": [float("inf")], "tokens": [1]}},
            f"measured: task 'a', fanout, trial 1: inf is no whole number\n  mend: {EACH}",
        ),
        # a set holds no order of trials and no value twice; an array without a dimension holds nothing in order
        (
            {"a": {"fanout": {3}, "tokens": [1]}},
            f"measured: task 'a', fanout: {{3}} is no list of numbers\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": {1: 3}, "tokens": [1]}},
            f"measured: task 'a', fanout: {{1: 3}} is no list of numbers\n  mend: {EACH}",
        ),
        (
            {"a": {"fanout": np.array(3), "tokens": [1]}},
            f"measured: task 'a', fanout: array(3) is no list of numbers\n  mend: {EACH}",
        ),
        ({"a": {"fanout": [3], 1: [1]}}, NO_METRIC.format(1)),
        ({"a": {"fanout": [3], "": [1]}}, NO_METRIC.format("''")),
        # the judge counts these from how trials ended: what is given under the name would be looked at by nobody
        ({"a": {"fanout": [3], "capped": [1]}}, NO_METRIC.format("'capped'")),
    ],
)
def test_what_is_no_sample_is_refused(measured: Any, text: str) -> None:
    """Task, metric and trial are named, and what is wanted."""
    with pytest.raises(UsageError) as caught:
        compare(GOOD, measured)

    assert str(caught.value) == f"{text}\n  see: docs/messages.md#bad-samples"


NOTHING = (
    "limits holds none on a metric that was measured: nothing would be judged\n  mend: limits=None gates every metric"
)
ONE = 'limits=[Limit("fanout", "p95", Fraction(1, 10))]'


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "dead"}, 'mode is \'dead\'\n  mend: mode="live" or mode="replay"'),
        ({"alpha": 0}, "alpha is 0, and has to lie above 0 and at most at 0.5\n  mend: alpha=0.05"),
        ({"alpha": float("nan")}, "alpha is nan, and has to lie above 0 and at most at 0.5\n  mend: alpha=0.05"),
        ({"tolerance": -0.1}, "tolerance is -0.1, and has to be a part of 1, at least 0\n  mend: tolerance=0.10"),
        ({"trials": 0}, "trials is 0, and has to be a whole number of at least 1\n  mend: trials=5"),
        (
            {"limits": (Limit("rounds", "p95", Fraction(1, 10)),)},
            "the limit rounds.p95 is on a metric that no task has\n  mend: one of fanout, tokens",
        ),
        ({"alpha": "5%"}, "alpha is '5%', and has to lie above 0 and at most at 0.5\n  mend: alpha=0.05"),
        ({"tolerance": None}, "tolerance is None, and has to be a part of 1, at least 0\n  mend: tolerance=0.10"),
        ({"tolerance": True}, "tolerance is True, and has to be a part of 1, at least 0\n  mend: tolerance=0.10"),
        ({"trials": 2.0}, "trials is 2.0, and has to be a whole number of at least 1\n  mend: trials=5"),
        ({"limits": ()}, NOTHING),
        ({"limits": (Limit("capped", "share", Fraction(0), 5),)}, NOTHING),
        ({"limits": ["fanout.p95"]}, f"limits is no list of Limit\n  mend: {ONE}"),
        ({"limits": Limit("fanout", "p95", max=3)}, f"limits is no list of Limit\n  mend: {ONE}"),
        ({"limits": (Limit("fanout", "p95"),)}, "the limit fanout.p95 limits nothing\n  mend: give it increase or max"),
        (
            {"limits": (Limit("fanout", "p42", Fraction(1, 10)),)},
            "the limit fanout.p42 is on a statistic that there is not\n"
            "  mend: one of mean, p50, p90, p95, p99, p99.9, max",
        ),
        (
            {"limits": (Limit("fanout", "p95", float("nan")),)},  # type: ignore[arg-type]
            f"the increase of fanout.p95 is nan, and has to be at least 0\n  mend: {ONE}",
        ),
        (
            {"limits": (Limit("fanout", "p95", Fraction(1, 10), max=float("inf")),)},  # type: ignore[arg-type]
            f"max of fanout.p95 is inf, and has to be a whole number, at least 0\n  mend: {ONE}",
        ),
    ],
)
def test_options_that_cannot_be_acted_on_are_refused(options: dict[str, Any], text: str) -> None:
    """The option is named, and what it can be."""
    with pytest.raises(UsageError) as caught:
        compare(GOOD, GOOD, **options)

    assert str(caught.value) == f"compare(): {text}\n  see: docs/messages.md#bad-comparison"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 1e-300},
        {"trials": 10**18},
        {"tolerance": 1e-320},
        {"trials": np.int64(5)},
        {"tolerance": np.float32(0.1)},
    ],
    ids=["tiny alpha", "endless trials", "tiny tolerance", "int of numpy", "float of numpy"],
)
def test_odd_options_that_can_be_acted_on_are(options: dict[str, Any]) -> None:
    """No number that is in range ends in a fault of the arithmetic, or in a warning of it."""
    assert compare(BASE, samples(20, 2, seed=33), **options).verdict in ("pass", "inconclusive")


@pytest.mark.parametrize("mode", ["live", "replay"])
def test_any_mix_of_numbers_of_trials_is_weighed(mode: str) -> None:
    """Tasks of 2, 3, 5 … 71 trials have a common multiple of 27 digits: each task counts once all the same."""
    primes = [count for count in range(2, 72) if all(count % by for by in range(2, count))]
    base = {f"t{count:02d}": {"fanout": [10 + at % 3 for at in range(count)]} for count in primes}
    run = base if mode == "replay" else {task: {"fanout": [11]} for task in base}

    comparison = compare(base, run, mode=mode)

    assert comparison.verdict == "pass"
    assert comparison.metrics[0].p95_base_interval is not None


def test_a_thousand_tasks_of_ten_trials_take_at_most_two_seconds() -> None:
    """Two limits, five looks; counted in seconds of this process's own work."""
    base, run = samples(1000, 10, seed=35), samples(1000, 10, seed=36)
    compare(BASE, samples(20, 1, seed=33))  # numpy is loaded
    started = time.process_time()

    comparison = compare(base, run, trials=10)

    assert time.process_time() - started < 2
    assert comparison.verdict == "pass"
