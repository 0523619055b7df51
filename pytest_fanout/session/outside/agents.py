"""What the session knows of agents in other processes: how to start them, whose task runs, and when it has ended."""

from __future__ import annotations

import importlib.util
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.errors import ConfigError, UsageError
from pytest_fanout.meter import Meter, TaskScope
from pytest_fanout.meter.task import FINISH_S
from pytest_fanout.session.outside.processes import Process, Reaper

#: What a request to a server of an agent carries: its task's own key.
KEY_HEADER: Final = "x-fanout-key"
_PARTS: Final = ("aiohttp", "trustme")  # of the extra


class Runner(Protocol):
    """The part of the session that runs the trials."""

    scope: Any

    def agent_has_ended(self) -> None: ...


class Outside:
    """One for each measuring process.

    Args:
        runner: whose scope is the running task's.
    """

    def __init__(self, meter: Meter, runner: Runner) -> None:
        self.meter = meter
        self.runner = runner
        self.reaper = Reaper()
        self._to_stop: list[Callable[[], None]] = []

    def environ(self, scope: TaskScope | None, *, proxy: bool) -> dict[str, str]:
        """The environment of a child of this task, or of a server that outlives it (None)."""
        environ = self.meter.gateway().environ_for(scope, os.environ, proxy=proxy)
        environ.setdefault("PYTHONIOENCODING", "utf-8")
        environ.pop("PYTEST_CURRENT_TEST", None)
        return environ

    def prepare(self) -> None:
        """Start what all of them need, so that no task's time holds it."""
        self.meter.gateway()
        self.reaper.start()

    def at_the_end(self, stop: Callable[[], None]) -> None:
        self._to_stop.append(stop)

    def stop(self) -> None:
        """The session ends: servers are stopped, and nothing that they have started is left."""
        while self._to_stop:
            self._to_stop.pop()()
        self.reaper.stop()


class OutsideAgent:
    """An agent class that runs in another process.

    Args:
        key: of its settings, which names ``command``.
        outside: None where nothing is measured.

    Raises:
        ConfigError: its command cannot be found.
    """

    def __init__(
        self, key: str, command: tuple[str, ...], settings: Settings, agent: AgentSettings, outside: Outside | None
    ) -> None:
        check_command(key, command, settings, agent.name)
        self._root = settings.root
        self._agent = agent
        self._outside = outside


def wait_for(scope: TaskScope, is_over: Callable[[], bool], begin: Callable[[Callable[[], object]], object]) -> bool:
    """Wait until something is over, or until the task has been stopped and must end.

    Args:
        begin: is given what to call when it may be over.

    Returns:
        False: the task has been stopped. A cap other than the wall clock leaves a moment to end by oneself.
    """
    bell = threading.Event()
    before = scope.on_stop

    def on_stop() -> None:
        before()
        bell.set()

    scope.on_stop = on_stop
    begin(bell.set)
    try:
        while not is_over():
            left = None
            if scope.capped is not None:
                grace_s = 0 if scope.capped == "wall_seconds" else FINISH_S
                left = scope.stopped_at + grace_s - time.monotonic()
                if left <= 0:
                    return False
            bell.wait(left)
            bell.clear()
    finally:
        scope.on_stop = before
    return True


def let_calls_end(scope: TaskScope) -> None:
    """The answer is there: calls that are still in flight get a moment to come to their end."""
    until = time.monotonic() + FINISH_S
    while scope.is_flying and time.monotonic() < until:
        time.sleep(0.005)


def shown(command: tuple[str, ...]) -> str:
    """A command as messages name it: its first words, on one line."""
    text = " ".join(command)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 60 else text[:59] + "…"


def with_last_lines(text: str, process: Process) -> str:
    """A failure with what the process has said last on stderr."""
    lines = process.last_lines()
    return f"{text}; its last lines on stderr:\n{lines}" if lines else f"{text}, and wrote nothing to stderr"


def check_extra(agents: Mapping[str, AgentSettings]) -> None:
    """Refuse to begin when an agent needs the gateway and its extra is not there.

    Raises:
        UsageError: naming the first such agent.
    """
    for name, agent in agents.items():
        missing = [part for part in _PARTS if importlib.util.find_spec(part) is None] if agent.needs_gateway else []
        if missing:
            raise UsageError(
                "gateway-not-installed",
                f"the agent class {name} is measured through the gateway, which stands on {missing[0]}:"
                " it is not installed",
                mend="pip install 'pytest-fanout[gateway]'",
            )


def check_command(key: str, command: tuple[str, ...], settings: Settings, agent: str) -> None:
    """Refuse a command that cannot be found, before anything runs.

    Raises:
        ConfigError: naming the key.
    """
    word = command[0]
    path = Path(settings.root, word)
    found = os.access(path, os.X_OK) and path.is_file() if os.sep in word else shutil.which(word) is not None
    if not found:
        raise ConfigError(
            "command-not-found",
            f"{word!r} is no program that can be run",
            where=f"{settings.source}: [tool.fanout.agents.{agent}] {key}",
            mend="install it, or name it by its path from the folder of this file, as ./agent",
        )
