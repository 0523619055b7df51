"""xAI by gRPC (``xai_api.Chat`` and ``xai_api.Sample``), in the JSON form of its messages; a stream is one a line.

Protobuf leaves zeros out: in a usage that is there, a count that is not is 0.
"""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, items, merge, obj, objects, string
from pytest_fanout.wire.usage import read_openai_usage

_FINISH = {
    "REASON_STOP": "stop",
    "REASON_MAX_LEN": "length",
    "REASON_MAX_CONTEXT": "length",
    "REASON_TIME_LIMIT": "length",
    "REASON_TOOL_CALLS": "tool_calls",
}
_CLIENT_TOOL = "client_side"


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request."""
    said = [{"role": _name(message.get("role"), "ROLE_"), "content": message.get("content")}
            for message in objects(body.get("messages"))]  # fmt: skip
    results = [message.get("toolCallId") for message in objects(body.get("messages")) if _is_result(message)]
    return Asked(
        model=string(body.get("model")),
        system=leading_system(said),
        tools=tuple(name for tool in objects(body.get("tools")) if (name := _tool_name(tool))),
        tool_results_in=tuple(string(result) or "" for result in results),
        parent_id=string(body.get("previousResponseId")),
    )


def _is_result(message: dict[str, Any]) -> bool:
    return message.get("role") in ("ROLE_TOOL", "ROLE_FUNCTION")


def _tool_name(tool: dict[str, Any]) -> str | None:
    if function := obj(tool.get("function")):
        return string(function.get("name"))
    if mcp := obj(tool.get("mcp")):
        return f"mcp:{string(mcp.get('serverLabel')) or ''}"
    return next(iter(tool), None)


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with gRPC status OK, or from what came before another status."""
    parts = [obj(data) for _, _, data in payload.events()] if payload.streamed else [obj(payload.document())]
    usage: dict[str, Any] = {}
    client: dict[str, ToolCall] = {}
    hosted: dict[str, str] = {}
    choices: set[int] = set()
    for part in parts:
        if part.get("error"):
            reading.fail(error_type(part, {}))
            reading.ended = True
            continue
        reading.began = reading.began or bool(part)
        reading.response_id = string(part.get("id")) or reading.response_id
        reading.model_served = string(part.get("model")) or reading.model_served
        merge(usage, part.get("usage"))
        for output in objects(part.get("outputs")) or objects(part.get("choices")):
            choices.add(index(output.get("index")) or 0)
            reading.finish_raw = string(output.get("finishReason")) or reading.finish_raw
            _take_tools(obj(output.get("delta")) or obj(output.get("message")), client, hosted)
    # a stream shows its end by a reason to finish; a single message is whole when it came
    reading.ended = reading.ended or (reading.began and (not payload.streamed or reading.finish_raw is not None))
    reading.choices = len(choices) or int(reading.began)
    reading.tool_calls.extend(client.values())
    _take_server_tools(usage, hosted, reading)
    _take_usage(usage, reading)
    reading.usage_is_bound = not reading.ended
    if reading.status is None and reading.ended:
        reading.finish = _FINISH.get(reading.finish_raw or "", "tool_calls" if client else "stop")


def _take_tools(message: dict[str, Any], client: dict[str, ToolCall], hosted: dict[str, str]) -> None:
    """A call may come again when its state has changed: what has its id is the same call."""
    for call in objects(message.get("toolCalls")):
        function = obj(call.get("function"))
        kind = _name(call.get("type"), "TOOL_CALL_TYPE_", "_TOOL") or _CLIENT_TOOL
        key = string(call.get("id")) or f"#{len(client) + len(hosted)}"
        if kind == _CLIENT_TOOL:
            client[key] = ToolCall(
                string(call.get("id")), string(function.get("name")) or "", arguments(function.get("arguments"))
            )
        else:
            hosted[key] = kind


def _take_server_tools(usage: dict[str, Any], hosted: dict[str, str], reading: Reading) -> None:
    seen = list(hosted.values())
    used = [_name(tool, "SERVER_SIDE_TOOL_") for tool in items(usage.get("serverSideToolsUsed"))]
    for name in sorted({*seen, *used} - {""}):
        reading.server_tool_calls[name] = max(seen.count(name), used.count(name))


def _take_usage(usage: dict[str, Any], reading: Reading) -> None:
    if not usage:
        return
    shaped = {
        "prompt_tokens": usage.get("promptTokens", 0),
        "completion_tokens": usage.get("completionTokens", 0),
        "total_tokens": usage.get("totalTokens"),
        "prompt_tokens_details": {"cached_tokens": usage.get("cachedPromptTextTokens", 0)},
        "completion_tokens_details": {"reasoning_tokens": usage.get("reasoningTokens", 0)},
    }
    read_openai_usage(reading, shaped, prompt="prompt", completion="completion")


def _name(value: Any, prefix: str, suffix: str = "") -> str:
    """An enumeration's value as a plain word; "" for what is none."""
    return value.removeprefix(prefix).removesuffix(suffix).lower() if isinstance(value, str) else ""
