"""Bad input of every kind: the same numbers as from good input, or an honest partial or missing."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace

import brotli
import pytest
import zstandard
from invariants import check_invariants
from wire_examples import EXAMPLES, SSE, Example, facts

from pytest_fanout.records import Attempt
from pytest_fanout.wire import bodies, read_call, sse
from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.sse import is_too_long, parse_sse

#: One example of each API and form that is read.
SOME = [EXAMPLES[name] for name in ("OC1", "OC2", "OR2", "AN1", "AN5", "OE1", "BR1", "BR4", "BI2", "CO1", "CO4", "VP1")]
by_id = pytest.mark.parametrize("example", SOME, ids=[example.id for example in SOME])
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def read(example: Example, body: bytes, *headers: tuple[str, str]) -> Attempt:
    """The record of a body with these headers in place of the example's coding and content type."""
    kept = [(name, value) for name, value in example.headers.items() if name.lower() != "content-type"]
    given = list(headers)
    if not any(name.lower() == "content-type" for name, _ in headers):
        given += [(name, value) for name, value in example.headers.items() if name.lower() == "content-type"]
    attempt = read_call("POST", example.url, example.request, 200, [*kept, *given], body)
    assert attempt is not None
    check_invariants(attempt, 200)
    return attempt


@by_id
@pytest.mark.parametrize(
    "coding", ["gzip", "deflate", "br", "zstd", "gzip, br", "zstd, gzip", "deflate, gzip, br, zstd"]
)
def test_a_packed_body_is_the_plain_one(example: Example, coding: str) -> None:
    """Each coding alone and one upon the other, said in one header or in several."""
    body = example.body
    names = coding.split(", ")
    for name in names:
        body = PACKERS[name](body)

    assert read(example, body, ("content-encoding", coding)) == read(example, example.body)
    assert read(example, body, *(("Content-Encoding", name) for name in names)) == read(example, example.body)


@by_id
@pytest.mark.parametrize("coding", sorted(PACKERS))
def test_a_coding_said_twice_or_not_done_does_no_harm(example: Example, coding: str) -> None:
    """Proxies repeat the header, and clients keep it after they have unpacked the body."""
    packed, said = PACKERS[coding](example.body), ("content-encoding", coding)

    assert read(example, packed, said, said) == read(example, example.body)
    assert read(example, example.body, said) == read(example, example.body)


@pytest.mark.parametrize("example", SOME[::3], ids=[example.id for example in SOME[::3]])
@pytest.mark.parametrize("said", ["gzip", "deflate", "br", "zstd", "compress", ""])
@pytest.mark.parametrize("done", sorted(PACKERS))
def test_a_wrong_label_is_never_a_wrong_number(example: Example, said: str, done: str) -> None:
    """A body packed in another way than its header says is incomplete, with missing usage: nobody could read it."""
    if said == done:
        return
    attempt = read(example, PACKERS[done](example.body), ("content-encoding", said))

    assert (attempt.status, attempt.usage_source, attempt.tool_calls) == ("incomplete", "missing", ())
    assert {"undecodable", "unreadable_body", "empty_response"} & set(attempt.notes)


@by_id
@pytest.mark.parametrize("coding", sorted(PACKERS))
def test_a_cut_packed_body_is_incomplete(example: Example, coding: str) -> None:
    """Whatever a cut leaves over is a lower bound, and never reads as a whole answer."""
    whole = read(example, example.body)
    packed = PACKERS[coding](example.body)
    for end in range(0, len(packed) - 12, 7):
        attempt = read(example, packed[:end], ("content-encoding", coding))

        if attempt.status != "incomplete":  # only what follows an end mark is missing
            assert replace(attempt, notes=()) == whole
        assert attempt.input_tokens in (None, whole.input_tokens)
        if attempt.output_tokens != whole.output_tokens:
            assert attempt.usage_source in ("missing", "partial")


STREAMED = [example for example in SOME if example.form == "events"]


@pytest.mark.parametrize("example", STREAMED, ids=[example.id for example in STREAMED])
def test_streams_may_be_written_in_many_ways(example: Example) -> None:
    """CR LF, comments, unknown fields, blank lines, and data split over several lines are the same stream."""
    spread = b""
    for event in parse_sse(example.body):
        data = load_json(event.data)
        text = event.data if data is NOT_JSON else json.dumps(data, indent=1)
        spread += (f"event: {event.name}\n" if event.name else "").encode()
        spread += b"".join(b"data:" + line.encode() + b"\r\n" for line in text.split("\n")) + b"\r\n"
    written = [
        example.body.replace(b"\n", b"\r\n"),
        b": hello\n\n" + example.body.replace(b"\n\n", b"\n\n: still here\n\n"),
        example.body.replace(b"data: ", b"id: 7\nretry: 10\ndata:"),
        b"\n\n" + example.body.replace(b"\n\n", b"\n\n\n\n"),
        spread,
    ]

    assert all(read(example, body) == read(example, example.body) for body in written)


