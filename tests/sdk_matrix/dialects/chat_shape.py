"""The shape that the hosts of ``/chat/completions`` share. each has a file for its own ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects.turns import Asked, Reply, Said, names

DONE = b"data: [DONE]\n\n"


def asked(path: str, body: Any, *, usage_by_option: bool) -> Asked | None:
    """``usage_by_option``: a stream carries usage only with ``stream_options.include_usage``."""
    if not path.endswith("/chat/completions"):
        return None
    streamed = bool(body.get("stream"))
    option = bool((body.get("stream_options") or {}).get("include_usage"))
    return Asked(
        model=body["model"],
        streamed=streamed,
        offered=names(body.get("tools"), "function", "name"),
        wants_usage=not streamed or option or not usage_by_option,
    )


def tool_calls(said: Said) -> list[dict[str, Any]]:
    return [
        {"id": ask.id, "type": "function", "function": {"name": ask.name, "arguments": ask.text}} for ask in said.asks
    ]


def plain(said: Said, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.asks:
        message["tool_calls"] = tool_calls(said)
    return {
        "id": f"chatcmpl-{said.number}",
        "object": "chat.completion",
        "created": 1767225600,
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(said)}],
        "usage": said.usage,
        **more,
    }


def finish(said: Said) -> str:
    return "tool_calls" if said.asks else "stop"


def chunk(said: Said, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{said.number}", "object": "chat.completion.chunk", "created": 1767225600}
    return {**head, "model": said.model, "choices": choices, **more}


def choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}]


def deltas(said: Said, *, whole_calls: bool) -> Iterator[dict[str, Any]]:
    """What is said, piece by piece. ``whole_calls``: all tool calls in one piece; else their arguments in fragments."""
    yield {"role": "assistant", "content": ""}
    for piece in said.pieces():
        yield {"content": piece}
    if not said.asks:
        return
    if whole_calls:
        yield {"content": "", "tool_calls": [{"index": i, **call} for i, call in enumerate(tool_calls(said))]}
        return
    for index, call in enumerate(tool_calls(said)):
        text = call["function"]["arguments"]
        begun = {**call, "function": {**call["function"], "arguments": ""}}
        yield {"tool_calls": [{"index": index, **begun}]}
        for part in (text[:4], text[4:]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def error(status: int, kind: str, code: str | None, message: str, **headers: str) -> Reply:
    document = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Reply.json(document, status, **headers)
