"""Cohere v2. ``usage.tokens`` counts, as floats; ``billed_units`` is another thing. Cached tokens are input too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, names, sse

STREAM_TYPE = "text/event-stream"


def _usage(given: float, cached: float, made: float) -> dict[str, Any]:
    return {
        "billed_units": {"input_tokens": 37.0, "output_tokens": 22.0},
        "tokens": {"input_tokens": given, "output_tokens": made},
        "cached_tokens": cached,
    }


TURNS = Turns(
    text=Turn(_usage(913.0, 896.0, 62.0), Tokens(913, 896, None, 62, None)),
    asking=Turn(_usage(1001.0, 912.0, 71.0), Tokens(1001, 912, None, 71, None)),
    after=Turn(_usage(1117.0, 992.0, 24.0), Tokens(1117, 992, None, 24, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    if not path.endswith("/v2/chat"):
        return None
    return Asked(body["model"], bool(body.get("stream")), names(body.get("tools"), "function", "name"))


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    if status == 401:
        return Reply.json({"id": "e1", "message": "invalid api token"}, 401)
    return Reply.json({"id": "e1", "message": "You are using a Trial key."}, 429, retry_after_ms="1")


def _calls(said: Said) -> list[dict[str, Any]]:
    return [
        {"id": ask.id, "type": "function", "function": {"name": ask.name, "arguments": ask.text}} for ask in said.asks
    ]


def plain(path: str, said: Said) -> Reply:
    message: dict[str, Any] = {"role": "assistant"}
    if said.asks:
        message |= {"tool_plan": "I will look.", "tool_calls": _calls(said)}
    else:
        message["content"] = [{"type": "text", "text": said.text}]
    finish = "TOOL_CALL" if said.asks else "COMPLETE"
    return Reply.json({"id": f"c{said.number}", "finish_reason": finish, "message": message, "usage": said.usage})


def streamed(path: str, said: Said) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, **fields}, kind)

    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield event("message-start", id=f"c{said.number}", delta={"message": empty})
    if said.text:
        begun = {"message": {"content": {"type": "text", "text": ""}}}
        yield event("content-start", index=0, delta=begun)
        for piece in said.pieces():
            yield event("content-delta", index=0, delta={"message": {"content": {"text": piece}}})
        yield event("content-end", index=0)
    if said.asks:
        yield event("tool-plan-delta", delta={"message": {"tool_plan": "I will look."}})
    for index, call in enumerate(_calls(said)):
        text = call["function"]["arguments"]
        begun_call = {**call, "function": {**call["function"], "arguments": ""}}
        yield event("tool-call-start", index=index, delta={"message": {"tool_calls": begun_call}})
        for part in (text[:4], text[4:]):
            delta = {"message": {"tool_calls": {"function": {"arguments": part}}}}
            yield event("tool-call-delta", index=index, delta=delta)
        yield event("tool-call-end", index=index)
    finish = "TOOL_CALL" if said.asks else "COMPLETE"
    yield event("message-end", delta={"finish_reason": finish, "usage": said.usage})
    yield b"data: [DONE]\n\n"
