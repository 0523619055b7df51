"""What people read of a call: prompts, answers and thoughts of every API as texts. Nothing of it is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_examples import EXAMPLES

from pytest_fanout import wire
from pytest_fanout.wire.transcript import Said, read_prompt, read_said, same_text

#: Worked examples by id: the text that their answers hold, read in the example by eye.
TEXTS = {
    "OC2": "Hi",  # chat, streamed
    "OC5": "a\nbb",  # two choices, one a line
    "OR1": "x\ny",  # responses, a function call beside the text
    "GE8": "a b c",  # gemini, pieces of a stream
    "GE7": "a [1,2} b",  # gemini, a stream that is one array
    "OL2": "a b",  # ollama, lines
    "BR4": "Let me look.",  # converse, frames
    "BI3": "Good day",  # invoke, a model's own chunks in base64
    "BI10": "Hi",  # invoke, Nova's chunks
    "CO4": "Good day",  # cohere v1
    "AN2": "Hello",  # messages, streamed
    "AN1": "ok",  # beside a thought
}


def said(name: str) -> Said:
    example = EXAMPLES[name]
    attempt = wire.read_call("POST", example.url, example.request, 200, example.headers, example.body)
    assert attempt is not None
    return read_said(attempt.api, example.headers, example.body)


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_an_answer(name: str) -> None:
    """Pieces of a stream are one text; tool calls, marks and counts are not in it."""
    assert said(name).text == TEXTS[name]


def test_thoughts_stand_apart() -> None:
    """What a model thought is told, and not as its answer."""
    assert (said("AN1").thoughts, said("CO1").thoughts, said("CO1").text) == ("t", "I will", "")


def test_an_answer_without_text_is_told_as_it_came() -> None:
    """Scores, a refusal, a shape that nobody knows: the body itself."""
    assert '"probability": 0.9' in said("OD1").raw
    assert said("OD1").text == ""


def prompt(**body: Any) -> Any:
    return read_prompt(json.dumps(body).encode())


def test_system_prompt_tools_and_turns_of_a_chat() -> None:
    """The system messages that open a chat stand apart; a tool call is its name and arguments in one text."""
    call = {"id": "c", "type": "function", "function": {"arguments": '{"sku": 1}', "name": "lookup"}}
    read = prompt(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "this?"}, {"type": "image_url", "image_url": {}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:xyz"}}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "3 EUR"},
            {"role": "system", "content": "a reminder"},
        ],
        tools=[{"type": "function", "function": {"name": "lookup"}}],
    )

    assert read.system == ("Be brief.",)
    assert [name for name, _ in read.tools] == ["lookup"]
    assert [(turn.role, turn.texts) for turn in read.messages] == [
        ("user", ("this?",)),
        ("user", ("[no text: image_url]",)),
        ("assistant", ('lookup {"sku": 1}',)),
        ("tool", ("3 EUR",)),
        ("system", ("a reminder",)),
    ]


@pytest.mark.parametrize(
    ("body", "system", "turns"),
    [
        (
            {
                "instructions": "Be brief.",
                "input": [
                    {"role": "user", "content": "hi"},
                    {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
                    {"type": "function_call_output", "call_id": "c", "output": "7"},
                ],
            },
            ("Be brief.",),
            [("user", ("hi",)), ("function_call", ("f {}",)), ("function_call_output", ("7",))],
        ),
        (
            {
                "system": [{"type": "text", "text": "Be brief."}],
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "7"}]},
                ],
            },
            ("Be brief.",),
            [("assistant", ('f {"a":1}',)), ("user", ("7",))],
        ),
        (
            {
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "hi"}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
                ],
            },
            ("Be brief.",),
            [("user", ("hi",)), ("model", ('f {"a":1}',))],
        ),
        (
            {"chat_history": [{"role": "USER", "message": "a"}], "message": "b"},
            (),
            [("user", ("a",)), ("user", ("b",))],
        ),
        ({"prompt": "hi"}, (), [("user", ("hi",))]),
        ({"messages": [{"role": "ROLE_USER", "content": [{"text": "hi"}]}]}, (), [("user", ("hi",))]),
    ],
    ids=["responses", "messages", "gemini", "cohere-v1", "completions", "xai"],
)
def test_the_turns_of_other_apis(body: Any, system: tuple[str, ...], turns: list[Any]) -> None:
    """Each API's own places, one form."""
    read = prompt(**body)

    assert (read.system, [(turn.role, turn.texts) for turn in read.messages]) == (system, turns)


def test_tools_are_named_in_every_form() -> None:
    """Functions, declarations of Gemini, specifications of Bedrock, and what providers run."""
    named = [
        prompt(prompt="x", tools=[{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]).tools,
        prompt(prompt="x", toolConfig={"tools": [{"toolSpec": {"name": "f"}}]}).tools,
        prompt(prompt="x", tools=[{"name": "f", "input_schema": {}}, {"type": "web_search"}]).tools,
    ]

    assert [[name for name, _ in tools] for tools in named] == [["f", "g"], ["f"], ["f", "web_search"]]


def test_an_answer_that_is_sent_back_is_known_again() -> None:
    """A turn that repeats text and tool calls of an answer; other arguments are another turn."""
    call = {"function": {"name": "f", "arguments": '{"a":1}'}}
    (turn,) = prompt(messages=[{"role": "assistant", "content": "Wait.", "tool_calls": [call]}]).messages

    assert same_text(turn, Said("Wait."), [("f", '{"a": 1}')])
    assert not same_text(turn, Said("Wait."), [("f", '{"a": 2}')])
    assert not same_text(turn, Said("Wait!"), [("f", '{"a": 1}')])
    assert not same_text(turn, Said("Wait."), [])


@example(rb'{"messages": [{"content": "\ud800"}], "choices": [{"message": {"content": "\udfff"}}]}')  # half a sign
@settings(max_examples=40)
@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["messages", "role", "content", "name", "arguments", "tools", "delta", "choices", "x"]), x
)).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_can_be_read(body: bytes) -> None:
    """Of whatever body, either texts are found, and only where texts stand, or it is shown whole: never both, never
    neither, and always in valid Unicode."""
    whole = body.decode("utf-8", "replace")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    keys = document.keys() if isinstance(document, dict) else frozenset()

    read = read_prompt(body)
    found = [*read.system, *read.messages]
    assert read.raw == ("" if found else whole)
    assert not found or "messages" in keys
    assert bool(read.tools) <= bool("tools" in keys and document["tools"])
    for api, roots in (("openai.chat", {"choices"}), ("bedrock.invoke", {"content", "delta", "choices"})):
        told = read_said(api, {}, body)
        assert told.raw == ("" if told.text or told.thoughts else whole)
        assert told.raw == whole or any(root.encode() in body for root in roots)
        (told.text + told.thoughts + told.raw).encode()
    assert read_said("nobody.knows", {}, body) == Said(raw=whole)
    ("".join(read.system) + read.raw + "".join(text for turn in read.messages for text in turn.texts)).encode()
