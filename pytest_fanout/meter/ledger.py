"""Who owns a call: the running task, a bucket of it, a closed task, or nobody.

The plain flow of a task needs no mark: whatever runs on a thread that is older than the task belongs to the task that
is running (one runs at a time in a process). Marks are put only where that is not enough:

- threads and pool jobs that the task starts carry it in a thread-local (``Thread.start``, ``start_new_thread``,
  ``submit``, ``ThreadPool.apply_async``), so that what outlives the task is found as late and never booked on the next
  one;
- asyncio tasks and timers that the task starts carry it in a context variable, for the same reason. The outermost
  asyncio task carries none: test runners keep it, and its context, alive from one test to the next;
- a worker that lives longer than the task gets an owner with each item that it takes from a queue (handover.py). Where
  work comes to it by another way, it works for the running task, unless a task ended while it was at work: then what
  it calls is late, until it has been seen waiting between two tasks;
- ``aside()`` sets the context variable, which child tasks inherit.

The agent's own context variables are left as they are: only ours travels.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures.thread
import multiprocessing.pool
import os
import queue
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from threading import get_ident
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import handover
from pytest_fanout.meter.handover import hand_over

if TYPE_CHECKING:
    from pytest_fanout.meter.task import TaskScope

AGENT = "agent"
ANY = "*"  # as the method of an Outer: whatever is sent below it is part of it
TOOL = "CALL"  # the same of a recorded function of the agent: only what goes to a model is not
SETUP = "setup"
#: Where a thread stands that waits for work, for another thread or for the network of an event loop.
_WAITING = {
    module.__file__
    for module in (threading, queue, selectors, concurrent.futures.thread, multiprocessing.pool, handover)
}
_ASKING = frozenset({"is_set", "is_alive", "locked", "empty", "qsize", "full"})  # what a thread at work may ask there
#: And an asyncio task: for an item of a queue, or for an event or lock.
_ASYNC_WAITING = frozenset((asyncio.queues.__file__, asyncio.locks.__file__))
_HERE = os.path.dirname(__file__)
_MOMENT_S = 0.05


class Place(NamedTuple):
    """Where a call is booked: a task, a bucket of it ("agent", or a name of ``aside``), and the name of its site."""

    scope: TaskScope
    bucket: str
    site: str | None = None


_PLACE: ContextVar[Place | None] = ContextVar("pytest_fanout_place", default=None)


class Handed(NamedTuple):
    """The owner that came with the item that a worker has in hand. ``place`` None: nobody's item."""

    place: Place | None
    channel: object  # where it came from


_HANDED: ContextVar[Handed | None] = ContextVar("pytest_fanout_handed", default=None)
#: Set in the context of each asyncio task that another one started: not the main flow of a task, but a child or worker.
_INNER: ContextVar[bool] = ContextVar("pytest_fanout_inner", default=False)


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


@contextmanager
def unseen(host: str, port: int) -> Iterator[None]:
    """What is sent inside goes by no hook and sets off no alarm: it is a request of our own to that place."""
    token = INSIDE.set(Outer(ANY, "", b"", host, port, False, []))
    try:
        yield
    finally:
        INSIDE.reset(token)


class _Thread(threading.local):
    place: Place | None = None
    inside: Outer | None = None
    measured: bool = False  # started while something was measured


_THREAD = _Thread()


def outer_request() -> Outer | None:
    """The request that this code runs below, in its own context or in a pool job of it."""
    return INSIDE.get() or _THREAD.inside


_begin = _thread.start_new_thread  # as it is without us
_OURS: set[int] = set()  # threads that belong to no task


def own_thread(work: Callable[[], object]) -> None:
    """Run ``work`` on a thread of our own: it belongs to no task, and nothing stops it or waits for it."""

    def run() -> None:
        _OURS.add(get_ident())
        try:
            work()
        finally:
            _OURS.discard(get_ident())

    _begin(run, ())


