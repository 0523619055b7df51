"""The command that ``fanout-gateway`` runs: started, given the signals that are meant for it, waited for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from pytest_fanout.errors import UsageError

_FORWARDED: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_GRACE_S: Final = 5.0  # between asking it to end and ending it
_ASK_S: Final = 5.0


class Child:
    """A running command with this process's own stdin, stdout and stderr.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        # The handlers stand before the command does: a signal that comes in between is handed on once it runs.
        self._before = {
            number: signal.signal(number, self._hand_on)
            for name in _FORWARDED
            if (number := getattr(signal, name, None)) is not None
        }
        try:
            self._process = subprocess.Popen(list(command), env=dict(environ))
        except OSError:
            self._put_back()
            raise
        for number in self._early:
            self._process.send_signal(number)

    def wait(self, most_s: int | None, expired: Callable[[], None]) -> int:
        """Its exit code; 128 + n when signal n ended it.

        Args:
            most_s: after so many seconds ``expired`` is called and the command is ended.
        """
        process = self._process
        assert process is not None
        try:
            process.wait(most_s)
        except subprocess.TimeoutExpired:
            expired()
            process.terminate()
            until = time.monotonic() + _GRACE_S
            try:
                process.wait(until - time.monotonic())
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        finally:
            self._put_back()
        code = process.returncode
        return 128 - code if code < 0 else code

    def _hand_on(self, number: int, frame: Any) -> None:
        if self._process is None:
            self._early.append(number)
        elif not (number in (signal.SIGINT, signal.SIGQUIT) and _from_terminal()):
            self._process.send_signal(number)

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
