"""The side of the run that records: it starts the proving process, hands it one recording after another, and ends it.

One process serves all trials of a measuring process. It is a pytest run of the same arguments, so that it collects the
same tasks with the same plugins and settings, but for what must differ: hashes, the date, and that it only replays.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from pytest_fanout.session.outside.processes import Process, Reaper, how_it_ended
from pytest_fanout.session.proof.outcome import Proof, ProofNotRun

AHEAD_S: Final = 24 * 3600
_START_S: Final = 300.0  # to import and collect everything
_MORE_S: Final = 300.0  # beyond the task's own wall clock: set-up, fixtures
_UNCAPPED_S: Final = 3600.0
_END_S: Final = 10.0  # to tear down what its fixtures have set up
_LOOK_S: Final = 0.5
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
        self._child: _Child | None = None
        self._broken: str | None = None  # why none can be started: once is enough

    def begin(self) -> None:
        """Start the process, unless it runs; what it needs to begin overlaps with the trial that is recorded."""
        if self._child is None and self._broken is None:
            self._reaper.start()
            command = list(self._command) or _command()
            try:
                until = time.monotonic() + self._start_s
                self._child = _Child(self._config, self._reaper, command, until, self._environ, self._path)
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
                raise _Lost(self._broken or "")
            answer = self._child.ask(job, limit_s)
        except _Lost as lost:
            self._drop(lost)
            raise _not_run(str(lost)) from None
        except BaseException:
            self._drop(None)  # in the midst of a trial: it is of no use any more
            raise
        if answer.get("failed") is not None:
            raise _not_run(str(answer["failed"]))
        return Proof(tuple(answer["differences"]), tuple(answer["volatile"]))

    def _drop(self, lost: _Lost | None) -> None:
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


class _Lost(Exception):
    """The process is of no use any more."""


class _Child:
    """One process, its two pipes, and a folder for what it writes."""

    def __init__(
        self,
        config: pytest.Config,
        reaper: Reaper,
        command: list[str],
        begin_until: float,
        environ: Mapping[str, str],
        path: list[str],
    ) -> None:
        self.has_begun = False
        self._begin_until = begin_until
        self._folder = tempfile.TemporaryDirectory(prefix="fanout-proof-")
        jobs, self._jobs = os.pipe()
        self._answers, answers = os.pipe()
        given = {
            "path": path,
            "argv": arguments(config, Path(self._folder.name)),
            "jobs": jobs,
            "answers": answers,
            "ahead_s": AHEAD_S,
        }
        self._buffer = b""
        try:
            self._process = Process(
                command,
                cwd=config.invocation_params.dir,
                environ=environ,
                reaper=reaper,
                given=json.dumps(given).encode(),
                pass_fds=(jobs, answers),
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(jobs)
            os.close(answers)
        self._process.when_ended(lambda: None)

    def ask(self, job: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to one job.

        Raises:
            _Lost: there is none.
        """
        if not self.has_begun:
            self._receive(self._begin_until, "did not begin in time")
            self.has_begun = True
        try:
            os.write(self._jobs, json.dumps(job).encode() + b"\n")
        except OSError:
            raise self._gone() from None
        return self._receive(time.monotonic() + limit_s, "did not end a trial in time")

    def _receive(self, until: float, late: str) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                raise _Lost(self._with_last_lines(late))
            # looked at from time to time: what the agent has forked may hold the pipe open
            ready, _, _ = select.select([self._answers], [], [], min(left, _LOOK_S))
            if ready:
                data = os.read(self._answers, 65536)
                if not data:
                    raise self._gone()
                self._buffer += data
            elif self._process.has_ended:
                raise self._gone()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> _Lost:
        self._process.wait(_END_S)
        return _Lost(self._with_last_lines(how_it_ended(self._process.end(0))))

    def _with_last_lines(self, what: str) -> str:
        lines = self._process.last_lines()
        said = f"; its last lines:\n{lines}" if lines else ""
        return f"the process that proves recordings {what}{said}"

    def end(self) -> None:
        """Let it tear down what it has set up, then make sure that it is gone."""
        os.close(self._jobs)
        self._jobs = -1
        self._process.wait(_END_S if self.has_begun else 0)
        self.kill()

    def kill(self) -> None:
        self._process.end(0)
        self._process.close()
        self._close()

    def _close(self) -> None:
        for descriptor in (self._jobs, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        with contextlib.suppress(OSError):
            self._folder.cleanup()


def _command() -> list[str]:
    """This interpreter, with the options that it was started with."""
    flags: Callable[[], list[str]] = getattr(
        subprocess, "_args_from_interpreter_flags", list
    )  # as multiprocessing does
    return [sys.executable, *flags(), str(Path(__file__).with_name("start.py"))]


def environment() -> dict[str, str]:
    """That of this process, in which keys are dummies, but with other hashes, and dummies for what cannot be sealed."""
    environ = dict(os.environ)
    environ.pop("PYTEST_CURRENT_TEST", None)
    if any(environ.get(name) for name in _AWS):
        environ.update(dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "fanout-dummy"))
        environ.pop("AWS_SESSION_TOKEN", None)
    environ["PYTHONHASHSEED"] = "20011" if environ.get("PYTHONHASHSEED") != "20011" else "20021"
    return environ


def arguments(config: pytest.Config, folder: Path) -> list[str]:
    """The arguments of this pytest run, without its workers, and with a folder for temporary files of its own."""
    given = [str(argument) for argument in config.invocation_params.args]
    more = [f"--basetemp={folder / 'tmp'}"]
    for plugin in config.invocation_params.plugins or ():
        if isinstance(plugin, str):
            more += ["-p", plugin]
    if config.pluginmanager.hasplugin("xdist"):
        more.append("-n0")
    if config.pluginmanager.hasplugin("pytest_cov"):
        more.append("--no-cov")  # it would begin by erasing what was counted
    end = given.index("--") if "--" in given else len(given)
    return [*given[:end], *more, *given[end:]]


def _not_run(what: str) -> ProofNotRun:
    return ProofNotRun("proof-not-run", f"the recording could not be proved, so it was not stored: {what}", mend=_MEND)
