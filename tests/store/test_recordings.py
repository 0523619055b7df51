"""Recordings on disk: what is kept comes back, what was altered is refused."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording_samples import CHAT_URL, JSON_HEADERS, chat, chat_answer, chat_request, exchange, recording

from pytest_fanout.errors import ConfigError, FanoutError, IntegrityError
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest
from pytest_fanout.store import bodies, recordings, schemas, tape
from pytest_fanout.store.recordings import RecordingStore, slug_of

MEND = "restore the file from git, or remove it and record anew: pytest --fanout-budget --fanout-mode=record"


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    return RecordingStore(tmp_path, {})


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(IntegrityError) as caught:
        action()
    return str(caught.value)


def rewritten(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the lines of a recording and give it a fitting digest: a careful forger, or a fault of ours."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(lines)
    texts = [tape.dumps(line) for line in lines[:-1]]
    texts.append(tape.dumps({"end": tape._digest(texts)}))
    path.write_bytes(b"\n".join(texts) + b"\n")


# --- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "slug"),
    [
        ("Refund #1: late!", "refund-1-late"),
        ("../../etc/passwd", "etc-passwd"),
        ("Überprüfung", "uberprufung"),
        ("問い合わせ", "task"),
        ("x" * 200, "x" * 60),
        ("a" * 59 + " b", "a" * 59),
    ],
)
def test_a_folder_name_is_readable_and_safe(task: str, slug: str) -> None:
    """Letters, digits and '-', at most 60, and ten hex digits of the id's SHA-256."""
    import hashlib

    assert slug_of(task) == f"{slug}-{hashlib.sha256(task.encode()).hexdigest()[:10]}"


def test_ids_that_read_alike_have_different_folders(store: RecordingStore) -> None:
    """The hash tells ``a b`` from ``a-b``."""
    store.save(recording(chat("x"), task="a b"))
    store.save(recording(chat("x"), task="a-b"))

    assert store.path("support", "a b", 1) != store.path("support", "a-b", 1)
    assert (store.load("support", "a b", 1).task, store.load("support", "a-b", 1).task) == ("a b", "a-b")


def test_an_agent_name_cannot_leave_the_folder(store: RecordingStore) -> None:
    """Names are checked before they become paths."""
    with pytest.raises(ConfigError):
        store.path("../x", "a", 1)


def test_trials_are_listed_in_order_and_litter_is_not(store: RecordingStore) -> None:
    """Temporary files that a killed process left, and other names, are no trials."""
    for trial in (10, 2, 1):
        store.save(recording(chat("x"), trial=trial))
    folder = store.path("support", "refund", 1).parent
    for name in (".t3.jsonl.abc.tmp", "t0.jsonl", "t3.json", "t03.jsonl", "notes.jsonl"):
        (folder / name).touch()

    assert store.trials("support", "refund") == (1, 2, 10)
    assert store.trials("support", "never") == ()
    assert (store.most_trials("support"), store.most_trials("research")) == (10, 0)


def test_a_removed_recording_is_gone_with_its_folder(store: RecordingStore) -> None:
    """Removing twice is no error."""
    store.save(recording(chat("x")))
    store.remove("support", "refund", 1)
    store.remove("support", "refund", 1)

    assert store.trials("support", "refund") == ()
    assert not store.path("support", "refund", 1).parent.exists()


# --- what is kept ---------------------------------------------------------------------------------


def test_a_recording_comes_back(store: RecordingStore) -> None:
    """Header, exchanges and digest; what save gives back is what load reads."""
    original = recording(chat("a", "b"))
    original = dataclasses.replace(original, draw=3, redraws=2, replaced=("sha256:1", "sha256:2"), status="failed")
    original = dataclasses.replace(original, passed=False)

    saved = store.save(original)
    loaded = store.load("support", "refund", 1)

    assert loaded == saved
    plain = dataclasses.replace(
        loaded, digest="", exchanges=tuple(dataclasses.replace(item, raw_body="") for item in loaded.exchanges)
    )
    canonical = tuple(
        dataclasses.replace(item, request=bodies.stored_request(item.request, "model")[0])
        for item in original.exchanges
    )
    assert plain == dataclasses.replace(original, exchanges=canonical)
    assert store.digest("support", "refund", 1) == loaded.digest


