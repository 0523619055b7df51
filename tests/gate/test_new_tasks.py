"""A task that no anchor knows is held to what the limits of the class allow any of its tasks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from gate_world import TWENTY, make_run, with_trials

from pytest_fanout.gate.completeness import measure
from pytest_fanout.gate.draws import new_tasks_over
from pytest_fanout.records import Limit
from pytest_fanout.store.baselines import build_baseline

#: p95 19 and maximum 20, by 10 % more.
ANCHOR = build_baseline(make_run(), "support")
TENTH = Limit("fanout", "p95", Fraction(1, 10), 1)


def over(limit: Limit, *fanout: int, task: str = "new", known: bool = True) -> list[str]:
    run = make_run({**TWENTY, task: list(fanout)})
    if not known:
        run = with_trials(run, task, samples={"fanout": None})
    measured = measure(run, "support", ANCHOR, ANCHOR, (limit,))
    return [problem.text for problem in new_tasks_over("support", ANCHOR, measured, (limit,))]


@pytest.mark.parametrize(
    ("limit", "last"),
    [
        (TENTH, 20),
        (replace(TENTH, statistic="max"), 22),
        (replace(TENTH, statistic="p99"), 22),
        (replace(TENTH, statistic="p99.9"), 22),
    ],
)
def test_a_new_task_may_take_what_the_limit_allows_the_class(limit: Limit, last: int) -> None:
    """Of a percentile or a maximum it is the number itself; one call more is over it."""
    assert over(limit, last) == []
    assert over(limit, last + 1) == [
        f"support: the new task new takes {last + 1} fanout, above the {last} that {limit.name} allows the class; "
        'mend: make it cheaper, or accept it: fanout-baseline accept --agent support --reason "…"'
    ]


@pytest.mark.parametrize("statistic", ["p50", "p90", "mean"])
@pytest.mark.parametrize("increase", [None, Fraction(1, 10)])
def test_a_limit_on_the_middle_is_none_on_a_single_task(statistic: str, increase: Fraction | None) -> None:
    """Half of all tasks take more than the median."""
    assert over(replace(TENTH, statistic=statistic, increase=increase), 1_000) == []


def test_a_maximum_alone_allows_no_growth_to_hold_it_to() -> None:
    """What is above the maximum is told of the class."""
    assert over(replace(TENTH, increase=None, max=5), 1_000) == []


def test_the_middle_trial_speaks_for_the_task() -> None:
    """One long trial of three is luck; of two the shorter one counts."""
    assert over(TENTH, 5, 90, 5) == over(TENTH, 90, 5) == []
    assert len(over(TENTH, 90, 5, 90)) == 1


def test_what_the_anchor_knows_or_nobody_counted_is_not_new() -> None:
    """Known tasks are compared with themselves."""
    assert over(TENTH, 90, task="t20") == []
    assert over(TENTH, 90, known=False) == []
