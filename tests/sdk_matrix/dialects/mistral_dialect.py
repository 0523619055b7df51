"""Mistral: OpenAI's shape; tool calls come whole in one chunk, usage on the chunk that also has the last choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import chat_shape as shape
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream"


def _usage(prompt: int, cached: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


TURNS = Turns(
    text=Turn(_usage(1013, 1008, 55), Tokens(1013, 1008, None, 55, None)),
    asking=Turn(_usage(1101, 96, 40), Tokens(1101, 96, None, 40, None)),
    after=Turn(_usage(1199, 1104, 23), Tokens(1199, 1104, None, 23, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    return shape.asked(path, body, usage_by_option=False)


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return Reply.json({"detail": "Unauthorized"}, 401)
    document = {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "param": None}
    return Reply.json({**document, "code": "1300"}, 429)


def plain(path: str, said: Said) -> Reply:
    return Reply.json(shape.plain(said))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    parts = list(shape.deltas(said, whole_calls=True))
    for delta in parts[:-1]:
        yield sse(shape.chunk(said, shape.choice(delta)))
    yield sse(shape.chunk(said, shape.choice(parts[-1], shape.finish(said)), usage=said.usage))
    yield shape.DONE
