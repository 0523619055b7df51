"""Nothing that comes over the wire breaks the readers, and a stream says what the same answer in one piece says."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_examples import EXAMPLES, SSE, Example, render

from pytest_fanout.records import Attempt
from pytest_fanout.wire import classify, estimate, read_call

URLS = sorted({example.url for example in EXAMPLES.values()})
OF_API: dict[str, list[Example]] = {}
for one in (example for example in EXAMPLES.values() if example.form not in ("frames", "chunks")):
    OF_API.setdefault(str(classify("POST", one.url).api), []).append(one)
APIS = sorted(OF_API)
EXAMPLE = st.sampled_from(sorted(EXAMPLES.values(), key=lambda example: example.id))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([[], {}, [1, None], [[{}]], {"": {"": ""}}]),
    st.sampled_from([2**53, 2**53 + 1, 10**400, 1e308, float("nan"), float("-inf"), "\ud800", "a\x00\u2028"]),
)
STATUS = st.one_of(st.none(), st.sampled_from([200, 200, 200, 201, 204, 307, 429, 500, 0, -1]))


def check(attempt: Attempt | None) -> None:
    """An attempt is whole: no reader failed, and no field has a value that its record does not allow."""
    assert attempt is not None
    assert "codec_error" not in attempt.notes
    assert attempt.status in ("ok", "error", "incomplete", "pending")
    assert attempt.usage_source in ("final", "partial", "missing", "none")
    counts = (attempt.input_tokens, attempt.output_tokens, attempt.cached_input_tokens, attempt.reasoning_tokens)
    assert all(count is None or (type(count) is int and count >= 0) for count in counts)
    assert (attempt.usage_source in ("missing", "none")) == (counts[:2] == (None, None))
    assert repr(attempt).encode("utf-8")
    hash((attempt.tool_calls, attempt.tool_results_in, attempt.site))


@given(st.sampled_from(URLS), st.binary(), STATUS, st.binary(), st.sampled_from([{}, SSE]))
def test_any_bytes(url: str, request: bytes, status: int | None, body: bytes, headers: dict[str, str]) -> None:
    """Noise as request and as answer gives an attempt all the same."""
    check(read_call("POST", url, request, status, headers, body))


@given(EXAMPLE, STATUS, st.data())
def test_any_bytes_inside_an_answer(example: Example, status: int | None, data: st.DataObject) -> None:
    """A real answer with noise in the middle gives an attempt."""
    start = data.draw(st.integers(0, len(example.body)))
    end = data.draw(st.integers(start, min(start + 50, len(example.body))))
    body = example.body[:start] + data.draw(st.binary(max_size=20)) + example.body[end:]

    check(read_call("POST", example.url, example.request, status, example.headers, body))


def paths(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [at] + [path for key, value in inner for path in paths(value, (*at, key))]


def mutated(document: Any, data: st.DataObject) -> Any:
    """A document in which up to three values, or the whole, have become something else."""
    changed = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(changed)))
        value = copy.deepcopy(data.draw(SCALARS))
        if not path:
            return value
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value
    return changed


#: How the lines begin that hold JSON: in a stream of events, of lines, and in a document.
STARTS = (b"data: {", b"{", b"[")
REQUEST = {
    "model": "m",
    "stream": True,
    "system": [{"type": "text", "text": "s"}],
    "instructions": "s",
    "previous_response_id": "r",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
    ],
    "input": [{"role": "developer", "content": "s"}, {"type": "function_call_output", "call_id": "c"}],
    "tools": [{"name": "f", "type": "mcp", "server_label": "l", "function": {"name": "g"}, "custom": {"name": "h"}}],
    "functions": [{"name": "f"}],
    "mcp_servers": [{"name": "f"}],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "contents": [{"role": "user", "parts": [{"text": "x"}, {"functionResponse": {"name": "f", "response": {"a": 1}}}]}],
    "cachedContent": "c",
    "continuationToken": "t",
    "inputs": [{"type": "function.result", "tool_call_id": "c"}],
    "questions": {"q": {"type": "choice"}},
}


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_value_in_any_place(api: str, data: st.DataObject) -> None:
    """A real answer or request in which some values have another type or size gives an attempt, of each API."""
    example = data.draw(st.sampled_from(OF_API[api]))
    request = json.dumps(mutated(REQUEST, data)).encode()
    lines = example.body.split(b"\n")
    at = data.draw(st.sampled_from([at for at, line in enumerate(lines) if line.startswith(STARTS)]))
    head = b"data: " if lines[at].startswith(b"data: ") else b""
    lines[at] = head + json.dumps(mutated(json.loads(lines[at].removeprefix(head)), data)).encode()
    body = b"\n".join(lines)

    check(read_call("POST", example.url, request, 200, example.headers, body))


@given(EXAMPLE, st.data())
def test_any_order_of_a_stream(example: Example, data: st.DataObject) -> None:
    """Lines that are missing, repeated or out of order give an attempt, whatever the headers say of them."""
    lines = example.body.split(b"\n")
    some = data.draw(st.lists(st.sampled_from(lines), max_size=2 * len(lines)))
    headers = data.draw(st.sampled_from([{}, SSE, example.headers]))

    check(read_call("POST", example.url, example.request, 200, headers, b"\n".join(some)))


@given(EXAMPLE, st.data())
def test_any_estimate(example: Example, data: st.DataObject) -> None:
    """With a tokenizer at hand, noise in request and answer gives an attempt, and at most an estimate of both sides."""
    request = json.dumps(mutated(REQUEST, data)).encode()
    start = data.draw(st.integers(0, len(example.body)))
    body = example.body[:start] + data.draw(st.binary(max_size=20)) + example.body[start:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "tokenizer", lambda: len)
        attempt = read_call("POST", example.url, request, 200, example.headers, body)

    assert attempt is not None
    if attempt.usage_source != "estimated":
        return check(attempt)
    assert attempt.input_tokens
    assert attempt.output_tokens
    return check(replace(attempt, usage_source="final"))


COUNT = st.integers(0, 2000)
TOOL = st.tuples(st.text(min_size=1, max_size=5), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
TOOLS = st.lists(TOOL, max_size=3)


def cut(text: str, data: st.DataObject) -> list[str]:
    """A text in pieces, at least one."""
    marks = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def both(url: str, document: Any, events: list[list[Any]]) -> tuple[Attempt, Attempt]:
    whole = read_call("POST", url, b"", 200, {}, json.dumps(document).encode())
    streamed = read_call("POST", url, b"", 200, SSE, render(events))
    assert whole is not None
    assert streamed is not None
    assert streamed.stream
    assert whole.status == "ok"
    return whole, replace(streamed, stream=False)


@given(TOOLS, COUNT, COUNT, st.sampled_from(["stop", "length", "tool_calls"]), st.data())
def test_chat_streamed_equals_whole(tools: Any, prompt: int, made: int, finish: str, data: st.DataObject) -> None:
    """A1: a chat answer in chunks, with arguments in pieces that take turns, is the record of the same answer whole."""
    usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    calls = [
        {"id": f"id{at}", "function": {"name": name, "arguments": compact(value)}}
        for at, (name, value) in enumerate(tools)
    ]
    head = {"id": "c", "model": "m"}
    document = {
        **head,
        "usage": usage,
        "choices": [{"index": 0, "message": {"tool_calls": calls}, "finish_reason": finish}],
    }
    opened = [
        [{"index": at, "id": call["id"], "function": {"name": call["function"]["name"], "arguments": ""}}]
        for at, call in enumerate(calls)
    ]
    rows = [[(at, piece) for piece in cut(call["function"]["arguments"], data)] for at, call in enumerate(calls)]
    turns = [row[n] for n in range(4) for row in rows if n < len(row)]
    fragments = [*opened, *([{"index": at, "function": {"arguments": piece}}] for at, piece in turns)]
    events: list[list[Any]] = [
        [{**head, "choices": [{"index": 0, "delta": {"tool_calls": f}, "finish_reason": None}]}] for f in fragments
    ]
    events.append([{**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": None}])
    events += [[{**head, "choices": [], "usage": usage}], ["[DONE]"]]
    whole, streamed = both("https://api.openai.com/v1/chat/completions", document, events)

    assert streamed == whole


@given(TOOLS, COUNT, COUNT, st.booleans())
def test_responses_streamed_equals_whole(tools: Any, given: int, made: int, repeats_output: bool) -> None:
    """A response told in events is the record of the same response whole, also if the last event has no output."""
    usage = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    items = [
        {"type": "function_call", "call_id": f"id{at}", "name": name, "arguments": compact(value)}
        for at, (name, value) in enumerate(tools)
    ]
    head = {"id": "r", "model": "m"}
    document = {**head, "status": "completed", "output": items, "usage": usage}
    events: list[list[Any]] = [
        ["response.created", {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}]
    ]
    for at, item in reversed(list(enumerate(items))):
        added = {**item, "arguments": ""}
        events.append([{"type": "response.output_item.added", "output_index": at, "item": added}])
        events.append(
            [{"type": "response.function_call_arguments.delta", "output_index": at, "delta": item["arguments"]}]
        )
        events.append([{"type": "response.output_item.done", "output_index": at, "item": item}])
    last = document if repeats_output else {**document, "output": []}
    events.append(["response.completed", {"type": "response.completed", "response": last}])
    whole, streamed = both("https://api.openai.com/v1/responses", document, events)

    assert streamed == whole


@given(TOOLS, COUNT, COUNT, COUNT, st.data())
def test_messages_streamed_equals_whole(tools: Any, fresh: int, cached: int, made: int, data: st.DataObject) -> None:
    """A message told in blocks and pieces is the record of the same message whole, however its JSON is spaced."""
    usage = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": made}
    blocks = [
        {"type": "tool_use", "id": f"id{at}", "name": name, "input": value} for at, (name, value) in enumerate(tools)
    ]
    head = {"id": "msg", "model": "m", "type": "message"}
    document = {**head, "content": blocks, "stop_reason": "tool_use", "usage": usage}
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[list[Any]] = [["message_start", {"type": "message_start", "message": start}]]
    for at, block in enumerate(blocks):
        opened = {**block, "input": {}}
        events.append([{"type": "content_block_start", "index": at, "content_block": opened}])
        for piece in cut(json.dumps(block["input"], ensure_ascii=False), data) if block["input"] else []:
            step = {"type": "input_json_delta", "partial_json": piece}
            events.append([{"type": "content_block_delta", "index": at, "delta": step}])
    delta = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": made}}
    events += [["message_delta", delta], ["ping", {"type": "ping"}], ["message_stop", {"type": "message_stop"}]]
    whole, streamed = both("https://api.anthropic.com/v1/messages", document, events)

    assert streamed == whole


@pytest.mark.parametrize("url", URLS)
def test_depth_and_length_cost_nothing_but_time(url: str) -> None:
    """Deep nesting, as request, as answer and inside an answer, is no failure."""
    deep = (
        b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":'
        + b"[" * 900
        + b"]" * 900
        + b"}}]}}]}"
    )
    for body in (deep, b'{"content":' * 5000, b'{"messages":' + b"[" * 950 + b"]" * 950 + b"}"):
        check(read_call("POST", url, body, 200, {}, body))
        check(read_call("POST", url, body, 200, SSE, b"data: " + body + b"\n\n"))
