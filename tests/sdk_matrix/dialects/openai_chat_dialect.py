"""OpenAI Chat Completions. Cached, cache-written and reasoning tokens are parts of prompt and completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import chat_shape as shape
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream; charset=utf-8"


def _usage(prompt: int, cached: int, written: int, completion: int, reasoning: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }


TURNS = Turns(
    text=Turn(_usage(1200, 1024, 64, 340, 300), Tokens(1200, 1024, 64, 340, 300)),
    asking=Turn(_usage(1311, 1152, 0, 97, 41), Tokens(1311, 1152, 0, 97, 41)),
    after=Turn(_usage(1450, 1280, 128, 29, 0), Tokens(1450, 1280, 128, 29, 0)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    return shape.asked(path, body, usage_by_option=True)


def other(method: str, path: str) -> Reply | None:
    if path.endswith("/models"):
        return Reply.json({"object": "list", "data": [{"id": "gpt-x", "object": "model"}]})
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return shape.error(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided.")
    return shape.error(429, "requests", "rate_limit_exceeded", "Rate limit reached.", retry_after_ms="1")


def plain(path: str, said: Said) -> Reply:
    return Reply.json(shape.plain(said))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    usage = {} if said.usage is None else {"usage": None}
    for delta in shape.deltas(said, whole_calls=False):
        yield sse(shape.chunk(said, shape.choice(delta), **usage))
    yield sse(shape.chunk(said, shape.choice({}, shape.finish(said)), **usage))
    if said.usage is not None:
        yield sse(shape.chunk(said, [], usage=said.usage))
    yield shape.DONE
