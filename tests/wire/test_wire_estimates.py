"""Estimates: what is counted where no usage came, and where it would be a guess at what is not seen."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from aws_frames import CONTENT_TYPE, frames
from wire_examples import JSON, LINES, SSE, facts, render

from pytest_fanout.records import Attempt
from pytest_fanout.wire import estimate, read_call

REAL = estimate.tokenizer
CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:generateContent"
INTERACTIONS = "https://generativelanguage.googleapis.com/v1beta/interactions"
OLLAMA = "http://localhost:11434/api/"
BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/"
MISTRAL = "https://api.mistral.ai/v1/"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "12345"}]}


@pytest.fixture
def characters(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tokenizer that takes each character for a token; the texts that it was given."""
    seen: list[str] = []

    def count(text: str) -> int:
        seen.append(text)
        return len(text)

    monkeypatch.setattr(estimate, "tokenizer", lambda: count)
    return seen


@pytest.fixture
def o200k(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """The tokenizer of the extra."""
    if sys.version_info >= (3, 14):
        pytest.skip("the extra has no wheel for this Python")
    monkeypatch.setattr(estimate, "tokenizer", REAL)
    count = REAL()
    assert count is not None
    return count


def read(url: str, asked: Any, answer: Any, headers: dict[str, str] = JSON, status: int = 200) -> Attempt:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    attempt = read_call("POST", url, json.dumps(asked).encode(), status, headers, body)
    assert attempt is not None
    return attempt


def chunk(text: str, finish: str | None = None, **more: Any) -> list[Any]:
    return [{"choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": finish}]}]


RESPONSE = {"status": "completed", "output": [{"text": "a"}]}
DONE = render([chunk("123", "stop"), ["[DONE]"]])
TOOL = {"function": {"name": "f", "parameters": {"b": 1, "a": 2}}, "type": "function"}
#: The tool as it is counted: 70 characters.
TOOL_TEXT = '[{"function":{"name":"f","parameters":{"a":2,"b":1}},"type":"function"}]'


