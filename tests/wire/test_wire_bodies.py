"""Bodies: content codings with a cap, JSON of any shape, and the framing of event streams."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import EXAMPLES, facts

from pytest_fanout.wire import bodies, read_call
from pytest_fanout.wire.bodies import NOT_JSON, decode, load_json
from pytest_fanout.wire.sse import SseEvent, parse_sse

PLAIN = b'{"a": 1}'


def test_a_bomb_unfolds_to_the_cap_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small body that would fill the memory is cut at the cap, and the note says so."""
    monkeypatch.setattr(bodies, "MAX_DECODED", 1000)
    bomb = gzip.compress(b"[" * 1_000_000)

    decoded = decode(bomb, "gzip")

    assert (len(decoded.data), decoded.notes) == (1000, ("too_large",))
    assert decode(b"x" * 1001, None).notes == ("too_large",)
    assert decode(b"x" * 1000, None).notes == ()
    assert bodies.MAX_DECODED == 1000


def test_the_cap_is_64_megabytes() -> None:
    """The cap that holds outside of tests."""
    assert bodies.MAX_DECODED == 64 * 2**20


def test_rows_of_tiny_members_end() -> None:
    """A body made of very many gzip members is not unpacked for ever."""
    decoded = decode(gzip.compress(b"{}") * 500, "gzip")

    assert (decoded.data, decoded.notes) == (b"{}" * 64, ("too_large",))


@pytest.mark.parametrize(
    ("body", "coding", "data", "notes"),
    [
        (gzip.compress(PLAIN * 500, mtime=0)[:-20], "gzip", None, ("truncated_encoding",)),
        (b"\x1f\x8b\x08garbage", "gzip", b"", ("undecodable",)),
        (b"\xff\xff\xff", "deflate", b"", ("undecodable",)),
        (b"\x00\x01\x02", "rot13", b"", ("undecodable",)),
        (b"\x00\x01\x02", "a,b,c,d,e", b"\x00\x01\x02", ("undecodable",)),
        (b"", "gzip", b"", ()),
        (gzip.compress(b"", mtime=0), "gzip", b"", ()),
    ],
    ids=["cut", "garbage", "no-deflate", "unknown", "too-many", "empty", "packed-empty"],  # the same in every process
)
def test_codings_that_cannot_be_undone_are_noted(
    body: bytes, coding: str, data: bytes | None, notes: tuple[str, ...]
) -> None:
    """What came of a cut body is kept; what cannot be read is nothing; both are said."""
    decoded = decode(body, coding)

    assert decoded.notes == notes
    assert (PLAIN * 500).startswith(decoded.data) if data is None else decoded.data == data


def test_an_undecodable_answer_is_not_measured() -> None:
    """A coding that is not known here leaves the call incomplete, with missing usage and the reason."""
    attempt = read_call("POST", EXAMPLES["OC1"].url, b"{}", 200, {"content-encoding": "x-new"}, b"\x8f\x01")

    expected = {"status": "incomplete", "usage_source": "missing"}
    assert facts(attempt, *expected) == expected
    assert attempt is not None
    assert "undecodable" in attempt.notes


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_codings_of_optional_libraries(coding: str) -> None:
    """Brotli and zstd are undone where their library is installed, and are undecodable elsewhere."""
    data = EXAMPLES["OC2"].body
    try:
        if coding == "br":
            import brotli

            packed, bomb = brotli.compress(data), brotli.compress(b"[" * 80_000_000, quality=1)
        else:
            import zstandard

            packed = zstandard.compress(data)
            bomb = zstandard.compress(b"[" * 80_000_000)
    except ImportError:
        assert decode(b"\x28\xb5\x2f\xfd\x00", coding).notes == ("undecodable",)
        return

    assert decode(packed, coding) == bodies.Decoded(data)
    assert decode(packed[:-3], coding).notes in (("truncated_encoding",), ("undecodable",))
    assert coding == "br" or decode(packed * 2, coding) == bodies.Decoded(data * 2)
    assert decode(b"\x00\xff\x00\xff", coding).notes == ("undecodable",)
    assert len(decode(bomb, coding).data) == bodies.MAX_DECODED
    assert decode(bomb, coding).notes == ("too_large",)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"null", None),
        (b"\xef\xbb\xbf1", 1),
        (b'"\xff"', "\ufffd"),
        (b"1" * 5000, float("inf")),
        (b'{"a": ' + b"9" * 5000 + b', "b": 2}', {"a": float("inf"), "b": 2}),
        (b"", NOT_JSON),
        (b"{", NOT_JSON),
        (b"[" * 200_000, NOT_JSON),
    ],
    ids=["null", "bom", "no utf-8", "huge", "huge inside", "empty", "cut", "deep"],
)
def test_json_of_any_kind_loads_or_does_not(data: bytes, value: Any) -> None:
    """Loading never raises: numbers too long to convert become infinity, what is no JSON is NOT_JSON."""
    assert load_json(data) == value


