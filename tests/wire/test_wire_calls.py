"""What else an attempt says: how the call ended, which tools it asked for, what it was asked, and where from."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from wire_examples import SSE, facts, render

from pytest_fanout.records import ToolCall
from pytest_fanout.wire import read_call

CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"


def delta(**delta: Any) -> list[Any]:
    return [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]


@pytest.mark.parametrize(
    ("url", "status", "headers", "body", "error_type", "retry_after_s"),
    [
        (
            CHAT,
            429,
            {"Retry-After": "2"},
            {"error": {"message": "m", "type": "tokens", "code": "rate_limit_exceeded"}},
            "rate_limit_exceeded",
            2.0,
        ),
        (
            CHAT,
            429,
            [("retry-after-ms", "1500"), ("retry-after", "2")],
            {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}},
            "insufficient_quota",
            1.5,
        ),
        (CHAT, 400, {}, {"error": {"type": "invalid_request_error", "code": None}}, "invalid_request_error", None),
        (MESSAGES, 529, {}, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error", None),
        (CHAT, 400, {}, {"object": "error", "type": "BadRequestError", "code": 400}, "BadRequestError", None),
        (CHAT, 502, {}, {"error": {"code": 502, "message": "m"}}, "502", None),
        (CHAT, 404, {}, {"error": "model not found"}, "error", None),
        (CHAT, 500, {}, {"detail": "x"}, None, None),
        (CHAT, 429, {"retry-after": "nan"}, {}, None, None),
        (CHAT, 429, {"retry-after": "-1"}, {}, None, None),
        (CHAT, 429, {"retry-after": "soon"}, {}, None, None),
        (
            CHAT,
            503,
            {"Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT", "Date": "Sun, 29 Nov 2026 10:00:00 GMT"},
            {},
            None,
            30.0,
        ),
        (CHAT, 503, {"Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT"}, {}, None, None),
    ],
)
def test_a_refused_call_names_its_error(
    url: str, status: int, headers: Any, body: Any, error_type: str | None, retry_after_s: float | None
) -> None:
    """An HTTP error is an attempt that used nothing; its name and the wait it asks for are kept."""
    attempt = read_call("POST", url, b"{}", status, headers, json.dumps(body).encode())

    expected = {
        "status": "error",
        "usage_source": "none",
        "http_status": status,
        "error_type": error_type,
        "retry_after_s": retry_after_s,
        "input_tokens": None,
    }
    assert facts(attempt, *expected) == expected


def test_no_response_is_an_error_without_usage() -> None:
    """A transport error before the response: nothing was used, and what was asked is still known."""
    attempt = read_call("POST", CHAT, b'{"model": "m"}', None, None, b"")

    expected = {"status": "error", "usage_source": "none", "http_status": None, "model_requested": "m"}
    assert facts(attempt, *expected) == expected


@pytest.mark.parametrize(
    ("url", "headers", "body", "error_type"),
    [
        (CHAT, {}, json.dumps({"error": {"code": 502, "message": "m"}}).encode(), "502"),
        (CHAT, {}, json.dumps({"choices": [{"error": {"code": "x"}, "finish_reason": "error"}]}).encode(), "x"),
        (CHAT, SSE, render([delta(content="a"), [{"error": {"type": "server_error"}}]]), "server_error"),
        (CHAT, SSE, render([delta(content="a")]) + b'{"error": {"type": "bare"}}\n', "bare"),
        (RESPONSES, SSE, render([["error", {"type": "error", "code": "server_error"}]]), "server_error"),
        (RESPONSES, {}, json.dumps({"status": "failed", "error": {"code": "e"}}).encode(), "e"),
        (RESPONSES, {}, json.dumps({"error": {"type": "t"}}).encode(), "t"),
        (
            MESSAGES,
            SSE,
            render([["error", {"type": "error", "error": {"type": "overloaded_error"}}]]),
            "overloaded_error",
        ),
        (MESSAGES, SSE, b"event: error\ndata: overloaded\n\n", None),
        (MESSAGES, {}, json.dumps({"type": "error", "error": {"type": "api_error"}}).encode(), "api_error"),
        ("https://api.openai.com/v1/embeddings", {}, b'{"error": {"type": "t"}}', "t"),
    ],
)
def test_success_of_http_is_not_success_of_the_call(
    url: str, headers: dict[str, str], body: bytes, error_type: str | None
) -> None:
    """An error inside a 200, at once or in mid-stream, fails the call; it had begun, so its usage is missing."""
    expected = {"status": "error", "finish": "error", "error_type": error_type, "usage_source": "missing"}

    assert facts(read_call("POST", url, b"{}", 200, headers, body), *expected) == expected


def test_a_failure_after_the_start_keeps_what_was_counted() -> None:
    """Anthropic counts the input first; when the stream then fails, that part is known as a lower bound."""
    start = {
        "type": "message_start",
        "message": {"id": "m", "model": "c", "usage": {"input_tokens": 25, "output_tokens": 1}},
    }
    body = render([["message_start", start], ["error", {"type": "error", "error": {"type": "overloaded_error"}}]])
    expected = {"status": "error", "input_tokens": 25, "output_tokens": 1, "usage_source": "partial"}

    assert facts(read_call("POST", MESSAGES, b"{}", 200, SSE, body), *expected) == expected


@pytest.mark.parametrize(
    ("response", "status", "finish"),
    [
        ({"status": "queued", "output": []}, "pending", None),
        ({"status": "in_progress", "output": []}, "pending", None),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "ok", "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "ok", "steered"),
        ({"status": "cancelled"}, "incomplete", "cancelled"),
        ({"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal"}]}]}, "ok", "refusal"),
        ({"status": "completed", "output": [{"type": "message", "content": []}]}, "ok", "stop"),
    ],
)
def test_the_status_of_a_response(response: Any, status: str, finish: str | None) -> None:
    """A response says itself how it ended; a background run is pending until it is asked for again."""
    attempt = read_call("POST", RESPONSES, b"{}", 200, {}, json.dumps(response).encode())

    assert facts(attempt, "status", "finish") == {"status": status, "finish": finish}


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        # one index for every call: the new id and name tell
        (
            [
                delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]),
                delta(tool_calls=[{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]),
            ],
            (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")),
        ),
        # id and name repeated on every fragment
        (
            [
                delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]),
                delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": ":1}"}}]),
            ],
            (ToolCall("a", "f", '{"x":1}'),),
        ),
        # no index at all
        (
            [
                delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": ""}}]),
                delta(tool_calls=[{"function": {"arguments": "{}"}}]),
                delta(tool_calls=[{"id": "b", "function": {"name": "g", "arguments": "{}"}}]),
            ],
            (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")),
        ),
        # arguments as an object, and a custom tool
        (
            [
                delta(tool_calls=[{"index": 1, "id": "a", "function": {"name": "f", "arguments": {"q": "x"}}}]),
                delta(tool_calls=[{"index": 0, "id": "b", "custom": {"name": "g", "input": "free text"}}]),
            ],
            (ToolCall("b", "g", "free text"), ToolCall("a", "f", '{"q":"x"}')),
        ),
        # the call of old
        (
            [delta(function_call={"name": "h", "arguments": "{"}), delta(function_call={"arguments": "}"})],
            (ToolCall(None, "h", "{}"),),
        ),
        # the same call in both forms
        (
            [
                delta(
                    function_call={"name": "f", "arguments": "{}"},
                    tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
                )
            ],
            (ToolCall("a", "f", "{}"),),
        ),
    ],
)
def test_fragments_of_tool_calls_find_their_call(chunks: list[list[Any]], calls: tuple[ToolCall, ...]) -> None:
    """Dialects number fragments differently, or not at all; no call is lost and none is invented."""
    attempt = read_call("POST", CHAT, b"{}", 200, SSE, render([*chunks, ["[DONE]"]]))

    assert facts(attempt, "tool_calls") == {"tool_calls": calls}


def test_whole_tool_calls_are_never_joined() -> None:
    """In a document each entry is a call, also where the host gives all of them the same index and no id."""
    calls = [{"index": 0, "function": {"name": "f", "arguments": "{}"}}] * 2
    body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "stop"}]}
    attempt = read_call("POST", CHAT, b"{}", 200, {}, json.dumps(body).encode())

    assert facts(attempt, "tool_calls", "finish", "finish_raw") == {
        "tool_calls": (ToolCall(None, "f", "{}"),) * 2,
        "finish": "tool_calls",
        "finish_raw": "stop",
    }


def test_who_runs_a_tool_of_responses() -> None:
    """Shells run at the client unless they live in a container; a tool search says who runs it."""
    output = [
        {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}, "environment": {"type": "local"}},
        {"type": "shell_call", "call_id": "2", "environment": {"type": "container_reference"}},
        {"type": "tool_search_call", "call_id": "3", "execution": "client", "arguments": {}},
        {"type": "tool_search_call", "execution": "server"},
        {"type": "custom_tool_call", "call_id": "4", "name": "py", "input": "1+1"},
        {"type": "mcp_list_tools"},
        {"type": "mcp_call", "name": "x"},
    ]
    body = json.dumps({"status": "completed", "output": output}).encode()

    assert facts(read_call("POST", RESPONSES, b"{}", 200, {}, body), "tool_calls", "server_tool_calls") == {
        "tool_calls": (
            ToolCall("1", "shell", '{"commands":["ls"]}'),
            ToolCall("3", "tool_search", "{}"),
            ToolCall("4", "py", "1+1"),
        ),
        "server_tool_calls": {"shell": 1, "tool_search": 1, "mcp": 1},
    }


def test_a_cut_response_keeps_the_tools_that_it_had_asked_for() -> None:
    """Without the last event the items seen so far stand, with as much of their arguments as came."""
    item = {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}
    body = render(
        [
            ["response.created", {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}],
            [{"type": "response.output_item.added", "output_index": 0, "item": item}],
            [{"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"q"'}],
        ]
    )

    assert facts(read_call("POST", RESPONSES, b"{}", 200, SSE, body), "status", "tool_calls", "response_id") == {
        "status": "incomplete",
        "tool_calls": (ToolCall("a", "f", '{"q"'),),
        "response_id": "r",
    }


@pytest.mark.parametrize(
    ("url", "request_body", "expected"),
    [
        (
            CHAT,
            {
                "model": "gpt-x",
                "stream": True,
                "messages": [
                    {"role": "system", "content": "You plan.\n  Be   brief."},
                    {"role": "developer", "content": [{"type": "text", "text": "Use tools."}]},
                    {"role": "user", "content": "hi"},
                    {"role": "system", "content": "It is 10:00."},
                    {"role": "tool", "tool_call_id": "call_a", "content": "1"},
                    {"role": "function", "name": "old", "content": "2"},
                ],
                "tools": [
                    {"type": "function", "function": {"name": "find"}},
                    {"type": "custom", "custom": {"name": "calc"}},
                ],
            },
            ("gpt-x", True, ("call_a", "old"), None, "You plan. Be brief. Use tools.", ("calc", "find")),
        ),
        (
            RESPONSES,
            {
                "model": "gpt-x",
                "instructions": "You plan.",
                "previous_response_id": "resp_0",
                "input": [{"type": "function_call_output", "call_id": "call_a", "output": "1"}],
                "tools": [
                    {"type": "web_search"},
                    {"type": "function", "name": "find"},
                    {"type": "mcp", "server_label": "shop"},
                ],
            },
            ("gpt-x", False, ("call_a",), "resp_0", "You plan.", ("find", "mcp:shop", "web_search")),
        ),
        (
            MESSAGES,
            {
                "model": "claude-x",
                "system": [{"type": "text", "text": "You"}, {"type": "text", "text": "plan."}],
                "messages": [
                    {"role": "user", "content": "hi"},
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "t1"},
                            {"type": "tool_result", "tool_use_id": "t2"},
                        ],
                    },
                ],
                "tools": [{"name": "find", "input_schema": {}}],
            },
            ("claude-x", False, ("t1", "t2"), None, "You plan.", ("find",)),
        ),
        (
            RESPONSES,
            {"prompt": {"id": "pmpt_1", "version": "2"}, "input": "hi"},
            (None, False, (), None, "stored prompt pmpt_1 2", ()),
        ),
        (CHAT, {"model": "m", "messages": "hi"}, ("m", False, (), None, "(no system prompt)", ())),
        (
            "https://a.openai.azure.com/openai/deployments/prod/chat/completions",
            {"messages": []},
            ("prod", False, (), None, "(no system prompt)", ()),
        ),
    ],
)
def test_what_the_request_says(url: str, request_body: Any, expected: tuple[Any, ...]) -> None:
    """Model, stream, results of tools, parent, and the call site: prompt and tools, whatever the API calls them."""
    body = json.dumps(request_body).encode()
    attempt = read_call("POST", url, body, 200, {}, b"{}")
    assert attempt is not None
    assert attempt.site is not None
    site = attempt.site

    assert expected == (
        attempt.model_requested,
        attempt.stream,
        attempt.tool_results_in,
        attempt.parent_id,
        site.label,
        site.tools,
    )
    assert (site.api, site.model) == (attempt.api, attempt.model_requested)
    assert attempt.body_hash == hashlib.sha256(body).hexdigest()


def site_of(**request: Any) -> Any:
    attempt = read_call("POST", CHAT, json.dumps({"model": "m", **request}).encode(), 200, {}, b"{}")
    assert attempt is not None
    return attempt.site


def test_the_fingerprint_of_a_call_site() -> None:
    """It is the start of the SHA-256 of API, model, system prompt and sorted tool names, and of nothing else."""
    system = {"role": "system", "content": "plän"}
    tools = [{"function": {"name": name}} for name in ("b", "a")]
    site = site_of(messages=[system, {"role": "user", "content": "x"}], tools=tools, temperature=1)
    told = '["openai.chat","m","plän",["a","b"]]'

    assert site.fingerprint == hashlib.sha256(told.encode()).hexdigest()[:16]
    assert site == site_of(messages=[system, {"role": "user", "content": "y"}], tools=tools[::-1])
    assert site.fingerprint != site_of(messages=[{**system, "content": "plan"}], tools=tools).fingerprint
    assert site.fingerprint != site_of(messages=[system], tools=tools[:1]).fingerprint


@pytest.mark.parametrize(
    ("system", "label"),
    [
        ("one two " * 20, ("one two " * 7).strip() + " one"),
        ("x" * 80, "x" * 60),
        ("a\x1b[31mred\u202e\ud800", "a\\x1b[31mred\\u202e?"),
        ("  \n ", "(no system prompt)"),
    ],
)
def test_the_label_is_one_safe_line(system: str, label: str) -> None:
    """Whole words up to 60 characters; what could steer a terminal or cannot be written is made visible."""
    site = site_of(messages=[{"role": "system", "content": system}])

    assert site.label == label
    assert len(site.label) <= 60


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://aiplatform.googleapis.com/v1/projects/p/publishers/other/models/m:rawPredict", "generate"),
        ("https://aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/1:predict", "generate"),
    ],
)
def test_an_api_without_a_codec_is_counted_and_says_so(url: str, kind: str) -> None:
    """The call is there, its usage is missing, and the note tells that nobody read it."""
    expected = {"kind": kind, "status": "ok", "usage_source": "missing", "notes": ("no_codec",), "input_tokens": None}

    assert facts(read_call("POST", url, b'{"model": "m"}', 200, {}, b'{"usage": {"x": 1}}'), *expected) == expected


def test_an_interaction_with_an_agent_is_no_single_call() -> None:
    """A request that starts an agent on the provider's side drives a number of calls that nobody sees."""
    url = "https://generativelanguage.googleapis.com/v1beta/interactions"

    assert facts(read_call("POST", url, b'{"agent": "a"}', 200, {}, b"{}"), "kind") == {"kind": "agent_run"}
    assert facts(read_call("POST", url, b'{"model": "a"}', 200, {}, b"{}"), "kind") == {"kind": "generate"}


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", CHAT),
        ("POST", MESSAGES + "/count_tokens"),
        ("POST", "https://api.anthropic.com/v1/sessions/s/events"),
        ("GET", "wss://api.openai.com/v1/responses"),
        ("POST", "https://example.org/"),
        ("POST", "http://[broken"),
    ],
)
def test_what_is_no_model_call_is_none(method: str, url: str) -> None:
    """URLs that ask no model for an answer give nothing to count."""
    assert read_call(method, url, b"{}", 200, {}, b"{}") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Request-Id": "req_1"},
        [("x-request-id", "req_1")],
        [(b"X-Request-ID", b"req_1")],
        iter([("request-id", "req_1"), ("broken",), None, ("n", 1)]),
    ],
)
def test_headers_come_in_any_form(headers: Any) -> None:
    """Mappings and pairs, text and bytes, any case; what is no header is passed over."""
    assert facts(read_call("POST", CHAT, b"{}", 200, headers, b"{}"), "request_id") == {"request_id": "req_1"}


def test_hosted_tools_of_groq_are_counted_once_per_stream() -> None:
    """Executed tools may be repeated from chunk to chunk with their index."""
    ran = [{"index": 0, "type": "search"}, {"index": 1, "type": "search"}]
    body = render([delta(executed_tools=ran[:1]), delta(executed_tools=ran), ["[DONE]"]])

    expected = {"server_tool_calls": {"search": 2}}
    assert facts(read_call("POST", CHAT, b"{}", 200, SSE, body), *expected) == expected


def test_completions_of_old_are_read() -> None:
    """The API before chat has texts instead of messages and the same usage."""
    body = b'{"id": "c", "model": "m", "choices": [{"text": "x", "index": 0, "finish_reason": "length"}],'
    body += b'"usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}'
    attempt = read_call("POST", "http://gpu-box:8000/v1/completions", b'{"model": "m", "prompt": "x"}', 200, {}, body)

    expected = {"api": "openai.completions", "input_tokens": 3, "output_tokens": 1, "finish": "length", "status": "ok"}
    assert facts(attempt, *expected) == expected
