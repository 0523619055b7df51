"""Groq: OpenAI's shape; a stream tells its usage in ``x_groq`` always, and once more at the end when asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import chat_shape as shape
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream"


def _usage(prompt: int, cached: int, completion: int, reasoning: int) -> dict[str, Any]:
    return {
        "queue_time": 0.01,
        "prompt_tokens": prompt,
        "prompt_time": 0.02,
        "completion_tokens": completion,
        "completion_time": 0.03,
        "total_tokens": prompt + completion,
        "total_time": 0.05,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


TURNS = Turns(
    text=Turn(_usage(838, 256, 64, 40), Tokens(838, 256, None, 64, 40)),
    asking=Turn(_usage(902, 512, 77, 31), Tokens(902, 512, None, 77, 31)),
    after=Turn(_usage(1010, 768, 21, 0), Tokens(1010, 768, None, 21, 0)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    return shape.asked(path, body, usage_by_option=False)


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return shape.error(401, "invalid_request_error", "invalid_api_key", "Invalid API Key")
    return shape.error(429, "requests", "rate_limit_exceeded", "Rate limit reached", retry_after_ms="1")


def plain(path: str, said: Said) -> Reply:
    return Reply.json(shape.plain(said, usage_breakdown=None, x_groq={"id": "req_1"}))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    for delta in shape.deltas(said, whole_calls=True):
        yield sse(shape.chunk(said, shape.choice(delta), x_groq={"id": "req_1"}))
    last = {"id": "req_1", "usage": said.usage}
    yield sse(shape.chunk(said, shape.choice({}, shape.finish(said)), x_groq=last))
    yield sse(shape.chunk(said, [], usage=said.usage))
    yield shape.DONE
