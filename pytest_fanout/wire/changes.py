"""What differs between the request that was recorded and the one that is made now, in a few short lines."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pytest_fanout.wire import (
    anthropic_messages,
    bedrock_converse,
    bedrock_invoke,
    cohere_chat,
    decisions,
    openai_chat,
    openai_responses,
)
from pytest_fanout.wire.bodies import load_json
from pytest_fanout.wire.endpoints import classify, model_in_url
from pytest_fanout.wire.gemini_generate import system_text
from pytest_fanout.wire.shapes import either, items, obj, objects, string, texts
from pytest_fanout.wire.text import one_line

MAX_LINES: Final = 8
MAX_LENGTH: Final = 200
_EXCERPT: Final = 70
_READERS = {
    "openai.responses": openai_responses,
    "openai.decisions": decisions,
    "anthropic.messages": anthropic_messages,
    "bedrock.converse": bedrock_converse,
    "bedrock.invoke": bedrock_invoke,
    "cohere.chat": cohere_chat,
}
#: Keys that hold the conversation, by the API families that are known.
_CONVERSATIONS = ("messages", "input", "inputs", "contents", "prompt", "chat_history", "message")
_SYSTEMS = ("system", "instructions", "systemInstruction", "system_instruction", "preamble")
_TOOLS = ("tools", "functions", "toolConfig.tools")
#: Keys of a tool that hold its name, or an object that does.
_NAMED = frozenset({"name", "type", "function", "custom", "toolSpec", "systemTool"})
_DECLARED = ("functionDeclarations", "function_declarations")
#: Around the words that a change stands among. Private-use characters: in what came over the wire they are escaped.
_OPEN, _CLOSE = "\ue001", "\ue002"
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")
_AROUND = re.compile(f"{_OPEN}[^{_CLOSE}]*{_CLOSE}")


def describe_changes(url: str, recorded: bytes, requested: bytes, recorded_url: str = "") -> tuple[str, ...]:
    """At most eight lines of at most 200 characters saying what differs between two requests to one endpoint.

    Empty when they are equal. Text from the bodies is one line, with control characters escaped. Never raises.

    Args:
        url: of the request that is made now.
        recorded_url: of the recorded one, where another model stands in it.
    """
    return changes_and_kinds(url, recorded, requested, recorded_url)[0]


def changes_and_kinds(
    url: str, recorded: bytes, requested: bytes, recorded_url: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``describe_changes``, and the same lines without the words around a change: those are alike in all tasks that the
    same change has reached, however the text differs that it stands in.

    Args:
        url: of the request that is made now.
        recorded_url: of the recorded one, where another model stands in it.
    """
    models = (model_in_url(recorded_url or url), model_in_url(url))
    if recorded == requested and models[0] == models[1]:
        return (), ()
    try:
        old, new = load_json(recorded), load_json(requested)
        if isinstance(old, dict) and isinstance(new, dict):
            if models[0] != models[1]:
                old, new = ({**body, "model": model} for body, model in zip((old, new), models, strict=True))
            lines = _changes(classify("POST", url).api, old, new) or ["same JSON, written in another layout"]
        elif recorded == requested:
            lines = [f"model: {_short(models[0])} -> {_short(models[1])}"]
        else:
            lines = [_bytes_line(recorded, requested)]
    except (RecursionError, MemoryError):  # nested deeper than can be compared
        lines = [_bytes_line(recorded, requested)]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [f"and {len(lines) - MAX_LINES + 1} more changes"]
    texts = tuple(one_line(_MARKS.sub("", line), MAX_LENGTH) for line in lines)
    return texts, tuple(one_line(_AROUND.sub("…", line), MAX_LENGTH) for line in lines)


