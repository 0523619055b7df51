"""Recorded answers on a WebSocket: the far end of a connection that leads nowhere.

The library gets one end of a pair of sockets and goes its usual way on it. At the other end a small server of ours, on
a thread of its own, says for each message of the client what was recorded for it. It books nothing: that is done where
the client sends, before the message gets here.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections import deque
from typing import Any, NamedTuple

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import own_thread
from pytest_fanout.meter.replies import Playback, playback_of

_POLICY = 1008  # the close code for a message that may not be sent
_CONTROL = 8  # from this opcode on a frame is no message
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Answer(NamedTuple):
    """What to say to one message. ``playback``: of the call that it began; ``is_last``: then comes the end."""

    lines: tuple[bytes, ...]
    playback: Playback | None
    is_last: bool


class FarEnd:
    """The server of one connection."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._answers: deque[_Answer] = deque()  # to the messages that are on their way
        self._broken: Playback | None = None  # the answer after which the recorded connection was gone
        self._broken_at = 0.0
        own_thread(self._serve)

    def near(self) -> socket.socket:
        """The socket for the client. It is handed over: when the client drops it, the far end ends."""
        near = self._near
        del self._near
        return near

    def expect(self, flight: Flight | None, refusal: bytes | None) -> None:
        """The client is about to send a message that began this call, or may not be asked."""
        playback = playback_of(flight) if flight is not None else None
        lines = tuple(playback.chunks) if playback is not None else (refusal,) if refusal is not None else ()
        self._answers.append(_Answer(lines, playback, refusal is not None))

    def _serve(self) -> None:
        with self._far as far, selectors.DefaultSelector() as selector, contextlib.suppress(OSError, TaskStopped):
            far.setblocking(False)
            selector.register(far, _READ)
            self._talk(far, selector)

    def _talk(self, far: socket.socket, selector: selectors.BaseSelector) -> None:
        from websockets.server import ServerProtocol

        protocol: Any = ServerProtocol(max_size=None, logger=logging.Logger("pytest_fanout", logging.CRITICAL))
        unsent, is_over = bytearray(), False
        while unsent or not is_over:
            selector.modify(far, _READ | _WRITE if unsent else _READ)
            patience = None if self._broken is None else max(0.0, self._broken_at - time.monotonic())
            ready = selector.select(patience)
            if not ready and self._broken is not None:
                self._broken.read_to_end()
                return
            for _, kind in ready:
                if kind & _WRITE:
                    del unsent[: far.send(unsent)]
                if kind & _READ:
                    data = far.recv(1 << 16)
                    if not data:
                        return
                    protocol.receive_data(data)
                    for event in protocol.events_received():
                        self._hear(protocol, event)
            for part in protocol.data_to_send():
                unsent += part
                is_over = is_over or not part  # an empty part stands for the end

    def _hear(self, protocol: Any, event: Any) -> None:
        opcode = getattr(event, "opcode", None)
        if opcode is None:
            protocol.send_response(protocol.accept(event))
        elif opcode < _CONTROL and event.fin and self._answers:
            answer = self._answers.popleft()
            for line in answer.lines:
                protocol.send_text(line.rstrip(b"\n"))
            if answer.is_last:  # an agent that passes over the error event would wait for ever
                protocol.send_close(_POLICY, "pytest-fanout: refused in replay")
            if answer.playback is not None and not answer.playback.is_whole:
                patience = answer.playback.patience_s if answer.playback.is_prefix else 0.0
                self._broken, self._broken_at = answer.playback, time.monotonic() + patience
