"""Each API says the same streamed and in one piece: whatever it asks for, however its pieces are cut."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_wire_fuzz import COUNT, TOOLS, both, compact, cut
from wire_examples import LINES

from pytest_fanout.wire import read_call

GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:"
INTERACTIONS = "https://generativelanguage.googleapis.com/v1beta/interactions"
OLLAMA = "http://localhost:11434/api/chat"
MISTRAL = "https://api.mistral.ai/v1/conversations"


@settings(max_examples=30)
@given(TOOLS, COUNT, COUNT, COUNT, st.data())
def test_gemini(tools: Any, given: int, made: int, thought: int, data: st.DataObject) -> None:
    """Events, one JSON array, or one document: parts in one chunk or several, usage growing from chunk to chunk."""
    usage = {"promptTokenCount": given, "candidatesTokenCount": made, "thoughtsTokenCount": thought}
    usage["totalTokenCount"] = sum(usage.values())
    parts = [{"functionCall": {"name": name, "args": value}} for name, value in tools] or [{"text": "a"}]
    head = {"responseId": "r", "modelVersion": "m"}

    def chunk(some: list[Any], finish: str | None, counts: Any) -> dict[str, Any]:
        said = {"index": 0, "content": {"role": "model", "parts": some}}
        return {**head, "candidates": [{**said, "finishReason": finish} if finish else said], "usageMetadata": counts}

    marks = sorted(data.draw(st.lists(st.integers(0, len(parts)), max_size=2)))
    rows = [parts[a:b] for a, b in zip([0, *marks], [*marks, len(parts)], strict=True)]
    partly = {**usage, "candidatesTokenCount": made // 2}
    chunks = [chunk(row, None, partly) for row in rows] + [chunk([], "STOP", usage)]
    whole, streamed = both(GEMINI + "generateContent", chunk(parts, "STOP", usage), [[one] for one in chunks])
    array = read_call("POST", GEMINI + "streamGenerateContent", b"", 200, {}, json.dumps(chunks).encode())

    assert streamed == whole
    assert array is not None
    assert array.stream
    assert replace(array, stream=False) == whole


@settings(max_examples=30)
@given(TOOLS, COUNT, COUNT, st.booleans(), st.data())
def test_interactions(tools: Any, given: int, made: int, repeats_steps: bool, data: st.DataObject) -> None:
    """Steps told one after the other, their arguments in pieces, also when the last event tells no steps."""
    usage = {"total_input_tokens": given, "total_output_tokens": made, "total_tokens": given + made}
    steps = [
        {"type": "function_call", "id": f"id{at}", "name": name, "arguments": value}
        for at, (name, value) in enumerate(tools)
    ]
    document = {"id": "i", "model": "m", "status": "completed", "steps": steps, "usage": usage}
    events: list[list[Any]] = []
    for at, step in enumerate(steps):
        events.append([{"event_type": "step.start", "index": at, "step": {**step, "arguments": {}}}])
        for piece in cut(compact(step["arguments"]), data):
            delta = {"type": "arguments_delta", "arguments": piece}
            events.append([{"event_type": "step.delta", "index": at, "delta": delta}])
    last = document if repeats_steps else {**document, "steps": []}
    events.append([{"event_type": "interaction.completed", "interaction": last}])
    whole, streamed = both(INTERACTIONS, document, events)

    assert streamed == whole


@settings(max_examples=30)
@given(TOOLS, COUNT, COUNT, st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
def test_ollama(tools: Any, given: int, made: int, end: bytes) -> None:
    """Lines that each ask for one tool, or one document that asks for all of them."""
    calls = [{"function": {"name": name, "arguments": value}} for name, value in tools]
    counts = {"done": True, "done_reason": "stop", "prompt_eval_count": given, "eval_count": made}
    lines: list[Any] = [
        {"model": "m", "message": {"content": "", "tool_calls": [call]}, "done": False} for call in calls
    ]
    lines.append({"model": "m", "message": {"content": ""}, **counts})
    document = {"model": "m", "message": {"content": "", "tool_calls": calls}, **counts}
    whole = read_call("POST", OLLAMA, b"", 200, {}, json.dumps(document, indent=1).encode())
    streamed = read_call("POST", OLLAMA, b"", 200, LINES, end.join(json.dumps(line).encode() for line in lines))

    assert whole is not None
    assert whole.status == "ok"
    assert streamed == whole


@settings(max_examples=30)
@given(TOOLS, COUNT, COUNT, COUNT, st.data())
def test_conversations(tools: Any, given: int, made: int, connected: int, data: st.DataObject) -> None:
    """Function calls in pieces that take turns, and runs of hosted tools that are told at their start and end."""
    usage = {"prompt_tokens": given, "completion_tokens": made, "connector_tokens": connected}
    usage["total_tokens"] = given + made + connected
    calls = [
        {"type": "function.call", "tool_call_id": f"id{at}", "name": name, "arguments": compact(value)}
        for at, (name, value) in enumerate(tools)
    ]
    run = {"id": "t1", "name": "web_search", "arguments": ""}
    document = {"conversation_id": "c", "outputs": [{**run, "type": "tool.execution"}, *calls], "usage": usage}
    rows = [
        [{**call, "type": "function.call.delta", "arguments": p} for p in cut(call["arguments"], data)]
        for call in calls
    ]
    events: list[list[Any]] = [[{"type": "conversation.response.started", "conversation_id": "c"}]]
    events += [[{**run, "type": f"tool.execution.{when}"}] for when in ("started", "done")]
    events += [[row[n]] for n in range(4) for row in rows if n < len(row)]
    events.append([{"type": "conversation.response.done", "usage": usage}])
    whole, streamed = both(MISTRAL, document, events)

    assert streamed == replace(whole, tool_calls=streamed.tool_calls)
    assert sorted(map(str, streamed.tool_calls)) == sorted(map(str, whole.tool_calls))
