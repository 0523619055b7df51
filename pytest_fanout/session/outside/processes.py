"""A process with a group of its own: started, waited for, ended with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_fanout.meter import own_thread

_GRACE_S: Final = 1.0  # between asking a group to end and ending it
_LINES: Final = 20
_TAIL: Final = 20_000  # bytes of stderr that its last lines are looked for in


class Reaper:
    """Sees to it that groups die with this process, also when it is killed. Started on first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def tell(self, word: str, group: int) -> None:
        """``+`` or ``-`` a group."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(f"{word}{group}\n".encode())
                self._process.stdin.flush()
            except OSError:  # it is gone: nobody sees to it any more, and the run goes on
                self._process = None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


class Process:
    """One running command.

    Args:
        given: what stands on its stdin; nothing by default.
        pass_fds: descriptors that it inherits.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        reaper: Reaper,
        given: bytes = b"",
        pass_fds: Sequence[int] = (),
    ) -> None:
        # Files, not pipes: whatever its own children keep open, what it has written can be read once it has ended.
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._ended = threading.Event()
        self._reaper = reaper
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            try:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=cwd,
                    env=dict(environ),
                    stdin=stdin,
                    stdout=self._out,
                    stderr=self._err,
                    start_new_session=True,
                    pass_fds=pass_fds,
                )
            except BaseException:
                self.close()
                raise
        self._reaper.tell("+", self._process.pid)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def when_ended(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` on some thread once the process has ended; to be asked once."""

        def wait() -> None:
            try:
                # Left as a zombie, so that its number, which is that of its group, stays its own.
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            except (AttributeError, OSError):
                self._process.wait()
            self._ended.set()
            tell()

        # Not a thread of the running task: a server outlives it.
        own_thread(wait)

    def wait(self, seconds: float) -> None:
        """Wait for its end, which ``when_ended`` was asked for, for a while."""
        self._ended.wait(seconds)

    def end(self, grace_s: float = _GRACE_S) -> int:
        """End the whole group: asked first, where there is a grace. Its exit code, negative for a signal."""
        if self._process.returncode is None:  # afterwards its number may be that of others
            try:
                if grace_s and not self.has_ended:
                    self._signal(signal.SIGTERM)
                    self._ended.wait(grace_s)
                self._signal(signal.SIGKILL)
            finally:
                self._process.wait()
                self._reaper.tell("-", self._process.pid)
        return self._process.returncode

    def output(self, most: int) -> bytes:
        """What it has written to stdout, cut after ``most`` bytes."""
        self._out.seek(0)
        return self._out.read(most)

    def last_lines(self) -> str:
        """The last lines of its stderr."""
        size = self._err.seek(0, os.SEEK_END)
        self._err.seek(max(0, size - _TAIL))
        return "\n".join(self._err.read(_TAIL).decode("utf-8", "replace").rstrip().splitlines()[-_LINES:])

    def close(self) -> None:
        """Forget what it has written."""
        self._out.close()
        self._err.close()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a zombie
            return


def how_it_ended(code: int) -> str:
    """``exited with 3``, or ``was ended by SIGKILL``."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