@pytest.mark.parametrize(
    ("url", "asked", "headers", "answer", "tokens"),
    [
        pytest.param(
            CHAT,
            {
                "messages": [
                    {"role": "system", "content": "1234"},
                    {"role": "user", "content": [{"type": "text", "text": "12"}, {"image_url": {"url": "data:x"}}]},
                    {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "c", "content": "123"},
                ],
                "tools": [TOOL],
            },
            SSE,
            render(
                [
                    chunk("12"),
                    chunk("", tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a'}}]),
                    chunk("", "tool_calls", tool_calls=[{"index": 0, "function": {"arguments": '":1}'}}]),
                    ["[DONE]"],
                ]
            ),
            (4 + 2 + 1 + 2 + 3 + len(TOOL_TEXT), 2 + 1 + 7),
            id="chat",
        ),
        pytest.param(
            "http://gpu-box:8000/v1/completions",
            {"prompt": "12345", "suffix": "12"},
            JSON,
            {"choices": [{"index": 0, "text": "123", "finish_reason": "stop"}]},
            (7, 3),
            id="completions",
        ),
        pytest.param(
            RESPONSES,
            {"instructions": "123", "input": [{"role": "user", "content": [{"type": "input_text", "text": "12"}]},
                                             {"type": "function_call_output", "call_id": "c", "output": "1"}]},
            SSE,
            render(
                [
                    [{"type": "response.created", "response": {"id": "r", "status": "in_progress"}}],
                    [{"type": "response.output_text.delta", "output_index": 0, "delta": "12", "obfuscation": "zzz"}],
                    [{"type": "response.output_text.delta", "output_index": 0, "delta": "3"}],
                ]
            ),
            (6, 3),
            id="responses, cut",
        ),
        pytest.param(
            MESSAGES,
            {"system": [{"type": "text", "text": "12"}], "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x" * 99}},
                                             {"type": "tool_result", "tool_use_id": "t", "content": "123"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]}]},
            JSON,
            {"type": "message", "content": [{"type": "thinking", "thinking": "12", "signature": "zzz"},
                                            {"type": "text", "text": "1234"}], "stop_reason": "end_turn"},
            (2 + 3 + 1 + 7, 6),
            id="messages",
        ),
        pytest.param(
            GEMINI,
            {"systemInstruction": {"parts": [{"text": "12"}]},
             "contents": [{"role": "user", "parts": [{"text": "123"}, {"inlineData": {"mimeType": "m", "data": "zz"}}]},
                          {"parts": [{"functionResponse": {"name": "f", "response": {"a": "b"}}}]}]},
            JSON,
            {"candidates": [{"content": {"parts": [{"text": "12"}, {"functionCall": {"name": "f", "args": {}}}]},
                             "finishReason": "STOP", "safetyRatings": [{"category": "zzz"}]}]},
            (2 + 3 + 1 + 9, 2 + 1 + 2),
            id="gemini",
        ),
        pytest.param(
            INTERACTIONS,
            {"model": "m", "input": "123", "system_instruction": "12"},
            JSON,
            {"status": "completed", "steps": [{"type": "model_output", "content": [{"type": "text", "text": "1"}]}]},
            (5, 1),
            id="interactions",
        ),
        pytest.param(
            OLLAMA + "chat",
            {"messages": [{"role": "user", "content": "12"}]},
            LINES,
            b'{"message": {"role": "assistant", "content": "12"}, "done": false}\n'
            b'{"message": {"role": "assistant", "content": "3"}, "done": true, "done_reason": "stop"}\n',
            (2, 3),
            id="ollama",
        ),
        pytest.param(
            BEDROCK + "converse",
            {"system": [{"text": "12"}, {"cachePoint": {"type": "default"}}], "toolConfig": {"a": "b"},
             "messages": [{"role": "user", "content": [{"text": "123"}, {"image": {"source": {"bytes": "zz"}}}]},
                          {"content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}]}}]}]},
            JSON,
            {"stopReason": "tool_use", "output": {"message": {"content": [
                {"text": "12"}, {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]}}},
            (2 + 3 + 7 + 9, 2 + 1 + 2),
            id="converse",
        ),
        pytest.param(
            BEDROCK + "converse-stream",
            {"messages": [{"role": "user", "content": [{"text": "12"}]}]},
            CONTENT_TYPE,
            frames([["messageStart", {"role": "assistant"}],
                    ["contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "12"}}],
                    ["contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "3"}}],
                    ["messageStop", {"stopReason": "end_turn"}]]),
            (2, 3),
            id="converse, left at messageStop",
        ),
        pytest.param(
            "https://api.cohere.com/v2/chat",
            {"messages": [{"role": "user", "content": "12"}]},
            SSE,
            render([[{"type": "message-start", "id": "zz", "delta": {"message": {"role": "assistant", "content": []}}}],
                    [{"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "12"}}}}],
                    [{"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "3"}}}}]]),
            (2, 3),
            id="cohere, cut",
        ),
        pytest.param(
            MISTRAL + "conversations",
            {"model": "m", "inputs": [{"type": "message.input", "role": "user", "content": "12"}], "instructions": "1"},
            SSE,
            render([["message.output.delta", {"type": "message.output.delta", "id": "m", "content": "12345"}]]),
            (3, 5),
            id="conversations, cut",
        ),
    ],
)  # fmt: skip
def test_text_of_prompt_and_answer_is_counted(
    characters: list[str], url: str, asked: Any, headers: dict[str, str], answer: Any, tokens: tuple[int, int]
) -> None:
    """Words, names, arguments and tools count; marks, ids, media and padding do not. Pieces of a stream are joined."""
    attempt = read(url, asked, answer, headers)

    assert (attempt.usage_source, attempt.input_tokens, attempt.output_tokens) == ("estimated", *tokens)
    assert (attempt.cached_input_tokens, attempt.reasoning_tokens, attempt.total_reported) == (None, None, None)


def test_the_extra_counts_o200k(o200k: Callable[[str], int]) -> None:
    """`hello world` is two tokens there (24912, 2375), also when it came in pieces that cut a word; `hello` is one."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    attempt = read(CHAT, asked, render([chunk("hel"), chunk("lo wor"), chunk("ld", "stop"), ["[DONE]"]]), SSE)

    expected = {"usage_source": "estimated", "input_tokens": 1, "output_tokens": 2, "status": "ok"}
    assert facts(attempt, *expected) == expected


def test_without_the_extra_nothing_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, or broken: usage is missing, and nothing is raised."""
    monkeypatch.setattr(estimate, "tokenizer", REAL)
    monkeypatch.setitem(sys.modules, "quicktok", None)  # its import fails
    REAL.cache_clear()
    try:
        attempt = read(CHAT, ASKED, DONE, SSE)
    finally:
        REAL.cache_clear()

    expected = {"usage_source": "missing", "input_tokens": None, "output_tokens": None, "status": "ok", "notes": ()}
    assert facts(attempt, *expected) == expected


@pytest.mark.parametrize(
    ("url", "asked", "answer", "headers"),
    [
        (RESPONSES, {"input": "a", "previous_response_id": "r"}, RESPONSE, JSON),
        (RESPONSES, {"input": "a", "conversation": "c"}, RESPONSE, JSON),
        (RESPONSES, {"input": "a", "prompt": {"id": "p"}}, RESPONSE, JSON),
        (GEMINI, {"contents": [{"parts": [{"text": "a"}]}], "cachedContent": "c"},
         {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}, JSON),
        (GEMINI, {"contents": [{"parts": [{"text": "a"}]}], "continuation_token": "c"},
         {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}, JSON),
        (INTERACTIONS, {"model": "m", "input": "a", "previous_interaction_id": "i"},
         {"status": "completed", "steps": [{"text": "a"}]}, JSON),
        (MISTRAL + "conversations/c1", {"inputs": "a"}, {"conversation_id": "c1", "outputs": [{"content": "a"}]}, JSON),
        (MISTRAL + "agents/completions", {"agent_id": "a", "messages": [{"content": "a"}]}, DONE, SSE),
        (OLLAMA + "generate", {"prompt": "a", "context": [1, 2]}, {"response": "a", "done": True}, JSON),
    ],
)  # fmt: skip
def test_what_the_provider_holds_is_never_guessed(
    characters: list[str], url: str, asked: Any, answer: Any, headers: dict[str, str]
) -> None:
    """A body that shows only the new part of a prompt gives no estimate: it would be too small."""
    attempt = read(url, asked, answer, headers)

    expected = {"usage_source": "missing", "input_tokens": None, "output_tokens": None, "status": "ok"}
    assert facts(attempt, *expected) == expected
    assert characters == []


@pytest.mark.parametrize(
    ("url", "answer", "status", "usage_source"),
    [
        (CHAT, {"error": {"message": "no"}}, 429, "none"),
        (CHAT, {"error": {"message": "no"}}, 200, "missing"),
        (CHAT, b"", 200, "missing"),
        (CHAT, {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]}, 200, "missing"),
        (CHAT, {"choices": [{"message": {"content": "a"}}], "usage": {"total_tokens": 9}}, 200, "missing"),
        (CHAT, {"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 9}}, 200, "partial"),
        (RESPONSES, {"status": "queued", "output": []}, 200, "missing"),
        (CHAT.replace("chat/completions", "embeddings"), {"data": [{"embedding": [1]}]}, 200, "missing"),
    ],
)
def test_only_an_answer_that_cost_something_unknown_is_estimated(
    characters: list[str], url: str, answer: Any, status: int, usage_source: str
) -> None:
    """Refused, failed, empty and unfinished calls are not, nor are embeddings, nor is anything that was counted."""
    asked = {**ASKED, "input": "12345"}

    assert read(url, asked, answer, JSON, status).usage_source == usage_source


def test_an_estimate_needs_the_request(characters: list[str]) -> None:
    """The quick look of the hot path has no request body, and spends no time on texts."""
    attempt = read_call("POST", CHAT, b"", 200, SSE, DONE)

    assert attempt is not None
    assert (attempt.usage_source, characters) == ("missing", [])


def test_layout_and_order_of_keys_do_not_matter(characters: list[str]) -> None:
    """A recording keeps requests in canonical form: its estimate is that of the request as it was sent."""
    asked = {**ASKED, "tools": [TOOL]}
    plain = read_call("POST", CHAT, json.dumps(asked, indent=2).encode(), 200, SSE, DONE)
    stored = read_call("POST", CHAT, json.dumps(asked, sort_keys=True, separators=(",", ":")).encode(), 200, SSE, DONE)

    assert facts(plain, "input_tokens") == facts(stored, "input_tokens") == {"input_tokens": 5 + len(TOOL_TEXT)}


def test_of_a_long_text_a_part_stands_for_the_rest(characters: list[str]) -> None:
    """A prompt of 10 MB and a stream of 5 MB are estimated from at most a million characters each, in short time."""
    asked = {
        "messages": [
            {"role": "user", "content": "word " * 1_900_000},
            {"role": "user", "content": "0123456789" * 50_000},
        ]
    }
    answer = render([*([chunk("word " * 200)] * 5000), chunk("", "stop"), ["[DONE]"]])
    body = json.dumps(asked).encode()
    begun = time.process_time()
    attempt = read_call("POST", CHAT, body, 200, SSE, answer)

    assert time.process_time() - begun < 3
    assert attempt is not None
    assert attempt.input_tokens == 10_000_000
    assert attempt.output_tokens == pytest.approx(5_000_000, rel=0.001)
    assert sum(map(len, characters)) <= 2 * estimate.MAX_CHARACTERS


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(b"[" * 30 + b'"a"' + b"]" * 30, id="deep"),
        pytest.param(b"[" + b'"a",' * 600_000 + b'"a"]', id="many texts"),
        pytest.param(b"[" + b"1," * 600_000 + b'"a"]', id="many numbers"),
        pytest.param(b"[1, 2, 3]", id="token numbers"),
    ],
)
def test_what_is_no_text_of_a_prompt_is_not_estimated(characters: list[str], messages: bytes) -> None:
    """Structures that no client sends, and prompts that are numbers, cost little time and give no estimate."""
    attempt = read_call("POST", CHAT, b'{"messages": ' + messages + b"}", 200, SSE, DONE)

    assert attempt is not None
    assert attempt.usage_source == "missing"
    assert characters == []


def test_text_that_cannot_be_written_is_counted_all_the_same(o200k: Callable[[str], int]) -> None:
    """Lone surrogates are replaced before a tokenizer in another language sees them; its own marks are plain text."""
    asked = {"messages": [{"role": "user", "content": "a\ud800 <|endoftext|>"}]}

    assert read(CHAT, asked, DONE, SSE).usage_source == "estimated"
