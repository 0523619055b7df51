"""Ends a task from outside: when its wall clock has run out, and when it goes on although another cap was reached.

TaskStopped is raised in the thread that runs the task. On the main thread a signal does it (SIGURG, which is ignored by
default), because it also ends a blocking system call; elsewhere an asynchronous exception does, at the next byte code.
Threads that the task has started get theirs from the next call that is refused to them.

An agent may catch everything: once it has let go of a stop and goes on, it is stopped again on its next line, and so on
outwards, until no code of it is left. Code of C that neither returns nor looks at signals cannot be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import selectors
import signal
import sys
import sysconfig
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from types import FrameType, GeneratorType
from typing import Any, Final

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.handover import waited
from pytest_fanout.meter.ledger import Ledger
from pytest_fanout.meter.patching import passed_on, untorn
from pytest_fanout.meter.running_library import running_library
from pytest_fanout.meter.task import FINISH_S, TaskScope

_GRACE_S: Final = FINISH_S + 0.2  # for an agent that has been refused a call to end by itself
_AGAIN_S: Final = 0.2  # between two attempts to stop a task that goes on
_PATIENCE: Final = 5  # attempts before it may no longer deal with a stop: it has kept each of them and gone on
_FAREWELL_S: Final = 2.0  # for threads of capped tasks, when nothing is measured any more
_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB: Final = sysconfig.get_paths()["stdlib"] + os.sep
_SITE: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PASSED_ON: Final = frozenset({passed_on.__code__, waited.__code__})  # from a patch of ours to what it stands before
_LOOP: Final = f"{os.sep}asyncio{os.sep}base_events.py"
_TRIO: Final = f"{os.sep}trio{os.sep}_core{os.sep}"


class Stopper:
    """One thread that watches the running task."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()  # held while something is raised elsewhere
        self._bell = threading.Event()
        self._scope: TaskScope | None = None
        self._ident = 0
        self._opened_in: FrameType | None = None  # what has asked for the task, where it will be closed
        self._pushes = 0
        self._put_back: Callable[[], None] = lambda: None
        self._capped: list[TaskScope] = []
        self._tracing: tuple[Any] | None = None  # what traced the stopped thread before
        self._thread: threading.Thread | None = None
        self._ended = False
        self._old_handler: Any = None
        self._signal = False

    def install(self) -> None:
        global _active
        _active = self
        self._thread = threading.Thread(target=self._run, name="fanout-stopper", daemon=True)
        self._thread.start()
        number = getattr(signal, "SIGURG", None)
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN):
            self._old_handler = signal.signal(number, self._on_signal)
            self._signal = True

    def uninstall(self) -> None:
        """Stop nothing any more; threads of capped tasks get the time to be stopped before."""
        global _active
        until = time.monotonic() + _FAREWELL_S
        while time.monotonic() < until and any(map(self._is_at_work, self._capped)):
            time.sleep(0.01)
        if _active is self:
            _active = None
        self._ended = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        if self._signal and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGURG, self._old_handler)
            self._signal = False

    def watch(self, scope: TaskScope) -> None:
        """Watch the task that this thread runs, until it is settled."""
        with self._lock:
            self._scope, self._ident = scope, threading.get_ident()
            self._pushes = 0
            self._put_back = running_library()
            self._opened_in = sys._getframe()
            while self._opened_in.f_back is not None and _is_ours(self._opened_in.f_code.co_filename):
                self._opened_in = self._opened_in.f_back
        scope.on_stop = self._bell.set
        self._bell.set()

    def settle(self, scope: TaskScope) -> None:
        """The agent's code has ended: nothing is raised into this thread any more."""
        if scope.overdue and self._scope is scope:
            gc.collect()  # coroutines that were left half done end now, while they can still be stopped
        while not scope.settled or self._scope is scope:
            with contextlib.suppress(TaskStopped), self._lock:
                scope.settled = True
                if self._scope is scope:
                    self._scope = self._opened_in = None
                    if scope.capped is not None:
                        _make_insistent(scope)
                        self._capped.append(scope)
        if scope.overdue and threading.get_ident() == self._ident:
            self._put_back()
        with contextlib.suppress(TaskStopped):
            for _ in range(10):  # what has been raised in this thread by another one arrives now
                pass
        if self._tracing is not None:
            sys.settrace(self._tracing[0])
            self._tracing = None
        self._bell.set()

    # --- the watching thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            self._bell.clear()
            scope = self._scope
            self._bell.wait(None if scope is None else self._step(scope))

    def _step(self, scope: TaskScope) -> float | None:
        """Stop the task if it is time; seconds until the next look, None until something happens."""
        if scope.capped is None:
            limit = scope.caps.wall_seconds
            if limit is None:
                return None
            left = limit - scope.elapsed_ns() / 1e9
            if left > 0:
                warn_in = left - 0.2 * limit
                if warn_in <= 0:
                    scope.warn("wall_seconds", 1 - left / limit)
                    return left
                return warn_in
            scope.stop("wall_seconds")
        due = scope.stopped_at + (0 if scope.capped == "wall_seconds" else _GRACE_S) - time.monotonic()
        if due > 0:
            return due
        _make_insistent(scope)
        self._pushes += 1
        with self._lock:
            if not scope.settled:
                self._stop()
        return _AGAIN_S

    def _stop(self) -> None:
        if self._signal and self._ident == threading.main_thread().ident:
            signal.pthread_kill(self._ident, signal.SIGURG)
        elif may_stop(sys._current_frames().get(self._ident)):
            error = ctypes.py_object(_Insistent)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), error)

    def _is_at_work(self, scope: TaskScope) -> bool:
        """Whether a thread is still in code of this capped task, and not merely in a pool that it has made."""
        frames = sys._current_frames()
        found = [_is_of_agent(frames.get(ident)) for ident in self._ledger.threads_of(scope)]
        return any(found)

    # --- the stopped thread ------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        scope = self._scope
        if scope is not None and not scope.settled and scope.overdue:
            if self._pushes > _PATIENCE:
                self.insist(frame)
            if may_stop(frame):
                _end_trio(frame)
                loop = asyncio._get_running_loop()
                if loop is None or isinstance(loop, asyncio.BaseEventLoop) or asyncio.current_task(loop) is not None:
                    raise scope.stopped()
                loop.stop()  # a loop in C logs what is raised between two of its tasks, and goes on

    def overdue(self) -> TaskScope | None:
        """The task that this thread works for, if it is to be stopped."""
        if threading.get_ident() == self._ident:
            scope = self._scope
            return scope if scope is not None and scope.overdue and not scope.settled else None
        place = self._ledger.place()
        return place.scope if place is not None and place.scope.overdue else None

    def insist(self, frame: FrameType | None) -> None:
        """Stop this thread on the next line that it comes to in ``frame`` or in what has called it.

        What is called from there meanwhile is let be: it may be a callback of the collector, whose errors go nowhere.
        """
        if self.overdue() is None:
            return
        if self._tracing is None and threading.get_ident() == self._ident:
            self._tracing = (sys.gettrace(),)
        while frame is not None and frame is not self._opened_in:
            frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(_trace_no_other)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        scope = self.overdue()
        if scope is None:
            sys.settrace(None)
            return None
        # the standard library may be putting a lock in order: its callers are reached soon enough
        if event == "line" and not _is_stdlib(frame.f_code.co_filename) and may_stop(frame):
            raise scope.stopped()  # which ends the tracing as well
        return self._trace


