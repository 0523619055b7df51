"""A pytest run of its own beside this one: it collects the same tasks, and runs those that it is asked for.

It hears jobs on one pipe and answers on another, one line of JSON each. Its first line says that it has collected.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_fanout.session.outside.processes import Process, Reaper, how_it_ended

_END_S: Final = 10.0  # to tear down what its fixtures have set up
_LOOK_S: Final = 0.5


class Lost(Exception):
    """The process is of no use any more: why, and its last lines."""


class PytestProcess:
    """One process, its two pipes, and a folder for what it writes.

    Args:
        what: names it in messages, e.g. "the process that proves recordings".
        command: runs a file that reads ``given`` from its stdin.
        given: for that file; ``jobs`` and ``answers`` (descriptors) and ``folder`` are added.
        begin_s: how long it may take until it has collected.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(
        self,
        what: str,
        command: Sequence[str],
        given: Mapping[str, Any],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        reaper: Reaper,
        begin_s: float,
    ) -> None:
        self.has_begun = False
        self._what = what
        self._begin_until = time.monotonic() + begin_s
        self._folder = tempfile.TemporaryDirectory(prefix="fanout-beside-")
        jobs, self._jobs = os.pipe()
        self._answers, answers = os.pipe()
        self._buffer = b""
        argv = [*given["argv"]]
        end = argv.index("--") if "--" in argv else len(argv)
        argv[end:end] = [f"--basetemp={Path(self._folder.name) / 'tmp'}"]
        try:
            self._process = Process(
                command,
                cwd=cwd,
                environ=environ,
                reaper=reaper,
                given=json.dumps({**given, "argv": argv, "jobs": jobs, "answers": answers}).encode(),
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
            Lost: there is none.
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
                raise Lost(self._with_last_lines(late))
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

    def _gone(self) -> Lost:
        self._process.wait(_END_S)
        return Lost(self._with_last_lines(how_it_ended(self._process.end(0))))

    def _with_last_lines(self, what: str) -> str:
        lines = self._process.last_lines()
        said = f"; its last lines:\n{lines}" if lines else ""
        return f"{self._what} {what}{said}"

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


def interpreter() -> list[str]:
    """This interpreter, with the options that it was started with, and the first lines that it is to run."""
    flags: Callable[[], list[str]] = getattr(
        subprocess, "_args_from_interpreter_flags", list
    )  # as multiprocessing does
    return [sys.executable, *flags(), str(Path(__file__).with_name("start.py"))]


def arguments(config: pytest.Config) -> list[str]:
    """The arguments of this pytest run, without its workers."""
    given = [str(argument) for argument in config.invocation_params.args]
    # the clock is put forward before pytest begins: a project that makes errors of warnings is to begin all the same
    more = ["-W", "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"]
    for plugin in config.invocation_params.plugins or ():
        if isinstance(plugin, str):
            more += ["-p", plugin]
    if config.pluginmanager.hasplugin("xdist"):
        more.append("-n0")
    if config.pluginmanager.hasplugin("pytest_cov"):
        more.append("--no-cov")  # it would begin by erasing what was counted
    end = given.index("--") if "--" in given else len(given)
    return [*given[:end], *more, *given[end:]]
