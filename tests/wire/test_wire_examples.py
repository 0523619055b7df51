"""Worked examples of each API that is read: the numbers are worked by hand from the providers' own definitions."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace

import pytest
from wire_examples import EXAMPLES, Example, facts

from pytest_fanout.wire import read_call

ALL = list(EXAMPLES.values())
TEXTS = [example for example in ALL if example.form not in ("frames", "chunks")]
by_id = pytest.mark.parametrize("example", ALL, ids=[example.id for example in ALL])


@by_id
def test_a_worked_example_gives_its_numbers(example: Example) -> None:
    """Each payload is read to exactly the facts that stand beside it."""
    attempt = read_call("POST", example.url, example.request, 200, example.headers, example.body)

    assert facts(attempt, *example.expect) == example.expect


@by_id
def test_packed_and_plain_are_the_same(example: Example) -> None:
    """A9: a gzip or deflate body gives the same record as the plain one, and so does one that was already unpacked."""
    plain = read_call("POST", example.url, example.request, 200, example.headers, example.body)
    for coding, body in [
        ("gzip", gzip.compress(example.body)),
        ("GZIP", gzip.compress(example.body[:100]) + gzip.compress(example.body[100:])),
        ("deflate", zlib.compress(example.body)),
        ("deflate", zlib.compress(example.body, wbits=-15)),
        ("deflate, gzip", gzip.compress(zlib.compress(example.body))),
        ("gzip", example.body),
        ("br", example.body),
        ("identity", example.body),
    ]:
        headers = {**example.headers, "Content-Encoding": coding}

        assert read_call("POST", example.url, example.request, 200, headers, body) == plain


@pytest.mark.parametrize("example", TEXTS, ids=[example.id for example in TEXTS])
def test_line_ends_and_missing_headers_do_not_matter(example: Example) -> None:
    """CR LF and CR line ends, a byte-order mark and an absent content type give the same record."""
    plain = read_call("POST", example.url, example.request, 200, example.headers, example.body)
    unlabelled = {name: value for name, value in example.headers.items() if name.lower() != "content-type"}
    for body in [
        example.body.replace(b"\n", b"\r\n"),
        example.body.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + example.body,
        example.body.replace(b"data: ", b"data:"),
    ]:
        assert read_call("POST", example.url, example.request, 200, unlabelled, body) == plain


@by_id
def test_the_answer_is_read_without_the_request(example: Example) -> None:
    """The quick look of the hot path has no request body; it sees the same answer."""
    whole = read_call("POST", example.url, example.request, 200, example.headers, example.body)
    quick = read_call("POST", example.url, b"", 200, example.headers, example.body)

    assert whole is not None
    assert quick is not None
    assert quick.body_hash == ""
    assert quick.site is None
    told_by_request = {
        "body_hash": "",
        "site": None,
        "model_requested": quick.model_requested,
        "stream": quick.stream,
        "tool_results_in": (),
    }
    assert quick == replace(whole, **told_by_request)


@by_id
def test_every_cut_is_noticed(example: Example) -> None:
    """A body that ends early, at whichever byte, never reads as a whole answer, nor with usage that it did not hold.

    Only what follows an end mark, such as Cohere's [DONE] after its message-end, may be missing.
    """
    whole = read_call("POST", example.url, example.request, 200, example.headers, example.body)
    assert whole is not None
    body = example.body.rstrip()
    for end in range(0, len(body), 1 if example in TEXTS else 5):
        cut = read_call("POST", example.url, example.request, 200, example.headers, body[:end])

        assert cut is not None
        if whole.status == "ok":
            assert cut.status == "incomplete" or cut == whole, body[:end]
        assert "codec_error" not in cut.notes
        if cut.usage_source != "missing" and cut.output_tokens is not None and whole.output_tokens is not None:
            assert cut.output_tokens <= whole.output_tokens
        elif whole.usage_source == "missing":
            assert cut.usage_source == "missing"