@given(st.binary(), st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "identity", "", None]))
def test_no_bytes_break_decoding(body: bytes, coding: str | None) -> None:
    """Any bytes under any coding give bytes and notes."""
    assert isinstance(decode(body, coding).data, bytes)
    load_json(body)


@given(st.binary(max_size=2000))
def test_packing_is_undone(data: bytes) -> None:
    """gzip and both forms of deflate give back what was packed, unless the packed bytes look like text already."""
    for coding, packed in [("gzip", gzip.compress(data)), ("deflate", zlib.compress(data))]:
        assert decode(packed, coding) == bodies.Decoded(data)


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [("", "a"), ("", "b")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [("e", "a"), ("", "b")]),
        (b"data: a\ndata: b\n\n", [("", "a\nb")]),
        (b"data:a\r\n\r\ndata:  b\r\rdata: c\n\n", [("", "a"), ("", " b"), ("", "c")]),
        (b": comment\n\n:\nevent: ping\n\nid: 1\nretry: 5\ndata: a\nother: x\n\n", [("", "a")]),
        (b"\n\n\ndata: a\n\n\n\n", [("", "a")]),
        (b"data: a", [("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        ("data: \u2028\x85\x0b\n\n".encode(), [("", "\u2028\x85\x0b")]),
        (b'data: a\n\n{"error": 1}\n', [("", "a"), ("", '{"error": 1}')]),
        (b"", []),
    ],
)
def test_framing_of_event_streams(data: bytes, events: list[tuple[str, str]]) -> None:
    """Lines end with CR LF, LF or CR only; comments and unknown fields are passed over; data lines are joined."""
    assert list(parse_sse(data)) == [SseEvent(*event) for event in events]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5))
def test_events_come_back_as_sent(texts: list[str]) -> None:
    """What a server frames is what is read."""
    sent = [text for text in texts if text]
    data = "".join(f"data: {text}\n\n" for text in sent).encode()

    assert [event.data for event in parse_sse(data)] == sent


def test_blanks_before_the_json_of_an_event_do_not_matter() -> None:
    """Data may be indented; it is the same JSON."""
    example = EXAMPLES["OC2"]
    plain = read_call("POST", example.url, b"{}", 200, example.headers, example.body)

    assert read_call("POST", example.url, b"{}", 200, {}, example.body.replace(b"data: ", b"data:    ")) == plain


def test_a_cut_gzip_stream_keeps_its_first_part() -> None:
    """A packed stream that ends early is read as far as it came: incomplete, with the usage seen as a lower bound."""
    example = EXAMPLES["AN2"]
    pack = zlib.compressobj(wbits=31)
    first = example.body[: example.body.index(b"event: content_block_start")]
    body = pack.compress(first) + pack.flush(zlib.Z_SYNC_FLUSH)
    headers = {**example.headers, "content-encoding": "gzip"}

    expected = {
        "status": "incomplete",
        "input_tokens": 125,
        "output_tokens": 1,
        "usage_source": "partial",
        "notes": ("truncated_encoding",),
    }
    assert facts(read_call("POST", example.url, b"{}", 200, headers, body), *expected) == expected


def test_surrogates_never_leave_the_room() -> None:
    """Text that no file could hold is mended on the way in: names, ids and arguments can be written as UTF-8."""
    call = {"id": "\ud800", "function": {"name": "f\udfff", "arguments": "\ud800"}}
    document = {"id": "\ud800", "model": "\ud800m", "choices": [{"message": {"tool_calls": [call]}}]}
    request = json.dumps({"model": "\ud800", "messages": [{"role": "system", "content": "\ud800"}]}).encode()
    attempt = read_call("POST", EXAMPLES["OC1"].url, request, 200, {}, json.dumps(document).encode())

    assert repr(attempt).encode("utf-8")
    assert "\\ud" not in repr(attempt)
