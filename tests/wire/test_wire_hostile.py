"""Bodies that were made to hurt: they end soon, whichever API they pretend to speak."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
from test_wire_fuzz import APIS, OF_API, check
from wire_examples import JSON, LINES, SSE

from pytest_fanout.wire import bodies, read_call

CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent"
OLLAMA = "http://localhost:11434/api/chat"
MISTRAL = "https://api.mistral.ai/v1/conversations"
SIZE = 600_000


def cpu_seconds(url: str, body: bytes, headers: dict[str, str]) -> float:
    begun = time.process_time()
    check(read_call("POST", url, b"{}", 200, headers, body))
    return time.process_time() - begun


def event(document: Any) -> str:
    return f"data: {json.dumps(document)}\n\n"


def chat(delta: Any) -> str:
    return event({"choices": [{"index": 0, "delta": delta}]})


def parts(*some: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(some)}}]}


CALL = {"functionCall": {"name": "@"}}


@pytest.mark.parametrize(
    ("url", "headers", "unit"),
    [
        pytest.param(CHAT, SSE, chat({"tool_calls": [{"id": "@", "function": {"name": "f"}}]}), id="chat, calls"),
        pytest.param(CHAT, SSE, event({"choices": [{"index": 7, "delta": {}}], "usage": {"@": 1}}), id="chat, usage"),
        pytest.param(RESPONSES, SSE, event({"response": {"@": 1, "status": "in_progress"}}), id="responses, states"),
        pytest.param(MESSAGES, SSE, "data: {\n\n", id="messages, half events"),
        pytest.param(GEMINI, JSON, "[" + json.dumps(parts(CALL)) + ",", id="gemini, arrays in arrays"),
        pytest.param(GEMINI, JSON, json.dumps(parts(CALL)) + ",\n", id="gemini, elements"),
        pytest.param(GEMINI, SSE, '{"error":\n', id="gemini, bare lines"),
        pytest.param(OLLAMA, LINES, "{\r", id="ollama, half lines"),
        pytest.param(MISTRAL, SSE, event({"type": "tool.execution.started", "id": "@"}), id="conversations, runs"),
    ],
)
def test_rows_of_one_thing_take_time_in_proportion(url: str, headers: dict[str, str], unit: str) -> None:
    """Very many events that only differ in a name, or are none, are read in seconds: nothing grows with its square."""
    count = SIZE // len(unit)
    body = "".join(unit.replace("@", str(number)) for number in range(count)) if "@" in unit else unit * count
    if headers == JSON and not body.startswith("["):
        body = "[" + body

    assert cpu_seconds(url, body.encode(), headers) < 4


@pytest.mark.parametrize("api", APIS)
def test_bombs_end_at_the_cap(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer repeated very often and packed into few bytes is cut at the cap, and the note says so."""
    example = OF_API[api][0]
    monkeypatch.setattr(bodies, "MAX_DECODED", 100_000)
    bomb = gzip.compress(example.body) + gzip.compress(example.body * (1_000_000 // len(example.body)))
    attempt = read_call("POST", example.url, b"{}", 200, {"content-encoding": "gzip", **example.headers}, bomb)

    check(attempt)
    assert attempt is not None
    assert attempt.notes[0] == "too_large"


NUMBERS = [b"9" * 5000, b"-" + b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"0.1e-400", b'"\\ud800"']


@pytest.mark.parametrize("api", APIS)
def test_numbers_that_are_none_are_unknown(api: str) -> None:
    """Numbers of 5000 digits, infinities, NaN, and text that no file can hold, in the place of every count."""
    for example in OF_API[api]:
        for number in NUMBERS:
            body = replace_numbers(example.body, number)
            headers = {name: value for name, value in example.headers.items() if name.lower() == "content-type"}
            attempt = read_call("POST", example.url, example.request, 200, headers, body)
            check(attempt)
            assert attempt is not None
            if number not in (b"0.1e-400",):  # that one is zero
                assert attempt.input_tokens is None


def replace_numbers(body: bytes, number: bytes) -> bytes:
    """A body with another number behind every colon that has one."""
    out = body.split(b": ")
    for at, part in enumerate(out[1:], 1):
        digits = len(part) - len(part.lstrip(b"0123456789."))
        if digits and part[digits : digits + 1] in (b",", b"}"):
            out[at] = number + part[digits:]
    return b": ".join(out)


@pytest.mark.parametrize("api", APIS)
def test_depth_is_no_failure(api: str) -> None:
    """Nesting as deep as JSON is loaded, and deeper, in the place of every list and text of an answer."""
    for example in OF_API[api]:
        for depth in (50, 500, 100_000):
            deep = b"[" * depth + b"]" * depth
            for old in (b"[]", b"{}", b'"x"', b'"ok"', b'"stop"', b'"STOP"'):
                body = example.body.replace(old, deep, 1)
                if body != example.body:
                    check(read_call("POST", example.url, body, 200, example.headers, body))
