"""The router of Hugging Face: OpenAI's shape with three numbers of usage, in a stream only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import chat_shape as shape
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream"


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


TURNS = Turns(
    text=Turn(_usage(417, 33), Tokens(417, None, None, 33, None)),
    asking=Turn(_usage(509, 62), Tokens(509, None, None, 62, None)),
    after=Turn(_usage(618, 17), Tokens(618, None, None, 17, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    return shape.asked(path, body, usage_by_option=True)


def other(method: str, path: str) -> Reply | None:
    if path == "/api/agent-harnesses":
        return Reply.json([])
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return Reply.json({"error": "Invalid username or password."}, 401)
    return Reply.json({"error": {"message": "Rate limit reached", "http_status_code": 429}}, 429, retry_after="0")


def plain(path: str, said: Said) -> Reply:
    return Reply.json(shape.plain(said, system_fingerprint=""))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    for delta in shape.deltas(said, whole_calls=True):
        yield sse(shape.chunk(said, shape.choice(delta), system_fingerprint=""))
    yield sse(shape.chunk(said, shape.choice({}, shape.finish(said)), system_fingerprint=""))
    if said.usage is not None:
        yield sse(shape.chunk(said, [], usage=said.usage, system_fingerprint=""))
    yield shape.DONE
