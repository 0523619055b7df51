"""The AWS event stream: framing that trusts no length, and codecs that say nothing which a damaged frame said."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from aws_frames import CONTENT_TYPE, chunk, chunks, encode_frame, frame, frames
from hypothesis import given
from hypothesis import strategies as st
from test_wire_fuzz import COUNT, SCALARS, TOOLS, check, cut, mutated
from wire_examples import EXAMPLES, Example, facts

from pytest_fanout.records import Attempt
from pytest_fanout.wire import eventstream, read_call
from pytest_fanout.wire.eventstream import Frame, looks_like_frames, parse_frames

BINARY = [example for example in EXAMPLES.values() if example.form in ("frames", "chunks")]
CONVERSE = EXAMPLES["BR2"].url
INVOKE = EXAMPLES["BI2"].url
URLS = [CONVERSE, INVOKE, EXAMPLES["BR1"].url, EXAMPLES["BI1"].url]
EVENT = {":event-type": "e", ":message-type": "event"}
by_id = pytest.mark.parametrize("example", BINARY, ids=[example.id for example in BINARY])


def raw(total: int, headers: int, rest: bytes = b"") -> bytes:
    """A head whose own checksum holds, whatever lengths it tells, and what follows it."""
    head = struct.pack(">II", total, headers)
    return head + struct.pack(">I", zlib.crc32(head)) + rest


def read(url: str, body: bytes) -> Attempt:
    attempt = read_call("POST", url, b"{}", 200, CONTENT_TYPE, body)
    assert attempt is not None
    return attempt


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (encode_frame(EVENT, b"{}"), [Frame("event", "e", b"{}")]),
        (frame("exception a", {}), [Frame("exception", "a", b"{}")]),
        (frame("error InternalFailure", b""), [Frame("error", "InternalFailure", b"")]),
        (encode_frame({":event-type": "e"}, b"x"), [Frame("event", "e", b"x")]),
        (encode_frame({}, b""), [Frame("event", "", b"")]),
        (
            encode_frame({"n": 5, "yes": True, "no": False, "raw": b"\xff", **EVENT}, b""),
            [Frame("event", "e", b"")],
        ),
        (encode_frame(EVENT, b"1")[:11], [Frame("broken", "cut")]),
        (encode_frame(EVENT, b"1")[:-1], [Frame("broken", "cut")]),
        (encode_frame(EVENT, b"1") + b"\0", [Frame("event", "e", b"1"), Frame("broken", "cut")]),
        (raw(2**32 - 1, 0), [Frame("broken", "bad_frame")]),
        (raw(20 * 2**20, 0), [Frame("broken", "cut")]),
        (raw(16, 2**31, bytes(4)), [Frame("broken", "bad_frame")]),
        (raw(16, 1, bytes(4)), [Frame("broken", "bad_frame")]),
        (raw(15, 0, bytes(4)), [Frame("broken", "bad_frame")]),
        (raw(0, 0, bytes(4)), [Frame("broken", "bad_frame")]),
        (encode_frame(dict.fromkeys("abc", b"x" * 60_000), b""), [Frame("broken", "bad_frame")]),
        (struct.pack(">III", 900, 0, 1) + bytes(4), [Frame("broken", "bad_frame")]),
        (b"\0" * 500, [Frame("broken", "bad_frame")]),
        (b'{"message": "no stream at all"}', [Frame("broken", "bad_frame")]),
    ],
)
def test_frames_come_as_they_are_and_lengths_must_bear_out(data: bytes, found: list[Frame]) -> None:
    """Kind, name and payload of whole frames; the first frame that does not hold is the end."""
    assert list(parse_frames(data)) == found


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01a",  # no type
        b"\x01a\x07",  # no length
        b"\x01a\x07\x00",
        b"\x01a\x07\x00\x05hi",  # shorter than it says
        b"\x01a\x05\x00",
        b"\x01a\x0a",  # no such type
        b"\x09a",
        b"\x01a\x00\x01a\x00",  # the same name twice
    ],
)
def test_headers_that_are_none_end_the_stream(headers: bytes) -> None:
    """A frame whose checksums hold and whose headers do not is read no more than a damaged one."""
    head = struct.pack(">II", 16 + len(headers), len(headers))
    body = head + struct.pack(">I", zlib.crc32(head)) + headers
    data = body + struct.pack(">I", zlib.crc32(body))

    assert list(parse_frames(data)) == [Frame("broken", "bad_frame")]


def test_more_frames_than_a_stream_can_hold_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body made of very many tiny frames costs no more than the cap, and the note says so."""
    monkeypatch.setattr(eventstream, "MAX_FRAMES", 3)
    one = frame("messageStart", {"role": "assistant"})

    assert [found.name for found in parse_frames(one * 4)] == ["messageStart"] * 3 + ["too_large"]
    assert [found.name for found in parse_frames(one * 3)] == ["messageStart"] * 3
    assert read(CONVERSE, one * 4).notes == ("too_large",)


