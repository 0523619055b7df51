"""The command that ``fanout-gateway`` runs: started, given the signals that are meant for it, waited for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pytest_fanout.errors import UsageError

if TYPE_CHECKING:
    from pytest_fanout.meter import TaskScope

_FORWARDED: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_GRACE_S: Final = 1.0  # between asking it to end and ending it, as for the agents of a test run
_ASK_S: Final = 5.0


class Child:
    """A running command with this process's own stdin, stdout and stderr.

    Off a terminal it has a process group of its own, so that what it starts can be ended with it. On a terminal it
    shares ours, for only the group in front may read the keys.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._has_group = not _from_terminal()
        # The handlers stand before the command does: a signal that comes in between is handed on once it runs.
        self._before = {
            number: signal.signal(number, self._hand_on)
            for name in _FORWARDED
            if (number := getattr(signal, name, None)) is not None
        }
        try:
            self._process = subprocess.Popen(list(command), env=dict(environ), start_new_session=self._has_group)
        except OSError:
            self._put_back()
            raise
        for number in self._early:
            self._signal(number)

    def wait(self, scope: TaskScope) -> int:
        """Its exit code; 128 + n when signal n ended it.

        Args:
            scope: its task. The cap on wall time ends the command at once; after any other it has a moment to end by
                itself, for its calls in flight and its own last words.
        """
        from pytest_fanout.meter.task import FINISH_S

        process, bell = self._process, threading.Event()
        assert process is not None
        ended = self._tell_end(process, bell.set)
        scope.on_stop = bell.set
        try:
            while not ended.is_set():
                left = None
                if scope.capped is not None:
                    left = scope.stopped_at + (0 if scope.capped == "wall_seconds" else FINISH_S) - time.monotonic()
                    if left <= 0:
                        self._end(ended)
                        break
                elif scope.caps.wall_seconds is not None:
                    left = scope.caps.wall_seconds - scope.now_ms() / 1000
                    if left <= 0:
                        scope.stop("wall_seconds")
                        continue
                bell.wait(left)
                bell.clear()
            code = process.wait()
        finally:
            self._put_back()
        return 128 - code if code < 0 else code

    def _tell_end(self, process: subprocess.Popen[bytes], tell: Callable[[], object]) -> threading.Event:
        """Set, and told, once the command has ended."""
        from pytest_fanout.meter import own_thread

        ended = threading.Event()

        def wait() -> None:
            try:
                # Left as a zombie, so that its number, which is that of its group, stays its own.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            except (AttributeError, OSError):
                process.wait()
            ended.set()
            tell()

        own_thread(wait)
        return ended

    def _end(self, ended: threading.Event) -> None:
        """Ask it to end, and a moment later end it and all of its group that is left."""
        self._signal(signal.SIGTERM)
        ended.wait(_GRACE_S)
        self._signal(signal.SIGKILL)

    def _hand_on(self, number: int, frame: Any) -> None:
        if self._process is None:
            self._early.append(number)
        elif self._has_group or not (number in (signal.SIGINT, signal.SIGQUIT) and _from_terminal()):
            self._signal(number)

    def _signal(self, number: int) -> None:
        process = self._process
        assert process is not None
        try:
            if self._has_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a zombie
            return

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _from_terminal() -> bool:
    """Whether keys of a terminal send signals to this process group: the command gets them itself then."""
    for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__):
        try:
            if stream is not None and os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                return True
        except (OSError, ValueError):
            continue
    return False


def join_outer(home: str, environ: Mapping[str, str], *, ignored: bool) -> dict[str, str]:
    """The environment of a command inside another gateway: the same task, one deeper.

    Args:
        home: the outer gateway's URL with its token.
        ignored: whether words were given that only the outer one can act on.

    Raises:
        UsageError: the outer gateway is gone, or does not know the token.
    """
    found = re.fullmatch(r"http://127\.0\.0\.1:\d+/t-([0-9a-f]{14})([0-9a-f]{2})", home)
    if found is None or not _is_alive(home):
        raise UsageError(
            "gateway-gone",
            f"FANOUT_GATEWAY={home} names a gateway that does not answer",
            mend="unset FANOUT_GATEWAY, or start the gateway around this command anew",
        )
    token, depth = found[1] + found[2], int(found[2], 16) + 1
    deeper = f"{found[1]}{min(depth, 255):02x}"
    click.echo(f"fanout-gateway: joined the gateway around it, at depth {depth}: that one counts", err=True)
    if ignored:
        click.echo(
            "fanout-gateway: --cap, --report and --proxy are for the outer one to say, and not heeded here", err=True
        )
    return {name: value.replace(token, deeper) for name, value in environ.items()}


def _is_alive(home: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(home + "/", timeout=_ASK_S) as answer:
            said = json.load(answer)
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("gateway") == "pytest-fanout" and said.get("token") is True