def test_the_file_reads_as_a_conversation(store: RecordingStore) -> None:
    """One header, then for each call its new parts and itself, then the end mark; no carriage returns."""
    text = "a context of more than eighty bytes, which is what it takes to be worth a reference, as counted"
    store.save(recording(chat(text, text)))

    data = store.path("support", "refund", 1).read_bytes()

    lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
    assert [sorted(line)[0] for line in lines] == ["agent", "part", "answer", "answer", "end"]
    assert lines[1] == {"part": 0, "value": {"content": text, "role": "user"}}
    assert lines[2]["request"]["json"] == lines[3]["request"]["json"] == {"messages": [{"$part": 0}], "model": "m"}
    assert lines[0]["hosts"] == ["api.openai.com:443"]
    assert b"\r" not in data


def test_a_depth_is_kept_where_it_was_seen(store: RecordingStore) -> None:
    """How deep an agent stood that made a call, 0 too; where nobody saw it the line has no such key, and a depth that
    is no number is refused."""
    first, second = chat("a", "b")
    store.save(recording((dataclasses.replace(first, depth=0), second)))
    path = store.path("support", "refund", 1)

    assert [item.depth for item in store.load("support", "refund", 1).exchanges] == [0, None]
    assert b'"depth":0' in path.read_bytes()
    assert path.read_bytes().count(b'"depth"') == 1

    rewritten(path, lambda lines: lines[1].update(depth="deep"))
    assert "depth must be integer" in refusal(lambda: store.load("support", "refund", 1))


def test_saving_again_gives_the_same_bytes(store: RecordingStore) -> None:
    """Nothing in a file depends on the clock or on hash order; and what was loaded can be saved."""
    saved = store.save(recording(chat("a", "b")))
    before = store.path("support", "refund", 1).read_bytes()

    assert store.save(saved) == saved
    assert store.path("support", "refund", 1).read_bytes() == before


def test_headers_that_are_not_on_the_list_are_dropped(store: RecordingStore) -> None:
    """Only what replay and matching need is stored."""
    request = dataclasses.replace(
        chat_request("x"), headers=(*JSON_HEADERS, ("cookie", "c"), ("x-stainless-retry-count", "1"), ("host", "h"))
    )
    answer = dataclasses.replace(
        chat_answer("y"), headers=(("server", "s"), ("x-request-id", "r"), ("x-should-retry", "false"), ("date", "d"))
    )

    (stored,) = store.save(recording((exchange(request, answer),))).exchanges

    assert stored.request.headers == (*JSON_HEADERS, ("x-stainless-retry-count", "1"))
    assert stored.answer.headers == (("x-request-id", "r"), ("x-should-retry", "false"))


def gzipped(*pieces: bytes) -> tuple[bytes, ...]:
    packer = zlib.compressobj(wbits=31)
    chunks = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return (*chunks[:-1], chunks[-1] + packer.flush())


def raw_deflated(*pieces: bytes) -> tuple[bytes, ...]:
    packer = zlib.compressobj(wbits=-15)
    chunks = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return (*chunks[:-1], chunks[-1] + packer.flush())


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzipped), ("deflate", raw_deflated)])
def test_compressed_streams_are_kept_as_the_chunks_they_were(
    store: RecordingStore, encoding: str, pack: Callable[..., tuple[bytes, ...]]
) -> None:
    """A9: chunk by chunk the same text as an answer that was never compressed; the header goes with the encoding."""
    pieces = (b"data: 1\n\n", b"data: \xc3", b"\xa9\n\n")
    answer = HttpAnswer(200, (("content-encoding", encoding),), pack(*pieces), (1, 2, 3), 4)

    stored = store.save(recording((exchange(chat_request("x"), answer),))).exchanges[0].answer

    assert (stored.headers, stored.chunks, stored.chunk_ms) == ((), pieces, (1, 2, 3))


def test_several_gzip_members_are_all_read(store: RecordingStore) -> None:
    """Servers that flush may begin a new member."""
    answer = HttpAnswer(200, (("content-encoding", "gzip"),), (gzip.compress(b"a") + gzip.compress(b"b"),), (1,), 2)

    assert store.save(recording((exchange(chat_request("x"), answer),))).exchanges[0].answer.body == b"ab"


