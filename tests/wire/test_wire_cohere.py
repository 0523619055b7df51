"""Cohere's two versions, and the readings that count input only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_examples import SSE, facts, render, render_lines

from pytest_fanout.records import Attempt, Endpoint, ToolCall
from pytest_fanout.wire import classify, read_call

V1 = "https://api.cohere.com/v1/chat"
V2 = "https://api.cohere.com/v2/chat"
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l"


def read(url: str, body: Any, request: Any = None, **headers: str) -> Attempt:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    attempt = read_call("POST", url, json.dumps(request or {}).encode(), 200, headers, data)
    assert attempt is not None
    return attempt


def start(at: int, name: str, text: str = "") -> list[Any]:
    call = {"id": f"id{at}", "type": "function", "function": {"name": name, "arguments": text}}
    return [{"type": "tool-call-start", "index": at, "delta": {"message": {"tool_calls": call}}}]


def piece(at: int, text: str) -> list[Any]:
    call = {"function": {"arguments": text}}
    return [{"type": "tool-call-delta", "index": at, "delta": {"message": {"tool_calls": call}}}]


END = [{"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}}]
A_AND_B = (ToolCall("id0", "a", '{"x":1}'), ToolCall("id1", "b", "{}"))


def test_pieces_of_two_tool_calls_may_take_turns() -> None:
    """Calls are told apart by index and keep its order."""
    events = [
        start(1, "b", "{"),
        start(0, "a"),
        piece(0, '{"x"'),
        piece(1, "}"),
        piece(0, ":1}"),
        piece(7, "lost"),
        END,
    ]
    attempt = read(V2, render(events))

    assert attempt.tool_calls == A_AND_B
    assert (attempt.status, attempt.usage_source, attempt.finish) == ("ok", "missing", "tool_calls")


def test_a_stream_that_was_left_early_keeps_its_calls() -> None:
    """Without message-end the call is incomplete, and its usage missing."""
    attempt = read(V2, render([start(0, "a", '{"x":1}')]))

    assert (attempt.status, attempt.usage_source, attempt.tool_calls) == ("incomplete", "missing", A_AND_B[:1])


def test_v1_tells_its_tools_before_the_end() -> None:
    """The event that asks for tools counts, where the last one does not repeat it; in events as in lines."""
    events = [
        {"event_type": "stream-start", "generation_id": "g"},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "a"}},
        {"event_type": "tool-calls-generation", "tool_calls": [{"name": "a", "parameters": {"x": 1}}]},
        {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"generation_id": "g", "text": ""}},
    ]
    lines = read(V1, render_lines(events), {"stream": True})
    sent = read(V1, render([[event] for event in events]), {"stream": True}, **SSE)

    assert lines == sent
    assert lines.tool_calls == (ToolCall(None, "a", '{"x":1}'),)
    assert (lines.finish, lines.response_id, lines.stream) == ("tool_calls", "g", True)


@pytest.mark.parametrize(
    ("raw", "finish", "status"),
    [
        ("COMPLETE", "stop", "ok"),
        ("STOP_SEQUENCE", "stop", "ok"),
        ("MAX_TOKENS", "length", "ok"),
        ("ERROR_LIMIT", "length", "ok"),
        ("ERROR_TOXIC", "content_filter", "ok"),
        ("USER_CANCEL", "cancelled", "ok"),
        ("ERROR", "error", "error"),
        ("TIMEOUT", "error", "error"),
        ("NEW", None, "ok"),
    ],
)
def test_why_cohere_stopped(raw: str, finish: str | None, status: str) -> None:
    """Cohere's words in ours; an error or a timeout is a call that failed."""
    attempt = read(V2, {"id": "x", "finish_reason": raw, "message": {"role": "assistant"}})

    assert (attempt.finish_raw, attempt.finish, attempt.status) == (raw, finish, status)


@pytest.mark.parametrize(
    ("url", "body", "headers"),
    [
        (V2, b'{"message": "invalid request"}', {}),
        (V1, b'{"message": "invalid request"}', {}),
        (V2, render([[{"message": "broke"}]]), SSE),
        (V2, b'{"type": "message-start"}\n{"message": "broke"}\n', {}),
    ],
)
def test_an_error_inside_a_200(url: str, body: bytes, headers: dict[str, str]) -> None:
    """Cohere's errors are a message and nothing else."""
    expected = {"status": "error", "finish": "error", "error_type": "error", "usage_source": "missing"}

    assert facts(read(url, body, **headers), *expected) == expected


def test_a_refusal_by_cohere_has_no_name() -> None:
    """The body holds words only."""
    attempt = read_call("POST", V2, b"{}", 429, {"retry-after": "2"}, b'{"id":"e","message":"slow down"}')

    expected = {"status": "error", "usage_source": "none", "error_type": None, "retry_after_s": 2.0}
    assert facts(attempt, *expected) == expected


