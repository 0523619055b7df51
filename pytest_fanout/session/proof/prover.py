"""The side of the run that records: it starts the proving process, hands it one recording after another, and ends it.

One process serves all trials of a measuring process. It is a pytest run of the same arguments, so that it collects the
same tasks with the same plugins and settings, but for what must differ: hashes, the date, and that it only replays.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Protocol

import pytest

from pytest_fanout.session.beside.process import Lost, PytestProcess, arguments, interpreter
from pytest_fanout.session.outside.processes import Reaper
from pytest_fanout.session.proof.outcome import Proof, ProofNotRun

AHEAD_S: Final = 24 * 3600
_START_S: Final = 300.0  # to import and collect everything
_MORE_S: Final = 300.0  # beyond the task's own wall clock: set-up, fixtures
_UNCAPPED_S: Final = 3600.0
_WHAT: Final = "the process that proves recordings"
#: Where credentials of AWS come from. They sign what is not sent there, and most would have run out a day on.
_AWS: Final = (
    *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_MEND: Final = (
    "find out why it fails there (fixtures must stand being used in two processes at once), then record again"
)


class Task(Protocol):
    """The trial whose recording is proved."""

    agent: str
    task: str
    trial: int


class Prover:
    """Proves recordings in a process of its own, started with the first of them and ended with the session.

    Args:
        config: of the pytest that records.
        reaper: ends that process when this one is killed.
        start_s, more_s: how long it may take to begin, and a trial beyond its cap ``wall_seconds``.
        command: what to run, for tests.
    """

    def __init__(
        self,
        config: pytest.Config,
        reaper: Reaper,
        *,
        start_s: float = _START_S,
        more_s: float = _MORE_S,
        command: tuple[str, ...] = (),
    ) -> None:
        self._config = config
        self._reaper = reaper
        self._environ, self._path = environment(), list(sys.path)  # now: later a fixture may have changed them
        self._start_s, self._more_s = start_s, more_s
        self._command = command
        self._child: PytestProcess | None = None
        self._broken: str | None = None  # why none can be started: once is enough

    def begin(self) -> None:
        """Start the process, unless it runs; what it needs to begin overlaps with the trial that is recorded."""
        if self._child is None and self._broken is None:
            self._reaper.start()
            command = list(self._command) or interpreter()
            given = {"role": "proof", "path": self._path, "argv": arguments(self._config), "ahead_s": AHEAD_S}
            try:
                self._child = PytestProcess(
                    _WHAT,
                    command,
                    given,
                    cwd=self._config.invocation_params.dir,
                    environ=self._environ,
                    reaper=self._reaper,
                    begin_s=self._start_s,
                )
            except OSError as error:
                self._broken = f"the process that proves recordings cannot be started: {error.strerror}"

    def prove(self, work: Task, folder: Path, wall_seconds: int | None) -> Proof:
        """Replay the recording of a trial, the only one in ``folder``.

        Raises:
            ProofNotRun: the process does not begin, dies, says nothing in time, or has no such task.
        """
        self.begin()
        limit_s = (_UNCAPPED_S if wall_seconds is None else wall_seconds) + self._more_s
        job = {"agent": work.agent, "task": work.task, "trial": work.trial, "folder": str(folder)}
        try:
            if self._child is None:
                raise Lost(self._broken or "")
            answer = self._child.ask(job, limit_s)
        except Lost as lost:
            self._drop(lost)
            raise _not_run(str(lost)) from None
        except BaseException:
            self._drop(None)  # in the midst of a trial: it is of no use any more
            raise
        if answer.get("failed") is not None:
            raise _not_run(str(answer["failed"]))
        return Proof(tuple(answer["differences"]), tuple(answer["volatile"]))

    def _drop(self, lost: Lost | None) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if lost is not None and not child.has_begun:
            self._broken = str(lost)
        child.kill()

    def end(self) -> None:
        """The session ends: the process gets a moment to tear down its fixtures, and is no more."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


def environment() -> dict[str, str]:
    """That of this process, in which keys are dummies, but with other hashes, and dummies for what cannot be sealed."""
    environ = dict(os.environ)
    environ.pop("PYTEST_CURRENT_TEST", None)
    if any(environ.get(name) for name in _AWS):
        environ.update(dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "fanout-dummy"))
        environ.pop("AWS_SESSION_TOKEN", None)
    environ["PYTHONHASHSEED"] = "20011" if environ.get("PYTHONHASHSEED") != "20011" else "20021"
    return environ


def _not_run(what: str) -> ProofNotRun:
    return ProofNotRun("proof-not-run", f"the recording could not be proved, so it was not stored: {what}", mend=_MEND)
