"""The session plugin: collection, xdist, completeness, and at the end the Run, its verdict and its report."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fanout.config import MODES, AgentSettings, Settings, find_settings
from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.gate.tree import work_tree_budget
from pytest_fanout.meter import Meter
from pytest_fanout.records import EvalSet, HttpAnswer, HttpRequest, Problem, TaskRun
from pytest_fanout.session import api
from pytest_fanout.session.after import AfterTheEnd
from pytest_fanout.session.anchors import Anchors
from pytest_fanout.session.branching import branching_of
from pytest_fanout.session.extensions import codecs_of, profiles_of, redacted
from pytest_fanout.session.failures import TrialFailed, first_error
from pytest_fanout.session.finish import Finish, Told, worker_lost
from pytest_fanout.session.interrupted import command_of
from pytest_fanout.session.items import TRIAL_FIXTURE, EvalFile, EvalItem, MeasuredTask, marked_task, running_as
from pytest_fanout.session.junit import properties_of, tell_gate
from pytest_fanout.session.looks.ending import beyond, end_draws
from pytest_fanout.session.masking import shown_trial
from pytest_fanout.session.outside.agents import Outside, check_extra
from pytest_fanout.session.proof import Prover
from pytest_fanout.session.shards import is_in_shard, parse_shard
from pytest_fanout.session.trial import TrialRunner
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.wire.canonical import compile_volatile

if TYPE_CHECKING:
    from pytest_fanout.session.control.arm import ControlArm
    from pytest_fanout.session.flow.flow import Flow
    from pytest_fanout.session.looks.driver import Looks
    from pytest_fanout.session.page import Page

DEFAULT_TRIALS = 5
_DATA = "fanout_task_run"  # the attribute that carries a pickled TaskRun on a test report


class FanoutSession:
    """Lives from configure to the end of the session: in the controller, in each xdist worker, or alone."""

    serves = False  # it only runs what another one asks for
    replays = False  # whatever its mode, nothing goes to the network
    flow: Flow | None = None
    looks: Looks | None = None
    control: ControlArm | None = None
    page: Page | None = None

    def __init__(self, config: pytest.Config, run_id: str, report: Path, *, is_worker: bool) -> None:
        self.config = config
        self.run_id = run_id
        self.report = report
        self.is_worker = is_worker
        has_workers = config.getoption("dist", "no") != "no" and bool(config.getoption("tx", None))
        distributed = has_workers and not config.option.collectonly
        self.is_controller = distributed and not is_worker
        self.begun_at = int(time.time())
        self.mode: str = config.getoption("fanout_mode")
        assert self.mode in MODES
        self.trials: int | None = config.getoption("fanout_trials")
        if self.trials is not None and self.trials < 1:
            raise UsageError(
                "bad-trials", f"--fanout-trials={self.trials} must be at least 1", mend="--fanout-trials=5"
            )
        self.only: list[str] = config.getoption("fanout_agent")
        self.shard = parse_shard(config.getoption("fanout_shard"))
        self.settings: Settings = find_settings(config.rootpath)
        check_extra({name: agent for name, agent in self.settings.agents.items() if not self.only or name in self.only})
        self.evalsets: dict[str, EvalSet] = {
            name: read_evalset(agent.evalset, name, _shown(agent.evalset, self.settings.root))
            for name, agent in self.settings.agents.items()
        }
        self.budget = work_tree_budget(self.settings)
        self.store = RecordingStore(self.settings.recordings, dict(os.environ))
        self.masker = Masker(dict(os.environ))
        self.works: dict[pytest.Item, MeasuredTask] = {}
        self.finished: dict[pytest.Item, TaskRun] = {}
        self.told = Told()
        self.meter: Meter | None = None
        self.runner: TrialRunner | None = None
        self.outside: Outside | None = None
        self.verdict_text: str | None = None
        self.after = AfterTheEnd(report, run_id, self.masker)
        self.workers: list[str] = []  # of xdist, those that have begun and not yet said their last word
        self.anchors = Anchors(self.settings, config.getoption("fanout_base"))
        if self.mode != "replay" and not self.serves and not config.option.collectonly:
            from pytest_fanout.session.flow.flow import Flow
            from pytest_fanout.session.looks.driver import looks_of

            self.flow, self.looks = Flow(self), looks_of(self)

    # --- start -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Turn the meter on where items run, and have the eval sets collected."""
        args = self.config.args
        selects = any("::" in arg or Path(arg).suffix == ".jsonl" for arg in args)
        self.told.node_ids_given = selects
        if not selects:
            root = self.config.invocation_params.dir
            have = {(root / arg).resolve() for arg in args}
            for path in dict.fromkeys(agent.evalset for agent in self.settings.agents.values()):
                if path.resolve() not in have:
                    args.append(str(path))
        if self.flow is not None:
            self.config.pluginmanager.register(self.flow, "fanout-flow")
        if self.looks is not None:
            self.config.pluginmanager.register(self.looks, "fanout-looks")
        if self.is_controller or self.config.option.collectonly:
            return
        if self.config.getoption("fanout_control") is not None:
            from pytest_fanout.session.control.arm import control_of

            self.control = control_of(self)
        codecs = codecs_of(self.config.hook.pytest_fanout_codecs)
        self.meter = Meter(
            mode="replay" if self.replays else self.mode,
            measure=self.budget.measure,
            codecs=codecs,
            cap_warning=self._warn_of_cap,
        )
        self.meter.at_recorded_speed = self.mode == "replay" and self.config.option.fanout_replay_speed == "recorded"
        self.told.problems.extend(self.meter.start())
        api.activate(self.meter)
        volatile = compile_volatile(self.budget.measure.volatile, "baselines/budget.toml: [measure] volatile")
        self.runner = TrialRunner(
            meter=self.meter,
            store=self.store,
            budget=self.budget,
            mode=self.mode,
            volatile=volatile,
            codecs=codecs,
            redact=self._redact,
            shown=self.masker.text,
        )
        if self.flow is not None:
            self.meter.ask_first(self.flow.allowance)
            self.runner.allowance = self.flow.allowance
        self.outside = Outside(self.meter, self.runner)
        if self.mode in ("record", "rerecord") and not self.serves:
            self.runner.prover = Prover(self.config, self.outside.reaper)
        self.runner.branching = branching_of(self, volatile)
        with_children = [name for name, agent in self.settings.agents.items() if agent.children]
        if with_children:
            self.meter.count_children(with_children)

    def _warn_of_cap(self, task: str, cap: str, share: float) -> None:
        # the proof of a recording repeats what its live run has told already
        if not self.serves:
            self.config.hook.pytest_fanout_cap_warning(task=task, cap=cap, share=share)

    def _redact(self, request: HttpRequest, answer: HttpAnswer | None) -> tuple[HttpRequest, HttpAnswer | None]:
        """What the redact hooks make of an exchange, each given what the one before returned."""
        response = answer if answer is not None else HttpAnswer(None, (), (), (), 0)
        request, response = redacted(self.config.hook.pytest_fanout_redact, request, response)
        return request, response if answer is not None else None

    # --- scope -----------------------------------------------------------------------------------------------------

    def agents_of(self, path: Path) -> tuple[AgentSettings, ...]:
        return tuple(a for a in self.settings.agents.values() if a.evalset == path)

    def in_scope(self, agent: str, task: str) -> bool:
        """Whether options leave this task in: its class is asked for, and it belongs to this shard."""
        return (not self.only or agent in self.only) and is_in_shard(self.shard, agent, task)

    def trials_to_run(self, agent: str, task: str) -> tuple[int, ...]:
        """Trial numbers, from 1: those asked for; in replay the recorded ones; otherwise any recorded and five, or
        as many as ``trials`` in ``[judge]`` allows a new draw."""
        if self.trials is not None:
            return tuple(range(1, self.trials + 1))
        recorded = set(self.store.trials(agent, task)) if self.mode != "live" else set()
        if self.mode == "replay":
            return tuple(sorted(recorded)) or (1,)
        return tuple(sorted({*recorded, *range(1, self._most_trials(agent) + 1)}))

    def _most_trials(self, agent: str) -> int:
        return max(DEFAULT_TRIALS, self.budget.judge_for(agent).trials)

    def meter_of(self, item: pytest.Item) -> api.TaskMeter:
        """The meter that a test's fixture shows. Raises UsageError for a test that is not a task."""
        if item not in self.works:
            raise UsageError(
                "meter-without-task",
                "fanout_meter needs a test marked as a task",
                where=item.nodeid,
                mend='@pytest.mark.fanout(agent="support")',
            )
        runner, work = self.runner, self.works[item]
        assert runner is not None

        def scope() -> Any:
            # before the test runs, what stands there is the scope of the task before it
            now = runner.scope
            if now is None or (now.agent, now.task, now.trial) != (work.agent, work.task, work.trial):
                raise UsageError(
                    "meter-without-task",
                    "fanout_meter was read before its task began",
                    where=item.nodeid,
                    mend="read it in the test itself, not in a fixture's set-up",
                )
            return now

        return api.TaskMeter(scope)

    # --- collection ------------------------------------------------------------------------------------------------

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalFile | None:
        if not self.agents_of(file_path):
            return None
        node: EvalFile = EvalFile.from_parent(parent, path=file_path)
        node.fanout = self
        return node

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A marked test is parametrised by trial, last, so that its other parameters stay part of the task's id."""
        mark = metafunc.definition.get_closest_marker("fanout")
        agent = mark.kwargs.get("agent") if mark else None
        if not isinstance(agent, str):
            return
        count = self.trials or self._most_trials(agent)
        if self.trials is None and self.mode != "live":
            count = max(count, self.store.most_trials(agent))
        metafunc.fixturenames.append(TRIAL_FIXTURE)
        metafunc.parametrize(TRIAL_FIXTURE, range(1, count + 1), ids=lambda n: f"t{n}", indirect=True)

    @pytest.fixture(name=TRIAL_FIXTURE)
    def _trial(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is measured, and nothing else; a task id that stands twice is an error that names both places."""
        kept: list[pytest.Item] = []
        classes = set(self.settings.agents)
        places: dict[tuple[str, str, int], str] = {}
        for item in items:
            try:
                work = item.measured if isinstance(item, EvalItem) else marked_task(item)
                if work is None:
                    self.told.unmarked += 1
                    continue
                classes.add(work.agent)
                if not isinstance(item, EvalItem) and not (
                    self.in_scope(work.agent, work.task) and work.trial in self.trials_to_run(work.agent, work.task)
                ):
                    continue
                place = places.setdefault((work.agent, work.task, work.trial), item.nodeid)
                if place != item.nodeid:
                    raise UsageError(
                        "duplicate-task",
                        f"the task {work.task!r} of class {work.agent!r} stands twice: {place} and {item.nodeid}",
                        mend="give one of them another id or task=",
                    )
            except FanoutError as error:
                raise self._refused(error) from None
            self.works[item] = work
            kept.append(item)
        items[:] = kept
        if not self.told.collection_failed:
            self._check_only(classes)

    def _check_only(self, classes: set[str]) -> None:
        """A misspelt --fanout-agent beside a right one would leave a class out in silence."""
        unknown = [name for name in self.only if name not in classes]
        if unknown:
            error = UsageError(
                "unknown-agent",
                f"--fanout-agent={unknown[0]}: no setting and no marked test that was collected has this agent class;"
                f" known: {', '.join(sorted(classes)) or 'none'}",
                mend="name one of these",
            )
            raise self._refused(error)

    def _refused(self, error: FanoutError) -> pytest.UsageError:
        """What ends the collection. It is told as a problem too, for nobody sees what a worker of xdist raises."""
        problem = Problem(error.slug, f"{error.where}: {error.what}" if error.where else error.what, "incomplete")
        if error.mend:
            problem = replace(problem, text=f"{problem.text}; mend: {error.mend}")
        self.told.problems.append(problem)
        self.told.refused = True
        return pytest.UsageError(str(error))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.told.deselected += len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.mode == "replay" and self.trials is None:
            # only here, so that no recording of a task that a selection leaves out is opened
            works = [self.works[item] for item in session.items if item in self.works]
            gone = {key: self.store.superseded(*key) for key in {(work.agent, work.task) for work in works}}
            for item in [item for item in session.items if item in self.works]:
                work = self.works[item]
                if work.trial in gone[work.agent, work.task]:
                    session.items.remove(item)
                    del self.works[item]
        self.told.selected.update(item.nodeid for item in session.items)
        self.told.collected = len(self.works)
        if self.meter is not None:
            selected = (self.works[item] for item in session.items if item in self.works)
            self.meter.expect(self.store.hosts({(work.agent, work.task) for work in selected}))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.told.collection_failed = True
            self.told.collection_errors.append(first_error(report))

    # --- running ---------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._aside_setup(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._aside_setup(item))

    def _aside_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        if self.meter is None or item not in self.works:
            return (yield)
        with self.meter.setup():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        work = self.works.get(item)
        if work is None or self.runner is None:
            return (yield)
        original, runner = item.runtest, self.runner

        def measured() -> None:
            task_run, error = runner.run(work, original)
            self.finished[item] = task_run
            if self.control is not None:
                self.control.repeat(task_run)
            self.config.hook.pytest_fanout_task_finished(task_run=task_run)
            if task_run.status == "stale":
                # what the agent made of the refusal is beside the point, and its traceback takes longer than its task
                raise TrialFailed("stale: a request is not on the recording") from None
            if error is not None:
                raise error

        # pytest's own runner calls item.runtest once; a trial may need it again, for a new recording
        with running_as(item, measured):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        task_run = self.finished.pop(item, None) if call.when == "call" else None
        if task_run is None:
            return report
        item.user_properties.extend(properties_of(task_run))
        setattr(report, _DATA, pickle.dumps(shown_trial(task_run, self.masker)).hex())
        if report.failed:
            reason = self.anchors.leaves_to_the_gate(task_run)
            if reason is not None:
                report.outcome = "skipped"
                report.wasxfail = reason
        return report

    # --- results ---------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        data = getattr(report, _DATA, None)
        if data is not None:
            self.told.add_trial(pickle.loads(bytes.fromhex(data)))
            self.told.measured.add(report.nodeid)
        elif report.failed and report.when == "setup":
            self.told.setup_failed[report.nodeid] = first_error(report)
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.told.skipped.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["fanout_run_id"] = self.run_id
        self.workers.append(str(node.gateway.id))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self.told.selected.update(ids)
        self.told.collected = max(self.told.collected, len(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        data = getattr(node, "workeroutput", {}).get("fanout")
        name = str(node.gateway.id)
        if data is not None and name in self.workers:  # of one that was interrupted xdist tells twice
            self.workers.remove(name)
            self.told.add(pickle.loads(bytes.fromhex(data)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.runner is not None and self.runner.prover is not None:
            self.runner.prover.end()
        if self.control is not None:
            self.told.add_control(self.control)
        if self.outside is not None:
            self.outside.stop()
        if self.meter is not None:
            self.told.take(self.meter.finish())
            api.activate(None)
            self.meter.linger(self.after.tell)
            self.meter = None
        if self.looks is not None:
            self.told.problems.extend(self.looks.end())
        elif self.mode in ("record", "rerecord") and self.trials is not None:
            left = beyond(self.store, self.told.task_runs, self.trials)
            self.told.task_runs, problems = end_draws(self.store, self.told.task_runs, left)
            self.told.problems.extend(problems)
        if self.flow is not None:
            self.told.problems.extend(self.flow.end())
        if self.config.option.collectonly:
            return
        self.told.problems.extend(self.masker.take())
        if self.is_worker:
            self.config.workeroutput["fanout"] = pickle.dumps(self.told.portable()).hex()  # type: ignore[attr-defined]
            return
        self.told.problems.extend(worker_lost(name) for name in self.workers)
        self.told.stopped = str(session.shouldstop or session.shouldfail or "") or None
        expected = sum(is_in_shard(self.shard, name, task.id) for name, e in self.evalsets.items() for task in e.tasks)
        if self.shard is not None and not expected and not self.told.deselected and session.exitstatus == 5:
            session.exitstatus = 0  # few tasks in many shards leave one without any: only the whole is judged
        finish = Finish(
            told=self.told,
            settings=self.settings,
            evalsets=self.evalsets,
            budget=self.budget,
            store=self.store,
            mode=self.mode,
            run_id=self.run_id,
            begun_at=self.begun_at,
            shard=self.config.getoption("fanout_shard"),
            expected=expected,
            narrowed=bool(self.only),
            base_option=self.config.getoption("fanout_base"),
            pytest_exit=int(session.exitstatus),
            command=command_of(self.config.invocation_params.args),
            masker=self.masker,
            page=self.page,
            report=self.report,
        )
        hook = self.config.hook
        run, verdict = finish.judge(
            lambda: profiles_of(hook.pytest_fanout_profiles), lambda: codecs_of(hook.pytest_fanout_codecs)
        )
        problem = finish.write_report(self.report, run, verdict)
        tell_gate(self.config, run, verdict, self.settings)
        is_green = verdict.outcome in ("within", "waived") or verdict.verdict == "shard"
        if session.exitstatus == 0 and not (is_green and problem is None):
            session.exitstatus = 1
        try:
            self.config.hook.pytest_fanout_finished(run=run, verdict=verdict)
        except BaseException:
            # pytest ends with another exit than the report says: nothing may take that report for a pass
            finish.write_report(self.report, replace(run, session=replace(run.session, pytest_exit=3)), verdict)
            raise
        self.after.reported(finish, run, verdict, is_green=session.exitstatus == 0)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        width = min(getattr(getattr(terminal, "_tw", None), "fullwidth", 80), 100) if terminal else 80
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.verdict_text = finish.text(run, verdict, width=max(width, 80), encoding=encoding)
        if problem is not None:
            self.verdict_text += f"\n{problem}\n"
        self.verdict_text = "\n".join([self.verdict_text.rstrip("\n"), *finish.tell_github(run, verdict, encoding)])
        if terminal is None:
            print(f"\n{self.verdict_text}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, Any, Any]:
        result = yield
        # after everything else that is summarised, so that the verdict is what stands above the prompt
        if self.verdict_text is not None:
            terminalreporter.section("fanout budget", sep="=")
            terminalreporter.write(self.verdict_text.rstrip("\n") + "\n")
        return result


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
