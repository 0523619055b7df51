"""When two request bodies are the same question."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.errors import ConfigError
from pytest_fanout.wire.canonical import body_key, compile_volatile

WHERE = "baselines/budget.toml: [measure] volatile"
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


def key(body: Any, *volatile: str, content_type: str | None = "application/json") -> str:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return body_key(data, content_type, compile_volatile(volatile, WHERE))


@given(JSON_VALUES)
def test_layout_and_order_never_matter(value: Any) -> None:
    """The same JSON in another order of keys, layout and escaping is the same question."""
    loose = json.dumps(value, indent=3, sort_keys=True, ensure_ascii=True).encode()
    tight = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()

    assert body_key(loose, None) == body_key(tight, "text/plain")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        (b"a=1", b"a=2"),
        (b"\xff", b"\xfe"),
        (b'{"a": "\xff"}', b'{"a": "\xfe"}'),
        (b'{"a": 1, "a": 2}', b'{"a": 2}'),
        (b"[" * 9000, b"[" * 9001),
        (b'{"a":' + b"1" * 5000 + b"}", b'{"a":' + b"2" * 5000 + b"}"),
        (b"", b"{}"),
    ],
)
def test_another_question_has_another_key(one: Any, other: Any) -> None:
    """Any value, type or place that differs makes another question, also in bodies that cannot be read as JSON."""
    assert key(one) != key(other)


@pytest.mark.parametrize(
    ("volatile", "one", "other", "same"),
    [
        (["/metadata/run"], {"metadata": {"run": 1, "k": 1}}, {"metadata": {"run": [2], "k": 1}}, True),
        (["/metadata/run"], {"metadata": {"run": 1, "k": 1}}, {"metadata": {"run": 1, "k": 2}}, False),
        (["/m/*/id"], {"m": [{"id": 1}, {"id": 2}]}, {"m": [{"id": 3}, {"id": 4}]}, True),
        (["/m/*/id"], {"m": {"a": {"id": 1}}}, {"m": {"a": {"id": 2}}}, True),
        (["/m/*/id"], {"m": [{"id": 1}]}, {"m": [{"id": 1}, {"id": 1}]}, False),
        (["/m/0"], {"m": ["a", "b"]}, {"m": ["x", "b"]}, True),
        (["/m/0"], {"m": ["a", "b"]}, {"m": ["a", "x"]}, False),
        (["/a~1b/~0"], {"a/b": {"~": 1}}, {"a/b": {"~": 2}}, True),
        (["/nowhere/at/all"], {"a": 1}, {"a": 1}, True),
        ([r"run-\d+"], {"a": ["in run-17 we"]}, {"a": ["in run-4 we"]}, True),
        ([r"run-\d+"], {"a": ["in run-17 we"]}, {"a": ["in run-4 You"]}, False),
        ([r"run-\d+"], {"run-1": 1}, {"run-2": 1}, False),
        ([r"\d{4}", r"[a-f]+"], {"a": "2026 abc"}, {"a": "2025 def"}, True),
        ([r"run-\d+"], b"name=run-1&x=1", b"name=run-22&x=1", True),
        ([r"run-\d+"], b"name=run-1&x=1", b"name=run-1&x=2", False),
    ],
)
def test_volatile_parts_are_ignored_and_nothing_else(volatile: list[str], one: Any, other: Any, same: bool) -> None:
    """Pointers ignore a value, with * for any key or index; expressions ignore what they match inside a string."""
    assert (key(one, *volatile) == key(other, *volatile)) is same


def test_a_boundary_of_a_multipart_body_is_no_question() -> None:
    """Clients draw the boundary at random; the parts between are what counts."""

    def sent(boundary: str, part: str, quote: str = "") -> str:
        body = f"--{boundary}\r\nContent-Disposition: form-data\r\n\r\n{part}\r\n--{boundary}--\r\n"
        return key(body.encode(), content_type=f"Multipart/form-data; charset=x; boundary={quote}{boundary}{quote}")

    assert sent("aaa", "x") == sent("b'b", "x") == sent("c c", "x", '"')
    assert sent("aaa", "x") != sent("aaa", "y")


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("(", "'(' is not a regular expression: missing ), unterminated subpattern at position 0"),
        ("", "'' is not a text"),
        (7, "7 is not a text"),
        ("x*", "'x*' matches the empty text"),
        (".+", "'.+' would ignore what requests are told apart by"),
        (r"\S+", r"'\\S+' would ignore what requests are told apart by"),
        ("/*", "'/*' would ignore what requests are told apart by"),
        ("/messages", "'/messages' would ignore what requests are told apart by"),
        ("/messages/*/content", "'/messages/*/content' would ignore what requests are told apart by"),
        ("/system", "'/system' would ignore what requests are told apart by"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named(entry: object, what: str) -> None:
    """A broken volatile entry names its file, key and number, and the mend."""
    with pytest.raises(ConfigError) as caught:
        compile_volatile(["/fine", entry], WHERE)

    assert str(caught.value) == (
        f"{WHERE}[1]: {what}\n"
        "  mend: write a JSON pointer such as /metadata/run, or a regular expression that matches some text\n"
        "  see: docs/messages.md#bad-volatile"
    )


@given(st.binary(), st.one_of(st.none(), st.text(), st.just('multipart/x; boundary="é"')))
def test_no_bytes_break_the_key(body: bytes, content_type: str | None) -> None:
    """Any body has a key of 64 hex digits, the same one each time."""
    volatile = compile_volatile(["/a/*", "[0-9]"], WHERE)

    assert len(body_key(body, content_type, volatile)) == 64
    assert body_key(body, content_type, volatile) == body_key(body, content_type, volatile)