@by_id
def test_a_stream_is_known_by_its_bytes(example: Example) -> None:
    """Without a content type, or under a wrong one, the frames are read all the same."""
    plain = read_call("POST", example.url, example.request, 200, example.headers, example.body)
    assert looks_like_frames(example.body)
    for headers in (None, {"content-type": "application/json"}, {"content-type": "text/event-stream"}):
        assert read_call("POST", example.url, example.request, 200, headers, example.body) == plain


@by_id
def test_no_damaged_byte_gives_a_wrong_number(example: Example) -> None:
    """Whichever byte is wrong, the checksums tell: the call is incomplete, and what is told had been heard whole."""
    whole = read(example.url, example.body)
    for at in range(0, len(example.body), 3):
        body = bytearray(example.body)
        body[at] ^= 0x10
        damaged = read(example.url, bytes(body))

        assert damaged.status == "incomplete"
        assert damaged.input_tokens in (None, whole.input_tokens)
        if damaged.output_tokens != whole.output_tokens:
            assert damaged.usage_source in ("missing", "partial")
        names = [call.name for call in whole.tool_calls]
        assert [call.name for call in damaged.tool_calls] == names[: len(damaged.tool_calls)]


def test_a_damaged_frame_is_noted_and_a_cut_is_no_damage() -> None:
    """A checksum that does not hold is a fault of the way, not of the model; a cut stream is merely short."""
    body = EXAMPLES["BR2"].body
    damaged = body[:-1] + bytes([body[-1] ^ 1])

    expected = {"status": "incomplete", "usage_source": "missing", "finish": "tool_calls", "notes": ("bad_frame",)}
    assert facts(read(CONVERSE, damaged), *expected) == expected
    assert facts(read(CONVERSE, body[:-1]), *expected) == {**expected, "notes": ()}


def test_bytes_after_the_last_event_are_told_and_take_nothing_back() -> None:
    """The usage was heard in a whole frame; that something follows which is none leaves the call incomplete."""
    expected = {"status": "incomplete", "input_tokens": 30, "output_tokens": 60, "usage_source": "final"}

    assert facts(read(CONVERSE, EXAMPLES["BR2"].body + b"\0" * 20), *expected) == expected


@pytest.mark.parametrize(
    ("url", "body", "error_type"),
    [
        (CONVERSE, frame("exception internalServerException", {"message": "m"}), "internalServerException"),
        (CONVERSE, frame("error InternalFailure", b""), "InternalFailure"),
        (CONVERSE, encode_frame({":message-type": "exception"}, b""), "error"),
        (INVOKE, frame("exception modelTimeoutException", {}), "modelTimeoutException"),
        (INVOKE, chunk({"type": "error", "error": {"type": "overloaded_error"}}), "overloaded_error"),
    ],
)
def test_a_failure_at_once_is_a_call_that_failed_after_it_began(url: str, body: bytes, error_type: str) -> None:
    """HTTP said 200: the call counts, its usage is missing."""
    expected = {"status": "error", "finish": "error", "error_type": error_type, "usage_source": "missing"}

    assert facts(read(url, body), *expected) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        frame("initial-response", {}),
        frame("messageStart", b"no json")[:20],
        frames([["chunk", {"bytes": 5}]]),
        frames([["chunk", {"bytes": "%%%"}]]),
        frames([["chunk", {"bytes": "é"}]]),
        chunk(b"no json"),
        chunk([1]),
    ],
)
def test_a_stream_that_says_nothing_is_no_answer(body: bytes) -> None:
    """Frames without an event of a model leave the call incomplete and empty."""
    expected = {"status": "incomplete", "usage_source": "missing", "choices": 0}
    notes = read(INVOKE, body).notes

    assert facts(read(INVOKE, body), *expected) == expected
    assert "empty_response" in notes


