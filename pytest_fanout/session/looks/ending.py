"""A draw that ends early leaves nothing of the draw before it behind: recordings go, their digests are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_fanout.errors import FanoutError
from pytest_fanout.records import Problem, TaskRun
from pytest_fanout.store.recordings import RecordingStore


def end_draws(
    store: RecordingStore, runs: Sequence[TaskRun], not_run: Mapping[tuple[str, str], Sequence[int]]
) -> tuple[list[TaskRun], list[Problem]]:
    """Remove what an older draw has left of tasks that are on a newer one.

    The digests of what is removed go into the last recording of the newer draw, so that no draw goes uncounted.

    Args:
        runs: every trial that was measured.
        not_run: by class and task, the trials that the draw ended without.

    Returns:
        ``runs`` with the digests that recordings have now, and what could not be done.
    """
    told = list(runs)
    problems: list[Problem] = []
    for (agent, task), trials in not_run.items():
        own = [run for run in told if (run.agent, run.task) == (agent, task)]
        if not own or any(run.recording is None for run in own):
            continue
        try:
            left = {trial: drawn for trial in trials if (drawn := store.drawn(agent, task, trial)) is not None}
            is_new = all(run.new_draw for run in own)
            older = [trial for trial, drawn in left.items() if is_new or drawn.is_older_than(own)]
            if not older:
                continue
            last = max(own, key=lambda run: run.trial)
            digest = _keep_digests(store, last, older)
            same = (agent, task, last.trial)
            told = [replace(run, recording=digest) if (run.agent, run.task, run.trial) == same else run for run in told]
            for trial in older:
                store.remove(agent, task, trial)
        except FanoutError as error:
            problems.append(Problem(error.slug, str(error), "invalid", agent, task))
    return told, problems


def beyond(store: RecordingStore, runs: Sequence[TaskRun], number: int) -> dict[tuple[str, str], list[int]]:
    """By class and task, the recorded trials beyond a fixed number of them, where all up to it have run."""
    ran: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        ran.setdefault((run.agent, run.task), set()).add(run.trial)
    whole = set(range(1, number + 1))
    return {
        task: [trial for trial in store.trials(*task) if trial > number]
        for task, trials in ran.items()
        if trials == whole
    }


def left_out(store: RecordingStore, runs: Sequence[TaskRun]) -> list[Problem]:
    """A problem for each class of which recorded trials did not run, though others of their tasks did.

    Whoever chooses the trials chooses the numbers, and a replay of all of them would give others.
    """
    ran: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        ran.setdefault((run.agent, run.task), set()).add(run.trial)
    missed: dict[str, list[str]] = {}
    for (agent, task), trials in sorted(ran.items()):
        if others := sorted({*store.trials(agent, task)} - {*store.superseded(agent, task)} - trials):
            missed.setdefault(agent, []).append(f"{task} ({', '.join(map(str, others))})")
    problems = []
    for agent, tasks in missed.items():
        more = f" and {len(tasks) - 5} more tasks" if len(tasks) > 5 else ""
        text = (
            f"{agent}: recorded trials were left out: {', '.join(tasks[:5])}{more}; mend: run without --fanout-trials, "
            "and without -k or skips that choose among the trials of a task"
        )
        problems.append(Problem("trials-left-out", text, "incomplete", agent))
    return problems


def superseded(store: RecordingStore, runs: Sequence[TaskRun]) -> list[Problem]:
    """A notice for each class beside whose recordings stand others that they have replaced."""
    found: dict[str, list[str]] = {}
    for agent, task in sorted({(run.agent, run.task) for run in runs}):
        for trial in store.superseded(agent, task):
            found.setdefault(agent, []).append(store.path(agent, task, trial).relative_to(store.folder).as_posix())
    problems = []
    for agent, paths in found.items():
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        several = len(paths) > 1
        text = (
            f"{agent}: {len(paths)} recording{'s are' if several else ' is'} of a draw that others beside "
            f"{'them' if several else 'it'} have replaced, and did not run: {', '.join(paths[:3])}{more}; mend: remove "
            f"{'them' if several else 'it'}, as the next --fanout-mode=record does"
        )
        problems.append(Problem("recordings-superseded", text, "notice", agent))
    return problems


def remove_superseded(store: RecordingStore, tasks: Iterable[tuple[str, str]]) -> None:
    """Remove what a draw had removed elsewhere, before these tasks are recorded: it is no trial of theirs."""
    for agent, task in dict.fromkeys(tasks):
        for trial in store.superseded(agent, task):
            with contextlib.suppress(FanoutError):  # what stays is passed over, and told
                store.remove(agent, task, trial)


def _keep_digests(store: RecordingStore, last: TaskRun, older: Sequence[int]) -> str:
    """Add what is removed to the last recording of the draw. Returns its digest."""
    gone: list[str] = []
    for trial in older:
        try:
            old = store.load(last.agent, last.task, trial)
        except FanoutError:
            continue  # a file that cannot be read has no digest to keep
        gone += [*old.replaced, old.digest]
    recording = store.load(last.agent, last.task, last.trial)
    return store.save(replace(recording, replaced=tuple(dict.fromkeys((*recording.replaced, *gone))))).digest
