"""OpenAI Responses. Usage stands once, in the last event; cached and reasoning tokens are parts of input and output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from sdk_matrix.dialects import openai_chat_dialect as openai_chat
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, names, sse

STREAM_TYPE = "text/event-stream; charset=utf-8"


def _usage(given: int, cached: int, written: int, made: int, reasoning: int) -> dict[str, Any]:
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": given + made,
    }


TURNS = Turns(
    text=Turn(_usage(512, 256, 0, 90, 64), Tokens(512, 256, 0, 90, 64)),
    asking=Turn(_usage(630, 384, 96, 151, 128), Tokens(630, 384, 96, 151, 128)),
    after=Turn(_usage(745, 640, 0, 22, 0), Tokens(745, 640, 0, 22, 0)),
)
refusal = openai_chat.refusal
other = openai_chat.other


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    if not path.endswith("/responses"):
        return None
    return Asked(body["model"], bool(body.get("stream")), names(body.get("tools"), "name"))


def _items(said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"type": "reasoning", "id": f"rs_{said.number}", "summary": []}]
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{said.number}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": [part]})
    for ask in said.asks:
        call = {"type": "function_call", "id": f"fc_{ask.id}", "call_id": ask.id, "name": ask.name}
        items.append({**call, "arguments": ask.text, "status": "completed"})
    return items


def response(said: Said, status: str = "completed") -> dict[str, Any]:
    done = status == "completed"
    return {
        "id": f"resp_{said.number}",
        "object": "response",
        "created_at": 1767225600,
        "status": status,
        "model": said.model,
        "output": _items(said) if done else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": said.usage if done else None,
    }


def plain(path: str, said: Said) -> Reply:
    return Reply.json(response(said))


def events(said: Said) -> Iterator[dict[str, Any]]:
    """The events of one response: of its stream, and of its turn on a WebSocket."""
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "sequence_number": next(numbers), **fields}

    yield event("response.created", response=response(said, "in_progress"))
    yield event("response.in_progress", response=response(said, "in_progress"))
    for index, item in enumerate(_items(said)):
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            yield event("response.output_item.added", output_index=index, item={**item, "content": []})
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **at, content_index=0, part=empty)
            for piece in said.pieces():
                more = {"delta": piece, "logprobs": [], "obfuscation": "zz"}
                yield event("response.output_text.delta", **at, content_index=0, **more)
            yield event("response.output_text.done", **at, content_index=0, text=said.text, logprobs=[])
            yield event("response.content_part.done", **at, content_index=0, part=item["content"][0])
        elif item["type"] == "function_call":
            yield event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
            yield event("response.function_call_arguments.delta", **at, delta=item["arguments"], obfuscation="z")
            named = {"name": item["name"], "arguments": item["arguments"]}
            yield event("response.function_call_arguments.done", **at, **named)
        else:
            yield event("response.output_item.added", output_index=index, item=item)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response(said))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    for event in events(said):
        yield sse(event, event["type"])
