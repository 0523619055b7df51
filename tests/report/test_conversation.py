"""A recording as a reviewer reads it: what was new in each call, what it heard, the tools in their place."""

from __future__ import annotations

import json
from typing import Any

from pytest_fanout.meter.samples import turns_of
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest, Recording
from pytest_fanout.report.conversation import conversation

JSON = (("content-type", "application/json"),)
SYSTEM = {"role": "system", "content": "You are a shop.\nBe polite."}
ASKED = {"role": "user", "content": "The price of \x1b[31m1?"}
TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "lookup", "arguments": '{"sku": 1}'}}
CALLS_TOOL = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "3 EUR"}
TOOLS = [{"type": "function", "function": {"name": "lookup"}}]


def chat(at: int, messages: list[Any], said: dict[str, Any], *, bucket: str = "agent", **more: Any) -> Exchange:
    """A call of 60 ms that was sent at ``at`` ms and counted 10 tokens in and 3 out."""
    body = json.dumps({"model": "gpt-x", "messages": messages, **more}).encode()
    request = HttpRequest("POST", "https://api.openai.com/v1/chat/completions", JSON, body)
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if said.get("tool_calls") else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    answer = json.dumps({"model": "gpt-x-2026", "choices": [choice], "usage": usage}).encode()
    return Exchange(at, "httpx2", "model", bucket, request, HttpAnswer(200, JSON, (answer,), (60,), 60), at)


