"""What is told of two request bodies that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.wire.changes import describe_changes

CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"
GEMINI = "https://generativelanguage.googleapis.com/v1/models/m:generateContent"
CONVERSE = "https://bedrock-runtime.us-east-1.amazonaws.com/model/{}/converse"
COHERE = "https://api.cohere.com/v1/chat"
SYSTEM = {"role": "system", "content": "You are a planner. Answer with at most three steps, as JSON."}
USER = {"role": "user", "content": "Refund order 17"}


def changes(old: Any, new: Any, url: str = CHAT) -> tuple[str, ...]:
    return describe_changes(url, json.dumps(old).encode(), json.dumps(new).encode())


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_equal_bodies_have_no_changes() -> None:
    """The same bytes differ in nothing; the same JSON in another layout says so."""
    assert describe_changes(CHAT, b"{}", b"{}") == ()
    assert describe_changes(CHAT, b"{}", b"{ }") == ("same JSON, written in another layout",)


def test_a_changed_prompt_shows_the_words_that_changed() -> None:
    """The words around the first difference, old and new, and not the same change again as a message."""
    new = {**SYSTEM, "content": "You are a planner. Answer with at most nine steps, as JSON."}

    assert changes({"messages": [SYSTEM, USER]}, {"messages": [new, USER]}) == (
        'system prompt: "…planner. Answer with at most three steps, as JSON." -> '
        '"…planner. Answer with at most nine steps, as JSON."',
    )


@pytest.mark.parametrize(
    ("old", "new", "url"),
    [
        ({"instructions": "Plan."}, {"instructions": "Plan twice."}, RESPONSES),
        ({"system": "Plan."}, {"system": [{"type": "text", "text": "Plan twice."}]}, MESSAGES),
        (
            {"systemInstruction": {"parts": [{"text": "Plan."}]}},
            {"systemInstruction": {"parts": [{"text": "Plan twice."}]}},
            GEMINI,
        ),
        ({"system": [{"text": "Plan."}]}, {"system": [{"text": "Plan twice."}]}, CONVERSE.format("m")),
        ({"preamble": "Plan."}, {"preamble": "Plan twice."}, COHERE),
        (
            {"anthropic_version": "b", "system": "Plan."},
            {"anthropic_version": "b", "system": "Plan twice."},
            CONVERSE.format("m").replace("converse", "invoke"),
        ),
    ],
)
def test_each_api_keeps_its_prompt_elsewhere(old: Any, new: Any, url: str) -> None:
    """The system prompt is found where the API puts it."""
    assert changes(old, new, url) == ('system prompt: "Plan." -> "Plan twice."',)


def test_a_prompt_that_appears_or_goes() -> None:
    """No prompt is said in words."""
    with_one, without = {"messages": [SYSTEM]}, {"messages": []}

    assert changes(without, {"messages": [{**SYSTEM, "content": "Plan."}]})[0] == 'system prompt: (none) -> "Plan."'
    assert changes(with_one, without)[0].endswith('" -> (none)')


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (
            [SYSTEM, USER],
            [SYSTEM, {**USER, "content": "Refund order 18"}],
            ('messages[1] (user): "Refund order 17" -> "Refund order 18"',),
        ),
        (
            [USER],
            [USER, {"role": "assistant", "content": "Done"}, USER],
            ("messages: 1 -> 3", 'messages[1] (assistant) is new: "Done"'),
        ),
        ([USER, USER], [USER], ("messages: 2 -> 1", 'messages[1] (user) is gone: "Refund order 17"')),
        (
            [USER],
            [{**USER, "role": "tool"}],
            (
                'messages[0] (user -> tool): "{"role":"user","content":"Refund order 17"}" -> '
                '"{"role":"tool","content":"Refund order 17"}"',
            ),
        ),
        ("a b", "a c", ('messages: "a b" -> "a c"',)),
        ([USER], None, ('messages: [{"role":"user","content":"Refund order 17"}] -> (not set)',)),
    ],
)
def test_messages_name_the_first_that_differs(old: Any, new: Any, lines: tuple[str, ...]) -> None:
    """How many messages there are, and index, role and words of the first that differs."""
    assert changes({"messages": old}, {"messages": new}) == lines


def test_tools_are_named() -> None:
    """Added, removed and changed tools by name; a new order alone is said as such."""
    old = {"tools": [tool("find"), tool("price", type="object"), tool("now")]}
    new = {"tools": [tool("find"), tool("price", type="string"), tool("refund"), tool("mail")]}

    assert changes(old, new) == ("tools: added refund, mail; removed now; schema changed price",)
    assert changes({"tools": [tool("a"), tool("b")]}, {"tools": [tool("b"), tool("a")]}) == ("tools: order changed",)
    assert changes({"tools": [{"name": "a"}]}, {"tools": [{"name": "b"}]}, MESSAGES) == ("tools: added b; removed a",)


def test_geminis_requests_are_told_in_its_own_words() -> None:
    """Prompt, contents, declared functions, hosted tools, and each setting of its generationConfig."""
    old = {
        "systemInstruction": {"parts": [{"text": "Plan."}]},
        "contents": [{"role": "user", "parts": [{"text": "one"}]}],
        "tools": [{"functionDeclarations": [{"name": "find"}, {"name": "price", "description": "a"}]}],
        "generationConfig": {"temperature": 0, "maxOutputTokens": 64},
    }
    new = {
        "systemInstruction": {"parts": [{"text": "Plan twice."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "one"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {}}}]},
        ],
        "tools": [
            {"functionDeclarations": [{"name": "price", "description": "b"}, {"name": "buy"}]},
            {"googleSearch": {}},
        ],
        "generationConfig": {"temperature": 0.7, "maxOutputTokens": 64, "thinkingConfig": {"thinkingBudget": 9}},
        "cachedContent": "cachedContents/c1",
    }

    assert changes(old, new, GEMINI) == (
        'system prompt: "Plan." -> "Plan twice."',
        "contents: 1 -> 2",
        'contents[1] (model) is new: "{"role":"model","parts":[{"functionCall":{"name":"find","args":{}}}]}"',
        "tools: added buy, googleSearch; removed find; schema changed price",
        'cachedContent: (not set) -> "cachedContents/c1"',
        "generationConfig.temperature: 0 -> 0.7",
        'generationConfig.thinkingConfig: (not set) -> {"thinkingBudget":9}',
    )


@pytest.mark.parametrize(
    ("url", "old", "new", "lines"),
    [
        (
            "http://localhost:11434/api/generate",
            {"model": "a", "system": "Plan.", "prompt": "one", "options": {"num_predict": 9}},
            {"model": "a", "system": "Plan.", "prompt": "two", "options": {"num_predict": 8, "seed": 1}},
            ('prompt: "one" -> "two"', "options.num_predict: 9 -> 8", "options.seed: (not set) -> 1"),
        ),
        (
            "https://generativelanguage.googleapis.com/v1beta/interactions",
            {"model": "a", "system_instruction": "Plan.", "input": "one", "tools": [{"type": "function", "name": "f"}]},
            {"model": "b", "system_instruction": "Go.", "input": "one", "tools": [{"type": "google_search"}]},
            ("model: a -> b", 'system prompt: "Plan." -> "Go."', "tools: added google_search; removed f"),
        ),
        (
            "https://api.mistral.ai/v1/conversations",
            {"agent_id": "a", "instructions": "Plan.", "inputs": [{"role": "user", "content": "one"}]},
            {"agent_id": "b", "instructions": "Plan.", "inputs": [{"role": "user", "content": "two"}]},
            ('inputs[0] (user): "one" -> "two"', 'agent_id: "a" -> "b"'),
        ),
        (
            "https://api.openai.com/v1/decisions",
            {"input": [{"role": "system", "content": "Judge."}], "questions": [1]},
            {"input": [{"role": "system", "content": "Score."}], "questions": [2]},
            ('system prompt: "Judge." -> "Score."', "questions: [1] -> [2]"),
        ),
        (
            RESPONSES,
            {"prompt": {"id": "p", "version": "1"}, "input": "a", "reasoning": {"effort": "low"}},
            {"prompt": {"id": "p", "version": "2"}, "input": "a", "reasoning": {"effort": "high"}},
            (
                'system prompt: "stored prompt p 1" -> "stored prompt p 2"',
                'prompt.version: "1" -> "2"',
                'reasoning.effort: "low" -> "high"',
            ),
        ),
    ],
)
def test_each_api_is_told_in_its_own_words(url: str, old: Any, new: Any, lines: tuple[str, ...]) -> None:
    """Whatever the keys are called, prompt, conversation, tools and settings are told apart."""
    assert changes(old, new, url) == lines


def test_a_model_in_the_url_is_told_first() -> None:
    """Where the path names the model, the same body to another model is no equal request."""
    other = GEMINI.replace("models/m:", "models/n:")

    assert describe_changes(other, b"{}", b"{}", GEMINI) == ("model: m -> n",)
    assert describe_changes(other, b'{"a": 1}', b'{"a": 2}', GEMINI) == ("model: m -> n", "a: 1 -> 2")
    assert describe_changes(other, b"x", b"x", GEMINI) == ("model: m -> n",)
    assert describe_changes(GEMINI, b"{}", b"{}", GEMINI) == ()


def test_settings_are_told_one_by_one() -> None:
    """Model and each changed setting, old beside new; what was not set says so."""
    old = {"model": "gpt-x", "temperature": 0, "max_tokens": 64, "stop": None, "seed": 1}
    new = {"model": "gpt-y", "temperature": 0.7, "max_tokens": 64, "stream": True, "seed": True}

    assert changes(old, new) == (
        "model: gpt-x -> gpt-y",
        "seed: 1 -> true",
        "stop: null -> (not set)",
        "stream: (not set) -> true",
        "temperature: 0 -> 0.7",
    )


def test_converse_keeps_settings_and_tools_in_objects_of_their_own() -> None:
    """Each setting inside goes by its own name, and tools are named as everywhere."""
    old = {
        "messages": [{"role": "user", "content": [{"text": "Refund order 17"}]}],
        "inferenceConfig": {"maxTokens": 100, "temperature": 0},
        "toolConfig": {"tools": [{"toolSpec": {"name": "find"}}, {"cachePoint": {"type": "default"}}]},
    }
    new = {
        "messages": [{"role": "user", "content": [{"text": "Refund order 18"}]}],
        "inferenceConfig": {"maxTokens": 200, "temperature": 0},
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "refund"}}, {"systemTool": {"name": "nova_grounding"}}],
            "toolChoice": {"any": {}},
        },
    }

    assert changes(old, new, CONVERSE.format("m")) == (
        'messages[0] (user): "Refund order 17" -> "Refund order 18"',
        "tools: added refund, nova_grounding; removed find, cachePoint",
        "inferenceConfig.maxTokens: 100 -> 200",
        'toolConfig: (not set) -> {"toolChoice":{"any":{}}}',
    )


def test_coheres_first_version_tells_a_history_and_a_message() -> None:
    """The new message and the first of the history that differs are quoted."""
    old = {"message": "Refund 17", "chat_history": [{"role": "USER", "message": "Hi"}]}
    new = {"message": "Refund 18", "chat_history": [{"role": "USER", "message": "Hello"}]}

    assert changes(old, new, COHERE) == (
        'chat_history[0] (USER): "Hi" -> "Hello"',
        'message: "Refund 17" -> "Refund 18"',
    )


def test_a_model_in_the_url_is_told_as_a_model() -> None:
    """Bedrock, Vertex and Azure name the model in the path, percent-encoded; ARNs are shown as they are meant."""
    profile = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Feu.claude-x"
    urls = CONVERSE.format("anthropic.claude-x-v1%3A0"), CONVERSE.format(profile)

    assert describe_changes(urls[1], b"{}", b"{}", urls[0]) == (
        "model: anthropic.claude-x-v1:0 -> arn:aws:bedrock:us-east-1:123456789012:inference-profile/eu.claude-x",
    )
    assert describe_changes(urls[0], b"{}", b"{}", urls[0]) == ()


def test_what_no_line_covers_is_still_told() -> None:
    """A mark on a prompt block changes no word of it; the key is named."""
    block = {"type": "text", "text": "Plan."}
    marked = {**block, "cache_control": {"type": "ephemeral"}}

    assert changes({"system": [block]}, {"system": [marked]}, MESSAGES) == (
        'system: [{"type":"text","text":"Plan."}] -> '
        '[{"type":"text","text":"Plan.","cache_control":{"type":"ephemeral"}}]',
    )


def test_there_are_never_more_than_eight_lines() -> None:
    """The last line says how many changes it stands for."""
    lines = changes({}, {f"k{n}": n for n in range(12)})

    assert len(lines) == 8
    assert lines[-1] == "and 5 more changes"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (b"a=1", b"a=2", "body differs at byte 2 (of 3 recorded, 3 requested)"),
        (b"x" * 5000, b"x" * 4999 + b"y", "body differs at byte 4999 (of 5000 recorded, 5000 requested)"),
        (b"a", b"ab", "body differs at byte 1 (of 1 recorded, 2 requested)"),
        (b"{}", b"", "body differs at byte 0 (of 2 recorded, 0 requested)"),
        (b"[" * 9000, b"{}", "body differs at byte 0 (of 9000 recorded, 2 requested)"),
    ],
)
def test_bodies_that_are_no_objects_name_the_byte(old: bytes, new: bytes, line: str) -> None:
    """Where nothing better can be said, the first byte that differs is."""
    assert describe_changes(CHAT, old, new) == (line,)


def test_text_of_bodies_cannot_steer_a_terminal() -> None:
    """Line breaks become blanks; escapes, bidi marks and lone surrogates are shown, not sent."""
    evil = {"messages": [{"role": "system", "content": "a\n\x1b[2J\u202eb\ud800\r::error::"}], "\x1b": 1}
    lines = changes({}, evil)

    assert lines == (
        'system prompt: (none) -> "a \\x1b[2J\\u202eb? ::error::"',
        'messages: (not set) -> [{"role":"system","content":"a\\n\\u001b[2J\\u202eb\\ud800\\r::error::"}]',
        "\\x1b: (not set) -> 1",
    )


@given(st.binary(), st.binary(), st.sampled_from([CHAT, RESPONSES, MESSAGES, GEMINI, "x"]))
def test_no_bytes_break_the_description(old: bytes, new: bytes, url: str) -> None:
    """Any two bodies that differ are described in safe, short lines."""
    check(describe_changes(url, old, new), old != new)


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=300)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
CONVERSATIONS = ("messages", "input", "inputs", "contents", "prompt")
KEYS = st.sampled_from(
    [*CONVERSATIONS, "model", "system", "instructions", "systemInstruction", "tools", "functions", "toolConfig", "t"]
)


@given(
    st.dictionaries(KEYS, JSON_VALUES),
    st.dictionaries(KEYS, JSON_VALUES),
    st.sampled_from([CHAT, RESPONSES, MESSAGES, GEMINI]),
)
def test_no_json_breaks_the_description(old: Any, new: Any, url: str) -> None:
    """Any two objects, whatever stands at the keys that are known."""
    check(changes(old, new, url), old != new)


def check(lines: tuple[str, ...], differs: bool) -> None:
    assert bool(lines) or not differs
    assert len(lines) <= 8
    for line in lines:
        assert len(line) <= 200
        assert line.isprintable()
        assert line.encode("utf-8")
