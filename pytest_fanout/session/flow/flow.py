"""The plugin that guides a live run: in record, rerecord and live mode, in the controller and in its workers."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import tempfile
import textwrap
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fanout.errors import FanoutError, StorageError
from pytest_fanout.gate.fleet import fleet_of
from pytest_fanout.meter import measure_trial
from pytest_fanout.records import Prices, Problem, Recording, Samples
from pytest_fanout.session.flow import allowance
from pytest_fanout.session.flow.forecast import LastDraw, Trial, forecast, last_draw
from pytest_fanout.session.flow.limits import paces_of, parse_spend_limit
from pytest_fanout.session.flow.progress import Progress
from pytest_fanout.session.flow.told import slowed_problem, stopped_problem, unbegun_problem
from pytest_fanout.session.looks.ending import remove_superseded
from pytest_fanout.store.files import remove_litter

if TYPE_CHECKING:
    from pytest_fanout.session.run import FanoutSession

_FOLDER = "fanout_flow"  # in what a worker of xdist is given


class Flow:
    """One for each process of the run. ``allowance`` is what its live calls are asked of."""

    def __init__(self, session: FanoutSession) -> None:
        self._session = session
        config = session.config
        self.limit = parse_spend_limit(config.getoption("fanout_spend_limit"))
        self._paces = paces_of(session.settings.agents)
        self._is_worker = session.is_worker
        worker = "controller"
        if self._is_worker:
            given = config.workerinput  # type: ignore[attr-defined]
            self._folder, worker = Path(given[_FOLDER]), f"{given['workerid']}-{os.getpid()}"
            path = self._folder / allowance.FILE
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="fanout-run-"))
            weakref.finalize(self, _remove, self._folder, os.getpid())  # also where the run ends before it begins
            path = allowance.create(self._folder)
        try:
            self.allowance = allowance.Allowance(path, worker, self.limit, self._paces)
        except sqlite3.Error:
            raise StorageError(
                "allowance-not-shared",
                "cannot be opened: all workers of a live run share it",
                where=str(path),
                mend="run all workers on one machine, with one temporary folder",
            ) from None
        self._progress: Progress | None = None
        self._nodes = 0
        self._told = 0
        self._trials: list[Trial] = []

    # --- before the first call ---------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_FOLDER] = str(self._folder)
        self._nodes += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        works = self._session.works
        trials = [
            Trial(work.agent, work.task, work.trial) if (work := works.get(item)) is not None else None
            for item in session.items
        ]
        if self._is_worker:
            # the controller collects nothing: any of its workers tells it what there is, before it tells xdist
            fresh = self._folder / f"trials-{os.getpid()}"
            fresh.write_bytes(pickle.dumps(trials))
            fresh.replace(self._folder / "trials")
        elif not self._session.is_controller:
            self._begin(trials)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        if self._progress is None:
            self._begin(self.collected())

    def collected(self) -> list[Trial | None]:
        """Of each item that the workers of xdist have collected, its trial; None: the item is none of ours."""
        found: list[Trial | None] = pickle.loads((self._folder / "trials").read_bytes())
        return found

    def _begin(self, collected: Sequence[Trial | None]) -> None:
        session, trials = self._session, [trial for trial in collected if trial is not None]
        self._trials = trials
        if session.mode != "live":
            remove_litter(session.store.folder)
            remove_superseded(session.store, ((trial.agent, trial.task) for trial in trials))
        try:
            prices = fleet_of(session.settings).prices
        except FanoutError:
            prices = Prices()  # the verdict names what is wrong with it
        looks = session.looks
        # with looks, each round tells what it runs
        self._progress = Progress(trials if looks is None else (), prices)
        lines = forecast(
            session.mode,
            trials,
            lambda trial: trial.trial in session.store.trials(trial.agent, trial.task),
            lambda agent: self._last_draw(agent, trials),
            is_spared=looks.may_spare(trials) if looks is not None else lambda trial: False,
            prices=prices,
            workers=max(1, self._nodes),
            paces=self._paces,
            limit=self.limit,
        )
        for line in lines:
            self._say(line)
        beside = session.config.getoption("fanout_control")
        if lines and beside:
            self._say(f"fanout: the control arm comes on top: the base agent on up to {beside} tasks of a class")

    def _last_draw(self, agent: str, trials: Sequence[Trial]) -> LastDraw | None:
        session = self._session
        listed = session.evalsets[agent].tasks if agent in session.evalsets else ()
        tasks = dict.fromkeys([*(task.id for task in listed), *(t.task for t in trials if t.agent == agent)])
        recorded = [(task, trial) for task in tasks for trial in session.store.trials(agent, task)]
        codecs = [codec for found in session.config.hook.pytest_fanout_codecs() for codec in (found or ())]

        def measure(recording: Recording) -> Samples:
            hosts = session.budget.measure.model_hosts
            return measure_trial(recording.exchanges, recording.duration_ms, codecs, hosts).samples

        return last_draw(agent, recorded, session.store.load, measure, session.anchors.head(agent))

    def asked(self, trials: Sequence[Trial]) -> None:
        """A round of these begins."""
        if self._progress is not None:
            self._progress.asked(trials)

    # --- meanwhile ---------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        runs = self._session.told.task_runs
        if self._progress is None or len(runs) == self._told:
            return
        self._told = len(runs)
        line = self._progress.add(runs[-1])
        if line is not None and self._session.config.option.verbose > -2:
            self._say(line)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        self.allowance.forget(str(node.gateway.id))

    def _say(self, line: str) -> None:
        plugins = self._session.config.pluginmanager
        terminal = plugins.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            for part in textwrap.wrap(line, max(terminal._tw.fullwidth - 1, 40), subsequent_indent="  "):
                terminal.write_line(part)
            return
        capture = plugins.get_plugin("capturemanager")
        if capture is None:
            print(line, flush=True)
            return
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    # --- at the end --------------------------------------------------------------------------------------------------

    def end(self) -> tuple[Problem, ...]:
        """Close what is shared. Returns what stands in the way of a verdict, or was slower than the agent alone."""
        problems: list[Problem] = []
        if not self._is_worker:
            told, spent = self._session.told, self.allowance.spent()
            if spent.refused and self.limit is not None:
                done, of = len(told.task_runs), len(told.selected - told.withheld)
                mode, only = self._session.mode, self._session.only
                problems.append(stopped_problem(self.limit, spent, mode, done, of, only))
                for agent, tasks in self._unbegun().items():
                    problems.append(unbegun_problem(agent, len(tasks), self.limit, mode, only))
            problems += [slowed_problem(slowed) for slowed in self.allowance.slowed() if slowed.waited_s >= 1]
        self.allowance.close()
        if not self._is_worker:
            _remove(self._folder, os.getpid())
        return tuple(problems)

    def _unbegun(self) -> dict[str, set[str]]:
        """By class, the selected tasks of those that have no trial at all."""
        measured = {run.agent for run in self._session.told.task_runs}
        found: dict[str, set[str]] = {}
        for trial in self._trials:
            if trial.agent not in measured:
                found.setdefault(trial.agent, set()).add(trial.task)
        return found


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not a child made by fork, which ends as well
        shutil.rmtree(folder, ignore_errors=True)
