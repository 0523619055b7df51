"""The side of the measured run: which tasks the base commit's agent repeats, and what came of it.

Each measuring process has its own: a second pytest run in a work tree of the base commit, begun with the first new
trial that is to be repeated, and asked for each of them right after the head's, so that both meet the same provider.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.records import MEASURED, Baseline, ControlTrial, Problem, TaskRun
from pytest_fanout.session.beside.process import Lost, PytestProcess, arguments, interpreter
from pytest_fanout.store.worktree import Moved, Worktree

if TYPE_CHECKING:
    from pytest_fanout.session.run import FanoutSession

_WHAT: Final = "the base commit's process"
_START_S: Final = 300.0  # to import and collect everything
_MORE_S: Final = 300.0  # beyond the task's own wall clock
_UNCAPPED_S: Final = 3600.0


Task = tuple[str, str]  # class and id


def chosen(count: int, anchors: Mapping[str, Baseline], definitions: Mapping[Task, str]) -> set[Task]:
    """The tasks that are repeated: ``count`` of each class, the same ones in every run.

    Growth can be told apart only where the anchor holds the task as it is now. The choice is by the digest of its id:
    neither by cost nor by order, both of which would favour one kind of task.
    """
    out: set[Task] = set()
    for agent, anchor in anchors.items():
        same = [
            task
            for task, entry in anchor.tasks.items()
            if definitions.get((agent, task), entry.definition) == entry.definition
        ]
        same.sort(key=lambda task: hashlib.sha256(f"{agent}\n{task}".encode()).digest())
        out |= {(agent, task) for task in same[:count]}
    return out


def control_of(session: FanoutSession) -> ControlArm | None:
    """The arm of a measuring process; None where none was asked for.

    Raises:
        UsageError: it was asked for in a mode that makes no new draw, or for no task.
    """
    count: int | None = session.config.getoption("fanout_control")
    if count is None or session.serves:
        return None
    if count < 1:
        raise UsageError("bad-control", f"--fanout-control={count} must be at least 1", mend="--fanout-control=20")
    if session.mode == "replay":
        raise UsageError(
            "control-in-replay",
            "--fanout-control runs the base commit's agent beside new trials, and replay makes none",
            mend=f"pytest --fanout-budget --fanout-mode=record --fanout-control={count}",
        )
    return ControlArm(session, count)


class ControlArm:
    """Repeats new trials with the base commit's agent: ``count`` tasks of each class.

    Attributes:
        trials: what came of it.
        problems: why some of it was not run; notices, for the run has its own numbers.
    """

    def __init__(self, session: FanoutSession, count: int) -> None:
        self._session = session
        self._count = count
        self._environ, self._path = dict(os.environ), list(sys.path)  # now: the keys are not sealed yet
        self._tasks: set[Task] | None = None
        self._tree: Worktree | None = None
        self._child: PytestProcess | None = None
        self._is_broken = False
        self.trials: list[ControlTrial] = []
        self.problems: list[Problem] = []

    def repeat(self, run: TaskRun) -> None:
        """Run the base commit's agent on the task of a new trial, unless the trial is none of those to be repeated."""
        if self._is_broken or not run.new_draw or run.status not in MEASURED:
            return
        try:
            if (run.agent, run.task) not in self._chosen():
                return
            child = self._child or self._begin()
            wall_seconds = self._session.budget.caps_for(run.agent).wall_seconds
            limit_s = (_UNCAPPED_S if wall_seconds is None else wall_seconds) + _MORE_S
            answer = child.ask({"agent": run.agent, "task": run.task, "trial": run.trial}, limit_s)
        except (Lost, FanoutError, OSError) as error:
            self._is_broken = True
            self._tell(str(error), run.agent)
            self.end()
            return
        except BaseException:
            self.end()
            raise
        if answer.get("failed") is not None:
            self._tell(str(answer["failed"]), run.agent)
            return
        made: TaskRun = pickle.loads(bytes.fromhex(answer["task_run"]))
        self._take(made)

    def _chosen(self) -> set[Task]:
        if self._tasks is None:
            compared = self._session.anchors.compared()
            evalsets = self._session.evalsets
            now = {(agent, task.id): task.definition for agent, e in evalsets.items() for task in e.tasks}
            self._tasks = set() if compared is None else chosen(self._count, compared[0], now)
        return self._tasks

    def _begin(self) -> PytestProcess:
        session = self._session
        base = session.anchors.base()
        if base is None:
            raise Lost("no base commit was found, and so no agent of it")
        assert session.flow is not None
        assert session.outside is not None
        repo, rev = base
        self._tree = Worktree(repo, rev)
        moved = self._tree.moved
        here = session.config.invocation_params.dir
        cwd = Path(moved.path(str(here)))
        if cwd == here:
            raise Lost(f"the base commit {rev[:12]} does not hold the folder that pytest runs in")
        session.outside.reaper.start()
        self._child = PytestProcess(
            _WHAT,
            interpreter(),
            {
                "role": "control",
                "path": [moved.path(entry) for entry in self._path],
                "argv": [_moved_option(word, moved) for word in arguments(session.config)],
                "ahead_s": 0,
                "allowance": str(session.flow.allowance.path),
                "trials": max(work.trial for work in session.works.values()),
                "from": str(moved.origin),
                "to": str(moved.root),
            },
            cwd=cwd,
            environ=_moved_environment(self._environ, moved),
            reaper=session.outside.reaper,
            begin_s=_START_S,
        )
        return self._child

    def _take(self, made: TaskRun) -> None:
        faults = [problem for problem in made.problems if problem.verdict != "notice"]
        if made.status not in MEASURED or faults:
            why = faults[0].text if faults else f"the trial is {made.status}"
            self._tell(f"{made.agent}::{made.task}::t{made.trial} of the base commit has no number: {why}", made.agent)
            return
        self.trials.append(
            ControlTrial(
                agent=made.agent,
                task=made.task,
                trial=made.trial,
                status=made.status,
                passed=made.passed,
                samples=dict(made.samples),
                models_served=made.models_served,
            )
        )

    def _tell(self, why: str, agent: str) -> None:
        problem = Problem("control-not-run", f"the control arm did not run as asked: {why}", "notice", agent)
        if problem not in self.problems:
            self.problems.append(problem)

    def end(self) -> None:
        """Nothing is left of it but its trials."""
        child, self._child = self._child, None
        tree, self._tree = self._tree, None
        try:
            if child is not None:
                child.end()
        finally:
            if tree is not None:
                tree.remove()


def _moved_option(word: str, moved: Moved) -> str:
    """An argument of pytest; of ``--option=path`` the path."""
    name, equals, value = word.partition("=")
    return f"{name}={moved.path(value)}" if equals and name.startswith("-") else moved.path(word)


def _moved_environment(environ: Mapping[str, str], moved: Moved) -> dict[str, str]:
    out = dict(environ)
    out.pop("PYTEST_CURRENT_TEST", None)
    if "PYTHONPATH" in out:
        out["PYTHONPATH"] = os.pathsep.join(moved.path(entry) for entry in out["PYTHONPATH"].split(os.pathsep))
    out["PWD"] = moved.path(out.get("PWD", ""))
    return out
