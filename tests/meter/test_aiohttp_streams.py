"""Answers of aiohttp: the agent hears the same bare, counted and replayed, and how each answer ended is told apart."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import aiohttp
import pytest
from metering import Result, Tape, chat, metering, run_task
from model_server import ModelServer

CHAT = "/v1/chat/completions"
Reading = Callable[[aiohttp.ClientResponse], Awaitable[Any]]


BODY = {"choices": [], "model": "x", "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}


PLAIN = json.dumps(BODY).encode()
PACKED = gzip.compress(PLAIN)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#: What a server writes, a write for each part, before it closes the connection.
RAW: dict[str, list[bytes]] = {
    "gzip": [HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED), PACKED[:20], PACKED[20:]],
    "until the connection ends": [HEAD + b"\r\n", PLAIN[:9], PLAIN[9:]],
    "all in one packet": [HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(PLAIN), PLAIN)],
    "after a 103": [
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PLAIN), PLAIN),
    ],
}


@contextmanager
def serving(connections: list[list[list[bytes]]]) -> Iterator[str]:
    """A raw server: for each connection, for each request on it, the parts of the answer; then it hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answers in connections:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with connection, connection.makefile("rb") as incoming:
                    for parts in answers:
                        length = 0
                        while line := incoming.readline().strip():
                            if line.lower().startswith(b"content-length:"):
                                length = int(line[15:])
                        incoming.read(length)
                        for part in parts:
                            connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def asking(url: str, read: Reading, *, stream: bool = True, **session_settings: Any) -> Callable[[], Any]:
    """An agent that asks once and reads the answer by ``read``; what it hears, or the error that it gets."""

    async def agent() -> Any:
        asked = chat("hi", stream=stream, stream_options={"include_usage": True})
        try:
            async with AsyncExitStack() as stack:
                session = await stack.enter_async_context(aiohttp.ClientSession(**session_settings))
                return await read(await stack.enter_async_context(session.post(url + CHAT, json=asked)))
        except (aiohttp.ClientError, TimeoutError) as error:
            return type(error).__name__, str(error)

    return agent


def three_ways(agent: Callable[[], Any], model: ModelServer, script: Any) -> tuple[Any, Result, Result]:
    """What the agent hears without a meter, and the results of recording and of replaying it."""
    model.restart(script)
    bare = asyncio.run(agent())
    model.restart(script)
    with metering("record") as meter:
        recorded = run_task(meter, agent)
    sent = len(model.log)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))
    assert len(model.log) == sent
    assert (recorded.error, replayed.error) == (None, None)
    return bare, recorded, replayed


async def all_of(answer: aiohttp.ClientResponse) -> Any:
    return await answer.read(), answer.content.total_bytes, answer.content.at_eof()


async def as_text(answer: aiohttp.ClientResponse) -> Any:
    return (await answer.text()).split("\n")[0], answer.ok, answer.reason, answer.content_type


async def by_line(answer: aiohttp.ClientResponse) -> Any:
    return [line async for line in answer.content]


async def by_readline(answer: aiohttp.ClientResponse) -> Any:
    lines = []
    while line := await answer.content.readline():
        lines.append(line)
    return lines, answer.content.is_eof()


async def by_any(answer: aiohttp.ClientResponse) -> Any:
    return b"".join([chunk async for chunk in answer.content.iter_any()])


async def by_size(answer: aiohttp.ClientResponse) -> Any:
    # How much is there at once is the network's matter: only the bytes and the largest size are the agent's.
    chunks = [chunk async for chunk in answer.content.iter_chunked(64)]
    return b"".join(chunks), max(map(len, chunks)) <= 64


async def by_chunk(answer: aiohttp.ClientResponse) -> Any:
    """As the library's own documentation shows it: a message is whole at the end of a chunk."""
    messages, begun = [], b""
    async for data, is_end in answer.content.iter_chunks():
        begun += data
        if is_end and begun:  # whether an empty one comes last is a matter of time
            messages.append(begun)
            begun = b""
    return messages


async def by_separator(answer: aiohttp.ClientResponse) -> Any:
    return await answer.content.readuntil(b"\n\n"), await answer.content.readexactly(7), await answer.content.read()


async def to_the_end(answer: aiohttp.ClientResponse) -> Any:
    await answer.content.wait_eof()
    return answer.content.read_nowait()


READINGS: list[Reading] = [
    all_of,
    as_text,
    by_line,
    by_readline,
    by_any,
    by_size,
    by_chunk,
    by_separator,
    to_the_end,
]