def test_v1_keeps_its_prompt_in_the_history_too() -> None:
    """The preamble, or the system messages that open the history."""
    history = [{"role": "SYSTEM", "message": "You plan."}, {"role": "USER", "message": "Hi"}]
    request = {"model": "m", "message": "Hi", "chat_history": history, "connectors": [{"id": "web-search"}]}
    site = read(V1, b"{}", request).site

    assert site is not None
    assert (site.label, site.tools, site.model) == ("You plan.", ("web-search",), "m")


@pytest.mark.parametrize("value", ["many", -1, 2.5, True, float("nan"), 2**60])
def test_a_float_that_is_no_count_is_unknown(value: Any) -> None:
    """12.0 is twelve; anything that is no whole count is unknown, and noted."""
    usage = {"tokens": {"input_tokens": 12.0, "output_tokens": value}}
    attempt = read(V2, {"message": {}, "finish_reason": "COMPLETE", "usage": usage})

    expected = {"input_tokens": 12, "output_tokens": None, "usage_source": "partial", "notes": ("bad_usage",)}
    assert facts(attempt, *expected) == expected


@pytest.mark.parametrize(
    ("url", "api", "kind"),
    [
        ("https://api.cohere.com/v1/classify", "moderation", "moderate"),
        (f"{VERTEX}/endpoints/123:predict", "vertex.predict", "generate"),
        (f"{VERTEX}/publishers/google/models/text-embedding-x:predict", "embeddings", "embed"),
    ],
)
def test_which_urls_count_input_only(url: str, api: str, kind: str) -> None:
    """A model of one's own on Vertex may well generate; only its answer tells."""
    assert classify("POST", url) == Endpoint(api, kind)


EMBEDDED = {"embeddings": {"values": [0.1], "statistics": {"token_count": 6}}}


@pytest.mark.parametrize(
    ("url", "body", "expected"),
    [
        (
            f"{VERTEX}/endpoints/1:predict",
            {"predictions": [EMBEDDED]},
            {"kind": "embed", "input_tokens": 6, "notes": ()},
        ),
        (f"{VERTEX}/endpoints/1:predict", {"predictions": [0.4]}, {"kind": "generate", "notes": ("no_codec",)}),
        (
            f"{VERTEX}/publishers/google/models/m:predict",
            {"predictions": [EMBEDDED, {"embeddings": {}}]},
            {"kind": "embed", "input_tokens": None, "output_tokens": None, "usage_source": "missing"},
        ),
        (
            f"{VERTEX}/publishers/google/models/imagen-x:predict",
            {"predictions": [{"bytesBase64Encoded": "aGk="}]},
            {"kind": "embed", "input_tokens": None, "usage_source": "missing", "status": "ok"},
        ),
        (
            "https://h/v1/embeddings",
            {"data": [], "usage": {"total_tokens": 4}},
            {"input_tokens": 4, "output_tokens": 0},
        ),
        ("https://h/v1/embeddings", [], {"status": "incomplete", "usage_source": "missing"}),
    ],
)
def test_input_is_counted_where_it_is_told(url: str, body: Any, expected: dict[str, Any]) -> None:
    """Sums are known only when all their parts are; pictures and plain numbers have no tokens."""
    assert facts(read(url, body), *expected) == expected


ANTHROPIC = {
    "type": "message",
    "content": [],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (json.dumps(ANTHROPIC).encode(), {"input_tokens": 3, "output_tokens": 1, "status": "ok", "notes": ()}),
        (
            render([["message_start", {"type": "message_start", "message": ANTHROPIC}]]),
            {"input_tokens": 3, "status": "incomplete", "usage_source": "partial"},
        ),
        (
            render([[{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}], ["[DONE]"]]),
            {"status": "ok", "usage_source": "missing", "finish": "stop"},
        ),
        (b'{"error": {"status": "INVALID"}}', {"status": "error", "error_type": "INVALID"}),
        (b'{"outputs": ["Hi"]}', {"status": "ok", "usage_source": "missing", "notes": ("no_codec",)}),
        (b"[1]", {"status": "ok", "usage_source": "missing", "notes": ("no_codec",)}),
        (b"hello", {"status": "incomplete", "notes": ("unreadable_body",)}),
    ],
)
def test_other_publishers_on_vertex(body: bytes, expected: dict[str, Any]) -> None:
    """Shapes that are known are read; any other is counted, and the note says that nobody read it."""
    assert facts(read(f"{VERTEX}/publishers/acme/models/m:rawPredict", body), *expected) == expected


def test_what_is_asked_of_other_publishers() -> None:
    """The prompt is found where the family keeps it; the model stands in the URL."""
    url = f"{VERTEX}/publishers/acme/models/m:rawPredict"
    bodies = (
        {"anthropic_version": "vertex", "system": "You plan."},
        {"messages": [{"role": "system", "content": "You plan."}]},
    )
    sites = [read(url, b"{}", body).site for body in bodies]

    assert [site.label for site in sites if site is not None] == ["You plan."] * 2
    assert [site.model for site in sites if site is not None] == ["m"] * 2
    assert read(url, b"{}", {"instances": []}).site is None
