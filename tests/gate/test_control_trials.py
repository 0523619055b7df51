"""What the gate says of a class by the control arm of its run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from gate_world import make_run, trial

from pytest_fanout.gate.control import causes_of, of_causes
from pytest_fanout.judge import table_of_runs
from pytest_fanout.records import Cause, ControlTrial, JudgeRules, Limit, MetricEvidence

LIMITS = (Limit("fanout", "p95", Fraction(1, 10), 1),)


def draw(fanout: int, trials: int = 1) -> tuple[ControlTrial, ...]:
    made = (trial("support", f"t{task:02d}", number, fanout) for task in range(12) for number in range(1, trials + 1))
    return tuple(ControlTrial(one.agent, one.task, one.trial, one.status, one.passed, one.samples) for one in made)


@pytest.mark.parametrize(("agent", "labels"), [("support", ["environment"]), ("aaa", []), ("zzz", [])])
def test_a_class_is_told_of_its_own_control_trials(agent: str, labels: list[str]) -> None:
    """4 -> 6 calls in today's agent of the base commit, 6 in this one; trials of other classes say nothing of it."""
    run = make_run(control=tuple(replace(one, agent=agent) for one in draw(6)))
    anchor = table_of_runs([trial("support", f"t{task:02d}", number, 4) for task in range(12) for number in (1, 2, 3)])
    now = table_of_runs([trial("support", f"t{task:02d}", 1, 6) for task in range(12)])

    assert [cause.label for cause in causes_of(run, "support", anchor, now, LIMITS, JudgeRules())] == labels


def part(effect: float | None, interval: tuple[float | None, float | None] = (1.1, 1.9)) -> MetricEvidence:
    """Of a limit that allows 21 %: what is behind a growth has to be half of that, which is 10 %."""
    return MetricEvidence("fanout", "body", "pass", effect, interval, 1.21, None, None, 12, 1, 1)


@pytest.mark.parametrize(
    ("label", "environment", "code", "words"),
    [
        ("code", 1.0, 1.5, "the growth of fanout is the code's"),
        ("environment", 1.5, 1.0, "the growth of fanout is the environment's, not the code's"),
        ("both", 1.5, 1.5, "fanout grew by the code and by the environment"),
        ("unknown", 1.5, 1.0, "~ what moved fanout cannot be told apart"),
        ("unknown", 1.0, 1.5, "~ what moved fanout cannot be told apart"),
        ("unknown", 1.0, None, "~ neither the code nor the environment is seen to have moved fanout"),
    ],
)
def test_each_cause_has_its_words(label: str, environment: float | None, code: float | None, words: str) -> None:
    """Where nothing moved it says so; where one part is large and not sure it says that they cannot be told apart."""
    (problem,) = of_causes("support", [Cause("fanout", label, part(environment), part(code), 12, 12)])

    assert problem.text.partition(": the base commit's agent")[0] == f"support: {words}"
    assert (problem.slug, problem.verdict, problem.agent) == ("cause", "notice", "support")


def test_a_part_has_its_interval_where_both_ends_are_known() -> None:
    """Half an interval would be read as a whole one."""
    parts = [part(1.5, interval) for interval in ((1.1, 1.9), (None, 1.9), (1.1, None))]
    (whole, *_), (half, *_) = (
        [problem.text for problem in of_causes("support", [Cause("fanout", "both", one, other, 1, 2)])]
        for one, other in ((parts[0], parts[1]), (parts[2], parts[1]))
    )

    assert whole == (
        "support: fanout grew by the code and by the environment: the base commit's agent of today beside the anchor "
        "+50 % (+10 % to +90 %), this one beside it +50 % (control arm: 1 task, 2 trials)"
    )
    assert "beside the anchor +50 %, this one beside it +50 % (" in half


def test_a_part_that_is_not_known_did_not_move() -> None:
    """No growth, without an interval."""
    (problem,) = of_causes("support", [Cause("fanout", "code", part(None, (None, None)), part(1.5), 2, 1)])

    assert "beside the anchor +0 %, this one beside it +50 % (+10 % to +90 %) (control arm: 2 tasks, 1 trial)" in (
        problem.text
    )