@pytest.mark.parametrize("read", READINGS, ids=lambda read: read.__name__)
def test_every_way_to_read(read: Reading, model: ModelServer) -> None:
    """Each way to read a stream hears the same bare, counted and replayed; usage and the whole answer are known."""
    agent = asking(model.base_url, read)
    bare, recorded, replayed = three_ways(agent, model, [{"text": "one two three four"}])

    answer = recorded.trace.exchanges[0].answer
    assert bare == recorded.value == replayed.value
    assert (answer.outcome, replayed.trace.exchanges[0].answer) == ("complete", answer)
    assert recorded.measured.samples["output_tokens"] == replayed.measured.samples["output_tokens"] == 4
    assert len(answer.chunks) == 8  # one for each event
    assert (recorded.trace.problems, replayed.trace.problems) == ((), ())


async def plain_json(answer: aiohttp.ClientResponse) -> Any:
    return (await answer.json())["choices"][0]["message"], answer.headers["content-type"], answer.headers.get("x-a")


def test_a_plain_answer(model: ModelServer) -> None:
    """JSON is heard the same bare, counted and replayed, with the headers of the answer."""
    agent = asking(model.base_url, plain_json, stream=False)
    bare, recorded, replayed = three_ways(agent, model, [{"text": "one two", "headers": {"X-A": "b"}}])

    assert bare == recorded.value == replayed.value
    assert bare[1:] == ("application/json", "b")


async def one_line(answer: aiohttp.ClientResponse) -> Any:
    return await answer.content.readline()


async def nothing(answer: aiohttp.ClientResponse) -> Any:
    return answer.status


async def released(answer: aiohttp.ClientResponse) -> Any:
    await answer.content.readany()
    await answer.release()
    try:
        return await answer.content.read()
    except aiohttp.ClientConnectionError as error:
        return str(error)


async def closed(answer: aiohttp.ClientResponse) -> Any:
    answer.close()
    try:
        return await answer.read()
    except aiohttp.ClientConnectionError as error:
        return str(error), answer.closed


async def given_up(answer: aiohttp.ClientResponse) -> Any:
    try:
        await asyncio.wait_for(answer.read(), 0.1)
    except TimeoutError as error:
        return type(error).__name__, "", answer.closed


async def waited_for_twice(answer: aiohttp.ClientResponse) -> Any:
    try:
        await asyncio.wait_for(answer.content.readexactly(100_000), 0.1)
    except TimeoutError:
        return "gave up once", (await answer.content.read())[-8:]


async def waited_and_left(answer: aiohttp.ClientResponse) -> Any:
    try:
        await asyncio.wait_for(answer.content.readexactly(100_000), 0.1)
    except TimeoutError:
        return "gave up once", (await answer.content.readany())[:6]


