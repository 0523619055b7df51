"""Executions of trials as they are told: a replay of what has been told already is no further trial."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gate_world import sha, trial

from pytest_fanout.records import Problem, TaskRun
from pytest_fanout.session.finish import Told


def told(*runs: TaskRun) -> list[TaskRun]:
    made = Told()
    for run in runs:
        made.add_trial(run)
    return made.task_runs


LIVE = trial("support", "a", 1, 3, new_draw=True)
AGAIN = trial("support", "a", 1, 3)


def test_a_rerun_that_replays_its_own_recording_adds_nothing() -> None:
    """A plugin runs a failed item again; its first execution was recorded, and the second one replays that."""
    assert told(LIVE, AGAIN, AGAIN) == [LIVE]


def test_it_passed_only_if_every_execution_did() -> None:
    """A check that is not steady makes no trial better, in either order."""
    failed: dict[str, Any] = {"passed": False, "status": "failed", "error": "TrialFailed: no"}

    assert told(replace(LIVE, **failed), AGAIN) == [replace(LIVE, **failed)]
    assert told(LIVE, replace(AGAIN, **failed)) == [replace(LIVE, **failed)]


@pytest.mark.parametrize(
    "other",
    [
        trial("support", "a", 2, 3),
        trial("support", "b", 1, 3),
        trial("support", "a", 1, 4),
        replace(AGAIN, recording=sha("another")),
        replace(AGAIN, new_draw=True),
        replace(AGAIN, status="stale", passed=False),
        replace(AGAIN, problems=(Problem("late-call", "x"),)),
    ],
    ids=["trial", "task", "numbers", "recording", "live", "stale", "problem"],
)
def test_what_differs_is_a_trial_of_record(other: TaskRun) -> None:
    """No execution replaces another: the dearer one stays in."""
    assert told(AGAIN, other) == [AGAIN, other]


def test_live_trials_without_recordings_all_count() -> None:
    """Each is another draw, even where the numbers are the same."""
    live = replace(LIVE, recording=None)

    assert told(live, live) == [live, live]
