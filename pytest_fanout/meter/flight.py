"""One physical request between client and transport, from sending to the last byte read."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_fanout.meter.outflow import is_over
from pytest_fanout.meter.reader import peer_of
from pytest_fanout.records import Attempt, Exchange, HttpAnswer, HttpRequest
from pytest_fanout.wire.thinning import can_thin, thin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_fanout.meter.keys import SealedKeys
    from pytest_fanout.meter.outflow import Turn
    from pytest_fanout.meter.reader import Reader
    from pytest_fanout.meter.task import TaskScope
    from pytest_fanout.records import Replayed
    from pytest_fanout.wire.quick import Cost

RawHeaders = list[tuple[bytes, bytes]]
#: Bytes of a stream that are held before the events which hold nothing but text are left out, where that is allowed.
_HOLD = 1 << 16
#: The error of a call that was under way when its task was stopped: it was sent, and nobody heard its answer.
CUT = "TaskStopped"
#: How errors are called that say that the agent did not wait: cancelled, or its time for reading was over.
_GIVEN_UP = (
    "CancelledError",
    "Cancelled",
    "ReadTimeout",
    "ReadTimeoutError",
    "SocketTimeoutError",
    "ServerTimeoutError",
)
#: What a look at the cost needs of the headers: how to decode the body, and Bedrock's counts.
_TELLING = (b"content-type", b"content-encoding", b"x-amzn-bedrock-")


class Outgoing(NamedTuple):
    """How a request really goes out when its keys were dummies."""

    headers: RawHeaders
    url: str


class Flight:
    """What is known of one request while it flies. Hot path: it keeps references and times, and decodes at the end.

    ``reply`` is set when nothing may go out: the answer that the client gets instead. ``opened``: what to send in place
    of the agent's headers and URL, whose keys are dummies. ``depth``: how deep in agents that start agents it was made,
    where that can be seen.
    """

    __slots__ = (
        "body",
        "broke",
        "bucket",
        "chunk_ns",
        "chunks",
        "counted",
        "depth",
        "ended_ns",
        "error",
        "failed",
        "headers",
        "hold",
        "holds",
        "kept",
        "keys",
        "layer",
        "live_input",
        "method",
        "no_key",
        "opened",
        "outcome",
        "pending",
        "reader",
        "replayed",
        "reply",
        "response_headers",
        "role",
        "scope",
        "seq",
        "site",
        "size",
        "started_ns",
        "status",
        "t0",
        "thinned",
        "turn",
        "url",
        "waits",
    )

    def __init__(
        self,
        scope: TaskScope | None,
        bucket: str,
        layer: str,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes,
        reader: Reader,
        keys: SealedKeys,
    ) -> None:
        self.scope = scope
        self.bucket = bucket
        self.layer = layer
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.reader = reader
        self.keys = keys
        self.role = "tool"
        self.counted = False
        self.holds = False
        self.kept = True
        self.failed = False
        self.broke = False
        self.live_input = False
        self.depth: int | None = None
        self.site: str | None = None  # name of the call site, where the code gives one
        self.pending: str | None = None  # id of the background run that it has begun
        self.opened: Outgoing | None = None
        self.no_key: str | None = None  # the variable that is not set, where its dummy goes out all the same
        self.reply: HttpAnswer | None = None
        self.replayed: Replayed | None = None
        self.status: int | None = None
        self.response_headers: RawHeaders = []
        self.chunks: list[bytes] = []
        self.chunk_ns: list[int] = []
        self.hold: int | None = None  # how many bytes of an answer to hold whole; None: all of it
        self.size = 0
        self.thinned = False
        self.outcome: str | None = None
        self.error: str | None = None
        self.seq = scope.number() if scope is not None else 0
        self.turn: Turn | None = None  # its place among the calls of the whole run, until it has ended
        self.waits = False  # for that turn
        self.ended_ns = 0
        self.starts()

    # --- while it flies ----------------------------------------------------------------------------------------

    def starts(self) -> None:
        """It goes out now. ``t0`` is the start of its task, moved on by the time in which calls waited for a turn."""
        self.started_ns = time.perf_counter_ns()
        self.t0 = self.started_ns if self.scope is None else self.scope.t0 + self.scope.paused_ns

    def began(self, status: int, headers: RawHeaders) -> None:
        """The response's head has arrived."""
        self.status = status
        self.response_headers = headers
        if self.no_key is not None and status in (401, 403) and self.scope is not None:
            text = f"{self.method} {peer_of(self.url)[0]} was answered {status}, and {self.no_key} is not set"
            mend = f"export {self.no_key}=... before pytest starts"
            self.scope.add_problem("key-not-set", f"{text}: a dummy went out in its place\n  mend: {mend}", "notice")

    def chunk(self, data: bytes) -> None:
        self.chunk_ns.append(time.perf_counter_ns())
        self.chunks.append(data)
        if self.hold is not None:
            self.size += len(data)
            if self.size > self.hold:
                self._thin()

    def keep_little(self) -> None:
        """The answer is read and never stored: of a long stream, text need not be held."""
        self.hold = _HOLD

    def _thin(self) -> None:
        api = self.reader.api_of(self.method, self.url)
        if not can_thin(api) or any(name.lower() == b"content-encoding" for name, _ in self.response_headers):
            self.hold = None
            return
        kept, rest = thin(api, b"".join(self.chunks))
        self.chunks, self.chunk_ns = [kept, rest], [self.chunk_ns[0], self.chunk_ns[-1]]
        self.thinned = self.thinned or len(kept) + len(rest) < self.size
        self.size = len(kept) + len(rest)
        self.hold = max(_HOLD, 2 * self.size)  # so that the work stays in proportion to the stream

    def end(self, outcome: str, error: str | None = None) -> None:
        """The exchange is over; only the first end counts."""
        if self.outcome is not None:
            return
        self.ended_ns = time.perf_counter_ns()
        self.outcome = outcome
        self.error = CUT if error is not None and self._is_cut(error) else error
        if self.scope is not None:
            if self.holds:
                self.scope.release(self)
            elif self.scope.pending:
                self.scope.poll(self)
            if self.scope.waiting:
                self.scope.waits(0)
        if self.turn is not None:  # of no task, or of one that has ended
            tokens, _, reached = self.cost()
            is_over(self, tokens, reached=reached)

    def _is_cut(self, error: str) -> bool:
        # cancelled, or its client closed under it, while the agent came to its end; a server that was not there was not
        scope = self.scope
        return scope is not None and scope.capped is not None and self.status is None and "Connect" not in error

    @property
    def was_cut(self) -> bool:
        """Whether the end of its task came before any answer to it."""
        answer = self.replayed.answer if self.replayed is not None else self
        return self.role == "model" and answer.status is None and answer.error == CUT

    @property
    def was_given_up(self) -> bool:
        """Whether it was sent, and the agent did not wait for an answer."""
        answer = self.replayed.answer if self.replayed is not None else self
        if self.role != "model" or not self.counted:
            return False
        return is_given_up(answer.status, answer.outcome, answer.error)

    def refuse(self, why: str) -> None:
        """Nothing was sent."""
        self.role = "refused"
        self.ended_ns = time.perf_counter_ns()
        self.outcome, self.error = "error", why

    # --- afterwards ---------------------------------------------------------------------------------------------

    def cost(self) -> tuple[int, int, bool]:
        """(tokens, client tool calls asked for, whether a model was reached), as far as the answer says."""
        quick = self._quick()
        if quick is not None:
            if self.outcome == "closed_early":
                self.outcome = "complete"  # clients stop at the end mark, before the end of the stream
            self.failed = self.outcome == "error"
            self.broke = self.failed
            return quick.tokens, quick.tool_calls, True
        attempt = self._read()
        redirect = self.status is not None and 300 <= self.status < 400
        if attempt is None or redirect or self.role == "refused":
            self.failed = not redirect
            return 0, 0, False
        if attempt.status == "ok" and self.outcome == "closed_early":
            # Clients stop at the end mark, before the end of the stream: nothing is missing.
            self.outcome = "complete"
        reached = attempt.status != "error" or attempt.usage_source != "none"
        self.failed = attempt.status == "error" or self.outcome == "error"
        reached = reached or self.was_given_up
        self.broke = self.failed and reached
        self.pending = attempt.response_id if attempt.status == "pending" else None
        tokens = (attempt.input_tokens or 0) + (attempt.output_tokens or 0)
        return tokens, len(attempt.tool_calls), reached

    def told(self) -> Attempt | None:
        """What it was told of a background run that it asked for again; None when it did not, or the run goes on."""
        status, headers, body = self._answer()
        told = self.reader.read_poll(self.method, self.url, status, headers, body)
        return told if told is not None and told.status != "pending" else None

    def _quick(self) -> Cost | None:
        """The cost of a plain answer, without all that only the final record needs."""
        if self.role != "model":
            return None
        if self.replayed is not None:
            answer = self.replayed.answer
            if answer.status != 200 or any(name == "content-encoding" for name, _ in answer.headers):
                return None
            return self.reader.quick_cost(self.method, self.url, answer.body)
        if self.status != 200:
            return None
        for name, _ in self.response_headers:
            if len(name) == 16 and name.lower() == b"content-encoding":
                return None
        chunks = self.chunks
        return self.reader.quick_cost(self.method, self.url, chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def _read(self) -> Attempt | None:
        return self.reader.read_parts(self.method, self.url, b"", *self._answer())

    def _answer(self) -> tuple[int | None, tuple[tuple[str, str], ...], bytes]:
        """Status, headers and body as they came, or as they are replayed."""
        if self.replayed is not None:
            answer = self.replayed.answer
            return answer.status, answer.headers, answer.body
        head = [pair for pair in self.response_headers if pair[0].lower().startswith(_TELLING)]
        return self.status, text_headers(head), b"".join(self.chunks)

    def request(self) -> HttpRequest:
        """The request as the agent made it, before any key was swapped in."""
        return HttpRequest(self.method, self.url, text_headers(self.headers), self.body)

    def exchange(self) -> Exchange:
        """The finished record of it. In replay answer and times are the recorded ones."""
        request = self.keys.scrub(self.request())
        started_ms = max(0, (self.started_ns - self.t0) // 1_000_000)
        if self.replayed is not None:
            answer, started_ms = self.replayed.answer, self.replayed.started_ms
            if self.replayed.body is not None:
                request = replace(request, body=self.replayed.body)
        elif self.reply is not None:
            answer = self.reply
        else:
            answer = self.keys.scrub_answer(self._heard())
        return Exchange(
            seq=self.seq,
            layer=self.layer,
            role=self.role,
            bucket=self.bucket,
            request=request,
            answer=answer,
            started_ms=started_ms,
            replayed=self.replayed is not None,
            live_input=self.live_input,
            depth=self.depth,
            site=self.site,
        )

    def _heard(self) -> HttpAnswer:
        outcome, ended = self.outcome, self.ended_ns
        if outcome is None:
            outcome, ended = "unread", self.chunk_ns[-1] if self.chunk_ns else time.perf_counter_ns()
        # Start and end are floored on one clock, so that a call which follows another never seems to overlap it.
        t0 = self.t0
        begin = (self.started_ns - t0) // 1_000_000
        return HttpAnswer(
            status=self.status,
            headers=text_headers(self.response_headers),
            chunks=tuple(self.chunks),
            chunk_ms=tuple((at - t0) // 1_000_000 - begin for at in self.chunk_ns),
            ended_ms=max(0, (ended - t0) // 1_000_000 - begin),
            outcome=outcome,
            error=self.error,
            thinned=self.thinned,
        )


def is_given_up(status: int | None, outcome: str | None, error: str | None) -> bool:
    """Whether a request was sent, and its client stopped waiting before any answer: the model may well have run."""
    return status is None and (outcome == "closed_early" or (error or "").endswith(_GIVEN_UP))


def text_headers(raw: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """Header pairs as text, names in lower case."""
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)