def text(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def failed(like: Exchange, at: int, status: int | None, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
    """The request of another exchange, answered with an error after 12 ms, or broken off."""
    body = b'{"error": {"type": "rate_limit_error", "message": "slow"}}' if status else b""
    outcome, error = ("complete", None) if status else ("error", "ConnectError")
    answer = HttpAnswer(status, JSON + headers, (body,) if body else (), (12,) if body else (), 12, outcome, error)
    return Exchange(at, "httpx2", "model", "agent", like.request, answer, at)


def tool(at: int, layer: str, method: str, url: str, body: bytes, answer: bytes) -> Exchange:
    heard = HttpAnswer(200, JSON, (answer,), (2,), 2)
    return Exchange(at, layer, "tool", "agent", HttpRequest(method, url, (), body), heard, at)


def shown(*exchanges: Exchange, full: bool = False) -> list[str]:
    """The lines after the four of the head."""
    recording = Recording(
        "support", "refund", 2, None, 1_700_000_000, 1234, "ok", True, exchanges, ("gpt-x",), ("gpt-x-2026",), 3,
        digest="sha256:00",
    )  # fmt: skip
    lines = list(conversation(recording, turns_of(exchanges), full=full))
    assert lines[:2] == [
        "support::refund, trial 2",
        "recorded 2023-11-14 22:13 UTC, draw 3, 1234 ms, ok, passed",
    ]
    assert lines[3] == "sha256:00   #: number of the request in the trial"
    return [lines[2], *lines[4:]]


def test_a_conversation_with_a_retry_a_tool_and_a_grader() -> None:
    """The prompt once; then only what is new; failures, tools and calls beside the agent's in their place."""
    first = chat(1000, [SYSTEM, ASKED], CALLS_TOOL, tools=TOOLS)
    lines = shown(
        failed(first, 0, 429, (("retry-after", "1"),)),
        first,
        tool(1100, "recorded", "CALL", "recorded:///shop.tools.lookup", b'{"sku":1}', b'{"returned":"3 EUR"}'),
        tool(1150, "mcp", "RPC", "mcp:///stock/tools%2Fcall", b'{"method":"tools/call"}', b'{"result":{}}'),
        tool(1160, "httpx2", "GET", "https://shop.example/stock?sku=1", b"", b'{"stock":4}'),
        chat(1200, [SYSTEM, ASKED, CALLS_TOOL, RESULT], text("It is 3 EUR."), tools=TOOLS),
        chat(1300, [{"role": "user", "content": "grade"}], text("good"), bucket="judge"),
    )

    assert lines == [
        "2 model calls in 3 attempts, 3 other requests; asked for gpt-x, served by gpt-x-2026",
        "",
        "call 1  #1, 2, at 0 ms, openai.chat by httpx2",
        "  asked for gpt-x, served by gpt-x-2026: ok, finish tool_calls; tokens 10 in, 3 out; 60 ms",
        "  attempt 1 at 0 ms: ERROR, HTTP 429, rate_limit_error, retry after 1 s; 12 ms",
        "  attempt 2 at 1000 ms: ok, finish tool_calls; 60 ms",
        "  system:",
        "      You are a shop.",
        "      Be polite.",
        "  tools: lookup",
        '    lookup: {"function":{"name":"lookup"},"type":"function"}',
        "  user: The price of \\x1b[31m1?",
        '  -> tool call lookup: {"sku": 1}',
        "",
        "recorded function shop.tools.lookup  #3, at 1100 ms, by recorded",
        '  request: {"sku":1}',
        '  -> 200, 2 ms: {"returned":"3 EUR"}',
        "",
        "MCP stock: tools/call  #4, at 1150 ms, by mcp",
        '  request: {"method":"tools/call"}',
        '  -> 200, 2 ms: {"result":{}}',
        "",
        "request GET https://shop.example/stock?sku=1  #5, at 1160 ms, by httpx2",
        '  -> 200, 2 ms: {"stock":4}',
        "",
        "call 2  #6, at 1200 ms, openai.chat by httpx2",
        "  asked for gpt-x, served by gpt-x-2026: ok, finish stop; tokens 10 in, 3 out; 60 ms",
        "  assistant: (the answer of call 1)",
        "  tool: 3 EUR",
        "  -> answer: It is 3 EUR.",
        "",
        "aside call (judge, no fanout)  #7, at 1300 ms, openai.chat by httpx2",
        "  asked for gpt-x, served by gpt-x-2026: ok, finish stop; tokens 10 in, 3 out; 60 ms",
        "  tools: none",
        "  user: grade",
        "  -> answer: good",
    ]


def test_each_of_two_conversations_goes_on_from_its_own_call() -> None:
    """With agents side by side, what is new is told against the call that a request really continues."""
    one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    more = {"role": "user", "content": "more"}
    lines = shown(
        chat(0, [SYSTEM, one], text("1")),
        chat(100, [{"role": "system", "content": "Other."}, two], text("2")),
        chat(200, [SYSTEM, one, text("1"), more], text("3")),
    )

    last = lines[lines.index("call 3  #3, at 200 ms, openai.chat by httpx2") :]
    assert last[2:] == [
        "  goes on from call 1",
        "  assistant: (the answer of call 1)",
        "  user: more",
        "  -> answer: 3",
    ]


def test_a_rewritten_history_is_told() -> None:
    """An agent that drops or rewrites earlier turns (compaction) is seen to do so."""
    turns = [{"role": "user", "content": word} for word in "abc"]
    lines = shown(chat(0, turns, text("1")), chat(100, [turns[0], text("summary")], text("2")))

    assert "  REWRITTEN: the first 1 messages are those of call 1, its other 2 are gone" in lines
    assert lines[-2:] == ["  assistant: summary", "  -> answer: 2"]


def test_a_new_system_prompt_and_new_tools_are_shown_again() -> None:
    """Only those that no call before has had."""
    user = {"role": "user", "content": "hi"}
    added = {"type": "function", "function": {"name": "refund"}}
    lines = shown(
        chat(0, [SYSTEM, user], text("1"), tools=TOOLS),
        chat(100, [{"role": "system", "content": "Today is Monday."}, user], text("2"), tools=[*TOOLS, added]),
    )

    second = lines[lines.index("call 2  #2, at 100 ms, openai.chat by httpx2") :]
    assert second[2:] == [
        "  system: Today is Monday.",
        "  tools: lookup, refund",
        '    refund: {"function":{"name":"refund"},"type":"function"}',
        "  -> answer: 2",
    ]


def test_long_texts_are_cut_with_a_note() -> None:
    """1,200 characters and 20 lines are shown of a text; --full shows all of it."""
    by_length, by_lines = "x" * 1300, "\n".join("abcdefghij" for _ in range(25))
    call = chat(0, [{"role": "user", "content": by_length}], text(by_lines))
    short, full = shown(call), shown(call, full=True)

    assert "      [100 more characters: --full shows all]" in short
    # 25 lines of 10 characters and 24 line feeds are 274; the first 20 lines with 19 line feeds are 219
    assert short[-1] == "      [55 more characters: --full shows all]"
    assert f"  user: {by_length}" in full
    assert not any("--full" in line for line in full)


def test_what_was_broken_off_is_shown_as_such() -> None:
    """A call that no model answered is no fanout; a tool that failed says how."""
    ask = chat(0, [{"role": "user", "content": "hi"}], text("x"))
    broken = HttpAnswer(None, (), (), (), 7, "error", "ReadTimeout")
    lines = shown(
        failed(ask, 0, None),
        Exchange(1, "httpx2", "tool", "agent", HttpRequest("GET", "https://shop.example/", (), b""), broken, 50),
    )

    assert lines == [
        "0 model calls in 1 attempt, 1 other request; asked for gpt-x, served by gpt-x-2026",
        "",
        "call that reached no model  #1, at 0 ms, openai.chat by httpx2",
        "  asked for gpt-x, served by unknown: ERROR, broken off: ConnectError; no tokens; 12 ms",
        "  user: hi",
        "  -> no answer",
        "",
        "request GET https://shop.example/  #2, at 50 ms, by httpx2",
        "  BROKEN OFF: ReadTimeout; 7 ms",
        "  -> no status, 7 ms",
    ]


def test_a_time_that_no_calendar_has() -> None:
    """A recording that claims it is shown all the same."""
    recording = Recording("support", "refund", 1, None, 2**60, 5, "ok", True, (), (), ())

    assert list(conversation(recording, []))[1].startswith("recorded at an unknown time, ")