@by_id
def test_a_wrong_content_type_changes_nothing(example: Example) -> None:
    """What came is seen in the bytes: a document called a stream, a stream called a document, both, or neither."""
    stream = read(example, example.body)
    types = [
        "application/json",
        "text/event-stream",
        "application/vnd.amazon.eventstream",
        "text/html; charset=latin-1",
    ]
    for content_type in types:
        assert read(example, example.body, ("Content-Type", content_type)) == stream
    both = [("Content-Type", "application/json"), ("content-type", "text/event-stream")]
    assert read(example, example.body, *both) == stream
    assert read(example, example.body, ("Content-Type", "")) == stream


def test_a_document_called_a_stream_may_be_laid_out_freely() -> None:
    """Lines of a pretty document are no events."""
    example = EXAMPLES["OC1"]
    pretty = json.dumps(json.loads(example.body), indent=2).encode()

    assert read(example, pretty, *SSE.items()) == read(example, example.body)


@pytest.mark.parametrize("name", ["OC2", "OC1", "AN5", "CO1", "CO4", "OR2"])
def test_bytes_that_are_no_text_leave_the_numbers(name: str) -> None:
    """A word in another encoding spoils that word and nothing else."""
    example = EXAMPLES[name]
    body = example.body.replace(b"find", b"f\xefnd").replace(b'"Hi', b'"H\xff')

    counts = ("status", "input_tokens", "output_tokens", "cached_input_tokens", "usage_source", "finish")
    assert facts(read(example, body), *counts) == facts(read(example, example.body), *counts)


def test_a_document_of_very_many_values_is_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values take twenty times their bytes in memory: beyond the cap a document is unreadable."""
    monkeypatch.setattr(bodies, "MAX_VALUES", 300)
    for piece, size in [(b"[]", 100), (b"{}", 100), (b"1", 299)]:
        few = b"[" + b",".join([piece] * size) + b"]"
        many = b"[" + b",".join([piece] * 2 * size) + b"]"

        assert load_json(few) is not NOT_JSON
        assert load_json(many) is load_json(many.decode()) is NOT_JSON


def test_a_stream_of_very_many_lines_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the cap nothing is looked at: the call is incomplete, and the note says why."""
    example = EXAMPLES["OC2"]
    lines = example.body.count(b"\n")
    monkeypatch.setattr(sse, "MAX_LINES", lines)
    assert read(example, example.body) == read(example, example.body.replace(b"\n", b"\r\n"))
    assert read(example, example.body).notes == ()
    monkeypatch.setattr(sse, "MAX_LINES", lines - 3)

    expected = {"status": "incomplete", "usage_source": "partial", "output_tokens": 2, "notes": ("too_large",)}
    for body in (example.body, example.body.replace(b"\n", b"\r\n"), example.body.replace(b"\n", b"\r")):
        assert is_too_long(body)
        assert facts(read(example, body), "status", "notes") == {"status": "incomplete", "notes": expected["notes"]}


BIG = """
import resource, sys, time
from pytest_fanout.wire import read_call
SIZE = 50 * 2**20
CHAT, CONVERSE = "https://h/v1/chat/completions", "https://h/model/m/converse-stream"
def fill(piece): return piece * (SIZE // len(piece))
answer = (b'{"choices":[{"index":0,"message":{"content":"' + fill(b"lorem ipsum ")
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16}}')
cases = [
    (CHAT, answer, ("ok", "final", 7)),
    (CHAT, b"data: " + answer + b"\\n\\ndata: [DONE]\\n\\n", ("ok", "final", 7)),
    (CHAT, b"data: x" + fill(b"\\r"), ("incomplete", "missing", None)),
    (CHAT, b"[" + fill(b"[],") + b"0]", ("incomplete", "missing", None)),
    (CHAT, fill(b"["), ("incomplete", "missing", None)),
    (CONVERSE, b"\\x7f\\xff\\xff\\xff" + fill(b"\\0"), ("incomplete", "missing", None)),
]
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform != "darwin" else 2**20)
before = peak()
for url, body, expected in cases:
    attempt = read_call("POST", url, body, 200, {}, body)
    found = (attempt.status, attempt.usage_source, attempt.input_tokens)
    assert found == expected, (found, body[:20])
print(peak() - before, time.process_time())
"""


def test_fifty_megabytes_take_bounded_time_and_memory() -> None:
    """A huge answer has its numbers, hostile ones are missing; neither costs more than some copies of the body."""
    done = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    megabytes, seconds = map(float, done.stdout.split())
    assert megabytes < 500
    assert seconds < 60