@pytest.mark.parametrize("encoding", ["nobody-knows", "gzip"])
def test_an_encoding_that_cannot_be_undone_is_kept_with_its_header(store: RecordingStore, encoding: str) -> None:
    """The client decodes it when it is replayed, or fails as it did."""
    answer = HttpAnswer(200, (("content-encoding", encoding),), (b"\xff\x00not gzip",), (1,), 2)

    stored = store.save(recording((exchange(chat_request("x"), answer),))).exchanges[0].answer

    assert (stored.headers, stored.chunks) == ((("content-encoding", encoding),), (b"\xff\x00not gzip",))


BODIES = [
    b"",
    b"plain text \xe2\x82\xac",
    b"\xff\xfe binary",
    b'{"a":1,"a":2}',
    b'{"a":NaN}',
    b'{"a":1e999}',
    b'"text"',
    b"123",
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"a":' + b"9" * 5000 + b"}",
    b"{not json",
]


@pytest.mark.parametrize("body", BODIES, ids=[str(index) for index in range(len(BODIES))])
def test_a_body_that_is_no_clean_json_is_kept_byte_for_byte(store: RecordingStore, body: bytes) -> None:
    """Nothing is guessed: what JSON would lose is stored as text or base64."""
    sent = exchange(HttpRequest("POST", CHAT_URL, (), body), chat_answer("x"))

    assert store.save(recording((sent,))).exchanges[0].request.body == body


header_text = st.text(st.characters(codec="utf-8"), max_size=10)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(), st.sampled_from(["$part", "$join", "$literal"])), inner, max_size=4),
    ),
    max_leaves=10,
)
request_bodies = st.one_of(
    st.binary(max_size=60),
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.integers(0, 9).map(lambda n: json.dumps({"messages": [{"c": "x" * 90}] * 2, "p": "y" * 130 + "z" * n}).encode()),
)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    chunks = tuple(draw(st.lists(st.binary(max_size=20), max_size=4)))
    return Exchange(
        draw(st.integers(0, 10**6)),
        draw(st.sampled_from(["httpx", "httpx2"])),
        draw(st.sampled_from(["model", "tool"])),
        draw(st.text(max_size=5)),
        HttpRequest(
            draw(st.sampled_from(["GET", "POST"])),
            draw(st.sampled_from([CHAT_URL, "http://localhost:8000/x?y=%20&z", "http://[::1]/é"])),
            (("content-type", draw(header_text)),),
            draw(request_bodies),
        ),
        HttpAnswer(
            draw(st.one_of(st.none(), st.integers(100, 599).filter(lambda status: status != 200))),
            (("x-request-id", draw(header_text)),),
            chunks,
            tuple(range(len(chunks))),
            draw(st.integers(0, 10**6)),
            draw(st.sampled_from(["complete", "closed_early", "unread", "error", "partial"])),
            draw(st.one_of(st.none(), st.text(max_size=5))),
        ),
        draw(st.integers(0, 10**6)),
        depth=draw(st.one_of(st.none(), st.integers(0, 255))),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(exchanges(), max_size=4).map(tuple), st.text(min_size=1, max_size=20))
def test_any_exchanges_come_back(store: RecordingStore, items: tuple[Exchange, ...], task: str) -> None:
    """Chunks and their bounds exactly, requests as the same JSON value or the same bytes; the file fits its schema."""
    store.save(recording(items, task=task))

    loaded = store.load("support", task, 1)

    assert len(loaded.exchanges) == len(items)
    for item, back in zip(items, loaded.exchanges, strict=True):
        assert dataclasses.replace(back, raw_body="", request=item.request) == item
        assert (back.request.method, back.request.url, back.request.headers) == (
            item.request.method,
            item.request.url,
            item.request.headers,
        )
        assert same_body(back.request.body, item.request.body)
    for line in store.path("support", task, 1).read_bytes().split(b"\n")[:-1]:
        assert schemas.fault(json.loads(line), "recording") is None


def same_body(left: bytes, right: bytes) -> bool:
    if left == right:
        return True
    return json.dumps(json.loads(left), sort_keys=True) == json.dumps(json.loads(right), sort_keys=True)


# --- what is refused ------------------------------------------------------------------------------


