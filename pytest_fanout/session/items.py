"""What is measured, as pytest items: one item a task and trial, from eval lines and from marked tests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import re
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fanout.config import AgentSettings, Settings, check_agent_name
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import EvalSet, EvalTask
from pytest_fanout.session import api
from pytest_fanout.session.failures import TrialFailed
from pytest_fanout.session.outside.agents import Outside
from pytest_fanout.session.outside.command import CommandAgent
from pytest_fanout.session.outside.server import ServerAgent
from pytest_fanout.store.evalsets import expectation_failure
from pytest_fanout.store.files import digest

if TYPE_CHECKING:
    from pytest_fanout.session.run import FanoutSession

TRIAL_FIXTURE = "_fanout_trial"
_ABSENT = object()
_HERE = str(Path(__file__).resolve().parents[1])
_TRIAL_SUFFIX = re.compile(r"(?:\[|-)t(\d+)\]$")


def load_callable(entry: str, key: str, settings: Settings, agent: str) -> Callable[..., Any]:
    """Import ``module:callable``. Raises ConfigError naming the key when that cannot be done."""
    where = f"{settings.source}: [tool.fanout.agents.{agent}] {key}"
    module_name, _, attribute = entry.partition(":")
    if str(settings.root) not in sys.path:
        sys.path.insert(0, str(settings.root))
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part, _ABSENT)  # a module may import what it is asked for only now
            if target is _ABSENT:
                break
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException as error:  # a script may call sys.exit, a test module pytest.skip: the tasks would be gone
        raise ConfigError(
            "entry-point-import",
            f"{entry!r} cannot be imported: {type(error).__name__}: {error}",
            where=where,
            mend=f'mend the import (try: python -c "import {module_name}" in {settings.root.name}/)',
        ) from error
    if target is _ABSENT:
        raise ConfigError(
            "entry-point-missing",
            f"module {module_name!r} has no {attribute!r}",
            where=where,
            mend=f"name an existing callable in {key}",
        )
    if not callable(target):
        raise ConfigError(
            "entry-point-not-callable",
            f"{entry!r} is {type(target).__name__}, which cannot be called",
            where=where,
            mend=f"name a function that takes the task's input in {key}",
        )
    return target  # type: ignore[no-any-return]


class MeasuredTask:
    """One trial to be measured, whatever item stands behind it."""

    def __init__(self, agent: str, task: str, trial: int, definition: str, no_calls: bool = False) -> None:
        self.agent = agent
        self.task = task
        self.trial = trial
        self.definition = definition
        self.no_calls = no_calls
        self.agent_ended: Callable[[], None] = lambda: None  # to be called when the entry point has returned
        self.duration_ms: int | None = None  # of the entry point, when it has said so

    @property
    def label(self) -> str:
        return f"{self.agent}::{self.task}::t{self.trial}"


class EvalFile(pytest.File):
    """An eval set; it may serve several agent classes."""

    fanout: FanoutSession

    def collect(self) -> Iterator[EvalItem]:
        for agent in self.fanout.agents_of(self.path):
            try:
                runner = Runner(self.fanout.settings, agent, self.fanout.outside)
            except ConfigError as error:
                raise self.CollectError(str(error)) from None
            evalset = self.fanout.evalsets[agent.name]
            for task in evalset.tasks:
                if not self.fanout.in_scope(agent.name, task.id):
                    continue
                for trial in self.fanout.trials_to_run(agent.name, task.id):
                    yield EvalItem.from_parent(
                        self,
                        name=f"{agent.name}::{task.id}::t{trial}",
                        runner=runner,
                        evalset=evalset,
                        task=task,
                        trial=trial,
                    )


class Runner:
    """The entry point and check of a class, made ready once for all its items."""

    def __init__(self, settings: Settings, agent: AgentSettings, outside: Outside | None) -> None:
        self.agent = agent
        self.call: Callable[[Any], Any]
        self.prepare: Callable[[], None] = lambda: None  # called before each task, as set-up
        if agent.entrypoint is not None:
            self.call = load_callable(agent.entrypoint, "entrypoint", settings, agent.name)
        else:
            made: CommandAgent | ServerAgent
            made = (CommandAgent if agent.command else ServerAgent)(settings, agent, outside)
            self.call, self.prepare = made, made.prepare
        self.check = load_callable(agent.check, "check", settings, agent.name) if agent.check else None


def resolve(value: Any) -> Any:
    """The value, awaited when it is awaitable."""
    if inspect.isawaitable(value):

        async def wait() -> Any:
            return await value

        return asyncio.run(wait())
    return value


def read_out(value: Any) -> Any:
    """The answer of an entry point: awaited when it is awaitable, and read to its end when it is an iterator.

    Until somebody reads a stream, nothing is sent. Its pieces are the answer: joined when all are texts, else a list.
    """
    if inspect.isawaitable(value) or isinstance(value, AsyncIterator):

        async def wait() -> Any:
            answer = await value if inspect.isawaitable(value) else value
            # here, because a stream is bound to the loop that opened it
            return _joined([piece async for piece in answer]) if isinstance(answer, AsyncIterator) else answer

        value = asyncio.run(wait())
    return _joined(list(value)) if isinstance(value, Iterator) else value


def _joined(pieces: list[Any]) -> Any:
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces


class EvalItem(pytest.Item):
    """One trial of one line of an eval set."""

    def __init__(self, *, runner: Runner, evalset: EvalSet, task: EvalTask, trial: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.runner = runner
        self.evalset = evalset
        self.eval_task = task
        self.measured = MeasuredTask(runner.agent.name, task.id, trial, task.definition, task.no_calls)

    def setup(self) -> None:
        self.runner.prepare()

    def runtest(self) -> None:
        answer = read_out(self.runner.call(self.eval_task.input))
        self.measured.agent_ended()
        with api.aside("check"):
            reason = expectation_failure(self.eval_task.expect, answer)
            check = self.runner.check
            if reason is None and check is not None and resolve(check(self.eval_task, answer)) == 0:
                # equal to False, as a number or a bool of numpy is without being it
                reason = f"check {self.runner.agent.check} returned False"
        if reason is not None:
            raise TrialFailed(reason)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, TrialFailed):
            return f"{self.measured.label}: {excinfo.value}"
        # Frames of the gate say nothing about the agent, and pytest parses the file of each frame that it shows.
        # What called the item says nothing either: forty lines of pytest and pluggy before the first of the agent.
        own = EvalItem.runtest.__code__
        calls = [at for at, entry in enumerate(excinfo.traceback) if entry.frame.code.raw is own]
        agents = excinfo.traceback[calls[-1] + 1 if calls else 0 :].filter(
            lambda entry: not str(entry.path).startswith(_HERE)
        )
        if agents:
            excinfo.traceback = agents
        if style is None and self.config.getoption("tbstyle") == "auto":
            style = "short"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.eval_task.line - 1, self.name


@contextlib.contextmanager
def running_as(item: pytest.Item, test: Callable[[], None]) -> Iterator[None]:
    """Inside, pytest's runner calls ``test`` where it would call the item's own, which stays what it was."""
    item.runtest = test  # type: ignore[method-assign]
    try:
        yield
    finally:
        del item.runtest


def marked_task(item: pytest.Item) -> MeasuredTask | None:
    """The task behind a test marked ``fanout``, None for any other item.

    Raises:
        ConfigError: the mark names no agent, or one that cannot be used.
    """
    mark = item.get_closest_marker("fanout")
    if mark is None:
        return None
    unknown = sorted(set(mark.kwargs) - {"agent", "task"})
    agent = mark.kwargs.get("agent")
    if mark.args or unknown or not isinstance(agent, str):
        raise ConfigError(
            "bad-mark",
            "a fanout mark needs agent=, may have task=, and nothing else",
            where=item.nodeid,
            mend='@pytest.mark.fanout(agent="support")',
        )
    check_agent_name(agent, item.nodeid)
    trial, name = getattr(getattr(item, "callspec", None), "params", {}).get(TRIAL_FIXTURE), item.nodeid
    name = unicodedata.normalize("NFC", name)  # a file's name is written in another form on some disks of macOS
    found = _TRIAL_SUFFIX.search(name)
    if trial is not None and found is not None:
        name = name[: found.start()] + ("]" if found.group(0).startswith("-") else "")
    task = name if (given := mark.kwargs.get("task")) is None else given
    if not isinstance(task, str) or not task or not task.isprintable():
        raise ConfigError(
            "bad-mark",
            "task= must be a text of printable characters",
            where=item.nodeid,
            mend='@pytest.mark.fanout(agent="support", task="refund")',
        )
    return MeasuredTask(agent, task, trial or 1, digest({"test": task}))
