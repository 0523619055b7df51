"""The trials of one class of a run: sorted out once, for a verdict asks for each class's a dozen times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_fanout.records import TaskRun

#: The trials that were sorted last, and by class: kept together, so that no other ones can be taken for them.
_sorted: tuple[Sequence[TaskRun], Mapping[str, tuple[TaskRun, ...]]] = ((), {})


def trials_of(trials: Sequence[TaskRun], agent: str) -> tuple[TaskRun, ...]:
    """Those of ``trials`` that are of the class ``agent``, in their order."""
    global _sorted
    if not isinstance(trials, tuple):  # what can change is sorted anew each time
        return tuple(trial for trial in trials if trial.agent == agent)
    if _sorted[0] is not trials:
        groups: dict[str, list[TaskRun]] = {}
        for trial in trials:
            groups.setdefault(trial.agent, []).append(trial)
        _sorted = (trials, {name: tuple(group) for name, group in groups.items()})
    return _sorted[1].get(agent, ())
