"""Answers of ``http.client``: read as without us, in every way and with every error, and replayed."""

from __future__ import annotations

import gc
import http.client
import io
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from byte_server import CUT, RawServer, chunked, plain
from metering import Tape, metering, run_task
from stdlib_agents import BODY, EVENTS, PATH, SAID, ask, connection, three


def by_read(answer: Any) -> Any:
    return answer.read()


def by_read_of_some(answer: Any) -> Any:
    return list(iter(lambda: answer.read(50), b""))


def by_read1(answer: Any) -> Any:
    return b"".join(iter(answer.read1, b""))


def by_readinto(answer: Any) -> Any:
    buffer, said = bytearray(50), []
    while count := answer.readinto(buffer):
        said.append(bytes(buffer[:count]))
    return said


def by_readline(answer: Any) -> Any:
    return list(iter(answer.readline, b""))


def by_lines(answer: Any) -> Any:
    return list(answer)


def by_text(answer: Any) -> Any:
    return list(io.TextIOWrapper(answer, "utf-8"))


def by_buffer(answer: Any) -> Any:
    return io.BufferedReader(answer).read()


def by_peeking(answer: Any) -> Any:
    return answer.peek()[:5], answer.read()


WAYS = [by_read, by_read_of_some, by_read1, by_readinto, by_readline, by_lines, by_text, by_buffer, by_peeking]
FRAMINGS = {
    "chunks": chunked(EVENTS),
    "length": plain(SAID, content_type="text/event-stream"),
    "to-the-end": [b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", SAID, CUT],
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("read", WAYS, ids=lambda read: read.__name__)
def test_each_way_of_reading(read: Any, framing: str) -> None:
    """However a body is framed and read, the agent gets what it gets without us, and we keep all of it."""
    bare, recorded, replayed = three(lambda url: ask(url, read), FRAMINGS[framing])

    assert bare == recorded.value == replayed.value
    answer = recorded.trace.exchanges[0].answer
    assert (answer.body, answer.outcome) == (SAID, "complete")
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7


def test_first_chunk_is_not_held() -> None:
    """The first event is with the agent before the server sends the second."""
    read = threading.Event()

    def pieces(asked: Any) -> Iterator[bytes]:
        head, first, *rest = chunked(EVENTS)
        yield head + first
        assert read.wait(20)
        yield from rest

    def reads(answer: Any) -> bytes:
        said = answer.read1()
        read.set()
        return bytes(said + answer.read())

    with RawServer(pieces) as server, metering() as meter:
        result = run_task(meter, lambda: ask(server.base_url, reads))

    assert (result.value, result.error) == (SAID, None)


def leave(answer: Any) -> Any:
    said = answer.readline()
    answer.close()
    return said


def forget(answer: Any) -> Any:
    return answer.readline()


def ignore(answer: Any) -> None:
    """Reads nothing."""


@pytest.mark.parametrize(("read", "outcome"), [(leave, "closed_early"), (forget, "closed_early"), (ignore, "unread")])
def test_answers_that_are_not_read_to_the_end(read: Any, outcome: str) -> None:
    """An answer that is closed, or dropped by its reader, or never read, is told apart from a whole one, and counts."""

    def agent(url: str) -> Any:
        request = urllib.request.Request(url + PATH, data=BODY)
        answer = urllib.request.urlopen(request)
        said = read(answer)
        del answer
        gc.collect()
        return said

    bare, recorded, replayed = three(agent, chunked(EVENTS))

    assert bare == recorded.value == replayed.value
    assert [one.trace.exchanges[0].answer.outcome for one in (recorded, replayed)] == [outcome] * 2
    assert (recorded.fanout, recorded.measured.unknown_usage, replayed.slugs) == (1, 1, [])


def test_connection_closed_before_the_answer() -> None:
    """A request whose answer nobody asks for has been sent, and counts as an attempt."""

    def agent(url: str) -> None:
        with connection(url) as conn:
            conn.request("POST", PATH, BODY)
            conn.close()

    got = threading.Event()

    def pieces(asked: Any) -> list[bytes]:
        got.set()
        return plain(b"{}")

    with RawServer(pieces) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.base_url))
        assert got.wait(20)

    assert [(one.answer.outcome, one.answer.status) for one in result.trace.exchanges] == [("closed_early", None)]
    assert result.measured.samples["attempts"] == 1


ERRORS: dict[str, tuple[Callable[[str], str], list[bytes], float]] = {
    "refused": (lambda url: "http://127.0.0.1:1", [], 20),
    "no-such-host": (lambda url: "http://nobody.invalid", [], 20),
    "hung-up": (lambda url: url, [CUT], 20),
    "nonsense": (lambda url: url, [b"nonsense\r\n\r\n", CUT], 20),
    "too-slow": (lambda url: url, [], 0.05),
    "cut-chunks": (lambda url: url, [*chunked(EVENTS)[:3], CUT], 20),
    "cut-length": (lambda url: url, [plain(SAID)[0][:-50], CUT], 20),
    "not-found": (lambda url: url, plain(b'{"error": 1}', 404), 20),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    """urllib.request and http.client raise what they raise without us, live and replayed: URLError where it was one."""
    where, pieces, timeout = ERRORS[case]
    hold = threading.Event()

    def answer(asked: Any) -> list[bytes]:
        return pieces or [b""] * hold.wait(5) + [CUT]

    def agent(url: str) -> Any:
        kinds = []
        for name in ("urllib.request", "http.client"):
            try:
                if name == "http.client":
                    with connection(where(url), timeout) as conn:
                        conn.request("POST", PATH, BODY)
                        kinds.append(conn.getresponse().read())
                else:
                    kinds.append(urllib.request.urlopen(where(url) + PATH, data=BODY, timeout=timeout).read())
            except urllib.error.HTTPError as error:
                with error:
                    kinds.append((error.code, error.read()))
            except urllib.error.URLError as error:
                kinds.append((type(error), type(error.reason)))
            except (OSError, http.client.HTTPException) as error:
                kinds.append(type(error))
        return kinds

    with RawServer(answer) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        hold.set()

    assert recorded.value == replayed.value == bare
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] == 2
