"""An entry point that is a command line: one process a trial, its input on stdin, its answer on stdout."""

from __future__ import annotations

from typing import Any

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.session.failures import TrialFailed
from pytest_fanout.session.outside.agents import (
    Outside,
    OutsideAgent,
    let_calls_end,
    shown,
    wait_for,
    with_last_lines,
)
from pytest_fanout.session.outside.answers import MOST_BYTES, answer_of, document_of
from pytest_fanout.session.outside.processes import Process, how_it_ended


class CommandAgent(OutsideAgent):
    """Called with a task's input, it runs the command."""

    def __init__(self, settings: Settings, agent: AgentSettings, outside: Outside | None) -> None:
        super().__init__("entrypoint", agent.command, settings, agent, outside)

    def prepare(self) -> None:
        """Before a task begins."""
        if self._outside is not None:
            self._outside.prepare()

    def __call__(self, given: Any) -> Any:
        """The answer.

        Raises:
            TrialFailed: the command failed, or what it wrote is no answer.
            TaskStopped: a cap was reached, and it did not end by itself.
        """
        outside = self._outside
        assert outside is not None
        scope, command = outside.runner.scope, self._agent.command
        environ = outside.environ(scope, proxy=self._agent.proxy)
        name = f"the command {shown(command)}"
        try:
            process = Process(command, cwd=self._root, environ=environ, reaper=outside.reaper, given=document_of(given))
        except OSError as error:
            raise TrialFailed(f"{name} cannot be run: {error.strerror}") from None
        try:
            if not wait_for(scope, lambda: process.has_ended, process.when_ended):
                process.end()
                raise scope.stopped()
            outside.runner.agent_has_ended()
            let_calls_end(scope)
            code = process.end()
            if code != 0:
                raise TrialFailed(with_last_lines(f"{name} {how_it_ended(code)}", process))
            try:
                return answer_of(process.output(MOST_BYTES + 1))
            except ValueError as error:
                raise TrialFailed(f"what {name} wrote to stdout is no answer: {error}") from None
        except BaseException:
            process.end(0)
            raise
        finally:
            process.close()
