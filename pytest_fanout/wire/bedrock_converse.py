"""Bedrock Converse and ConverseStream, and the models behind Invoke that speak the same shapes (Amazon Nova)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.eventstream import Frame
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, merge, obj, objects, string, texts

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}
#: Events that only a model that began to answer sends.
EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)


def read_request(body: dict[str, Any]) -> Asked:
    """Prompt, tools and tool results of a request; its model stands in the URL."""
    messages = objects(body.get("messages"))
    blocks = [block for message in messages for block in objects(message.get("content"))]
    results = [obj(block.get("toolResult")) for block in blocks if "toolResult" in block]
    return Asked(
        system=texts(body.get("system")) or leading_system(messages),
        tools=tuple(name for tool in tools_of(body) if (name := tool_name(tool))),
        # the result of a tool that ran at the provider names its type, and stands in the conversation as well
        tool_results_in=tuple(string(r.get("toolUseId")) or "" for r in results if not r.get("type")),
    )


def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a request: its own, and those that go to the model past Converse."""
    further = obj(body.get("additionalModelRequestFields")).get("tools")
    return [*objects(obj(body.get("toolConfig")).get("tools")), *objects(further)]


def tool_name(tool: dict[str, Any]) -> str | None:
    """The name of a tool; None for what is none, such as a cache mark between tools."""
    named = obj(tool.get("toolSpec")) or obj(tool.get("systemTool")) or tool
    return string(named.get("name"))


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if not payload.streamed:
        document = obj(payload.document())
        if isinstance(document.get("output"), dict) or document.get("usage"):
            read_document(document, reading)
        return
    events: list[tuple[str, dict[str, Any]]] = []
    failure: Frame | None = None
    for frame in payload.frames():
        if frame.kind == "event":
            events.append((frame.name, obj(load_json(frame.payload))))
        else:
            failure = frame
            break
    read_events(events, reading)
    if failure is not None:
        end_at(failure, reading)


def end_at(frame: Frame, reading: Reading) -> None:
    """The stream ends with a frame that is no event: the provider's failure, or bytes that cannot be read."""
    if frame.kind != "broken":
        reading.fail(string(frame.name) or "error")
        return
    reading.ended = False
    if frame.name != "cut":
        reading.note(frame.name)


def read_document(document: dict[str, Any], reading: Reading) -> None:
    """An answer in one piece."""
    reading.ended = True
    blocks = objects(obj(obj(document.get("output")).get("message")).get("content"))
    _conclude(
        [(obj(block.get("toolUse")), None) for block in blocks if "toolUse" in block],
        document.get("stopReason"),
        document,
        reading,
    )


def read_events(events: Iterable[tuple[str, dict[str, Any]]], reading: Reading) -> None:
    """An answer in events. It is whole with ``metadata``, which comes after ``messageStop`` and holds the usage."""
    tools: dict[int, dict[str, Any]] = {}
    pieces: dict[int, list[str]] = {}
    last: dict[str, Any] = {}
    stop: Any = None
    began = stopped = told = False
    for name, event in events:
        began = began or name in EVENTS
        at = index(event.get("contentBlockIndex"))
        if name == "contentBlockStart" and at is not None and "toolUse" in obj(event.get("start")):
            tools[at] = obj(obj(event.get("start")).get("toolUse"))
        elif name == "contentBlockDelta" and at is not None:
            piece = obj(obj(event.get("delta")).get("toolUse")).get("input")
            if isinstance(piece, str):
                pieces.setdefault(at, []).append(arguments(piece))
        elif name == "messageStop":
            stop, stopped = event.get("stopReason"), True
        elif name == "metadata":
            merge(last, event)
            told = told or bool(event)
    if not began:
        return
    reading.ended = stopped and told
    _conclude([(tool, "".join(pieces.get(at, ()))) for at, tool in sorted(tools.items())], stop, last, reading)


def _conclude(
    tools: list[tuple[dict[str, Any], str | None]], stop: Any, told: dict[str, Any], reading: Reading
) -> None:
    reading.began = True
    reading.choices = 1
    reading.model_served = string(obj(obj(told.get("trace")).get("promptRouter")).get("invokedModelId"))
    for tool, streamed in tools:
        name = string(tool.get("name")) or ""
        if tool.get("type") == "server_tool_use":
            reading.count_server_tool(name)
            continue
        # A streamed call without arguments sends no piece.
        whole = load_json(streamed) if streamed else tool.get("input", {})
        text = arguments(streamed if whole is NOT_JSON else whole)
        reading.tool_calls.append(ToolCall(string(tool.get("toolUseId")), name, text))
    read_usage(reading, obj(told.get("usage")))
    reading.finish_raw = string(stop)
    reading.finish = _FINISH.get(reading.finish_raw or "")


def read_usage(reading: Reading, usage: dict[str, Any]) -> None:
    """Usage in Converse's words, where ``inputTokens`` leaves out what was read from and written to the cache."""
    read = _either(usage, "cacheReadInputTokens", "cacheReadInputTokenCount")
    written = _either(usage, "cacheWriteInputTokens", "cacheWriteInputTokenCount")
    reading.cached_input_tokens = reading.count(read)
    reading.cache_write_tokens = reading.count(written)
    reading.input_tokens = reading.whole(usage.get("inputTokens"), read, written)
    reading.output_tokens = reading.count(usage.get("outputTokens"))
    reading.total_reported = reading.count(usage.get("totalTokens"))


def _either(usage: dict[str, Any], name: str, older: str) -> Any:
    value = usage.get(name)
    return usage.get(older) if value is None else value
