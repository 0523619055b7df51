"""What ends a task or a process from outside: the wall clock, and ``os._exit`` while a task runs."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.task import TaskScope

#: Exit code of a process that called ``os._exit(0)`` while a task was running: its numbers are lost.
EXIT_LOST = 70
_AGAIN_S = 0.2  # between two attempts to stop a task that goes on


class ExitGuard:
    """Turns ``os._exit(0)`` into a failure while a task runs, in the measuring process only."""

    def __init__(self, is_running: Callable[[], bool]) -> None:
        self._is_running = is_running
        self._pid = os.getpid()
        self._before: Any = None
        self._ours: Any = None

    def install(self) -> None:
        self._before = before = os._exit

        def _exit(status: int) -> Any:
            lost = status == 0 and os.getpid() == self._pid and self._is_running()
            before(EXIT_LOST if lost else status)

        self._ours = _exit
        os._exit = _exit

    def uninstall(self) -> None:
        if os._exit is self._ours:
            os._exit = self._before


class WallClock:
    """Stops a task that runs longer than ``wall_seconds`` of real time by raising TaskStopped in its thread.

    On the main thread a signal does it (SIGURG, which is ignored by default), because it also ends a blocking
    system call; elsewhere an asynchronous exception does, at the next byte code.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._scope: TaskScope | None = None
        self._ident = 0
        self._thread: threading.Thread | None = None
        self._ended = False
        self._old_handler: Any = None
        self._signal = False

    def install(self) -> None:
        number = getattr(signal, "SIGURG", None)
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN):
            self._old_handler = signal.signal(number, self._on_signal)
            self._signal = True

    def uninstall(self) -> None:
        with self._wake:
            self._ended = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=2)
        if self._signal and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGURG, self._old_handler)
            self._signal = False

    def watch(self, scope: TaskScope) -> None:
        """Watch the task that this thread runs, until it is settled."""
        if scope.caps.wall_seconds is None:
            return
        with self._wake:
            self._scope, self._ident = scope, threading.get_ident()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fanout-wall-clock", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def settle(self, scope: TaskScope) -> None:
        """The agent's code has ended: nothing is raised into this thread any more."""
        with self._wake:
            scope.settled = True
            if self._scope is scope:
                self._scope = None
                if not self._is_main():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), None)

    def _is_main(self) -> bool:
        return self._signal and self._ident == threading.main_thread().ident

    def _on_signal(self, number: int, frame: Any) -> None:
        scope = self._scope
        if scope is not None and not scope.settled and scope.expired:
            raise scope.stopped()

    def _run(self) -> None:
        with self._wake:
            while not self._ended:
                scope = self._scope
                wait = None if scope is None else self._step(scope)
                self._wake.wait(wait)

    def _step(self, scope: TaskScope) -> float:
        """Stop the task if it is time; seconds until the next look."""
        limit = scope.caps.wall_seconds or 0
        left = limit - (time.perf_counter_ns() - scope.t0) / 1e9
        warn_in = left - 0.2 * limit
        if left > 0:
            if warn_in <= 0:
                scope.warn("wall_seconds", 1 - left / limit)
                return left
            return warn_in
        scope.stop("wall_seconds")
        scope.expired = True
        if self._is_main():
            signal.pthread_kill(self._ident, signal.SIGURG)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(TaskStopped))
        return _AGAIN_S
