"""What a proof is judged by: requests, result and numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fanout.records import HttpRequest, Recording
from pytest_fanout.session.proof import Proof, Replay, compared, unproved_text
from pytest_fanout.store.replay import Missed

STORED = Recording("support", "refund", 1, None, 0, 5, "ok", True, ())
SAMPLES = {"fanout": 2, "rounds": 2}


def judged(recorded: bool, **fields: Any) -> tuple[str, ...]:
    values: dict[str, Any] = {"missed": (), "leftover": 0, "passed": True, "error": "", "samples": SAMPLES} | fields
    stored = Recording("support", "refund", 1, None, 0, 5, "ok", recorded, ())
    return compared(stored, SAMPLES, Replay(**values)).differences


@pytest.mark.parametrize(
    ("fields", "differences"),
    [
        ({}, ()),
        ({"passed": False, "error": "E: x"}, ("the task failed on replay: E: x",)),
        (
            {"leftover": 2, "passed": False, "error": "E: x"},
            ("2 recorded requests were not made again", "the task failed on replay: E: x"),
        ),
        ({"samples": SAMPLES | {"fanout": 3}}, ("other numbers on replay: fanout",)),
        ({"skipped": "no GPU"}, ("the task was skipped on replay: no GPU",)),
    ],
)
def test_all_that_can_differ(fields: dict[str, Any], differences: tuple[str, ...]) -> None:
    """A recording is proved by the same requests, the same end and the same numbers; each fault is said in words."""
    assert judged(True, **fields) == differences


def test_a_failure_is_proved_as_a_failure() -> None:
    """A trial that failed has to fail again."""
    assert judged(False, passed=False, error="E: x") == ()
    assert judged(False) == ("the task passed on replay",)


def request(body: str) -> HttpRequest:
    return HttpRequest("POST", "https://m.example/v1/chat/completions", (), body.encode())


def test_one_difference_in_many_calls_is_said_once() -> None:
    """The same date in each call is one difference, told of the first; a long list is cut."""
    missed = [Missed(n, request('{"a": "2026-12-01"}'), request('{"a": "2026-11-30"}'), ()) for n in range(1, 30)]
    assert compared(STORED, SAMPLES, Replay(missed, 0, True, "", SAMPLES)) == Proof(("call 1: a: a date",), ("/a",))
    other = [Missed(n, request(f'{{"k{n}": 1}}'), None, (f"change {n}",)) for n in range(1, 30)]
    differences = compared(STORED, SAMPLES, Replay(other, 0, True, "", SAMPLES)).differences
    assert differences[:2] == ("call 1: change 1", "call 2: change 2")
    assert differences[-1] == "and 22 more"


def test_what_cannot_be_named_is_shown() -> None:
    """Another text has no entry: then the difference itself is told."""
    miss = Missed(2, request('{"messages": ["b"]}'), request('{"messages": ["a"]}'), ('messages[0]: "a" -> "b"',))
    proof = compared(STORED, SAMPLES, Replay([miss], 0, True, "", SAMPLES))

    assert proof == Proof(('call 2: messages[0]: another text (messages[0]: "a" -> "b")',))


def test_the_line_holds_what_stands_in_the_budget_already() -> None:
    """It replaces the line that is there, and TOML reads in it what was meant."""
    text = unproved_text(Proof(("call 1: a: a date",), ("it's \\d", "/a")), ("/seed",))

    assert text == (
        "the recording does not replay, so it was not stored: call 1: a: a date; mend: make the requests steady from"
        " run to run, or let [measure] of budget.toml ignore what changes: volatile = ['/seed', \"it's \\\\d\", '/a']"
    )
