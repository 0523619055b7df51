"""What aiohttp sends is the same with and without the meter, byte for byte, and is booked as it was sent."""

from __future__ import annotations

import asyncio
import io
import re
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from metering import Tape, chat, metering, run_task
from model_server import Logged, ModelServer


async def pieces() -> AsyncIterator[bytes]:
    for piece in (b'{"one":', b" 1,", b'"two": 2}'):
        await asyncio.sleep(0)
        yield piece


def form(path: Path) -> aiohttp.FormData:
    made = aiohttp.FormData()
    made.add_field("purpose", "tests")
    made.add_field("file", path.open("rb"), filename="a.txt", content_type="text/plain")
    return made


def sub_parts() -> aiohttp.MultipartWriter:
    writer = aiohttp.MultipartWriter("mixed", boundary="b0undary")
    writer.append_json({"a": 1})
    writer.append("text", {"Content-Encoding": "gzip"})
    return writer


#: Each makes the arguments of one request; a file is there to be sent.
BODIES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "json": lambda path: {"json": chat("ä")},
    "bytes": lambda path: {"data": b"\x00\xff"},
    "bytearray": lambda path: {"data": bytearray(b"ab")},
    "text": lambda path: {"data": "ä", "headers": {"content-type": "text/plain; charset=latin-1"}},
    "fields": lambda path: {"data": {"a": "1", "b": "ä &"}},
    "form with a file": lambda path: {"data": form(path)},
    "multipart": lambda path: {"data": sub_parts()},
    "open file": lambda path: {"data": path.open("rb")},
    "text file": lambda path: {"data": path.open(encoding="utf-8")},
    "memory": lambda path: {"data": io.BytesIO(b"in memory")},
    "generator": lambda path: {"data": pieces()},
    "generator of a known length": lambda path: {"data": pieces(), "headers": {"content-length": "19"}},
    "compressed": lambda path: {"json": chat("a" * 500), "compress": "deflate"},
    "compressed generator": lambda path: {"data": pieces(), "compress": "deflate"},
    "chunked": lambda path: {"data": b"x" * 100, "chunked": True},
    "expected": lambda path: {"data": b"now", "expect100": False, "headers": {"x-a": "1"}},
    "nothing": lambda path: {},
    "empty": lambda path: {"data": b""},
}
BOUNDARY = re.compile(rb"boundary=\"?([0-9a-f]{32})")


def as_sent(entry: Logged) -> tuple[Any, ...]:
    """Method, path, headers and body, with the random boundary of a form made the same."""
    headers, body = dict(entry.headers), entry.body
    boundary = BOUNDARY.search(headers.get("content-type", "").encode())
    if boundary is not None:
        headers["content-type"] = headers["content-type"].replace(boundary.group(1).decode(), "B")
        body = body.replace(boundary.group(1), b"B")
    return entry.method, entry.path, headers, body


@pytest.mark.parametrize("name", BODIES)
def test_the_wire_is_the_same(name: str, model: ModelServer, tmp_path: Path) -> None:
    """Headers, framing and body are those of an agent without a meter; what is booked is the body before coding."""
    path = tmp_path / "a.txt"
    path.write_text("in a file: ä\n" * 20, encoding="utf-8")

    async def agent() -> int:
        async with aiohttp.ClientSession() as session:
            async with session.post(model.base_url + "/tool/x", **BODIES[name](path)) as answer:
                await answer.read()
                return answer.status

    bare = asyncio.run(agent())
    with metering() as meter:
        result = run_task(meter, agent)

    without, sent = model.log
    booked = result.trace.exchanges[0].request
    body = zlib.decompress(sent.body) if sent.headers.get("content-encoding") == "deflate" else sent.body
    assert (result.value, bare) == (200, 200)
    assert as_sent(sent) == as_sent(without)
    assert (booked.body, dict(booked.headers)) == (body, sent.headers)


def test_a_generator_is_replayed(model: ModelServer) -> None:
    """A body that is made while it is sent is matched by what it made."""

    async def agent() -> int:
        async with aiohttp.ClientSession() as session:
            async with session.post(model.base_url + "/tool/x", data=pieces()) as answer:
                return answer.status

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.value, replayed.value, replayed.trace.misses, len(model.log)) == (200, 200, 0, 1)


OLD = tuple(map(int, aiohttp.__version__.split(".")[:2])) < (3, 12)
CLOSED = pytest.mark.skipif(OLD, reason="this aiohttp closes the file after the first hop, sooner or later")


@pytest.mark.parametrize("way", ["generator", pytest.param("file", marks=CLOSED)])
def test_a_body_across_a_redirect(way: str, model: ModelServer, tmp_path: Path) -> None:
    """A body that can be sent once only fails at a redirect as it does without a meter, and a file goes on as there."""
    path = tmp_path / "a.txt"
    path.write_bytes(b'{"a": 1}')

    async def agent() -> str:
        data = pieces() if way == "generator" else path.open("rb")
        async with aiohttp.ClientSession() as session:
            try:
                async with session.post(model.base_url + "/redirect/tool/x", data=data) as answer:
                    return await answer.text()
            except (aiohttp.ClientError, ValueError) as error:
                return f"{type(error).__name__}: {error}"

    bare = asyncio.run(agent())
    sent = len(model.log)
    with metering() as meter:
        result = run_task(meter, agent)

    assert result.value == bare
    assert len(model.log) == 2 * sent == 2 * len(result.trace.exchanges)


def test_a_body_that_cannot_be_made(model: ModelServer) -> None:
    """An error in the agent's generator reaches the agent as it does without a meter."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise LookupError("no second one")

    async def agent() -> str:
        async with aiohttp.ClientSession() as session:
            try:
                await session.post(model.base_url + "/tool/x", data=broken())
            except aiohttp.ClientError as error:
                return f"{type(error).__name__}: {str(error).split('key')[0]} {error.__cause__!r}"
        return "sent"

    bare = asyncio.run(agent())
    with metering() as meter:
        result = run_task(meter, agent)

    assert result.value == bare
    assert bare.startswith("ClientConnectionError")
    assert [exchange.answer.outcome for exchange in result.trace.exchanges] == ["error"]
