"""What changes from run to run is named, and the entry that ignores it is as narrow as it can be."""

from __future__ import annotations

import json

import pytest

from pytest_fanout.wire.canonical import body_key, compile_volatile
from pytest_fanout.wire.unsteady import Unsteady, likeness, unsteady_parts, words_of


def chat(text: str, system: str = "Plan.", **more: object) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


USER, SYSTEM = "messages[1] (user)", "messages[0] (system)"
DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
UUIDS = ("5f0c8a2e-7d5a-4b53-9f5e-0a1b2c3d4e5f", "6f0c8a2e-7d5a-4b53-9f5e-0a1b2c3d4e5a")
UUID = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"


@pytest.mark.parametrize(
    ("old", "new", "what", "entry"),
    [
        ("Plan. Today is 2026-11-30.", "Plan. Today is 2026-12-01.", "a date", r"Plan\. Today is \d{4}-\d{2}-\d{2}"),
        (
            "It is Monday, November 30, 2026.",
            "It is Tuesday, December 1, 2026.",
            "a date",
            rf"It is {DAY},? [A-Z][a-z]+ \d{{1,2}}[a-z]{{0,2}},? \d{{4}}",
        ),
        ("on 30 Nov 2026", "on 1 Dec 2026", "a date", r"on \d{1,2}\.? [A-Z][a-z]+,? \d{4}"),
        ("30.11.2026", "01.12.2026", "a date", r"^\d{1,4}[./]\d{1,2}[./]\d{2,4}"),
        ("Happy Monday!", "Happy Tuesday!", "a day of the week", f"Happy {DAY}"),
        (
            "now=2026-11-30T01:22:33.5+00:00;",
            "now=2026-12-01T01:22:34Z;",
            "a date and time",
            r"now=\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?",
        ),
        ("at 01:22 (", "at 11:07 (", "a time", r"at \d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?"),
        ("ts 1795999999", "ts 1796086399", "a time in seconds", r"ts 1\d{9}(?:\.\d+|\d{3})?"),
        (f"Session {UUIDS[0]}", f"Session {UUIDS[1]}", "a fresh id", f"Session {UUID}"),
        ("call_9f3a2b1c", "call_0f3a2b1d", "a fresh id", "^call_[0-9a-f]{8}"),
        ("id: x7Kd92Lq.", "id: y7Kd91Lz.", "a fresh id", "id: [A-Za-z0-9_-]{8}"),
        ("<Shop at 0x7f12>", "<Shop at 0x7f9aa>", "an address in memory", "<Shop at 0x[0-9a-fA-F]+"),
        ("in /srv/a1/shop", "in /srv/b/shop", "a path", r"in (?:/[\w.@+-]+){2,}/?"),
        ("took 12 ms", "took 7 ms", "a number", r"took \d+(?:\.\d+)?"),
        ("a\n2026-11-30", "a\n2026-12-01", "a date", r"\n\d{4}-\d{2}-\d{2}"),
        ("/x 2026-11-30", "/x 2026-12-01", "a date", r"[/]x \d{4}-\d{2}-\d{2}"),
        ("(a|b) 2026-11-30", "(a|b) 2026-12-01", "a date", r"\(a\|b\) \d{4}-\d{2}-\d{2}"),
    ],
)
def test_what_stands_in_a_text_is_told_by_its_shape(old: str, new: str, what: str, entry: str) -> None:
    """The entry holds the words before it, so that the same shape elsewhere stays part of the question."""
    assert unsteady_parts(chat(old), chat(new)) == (Unsteady(USER, what, entry),)
    volatile = compile_volatile([entry], "")
    assert body_key(chat(old), None, volatile) == body_key(chat(new), None, volatile)
    assert body_key(chat("fly on 2026-11-30"), None, volatile) != body_key(chat("fly on 2026-12-01"), None, volatile)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ({"metadata": {"run/id": UUIDS[0]}}, {"metadata": {"run/id": UUIDS[1]}}, ("a fresh id", "/metadata/run~1id")),
        ({"user": "anna"}, {"user": "bert"}, ("another value", "/user")),
        ({"seed": 3}, {"seed": 4}, ("another value", "/seed")),
        ({"model": "a"}, {"model": "b"}, ("another value", None)),
        ({"max_tokens": 3}, {"max_tokens": 4}, ("another value", None)),
        ({"user": "anna"}, {}, ("a key that is not always there", None)),
        ({"stop": ["a", "b"]}, {"stop": ["b", "a"]}, ("the same items in another order", None)),
        ({"stop": ["a", "b"]}, {"stop": ["a"]}, ("2 items, then 1", None)),
    ],
)
def test_a_value_is_told_by_its_path(
    old: dict[str, object], new: dict[str, object], part: tuple[str, str | None]
) -> None:
    """A whole value is ignored by its path, but never one that decides on cost or answer."""
    ((found),) = unsteady_parts(chat("q", **old), chat("q", **new))

    assert (found.what, found.volatile) == part


def test_a_set_is_told_from_results() -> None:
    """The same words in another order are those of a set, unless all that moved was heard in answers before."""
    old, new = chat("about tax, refund, parcel"), chat("about parcel, tax, refund")

    assert unsteady_parts(old, new) == (Unsteady(USER, "the same words in another order"),)
    heard = "refund for you, tax is due, a parcel"
    assert unsteady_parts(old, new, heard) == (Unsteady(USER, "results in another order"),)


def test_tool_results_in_another_order() -> None:
    """Messages that have changed places are results in another order when the tools' answers were heard before."""
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"weather{n}"} for n in (1, 2)]
    bodies = [json.dumps({"messages": order}).encode() for order in (results, results[::-1])]

    (found,) = unsteady_parts(*bodies, heard="weather1 weather2 tool c1 c2 c1")
    assert (found.place, found.what) == ("messages", "results in another order")


def test_several_differences_of_one_text() -> None:
    """Each is told, and together their entries make the two texts one question."""
    old = chat(f"Session {UUIDS[0]} of 2026-11-30", system="Now 01:22.")
    new = chat(f"Session {UUIDS[1]} of 2026-12-01", system="Now 01:23.")
    parts = unsteady_parts(old, new)

    assert [(part.place, part.what) for part in parts] == [
        (SYSTEM, "a time"), (USER, "a fresh id"), (USER, "a date")
    ]  # fmt: skip
    volatile = compile_volatile([part.volatile for part in parts], "")
    assert body_key(old, None, volatile) == body_key(new, None, volatile)


def test_what_cannot_be_told_has_no_entry() -> None:
    """Other words are another question: nothing is suggested that would ignore them."""
    assert unsteady_parts(chat("is nice"), chat("is bad")) == (Unsteady(USER, "another text"),)
    assert unsteady_parts(b"\xff", b"\xfe") == (Unsteady("the body", "other bytes"),)
    assert unsteady_parts(b"run=2026-11-30", b"run=2026-12-01")[0].volatile == r"run=\d{4}-\d{2}-\d{2}"
    assert unsteady_parts(chat("q"), chat("q")) == ()


def test_a_request_is_most_like_the_one_it_was() -> None:
    """Neither another question nor the same context grown by a turn is nearer than the same words with another id."""
    asked = chat(f"Session {UUIDS[0]} begins")
    grown = chat(f"Session {UUIDS[1]} begins and goes on with many more words in it")
    candidates = [chat("steady"), grown, chat(f"Session {UUIDS[1]} begins")]

    assert max(candidates, key=lambda body: likeness(words_of(body), words_of(asked))) == candidates[2]
