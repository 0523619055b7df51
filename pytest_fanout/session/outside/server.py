"""An agent that is a server: started once a measuring process, asked by a POST for each task, stopped at the end."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.meter import TaskScope, own_thread, unseen
from pytest_fanout.session.failures import TrialFailed
from pytest_fanout.session.outside.agents import (
    KEY_HEADER,
    Outside,
    OutsideAgent,
    let_calls_end,
    shown,
    wait_for,
    with_last_lines,
)
from pytest_fanout.session.outside.answers import MOST_BYTES, answer_of, document_of
from pytest_fanout.session.outside.processes import Process, how_it_ended

_HOST: Final = "127.0.0.1"
_ASK_S: Final = 2.0  # for one try whether it is ready
_AGAIN_S: Final = 0.02
_STOP_S: Final = 3.0  # to end by itself at the end of the session
_SHOWN: Final = 300  # characters of an error answer


class ServerAgent(OutsideAgent):
    """Called with a task's input, it asks the server."""

    def __init__(self, settings: Settings, agent: AgentSettings, outside: Outside | None) -> None:
        super().__init__("serve", agent.serve, settings, agent, outside)
        self._name = f"the server {shown(agent.serve)}"
        self._process: Process | None = None
        self._port = 0
        self._failed: str | None = None  # why it could not be started: once is enough

    def prepare(self) -> None:
        """Before a task begins: start it, unless it runs. What it calls meanwhile is set-up, no task's."""
        outside = self._outside
        if outside is None or self._failed is not None or (self._process is not None and not self._process.has_ended):
            return
        outside.prepare()
        if self._process is None:
            outside.at_the_end(self.stop)
        self.stop()
        try:
            self._start(outside)
        except _NotReady as error:
            self._failed = str(error)
            self.stop()

    def __call__(self, given: Any) -> Any:
        """The answer.

        Raises:
            TrialFailed: the server could not be started, failed, or answered 400 or above.
            TaskStopped: a cap was reached, and it did not end its answer.
        """
        outside = self._outside
        assert outside is not None
        with outside.meter.setup():
            self.prepare()  # a new recording and its proof may follow a run that has ended the server
        scope, process = outside.runner.scope, self._process
        if self._failed is not None or process is None:
            mend = "run it by hand with PORT set, or raise ready_seconds of its settings"
            scope.add_problem("server-not-ready", f"{self._failed}\n  mend: {mend}", "invalid")
            raise TrialFailed(self._failed)
        asked = _Asked(self._port, self._agent.post, document_of(given), self._key(outside, scope))
        if not wait_for(scope, lambda: asked.is_over, asked.begin):
            self.stop()  # it goes on with a task that has ended: the next one gets a new one
            raise scope.stopped()
        outside.runner.agent_has_ended()
        if asked.error is not None:
            raise TrialFailed(self._broken(process, asked.error))
        let_calls_end(scope)
        if asked.status >= 400:
            body = asked.body[: _SHOWN * 4].decode("utf-8", "replace")[:_SHOWN].strip()
            raise TrialFailed(f"{self._name} answered {asked.status} to POST {self._agent.post}: {body}")
        try:
            return answer_of(asked.body)
        except ValueError as error:
            raise TrialFailed(f"what {self._name} answered is no answer: {error}") from None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(_STOP_S)
            process.close()

    def _start(self, outside: Outside) -> None:
        self._port = _free_port()
        environ = outside.environ(None, proxy=self._agent.proxy) | {"PORT": str(self._port)}
        command = [word.replace("{port}", str(self._port)) for word in self._agent.serve]
        try:
            process = Process(command, cwd=self._root, environ=environ, reaper=outside.reaper)
        except OSError as error:
            raise _NotReady(f"{self._name} cannot be run: {error.strerror}") from None
        self._process = process
        process.when_ended(lambda: None)
        until = time.monotonic() + self._agent.ready_seconds
        while not _answers(self._port):
            if process.has_ended:
                how = how_it_ended(process.end())
                raise _NotReady(with_last_lines(f"{self._name} {how} before it was ready", process))
            if time.monotonic() > until:
                text = f"{self._name} did not answer on port {self._port} within {self._agent.ready_seconds} seconds"
                raise _NotReady(with_last_lines(text, process))
            time.sleep(_AGAIN_S)

    def _key(self, outside: Outside, scope: TaskScope) -> str:
        """The dummy key of this task. One that stands for a real key where there is one."""
        issued = outside.environ(scope, proxy=False)
        return issued.get("OPENAI_API_KEY") or next(v for v in issued.values() if v.startswith("fanout-sealed-"))

    def _broken(self, process: Process, error: str) -> str:
        # A server that dies closes its connections first: give its end the time to be seen.
        until = time.monotonic() + 1
        while not process.has_ended and time.monotonic() < until:
            time.sleep(_AGAIN_S)
        if not process.has_ended:
            return with_last_lines(f"{self._name} gave no answer to POST {self._agent.post}: {error}", process)
        return with_last_lines(f"{self._name} {how_it_ended(process.end())} while it answered", process)


class _NotReady(Exception):
    """The server could not be started."""


class _Asked:
    """One POST, on a thread of its own, so that the task can be stopped meanwhile."""

    def __init__(self, port: int, path: str, body: bytes, key: str) -> None:
        self._port, self._path, self._body, self._key = port, path, body, key
        self.is_over = False
        self.error: str | None = None
        self.status = 0
        self.body = b""

    def begin(self, tell: Callable[[], object]) -> None:
        def ask() -> None:
            try:
                self._ask()
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
            self.is_over = True
            tell()

        own_thread(ask)

    def _ask(self) -> None:
        headers = {"Content-Type": "application/json", KEY_HEADER: self._key, "Connection": "close"}
        with _connection(self._port, None) as connection:
            connection.request("POST", self._path, self._body, headers)
            answer = connection.getresponse()
            self.status, self.body = answer.status, answer.read(MOST_BYTES + 1)


@contextlib.contextmanager
def _connection(port: int, timeout_s: float | None) -> Iterator[http.client.HTTPConnection]:
    """A connection to the agent's own server: it is the way a task is given, no call of the agent's."""
    with unseen(_HOST, port):
        connection = http.client.HTTPConnection(_HOST, port, timeout=timeout_s)
        try:
            yield connection
        finally:
            connection.close()


def _answers(port: int) -> bool:
    """Whether something answers any HTTP there."""
    try:
        with _connection(port, _ASK_S) as connection:
            connection.request("GET", "/", headers={"Connection": "close"})
            connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port