_active: Stopper | None = None


def check_overdue() -> None:
    """An event loop that is not of asyncio has ended.

    Raises:
        TaskStopped: it was ended because its task is to be stopped.
    """
    scope = _active.overdue() if _active is not None else None
    if scope is not None:
        raise scope.stopped()


class _Insistent(TaskStopped):
    """A stop that comes again when the code that has caught it lets go of it and goes on."""

    def __del__(self) -> None:
        if _active is not None:
            _active.insist(sys._getframe().f_back)


def _make_insistent(scope: TaskScope) -> None:
    scope.overdue, scope.error = True, _Insistent


def _trace_no_other(frame: FrameType, event: str, arg: Any) -> None:
    """Tracing has to be on for the lines of the frames that are marked; no frame that begins now becomes one."""


def may_stop(frame: FrameType | None) -> bool:
    """Whether a thread is in code of the agent or of its libraries, or waits for it in an event loop.

    Amid our own, counts could be left half done, unless it only hands on to what it stands in front of; amid a
    finalizer, what is raised goes nowhere.
    """
    is_waiting, is_passed_on, top = True, False, frame
    while frame is not None:
        file = frame.f_code.co_filename
        if frame.f_code in _PASSED_ON:
            is_passed_on = True
        elif _is_ours(file):
            if not is_passed_on:
                return False
        elif file.endswith(_LOOP):
            return is_waiting and not _is_finalizing(top)  # the loop is the agent's, whoever has started it
        elif _TRIO in file:  # the same of trio's loop: torn between two of its steps it would not give the thread free
            return frame is top and frame.f_code.co_name == "get_events"
        elif not _is_stdlib(file):
            return not _is_finalizing(top) and not _is_untorn(frame)
        else:
            is_passed_on = False
        is_waiting = is_waiting and file == selectors.__file__
        frame = frame.f_back
    return False


def _end_trio(frame: FrameType | None) -> None:
    """Where a run of trio is about to be stopped amid its waiting: have it give the thread free. It would do so only
    once nobody holds what was raised, and until then no other run could begin."""
    caller = frame.f_back if frame is not None and _TRIO in frame.f_code.co_filename else None
    steps = caller.f_locals.get("gen") if caller is not None else None
    if isinstance(steps, GeneratorType):
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore", RuntimeWarning)  # it says that it was abandoned
            steps.close()


def _is_untorn(frame: FrameType | None) -> bool:
    """Whether it runs below what may not be stopped half done."""
    while frame is not None and frame.f_code is not untorn.__code__:
        frame = frame.f_back
    return frame is not None


def _is_finalizing(frame: FrameType | None) -> bool:
    """Whether Python called, amid other code, what it swallows the errors of: finalizers, hooks of the collector, and
    what tells of such errors."""
    hooks = [*gc.callbacks, sys.unraisablehook]
    codes = [getattr(getattr(hook, "func", hook), "__code__", None) for hook in hooks]  # some are functools.partial
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename == weakref.__file__ or code in codes:
            return True
        frame = frame.f_back
    return False


def _is_of_agent(frame: FrameType | None) -> bool:
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_ours(file) and not _is_stdlib(file):
            return True
        frame = frame.f_back
    return False


def _is_ours(file: str) -> bool:
    return file.startswith(_HERE) or file == contextlib.__file__  # it may be entering or leaving a block of ours


def _is_stdlib(file: str) -> bool:
    return file.startswith(("<", _STDLIB)) and not any(part in file for part in _SITE)