@given(st.binary(max_size=300), st.sampled_from(URLS))
def test_any_bytes_are_frames_or_the_end_of_them(data: bytes, url: str) -> None:
    """Noise, also behind a whole frame, gives an attempt."""
    check(read(url, data))
    check(read(url, frame("messageStart", {}) + data))


HEADERS = st.dictionaries(
    st.sampled_from([":event-type", ":message-type", ":exception-type", ":error-code", ":content-type", "x"]),
    st.one_of(
        st.sampled_from(["event", "exception", "error", "chunk", "metadata", "messageStop", "contentBlockDelta"]),
        st.booleans(),
        st.binary(max_size=4),
        st.integers(-(2**60), 2**60),
    ),
)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=30)), max_size=4), st.sampled_from(URLS))
def test_any_frames_that_hold_are_read(told: list[tuple[dict[str, Any], bytes]], url: str) -> None:
    """Whatever stands in headers and payloads whose checksums hold."""
    body = b"".join(encode_frame(*one) for one in told)

    assert [one.kind for one in parse_frames(body)].count("broken") == 0
    check(read(url, body))


@given(st.sampled_from(BINARY), st.data())
def test_any_value_in_any_event(example: Example, data: st.DataObject) -> None:
    """A real stream in which one value of one event has another type or size gives an attempt."""
    told = [(one.name, one.payload) for one in parse_frames(example.body) if one.kind == "event"]
    at = data.draw(st.integers(0, len(told) - 1))
    name, payload = told[at]
    document = json.loads(payload)
    if example.form == "chunks":
        inner = mutated(json.loads(base64.b64decode(document["bytes"])), data)
        told[at] = (name, chunk(inner))
    else:
        told[at] = (name, frame(name, mutated(document, data)))
    body = b"".join(one if index == at else frame(name, one) for index, (name, one) in enumerate(told))

    check(read(example.url, body))


@given(SCALARS)
def test_a_count_of_any_kind_among_the_metrics(value: Any) -> None:
    """Bedrock's own counts are believed only where they are counts."""
    last = {"outputs": [{"text": "", "stop_reason": "stop"}]}
    body = chunks([{**last, "amazon-bedrock-invocationMetrics": {"inputTokenCount": value, "outputTokenCount": 5}}])

    check(read(EXAMPLES["BI4"].url, body))


@given(TOOLS, COUNT, COUNT, COUNT, COUNT, st.data())
def test_converse_streamed_equals_whole(
    tools: Any, fresh: int, cached: int, written: int, made: int, data: st.DataObject
) -> None:
    """A Converse answer told in events and pieces is the record of the same answer whole."""
    usage = {
        "inputTokens": fresh,
        "cacheReadInputTokens": cached,
        "cacheWriteInputTokens": written,
        "outputTokens": made,
        "totalTokens": fresh + cached + written + made,
    }
    blocks = [{"toolUseId": f"id{at}", "name": name, "input": value} for at, (name, value) in enumerate(tools)]
    document = {
        "output": {"message": {"role": "assistant", "content": [{"toolUse": block} for block in blocks]}},
        "stopReason": "tool_use",
        "usage": usage,
    }
    events: list[list[Any]] = [["messageStart", {"role": "assistant"}]]
    for at, block in enumerate(blocks):
        opened = {key: value for key, value in block.items() if key != "input"}
        events.append(["contentBlockStart", {"contentBlockIndex": at, "start": {"toolUse": opened}}])
        for piece in cut(json.dumps(block["input"], ensure_ascii=False), data) if block["input"] else []:
            step = {"contentBlockIndex": at, "delta": {"toolUse": {"input": piece}}}
            events.append(["contentBlockDelta", step])
    events += [["messageStop", {"stopReason": "tool_use"}], ["metadata", {"usage": usage}]]
    whole = read_call("POST", EXAMPLES["BR1"].url, b"{}", 200, {}, json.dumps(document).encode())
    streamed = read(CONVERSE, frames(events))

    assert whole is not None
    assert (whole.status, whole.total_tokens) == ("ok", usage["totalTokens"])
    assert replace(streamed, stream=False) == whole
