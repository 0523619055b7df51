"""What a call said and heard, as texts for people to read. What is found here counts for nothing: see calls.py."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pytest_fanout.wire.bodies import NOT_JSON, Headers, decode, header_map, load_json
from pytest_fanout.wire.calls import is_streamed
from pytest_fanout.wire.places import GENERATED, PROMPT, SYSTEM, TOOLS, Place, as_text, parts_of, texts_at
from pytest_fanout.wire.reading import Payload
from pytest_fanout.wire.shapes import arguments, items, obj, string
from pytest_fanout.wire.text import clean

#: Answers of APIs whose tokens are never estimated, or only by another name.
_MIXED: Final = (  # these endpoints serve models of several families
    *("content", "delta", "choices", "message", "text", "output", "outputs"),
    *("results", "generation", "completion", "predictions", "contentBlockDelta"),
)
_MORE: Final[dict[str, tuple[str, ...]]] = {
    "xai.chat": ("outputs",),
    "xai.sample": ("choices",),
    "bedrock.invoke": _MIXED,
    "vertex.predict": _MIXED,
}
_ARGUMENTS: Final = ("arguments", "input", "args", "partial_json")
_CALLS: Final = frozenset(
    {*_ARGUMENTS, "name", "tool_calls", "toolCalls", "function_call", "functionCall", "toolUse", "tool_use"}
)
_CALL_KIND: Final = re.compile(r"function.call|input_json")
_THOUGHTS: Final = frozenset(
    {"thinking", "reasoning", "reasoning_content", "reasoningContent", "reasoning_text", "summary", "tool_plan"}
)
_REASONS: Final = frozenset({"stop_sequence", "stopSequence", "completionReason"})


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a prompt. ``key``: its JSON, which tells whether two turns are the same."""

    role: str
    texts: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request says. ``tools``: name and definition as JSON. ``raw``: the body, where none of that was found."""

    system: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    messages: tuple[Message, ...] = ()
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says; its tool calls are those of the Attempt. ``raw``: the body, where no text was found."""

    text: str = ""
    thoughts: str = ""
    raw: str = ""


def read_prompt(body: bytes) -> Prompt:
    """System prompt, tools and turns of a request. Never raises."""
    request = load_json(body) if body else NOT_JSON
    if not isinstance(request, dict):
        return Prompt(raw=body.decode("utf-8", "replace"))
    turns = [turn for key in PROMPT for turn in _turns(request.get(key))]
    system = [text for key in SYSTEM for text in _message(request.get(key), "system").texts]
    while turns and turns[0].role in ("system", "developer"):
        system += turns.pop(0).texts
    if not turns and not system:
        return Prompt(raw=clean(body.decode("utf-8", "replace")))
    return Prompt(tuple(system), tuple(_tools(request)), tuple(turns))


def _turns(value: Any) -> Iterator[Message]:
    if isinstance(value, list) and any(all(isinstance(item, kind) for item in value) for kind in (dict, str)):
        yield from (_message(item, "user") for item in value)
    elif value:
        yield _message(value, "user")


def _message(value: Any, otherwise: str) -> Message:
    turn = obj(value)
    kind = string(turn.get("type")) or ""
    role = string(turn.get("role")) or (kind if kind not in ("message", "text") else "") or otherwise
    media: set[str] = set()
    texts = _with_calls(texts_at([((), value)] if value else (), media))
    if media:
        texts.append(f"[no text: {', '.join(sorted(media))}]")
    return Message(role.removeprefix("ROLE_").lower(), tuple(texts), as_text(value))


def _with_calls(found: dict[Place, str] | None) -> list[str]:
    """The texts in order, the name and the arguments of a tool call as one of them."""
    if found is None:
        return ["[too much to read]"]
    texts: list[str] = []
    done: set[Place] = set()
    for place, text in found.items():
        if place in done:
            continue
        name = found.get((*place[:-1], "name")) if place else None
        given = next((key for key in _ARGUMENTS if (*place[:-1], key) in found), None)
        if name is not None and given is not None and place[-1] in ("name", given):
            texts.append(clean(f"{name} {found[(*place[:-1], given)]}"))
            done |= {(*place[:-1], "name"), (*place[:-1], given)}
        elif text:
            texts.append(clean(text))
    return texts


def _tools(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in TOOLS:
        value = request.get(key)
        declared = items(obj(value).get("tools")) if isinstance(value, dict) else items(value)
        for tool in declared:
            inner = items(obj(tool).get("functionDeclarations")) or items(obj(tool).get("function_declarations"))
            for one in inner or [tool]:
                yield _tool_name(obj(one)), as_text(one)


def _tool_name(tool: dict[str, Any]) -> str:
    for value in (tool, *(obj(tool.get(key)) for key in ("function", "toolSpec", "custom"))):
        if name := string(value.get("name")):
            return name
    return string(tool.get("type")) or next(iter(tool), "?")


def read_said(api: str, headers: Headers, body: bytes) -> Said:
    """Text and thoughts of an answer. Never raises."""
    known = header_map(headers)
    data = decode(body, known.get("content-encoding")).data
    content_type = known.get("content-type", "").lower()
    payload = Payload(data, is_streamed(api, data, content_type), content_type, known)
    document = NOT_JSON if payload.streamed else payload.document()
    parts = [_unwrapped(part) for part in parts_of(document, payload)]
    roots = GENERATED.get(api) or _MORE.get(api, ())
    found = texts_at((_origin(part), part.get(key)) for part in parts for key in roots)
    texts = list(_of_answer(found or {}))
    text = "\n".join(text for is_thought, text in texts if not is_thought)
    thoughts = "\n".join(text for is_thought, text in texts if is_thought)
    raw = "" if text or thoughts else clean(data.decode("utf-8", "replace"))
    return Said(text, thoughts, raw)


def _unwrapped(part: dict[str, Any]) -> dict[str, Any]:
    """What Bedrock sends on of a model's stream stands in base64."""
    wrapped = part.get("bytes")
    if not isinstance(wrapped, str):
        return part
    try:
        return obj(load_json(base64.b64decode(wrapped)))
    except (binascii.Error, ValueError):
        return part


def _origin(part: dict[str, Any]) -> Place:
    """Which piece of the answer an event continues."""
    delta = obj(part.get("delta"))
    names = [part.get("type"), delta.get("type")]
    numbers = [part.get(key) for key in ("output_index", "content_index", "contentBlockIndex", "index")]
    return tuple(value if isinstance(value, str | int) else None for value in (*names, *numbers))


def _of_answer(found: dict[Place, str]) -> Iterable[tuple[bool, str]]:
    """(whether it is a thought, text) of what is no tool call."""
    for place, text in found.items():
        keys = {key for key in place if isinstance(key, str)}
        kinds = " ".join(key for key in place[:2] if isinstance(key, str))
        if not text or keys & _CALLS or keys & _REASONS or _CALL_KIND.search(kinds):
            continue
        yield bool(keys & _THOUGHTS) or "reasoning" in kinds or "thinking" in kinds, clean(text)


def same_text(message: Message, said: Said, calls: Iterable[tuple[str, str]]) -> bool:
    """Whether a turn of a prompt is an answer that is sent back.

    Args:
        calls: names and arguments of the tool calls that the answer asks for.
    """
    told = set(message.texts)
    for name, given in calls:
        forms = {f"{name} {given}", f"{name} {arguments(_sorted(given))}"}
        if not told & forms:
            return False
        told -= forms
    return "\n".join(text for text in message.texts if text in told) == said.text


def _sorted(text: str) -> Any:
    value = load_json(text)
    return text if value is NOT_JSON else as_text(value)
