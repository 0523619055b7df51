"""What a run says of trials that it did not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_fanout.records import Problem, TaskRun
from pytest_fanout.session.flow.words import counted, number
from pytest_fanout.session.looks.agenda import Agenda


def withheld_problems(
    agenda: Agenda, runs: Sequence[TaskRun], standing: Mapping[str, bool], *, is_stopped: bool = False
) -> tuple[Problem, ...]:
    """A notice for each class on a new draw: what was withheld and why, and what that has saved.

    Args:
        standing: by class on a new draw, whether its evidence stood in the end.
        is_stopped: by its spend limit.
    """
    problems = []
    for agent in sorted({trial.agent for trial in agenda.withheld}):
        left = [trial for trial in agenda.withheld if trial.agent == agent]
        own = [run for run in runs if run.agent == agent]
        fewest, most, of = agenda.looks(agent)
        ran = number(most) if fewest == most else f"{number(fewest)} to {number(most)}"
        if is_stopped and not standing.get(agent) and any(run.new_draw for run in own):
            why = "the run came to its spend limit before the evidence stood"
        elif agent in agenda.broken:
            why = "a trial gave no number that can be trusted, so that no more were asked for"
        elif standing.get(agent):
            why = f"evidence stood after {ran} of {counted(of, 'trial')} a task"
        elif agent in standing:
            why = "nothing asks for them, though the evidence is short"
        else:
            continue  # nothing was drawn anew: there was nothing to save
        costs = [run.spent_calls if run.new_draw else run.samples.get("fanout") or 0 for run in own]
        saved = len(left) * sum(costs) / len(costs) if costs else 0
        problems.append(
            Problem(
                "trials-withheld",
                f"{agent}: {counted(len(left), 'trial')} withheld: {why}; "
                f"{counted(sum(run.spent_calls for run in own), 'live call')} made, about {number(saved)} saved",
                "notice",
                agent,
            )
        )
    return tuple(problems)
