"""The plugin that runs a new draw look by look: in pytest's own loop, or under xdist in controller and workers.

Trials that nobody asks for are withheld: no item of theirs begins, so that they are neither passed nor skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_fanout.errors import FanoutError
from pytest_fanout.gate.draws import draws_of
from pytest_fanout.judge import judge_draws
from pytest_fanout.records import Baseline, Budget, Needs, Problem, TaskRun
from pytest_fanout.session.flow.forecast import Trial
from pytest_fanout.session.looks.agenda import Agenda
from pytest_fanout.session.looks.ending import end_draws
from pytest_fanout.session.looks.told import withheld_problems
from pytest_fanout.store.recordings import Drawn

if TYPE_CHECKING:
    from pytest_fanout.session.run import FanoutSession

_IN_LOOKS: Final = "fanout_looks"  # in what a worker of xdist is given


def looks_of(session: FanoutSession) -> Looks | None:
    """The driver of a session, None where every trial that is collected runs: in replay and rerecord, with a fixed
    number of trials, in a shard (only the combined shards are judged), and where there is no anchor."""
    config = session.config
    if session.mode not in ("record", "live") or session.trials is not None or session.shard is not None:
        return None
    if session.is_worker:
        return Looks(session, {}, session.budget) if config.workerinput.get(_IN_LOOKS) else None  # type: ignore[attr-defined]
    if session.is_controller and config.getoption("dist") == "each":
        return None
    compared = session.anchors.compared()
    if compared is None or not compared[0]:
        return None
    return Looks(session, *compared)


class Looks:
    """One in each process of the run. In workers it only passes over what their scheduler sends a second time."""

    def __init__(self, session: FanoutSession, anchors: Mapping[str, Baseline], budget: Budget) -> None:
        self._session = session
        self._anchors = anchors
        self._budget = budget
        self._definitions = {(a, task.id): task.definition for a, e in session.evalsets.items() for task in e.tasks}
        self._begun: set[pytest.Item] = set()
        self._agenda: Agenda | None = None
        self._names: dict[Trial, str] = {}  # node ids
        self._is_stopped = False  # by the spend limit
        self._standing: dict[str, bool] = {}  # by class on a new draw: whether its evidence stood, when last asked

    # --- what is known before a trial runs ---------------------------------------------------------------------------

    def is_guided(self, agent: str, task: str) -> bool:
        anchor = self._anchors.get(agent)
        entry = anchor.tasks.get(task) if anchor is not None else None
        if entry is None:
            return False
        now = self._definitions.get((agent, task))
        return now is None or entry.definition == now

    def drawn(self, trial: Trial) -> Drawn | None:
        session = self._session
        return session.store.drawn(*trial) if session.mode == "record" else None

    def named(self, agent: str, task: str) -> Sequence[str | None]:
        anchor = self._anchors.get(agent)
        entry = anchor.tasks.get(task) if anchor is not None else None
        return [fact.recording for fact in entry.trials] if entry is not None else []

    def may_spare(self, trials: Sequence[Trial]) -> Callable[[Trial], bool]:
        """Which of the selected trials run only when a look asks for them: the forecast says so."""
        first: dict[tuple[str, str], int] = {}
        for agent, task, number in trials:
            first[agent, task] = min(number, first.get((agent, task), number))
        return lambda trial: trial.trial > first[trial[:2]] and self.is_guided(*trial[:2])

    # --- rounds ------------------------------------------------------------------------------------------------------

    def begin(self, names: Mapping[Trial, str]) -> None:
        """Take over what was collected: trials in pytest's order, with their node ids."""
        self._names = dict(names)
        self._agenda = Agenda(names, self, self._ask)

    def next_round(self) -> tuple[Trial, ...]:
        """The trials to run now; nothing when all that is needed has run."""
        assert self._agenda is not None
        trials = self._agenda.next_round(self._session.told.task_runs)
        if self._session.flow is not None:
            self._session.flow.asked(trials)
        return trials

    def _ask(self, runs: Sequence[TaskRun]) -> Mapping[str, Needs]:
        flow = self._session.flow
        if flow is not None and flow.allowance.spent().refused:
            self._is_stopped = True
            return {}
        try:
            judged = judge_draws(draws_of(self._anchors, runs, self._budget))
        except FanoutError:
            judged = {}  # the gate meets it again, and tells
        self._standing = {agent: not comparison.needs for agent, comparison in judged.items()}
        return {agent: comparison.needs for agent, comparison in judged.items()}

    # --- without xdist -----------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """pytest's own loop, but over rounds. Its rules for ending early hold between any two items."""
        fanout, config = self._session, session.config
        if fanout.is_worker or fanout.is_controller or config.option.collectonly or session.testsfailed:
            return None
        trials = {item: Trial(w.agent, w.task, w.trial) for item in session.items if (w := fanout.works.get(item))}
        items = {trial: item for item, trial in trials.items()}
        self.begin({trial: item.nodeid for item, trial in trials.items()})
        foreign = [item for item in session.items if item not in trials]
        last: pytest.Item | None = None
        while items_now := [*foreign, *(items[trial] for trial in self.next_round())]:
            foreign = []
            for item, following in zip(items_now, [*items_now[1:], None], strict=True):
                if last is not None:
                    self._tear_down(last, item)
                    _end_early(session)
                # what comes after the last item of a round is not known: until then, all that it stands in is kept
                config.hook.pytest_runtest_protocol(item=item, nextitem=following or item)
                last = item
                _end_early(session)
        if last is not None:
            self._tear_down(last, None)
            _end_early(session)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        """An item that is its own next one is torn down itself, and what it stands in is kept."""
        if nextitem is item:
            state: Any = item.session._setupstate
            state.teardown_exact(item.parent)
        return (yield)

    def _tear_down(self, last: pytest.Item, following: pytest.Item | None) -> None:
        """Tear down what was kept for an item that did not come; an error is one of the last item that ran."""
        state: Any = last.session._setupstate
        meter = self._session.meter
        with meter.setup() if meter is not None else contextlib.nullcontext():
            call = pytest.CallInfo.from_call(
                lambda: state.teardown_exact(following),
                when="teardown",
                reraise=(pytest.exit.Exception, KeyboardInterrupt),
            )
        if call.excinfo is not None:
            report = last.ihook.pytest_runtest_makereport(item=last, call=call)
            last.ihook.pytest_runtest_logreport(report=report)

    # --- under xdist -------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_IN_LOOKS] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from pytest_fanout.session.looks.scheduling import LookScheduling

        indices: dict[Trial, int] = {}
        foreign: list[int] = []

        def begin(names: Sequence[str]) -> None:
            flow = self._session.flow
            assert flow is not None
            for index, trial in enumerate(flow.collected()):
                if trial is None:
                    foreign.append(index)
                else:
                    indices[trial] = index
            self.begin({trial: names[index] for trial, index in indices.items()})

        def more() -> list[int]:
            first, foreign[:] = list(foreign), []
            return [*first, *(indices[trial] for trial in self.next_round())]

        return LookScheduling(config, log, begin, more)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not self._session.is_worker:
            return None
        if item not in self._begun:
            self._begun.add(item)
            return None
        self._tear_down(item, nextitem)
        return True

    # --- at the end --------------------------------------------------------------------------------------------------

    def end(self) -> tuple[Problem, ...]:
        """Tell the session what was withheld, and end the draws. Returns notices, and what could not be done."""
        agenda, session = self._agenda, self._session
        if agenda is None or not agenda.is_finished:
            return ()
        told = session.told
        told.withheld = {self._names[trial] for trial in agenda.withheld}
        problems: list[Problem] = []
        if session.mode == "record":
            left: dict[tuple[str, str], list[int]] = {}
            for agent, task, number in agenda.withheld:
                has_ended = self._standing.get(agent, False) or (agent in self._standing and not self._is_stopped)
                if has_ended and agent not in agenda.broken:
                    left.setdefault((agent, task), []).append(number)
            told.task_runs, problems = end_draws(session.store, told.task_runs, left)
        return (*problems, *withheld_problems(agenda, told.task_runs, self._standing, is_stopped=self._is_stopped))


def _end_early(session: pytest.Session) -> None:
    """As pytest does it between two items, for ``-x``, ``--maxfail`` and plugins."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
