"""What stands against a run as a whole, whatever its classes are: each bound from both of its sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_world import make_run, trial

from pytest_fanout.gate.completeness import of_session
from pytest_fanout.records import Problem, Run, SessionFacts, Totals


def texts(run: Run) -> list[str]:
    return [problem.text for problem in of_session(run)]


def of(session: SessionFacts) -> Run:
    return replace(make_run(), session=session)


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        (0, []),
        (1, ["1 model call belongs to no task; mend: make it inside a task, or in aside()"]),
        (2, ["2 model calls belong to no task; mend: make them inside a task, or in aside()"]),
    ],
)
def test_calls_of_no_task(calls: int, told: list[str]) -> None:
    """One is enough; none is none."""
    assert texts(make_run(totals=Totals(unattributed=calls))) == told


@pytest.mark.parametrize(("requests", "told"), [(1, "1 request"), (2, "2 requests")])
def test_requests_that_nobody_reads(requests: int, told: str) -> None:
    """One is enough."""
    (text,) = texts(make_run(totals=Totals(unclassified=requests)))

    assert text == (
        f"{told} went to a model endpoint that no codec reads; mend: add one with the hook pytest_fanout_codecs"
    )


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("invalid", ["call-of-no-task"]), ("notice", ["call-of-no-task", "unattributed-calls", "unclassified-calls"])],
)
def test_what_the_session_said_already_is_not_counted_once_more(verdict: str, said: list[str]) -> None:
    """Only a problem that makes the run invalid speaks for its calls."""
    problem = Problem("call-of-no-task", "a call", verdict)

    found = of_session(make_run(problems=(problem,), totals=Totals(unattributed=1, unclassified=1)))

    assert [each.slug for each in found] == said


@pytest.mark.parametrize("agent", ["aaa", "support", "zzz"])
def test_a_problem_of_a_class_is_told_with_the_class(agent: str) -> None:
    """It does not stand against the whole run."""
    assert texts(make_run(problems=(Problem("x", "y", "stale", agent),))) == []


@pytest.mark.parametrize("code", range(7))
def test_how_pytest_ended(code: int) -> None:
    """2 to 5 are its own ends: interrupted, broken, misused, nothing collected; 1 is a test that failed."""
    stopped = [f"pytest itself ended with exit code {code}; mend: see its own output above"]

    assert texts(of(SessionFacts(expected=20, pytest_exit=code))) == (stopped if 2 <= code <= 5 else [])


def test_an_end_of_pytest_is_told_once() -> None:
    """What stopped the session is told where pytest's exit code does not say it."""
    early = ["the session ended early: --maxfail; mend: run it whole"]

    assert texts(of(SessionFacts(expected=20, stopped="--maxfail", pytest_exit=1))) == early
    assert texts(of(SessionFacts(expected=20, stopped="--maxfail", pytest_exit=2))) == [
        "pytest itself ended with exit code 2; mend: see its own output above"
    ]


@pytest.mark.parametrize("status", ["stale", "crashed", "invalid"])
def test_a_run_in_which_no_task_was_measured(status: str) -> None:
    """A trial that is stale came to an answer of its own; one that crashed or is invalid did not."""
    run = replace(make_run({}), tasks=(trial("support", "a", 1, 1, status=status),), session=SessionFacts(expected=3))
    nothing = ["no task ran (0/3); mend: configure an agent in [tool.fanout.agents], or mark a test"]

    assert texts(run) == ([] if status == "stale" else nothing)


@pytest.mark.parametrize(("expected", "lost"), [(2, False), (3, False), (4, True)])
def test_a_shard_says_what_it_lost(expected: int, lost: bool) -> None:
    """Three tasks ran: two in one class, one of the same name in another; trials of a task count once."""
    trials = (("support", "a", 1), ("support", "a", 2), ("support", "b", 1), ("triage", "a", 1))
    run = replace(
        make_run({}),
        tasks=(
            *(trial(agent, task, number, 1) for agent, task, number in trials),
            trial("support", "c", 1, 1, status="crashed"),
        ),
        session=SessionFacts(expected=expected, shard="1/2"),
    )

    assert texts(run) == ["shard 1/2: 3 of its 4 tasks completed; mend: run it again whole"] * lost


@pytest.mark.parametrize(
    ("status", "lost"),
    [
        *((status, False) for status in ("ok", "failed", "capped", "timeout", "stale")),
        ("crashed", True),
        ("invalid", True),
    ],
)
def test_which_ends_of_a_trial_leave_a_shard_whole(status: str, lost: bool) -> None:
    """A stale task ran, and is told as stale; of a crash or a broken measurement nothing is known."""
    run = replace(
        make_run({}), tasks=(trial("support", "a", 1, 1, status=status),), session=SessionFacts(expected=1, shard="1/2")
    )
    said = [text for text in texts(run) if text.startswith("shard")]

    assert said == ["shard 1/2: 0 of its 1 tasks completed; mend: run it again whole"] * lost


def test_a_shard_without_tasks_is_whole() -> None:
    """There may be more shards than tasks."""
    assert texts(replace(make_run({}), session=SessionFacts(expected=0, shard="9/9"))) == []
