"""Anthropic Messages, as served by Anthropic, Vertex, Foundry and Bedrock's Anthropic endpoint."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, merge, obj, objects, string, texts
from pytest_fanout.wire.usage import read_anthropic_usage

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request."""
    blocks = [block for message in objects(body.get("messages")) for block in objects(message.get("content"))]
    tools = [string(tool.get("name")) or string(tool.get("type")) for tool in objects(body.get("tools"))]
    tools += [f"mcp:{name}" for server in objects(body.get("mcp_servers")) if (name := string(server.get("name")))]
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")),
        stream=stream if isinstance(stream, bool) else None,
        system=texts(body.get("system")),
        tools=tuple(name for name in tools if name),
        tool_results_in=tuple(string(b.get("tool_use_id")) or "" for b in blocks if b.get("type") == "tool_result"),
    )


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if payload.streamed:
        _read_stream(payload, reading)
        return
    document = payload.document()
    message = obj(document)
    if message.get("type") == "error" or (message.get("error") and "content" not in message):
        reading.fail(error_type(document, {}))
        reading.ended = True
    elif "content" in message or message.get("usage"):
        reading.ended = True
        _take_message(message, [(block, None) for block in objects(message.get("content"))], reading)


def _read_stream(payload: Payload, reading: Reading) -> None:
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    pieces: dict[int, list[str]] = {}
    has_delta = False
    for name, _, data in payload.events():
        event = obj(data)
        # An event whose data was cut off says nothing, whatever its name; only a failure needs no data.
        kind = string(event.get("type")) or (name if event or name == "error" else "")
        at = index(event.get("index"))
        reading.began = reading.began or kind.startswith(("message_", "content_block_"))
        if kind == "error":
            reading.fail(error_type(event, {}))
        elif kind == "message_start":
            message = dict(obj(event.get("message")))
            merge(usage, message.get("usage"))
            blocks = dict(enumerate(objects(message.get("content"))))
        elif kind == "content_block_start" and at is not None:
            blocks[at] = obj(event.get("content_block"))
        elif kind == "content_block_delta" and at is not None:
            piece = obj(event.get("delta")).get("partial_json")
            if isinstance(piece, str):
                pieces.setdefault(at, []).append(arguments(piece))
        elif kind == "message_delta":
            has_delta = True
            merge(message, event.get("delta"))
            merge(usage, event.get("usage"))
        elif kind == "message_stop":
            reading.ended = True
            break
    if not reading.began:
        return
    message["usage"] = usage
    _take_message(message, [(block, "".join(pieces.get(at, ()))) for at, block in sorted(blocks.items())], reading)
    reading.usage_is_bound = not has_delta


def _take_message(message: dict[str, Any], blocks: list[tuple[dict[str, Any], str | None]], reading: Reading) -> None:
    reading.began = True
    reading.choices = 1
    reading.model_served = string(message.get("model"))
    reading.response_id = string(message.get("id"))
    for block, streamed in blocks:
        kind, name = block.get("type"), string(block.get("name")) or ""
        if kind == "tool_use":
            # A streamed call without arguments sends no piece: its input is the object that it opened with.
            whole = load_json(streamed) if streamed else block.get("input", {})
            text = arguments(streamed if whole is NOT_JSON else whole)
            reading.tool_calls.append(ToolCall(string(block.get("id")), name, text))
        elif kind in ("server_tool_use", "mcp_tool_use"):
            reading.count_server_tool(name or str(kind))
    read_anthropic_usage(reading, obj(message.get("usage")))
    reading.finish_raw = string(message.get("stop_reason"))
    if reading.status != "error":
        reading.finish = _FINISH.get(reading.finish_raw or "")