def _changes(api: str | None, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    old, new = _lifted(old), _lifted(new)
    if old.get("model") != new.get("model"):
        lines.append(f"model: {_short(old.get('model'))} -> {_short(new.get('model'))}")
    system_old, system_new = _system(api, old), _system(api, new)
    if system_old != system_new:
        lines.append("system prompt: " + _text_change(system_old, system_new))
    # A prompt of Responses is an object that names one kept at the provider: a setting, no conversation.
    spoken = [key for key in _CONVERSATIONS if not isinstance(old.get(key) or new.get(key), dict)]
    for key in spoken:
        if old.get(key) != new.get(key):
            lines += _conversation_changes(key, old.get(key), new.get(key), is_system_told=system_old != system_new)
    lines += _tool_changes(old, new)
    told = {"model", *spoken, *_SYSTEMS, *_TOOLS}
    for key in sorted({*old, *new} - told):
        lines += _setting_changes(key, old, new)
    if not lines:
        # Differences that no line above covers, such as a cache mark on a system block.
        lines += [_setting_change(key, old, new) for key in sorted(told) if _differs(key, old, new)]
    return lines


def _lifted(body: dict[str, Any]) -> dict[str, Any]:
    """A body of Converse with its tools apart from the settings beside them; any other as it is."""
    config = obj(body.get("toolConfig"))
    if "tools" not in config:
        return body
    settings = {key: value for key, value in config.items() if key != "tools"}
    rest = {key: value for key, value in body.items() if key != "toolConfig"}
    return {**rest, "toolConfig.tools": config["tools"], **({"toolConfig": settings} if settings else {})}


def _differs(key: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    return (key in old) != (key in new) or old.get(key) != new.get(key) or type(old.get(key)) is not type(new.get(key))


def _system(api: str | None, body: dict[str, Any]) -> str:
    reader = _READERS.get(api or "")
    if reader is not None:
        return reader.read_request(body).system or ""
    spoken = openai_chat.leading_system(objects(body.get("messages")))
    for key in _SYSTEMS:
        spoken = spoken or system_text(body.get(key))
    return spoken


def _conversation_changes(key: str, old: Any, new: Any, *, is_system_told: bool) -> list[str]:
    if not isinstance(old, list) or not isinstance(new, list):
        if isinstance(old, str) and isinstance(new, str):
            return [f"{key}: {_text_change(old, new)}"]
        return [f"{key}: {_short(old)} -> {_short(new)}"]
    lines = [f"{key}: {len(old)} -> {len(new)}"] if len(old) != len(new) else []
    for at in range(max(len(old), len(new))):
        before, after = (side[at] if at < len(side) else None for side in (old, new))
        if before == after or (is_system_told and _is_system(before) and _is_system(after)):
            continue
        if at >= len(old):
            return [*lines, f"{key}[{at}] ({_role(after)}) is new: {_quoted(_told(after), 0)}"]
        if at >= len(new):
            return [*lines, f"{key}[{at}] ({_role(before)}) is gone: {_quoted(_told(before), 0)}"]
        roles = _role(before) if _role(before) == _role(after) else f"{_role(before)} -> {_role(after)}"
        text_old, text_new = _told(before), _told(after)
        if text_old == text_new:
            text_old, text_new = _compact(before), _compact(after)
        return [*lines, f"{key}[{at}] ({roles}): {_text_change(text_old, text_new)}"]
    return lines


def _is_system(message: Any) -> bool:
    return obj(message).get("role") in ("system", "developer", "SYSTEM")


def _role(message: Any) -> str:
    body = obj(message)
    return one_line(string(body.get("role")) or string(body.get("type")) or "item", 30)


def _told(message: Any) -> str:
    """What a message says; its whole JSON where it says nothing in words."""
    body = obj(message)
    said = texts(body.get("content")) or texts(body.get("parts"))
    return said or string(body.get("output")) or string(body.get("message")) or _compact(message)


def _tool_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = _tools(old), _tools(new)
    parts = [
        ("added", [name for name in after if name not in before]),
        ("removed", [name for name in before if name not in after]),
        ("schema changed", [name for name in before if name in after and before[name] != after[name]]),
    ]
    said = [f"{what} {', '.join(one_line(name, 40) for name in names)}" for what, names in parts if names]
    if not said and any(_differs(key, old, new) for key in _TOOLS):
        said = ["order changed" if list(before) != list(after) else "changed"]
    return [f"tools: {'; '.join(said)}"] if said else []


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    """Name -> definition, in order; a tool without a name goes by its type."""
    found: dict[str, Any] = {}
    given = (tool for key in _TOOLS for tool in items(body.get(key)))
    for name, tool in (named for one in given for named in _named(one)):
        found[name if name not in found else f"{name} #{len(found) + 1}"] = tool
    return found


def _named(tool: Any) -> list[tuple[str, Any]]:
    """A tool by its name; one of Gemini's may declare several functions, and switch on hosted tools by their keys."""
    body = obj(tool)
    declared = objects(either(body, "functionDeclarations"))
    if declared or not _NAMED & body.keys():
        named = [(string(one.get("name")) or "(unnamed)", one) for one in declared]
        hosted = [(key, value) for key, value in body.items() if key not in _DECLARED]
        return [*named, *hosted] or [("(unnamed)", tool)]
    parts = [body, *(obj(body.get(key)) for key in ("function", "custom", "toolSpec", "systemTool"))]
    names = [string(part.get("name")) for part in parts] + [string(body.get("type"))]
    return [(next((name for name in names if name), "(unnamed)"), tool)]


def _setting_changes(key: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs at one key; of two objects, what differs inside them."""
    before, after = old.get(key), new.get(key)
    if not _differs(key, old, new):
        return []
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [_setting_change(key, old, new)]
    inside = [{f"{key}.{name}": value for name, value in side.items()} for side in (before, after)]
    return [_setting_change(name, *inside) for name in sorted({*inside[0], *inside[1]}) if _differs(name, *inside)]


def _setting_change(key: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    before = _compact(old[key]) if key in old else "(not set)"
    after = _compact(new[key]) if key in new else "(not set)"
    name = one_line(key, 40)
    if len(before) > _EXCERPT or len(after) > _EXCERPT:
        return f"{name}: {_text_change(before, after)}"
    return f"{name}: {before} -> {after}"


def _text_change(old: str, new: str) -> str:
    if not old or not new:
        return f"{_quoted(old, 0) if old else '(none)'} -> {_quoted(new, 0) if new else '(none)'}"
    at = first_difference(old, new)
    after = min(first_difference(old[::-1], new[::-1]), len(old) - at, len(new) - at)
    return f"{_quoted(old, at, len(old) - after)} -> {_quoted(new, at, len(new) - after)}"


def _quoted(text: str, at: int, end: int | None = None) -> str:
    """The words around a position: a few before it for orientation, more from it on. Up to ``end`` they differ."""
    start = max(at - 30, 0)
    if start:
        # Begin with a whole word, where one begins before the difference.
        blank = text.find(" ", start, at)
        start = blank + 1 if blank >= 0 else start
    piece = text[start : start + _EXCERPT]
    dots = "…" if start + _EXCERPT < len(text) else ""
    if end is None:
        return f'"{"…" if start else ""}{one_line(piece, _EXCERPT)}{dots}"'
    cuts = (0, at - start, max(end - start, at - start), len(piece))
    before, changed, after = (_part(piece[cuts[n] : cuts[n + 1]]) for n in range(3))
    return f'"{_OPEN}{"…" if start else ""}{before}{_CLOSE}{changed}{_OPEN}{after}{dots}{_CLOSE}"'


def _part(text: str) -> str:
    """A part of one line, its blanks at both ends kept."""
    inner = one_line(text, _EXCERPT)
    return f"{' ' if text[:1].isspace() and inner else ''}{inner}{' ' if text[-1:].isspace() else ''}"


def first_difference(old: str, new: str) -> int:
    """Index of the first character that differs, or the length of the shorter text."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else "(not set)" if value is None else _compact(value), _EXCERPT)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bytes_line(recorded: bytes, requested: bytes) -> str:
    shorter = min(len(recorded), len(requested))
    at = next((at for at in range(0, shorter, 4096) if recorded[at : at + 4096] != requested[at : at + 4096]), shorter)
    while at < shorter and recorded[at] == requested[at]:
        at += 1
    return f"body differs at byte {at} (of {len(recorded)} recorded, {len(requested)} requested)"
