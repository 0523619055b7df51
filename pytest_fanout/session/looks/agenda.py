"""Which trials run next. Pure: it knows what was selected and what came of it, and neither pytest nor files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from pytest_fanout.records import MEASURED, Needs, TaskRun
from pytest_fanout.session.flow.forecast import Trial
from pytest_fanout.store.recordings import Drawn

Key = tuple[str, str]  # class and task


class Known(Protocol):
    """What is known of a task before it runs."""

    def is_guided(self, agent: str, task: str) -> bool:
        """Whether evidence decides how many of its trials run: the anchor holds this task as it is now."""

    def drawn(self, trial: Trial) -> Drawn | None:
        """The draw that the trial may be replayed from; None: it would run live."""

    def named(self, agent: str, task: str) -> Sequence[str | None]:
        """The recordings that the anchor names for the task, one a trial."""


class Agenda:
    """The trials of a run, round by round.

    A round is what may run side by side. The first holds one trial of every task, and all trials of tasks that no
    evidence can spare. Then, for as long as there are any, come trials that cost nothing: those of tasks whose
    recordings were found to be valid. What is left runs only when the judge asks for it.

    Args:
        trials: all that were selected, in the order in which pytest would run them.
        ask: what the judge still needs, by class; given all trials that were measured.
    """

    def __init__(
        self, trials: Iterable[Trial], known: Known, ask: Callable[[Sequence[TaskRun]], Mapping[str, Needs]]
    ) -> None:
        self._known = known
        self._ask = ask
        self._position = {trial: number for number, trial in enumerate(trials)}
        self._rows: dict[Key, list[Trial]] = {}
        for trial in sorted(self._position, key=lambda trial: trial.trial):
            self._rows.setdefault((trial.agent, trial.task), []).append(trial)
        self._guided = {key for key in self._rows if known.is_guided(*key)}
        self._asked: dict[Key, int] = dict.fromkeys(self._rows, 0)
        self._runs: dict[Trial, list[TaskRun]] = {}
        self.broken: set[str] = set()  # classes of which no more is asked for, because a trial has no number to trust
        self.is_finished = False  # nothing is left that anybody needs

    @property
    def is_spent(self) -> bool:
        """Whether every trial was asked for."""
        return all(count == len(self._rows[key]) for key, count in self._asked.items())

    @property
    def withheld(self) -> tuple[Trial, ...]:
        """The trials that nobody has asked for; empty until the agenda is finished."""
        if not self.is_finished:
            return ()
        return tuple(trial for key, row in self._rows.items() for trial in row[self._asked[key] :])

    def looks(self, agent: str) -> tuple[int, int, int]:
        """Of the tasks of a class that had trials left: the fewest and the most that one ran, and how many it had."""
        own = [key for key, count in self._asked.items() if key[0] == agent and count < len(self._rows[key])]
        ran = [self._asked[key] for key in own] or [0]
        return min(ran), max(ran), max((len(self._rows[key]) for key in own), default=0)

    def next_round(self, runs: Sequence[TaskRun]) -> tuple[Trial, ...]:
        """What runs now, in order; nothing when it is finished.

        Args:
            runs: every trial that was measured so far. All of the round before have ended.
        """
        self._take(runs)
        if not any(self._asked.values()):
            return self._call({key: 1 if key in self._guided else len(row) for key, row in self._rows.items()})
        free = self._call({key: 1 for key in self._rows if self._is_free(key)})
        if free:
            return free
        wanted: dict[Key, int] = {}
        for agent, needs in self._ask(runs).items():
            if needs and agent not in self.broken:
                wanted |= {(agent, task): needs.trials for task in needs.tasks if (agent, task) in self._rows}
        asked = self._call(wanted)
        self.is_finished = not asked
        return asked

    def _take(self, runs: Sequence[TaskRun]) -> None:
        self._runs = {}
        for run in runs:
            self._runs.setdefault(Trial(run.agent, run.task, run.trial), []).append(run)
        for (agent, _), row, count in ((key, self._rows[key], count) for key, count in self._asked.items()):
            if any(not self._is_sound(trial) for trial in row[:count]):
                self.broken.add(agent)

    def _is_sound(self, trial: Trial) -> bool:
        """Whether the trial has a number, and nothing that it told keeps its class from being judged."""
        runs = self._runs.get(trial, [])
        return bool(runs) and all(
            run.status in MEASURED
            and bool(run.no_calls or run.samples.get("fanout"))
            and all(problem.verdict == "notice" for problem in run.problems)
            for run in runs
        )

    def _is_free(self, key: Key) -> bool:
        """Whether the next trial of a task costs nothing, or belongs to the anchor's draw that the task is on."""
        count, row = self._asked[key], self._rows[key]
        if count == len(row):
            return False
        runs = [run for trial in row[:count] for run in self._runs.get(trial, [])]
        replayed = [run for run in runs if not run.new_draw and run.status in MEASURED]
        if not replayed:
            return False
        drawn = self._known.drawn(row[count])
        if drawn is not None and not drawn.is_older_than(replayed):
            return True  # an older one was left behind by a draw that was interrupted
        named = self._known.named(*key)
        # of the anchor's own draw none may be missing; its trials may have been recorded anew one by one
        return len(replayed) == len(runs) and count < len(named) and all(run.recording in named for run in replayed)

    def _call(self, wanted: Mapping[Key, int]) -> tuple[Trial, ...]:
        """The next trials of each task: trial by trial, so that a look is whole early, and in pytest's order."""
        called: list[tuple[int, int, Trial]] = []
        for key, count in wanted.items():
            begin = self._asked[key]
            row = self._rows[key][begin : begin + count]
            self._asked[key] += len(row)
            for rank, trial in enumerate(row):
                called.append((rank if key in self._guided else 0, self._position[trial], trial))
        return tuple(trial for _, _, trial in sorted(called))
