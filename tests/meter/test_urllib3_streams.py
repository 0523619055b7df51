"""Streams by urllib3: chunks pass as they arrive, every way to stop is told apart, and replay gives the same chunks."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import urllib3
from byte_server import CUT, RawServer, chunked, plain
from metering import Result, Tape, chat, metering, run_task

PATH = "/v1/chat/completions"
EVENTS = [b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n' % n for n in range(4)]
EVENTS += [b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}\n\n', b"data: [DONE]\n\n"]
BODY = b"".join(EVENTS)
Ask = Callable[[Any], Any]


def by_stream(answer: Any) -> list[bytes]:
    return list(answer.stream())


def by_small_stream(answer: Any) -> list[bytes]:
    return list(answer.stream(16))


def by_read_chunked(answer: Any) -> list[bytes]:
    return list(answer.read_chunked())


def by_read(answer: Any) -> list[bytes]:
    return [answer.read()]


def by_read_of_some(answer: Any) -> list[bytes]:
    return list(iter(lambda: answer.read(100), b""))


def by_read1(answer: Any) -> list[bytes]:
    return list(iter(answer.read1, b""))


def by_data(answer: Any) -> list[bytes]:
    return [answer.data, answer.data]


def by_readinto(answer: Any) -> list[bytes]:
    buffer, said = bytearray(50), []
    while count := answer.readinto(buffer):
        said.append(bytes(buffer[:count]))
    return said


def by_lines(answer: Any) -> list[bytes]:
    return list(answer)


WAYS = [by_stream, by_small_stream, by_read, by_read_of_some, by_read1, by_data, by_readinto, by_lines]


def ask(url: str, read: Ask, **more: Any) -> Any:
    with urllib3.PoolManager() as pools:
        answer = pools.request("POST", url + PATH, json=chat(), preload_content=False, **more)
        said = read(answer)
        answer.release_conn()
        return said


def both(agent: Callable[[str], Any], pieces: list[bytes]) -> tuple[Any, Result, Result]:
    """What the agent gets without us, recorded and replayed; the server is asked twice."""
    with RawServer(lambda asked: pieces) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        assert len(server.log) == 2
    return bare, recorded, replayed


@pytest.mark.parametrize("framing", ["chunks", "length", "to-the-end"])
@pytest.mark.parametrize("read", WAYS, ids=lambda read: read.__name__)
def test_each_way_of_reading(read: Ask, framing: str) -> None:
    """However a body is framed and read, the agent gets what it gets without us, and we keep all of it."""
    pieces = {
        "chunks": chunked(EVENTS),
        "length": plain(BODY, content_type="text/event-stream"),
        "to-the-end": [b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", BODY, CUT],
    }[framing]
    bare, recorded, replayed = both(lambda url: ask(url, read), pieces)

    assert b"".join(recorded.value) == b"".join(bare) == b"".join(replayed.value)
    if read is not by_read1 or framing == "chunks":  # one system call a piece: how many is the network's affair
        assert recorded.value == bare == replayed.value
    answer = recorded.trace.exchanges[0].answer
    assert (answer.body, answer.outcome) == (BODY, "complete")
    assert (recorded.measured.samples["input_tokens"], replayed.measured.samples["input_tokens"]) == (7, 7)


def test_chunks_are_the_servers() -> None:
    """A chunk of the server is a chunk of the recording, and of the replay."""
    bare, recorded, replayed = both(lambda url: ask(url, by_stream), chunked(EVENTS))

    assert bare == recorded.value == replayed.value == list(recorded.trace.exchanges[0].answer.chunks) == EVENTS


def test_requests_reads_lines_and_content() -> None:
    """The iterators of requests give the same pieces, and events cut anywhere come together again."""
    cut = [BODY[at : at + 7] for at in range(0, len(BODY), 7)]

    def agent(url: str) -> Any:
        said = []
        for read in (lambda a: a.iter_content(None), lambda a: a.iter_content(5), lambda a: a.iter_lines()):
            with requests.post(url + PATH, json=chat(), stream=True) as answer:
                said.append(list(read(answer)))
        return said

    with RawServer(lambda asked: chunked(cut)) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert bare == recorded.value == replayed.value
    assert bare[0] == cut
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 3 * 7


def test_packed_stream() -> None:
    """A compressed stream is kept as it came; the agent decodes it as ever, and so do we."""
    packed = gzip.compress(BODY)
    head = chunked([])[0].replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    pieces = [head, *chunked([packed[:20], packed[20:]])[1:]]
    unpacked: Ask = lambda answer: b"".join(answer.stream(decode_content=True))  # noqa: E731
    bare, recorded, replayed = both(lambda url: ask(url, unpacked), pieces)

    assert bare == recorded.value == replayed.value == BODY
    assert recorded.trace.exchanges[0].answer.chunks == (packed[:20], packed[20:])
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7


def test_first_chunk_is_not_held() -> None:
    """The first event is with the agent before the server sends the second."""
    read = threading.Event()

    def pieces(asked: Any) -> Iterator[bytes]:
        head, first, *rest = chunked(EVENTS)
        yield head + first
        assert read.wait(20)
        yield from rest

    def agent(url: str) -> list[bytes]:
        with requests.post(url + PATH, json=chat(), stream=True) as answer:
            chunks = answer.raw.stream()
            said = [next(chunks)]
            read.set()
            return said + list(chunks)

    with RawServer(pieces) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.base_url))

    assert (result.value, result.error) == (EVENTS, None)


def leave(answer: Any) -> Any:
    chunks = answer.stream()
    said = next(chunks)
    answer.close()
    return said


def forget(answer: Any) -> Any:
    return next(answer.stream())


def ignore(answer: Any) -> None:
    """Reads nothing."""


@pytest.mark.parametrize(("read", "outcome"), [(leave, "closed_early"), (forget, "closed_early"), (ignore, "unread")])
def test_streams_that_are_not_read_to_the_end(read: Ask, outcome: str) -> None:
    """A stream that is closed, or dropped by its reader, or never read, is told apart from a whole one, and counts."""

    def agent(url: str) -> Any:
        with urllib3.PoolManager() as pools:
            answer = pools.request("POST", url + PATH, json=chat(), preload_content=False)
            said = read(answer)
            del answer
            gc.collect()
            return said

    bare, recorded, replayed = both(agent, chunked(EVENTS))

    assert bare == recorded.value == replayed.value
    assert [one.trace.exchanges[0].answer.outcome for one in (recorded, replayed)] == [outcome] * 2
    assert (recorded.fanout, recorded.measured.unknown_usage, replayed.slugs) == (1, 1, [])


def test_reading_on_where_the_recorded_run_stopped() -> None:
    """An agent that now reads further than it did is stale, and hears that the connection broke."""
    with RawServer(lambda asked: chunked(EVENTS)) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: ask(server.base_url, leave))
        with metering("replay") as meter:
            tape = Tape(recorded.trace.exchanges)
            replayed = run_task(meter, lambda: ask(server.base_url, by_stream), source=tape)

    assert isinstance(replayed.error, urllib3.exceptions.ProtocolError)
    assert [problem.slug for problem in replayed.trace.problems] == ["recording-prefix"]


def broken(framing: str) -> list[bytes]:
    """An answer that breaks off after two events."""
    if framing == "chunks":
        return [*chunked(EVENTS[:2])[:-1], CUT]
    if framing == "inside a chunk":
        return [*chunked(EVENTS[:2])[:-1], b"40\r\ndata: {", CUT]
    return [plain(BODY, content_type="text/event-stream")[0][: -len(BODY) + 100], CUT]


@pytest.mark.parametrize("way", ["stream", "read", "preload", "requests", "requests-stream"])
@pytest.mark.parametrize("framing", ["chunks", "inside a chunk", "length"])
def test_a_server_that_dies(framing: str, way: str) -> None:
    """An answer that breaks off raises what it raises without us, live and replayed; the call counts."""

    def agent(url: str) -> Any:
        try:
            if way == "requests":
                return requests.post(url + PATH, json=chat()).content
            if way == "requests-stream":
                with requests.post(url + PATH, json=chat(), stream=True) as answer:
                    return list(answer.iter_content(None))
            if way == "preload":
                with urllib3.PoolManager(retries=False) as pools:
                    return pools.request("POST", url + PATH, json=chat()).data
            return ask(url, by_stream if way == "stream" else by_read, retries=False)
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            return type(error)

    bare, recorded, replayed = both(agent, broken(framing))

    assert isinstance(bare, type)
    assert recorded.value == replayed.value == bare
    answer = recorded.trace.exchanges[0].answer
    assert (answer.outcome, answer.status, answer.body[: len(EVENTS[0])]) == ("error", 200, EVENTS[0])
    assert [(one.fanout, one.measured.unknown_usage) for one in (recorded, replayed)] == [(1, 1), (1, 1)]


def nobody(url: str) -> str:
    return "http://127.0.0.1:1"


ERRORS: dict[str, tuple[Callable[[str], str], list[bytes], dict[str, Any]]] = {
    "refused": (nobody, [], {}),
    "no-such-host": (lambda url: "http://nobody.invalid", [], {}),
    "hung-up": (lambda url: url, [CUT], {}),
    "nonsense": (lambda url: url, [b"nonsense\r\n\r\n", CUT], {}),
    "too-slow": (lambda url: url, [], {"timeout": 0.05}),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_answer_that_never_begins(case: str) -> None:
    """Without a response requests and urllib3 raise what they raise without us, live and replayed."""
    where, pieces, options = ERRORS[case]
    hold = threading.Event()

    def answer(asked: Any) -> list[bytes]:
        return pieces or [b""] * hold.wait(5) + [CUT]

    def agent(url: str) -> Any:
        kinds: list[Any] = []
        try:
            requests.post(where(url) + PATH, json=chat(), **options)
        except requests.RequestException as error:
            kinds.append(type(error))
        try:
            with urllib3.PoolManager(retries=False) as pools:
                pools.request("POST", where(url) + PATH, json=chat(), **options)
        except urllib3.exceptions.HTTPError as error:
            kinds.append(type(error))
        return kinds

    with RawServer(answer) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        hold.set()

    assert len(bare) == 2
    assert recorded.value == replayed.value == bare
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] == 2


def test_shutdown_from_another_thread() -> None:
    """A stream that another thread shuts down ends as it does without us."""
    hold = threading.Event()

    def pieces(asked: Any) -> Iterator[bytes]:
        head, first, *_ = chunked(EVENTS)
        yield head + first
        hold.wait(20)

    def agent(url: str) -> Any:
        with urllib3.PoolManager() as pools:
            answer = pools.request("POST", url + PATH, json=chat(), preload_content=False)
            chunks = answer.stream()
            said = next(chunks)
            threading.Thread(target=answer.shutdown).start()
            try:
                next(chunks)
            except urllib3.exceptions.ProtocolError as error:
                return said, str(error)

    with RawServer(pieces) as server:
        bare = agent(server.base_url)
        with metering() as meter:
            result = run_task(meter, lambda: agent(server.base_url))
        hold.set()

    assert result.value == bare == (EVENTS[0], "Response ended prematurely")
    assert result.trace.exchanges[0].answer.outcome == "error"


def test_a_broken_plain_answer_leaves_its_beginning() -> None:
    """Of a body that was to be read in one go, what had arrived is kept."""
    whole = json.dumps({"choices": [], "usage": {"prompt_tokens": 7}}).encode()
    pieces = [plain(whole)[0][:-10], CUT]
    _, recorded, _ = both(lambda url: _error_of(lambda: ask(url, by_read)), pieces)

    assert recorded.trace.exchanges[0].answer.body == whole[:-10]


def _error_of(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except urllib3.exceptions.HTTPError as error:
        return type(error)
