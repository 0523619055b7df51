"""What a client gets instead of the network: a recorded answer, or one of ours. Library-independent."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pytest_fanout.meter.flight import CUT, Flight, RawHeaders
from pytest_fanout.meter.task import FINISH_S
from pytest_fanout.records import HttpAnswer

_RETRIED = frozenset({408, 409, 429})
_LONGEST_PAUSE_S = 0.25  # no stop is raised amid code of ours
_PREFIXES = frozenset({"closed_early", "partial", "unread"})


class Playback:
    """An answer as the client will see it. ``status`` None: no response began."""

    def __init__(self, answer: HttpAnswer, flight: Flight) -> None:
        self._answer = answer
        self._flight = flight
        self.status = answer.status
        self.chunks: Sequence[bytes] = answer.chunks
        self.headers: RawHeaders = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in _short_waits(answer)]
        self.error = answer.error
        self.ended_ms = answer.ended_ms
        self.is_whole = answer.outcome == "complete"
        self.is_prefix = answer.outcome in _PREFIXES
        self._is_cut = answer.status is None and answer.error == CUT
        self._begun = time.monotonic()
        self._patience = self._begun + FINISH_S
        scope = flight.scope
        self._is_timed = flight.replayed is not None and scope is not None and scope.at_recorded_speed

    def pause_s(self, number: int) -> float:
        """Seconds until that chunk came when it was recorded, or the end for a number beyond; 0 in a fast replay."""
        if not self._is_timed:
            return 0.0
        times = self._answer.chunk_ms
        at_ms = times[number] if number < len(times) else self.ended_ms
        return max(0.0, self._begun + at_ms / 1000 - time.monotonic())

    def wait(self, number: int) -> None:
        """The same, waited for, unless the task is stopped meanwhile."""
        if not self._is_timed:
            return
        scope = self._flight.scope
        while (pause_s := self.pause_s(number)) > 0 and scope is not None and scope.capped is None:
            time.sleep(min(pause_s, _LONGEST_PAUSE_S))

    def wait_for_end(self) -> None:
        self.wait(len(self.chunks))

    def read_to_end(self) -> str | None:
        """The client has read all that there is: the name of the error to raise in it, or None."""
        answer, flight = self._answer, self._flight
        if self._is_cut:
            return self._cut()
        if answer.outcome == "error":
            flight.end("error", answer.error)
            return answer.error or "ReadError"
        if self.is_prefix:
            if flight.scope is not None and flight.scope.capped is None and self._is_out_of_time():
                flight.scope.stop("wall_seconds")
                raise flight.scope.stopped()
            return self._prefix("reads on where the recorded run stopped reading")
        flight.end("complete")
        return None

    @property
    def patience_s(self) -> float:
        """How long an agent that gave up waiting here has to do so again."""
        return 0.0 if self._is_out_of_time() else self.ended_ms / 1000 + 1

    def awaits_stop(self) -> bool:
        """Whether the client should wait: the recorded task was stopped during this call, and this one not yet."""
        scope = self._flight.scope
        if not self._is_cut or scope is None or scope.capped is not None or self._is_out_of_time():
            return False
        return time.monotonic() < self._patience

    def _is_out_of_time(self) -> bool:
        """Whether it was the wall clock that stopped the recorded task, and the cap is still the same."""
        replayed, scope = self._flight.replayed, self._flight.scope
        limit = scope.caps.wall_seconds if scope is not None else None
        return replayed is not None and limit is not None and replayed.started_ms + self.ended_ms >= limit * 1000

    def _cut(self) -> str:
        while self.awaits_stop():
            time.sleep(0.001)
        scope = self._flight.scope
        if scope is not None and scope.capped is None and self._is_out_of_time():
            scope.stop("wall_seconds")
        if scope is None or scope.capped is None:
            return self._prefix("goes on where the recorded run was stopped by a cap")
        raise scope.stopped()

    def _prefix(self, what: str) -> str:
        flight = self._flight
        flight.end("error", "ReadError")
        if flight.scope is not None:
            flight.scope.add_problem(
                "recording-prefix",
                f"task {flight.scope.task!r} {what}"
                f" (request {flight.seq + 1}): only the first part of that answer is known\n"
                "  mend: record the task anew",
                "stale",
            )
        return "ReadError"

    def close(self) -> None:
        self._flight.end("closed_early")


def playback_of(flight: Flight) -> Playback | None:
    """How to answer this flight without the network; None when it goes out."""
    answer = flight.replayed.answer if flight.replayed is not None else flight.reply
    return None if answer is None else Playback(answer, flight)


def _short_waits(answer: HttpAnswer) -> list[tuple[str, str]]:
    """The headers, with waits before a retry cut to a millisecond: the recorded one has been waited for once.

    A ``retry-after`` stays, as 0: that it is there is why some clients (urllib3) retry at all.
    """
    headers = list(answer.headers)
    status = answer.status or 0
    asked = [("retry-after", "0")] if any(name == "retry-after" for name, _ in headers) else []
    if status not in _RETRIED and status < 500 and not asked:
        return headers
    headers = [(name, value) for name, value in headers if not name.startswith("retry-after")]
    return [*headers, *asked, ("retry-after-ms", "1")]