SLOW = {"text": "one two three four", "chunk_delay_s": 0.4}
DYING = {"text": "one two three", "break_after": 2, "chunk_delay_s": 0.03}
#: name -> how it is read, what the server does, settings of the session, how it ends, the error
ENDS: dict[str, tuple[Reading, Any, dict[str, Any], str, str | None]] = {
    "first line only": (one_line, SLOW, {}, "closed_early", None),
    "unread at the exit of its block": (nothing, SLOW, {}, "closed_early", None),
    "released": (released, SLOW, {}, "closed_early", None),
    "closed": (closed, SLOW, {}, "closed_early", None),
    "given up": (given_up, SLOW, {}, "error", "CancelledError"),
    "late in all": (all_of, SLOW, {"timeout": aiohttp.ClientTimeout(total=0.2)}, "error", "TimeoutError"),
    "silent too long": (all_of, SLOW, {"timeout": aiohttp.ClientTimeout(sock_read=0.1)}, "error", "SocketTimeoutError"),
    "the server dies": (all_of, DYING, {}, "error", "ClientPayloadError"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_way_to_end(name: str, model: ModelServer) -> None:
    """Broken off by the agent, by a timeout or by the server: the agent sees the same, and the end is told apart."""
    read, rule, settings, outcome, error = ENDS[name]
    agent = asking(model.base_url, read, **settings)
    bare, recorded, replayed = three_ways(agent, model, [rule])

    answer = recorded.trace.exchanges[0].answer
    assert kind_of(bare) == kind_of(recorded.value) == kind_of(replayed.value)
    assert (answer.outcome, answer.error) == (outcome, error)
    assert (recorded.fanout, recorded.measured.unknown_usage) == (1, 1)
    assert (replayed.fanout, replayed.measured.unknown_usage) == (1, 1)
    assert replayed.slugs == []


def kind_of(heard: Any) -> Any:
    """What was heard; of an error its name, since its text names a socket."""
    return (heard[0], *heard[2:]) if isinstance(heard, tuple) and str(heard[0]).endswith("Error") else heard


@pytest.mark.parametrize(
    ("read", "heard", "outcome"),
    [(waited_for_twice, b"[DONE]\n\n", "complete"), (waited_and_left, b"data: ", "closed_early")],
)
def test_a_wait_that_is_given_up_and_taken_up_again(
    read: Reading, heard: bytes, outcome: str, model: ModelServer
) -> None:
    """A cancelled read leaves the answer usable, and says nothing of how the answer ends in spite of it."""
    rule = {"text": "one two three", "chunk_delay_s": 0.06}
    agent = asking(model.base_url, read)
    model.restart([rule, rule])
    bare = asyncio.run(agent())
    with metering() as meter:
        result = run_task(meter, agent)

    assert bare == result.value == ("gave up once", heard)
    assert result.trace.exchanges[0].answer.outcome == outcome


def test_a_short_answer_that_nobody_reads_is_whole() -> None:
    """What has arrived in full is complete, read or not: its usage is known."""
    with serving([[RAW["all in one packet"]]]) as url, metering() as meter:
        result = run_task(meter, asking(url, nothing, stream=False))

    assert result.value == 200
    assert (result.trace.exchanges[0].answer.outcome, result.measured.unknown_usage) == ("complete", 0)


def test_an_answer_that_is_kept_unread(model: ModelServer) -> None:
    """An answer that is still open, and of which nothing was read, when its task ends is flushed as unread."""
    model.restart([{"delay_s": 0.0, "text": "one", "chunk_delay_s": 0.4}])
    kept: list[Any] = []

    async def agent() -> None:
        kept.append(aiohttp.ClientSession())
        kept.append(await kept[0].post(model.base_url + CHAT, json=chat(stream=True)))

    async def let_go() -> None:
        kept[1].close()
        await kept[0].close()

    with asyncio.Runner() as runner, metering() as meter:
        result = run_task(meter, lambda: runner.run(agent()))
        runner.run(let_go())

    assert (result.trace.exchanges[0].answer.outcome, result.fanout) == ("unread", 1)


def test_the_library_tries_again(model: ModelServer) -> None:
    """A request that aiohttp sends again by itself, on a connection that had died, is two attempts, replayed as two."""
    whole = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(PLAIN), PLAIN)

    async def agent(url: str) -> Any:
        heard = []
        async with aiohttp.ClientSession() as session:
            for number in range(2):
                async with session.get(f"{url}/tool/{number}") as answer:
                    heard.append(await answer.json())
        return heard

    with metering("record") as meter, serving([[[whole], []], [[whole]]]) as url:
        recorded = run_task(meter, lambda: agent(url))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(url), source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == [BODY, BODY]
    for result in (recorded, replayed):
        ends = [(exchange.answer.outcome, exchange.answer.error) for exchange in result.trace.exchanges]
        assert ends == [("complete", None), ("error", "ServerDisconnectedError"), ("complete", None)]


def test_the_first_chunk_of_aiohttp_is_not_held(model: ModelServer) -> None:
    """The first event reaches the agent long before the last one is sent, and the times are kept."""
    model.restart([{"text": "one two three four", "chunk_delay_s": 0.08}])

    async def times(answer: aiohttp.ClientResponse) -> Any:
        return [time.monotonic() async for _ in answer.content.iter_any()]

    with metering() as meter:
        result = run_task(meter, asking(model.base_url, times))

    answer = result.trace.exchanges[0].answer
    assert result.value[-1] - result.value[0] > 0.3
    assert answer.chunk_ms[-1] - answer.chunk_ms[0] > 300


@pytest.mark.parametrize("decompress", [True, False])
@pytest.mark.parametrize("name", RAW)
def test_framings_and_codings(name: str, decompress: bool) -> None:
    """Compressed, decoded by aiohttp or not, and however it is framed: usage is read, and replay is the same."""

    async def ask(url: str) -> Any:
        async with aiohttp.ClientSession(auto_decompress=decompress) as session:
            async with session.post(url + CHAT, json=chat()) as answer:
                body = await answer.read()
        if not decompress and name == "gzip":
            body = gzip.decompress(body)
        return json.loads(body)

    with metering("record") as meter, serving([[RAW[name]]]) as url:
        recorded = run_task(meter, lambda: ask(url))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: ask(url), source=Tape(recorded.trace.exchanges))

    answer = recorded.trace.exchanges[0].answer
    assert recorded.value == replayed.value == BODY
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7
    assert answer.outcome == "complete"
    # a header that names a coding stands beside chunks that have it, and only there
    assert ("content-encoding" in dict(answer.headers)) == (answer.body[:2] == b"\x1f\x8b")


def test_a_recording_of_another_client() -> None:
    """What was recorded with its content coding is decoded for a session that wants it so."""

    async def ask(*, decompress: bool) -> Any:
        async with aiohttp.ClientSession(auto_decompress=decompress) as session:
            async with session.post(url + CHAT, json=chat()) as answer:
                return await answer.read()

    with metering("record") as meter, serving([[RAW["gzip"]]]) as url:
        recorded = run_task(meter, lambda: ask(decompress=False))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: ask(decompress=True), source=Tape(recorded.trace.exchanges))

    assert (recorded.value, replayed.value) == (PACKED, PLAIN)
