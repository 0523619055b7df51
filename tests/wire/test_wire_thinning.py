"""Long streams are held without the events that only hold text, and still read to the same numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_server import Answer, chat_streamed, messages_streamed, responses_streamed

from pytest_fanout.wire import read_call
from pytest_fanout.wire.thinning import can_thin, thin

URLS = {
    "openai.chat": "https://api.openai.com/v1/chat/completions",
    "openai.responses": "https://api.openai.com/v1/responses",
    "anthropic.messages": "https://api.anthropic.com/v1/messages",
}
STREAMS = {
    "openai.chat": chat_streamed,
    "openai.responses": responses_streamed,
    "anthropic.messages": messages_streamed,
}
USAGE = {"input": 50, "cached": 20, "cache_write": 10, "output": 30, "reasoning": 7}
#: Text that looks like what codecs look for.
NASTY = st.lists(
    st.sampled_from(['"', "\\", "{", "}", ":", " ", "\n", "a", "é", "tool", "usage", '"usage":{', "error", "[DONE]"]),
    max_size=12,
).map("".join)


def answer(words: list[str], calls: list[dict[str, Any]], *, usage: bool = True) -> Answer:
    return Answer("7", "m-x", " ".join(words), calls, USAGE if usage else None)


def read(api: str, body: bytes) -> Any:
    return read_call("POST", URLS[api], b"", 200, {"content-type": "text/event-stream"}, body)


@pytest.mark.parametrize("api", STREAMS)
@given(
    words=st.lists(NASTY, max_size=20),
    has_tools=st.booleans(),
    has_usage=st.booleans(),
    cut=st.integers(0, 4000),
    crlf=st.booleans(),
    begin=st.integers(0, 4000),
)
def test_what_is_left_reads_to_the_same_record(
    api: str, words: list[str], has_tools: bool, has_usage: bool, cut: int, crlf: bool, begin: int
) -> None:
    """Whatever a model says, wherever the stream is cut and wherever thinning begins, no fact of it is lost."""
    calls = [{"id": "c1", "name": "find", "arguments": {"q": "x"}}] if has_tools else []
    body = "".join(STREAMS[api](answer(words, calls, usage=has_usage))).encode()
    if crlf:
        body = body.replace(b"\n", b"\r\n")
    body = body[: max(0, len(body) - cut)]
    head = body.find(b"\n\n") + 2  # what opened the stream is held already when thinning begins
    kept, rest = thin(api, body[head : head + begin])

    assert read(api, body[:head] + kept + rest + body[head + begin :]) == read(api, body)


@pytest.mark.parametrize("api", STREAMS)
def test_text_is_left_out(api: str) -> None:
    """Of 10,000 words nothing but the frame of the answer is left: less than a hundredth of the stream."""
    body = "".join(STREAMS[api](answer(["word"] * 10_000, []))).encode()
    whole = b"response.output_text.done"  # the Responses API says the whole text again at its end
    body = body[: body.find(whole)] if api == "openai.responses" else body

    kept, rest = thin(api, body)

    assert len(kept + rest) < len(body) / 100
    assert can_thin(api)


def test_every_choice_is_kept() -> None:
    """Chunks of other choices than the first tell that there are others: they stay."""

    def chunk(index: int) -> str:
        choice = {"index": index, "delta": {"content": "x"}, "finish_reason": None}
        return f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n"

    kept, _ = thin("openai.chat", (chunk(0) + chunk(1) + chunk(0)).encode())

    assert kept == (chunk(0) + chunk(1)).encode()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_stream_of_nothing_but_text_is_still_an_answer(times: int) -> None:
    """Found by fuzzing: hosts that do not open with a role say by text alone that a model spoke; it stays so."""
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    event = f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n".encode()
    kept, rest = thin("openai.chat", event * 9 + b"data: {")
    for _ in range(1, times):
        kept, rest = thin("openai.chat", kept + rest)

    assert (kept, rest) == (event, b"data: {")
    assert read("openai.chat", kept + rest) == read("openai.chat", event * 9 + b"data: {")
    assert read("openai.chat", kept + rest).choices == 1


@pytest.mark.parametrize(
    "field",
    ['"usage":{"prompt_tokens":1}', '"usage": {"a":1}', '"x_groq":{"usage":{}}', '"error":{"message":"no"}'],
)
def test_a_text_chunk_that_also_holds_more_is_kept(field: str) -> None:
    """Hosts that report usage or errors on chunks with text lose nothing."""
    event = f'data: {{"id":"c",{field},"choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":null}}]}}\n\n'

    assert thin("openai.chat", event.encode()) == (event.encode(), b"")
