"""Ollama's own API, Mistral's conversations and decisions beyond the worked examples, and what each request says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_examples import JSON, LINES, SSE, facts, render

from pytest_fanout.records import Attempt, SideCall, ToolCall
from pytest_fanout.wire import read_call

OLLAMA = "http://localhost:11434/api/chat"
MISTRAL = "https://api.mistral.ai/v1/conversations"
DECISIONS = "https://api.openai.com/v1/decisions"
GENERATE = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:generateContent"
INTERACTIONS = "https://generativelanguage.googleapis.com/v1beta/interactions"


def read(url: str, answer: Any, headers: dict[str, str] = JSON, status: int = 200, asked: Any = None) -> Attempt:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    attempt = read_call("POST", url, json.dumps(asked or {}).encode(), status, headers, body)
    assert attempt is not None
    return attempt


LINE = b'{"model": "m", "message": {"role": "assistant", "content": "a"}, "done": false}\n'


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (b'{"error": "model not found"}', 404, ("error", "none", "error")),
        (b'{"error": "out of memory"}', 200, ("error", "missing", "error")),
        (LINE + b'{"error": "out of memory"}\n', 200, ("error", "missing", "error")),
        (LINE, 200, ("incomplete", "missing", None)),
        (LINE + b'{"model": "m", "done": tr', 200, ("incomplete", "missing", None)),
        (b'{"model": "m"}', 200, ("incomplete", "missing", None)),
        (b"<html>", 200, ("incomplete", "missing", None)),
    ],
)
def test_how_a_call_to_ollama_ended(body: bytes, status: int, expected: tuple[Any, ...]) -> None:
    """Errors are a text, also on a line of the stream; without a line that is done the answer was cut."""
    attempt = read(OLLAMA, body, LINES, status)

    assert (attempt.status, attempt.usage_source, attempt.error_type) == expected


def test_tool_calls_of_ollama_come_on_any_line() -> None:
    """Before the last line, each whole, with or without an id."""
    calls = [
        {"function": {"name": "f", "arguments": {}}},
        {"id": "c", "function": {"name": "g", "arguments": {"a": 1}}},
    ]
    lines = [{"message": {"content": "", "tool_calls": [call]}, "done": False} for call in calls]
    last = {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 2}
    body = b"\r\n".join(json.dumps(line).encode() for line in [*lines, last])

    assert read(OLLAMA, body, LINES).tool_calls == (ToolCall(None, "f", "{}"), ToolCall("c", "g", '{"a":1}'))


def test_a_model_that_was_only_loaded_is_no_generation() -> None:
    """A request without a message loads or unloads a model; with counts it generated all the same."""
    loaded = {"model": "m", "response": "", "done": True, "done_reason": "load"}

    assert read(OLLAMA, loaded).kind == "other"
    assert read(OLLAMA, {**loaded, "done_reason": "unload"}).kind == "other"
    assert read(OLLAMA, {**loaded, "prompt_eval_count": 3, "eval_count": 1}).kind == "generate"
    assert read(OLLAMA, {**loaded, "done_reason": "stop"}).kind == "generate"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # beside the prompt: the total says so, or nothing does
        ({"prompt_tokens": 95, "completion_tokens": 209, "total_tokens": 399, "connector_tokens": 95}, (190, 209, ())),
        ({"prompt_tokens": 95, "completion_tokens": 209, "connector_tokens": 95}, (190, 209, ())),
        # inside it: the total says so
        ({"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18, "connector_tokens": 4}, (10, 8, ())),
        ({"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18, "connector_tokens": None}, (10, 8, ())),
        ({"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 99}, (10, 8, ("total_mismatch",))),
        ({"prompt_tokens": 10, "completion_tokens": 8, "connector_tokens": "x"}, (None, 8, ("bad_usage",))),
    ],
)
def test_what_connectors_read_is_input(usage: Any, expected: tuple[Any, ...]) -> None:
    """Tokens that hosted tools put into the prompt of a conversation are a part of the input, counted once."""
    attempt = read(MISTRAL, {"conversation_id": "c", "outputs": [], "usage": usage})

    assert (attempt.input_tokens, attempt.output_tokens, attempt.notes) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([["conversation.response.error", {"type": "conversation.response.error", "code": 3000, "message": "m"}]],
         ("error", "error", "3000")),
        ([["conversation.response.started", {"type": "conversation.response.started", "conversation_id": "c"}],
          ["function.call.delta", {"type": "function.call.delta", "name": "f", "tool_call_id": "t", "arguments": "{"}]],
         ("incomplete", None, None)),
        ([["conversation.response.done", {"type": "conversation.response.done", "usage": {}}]], ("ok", "stop", None)),
    ],
)  # fmt: skip
def test_how_a_stream_of_a_conversation_ended(events: Any, expected: tuple[Any, ...]) -> None:
    """Failed, cut before its last event, or whole."""
    attempt = read(MISTRAL, render(events), SSE)

    assert (attempt.status, attempt.finish, attempt.error_type) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"answers": [{"type": "refusal"}, {"type": "refusal"}]}, ("ok", "refusal")),
        ({"answers": [{"type": "refusal"}, {"type": "score"}]}, ("ok", "stop")),
        ({"answers": {}, "prompt_feedback": {"block_reason": "safety"}}, ("ok", "content_filter")),
        ({"error": {"code": "e"}}, ("error", "error")),
        ({}, ("incomplete", None)),
    ],
)
def test_how_decisions_ended(answer: Any, expected: tuple[Any, ...]) -> None:
    """Refused when every question was, blocked, failed, or not there at all."""
    attempt = read(DECISIONS, answer)

    assert (attempt.status, attempt.finish) == expected


def test_a_stream_that_groq_stopped_is_a_failure() -> None:
    """Its own error stands beside the chunk."""
    chunks = [[{"choices": [{"index": 0, "delta": {"content": "a"}}]}], [{"choices": [], "x_groq": {"error": "over"}}]]
    attempt = read("https://api.groq.com/openai/v1/chat/completions", render([*chunks, ["[DONE]"]]), SSE)

    assert (attempt.status, attempt.error_type) == ("error", "error")


def test_images_that_a_response_drew_are_a_side_call() -> None:
    """Their tokens stand outside the usage; zeros stand there for a tool that did not run."""
    url = "https://api.openai.com/v1/responses"
    drawn = {"status": "completed", "tool_usage": {"image_gen": {"input_tokens": 50, "output_tokens": 4000}}}
    idle = {"status": "completed", "tool_usage": {"image_gen": {"input_tokens": 0, "output_tokens": 0}}}

    assert read(url, drawn).side_calls == (SideCall("image_generation", 50, 4000),)
    assert read(url, idle).side_calls == ()


@pytest.mark.parametrize(
    ("url", "asked", "expected"),
    [
        (
            GENERATE,
            {
                "systemInstruction": {"parts": [{"text": "You"}, {"text": "plan."}]},
                "contents": [
                    {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": {}}}]},
                    {"role": "user", "parts": [{"functionResponse": {"id": "f2", "name": "find", "response": {}}}]},
                ],
                "tools": [{"functionDeclarations": [{"name": "find"}, {"name": "buy"}]}, {"googleSearch": {}}],
            },
            ("gemini-x", False, ("find", "f2"), None, "You plan.", ("buy", "find", "googleSearch")),
        ),
        (
            GENERATE.replace("generateContent", "streamGenerateContent"),
            {
                "system_instruction": {"parts": [{"text": "You plan."}]},
                "contents": [{"parts": [{"function_response": {"name": "find"}}]}],
                "tools": [{"function_declarations": [{"name": "find"}]}],
                "continuation_token": "dA==",
            },
            ("gemini-x", True, ("find",), "dA==", "You plan.", ("find",)),
        ),
        (
            INTERACTIONS,
            {
                "model": "gemini-x",
                "system_instruction": "You plan.",
                "previous_interaction_id": "i0",
                "input": [{"type": "function_result", "call_id": "f1", "result": "1"}],
                "tools": [{"type": "function", "name": "find"}, {"type": "google_search"}],
                "stream": True,
            },
            ("gemini-x", True, ("f1",), "i0", "You plan.", ("find", "google_search")),
        ),
        (
            OLLAMA,
            {
                "model": "qwen3",
                "messages": [
                    {"role": "system", "content": "You plan."},
                    {"role": "tool", "tool_name": "find", "content": "1"},
                    {"role": "tool", "tool_call_id": "c1", "tool_name": "find", "content": "1"},
                ],
                "tools": [{"type": "function", "function": {"name": "find"}}],
            },
            ("qwen3", True, ("find", "c1"), None, "You plan.", ("find",)),
        ),
        (
            OLLAMA.replace("chat", "generate"),
            {"model": "qwen3", "system": "You plan.", "prompt": "hi", "stream": False},
            ("qwen3", False, (), None, "You plan.", ()),
        ),
        (
            MISTRAL,
            {
                "model": "mistral-x",
                "instructions": "You plan.",
                "inputs": [{"type": "function.result", "tool_call_id": "c1", "result": "1"}],
                "tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "find"}}],
            },
            ("mistral-x", False, ("c1",), None, "You plan.", ("find", "web_search")),
        ),
        (
            MISTRAL + "/conv_1/restart",
            {"agent_id": "ag_1", "inputs": "hi"},
            ("ag_1", False, (), None, "(no system prompt)", ()),
        ),
        (
            DECISIONS,
            {
                "model": "gpt-x",
                "input": [
                    {"role": "system", "content": "You judge."},
                    {"type": "function_call_output", "call_id": "c1", "output": "1"},
                ],
            },
            ("gpt-x", False, ("c1",), None, "You judge.", ()),
        ),
    ],
)  # fmt: skip
def test_what_the_request_says(url: str, asked: Any, expected: tuple[Any, ...]) -> None:
    """Model, stream, results of tools, parent, and the call site: prompt and tools, whatever the API calls them."""
    attempt = read(url, {}, asked=asked)
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


@pytest.mark.parametrize("url", [OLLAMA, MISTRAL, DECISIONS, GENERATE, INTERACTIONS])
@pytest.mark.parametrize("body", [b"", b"  \n", b"{}", b"[]", b"null", b": comment\n\n"])
def test_an_empty_answer_is_not_a_measured_call(url: str, body: bytes) -> None:
    """A9: HTTP 200 without content and usage is incomplete and says so; its usage is missing, never zero."""
    expected = {"status": "incomplete", "usage_source": "missing", "output_tokens": None, "notes": ("empty_response",)}

    assert facts(read(url, body, SSE if body[:1] == b":" else JSON), *expected) == expected
