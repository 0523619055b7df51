"""Anthropic Messages. ``input_tokens`` leaves out what was read from and written to the cache: all input is the sum of
the three. Thinking is inside ``output_tokens``. A stream repeats usage; the last value of each field holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, names, sse

STREAM_TYPE = "text/event-stream; charset=utf-8"


def _usage(fresh: int, read: int, written: int, made: int, thinking: int) -> dict[str, Any]:
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"thinking_tokens": thinking},
        "service_tier": "standard",
    }


TURNS = Turns(
    text=Turn(_usage(21, 2048, 188, 393, 250), Tokens(21 + 2048 + 188, 2048, 188, 393, 250)),
    asking=Turn(_usage(33, 2048, 0, 104, 20), Tokens(33 + 2048 + 0, 2048, 0, 104, 20)),
    after=Turn(_usage(7, 2236, 141, 38, 0), Tokens(7 + 2236 + 141, 2236, 141, 38, 0)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return headers.get("x-api-key") or bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    if not path.endswith("/v1/messages"):
        return None
    return Asked(body["model"], bool(body.get("stream")), names(body.get("tools"), "name"))


def other(method: str, path: str) -> Reply | None:
    if path.endswith("/v1/messages/count_tokens"):
        return Reply.json({"input_tokens": 12})
    return None


def refusal(status: int) -> Reply:
    kind, text = {401: ("authentication_error", "invalid x-api-key")}.get(status, ("rate_limit_error", "Slow down."))
    document = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_0"}
    return Reply.json(document, status, **({} if status == 401 else {"retry_after_ms": "1"}))


def message(said: Said) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    content += [{"type": "tool_use", "id": ask.id, "name": ask.name, "input": dict(ask.arguments)} for ask in said.asks]
    return {
        "id": f"msg_{said.number}",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": content,
        "stop_reason": "tool_use" if said.asks else "end_turn",
        "stop_sequence": None,
        "usage": said.usage,
    }


def plain(path: str, said: Said) -> Reply:
    return Reply.json(message(said), request_id=f"req_{said.number}")


def events(said: Said) -> Iterator[dict[str, Any]]:
    """The events of a stream, here and wherever Anthropic's models are served."""
    whole, usage = message(said), dict(said.usage or {})
    first = {**usage, "output_tokens": 1, "output_tokens_details": None}
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": first}}
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {**block, **({"text": ""} if is_text else {"input": {}})}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        if is_text:
            yield {"type": "ping"}
        deltas = [{"type": "text_delta", "text": piece} for piece in said.pieces()]
        if not is_text:
            text = said.asks[index - len(whole["content"])].text
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", text[:4], text[4:])]
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    # Usage once more, whole: to be taken in place of the first, not added to it.
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {**usage, "cache_creation": None}}
    yield {"type": "message_stop"}


def streamed(path: str, said: Said) -> Iterator[bytes]:
    for event in events(said):
        yield sse(event, event["type"])
