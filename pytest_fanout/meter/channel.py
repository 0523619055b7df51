"""Model calls on one WebSocket of the Responses API: which message belongs to which call. Library-independent.

Each ``response.create`` that the client sends is a call, and so is each response that the server begins by itself, as
it does after ``response.steer``. A call ends with its own terminal event; the socket stays. Calls with a ``stream_id``
run side by side, each in its lane; those of one lane run one after the other. Whoever uses a channel sees to it that
its methods never run at the same time.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.ledger import Place
from pytest_fanout.wire.bodies import load_json

if TYPE_CHECKING:
    from pytest_fanout.meter.flight import Flight, RawHeaders
    from pytest_fanout.meter.seam import Seam

METHOD = "WS"
_HEAD = [(b"content-type", b"application/x-ndjson")]
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})
#: What an event must contain to be worth reading: the others are text on its way.
_MARKS = re.compile(rb'stream_id|response\.(?:created|completed|incomplete|failed|cancelled)|"error"')


@dataclass(slots=True)
class _Turn:
    """One call that is not over yet."""

    flight: Flight
    parent: str | None  # the response that it continues
    begun: bool = False
    id: str | None = None  # of its response, once it has begun


class Channel:
    """The calls of one socket.

    Args:
        url, headers: of the handshake, before any key was swapped in.
        owner: who owns what is asked now, where the handshake says so; otherwise the owner of the code that asks.
        depth: of the agent, where the handshake says so.
    """

    def __init__(
        self,
        seam: Seam,
        layer: str,
        url: str,
        headers: RawHeaders,
        *,
        owner: Callable[[], Place | None] = lambda: None,
        depth: int | None = None,
    ) -> None:
        self._seam = seam
        self._layer = layer
        self._url = url
        self._headers = headers
        self._owner = owner
        self._depth = depth
        self._lanes: dict[str | None, list[_Turn]] = {}
        self._asked: dict[str | None, bytes] = {}  # the last create of each lane
        self._steered: dict[str, bytes] = {}  # response -> the last steer of it
        self._place: Place | None = None  # who asked last
        self._alone: Flight | None = None  # the one that runs, while no other does
        self.asked: Flight | None = None  # the call that the last message began

    def asks(self, message: bytes) -> str | None:
        """The client is about to send a message.

        Returns:
            None: send it. A text: do not, and tell the agent this.

        Raises:
            TaskStopped: a cap of its task is reached.
        """
        self.asked = None
        if b"response." not in message:
            return None
        event = _event(message)
        parent = _text(event.get("previous_response_id"))
        if event.get("type") == "response.steer":
            place = self._owner() or self._seam.ledger.place()
            if self._seam.mode == "replay" or (place is not None and place.scope.source is not None):
                return self._refuse_steer(place)
            self._steered[parent or ""] = message
        if event.get("type") != "response.create":
            return None
        lane = _text(event.get("stream_id"))
        self._asked[lane] = message
        flight = self._begin(message, None)
        if flight is None:
            return None
        if flight.reply is not None:
            return flight.reply.body.decode("utf-8", "replace")
        self._lanes.setdefault(lane, []).append(_Turn(flight, parent))
        self._alone, self.asked = None, flight
        return None

    def hears(self, message: bytes) -> None:
        """The server has sent a message."""
        if _MARKS.search(message) is None:
            if self._alone is not None:
                self._alone.chunk(_line(message))
            else:
                self._add(None, "", None, message, {})
            return
        event = _event(message)
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        lane, kind = _text(event.get("stream_id")), _text(event.get("type")) or ""
        if kind == "response.created":
            self._created(lane, response)
        self._add(lane, kind, _text(response.get("id")), message, event)
        running = [turn for turns in self._lanes.values() for turn in turns]
        self._alone = running[0].flight if len(running) == 1 and running[0].begun else None

    def ends(self, outcome: str, error: str | None) -> None:
        """The socket is gone: what runs on it will get no more."""
        lanes, self._lanes, self._alone = self._lanes, {}, None
        for turn in (turn for turns in lanes.values() for turn in turns):
            turn.flight.end(outcome, error)

    def _refuse_steer(self, place: Place | None) -> str:
        """What the server begins by itself then, and when, no recording tells."""
        text = f"response.steer on {self._url} was refused: what follows on one is counted, but not replayed yet"
        (self._seam if place is None else place.scope).add_problem(
            "stack-not-replayed", f"{text}\n  mend: measure this agent with --fanout-mode=live"
        )
        return json.dumps({"error": {"type": "pytest_fanout", "code": "stack-not-replayed", "message": text}})

    def _created(self, lane: str | None, response: dict[str, Any]) -> None:
        """A response begins: the next that was asked for in its lane, or one of the server's own."""
        parent = _text(response.get("previous_response_id"))
        turns = self._turns(lane)
        turn = next((turn for turn in turns if not turn.begun), None)
        if turn is None or (parent in self._steered and turn.parent != parent):
            try:
                flight = self._begin(self._continued(lane, parent), self._place)
            except TaskStopped:
                return  # the task is stopped; it hears so when it calls next
            if flight is None or flight.reply is not None:
                return
            turn = _Turn(flight, parent)
            turns.insert(0, turn)
        turn.begun, turn.id = True, _text(response.get("id"))
        turn.flight.began(200, _HEAD)

    def _continued(self, lane: str | None, parent: str | None) -> bytes:
        """What the server answers with a response that nobody asked for by itself: it keeps the settings of the one
        before, and takes what the steer put in."""
        asked = self._asked.get(lane, b'{"type":"response.create"}')
        steer = self._steered.pop(parent or "", None)
        if steer is None:
            return asked
        told = {"previous_response_id": parent, "input": _event(steer).get("input")}
        return json.dumps({**_event(asked), **told}).encode()

    def _add(self, lane: str | None, kind: str, response_id: str | None, message: bytes, event: dict[str, Any]) -> None:
        turns = self._turns(lane)
        if not turns:
            return
        turn = next((turn for turn in turns if turn.id is not None and turn.id == response_id), None)
        if turn is None:
            turn = next((turn for turn in turns if turn.begun), turns[0])
        if not turn.begun:
            if kind != "error":
                return  # a word about the connection, or about a steer
            status = event.get("status")
            turn.flight.began(status if isinstance(status, int) and status >= 400 else 400, _HEAD)
        turn.flight.chunk(_line(message))
        if kind in _TERMINAL:
            turns.remove(turn)
            turn.flight.end("complete")

    def _turns(self, lane: str | None) -> list[_Turn]:
        """The open calls of a lane. A server that does not say a lane back means the one that is in use."""
        turns = self._lanes.setdefault(lane, [])
        busy = [some for some in self._lanes.values() if some]
        return busy[0] if not turns and lane is None and len(busy) == 1 else turns

    def _begin(self, message: bytes, place: Place | None) -> Flight | None:
        if self._seam.outer(METHOD, self._url, message) is None:
            return None
        place = place or self._owner()
        flight = self._seam.begin(
            self._layer, METHOD, self._url, self._headers, message, place=place, depth=self._depth
        )
        if flight is not None and flight.scope is not None:
            self._place = Place(flight.scope, flight.bucket, flight.site)
        return flight


def error_event(refusal: str) -> bytes:
    """What a client is told on its socket of a message that may not be sent."""
    with contextlib.suppress(ValueError):
        refusal = json.dumps({"type": "error", "status": 400, **json.loads(refusal)})
    return refusal.encode()


def _line(message: bytes) -> bytes:
    """A message on one line: between the parts of JSON a line end is a blank."""
    return (message.replace(b"\n", b" ") if b"\n" in message else message) + b"\n"


def _event(message: bytes) -> dict[str, Any]:
    event = load_json(message)
    return event if isinstance(event, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
