"""Chat Completions and its many dialects, and the older Completions: one reader, told apart by what the body shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.bodies import NOT_JSON
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, items, merge, obj, objects, string, texts
from pytest_fanout.wire.usage import read_openai_usage

_FINISH = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "complete": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "abort": "cancelled",
    "error": "error",
    "insufficient_system_resource": "error",
}


@dataclass(slots=True)
class _Tool:
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Choices:
    """What the chunks, or the one document, said about each choice. Keys are (choice, slot)."""

    seen: dict[int, str | None] = field(default_factory=dict)  # choice -> finish reason
    refused: set[int] = field(default_factory=set)
    tools: dict[tuple[int, int], _Tool] = field(default_factory=dict)
    slots: dict[tuple[int, int], int] = field(default_factory=dict)  # (choice, index on the wire) -> slot
    legacy: dict[int, _Tool] = field(default_factory=dict)
    hosted: dict[tuple[int, int], str] = field(default_factory=dict)

    def take(self, choice: dict[str, Any], at: int) -> None:
        number = index(choice.get("index"))
        number = at if number is None else number
        finish = choice.get("finish_reason")
        self.seen[number] = string(finish) or self.seen.get(number)
        message = obj(choice.get("delta")) or obj(choice.get("message"))
        if message.get("refusal"):
            self.refused.add(number)
        for place, call in enumerate(objects(message.get("tool_calls"))):
            self._take_tool(number, place, call)
        if legacy := obj(message.get("function_call")):
            tool = self.legacy.setdefault(number, _Tool())
            tool.name = tool.name or string(legacy.get("name")) or ""
            tool.pieces.append(arguments(legacy.get("arguments")))
        for place, ran in enumerate(objects(message.get("executed_tools"))):
            key = index(ran.get("index"))
            self.hosted[number, place if key is None else key] = (
                string(ran.get("type")) or string(ran.get("name")) or "tool"
            )

    def _take_tool(self, number: int, place: int, call: dict[str, Any]) -> None:
        function = obj(call.get("function")) or obj(call.get("custom"))
        given, name = string(call.get("id")), string(function.get("name"))
        wire_index = index(call.get("index"))
        if wire_index is None:
            # No index: a named fragment opens a call, any other continues the last one.
            wire_index = -1 if name is None else -2 - len(self.tools)
            if wire_index == -1 and self.tools:
                wire_index = next(reversed(self.slots))[1]
        slot = self.slots.get((number, wire_index))
        if slot is not None and given and name and self.tools[number, slot].id not in (None, given):
            slot = None  # hosts exist that give each parallel call the same index; the new id and name tell
        if slot is None:
            slot = len(self.tools)
            self.slots[number, wire_index] = slot
            self.tools[number, slot] = _Tool()
        tool = self.tools[number, slot]
        tool.id = tool.id or given
        tool.name = tool.name or name or ""
        text = function.get("arguments", function.get("input"))
        tool.pieces.append(arguments(text))

    def tool_calls(self) -> list[ToolCall]:
        keyed: list[tuple[tuple[int, int], _Tool]] = []
        order = {slot: (number, wire) for (number, wire), slot in self.slots.items()}
        for (number, slot), tool in self.tools.items():
            _, wire = order.get(slot, (number, slot))
            keyed.append(((number, wire if wire >= 0 else slot), tool))
        keyed.sort(key=lambda pair: pair[0])
        keyed.extend(((number, 0), tool) for number, tool in sorted(self.legacy.items()))
        return [ToolCall(tool.id, tool.name, "".join(tool.pieces)) for _, tool in keyed]


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request."""
    messages = objects(body.get("messages"))
    tools = [obj(t.get("function")).get("name") or obj(t.get("custom")).get("name") for t in objects(body.get("tools"))]
    tools += [t.get("name") for t in objects(body.get("functions"))]
    results = [m.get("tool_call_id") or m.get("name") for m in messages if m.get("role") in ("tool", "function")]
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")) or string(body.get("agent_id")),
        stream=stream if isinstance(stream, bool) else None,
        system=leading_system(messages),
        tools=tuple(name for tool in tools if (name := string(tool))),
        tool_results_in=tuple(string(result) or "" for result in results),
    )


def leading_system(messages: list[dict[str, Any]]) -> str:
    """The system prompt: the system messages that open the conversation, or else the first one inside it.

    Later ones are left out, since they are reminders that change from call to call.
    """
    spoken: list[str] = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            if spoken:
                break
            continue
        spoken.append(texts(message.get("content")))
    return "\n".join(spoken)


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    choices = _Choices()
    usage: dict[str, Any] = {}
    finished_before_usage = False
    if payload.streamed:
        for _, data, chunk in payload.events():
            if data.strip() == "[DONE]":
                reading.ended = True
                break
            _take(chunk, choices, usage, reading)
            if obj(chunk).get("usage") or obj(obj(chunk).get("x_groq")).get("usage"):
                finished_before_usage = bool(choices.seen) and all(choices.seen.values())
    else:
        document = payload.document()
        _take(document, choices, usage, reading)
        reading.ended = isinstance(document, dict)
        finished_before_usage = True
    _conclude(choices, usage, reading)
    # Hosts that report on every chunk may have had more to say.
    reading.usage_is_bound = not reading.ended and not finished_before_usage


def _take(chunk: Any, choices: _Choices, usage: dict[str, Any], reading: Reading) -> None:
    if chunk is NOT_JSON:
        return
    body = obj(chunk)
    error = body.get("error")
    if error and not items(body.get("choices")):
        reading.fail(error_type(body, {}))
    reading.model_served = string(body.get("model")) or reading.model_served
    reading.response_id = string(body.get("id")) or reading.response_id
    merge(usage, obj(body.get("x_groq")).get("usage"))
    merge(usage, body.get("usage"))
    for at, choice in enumerate(objects(body.get("choices"))):
        choices.take(choice, at)
        if choice.get("error") or choice.get("finish_reason") == "error":
            reading.fail(error_type({"error": choice.get("error") or error or "error"}, {}))


def _conclude(choices: _Choices, usage: dict[str, Any], reading: Reading) -> None:
    reading.began = reading.began or bool(choices.seen) or bool(usage)
    reading.choices = len(choices.seen) or int(reading.began)
    reading.tool_calls = choices.tool_calls()
    for name in choices.hosted.values():
        reading.count_server_tool(name)
    read_openai_usage(reading, usage, prompt="prompt", completion="completion")
    if not choices.seen:
        return
    first = min(choices.seen)
    reading.finish_raw = choices.seen[first]
    if reading.status == "error":
        return
    reading.finish = _FINISH.get(reading.finish_raw or "")
    if first in choices.refused:
        reading.finish = "refusal"
    elif reading.finish == "stop" and reading.tool_calls:
        reading.finish = "tool_calls"  # some hosts say stop, and so does OpenAI when a tool was forced
