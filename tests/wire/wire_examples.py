"""The worked examples as bytes: payloads of the real shapes, with the numbers that are right for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from aws_frames import CONTENT_TYPE, chunks, frames

from pytest_fanout.records import Attempt, SideCall, ToolCall

SSE = {"Content-Type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
DEFAULTS: dict[str, Any] = {
    "kind": "generate",
    "status": "ok",
    "choices": 1,
    "usage_source": "missing",
    "input_tokens": None,
    "cached_input_tokens": None,
    "cache_write_tokens": None,
    "output_tokens": None,
    "reasoning_tokens": None,
    "tool_calls": (),
    "server_tool_calls": {},
    "side_calls": (),
    "notes": (),
    "finish": None,
}


@dataclass(frozen=True)
class Example:
    """One exchange and what must be read from it. ``form``: document, events, lines, frames or chunks."""

    id: str
    url: str
    request: bytes
    headers: dict[str, str]
    body: bytes
    expect: dict[str, Any]
    form: str = "document"


def render(events: list[list[Any]]) -> bytes:
    """Events ([name, data] or [data]) as the bytes of a stream."""
    lines: list[str] = []
    for event in events:
        data = event[-1] if isinstance(event[-1], str) else json.dumps(event[-1])
        lines += [f"event: {event[0]}"] if len(event) == 2 else []
        lines += [f"data: {data}", ""]
    return "\n".join([*lines, ""]).encode()


def render_lines(documents: list[Any]) -> bytes:
    """Lines of JSON, each a document of its own."""
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


_FORMS: dict[str, tuple[dict[str, str], Callable[[Any], bytes]]] = {
    "document": (JSON, lambda document: json.dumps(document).encode()),
    "events": (SSE, render),
    "lines": (LINES, render_lines),
    "frames": (CONTENT_TYPE, frames),
    "chunks": (CONTENT_TYPE, chunks),
}


def load_examples() -> dict[str, Example]:
    found = {}
    for entry in json.loads((Path(__file__).parent / "worked_examples.json").read_text(encoding="utf-8")):
        form = next(form for form in _FORMS if form in entry)
        headers, write = _FORMS[form]
        expect = DEFAULTS | entry["expect"]
        expect["tool_calls"] = tuple(ToolCall(**call) for call in expect["tool_calls"])
        expect["side_calls"] = tuple(SideCall(**call) for call in expect["side_calls"])
        expect["notes"] = tuple(expect["notes"])
        found[entry["id"]] = Example(
            entry["id"],
            entry["url"],
            json.dumps({"model": "asked-x", "messages": [], **entry["request"]}).encode(),
            headers | entry.get("headers", {}),
            write(entry[form]),
            expect,
            form,
        )
    return found


EXAMPLES = load_examples()


def facts(attempt: Attempt | None, *names: str) -> dict[str, Any]:
    """The named fields of an attempt (all without names)."""
    assert attempt is not None
    return {name: getattr(attempt, name) for name in names or [f.name for f in fields(Attempt)]}