def test_a_missing_recording_is_named(store: RecordingStore) -> None:
    """Loading what was never recorded says how to record it."""
    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{store.path('support', 'refund', 1)}: does not exist\n"
        "  mend: restore it from git, or record it: pytest --fanout-budget --fanout-mode=record\n"
        "  see: docs/messages.md#recording-missing"
    )
    assert store.digest("support", "refund", 1) is None


@pytest.mark.parametrize("kept", [0, 1, 100, -1, -2, -80])
def test_a_recording_that_was_cut_off_is_told(store: RecordingStore, kept: int) -> None:
    """At whatever byte it ends: without its end mark it is not read."""
    store.save(recording(chat("a", "b")))
    path = store.path("support", "refund", 1)
    data = path.read_bytes()
    cut = data[: kept - 1] if kept < 0 else data[:kept]
    path.write_bytes(cut)

    line = max(len(cut.splitlines()), 1)
    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}:{line}: ends without its end mark: it was cut off, or is no recording\n"
        f"  mend: {MEND}\n"
        "  see: docs/messages.md#recording-truncated"
    )


def test_a_whole_line_that_is_missing_is_told(store: RecordingStore) -> None:
    """An end mark that belongs to other lines is no end mark."""
    store.save(recording(chat("a", "b")))
    path = store.path("support", "refund", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[-1]]))

    expected = (
        f"{path}: was altered: its content does not fit its digest\n"
        f"  mend: {MEND}\n"
        "  see: docs/messages.md#recording-altered"
    )
    assert refusal(lambda: store.load("support", "refund", 1)) == expected
    assert refusal(lambda: store.digest("support", "refund", 1)) == expected


def test_every_changed_byte_is_told(store: RecordingStore) -> None:
    """One byte anywhere, and the recording is not read; only line endings are free."""
    saved = store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(FanoutError):
            store.load("support", "refund", 1)

    path.write_bytes(data.replace(b"\n", b"\r\n"))
    assert store.load("support", "refund", 1) == saved


def test_conflict_marks_are_told_before_anything_else(store: RecordingStore) -> None:
    """A merge that nobody resolved is named with its line, and the mend takes one side whole."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"<<<<<<< HEAD\n", *lines[1:], b"=======\n", b">>>>>>> other\n"]))

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}:2: holds the marks of an unresolved merge conflict\n"
        "  mend: take the file of one side whole (git checkout --ours or --theirs), then run"
        " `pytest --fanout-budget` again\n"
        "  see: docs/messages.md#conflict-marks"
    )


def test_the_recording_of_another_task_is_misplaced(store: RecordingStore) -> None:
    """A file that was copied to another task, class or trial is told by what stands inside."""
    store.save(recording(chat("a"), task="a"))
    path = store.path("support", "b", 2)
    path.parent.mkdir()
    path.write_bytes(store.path("support", "a", 1).read_bytes())

    assert refusal(lambda: store.load("support", "b", 2)) == (
        f"{path}: is the recording of trial 1 of support::a, not of trial 2 of support::b\n"
        f"  mend: {MEND}\n"
        "  see: docs/messages.md#recording-misplaced"
    )


def test_a_newer_format_asks_for_an_upgrade(store: RecordingStore) -> None:
    """An old reader says so, and does not guess."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    rewritten(path, lambda lines: lines[0].update(format="pytest-fanout/recording/2"))

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}: has the format 'pytest-fanout/recording/2'; this version of pytest-fanout reads"
        " 'pytest-fanout/recording/1'\n"
        "  mend: upgrade pytest-fanout\n"
        "  see: docs/messages.md#recording-format"
    )


