"""Growing contexts are stored once, and come back exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fanout.store.parts import Packer, Unpacker
from pytest_fanout.store.tape import long_texts

LONG = "a context of more than eighty bytes, which is what it takes to be worth a reference, as counted here"
OTHER = "another text of more than eighty bytes, which stands beside the first one and shares nothing with it."


def pack(*values: Any) -> tuple[list[Any], list[Any]]:
    packer = Packer(values)
    parts: list[Any] = []
    packed = []
    for value in values:
        form, new = packer.pack(value)
        parts += new
        packed.append(form)
    return packed, parts


def unpack(packed: list[Any], parts: list[Any]) -> list[Any]:
    unpacker = Unpacker()
    for number, part in enumerate(parts):
        unpacker.add(number, part)
    return [unpacker.unpack(form) for form in packed]


def test_a_message_that_is_sent_again_is_a_reference() -> None:
    """The message stands once, as a part; what occurs once stays where it is."""
    message = {"role": "user", "content": LONG}

    packed, parts = pack({"messages": [message]}, {"messages": [message, {"role": "user", "content": OTHER}]})

    assert parts == [{"content": LONG, "role": "user"}]
    assert packed == [
        {"messages": [{"$part": 0}]},
        {"messages": [{"$part": 0}, {"content": OTHER, "role": "user"}]},
    ]


def test_neighbouring_parts_in_a_list_are_one_reference() -> None:
    """A list that grows costs the same at every length: from its first part up to the one before which it ends."""
    first, second, third = ({"role": role, "content": LONG} for role in "abc")

    packed, parts = pack([first, second], [first, second, third], [third, first, second, 5, third])

    assert parts == [LONG, *({"content": {"$part": 0}, "role": role} for role in "abc")]
    assert packed == [
        [{"$parts": [1, 3]}],
        [{"$parts": [1, 4]}],
        [{"$part": 3}, {"$parts": [1, 3]}, 5, {"$part": 3}],
    ]
    assert unpack(packed, parts) == [[first, second], [first, second, third], [third, first, second, 5, third]]


def test_a_text_in_a_changed_message_is_still_a_reference() -> None:
    """A cache mark that moves changes the message, not the text in it."""
    first = {"messages": [{"content": LONG, "cache": True}]}
    second = {"messages": [{"content": LONG}]}

    packed, parts = pack(first, second)

    assert parts == [LONG]
    assert packed == [
        {"messages": [{"cache": True, "content": {"$part": 0}}]},
        {"messages": [{"content": {"$part": 0}}]},
    ]


def test_a_text_that_grows_keeps_its_new_end_only() -> None:
    """Agents that paste everything into one prompt grow by what is new as well."""
    beginning = LONG + OTHER

    packed, parts = pack({"prompt": beginning + "one"}, {"prompt": beginning + "two"})

    assert parts == [beginning + "one"]
    assert packed == [
        {"prompt": {"$part": 0}},
        {"prompt": {"$join": [{"$part": 0, "upto": len(beginning)}, "two"]}},
    ]


def test_small_values_are_never_references() -> None:
    """A reference to a short text would be longer than the text."""
    packed, parts = pack(["short", {"a": 1}], ["short", {"a": 1}])

    assert (packed, parts) == ([["short", {"a": 1}]] * 2, [])


@pytest.mark.parametrize(
    "value", [{"$part": 0}, {"$parts": [0, 1]}, {"$join": []}, {"$literal": {"$literal": 1}}, {"$part": LONG, "x": 1}]
)
def test_objects_that_look_like_references_are_escaped(value: Any) -> None:
    """A prompt may hold any JSON, ours too."""
    packed, parts = pack({"a": value}, {"a": value})

    assert unpack(packed, parts) == [{"a": value}] * 2
    assert set(packed[0]["a"]) == {"$literal"}


def test_bytes_grow_with_what_is_new() -> None:
    """40 calls whose context grows by one message each store about 40 messages, not 820."""
    messages = [{"role": "user", "content": f"message {n}: {LONG}"} for n in range(40)]
    calls = [{"messages": messages[: n + 1]} for n in range(40)]

    packed, parts = pack(*calls)

    size = len(json.dumps(packed)) + len(json.dumps(parts))
    assert size < len(json.dumps(messages)) + sum(20 * (n + 1) for n in range(40))
    assert unpack(packed, parts) == calls


def test_an_answer_that_is_sent_back_stands_once() -> None:
    """What was heard keeps its own bytes, line feeds and blanks of its JSON too; the text in it is a reference."""
    text = LONG + "\n\u00e9"
    for style, heard in (
        ("json", json.dumps({"content": text}, ensure_ascii=False, indent=1)),
        ("ascii", json.dumps({"content": text})),
    ):
        asked = {"messages": [{"content": text}]}
        packer = Packer([[text], asked])
        form, first = packer.pack_written(heard, [text])
        packed, more = packer.pack(asked)

        assert (first, more) == ([text], [])
        before, after = heard.split(json.dumps(text, ensure_ascii=style == "ascii")[1:-1])
        assert form == {"$join": [before, {"$part": 0, "as": style}, after]}
        unpacker = Unpacker()
        unpacker.add(0, text)
        assert unpacker.written(form) == heard
        assert unpacker.unpack(packed) == asked


def test_an_answer_written_in_a_way_of_its_own_stays_as_it_is() -> None:
    """A server may escape what need not be: its text is then no reference, and what is sent back can still share it."""
    text = f"{LONG} a/b and more of it, so that what is sent back begins alike for long enough"
    heard = json.dumps({"content": text}).replace("/", "\\/")
    asked = {"prompt": text + " Go on."}
    packer = Packer([[text], asked])
    form, first = packer.pack_written(heard, [text])
    packed, more = packer.pack(asked)

    assert (form, first) == (heard, [])
    assert unpack([packed], more) == [asked]


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ({"$join": [{"$part": 0, "as": "yaml"}]}, "part 0 cannot be written as 'yaml'"),
        ({"$join": [{"$part": 1, "as": "json"}]}, "part 1 cannot be written as 'json'"),
        ({"$join": [{"$part": 9, "as": "json"}]}, "refers to part 9, which does not stand before it"),
        ({"$join": [{"$part": 0}]}, "$join puts together something that is no text"),
        ({"$join": "x"}, "a text that was heard must be a text or a $join"),
        (7, "a text that was heard must be a text or a $join"),
    ],
)
def test_a_bad_form_of_what_was_heard_is_told(form: Any, what: str) -> None:
    """As with requests, nothing is guessed."""
    unpacker = Unpacker()
    unpacker.add(0, "text")
    unpacker.add(1, ["no text"])
    with pytest.raises(ValueError) as caught:
        unpacker.written(form)

    assert str(caught.value) == what


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ({"$part": 1}, "refers to part 1, which does not stand before it"),
        ({"$part": True}, "refers to part True, which does not stand before it"),
        ({"$part": 0, "upto": 999}, "upto 999 does not fit part 0"),
        ({"$part": 0, "upto": None}, "upto None does not fit part 0"),
        ({"$join": [1]}, "$join puts together something that is no text"),
        ({"$part": 0, "x": 1}, "an object mixes $part with other keys"),
        ([{"$parts": [0, 2]}], "refers to the parts 0 to 1, which do not all stand before it"),
        ([{"$parts": [0, 0]}], "refers to the parts 0 to -1, which do not all stand before it"),
        ([{"$parts": [0, True]}], "$parts must be two numbers"),
        ([{"$parts": [0, 1], "x": 1}], "$parts must be two numbers"),
    ],
)
def test_a_reference_that_cannot_be_followed_is_told(form: Any, what: str) -> None:
    """An altered file is never guessed at."""
    unpacker = Unpacker()
    unpacker.add(0, "text")

    with pytest.raises(ValueError) as caught:
        unpacker.unpack(form)

    assert str(caught.value) == what


def test_parts_come_in_order() -> None:
    """A part that is missing or doubled is told."""
    with pytest.raises(ValueError) as caught:
        Unpacker().add(1, "text")

    assert str(caught.value) == "part must be 0"


texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from([LONG, LONG + OTHER, OTHER]),
    st.builds(lambda cut, end: (LONG + OTHER)[:cut] + end, st.integers(100, 200), st.text(max_size=3)),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(texts, st.sampled_from(["$part", "$parts", "$join", "$literal", "upto"])), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(values, max_size=5))
def test_any_values_come_back_exactly(bodies: list[Any]) -> None:
    """Types and all: 1 stays 1, 1.0 stays 1.0, true stays true. What is written is JSON."""
    packed, parts = pack(*bodies)

    read = unpack(json.loads(json.dumps(packed)), json.loads(json.dumps(parts)))

    assert json.dumps(read, sort_keys=True) == json.dumps(bodies, sort_keys=True)


@settings(deadline=None)
@given(st.lists(values, max_size=5))
def test_the_text_of_a_packed_value_is_that_of_the_value(bodies: list[Any]) -> None:
    """Put together from the texts of parts, it is the canonical text, byte for byte."""
    packed, parts = pack(*bodies)
    unpacker = Unpacker()
    for number, part in enumerate(parts):
        unpacker.add(number, part)

    texts = [unpacker.text(form) for form in packed]

    assert texts == [json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":")) for body in bodies]


@settings(deadline=None)
@given(st.lists(st.tuples(values, st.booleans(), st.sampled_from([None, 1])), max_size=4))
def test_any_answers_come_back_byte_for_byte(answers: list[tuple[Any, bool, int | None]]) -> None:
    """In whatever style their JSON was written, beside requests that repeat them."""
    written = [json.dumps(value, ensure_ascii=ascii, indent=indent) for value, ascii, indent in answers]
    inside = [list(long_texts(value)) for value, _, _ in answers]
    packer = Packer(part for (value, _, _), some in zip(answers, inside, strict=True) for part in (some, value))
    unpacker, count, back = Unpacker(), 0, []
    for (value, _, _), text, some in zip(answers, written, inside, strict=True):
        heard, new = packer.pack_written(text, some)
        packed, more = packer.pack(value)
        for part in json.loads(json.dumps([*new, *more])):
            unpacker.add(count, part)
            count += 1
        back.append(unpacker.written(json.loads(json.dumps(heard))))
        assert json.dumps(unpacker.unpack(packed), sort_keys=True) == json.dumps(value, sort_keys=True)

    assert back == written
