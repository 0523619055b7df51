"""What goes over the wire: endpoints, attempts, calls, and one HTTP request with what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a URL asks for. ``api`` is None where no API family is named (counting, polling, storage)."""

    api: str | None
    kind: str  # generate compact embed rerank moderate count batch agent_run channel other


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A client tool invocation asked for by a model answer; ``arguments`` is the text as received."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class SideCall:
    """Inference that a provider ran inside a call and did not include in its totals."""

    type: str
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where in the agent a call comes from: a fingerprint of system prompt, tool names, model and API."""

    fingerprint: str  # 16 hex digits
    api: str
    model: str | None
    tools: tuple[str, ...]
    label: str  # the first words of the system prompt, one line, at most 60 characters


@dataclass(frozen=True, slots=True)
class Attempt:
    """One physical request to a model endpoint, failed ones included (wire-level facts, then the meter's times).

    ``input_tokens`` holds **all** prompt tokens: cached and cache-written ones are subsets of it. ``output_tokens``
    holds all generated tokens: ``reasoning_tokens`` is a subset.
    """

    api: str
    kind: str = "generate"
    provider: str | None = None  # a label made from the host, never used to parse
    model_requested: str | None = None
    model_served: str | None = None
    stream: bool = False
    choices: int = 0
    status: str = "ok"  # ok error incomplete pending
    http_status: int | None = None
    error_type: str | None = None
    retry_after_s: float | None = None
    finish: str | None = None
    finish_raw: str | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_reported: int | None = None
    usage_source: str = "missing"  # final partial estimated missing none
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results_in: tuple[str, ...] = ()  # ids (or names) of the tool results that the request carries
    server_tool_calls: Mapping[str, int] = field(default_factory=dict)
    side_calls: tuple[SideCall, ...] = ()
    inner_iterations: int | None = None
    response_id: str | None = None
    request_id: str | None = None
    parent_id: str | None = None
    attempt: int | None = None  # the SDK's own retry counter, where it sends one
    body_hash: str = ""  # SHA-256 hex of the request body
    site: CallSite | None = None
    notes: tuple[str, ...] = ()
    # filled by the meter
    url: str = ""  # without query
    started_ms: int | None = None  # from the start of the task
    ended_ms: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input plus output, None where either is unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One logical call: its attempts in order. The last attempt is the one that the agent went on with."""

    attempts: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def reached_model(self) -> bool:
        """Whether generation began on any attempt; a call that was only ever rejected is no fanout."""
        return any(a.status in ("ok", "incomplete", "pending") or a.usage_source != "none" for a in self.attempts)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as the client handed it to its transport. Headers in order, names in lower case."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One response, as chunks in arrival order. ``chunk_ms`` counts from the start of the request.

    ``outcome``: complete, closed_early (the client stopped reading), unread, error (``error`` names the exception;
    ``status`` may be None when no response began), partial (only a prefix is known). ``thinned``: events that held
    nothing but text are left out of the chunks.
    """

    status: int | None
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[bytes, ...]
    chunk_ms: tuple[int, ...]
    ended_ms: int  # from the start of the request
    outcome: str = "complete"
    error: str | None = None
    thinned: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a recording answers to a request. ``started_ms``: when it was sent, from the start of the task.

    ``body``: the recorded one of the request. What is estimated from a text has to come from the same text each time,
    also where it was redacted, or is ignored as ``volatile``.
    """

    answer: HttpAnswer
    started_ms: int
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that a task sent and what it heard back: the unit that is counted, recorded and replayed.

    ``role``: model, tool (other HTTP of the agent), refused (never sent: a cap, a miss, a missing key).
    ``bucket``: "agent", or the name given to ``aside()``.
    """

    seq: int  # order of sending within the trial, from 0
    layer: str  # the hook: httpx, httpx2, urllib3, http.client, ...
    role: str
    bucket: str
    request: HttpRequest
    answer: HttpAnswer
    started_ms: int  # from the start of the task
    replayed: bool = False
    live_input: bool = False
    depth: int | None = None  # of the agent that made it, below the task's own (0); None: not to be seen
    site: str | None = None  # name given to ``call_site()``
    raw_body: str = ""  # of a loaded recording: SHA-256 hex of the body as sent (what is kept is its canonical form)


@dataclass(frozen=True, slots=True)
class Turn:
    """A step of a trial: the exchanges of one model call with their attempts, or another request, without any."""

    exchanges: tuple[Exchange, ...]
    attempts: tuple[Attempt, ...] = ()
