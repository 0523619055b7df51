"""What the control arm of a run says of a class: code, environment, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_fanout.capacity.figures import counted
from pytest_fanout.judge import TrialTable
from pytest_fanout.judge.causes import causes, is_large
from pytest_fanout.judge.comparison import table_of_control
from pytest_fanout.judge.reasons import percent
from pytest_fanout.records import Cause, JudgeRules, Limit, MetricEvidence, Problem, Run

_WORDS = {
    "code": "the growth of {} is the code's",
    "environment": "the growth of {} is the environment's, not the code's",
    "both": "{} grew by the code and by the environment",
    "unknown": "~ what moved {} cannot be told apart",
}


def causes_of(
    run: Run, agent: str, anchor: TrialTable, table: TrialTable, limits: Sequence[Limit], rules: JudgeRules
) -> tuple[Cause, ...]:
    """Empty where the run had no control arm for the class."""
    trials = [made for made in run.control if made.agent == agent]
    return causes(anchor, table, table_of_control(trials), limits, rules) if trials else ()


def of_causes(agent: str, found: Sequence[Cause]) -> Iterator[Problem]:
    """One notice a metric."""
    for cause in found:
        arm = f"{counted(cause.tasks, 'task')}, {counted(cause.trials, 'trial')}"
        yield Problem(
            "cause",
            f"{agent}: {_words(cause).format(cause.metric)}: the base commit's agent of today beside the anchor "
            f"{_part(cause.environment)}, this one beside it {_part(cause.code)} (control arm: {arm})",
            "notice",
            agent,
        )


def _words(cause: Cause) -> str:
    """Of what did not move there is no cause to be told."""
    if cause.label == "unknown" and not is_large(cause.environment) and not is_large(cause.code):
        return "~ neither the code nor the environment is seen to have moved {}"
    return _WORDS[cause.label]


def _part(part: MetricEvidence) -> str:
    low, high = part.interval
    text = percent(part.effect or 1.0)
    return text if low is None or high is None else f"{text} ({percent(low)} to {percent(high)})"