def put(number: int, *keys: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Set the value at a path of line ``number`` (from 0); the last of ``keys`` is the value."""

    def change(lines: list[dict[str, Any]]) -> None:
        place: Any = lines[number]
        for key in keys[:-2]:
            place = place[key]
        place[keys[-2]] = keys[-1]

    return change


MALFORMED = [
    (put(0, "extra", 1), 1, "the document has unknown key 'extra'"),
    (put(0, "trial", "1"), 1, "trial must be integer"),
    (put(0, "passed", 1), 1, "passed must be boolean"),
    (put(0, "hosts", [1]), 1, "hosts[0] must be string"),
    (put(0, "format", "other"), 1, 'format must be "pytest-fanout/recording/1"'),
    (put(0, "exchanges", 2), 1, "exchanges is 2, found 1"),
    (lambda lines: lines[0].pop("task"), 1, "the document lacks 'task'"),
    (put(0, "branched", {"from": "sha256:0"}), 1, "branched lacks 'exchanges'"),
    (put(0, "branched", {"from": 1, "exchanges": 1}), 1, "branched.from must be string"),
    (put(0, "branched", {"from": "x", "exchanges": 2}), 1, "branched names more exchanges than there are"),
    (put(1, "seq", True), 2, "seq must be integer"),
    (put(1, "started_ms", -1), 2, "started_ms breaks the rule minimum 0"),
    (put(1, "request", "cookie", "x"), 2, "request has unknown key 'cookie'"),
    (put(1, "request", "headers", [["a"]]), 2, "request.headers[0] breaks the rule minItems 2"),
    (put(1, "request", "json", {"$part": 5}), 2, "refers to part 5, which does not stand before it"),
    (put(1, "request", "text", "x"), 2, "has json and text: only one body is possible"),
    (put(1, "answer", "chunks", 0, 7), 2, "answer.chunks[0] must be string or object"),
    (put(1, "answer", "chunks", 0, {"base64": "*"}), 2, "holds bad base64"),
    (put(1, "answer", "ms", []), 2, "ms and chunks differ in length"),
    (lambda lines: lines.insert(1, {"part": 1, "value": "x"}), 2, "part must be 0"),
]


@pytest.mark.parametrize(("change", "line", "what"), MALFORMED, ids=[str(index) for index in range(len(MALFORMED))])
def test_a_malformed_line_is_named_with_its_key(
    store: RecordingStore, change: Callable[[list[dict[str, Any]]], None], line: int, what: str
) -> None:
    """Even with a digest that fits: each line is checked key by key, unknown keys too."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    rewritten(path, change)

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}:{line}: {what}\n  mend: {MEND}\n  see: docs/messages.md#recording-malformed"
    )


def test_a_branched_recording_names_its_beginning(store: RecordingStore) -> None:
    """What it says of itself survives the file, and one that was not branched says nothing of it."""
    made = replace(recording(chat("a", "b")), branched_from="sha256:" + "1" * 64, shared=1)
    stored, plain = store.save(made), store.save(recording(chat("a"), trial=2))

    assert store.load("support", "refund", 1) == stored
    assert (stored.branched_from, stored.shared) == ("sha256:" + "1" * 64, 1)
    assert (plain.branched_from, plain.shared) == (None, 0)
    assert b"branched" not in store.path("support", "refund", 2).read_bytes()


def test_a_line_that_is_no_json_is_named(store: RecordingStore) -> None:
    """Also when its digest fits."""
    path = store.path("support", "refund", 1)
    store.save(recording(chat("a")))
    lines = [path.read_bytes().splitlines()[0], b"{"]
    path.write_bytes(b"\n".join([*lines, tape.dumps({"end": tape._digest(lines)})]))

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}:2: is not valid JSON: Expecting property name enclosed in double quotes\n"
        f"  mend: {MEND}\n"
        "  see: docs/messages.md#recording-malformed"
    )


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_links_are_refused(tmp_path: Path, part: int) -> None:
    """The file, its folders up to the recordings' own: what a reviewer reads must be what is replayed."""
    store = RecordingStore(tmp_path / "recordings", {})
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    link = [path, *path.parents][part]
    link.rename(tmp_path / "moved")
    link.symlink_to(tmp_path / "moved")

    expected = (
        f"{link}: is a symbolic link; files that the gate reads must be regular files\n"
        f"  mend: replace the link {link.name} by what it points to\n"
        "  see: docs/messages.md#symlink"
    )
    assert refusal(lambda: store.load("support", "refund", 1)) == expected


def test_a_folder_in_place_of_a_recording_is_refused(store: RecordingStore) -> None:
    """No traceback for what is no file at all."""
    path = store.path("support", "refund", 1)
    path.mkdir(parents=True)

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}: is not a regular file\n  mend: remove it\n  see: docs/messages.md#not-a-file"
    )


