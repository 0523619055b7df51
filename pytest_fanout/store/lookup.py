"""Which recording somebody means: by task id, by the name of its folder, or by a part of the id that only one has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.store.recordings import RecordingStore

_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task with recordings. ``damage``: why its header cannot be read; ``task`` is the folder's name then."""

    agent: str
    task: str
    folder: str
    trials: tuple[int, ...]
    damage: IntegrityError | None = None

    @property
    def name(self) -> str:
        return f"{self.agent}::{self.task}"


def find_recorded(store: RecordingStore, words: str, agent: str | None = None) -> Recorded:
    """The task that ``words`` name.

    Args:
        words: its id, ``class::id``, the name of its folder, or a part of ``class::id`` that no other task has.
        agent: only of this class.

    Raises:
        UsageError: no task, or more than one; the nearest names are told.
        IntegrityError: the one that is named so has an unreadable header.
    """
    agents = store.agents() if agent is None else (agent,)
    exact = [(name, task) for name in agents for task in dict.fromkeys((words, words.removeprefix(f"{name}::")))]
    found = [Recorded(name, task, "", trials) for name, task in exact if (trials := store.trials(name, task))]
    if not found:
        known = [entry for name in agents for entry in _entries(store, name)]
        found = [entry for entry in known if entry.folder == words]
        found = found or [entry for entry in known if words.casefold() in entry.name.casefold()]
        if not found:
            raise _unknown(store, words, known, agent)
    if len(found) > 1:
        raise UsageError(
            "ambiguous-task",
            f"{words!r} names {len(found)} recorded tasks: {_listed([entry.name for entry in found])}",
            where=str(store.folder),
            mend="give one of these names whole, or --agent NAME",
        )
    if found[0].damage is not None:
        raise found[0].damage
    return found[0]


def _entries(store: RecordingStore, agent: str) -> list[Recorded]:
    entries = []
    for folder, trials in store.folders(agent):
        try:
            task, damage = store.task_in(agent, folder, trials[0]), None
        except IntegrityError as error:
            task, damage = folder, error
        except OSError as error:
            task = folder
            damage = IntegrityError("not-readable", f"cannot be read: {error.strerror}", where=folder)
        entries.append(Recorded(agent, task, folder, trials, damage))
    return entries


def _unknown(store: RecordingStore, words: str, known: Sequence[Recorded], agent: str | None) -> UsageError:
    tasks: dict[str, list[str]] = {}
    for entry in known:
        for name in (entry.task, entry.name, *re.split(r"\W+", entry.task)):  # ids of tests are long: so by word too
            tasks.setdefault(name, []).append(entry.name)
    close = difflib.get_close_matches(words, tasks, n=_MOST_NAMES)
    near = list(dict.fromkeys(task for name in close for task in tasks[name]))
    of = "" if agent is None else f" of {agent}"
    if near:
        told = f"the nearest are: {_listed(near)}"
    else:
        told = f"there are: {_listed([entry.name for entry in known])}" if known else "there is none at all"
    return UsageError(
        "unknown-recording",
        f"no recorded task{of} is called {words!r}; {told}",
        where=str(store.folder),
        mend="give a task id, or a part of one; to record: pytest --fanout-budget --fanout-mode=record",
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
