"""Together: OpenAI's shape with three numbers of usage; a stream tells them on its last choice without being asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import chat_shape as shape
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream"


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


TURNS = Turns(
    text=Turn(_usage(611, 47), Tokens(611, None, None, 47, None)),
    asking=Turn(_usage(702, 58), Tokens(702, None, None, 58, None)),
    after=Turn(_usage(805, 19), Tokens(805, None, None, 19, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    return shape.asked(path, body, usage_by_option=False)


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return shape.error(401, "invalid_request_error", "invalid_api_key", "Invalid API key provided.")
    return shape.error(429, "rate_limit", "rate_limit", "You have been rate limited.", retry_after_ms="1")


def plain(path: str, said: Said) -> Reply:
    return Reply.json(shape.plain(said, prompt=[]))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    for delta in shape.deltas(said, whole_calls=True):
        yield sse(shape.chunk(said, shape.choice(delta), usage=None))
    yield sse(shape.chunk(said, shape.choice({}, shape.finish(said)), usage=said.usage))
    yield shape.DONE
