"""The hook of lm15, the client on raw sockets that dspy brings along: ``stream`` of its two transports.

It goes by module name, for the copy inside dspy as for the package itself; both are the same code. Requests pass here
below the retries of its callers, each once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import INSIDE, Outer
from pytest_fanout.meter.outflow import let_wait
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import Seam

MODULES: tuple[str, ...] = tuple(
    f"{package}.transports.{form}" for package in ("dspy._vendor.lm15", "lm15") for form in ("_sync", "_async")
)
LAYER = "lm15"
_MARK = "_pytest_fanout_hook"


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the transport of ``module``; the returned function takes the patch off again."""
    cls, name = _point(module)
    before = getattr(cls, name)
    if hasattr(before, _MARK):
        return lambda: None
    hook = (_sync_hook if name == "stream" else _async_hook)(module, seam, before)
    setattr(hook, _MARK, True)
    setattr(cls, name, hook)

    def undo() -> None:
        if vars(cls).get(name) is hook:
            setattr(cls, name, before)

    return undo


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one request through a closed transport, which sends nothing; the patch if it did not see it exactly once."""
    cls, name = _point(module)
    seam.probe = []
    with contextlib.suppress(Exception):
        transport = cls.__new__(cls)
        transport._closed = True
        sending = getattr(transport, name)(module.TransportRequest("GET", "http://probe.invalid/"))
        sending.send(None)
    failed = [] if len(seam.probe) == 1 else [f"{module.__name__}.{cls.__name__}.{name}"]
    seam.probe = None
    return failed


def _point(module: ModuleType) -> tuple[Any, str]:
    if hasattr(module, "StdlibTransport"):
        return module.StdlibTransport, "stream"
    return module.StdlibAsyncTransport, "_do_stream"


def _sync_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def stream(transport: Any, request: Any) -> Any:
        begun = _begin(seam, request)
        if begun is None:
            return original(transport, request)
        outer, flight = begun
        playback = playback_of(flight) if flight is not None else None
        if playback is not None:
            if playback.status is None:
                playback.wait_for_end()
                raise _error(module, playback.read_to_end())
            return module.TransportResponse(
                **_head(playback), chunks=_played(module, playback), release=lambda _: playback.close()
            )
        token = INSIDE.set(outer)
        try:
            response = original(transport, _outgoing(flight, request))
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)
        if flight is None:
            return response
        flight.began(response.status, _raw(response.headers))
        chunks, release = response._chunks, response._release

        def released(body_consumed: bool) -> None:
            try:
                release(body_consumed)
            finally:
                flight.end("closed_early")

        response._chunks, response._release = _tee(chunks, flight), released
        return response

    return stream


def _async_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    async def _do_stream(transport: Any, request: Any) -> Any:
        begun = _begin(seam, request, waits=False)
        if begun is None:
            return await original(transport, request)
        outer, flight = begun
        if flight is not None and flight.turn is not None:
            await let_wait(flight)
        playback = playback_of(flight) if flight is not None else None
        if playback is not None:

            async def close(_: bool) -> None:
                playback.close()

            # Let the siblings of this call run, as a network would: parallel calls stay parallel in replay.
            await asyncio.sleep(0)
            if playback.status is None:
                while playback.awaits_stop():
                    await asyncio.sleep(0.001)
                await asyncio.sleep(playback.pause_s(len(playback.chunks)))
                error = playback.read_to_end()
                if error == "CancelledError":
                    # The agent gave up waiting: give it the time to do so again.
                    await asyncio.sleep(playback.ended_ms / 1000 + 1)
                raise _error(module, error)
            return module.AsyncTransportResponse(
                **_head(playback), chunks=_async_played(module, playback), release=close
            )
        token = INSIDE.set(outer)
        try:
            response = await original(transport, _outgoing(flight, request))
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)
        if flight is None:
            return response
        flight.began(response.status, _raw(response.headers))
        chunks, release = response._chunks, response._release

        async def released(body_consumed: bool) -> None:
            try:
                await release(body_consumed)
            finally:
                flight.end("closed_early")

        response._chunks, response._release = _async_tee(chunks, flight), released
        return response

    return _do_stream


def _begin(seam: Seam, request: Any, *, waits: bool = True) -> tuple[Outer, Flight | None] | None:
    """What to set as INSIDE, and the request if it was booked; None: leave it alone."""
    if seam.probe is not None:
        seam.probe.append(LAYER)
        return None
    if not seam.active:
        return None
    body = bytes(request.body or b"")
    outer = seam.outer(request.method, request.url, body)
    if outer is None:
        return None
    return outer, seam.begin(LAYER, request.method, request.url, _raw(request.headers), body, waits=waits)


def _raw(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers]


def _outgoing(flight: Flight | None, request: Any) -> Any:
    """A twin of the agent's request with the real keys, which the agent never sees."""
    if flight is None or flight.opened is None:
        return request
    from dataclasses import replace

    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in flight.opened.headers]
    return replace(request, url=flight.opened.url, headers=headers)


def _tee(chunks: Iterator[bytes], flight: Flight) -> Iterator[bytes]:
    try:
        for chunk in chunks:
            flight.chunk(chunk)
            yield chunk
    except GeneratorExit:
        raise
    except BaseException as error:
        flight.end("error", type(error).__name__)
        raise
    flight.end("complete")


async def _async_tee(chunks: AsyncIterator[bytes], flight: Flight) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            flight.chunk(chunk)
            yield chunk
    except GeneratorExit:
        raise
    except BaseException as error:
        flight.end("error", type(error).__name__)
        raise
    flight.end("complete")


def _head(playback: Playback) -> dict[str, Any]:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in playback.headers]
    return {"status": playback.status, "reason": "", "headers": headers, "http_version": "HTTP/1.1"}


def _played(module: ModuleType, playback: Playback) -> Iterator[bytes]:
    for number, chunk in enumerate(playback.chunks):
        playback.wait(number)
        yield chunk
    playback.wait_for_end()
    _ended(module, playback)


async def _async_played(module: ModuleType, playback: Playback) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(playback.chunks):
        if (pause_s := playback.pause_s(number)) > 0:
            await asyncio.sleep(pause_s)
        yield chunk
    await asyncio.sleep(playback.pause_s(len(playback.chunks)))
    _ended(module, playback)


def _ended(module: ModuleType, playback: Playback) -> None:
    error = playback.read_to_end()
    if error is not None:
        raise _error(module, error)


def _error(module: ModuleType, name: str | None) -> Exception:
    """The client's own error of this name."""
    errors = sys.modules[module.__name__.rpartition(".")[0] + "._exceptions"]
    kind = getattr(errors, name or "", None)
    if not (isinstance(kind, type) and issubclass(kind, errors.TransportError)):
        kind = errors.ReadError
    error: Exception = kind("recorded: the connection failed here")
    return error
