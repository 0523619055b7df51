"""Recorded answers to gRPC calls: a core without a channel, on which the library's own call objects go as they do.

The library asks the core for events (blocking) or for messages (asyncio), and gets the recorded ones in order, then the
recorded status. A message is handed out when the agent asks for it. What the library makes of them, results and errors,
deserialised messages, metadata and cancellation, is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import own_thread
from pytest_fanout.meter.replies import Playback
from pytest_fanout.meter.rpc import DETAILS, GIVEN_UP, TYPE, message_bytes, metadata_of

_HANDLER = 7  # place of the event handler among the arguments of a managed call
_OURS = frozenset({b"content-type", TYPE, DETAILS})


class _Status(NamedTuple):
    """How a call ended, in gRPC's words."""

    code: str
    details: str


class _Script:
    """What one recorded call gives: metadata, messages, then its status."""

    def __init__(self, flight: Flight) -> None:
        assert flight.replayed is not None
        answer = flight.replayed.answer
        self.playback = Playback(answer, flight)
        lines = [line for line in answer.body.split(b"\n") if line]
        self._status = _Status("OK", "")
        if answer.status is None:
            self._status = _Status(answer.error or "", "pytest-fanout: replayed from the recording")
        elif answer.status != 200 or answer.outcome == "error":
            failure = json.loads(lines.pop())["error"] if lines else {}
            self._status = _Status(failure.get("status") or answer.error or "", failure.get("message") or "")
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        name = next((value.decode() for name, value in headers if name == TYPE), "")
        self.messages = deque(message_bytes(line, name) for line in lines)
        self.initial = metadata_of([pair for pair in headers if pair[0] not in _OURS])
        self.trailing = metadata_of([pair for pair in headers if pair[0] == DETAILS])

    @property
    def is_over(self) -> bool:
        """Whether all messages are read, and the status came by itself then."""
        return not self.messages and self.playback.status is not None and not self.is_given_up

    @property
    def is_given_up(self) -> bool:
        """Whether the agent cancelled this call while it waited, and should have the time to do so again."""
        return self._status.code == GIVEN_UP or (self._status.code == "OK" and not self.playback.is_whole)

    def end(self) -> _Status:
        """The status, when all messages are read.

        Raises:
            TaskStopped: the recorded task was stopped during this call, and so is this one.
        """
        error = self.playback.read_to_end()
        if self._status.code == GIVEN_UP:
            return _Status("CANCELLED", self._status.details)
        if error is not None and self._status.code == "OK":
            return _Status("UNAVAILABLE", "pytest-fanout: the recording ends here")
        return self._status


def _number(code: str) -> int:
    import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

    number: int = getattr(grpc.StatusCode, code, grpc.StatusCode.UNKNOWN).value[0]
    return number


# --- the blocking stack --------------------------------------------------------------------------------------------


def on_blocking_core(multi: Any, flight: Flight) -> Any:
    """A twin of the library's callable whose next call is answered from the recording."""
    twin = copy.copy(multi)
    twin._channel = twin._managed_call = _BlockingCore(_Script(flight), is_unary="UnaryUnary" in type(multi).__name__)
    return twin


class _Done:
    """One thing that has happened to a call."""

    def __init__(self, kind: int, script: _Script, message: bytes | None = None, status: _Status | None = None) -> None:
        self._kind, self._script, self._message, self._status = kind, script, message, status

    def type(self) -> int:
        return self._kind

    def initial_metadata(self) -> Any:
        return self._script.initial

    def trailing_metadata(self) -> Any:
        return self._script.trailing

    def message(self) -> bytes | None:
        return self._message

    def code(self) -> int:
        return _number(self._status.code) if self._status is not None else 0

    def details(self) -> str:
        return self._status.details if self._status is not None else ""

    error_string = details


class _Event(NamedTuple):
    batch_operations: tuple[_Done, ...]