def test_a_recording_that_may_not_be_read_is_named(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason is told."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)

    def refused(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)  # the superuser may read everything, so chmod would not do

    assert refusal(lambda: store.load("support", "refund", 1)) == (
        f"{path}: cannot be read: Permission denied\n  mend: mend its permissions\n  see: docs/messages.md#not-readable"
    )


@pytest.mark.parametrize("body", [b"", b" \r\n", b": ping\n\n", b"data: [DONE]\n\n"])
def test_an_empty_answer_is_neither_saved_nor_loaded(store: RecordingStore, body: bytes) -> None:
    """A9: a model's 200 without content measures nothing."""
    chunks = (body,) if body else ()
    empty = HttpAnswer(200, (("content-type", "text/event-stream"),), chunks, (1,) * len(chunks), 2)
    expected = (
        f"{store.path('support', 'refund', 1)}: recorded response is empty: answer 2 (POST /v1/chat/completions)"
        " has status 200 and no content\n"
        f"  mend: {MEND}\n"
        "  see: docs/messages.md#recording-empty-answer"
    )

    assert refusal(lambda: store.save(recording((*chat("a"), exchange(chat_request("b"), empty, 1))))) == expected
    assert store.trials("support", "refund") == ()

    store.save(recording(chat("a", "b")))

    def blank(lines: list[dict[str, Any]]) -> None:
        lines[2]["answer"]["chunks"] = [chunk.decode() for chunk in chunks]
        lines[2]["answer"]["ms"] = [1] * len(chunks)

    rewritten(store.path("support", "refund", 1), blank)
    assert refusal(lambda: store.load("support", "refund", 1)) == expected


def test_an_answer_that_is_cut_off_is_neither_saved_nor_loaded(store: RecordingStore) -> None:
    """JSON without its end, of a model, with status 200. One that broke off on the wire says so, and is the truth."""
    half = HttpAnswer(200, JSON_HEADERS, (b'{"choices":[{"mess',), (1,), 2)
    expected = (
        f"{store.path('support', 'refund', 1)}: recorded response is cut off: answer 1 (POST /v1/chat/completions)"
        f" has status 200 and JSON without its end\n  mend: {MEND}\n"
        "  see: docs/messages.md#recording-truncated-answer"
    )

    assert refusal(lambda: store.save(recording((exchange(chat_request("a"), half),)))) == expected
    store.save(recording((exchange(chat_request("a"), replace(half, outcome="error", error="ReadError")),)))
    store.save(recording(chat("a")))

    def cut(lines: list[dict[str, Any]]) -> None:
        lines[1]["answer"]["chunks"] = ['{"choices":[{"mess']

    rewritten(store.path("support", "refund", 1), cut)
    assert refusal(lambda: store.load("support", "refund", 1)) == expected


def test_a_huge_recording_is_neither_saved_nor_read(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at before it is read, by whoever opens it."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    monkeypatch.setattr(recordings, "MAX_BYTES", 100)
    expected = (
        f"{path}: has {path.stat().st_size:,} bytes, more than 100\n"
        "  mend: let the trial do less, or keep its large files out of its requests and answers with the hook "
        "pytest_fanout_redact\n  see: docs/messages.md#recording-too-large"
    )

    assert refusal(lambda: store.load("support", "refund", 1)) == expected
    assert refusal(lambda: store.digest("support", "refund", 1)) == expected
    assert refusal(lambda: store.save(recording(chat("a")))) == expected


@pytest.mark.parametrize("place", ["another trial", "another task", "another class"])
def test_a_recording_in_another_place_is_told(store: RecordingStore, place: str) -> None:
    """A file that was renamed, a folder that was copied: whose recording it is stands inside."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    agent, task, trial = {
        "another trial": ("support", "refund", 2),
        "another task": ("support", "other", 1),
        "another class": ("sales", "refund", 1),
    }[place]
    target = store.path(agent, task, trial)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())

    assert refusal(lambda: store.load(agent, task, trial)) == (
        f"{target}: is the recording of trial 1 of support::refund, not of trial {trial} of {agent}::{task}\n"
        f"  mend: {MEND}\n  see: docs/messages.md#recording-misplaced"
    )


@pytest.mark.parametrize(
    ("damage", "slug"),
    [
        (lambda data: data.replace(b'{"end":"sha256:', b'{"end":"sha256:0'), "recording-altered"),
        (lambda data: data[:300] + b"\xff" + data[300:], "recording-altered"),
        (lambda data: b"\xef\xbb\xbf" + data, "recording-altered"),
        (lambda data: b"", "recording-truncated"),
        (lambda data: data + b"x\n", "recording-truncated"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "recording-truncated"),
    ],
    ids=["digest", "not-utf8", "byte-order-mark", "empty", "more", "lfs-pointer"],
)
def test_damage_is_told_by_its_kind(store: RecordingStore, damage: Any, slug: str) -> None:
    """Whatever an editor, a merge or a half checkout makes of a file."""
    store.save(recording(chat("a")))
    path = store.path("support", "refund", 1)
    path.write_bytes(damage(path.read_bytes()))

    assert refusal(lambda: store.load("support", "refund", 1)).endswith(f"docs/messages.md#{slug}")


@pytest.mark.parametrize(
    ("role", "status", "outcome"), [("tool", 200, "complete"), ("model", 503, "complete"), ("model", 200, "unread")]
)
def test_answers_that_may_be_empty(store: RecordingStore, role: str, status: int, outcome: str) -> None:
    """A tool, a failure and a client that never read are truthful without content."""
    item = exchange(chat_request("x"), HttpAnswer(status, (), (), (), 2, outcome), role=role)

    assert store.save(recording((item,))).exchanges[0].answer.body == b""


# --- cheap facts ----------------------------------------------------------------------------------


def test_hosts_of_the_recordings_of_a_task_come_from_the_headers(store: RecordingStore) -> None:
    """Host and port of model requests, with the port of the scheme; tools are not model hosts."""
    urls = ["https://API.example/v1/x", "http://127.0.0.1:8080/v1", "http://plain.example/v1", "http://[::1]:9/v1"]
    for trial, url in enumerate(urls, 1):
        item = exchange(HttpRequest("POST", url, (), b""), chat_answer("x"))
        tool = exchange(HttpRequest("GET", "https://tool.example/", (), b""), chat_answer("x"), 1, "tool")
        store.save(recording((item, tool), trial=trial))

    assert store.hosts([("support", "refund")]) == {"api.example:443", "127.0.0.1:8080", "plain.example:80", "[::1]:9"}


def test_hosts_without_recordings_are_none(tmp_path: Path) -> None:
    """A folder that does not exist holds no hosts."""
    assert RecordingStore(tmp_path / "none", {}).hosts([("support", "refund")]) == frozenset()


def test_growing_contexts_cost_what_is_new(store: RecordingStore) -> None:
    """60 calls growing to 60 KB: the file is a small part of what was sent."""
    messages = [{"role": "user", "content": f"{n} " + "word " * 200} for n in range(60)]
    items = tuple(
        exchange(chat_request("x", messages=messages[: n + 1]), chat_answer(f"answer {n}"), n) for n in range(60)
    )
    sent = sum(len(item.request.body) for item in items)

    store.save(recording(items))

    assert store.path("support", "refund", 1).stat().st_size < sent / 15


def test_a_broken_recording_hides_no_other_host(store: RecordingStore) -> None:
    """Hosts come from every file that can be read; the broken one is refused when its trial is to run."""
    store.save(recording(chat("a")))
    known = store.hosts([("support", "refund")])
    store.save(recording(chat("b"), trial=2))
    store.path("support", "refund", 2).write_bytes(b"<<<<<<< HEAD\n")

    assert known
    assert store.hosts([("support", "refund")]) == known
    with pytest.raises(IntegrityError):
        store.load("support", "refund", 2)


def test_a_pipe_in_place_of_a_recording_is_not_waited_for(tmp_path: Path) -> None:
    """A named pipe would block whoever opens it; its hosts are passed over, and loading it is refused."""
    store = RecordingStore(tmp_path, {})
    path = store.save(recording(chat("a"))) and next(tmp_path.rglob("t1.jsonl"))
    path.unlink()
    os.mkfifo(path)

    assert store.hosts([("support", "refund")]) == frozenset()
    with pytest.raises(IntegrityError, match="not-a-file"):
        store.load("support", "refund", 1)
