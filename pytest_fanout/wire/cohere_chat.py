"""Cohere Chat, v2 and v1: plain, as server-sent events, and as lines of JSON."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.bodies import NOT_JSON
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, obj, objects, string, texts

_FINISH = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "ERROR_LIMIT": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
    "USER_CANCEL": "cancelled",
}
_FAILED = frozenset({"ERROR", "TIMEOUT"})


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request of either version."""
    messages = objects(body.get("messages"))
    tools = [obj(tool.get("function")).get("name") or tool.get("name") for tool in objects(body.get("tools"))]
    tools += [connector.get("id") for connector in objects(body.get("connectors"))]
    results = [message.get("tool_call_id") for message in messages if message.get("role") == "tool"]
    results += [obj(result.get("call")).get("name") for result in objects(body.get("tool_results"))]
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")),
        stream=stream if isinstance(stream, bool) else None,
        system=leading_system(messages) or texts(body.get("preamble")) or _told_by_system(body),
        tools=tuple(name for tool in tools if (name := string(tool))),
        tool_results_in=tuple(string(result) or "" for result in results),
    )


def _told_by_system(body: dict[str, Any]) -> str:
    """The system messages that open a conversation of v1."""
    said: list[str] = []
    for message in objects(body.get("chat_history")):
        if message.get("role") != "SYSTEM":
            break
        said.append(texts(message.get("message")))
    return "\n".join(said)


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    document = NOT_JSON if payload.streamed else payload.document()
    whole = obj(document)
    if document is NOT_JSON or _kind(whole):
        # Lines of JSON come without a content type that would tell them from one document.
        found = (data for _, _, data in payload.events()) if payload.streamed else payload.lines()
        read_events([obj(data) for data in found], reading)
    elif isinstance(whole.get("message"), dict):
        reading.ended = True
        _conclude(_v2_calls(obj(whole.get("message"))), whole.get("id"), whole, obj(whole.get("usage")), reading)
    elif is_v1(whole):
        reading.ended = True
        _conclude_v1(whole, reading)
    elif whole.get("message") or whole.get("error"):
        reading.ended = True
        reading.fail(error_type(document, {}) or "error")


def is_v1(answer: dict[str, Any]) -> bool:
    """Whether a document is an answer of v1, which models behind Bedrock's Invoke speak as well."""
    return isinstance(answer.get("text"), str) and ("generation_id" in answer or "response_id" in answer)


def _kind(event: dict[str, Any]) -> str:
    kind = event.get("type") or event.get("event_type")
    return kind if isinstance(kind, str) else ""


def read_events(events: list[dict[str, Any]], reading: Reading) -> None:
    """An answer in events of either version. It is whole with ``message-end`` or ``stream-end``."""
    calls: dict[int, tuple[dict[str, Any], list[str]]] = {}
    parts: list[dict[str, Any]] = []
    answer_id: Any = None
    for event in events:
        kind, delta, at = _kind(event), obj(event.get("delta")), index(event.get("index"))
        called = obj(obj(delta.get("message")).get("tool_calls"))
        reading.began = reading.began or bool(kind)
        if kind == "message-start":
            answer_id = event.get("id")
        elif kind == "tool-call-start" and at is not None:
            calls[at] = (called, [arguments(obj(called.get("function")).get("arguments"))])
        elif kind == "tool-call-delta" and at in calls:
            calls[at][1].append(arguments(obj(called.get("function")).get("arguments")))
        elif kind == "message-end":
            made = [_v2_call(call, "".join(pieces)) for _, (call, pieces) in sorted(calls.items())]
            reading.ended = True
            _conclude(made, answer_id or event.get("id"), delta, obj(delta.get("usage")), reading)
            return
        elif kind == "tool-calls-generation":
            parts = objects(event.get("tool_calls"))
        elif kind == "stream-end":
            answer = obj(event.get("response"))
            reading.ended = True
            end = {"finish_reason": event.get("finish_reason"), "tool_calls": parts}
            _conclude_v1({**end, **{key: value for key, value in answer.items() if value is not None}}, reading)
            return
        elif not kind and (event.get("message") or event.get("error")):
            reading.fail(error_type(event, {}) or "error")
    if reading.began:
        reading.choices = 1
        reading.response_id = string(answer_id)
        reading.tool_calls.extend(_v2_call(call, "".join(pieces)) for _, (call, pieces) in sorted(calls.items()))


def _v2_calls(message: dict[str, Any]) -> list[ToolCall]:
    calls = objects(message.get("tool_calls"))
    return [_v2_call(call, arguments(obj(call.get("function")).get("arguments"))) for call in calls]


def _v2_call(call: dict[str, Any], text: str) -> ToolCall:
    return ToolCall(string(call.get("id")), string(obj(call.get("function")).get("name")) or "", text)


def _conclude_v1(answer: dict[str, Any], reading: Reading) -> None:
    calls = [
        ToolCall(None, string(call.get("name")) or "", arguments(call.get("parameters")))
        for call in objects(answer.get("tool_calls"))
    ]
    answer_id = string(answer.get("response_id")) or answer.get("generation_id")
    _conclude(calls, answer_id, answer, obj(answer.get("meta")), reading)


def _conclude(
    calls: list[ToolCall], answer_id: Any, end: dict[str, Any], usage: dict[str, Any], reading: Reading
) -> None:
    """``usage.tokens`` are the tokens; ``usage.billed_units`` are what is paid for, and no count of tokens."""
    reading.began = True
    reading.choices = 1
    reading.response_id = string(answer_id)
    reading.tool_calls.extend(calls)
    tokens = obj(usage.get("tokens"))
    reading.input_tokens = reading.count(tokens.get("input_tokens"))
    reading.output_tokens = reading.count(tokens.get("output_tokens"))
    reading.cached_input_tokens = reading.count(usage.get("cached_tokens"))
    reading.finish_raw = string(end.get("finish_reason"))
    if reading.finish_raw in _FAILED or end.get("error"):
        reading.fail(reading.finish_raw or "error")
    elif reading.status != "error":
        reading.finish = _FINISH.get(reading.finish_raw or "")
        if reading.finish == "stop" and calls:
            reading.finish = "tool_calls"  # v1 says COMPLETE when it asks for tools
