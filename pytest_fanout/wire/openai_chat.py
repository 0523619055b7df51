"""Chat Completions and its many dialects, and the older Completions: one reader, told apart by what the body shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, merge, obj, objects, string, texts
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
    place: int  # where it stands among the calls of its choice
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    def add(self, call_id: str | None, name: str | None, text: Any) -> None:
        self.id = self.id or call_id
        self.name = self.name or name or ""
        self.pieces.append(arguments(text))


@dataclass(slots=True)
class _Choice:
    """One choice, put together from its chunks or taken from the one document."""

    finish: str | None = None
    refused: bool = False
    tools: list[_Tool] = field(default_factory=list)
    by_index: dict[int, _Tool] = field(default_factory=dict)
    by_id: dict[str, _Tool] = field(default_factory=dict)
    legacy: _Tool | None = None
    hosted: dict[int, str] = field(default_factory=dict)

    def take(self, choice: dict[str, Any], *, whole: bool) -> None:
        self.finish = string(choice.get("finish_reason")) or self.finish
        message = obj(choice.get("delta")) or obj(choice.get("message"))
        self.refused = self.refused or bool(message.get("refusal"))
        for call in objects(message.get("tool_calls")):
            function = obj(call.get("function")) or obj(call.get("custom"))
            call_id, name = string(call.get("id")), string(function.get("name"))
            tool = None if whole else self._running(index(call.get("index")), call_id, name)
            if tool is None:
                tool = self._open(None if whole else index(call.get("index")), call_id)
            tool.add(call_id, name, function.get("arguments", function.get("input")))
        if legacy := obj(message.get("function_call")):
            self.legacy = self.legacy or _Tool(len(self.tools))
            self.legacy.add(None, string(legacy.get("name")), legacy.get("arguments"))
        for place, ran in enumerate(objects(message.get("executed_tools"))):
            key = index(ran.get("index"))
            name = string(ran.get("type")) or string(ran.get("name")) or "tool"
            self.hosted[place if key is None else key] = name

    def _running(self, at: int | None, call_id: str | None, name: str | None) -> _Tool | None:
        """The call that a fragment continues; None when it opens a new one."""
        if at is not None:
            tool = self.by_index.get(at)
            # Some hosts give every parallel call the same index; a new id with a name tells them apart.
            is_other = tool is not None and name and call_id and tool.id not in (None, call_id)
            return None if is_other else tool
        if call_id in self.by_id:
            return self.by_id[call_id or ""]
        return self.tools[-1] if self.tools and name is None else None

    def _open(self, at: int | None, call_id: str | None) -> _Tool:
        tool = _Tool(len(self.tools) if at is None else at)
        self.tools.append(tool)
        if at is not None:
            self.by_index[at] = tool
        if call_id:
            self.by_id[call_id] = tool
        return tool

    def tool_calls(self) -> list[ToolCall]:
        tools = sorted(self.tools, key=lambda tool: tool.place)  # stable: equal places stay in order of arrival
        if self.legacy and not tools:  # some servers say the same call in both forms
            tools = [self.legacy]
        return [ToolCall(tool.id, tool.name, "".join(tool.pieces)) for tool in tools]


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
        has_server_state=bool(body.get("agent_id")),  # Mistral keeps an agent's instructions and tools
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
    choices: dict[int, _Choice] = {}
    usage: dict[str, Any] = {}
    if not payload.streamed:
        document = payload.document()
        reading.ended = isinstance(document, dict)
        _take(obj(document), choices, usage, reading, whole=True)
        _conclude(choices, usage, reading)
        return
    had_finished = False
    for _, data, chunk in payload.events():
        if data.strip() == "[DONE]":
            reading.ended = True
            break
        if _take(obj(chunk), choices, usage, reading, whole=False):
            had_finished = bool(choices) and all(choice.finish for choice in choices.values())
    # Hosts that report usage on every chunk may have had more to say when the stream was cut.
    reading.usage_is_bound = not reading.ended and not had_finished
    _conclude(choices, usage, reading)


def _take(
    body: dict[str, Any], choices: dict[int, _Choice], usage: dict[str, Any], reading: Reading, *, whole: bool
) -> bool:
    """Take one chunk or document; whether it held usage."""
    groq = obj(body.get("x_groq"))
    if error := body.get("error") or groq.get("error"):
        reading.fail(error_type({"error": error}, {}))
    reading.model_served = string(body.get("model")) or reading.model_served
    reading.response_id = string(body.get("id")) or reading.response_id
    for at, choice in enumerate(objects(body.get("choices"))):
        number = index(choice.get("index"))
        choices.setdefault(at if number is None else number, _Choice()).take(choice, whole=whole)
        if choice.get("error") or choice.get("finish_reason") == "error":
            error = choice.get("error") or body.get("error")
            reading.fail(error_type({"error": error}, {}))
    found = [part for part in (groq.get("usage"), body.get("usage")) if part]
    for part in found:
        merge(usage, part)
    return bool(found)


def _conclude(choices: dict[int, _Choice], usage: dict[str, Any], reading: Reading) -> None:
    reading.began = reading.began or bool(choices) or bool(usage)
    reading.choices = len(choices) or int(reading.began)
    for _, choice in sorted(choices.items()):
        reading.tool_calls.extend(choice.tool_calls())
        for name in choice.hosted.values():
            reading.count_server_tool(name)
    read_openai_usage(reading, usage, prompt="prompt", completion="completion")
    if not choices:
        return
    first = choices[min(choices)]
    reading.finish_raw = first.finish
    if reading.status == "error":
        return
    reading.finish = _FINISH.get(first.finish or "")
    if first.refused:
        reading.finish = "refusal"
    elif reading.finish == "stop" and reading.tool_calls:
        reading.finish = "tool_calls"  # some hosts say stop, and so does OpenAI when a tool was forced
