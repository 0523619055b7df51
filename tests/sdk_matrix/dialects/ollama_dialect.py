"""Ollama's own API: NDJSON, counts on the last line only, arguments as an object, no ids. The prompt count holds what
was cached. A key is asked for only by its hosted service; this server plays that one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, names

STREAM_TYPE = "application/x-ndjson"


def _usage(prompt: int, cached: int, made: int) -> dict[str, Any]:
    return {
        "total_duration": 9,
        "load_duration": 1,
        "prompt_eval_count": prompt,
        "prompt_eval_cached_count": cached,
        "prompt_eval_duration": 2,
        "eval_count": made,
        "eval_duration": 6,
    }


TURNS = Turns(
    text=Turn(_usage(171, 64, 22), Tokens(171, 64, None, 22, None)),
    asking=Turn(_usage(254, 128, 41), Tokens(254, 128, None, 41, None)),
    after=Turn(_usage(333, 192, 15), Tokens(333, 192, None, 15, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    if not path.endswith("/api/chat"):
        return None
    # Without a word about it, this API streams.
    return Asked(body["model"], body.get("stream", True), names(body.get("tools"), "function", "name"))


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    return Reply.json({"error": {401: "unauthorized", 429: "too many requests"}[status]}, status)


def _line(said: Said, message: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    head = {"model": said.model, "created_at": "2026-01-01T00:00:00Z"}
    return {**head, "message": {"role": "assistant", "content": "", **message}, **more}


def _message(said: Said) -> dict[str, Any]:
    calls = [{"function": {"name": ask.name, "arguments": dict(ask.arguments)}} for ask in said.asks]
    return {"tool_calls": calls} if calls else {"content": said.text}


def plain(path: str, said: Said) -> Reply:
    return Reply.json(_line(said, _message(said), done=True, done_reason="stop", **(said.usage or {})))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    messages = [{"content": piece} for piece in said.pieces()] or [_message(said)]
    for message in messages:
        yield json.dumps(_line(said, message, done=False)).encode() + b"\n"
    yield json.dumps(_line(said, {}, done=True, done_reason="stop", **(said.usage or {}))).encode() + b"\n"
