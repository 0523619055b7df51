"""The worked examples as bytes: payloads of the real shapes, with the numbers that are right for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

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
    """One exchange and what must be read from it."""

    id: str
    url: str
    request: bytes
    headers: dict[str, str]
    body: bytes
    expect: dict[str, Any]


def render(events: list[list[Any]]) -> bytes:
    """Events ([name, data] or [data]) as the bytes of a stream."""
    lines: list[str] = []
    for event in events:
        data = event[-1] if isinstance(event[-1], str) else json.dumps(event[-1])
        lines += [f"event: {event[0]}"] if len(event) == 2 else []
        lines += [f"data: {data}", ""]
    return "\n".join([*lines, ""]).encode()


def render_answer(entry: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Headers and body: a stream of events, lines of JSON, or one document."""
    if "events" in entry:
        return SSE, render(entry["events"])
    if "lines" in entry:
        return LINES, b"".join(json.dumps(line).encode() + b"\n" for line in entry["lines"])
    return JSON, json.dumps(entry["document"]).encode()


def load_examples() -> dict[str, Example]:
    found = {}
    for entry in json.loads((Path(__file__).parent / "worked_examples.json").read_text(encoding="utf-8")):
        headers, body = render_answer(entry)
        expect = DEFAULTS | entry["expect"]
        expect["tool_calls"] = tuple(ToolCall(**call) for call in expect["tool_calls"])
        expect["side_calls"] = tuple(SideCall(**call) for call in expect["side_calls"])
        expect["notes"] = tuple(expect["notes"])
        found[entry["id"]] = Example(
            entry["id"],
            entry["url"],
            json.dumps({"model": "asked-x", "messages": [], **entry["request"]}).encode(),
            headers,
            body,
            expect,
        )
    return found


EXAMPLES = load_examples()


def facts(attempt: Attempt | None, *names: str) -> dict[str, Any]:
    """The named fields of an attempt (all without names)."""
    assert attempt is not None
    return {name: getattr(attempt, name) for name in names or [f.name for f in fields(Attempt)]}
