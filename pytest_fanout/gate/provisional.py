"""An anchor that may be the luck of one session is told to be provisional, in reports and when it is accepted."""

from __future__ import annotations

from pytest_fanout.capacity.figures import counted
from pytest_fanout.gate.few_trials import enough
from pytest_fanout.judge.sessions import anchor_sessions
from pytest_fanout.records import Baseline, JudgeRules


def provisional_words(anchor: Baseline, rules: JudgeRules) -> str | None:
    """Why the anchor is provisional, and what ends that; None: it is not, or nobody knows when it was recorded."""
    sessions = anchor_sessions(anchor)
    if sessions is None or sessions >= rules.sessions:
        return None
    trials = max(min(len(task.trials) for task in anchor.tasks.values()) + 1, enough(rules))
    return (
        f"the anchor is provisional: it was recorded in {counted(sessions, 'session')} of "
        f"{rules.sessions} (begun an hour or more apart), and all trials of one session can be off by the same 10 %; "
        f"mend: an hour later pytest --fanout-budget --fanout-mode=record --fanout-trials={trials}, and accept it, "
        "or sessions = 1 in [judge] for a model without such swings"
    )
