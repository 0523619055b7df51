"""Who owns a call: the running task, a bucket of it, a closed task, or nobody.

The plain flow of a task needs no mark: whatever runs on a thread that is older than the task belongs to the task that
is running (one runs at a time in a process). Marks are put only where that is not enough:

- threads and pool jobs that the task starts carry it in a thread-local (``Thread.start``, ``submit``,
  ``ThreadPool.apply_async``), so that what outlives the task is found as late and never booked on the next one;
- asyncio tasks that the task starts carry it in a context variable, for the same reason. The outermost asyncio task
  carries none: test runners keep it, and its context, alive from one test to the next;
- ``aside()`` sets the context variable, which child tasks inherit.

The agent's own context variables are left as they are: only ours travels.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import multiprocessing.pool
import queue
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

if TYPE_CHECKING:
    from pytest_fanout.meter.task import TaskScope

AGENT = "agent"
ANY = "*"  # as the method of an Outer: whatever is sent below it is part of it
SETUP = "setup"
#: Where a thread stands that waits for work, for another thread or for the network of an event loop.
_WAITING = frozenset(
    module.__file__ for module in (threading, queue, selectors, concurrent.futures.thread, multiprocessing.pool)
)


class Place(NamedTuple):
    """Where a call is booked: a task and a bucket of it ("agent", or a name given to ``aside``)."""

    scope: TaskScope
    bucket: str


_PLACE: ContextVar[Place | None] = ContextVar("pytest_fanout_place", default=None)


class Outer(NamedTuple):
    """A request that a hook of ours is handing on: layers below must neither count it again nor be taken for a bypass.

    Below a transport there may be a whole application (ASGI, WSGI): what *it* sends is another request.
    """

    method: str
    path: str
    body: bytes
    host: str
    port: int
    counted: bool
    sent: list[Sent]  # what the client's transport has really put on the network for it


class Sent:
    """One sending below a request; ``status`` None: no answer yet, 0: none came."""

    __slots__ = ("status",)

    def __init__(self) -> None:
        self.status: int | None = None


INSIDE: ContextVar[Outer | None] = ContextVar("pytest_fanout_inside", default=None)


class _Thread(threading.local):
    place: Place | None = None
    inside: Outer | None = None
    measured: bool = False  # started while something was measured


_THREAD = _Thread()


def outer_request() -> Outer | None:
    """The request that this code runs below, in its own context or in a pool job of it."""
    return INSIDE.get() or _THREAD.inside


class Ledger:
    """The one running task of this process, and the carrying of ownership into threads and asyncio tasks."""

    def __init__(self) -> None:
        self.running: TaskScope | None = None
        self.elders: set[int] = set()
        self.outsiders: set[int] = set()  # threads of our own, whose calls never belong to the running task
        self.setup_depth = 0
        self._started: WeakSet[threading.Thread] = WeakSet()  # by tasks
        self._undo: list[Callable[[], None]] = []

    # --- asking ------------------------------------------------------------------------------------------------

    def place(self) -> Place | None:
        """The owner of what runs here and now; its task may be closed already. None: nobody's."""
        place = _PLACE.get() or _THREAD.place
        if place is not None:
            return place
        running = self.running
        if running is not None and not self.setup_depth and get_ident() in self.elders:
            return running.home
        return None

    def open(self, scope: TaskScope) -> None:
        """Make ``scope`` the running task; every thread that lives now is older than it."""
        self.elders = set(sys._current_frames()) - self.outsiders
        self.running = scope

    def close(self, scope: TaskScope) -> None:
        if self.running is scope:
            self.running = None

    @contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Book what is called inside in the bucket ``name``; without a running task it does nothing."""
        place = self.place()
        if place is None:
            yield
            return
        token = _PLACE.set(Place(place.scope, name))
        try:
            yield
        finally:
            _PLACE.reset(token)

    @contextmanager
    def setup(self) -> Iterator[None]:
        """Book what is called inside, and is not owned by a task, as set-up."""
        self.setup_depth += 1
        try:
            yield
        finally:
            self.setup_depth -= 1

    def is_of_the_run(self) -> bool:
        """Whether this code was started by a task, or by anything else while something was measured."""
        return self.place() is not None or _THREAD.measured

    def wait_for_threads(self, most_s: float) -> None:
        """Give threads that tasks have left behind the time to finish; those that only wait for work are left alone."""
        until = time.monotonic() + most_s
        while time.monotonic() < until:
            frames = sys._current_frames()
            busy = [frames.get(t.ident or 0) for t in list(self._started) if t.is_alive()]
            if not any(frame is not None and frame.f_code.co_filename not in _WAITING for frame in busy):
                return
            del frames, busy  # frames hold the variables of the agent
            time.sleep(0.01)

    # --- carrying ----------------------------------------------------------------------------------------------

    def install(self) -> None:
        from multiprocessing.pool import ThreadPool

        self._patch(threading.Thread, "start", self._thread_start)
        self._patch(ThreadPoolExecutor, "submit", self._submit)
        self._patch(ThreadPool, "apply_async", self._apply_async)
        self._patch(asyncio.BaseEventLoop, "create_task", self._create_task)
        self._patch(asyncio.BaseEventLoop, "call_soon_threadsafe", self._call_soon_threadsafe)

    def adopt_loop(self, loop: type) -> None:
        """Carry on an event loop that is not derived from asyncio's."""
        self._patch(loop, "create_task", self._create_task)
        self._patch(loop, "call_soon_threadsafe", self._call_soon_threadsafe)

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        own = name in vars(owner)
        before = getattr(owner, name)
        ours = make(before)
        setattr(owner, name, ours)

        def undo() -> None:
            if vars(owner).get(name) is ours:
                if own:
                    setattr(owner, name, before)
                else:
                    delattr(owner, name)

        self._undo.append(undo)

    def _thread_start(self, start: Any) -> Any:
        ledger = self

        def started(thread: threading.Thread) -> None:
            place, run, own = ledger.place(), thread.run, vars(thread).get("run")

            def carried() -> None:
                # The thread's own ``run`` is put back first: ours is only for this hand-over.
                if own is None:
                    vars(thread).pop("run", None)
                else:
                    thread.run = own  # type: ignore[method-assign]
                _THREAD.measured = True
                if place is not None:
                    ledger.elders.discard(get_ident())  # the number of a dead thread may have come back
                    _THREAD.place = place
                elif ledger.setup_depth:
                    ledger.elders.add(get_ident())  # a worker made by a fixture is older than the test's calls
                run()

            if place is not None:
                ledger._started.add(thread)
            thread.run = carried  # type: ignore[method-assign]
            return start(thread)  # type: ignore[no-any-return]

        return started

    def carry(self, function: Any) -> Any:
        """``function``, to be run later on some thread, with the owner of the code that asks for it."""
        place, inside = self.place(), outer_request()

        def carried(*args: Any, **kwargs: Any) -> Any:
            before = _THREAD.place, _THREAD.inside
            _THREAD.place, _THREAD.inside = place, inside
            try:
                return function(*args, **kwargs)
            finally:
                _THREAD.place, _THREAD.inside = before

        return carried

    def _submit(self, submit: Any) -> Any:
        def submitted(executor: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return submit(executor, self.carry(fn), *args, **kwargs)

        return submitted

    def _apply_async(self, apply_async: Any) -> Any:
        def applied(pool: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            return apply_async(pool, self.carry(func), *args, **kwargs)

        return applied

    def _create_task(self, create_task: Any) -> Any:
        def created(loop: Any, coro: Any, **kwargs: Any) -> Any:
            if _PLACE.get() is None and asyncio._get_running_loop() is not None:
                place = self.place()
                if place is not None:
                    context = copy_context()
                    context.run(_PLACE.set, place)
                    return context.run(create_task, loop, coro, **kwargs)
            return create_task(loop, coro, **kwargs)

        return created

    def _call_soon_threadsafe(self, call: Any) -> Any:
        # A loop on a thread of its own is often made once and kept: its work belongs to who hands it over, not to
        # the task that happened to start the thread.
        def called(loop: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            place = self.place()
            if place is not None and context is None:
                context = copy_context()
                context.run(_PLACE.set, place)
            return call(loop, callback, *args, context=context)

        return called