class Ledger:
    """The one running task of this process, and the carrying of ownership into threads and asyncio tasks."""

    def __init__(self) -> None:
        self.running: TaskScope | None = None
        self.elders: set[int] = set()
        self.setup_depth = 0
        self._main = get_ident()  # the thread that opens the tasks
        self._served: set[int] = set()  # elder threads that have worked for the running task without being handed it
        self._served_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()  # and asyncio tasks
        self._left: dict[int, TaskScope] = {}  # elder threads that were at work when their task ended
        self._left_tasks: WeakKeyDictionary[asyncio.Task[Any], TaskScope] = WeakKeyDictionary()
        self._started: WeakSet[threading.Thread] = WeakSet()  # by tasks
        self._at_work: dict[int, TaskScope] = {}  # threads that tasks have started, pool threads: for which task
        self._undo: list[Callable[[], None]] = []

    # --- asking ------------------------------------------------------------------------------------------------

    def place(self) -> Place | None:
        """The owner of what runs here and now; its task may be closed already. None: nobody's."""
        place = _PLACE.get() or _THREAD.place
        if place is not None and not place.scope.closed:
            return place
        handed = _HANDED.get()
        if handed is not None:
            return handed.place
        if place is not None:
            return place
        ident = get_ident()
        return self._of_elder() if ident in self.elders and ident not in _OURS else None

    def _of_elder(self) -> Place | None:
        """The owner of code without a mark on a thread that is older than the running task."""
        ident, running = get_ident(), self.running if not self.setup_depth else None
        left: TaskScope | None = None
        if _INNER.get() and asyncio._get_running_loop() is not None and (task := asyncio.current_task()) is not None:
            left = self._left_tasks.get(task)
            self._served_tasks.add(task)
        elif ident != self._main:
            left = self._left.get(ident)
            self._served.add(ident)
        owner = left or running
        return owner.home if owner is not None else None

    def hand(self, owner: Place | None, channel: object) -> None:
        """This code has taken an item of ``owner`` (None: nobody's) out of ``channel``. The main flow of a task keeps
        its owner, and so does who holds an item of another channel that is still good: that one is its work.
        """
        if get_ident() == self._main and not _INNER.get():
            return
        now = _HANDED.get()
        if now is None or now.place is None or now.place.scope.closed or now.channel is channel:
            _HANDED.set(Handed(owner, channel))

    def open(self, scope: TaskScope) -> None:
        """Make ``scope`` the running task; every thread that lives now is older than it."""
        self._forget_resting()
        self.elders = set(sys._current_frames()) - _OURS
        self._main = get_ident()
        self._served.clear()
        self._served_tasks.clear()
        for task in [task for task in self._left_tasks if _is_waiting(task)]:
            del self._left_tasks[task]
        self.running = scope

    def _forget_resting(self) -> None:
        """Elders that have come to rest since their task ended are free; those on their way there get a moment."""
        until = time.monotonic() + _MOMENT_S
        while self._left:
            frames = sys._current_frames()
            self._left = {i: left for i, left in self._left.items() if i in frames and not is_at_rest(frames[i])}
            del frames  # they hold the variables of the agent
            if time.monotonic() > until:
                return
            time.sleep(0.001)

    def close(self, scope: TaskScope) -> None:
        """End the task. Elders that are at work for it go on working for it."""
        if self.running is not scope:
            return
        self.running = None
        frames = sys._current_frames()
        # threads that neither Python's classes nor its functions have started are nobody's, but they are of this task
        unmarked = frames.keys() - self.elders - _OURS - self._at_work.keys()
        for ident in self._served | unmarked:
            if ident in frames and not is_at_rest(frames[ident]):
                self._left.setdefault(ident, scope)
        for task in list(self._served_tasks):
            if not task.done() and not _is_waiting(task):
                self._left_tasks.setdefault(task, scope)

    @contextmanager
    def within(self, bucket: str = "", site: str | None = None) -> Iterator[None]:
        """Book what is called inside in another bucket, or at a named site; without a running task it does nothing."""
        place = self.place()
        if place is None:
            yield
            return
        token = _PLACE.set(Place(place.scope, bucket or place.bucket, site or place.site))
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
            if not any(frame is not None and not is_at_rest(frame) for frame in busy):
                return
            del frames, busy  # frames hold the variables of the agent
            time.sleep(0.01)

    def threads_of(self, scope: TaskScope) -> list[int]:
        """The threads that work for a task now: those that it has started, and those of pools that run a job of it."""
        return [ident for ident, owner in list(self._at_work.items()) if owner is scope]

    # --- carrying ----------------------------------------------------------------------------------------------

    def install(self) -> None:
        from multiprocessing.pool import ThreadPool

        self._patch(threading.Thread, "start", self._thread_start)
        self._patch(_thread, "start_new_thread", self._raw_start)
        self._patch(ThreadPoolExecutor, "submit", self._submit)
        self._patch(ThreadPool, "apply_async", self._apply_async)
        self._patch(asyncio.BaseEventLoop, "create_task", self._create_task)
        self._patch(asyncio.BaseEventLoop, "call_soon_threadsafe", self._call_soon_threadsafe)
        self._patch(asyncio.BaseEventLoop, "call_at", self._call_at)
        self._undo.append(hand_over(self, self._patch))

    def adopt_loop(self, loop: type) -> None:
        """Carry on an event loop that is not derived from asyncio's."""
        self._patch(loop, "create_task", self._create_task)
        self._patch(loop, "call_soon_threadsafe", self._call_soon_threadsafe)
        self._patch(loop, "call_later", self._call_at)
        self._patch(loop, "call_at", self._call_at)

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
                    ledger._at_work[get_ident()] = place.scope
                    _THREAD.place = place
                elif ledger.setup_depth:
                    ledger.elders.add(get_ident())  # a worker made by a fixture is older than the test's calls
                try:
                    run()
                except TaskStopped:
                    pass  # a stopped thread has nothing to tell: its task says why it was
                finally:
                    ledger._at_work.pop(get_ident(), None)

            if place is not None:
                ledger._started.add(thread)
            thread.run = carried  # type: ignore[method-assign]
            return start(thread)  # type: ignore[no-any-return]

        return started

    def _raw_start(self, start: Any) -> Any:
        def started(function: Any, args: Any, *kwargs: Any) -> int:
            if not callable(function):
                return start(function, args, *kwargs)  # type: ignore[no-any-return]
            carried = self.carry(function)

            def run(*args: Any, **kwargs: Any) -> None:
                _THREAD.measured = True
                with suppress(TaskStopped):
                    carried(*args, **kwargs)

            return start(run, args, *kwargs)  # type: ignore[no-any-return]

        return started

    def carry(self, function: Any) -> Any:
        """``function``, to be run later on some thread, with the owner of the code that asks for it."""
        place, inside = self.place(), outer_request()

        def carried(*args: Any, **kwargs: Any) -> Any:
            before, at_work, ident = (_THREAD.place, _THREAD.inside), self._at_work, get_ident()
            worked_for = at_work.get(ident)
            _THREAD.place, _THREAD.inside = place, inside
            if place is not None:
                at_work[ident] = place.scope
            try:
                return function(*args, **kwargs)
            finally:
                _THREAD.place, _THREAD.inside = before
                if worked_for is not None:
                    at_work[ident] = worked_for
                else:
                    at_work.pop(ident, None)

        return carried

    def _submit(self, submit: Any) -> Any:
        def submitted(executor: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if isinstance(executor, _interpreters()):
                return submit(executor, fn, *args, **kwargs)  # what goes to another interpreter is pickled
            return submit(executor, self.carry(fn), *args, **kwargs)

        return submitted

    def _apply_async(self, apply_async: Any) -> Any:
        def applied(pool: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            return apply_async(pool, self.carry(func), *args, **kwargs)

        return applied

    def _create_task(self, create_task: Any) -> Any:
        def created(loop: Any, coro: Any, **kwargs: Any) -> Any:
            if asyncio._get_running_loop() is None:
                return create_task(loop, coro, **kwargs)
            place = self.place()
            given: Context | None = kwargs.get("context")
            if given is not None:
                with suppress(RuntimeError):  # a context that is in use at this moment carries what it carries
                    given.run(_mark, place)
                return create_task(loop, coro, **kwargs)
            if _INNER.get() and _PLACE.get() is place:
                return create_task(loop, coro, **kwargs)
            context = copy_context()
            context.run(_mark, place)
            return context.run(create_task, loop, coro, **kwargs)

        return created

    def _call_soon_threadsafe(self, call: Any) -> Any:
        # A loop on a thread of its own is often made once and kept: its work belongs to who hands it over, not to
        # the task that happened to start the thread.
        def called(loop: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            return call(loop, callback, *args, context=self._context() if context is None else context)

        return called

    def _call_at(self, call_at: Any) -> Any:
        def called(loop: Any, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
            return call_at(loop, when, callback, *args, context=self._context() if context is None else context)

        return called

    def _context(self) -> Context | None:
        """A context for a callback that carries the owner of the code that asks for it; None: the current one does."""
        place = self.place()
        if place is None or _PLACE.get() is place:
            return None
        context = copy_context()
        context.run(_PLACE.set, place)
        return context


def _interpreters() -> Any:
    """The pools of subinterpreters, new in Python 3.14: they derive from those of threads."""
    return getattr(concurrent.futures, "InterpreterPoolExecutor", ())


def rests_in(module: ModuleType) -> None:
    """Threads that stand in this module wait for work."""
    if module.__file__ is not None:
        _WAITING.add(module.__file__)


def _mark(place: Place | None) -> None:
    """Mark the current context as that of a child: it has the owner of who started it, and no item in hand."""
    _INNER.set(True)
    if place is not None:
        _PLACE.set(place)
        _HANDED.set(None)


def is_at_rest(frame: FrameType) -> bool:
    """Whether a thread waits for work, for another thread or for the network of an event loop."""
    code = frame.f_code
    return code.co_filename in _WAITING and code.co_name not in _ASKING


def _is_waiting(task: asyncio.Task[Any]) -> bool:
    """Whether an asyncio task waits for work or for another one, and not for the answer of a request."""
    inner: Any = task.get_coro()
    file = ""
    while inner is not None:
        code = getattr(inner, "cr_code", None) or getattr(inner, "ag_code", None)
        file = code.co_filename if code is not None else file
        if os.path.dirname(file) == _HERE:
            return False
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return file in _ASYNC_WAITING
