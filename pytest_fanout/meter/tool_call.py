"""One call of a function of the agent whose results are recorded: a tool that speaks no HTTP."""

from __future__ import annotations

import json
from contextvars import Token
from types import TracebackType
from typing import Any

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import INSIDE, Outer
from pytest_fanout.meter.replies import playback_of
from pytest_fanout.meter.task import TaskScope


class ToolCall:
    """What a call became: an answer from the recording, a refusal, or a call that runs now and is written down.

    As a context manager it stands around the running function: what that sends, other than to a model, is part of it.
    """

    def __init__(self, flight: Flight, outer: Outer) -> None:
        self._flight = flight
        self._outer = outer
        self._token: Token[Outer | None] | None = None

    @property
    def scope(self) -> TaskScope:
        """The task that it belongs to."""
        assert self._flight.scope is not None  # begin_tool books no other
        return self._flight.scope

    @property
    def runs(self) -> bool:
        """Whether the function is to run."""
        return self._flight.replayed is None and self._flight.reply is None

    @property
    def was_cancelled(self) -> bool:
        """Whether the agent gave up waiting for the recorded call (a timeout of its own): it will do so again."""
        replayed = self._flight.replayed
        return replayed is not None and replayed.answer.error == "CancelledError"

    def answer(self) -> bytes:
        """What was recorded of a call that does not run.

        Raises:
            LookupError: the call is not on the recording; the text says so.
            TimeoutError: the recorded call was cut off: it had neither returned nor raised.
            TaskStopped: it was cut off by the cap that stopped the recorded task.
        """
        flight = self._flight
        playback = playback_of(flight)
        assert playback is not None
        if flight.replayed is None:
            raise LookupError(json.loads(playback.chunks[0])["error"]["message"])
        flight.status = playback.status
        error = playback.read_to_end()
        if error is not None:
            raise TimeoutError(error)
        return b"".join(playback.chunks)

    def __enter__(self) -> ToolCall:
        self._token = INSIDE.set(self._outer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._token is not None
        INSIDE.reset(self._token)
        if error is not None and not isinstance(error, Exception):
            self._flight.end("error", type(error).__name__)  # cancelled, or stopped: there is no result

    def came_to(self, result: Any) -> None:
        """The function has ended; ``result`` says in JSON how."""
        flight = self._flight
        flight.began(200, [(b"content-type", b"application/json")])
        flight.chunk(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
        flight.end("complete")

    def lost(self) -> None:
        """The function has ended, and how it did cannot be written down."""
        self._flight.end("error", "Unrecordable")