class _BlockingCore:
    """Stands for the channel, and for the call on it. It gives its events when it is asked, or to the library's
    handler, on the thread that asks for a message."""

    def __init__(self, script: _Script, *, is_unary: bool) -> None:
        from grpc._cython import cygrpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

        self._kinds = cygrpc.OperationType
        self._script = script
        self._is_unary = is_unary
        self._events: deque[_Event] = deque()
        self._cancelled = False

    def segregated_call(self, *_: Any) -> _BlockingCore:
        if not self._is_unary:
            self._events.append(_Event((self._began(),)))
        return self

    def __call__(self, *arguments: Any) -> _BlockingCore:
        handler = arguments[_HANDLER]
        if not self._is_unary:
            handler(_Event((self._began(),)))
        elif self._script.is_given_up or self._script.playback.awaits_stop():
            own_thread(lambda: self._end_later(handler))
        else:
            handler(self._whole())
        return self

    def next_event(self) -> _Event:
        return self._whole() if self._is_unary else self._events.popleft()

    def operate(self, operations: Iterable[Any], handler: Callable[[_Event], object] | None) -> bool:
        """The agent asks for the next message of a stream."""
        messages = self._script.messages
        read = _Done(self._kinds.receive_message, self._script, messages.popleft() if messages else None)
        give = handler or self._events.append
        give(_Event((read,)))
        # The status of a call may be asked for without reading on, where a handler hears it.
        if read.message() is None or (handler is not None and self._script.is_over):
            give(_Event((self._ended(),)))
        return True

    def cancel(self, code: int, details: str) -> None:
        self._cancelled = True
        self._script.playback.close()

    def _began(self) -> _Done:
        return _Done(self._kinds.receive_initial_metadata, self._script)

    def _ended(self) -> _Done:
        return _Done(self._kinds.receive_status_on_client, self._script, status=self._script.end())

    def _whole(self) -> _Event:
        messages = self._script.messages
        read = _Done(self._kinds.receive_message, self._script, messages.popleft() if messages else None)
        return _Event((self._began(), read, self._ended()))

    def _end_later(self, handler: Callable[[_Event], object]) -> None:
        """A future that the agent cancelled, or that was under way when its task was stopped."""
        last = time.monotonic() + self._script.playback.patience_s
        while not self._cancelled and (self._script.playback.awaits_stop() or time.monotonic() < last):
            time.sleep(0.001)
        if not self._cancelled:
            with contextlib.suppress(TaskStopped):
                handler(self._whole())


# --- the asyncio stack ---------------------------------------------------------------------------------------------


def asyncio_core(flight: Flight) -> Any:
    """What to give the library's call object as its channel, so that it is answered from the recording."""
    return _Channel(_AsyncCore(_Script(flight)))


def refused_core(code: str, details: str) -> Any:
    """The same for a call that may not go out: the library's own call object then fails with a status."""
    core = _AsyncCore(None)
    core.over(_Status(code, details))
    return _Channel(core)


class _Channel:
    def __init__(self, core: _AsyncCore) -> None:
        self._core = core

    def call(self, *_: Any, **__: Any) -> _AsyncCore:
        return self._core


class _AsyncCore:
    """Stands for the core of one call. ``script`` None: it has failed before it was sent."""

    def __init__(self, script: _Script | None) -> None:
        self._script = script
        self._initial_metadata: tuple[Any, ...] = script.initial if script is not None else ()
        self._status: Any = None
        self._done = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._is_cancelled = False

    def over(self, status: _Status) -> None:
        from grpc._cython import cygrpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

        trailing = self._script.trailing if self._script is not None else ()
        self._status = cygrpc.AioRpcStatus(_number(status.code), status.details, trailing, status.details)
        self._done.set()
        for callback in self._callbacks:
            callback()

    async def _next(self) -> bytes | None:
        """The next message; None: the call is over."""
        script = self._script
        # Let the siblings of this call run, as a network would: parallel calls stay parallel in replay.
        await asyncio.sleep(0)
        if script is None or self.done():
            return None
        if script.messages:
            message = script.messages.popleft()
            if script.is_over:
                self.over(script.end())
            return message
        while script.playback.awaits_stop():
            await asyncio.sleep(0.001)
        if script.is_given_up:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._done.wait(), script.playback.patience_s)
        if not self.done():
            self.over(script.end())
        return None

    async def unary_unary(self, *_: Any) -> bytes | None:
        return await self._next()

    async def initiate_unary_stream(self, *_: Any) -> None:
        return None

    async def receive_serialized_message(self) -> Any:
        from grpc._cython import cygrpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

        message = await self._next()
        return cygrpc.EOF if message is None else message

    async def stream_unary(self, metadata: Any, observer: Callable[[], None], context: Any) -> None:
        observer()

    async def initiate_stream_stream(self, metadata: Any, observer: Callable[[], None], context: Any) -> None:
        observer()

    async def status(self) -> Any:
        await self._done.wait()
        return self._status

    async def initial_metadata(self) -> tuple[Any, ...]:
        return self._initial_metadata

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        if self.done():
            callback()
        else:
            self._callbacks.append(callback)

    def done(self) -> bool:
        return self._status is not None

    def is_ok(self) -> bool:
        return self.done() and self._status.code() == 0

    def cancel(self, details: str) -> bool:
        if self.done():
            return False
        self._is_cancelled = True
        if self._script is not None:
            self._script.playback.close()
        self.over(_Status("CANCELLED", details))
        return True

    def cancelled(self) -> bool:
        return self.done() and self._status.code() == _number("CANCELLED")

    def is_locally_cancelled(self) -> bool:
        return self._is_cancelled

    def time_remaining(self) -> None:
        return None
