"""Mistral's conversations: entries kept at the provider, hosted tools, agents that hand over to each other."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, merge, obj, objects, string
from pytest_fanout.wire.usage import read_conversation_usage


def read_request(body: dict[str, Any]) -> Asked:
    """Model or agent, prompt, tools and tool results of a request."""
    given = objects(body.get("inputs"))
    tools = [
        string(obj(tool.get("function")).get("name")) or string(tool.get("connector_id")) or string(tool.get("type"))
        for tool in objects(body.get("tools"))
    ]
    results = [entry.get("tool_call_id") for entry in given if entry.get("type") == "function.result"]
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")) or string(body.get("agent_id")),
        stream=stream if isinstance(stream, bool) else None,
        system=string(body.get("instructions")) or "",
        tools=tuple(name for name in tools if name),
        tool_results_in=tuple(string(result) or "" for result in results),
        # An agent's instructions, and the conversation that a request without a model goes on with, are not shown.
        has_server_state=not body.get("model"),
    )


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if not payload.streamed:
        document = payload.document()
        body = obj(document)
        if body.get("error") or body.get("object") == "error":
            reading.fail(error_type(document, {}))
            reading.ended = True
        elif body.get("outputs") or body.get("usage") or body.get("conversation_id"):
            reading.ended = True
            _conclude(
                string(body.get("conversation_id")), objects(body.get("outputs")), obj(body.get("usage")), reading
            )
        return
    begun: dict[tuple[str, str | None, int | None], dict[str, Any]] = {}
    pieces: dict[tuple[str, str | None, int | None], list[str]] = {}
    usage: dict[str, Any] = {}
    conversation: str | None = None
    for name, _, data in payload.events():
        event = obj(data)
        # An event whose data was cut off says nothing, whatever its name; only a failure needs no data.
        kind = string(event.get("type")) or (name if event or name.endswith(".error") else "")
        if kind == "conversation.response.error" or event.get("error"):
            reading.fail(error_type({"error": event.get("error") or {"code": event.get("code")}}, {}))
            reading.ended = True
        elif kind == "function.call.delta":
            key = ("call", string(event.get("tool_call_id")), index(event.get("output_index")))
            begun.setdefault(key, {**event, "type": "function.call"})
            pieces.setdefault(key, []).append(arguments(event.get("arguments")))
        elif kind in ("tool.execution.started", "tool.execution.done"):
            begun.setdefault(("run", string(event.get("id")), None), {**event, "type": "tool.execution"})
        elif kind == "message.output.delta":
            begun.setdefault(("message", None, None), {"model": event.get("model")})
        conversation = string(event.get("conversation_id")) or conversation
        reading.began = reading.began or kind.startswith(("conversation.", "message.", "function.", "tool.", "agent."))
        if kind == "conversation.response.done":
            merge(usage, event.get("usage"))
            reading.ended = True
    if reading.began:
        told = [{**entry, "arguments": "".join(pieces.get(key, ()))} for key, entry in begun.items()]
        _conclude(conversation, told, usage, reading)


def _conclude(conversation: str | None, entries: list[dict[str, Any]], usage: dict[str, Any], reading: Reading) -> None:
    reading.began = True
    reading.choices = 1
    reading.response_id = conversation
    for entry in entries:
        reading.model_served = string(entry.get("model")) or reading.model_served
        if entry.get("type") == "function.call":
            call_id, name = string(entry.get("tool_call_id")), string(entry.get("name"))
            reading.tool_calls.append(ToolCall(call_id, name or "", arguments(entry.get("arguments"))))
        elif entry.get("type") == "tool.execution":
            reading.count_server_tool(string(entry.get("name")) or "tool")
    for name, value in obj(usage.get("connectors")).items():
        # The same runs again, by connector; entries may leave some out.
        if (runs := reading.count(value)) and (known := string(name)):
            reading.server_tool_calls[known] = max(runs, reading.server_tool_calls.get(known, 0))
    read_conversation_usage(reading, usage)
    if reading.status != "error" and reading.ended:
        reading.finish = "tool_calls" if reading.tool_calls else "stop"
