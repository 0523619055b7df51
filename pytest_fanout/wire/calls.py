"""``read_call``: from the bytes of one request and its answer to an Attempt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pytest_fanout.records import Attempt, CallSite, Endpoint
from pytest_fanout.wire import (
    anthropic_messages,
    bedrock_converse,
    bedrock_invoke,
    cohere_chat,
    decisions,
    gemini_generate,
    gemini_interactions,
    input_only,
    mistral_conversations,
    ollama,
    openai_chat,
    openai_responses,
    vertex_predict,
    xai_chat,
)
from pytest_fanout.wire.bodies import NOT_JSON, Headers, decode, header_map, load_json
from pytest_fanout.wire.endpoints import classify, host_of, is_stream_url, model_in_url
from pytest_fanout.wire.estimate import estimate_tokens
from pytest_fanout.wire.eventstream import looks_like_frames
from pytest_fanout.wire.failures import error_type, request_id, retry_after_s
from pytest_fanout.wire.hosts import provider_label
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import obj, string
from pytest_fanout.wire.sse import is_too_long, looks_like_sse
from pytest_fanout.wire.text import first_words

NO_SYSTEM_PROMPT = "(no system prompt)"
_CODECS: dict[str, ModuleType] = {
    "openai.chat": openai_chat,
    "openai.completions": openai_chat,
    "openai.responses": openai_responses,
    "openai.decisions": decisions,
    "gemini.generate": gemini_generate,
    "gemini.interactions": gemini_interactions,
    "mistral.conversations": mistral_conversations,
    "ollama.chat": ollama,
    "ollama.generate": ollama,
    "anthropic.messages": anthropic_messages,
    "xai.chat": xai_chat,
    "xai.sample": xai_chat,
    "bedrock.converse": bedrock_converse,
    "bedrock.invoke": bedrock_invoke,
    "cohere.chat": cohere_chat,
    "vertex.predict": vertex_predict,
    "embeddings": input_only,
    "rerank": input_only,
    "moderation": input_only,
}
#: APIs whose calls over sockets and gRPC are kept as lines of JSON: there one line alone is a stream as well.
_IN_LINES = frozenset({"openai.responses", "gemini.generate", "vertex.predict", "xai.chat", "xai.sample"})


def is_readable(endpoint: Endpoint) -> bool:
    """Whether a codec reads the answers of this endpoint."""
    return endpoint.api in _CODECS


def read_call(
    method: str,
    url: str,
    request_body: bytes,
    status: int | None,
    response_headers: Headers,
    response_body: bytes,
) -> Attempt | None:
    """What one request to a model endpoint asked for and what it got. Never raises; holds no more than 64 MB of a body.

    Args:
        method, url: of the request; the query may be there.
        request_body: as sent; b"" gives the same reading without what only the request tells (``body_hash`` is "", and
            nothing is estimated).
        status: HTTP status, None where no response began.
        response_headers: mapping or pairs, names in any case.
        response_body: as received, content codings still on it or already undone.

    Returns:
        The Attempt without the meter's fields; None when the URL asks for no model call (counting, storage, batches,
        hosted agents). A generation endpoint that no codec reads has the note ``no_codec``. Of a channel (method "WS")
        one call is read: ``request_body`` is the message that asked for a response, ``response_body`` the messages
        that answered it, one a line; a channel without any is None.
    """
    endpoint = classify(method, url)
    if endpoint.kind == "channel" and method.upper() == "WS" and (request_body or response_body):
        endpoint = Endpoint(endpoint.api, "generate")
    if endpoint.api is None or endpoint.kind == "channel":
        return None
    body_hash = hashlib.sha256(request_body).hexdigest() if request_body else ""
    try:
        return _read(endpoint, url, request_body, body_hash, status, header_map(response_headers), response_body)
    except Exception:
        # No input known does this; if one does, the call still counts, and the note says that its numbers do not.
        return Attempt(
            api=endpoint.api,
            kind=endpoint.kind,
            status="incomplete",
            http_status=status,
            body_hash=body_hash,
            notes=("codec_error",),
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: str
    usage_source: str
    retry_after_s: float | None = None


def _read(
    endpoint: Endpoint,
    url: str,
    request_body: bytes,
    body_hash: str,
    status: int | None,
    headers: dict[str, str],
    response_body: bytes,
) -> Attempt:
    api = endpoint.api or ""
    codec = _CODECS.get(api)
    request = obj(load_json(request_body)) if request_body else {}
    asked: Asked = codec.read_request(request) if codec and request else Asked(model=string(request.get("model")))
    # by gRPC there is no URL to name it: the message does, as a path
    model = asked.model or model_in_url(url) or (string(request.get("model")) or "").rpartition("models/")[2] or None
    kind = endpoint.kind
    if api == "gemini.interactions" and request.get("agent") and not request.get("model"):
        kind = "agent_run"
    reading = Reading()
    decoded = decode(response_body, headers.get("content-encoding"))
    reading.notes.extend(decoded.notes)
    content_type = headers.get("content-type", "").lower()
    payload = Payload(decoded.data, is_streamed(api, decoded.data, content_type), content_type, headers)
    outcome = _read_outcome(codec, payload, reading, status, headers)
    if outcome.status == "incomplete" and is_too_long(decoded.data):
        reading.note("too_large")
    kind = reading.kind or kind
    usage_source = outcome.usage_source
    if request and not asked.has_server_state and _wants_estimate(kind, outcome, reading):
        guess = estimate_tokens(api, request, payload)
        if guess is not None:
            reading.input_tokens, reading.output_tokens = guess
            usage_source = "estimated"
    reading.check_totals()
    return Attempt(
        api=api,
        kind=kind,
        provider=provider_label(host_of(url)),
        model_requested=model,
        model_served=reading.model_served,
        stream=payload.streamed or is_stream_url(url) if asked.stream is None else asked.stream,
        choices=reading.choices,
        status=outcome.status,
        http_status=status,
        error_type=reading.error_type,
        retry_after_s=outcome.retry_after_s,
        finish=reading.finish,
        finish_raw=reading.finish_raw,
        input_tokens=reading.input_tokens,
        cached_input_tokens=reading.cached_input_tokens,
        cache_write_tokens=reading.cache_write_tokens,
        output_tokens=reading.output_tokens,
        reasoning_tokens=reading.reasoning_tokens,
        total_reported=reading.total_reported,
        usage_source=usage_source,
        tool_calls=tuple(reading.tool_calls),
        tool_results_in=asked.tool_results_in,
        server_tool_calls=reading.server_tool_calls,
        side_calls=tuple(reading.side_calls),
        inner_iterations=reading.inner_iterations,
        response_id=reading.response_id,
        request_id=request_id(headers),
        parent_id=asked.parent_id,
        body_hash=body_hash,
        site=_site(api, kind, model, asked),
        notes=tuple(dict.fromkeys((*asked.notes, *reading.notes))),
    )


def is_streamed(api: str, data: bytes, content_type: str) -> bool:
    """Whether an answer came in events, lines or frames: its bytes say so, or else its content type."""
    if looks_like_sse(data) or looks_like_frames(data):
        return True
    # A document under the name of a stream is a document.
    if "event-stream" in content_type or "eventstream" in content_type:
        return load_json(data) is NOT_JSON
    # Ollama streams lines too, and tells by its last one whether it did.
    if "ndjson" not in content_type or api.startswith("ollama."):
        return False
    document = load_json(data)
    return document is NOT_JSON or (api in _IN_LINES and "output" not in obj(document))


def _read_outcome(
    codec: ModuleType | None,
    payload: Payload,
    reading: Reading,
    status: int | None,
    headers: dict[str, str],
) -> _Outcome:
    """Let the codec read what a model answered, and say how the call ended."""
    if codec is None:
        reading.note("no_codec")
    if status is None:
        return _Outcome("error", "none")
    if not 200 <= status < 300:
        document = payload.document()
        reading.error_type = error_type(None if document is NOT_JSON else document, headers)
        if 300 <= status < 400:
            reading.error_type = "redirect"
        return _Outcome("error", "none", retry_after_s(headers, document))
    if not payload.data.strip() and "undecodable" not in reading.notes:
        reading.note("empty_response")
        return _Outcome("incomplete", "missing")
    if codec is None:
        return _Outcome("ok", "missing")
    codec.read_answer(payload, reading)
    if not reading.began:
        is_whole = payload.streamed or payload.document() is not NOT_JSON
        reading.note("empty_response" if is_whole else "unreadable_body")
        return _Outcome("incomplete", "missing")
    if reading.status == "error":
        return _Outcome("error", reading.usage_source, retry_after_s(headers))
    if reading.status == "incomplete":
        return _Outcome("incomplete", reading.usage_source)
    if not reading.ended:
        return _Outcome("incomplete", reading.usage_source)
    return _Outcome(reading.status or "ok", reading.usage_source)


def _wants_estimate(kind: str, outcome: _Outcome, reading: Reading) -> bool:
    """Whether a model generated something, and nothing at all is known of what it cost."""
    is_known = reading.total_reported is not None or outcome.usage_source != "missing"
    return kind in ("generate", "compact") and outcome.status in ("ok", "incomplete") and reading.began and not is_known


def _site(api: str, kind: str, model: str | None, asked: Asked) -> CallSite | None:
    """The call site of a request that was read, for the kinds that are fanout."""
    if kind not in ("generate", "compact") or asked.system is None:
        return None
    tools = tuple(sorted(set(asked.tools)))
    told: list[Any] = [api, model, asked.system, tools]
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    fingerprint = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
    label = first_words(asked.system, 60) or NO_SYSTEM_PROMPT
    return CallSite(fingerprint, api, model, tools, label)
