"""Ollama's own API: chat and generate, streamed as newline-delimited JSON or in one document."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, obj, objects, string

_FINISH = {"stop": "stop", "length": "length"}
#: Why an answer without any count ended: a model was loaded or thrown out, and nothing was asked of it.
_NO_GENERATION = {"load", "unload"}


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request. It streams unless told otherwise."""
    messages = objects(body.get("messages"))
    results = [
        m.get("tool_call_id") or m.get("tool_name") or m.get("name") for m in messages if m.get("role") == "tool"
    ]
    tools = [string(obj(tool.get("function")).get("name")) for tool in objects(body.get("tools"))]
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")),
        stream=stream if isinstance(stream, bool) else True,
        system=leading_system(messages) or string(body.get("system")) or "",
        tools=tuple(name for name in tools if name),
        tool_results_in=tuple(string(result) or "" for result in results),
        has_server_state=bool(body.get("context")),  # the history as token numbers
    )


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    document = payload.document()
    last: dict[str, Any] = {}
    for line in (document,) if isinstance(document, dict) else payload.lines():
        body = obj(line)
        if body.get("error"):
            reading.fail(error_type(body, {}))
        message = obj(body.get("message"))
        if not message and not {"response", "done"} & body.keys():
            continue
        reading.began = True
        reading.choices = 1
        reading.model_served = string(body.get("model")) or reading.model_served
        for call in objects(message.get("tool_calls")):
            function = obj(call.get("function"))
            text = arguments(function.get("arguments", {}))
            reading.tool_calls.append(ToolCall(string(call.get("id")), string(function.get("name")) or "", text))
        if body.get("done") is True:
            reading.ended = True
            last = body
    reading.input_tokens = reading.count(last.get("prompt_eval_count"))
    reading.cached_input_tokens = reading.count(last.get("prompt_eval_cached_count"))
    reading.output_tokens = reading.count(last.get("eval_count"))
    reading.finish_raw = string(last.get("done_reason"))
    if reading.finish_raw in _NO_GENERATION and reading.usage_source == "missing":
        reading.kind = "other"
    if reading.status != "error":
        reading.finish = _FINISH.get(reading.finish_raw or "")
        if reading.finish == "stop" and reading.tool_calls:
            reading.finish = "tool_calls"
