"""From the trials of a run and an anchor to what the judge of new draws is given. The session asks by it as well."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.judge import Draw, table_of_baseline, table_of_runs
from pytest_fanout.records import MEASURED, Baseline, Budget, TaskRun


def draw_of(agent: str, anchor: Baseline, trials: Sequence[TaskRun], budget: Budget) -> Draw | None:
    """The trials of ``agent`` among ``trials`` beside its anchor; None where all of them ran on the anchor's own.

    A task is on the same draw when every trial of it ran on a recording that the anchor names.
    """
    mine = [trial for trial in trials if trial.agent == agent and trial.status in MEASURED]
    fresh = {trial.task for trial in mine if trial.task in anchor.tasks and not _is_same(trial, anchor)}
    if not fresh:
        return None
    table = table_of_runs(mine)
    same = frozenset(set(table.statuses) & set(anchor.tasks) - fresh)
    return Draw(table_of_baseline(anchor), table, budget.limits_for(agent), budget.judge_for(agent), same)


def _is_same(trial: TaskRun, anchor: Baseline) -> bool:
    named = {fact.recording for fact in anchor.tasks[trial.task].trials}
    return not trial.new_draw and trial.recording is not None and trial.recording in named
