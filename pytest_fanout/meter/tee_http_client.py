"""A note of what is read from a response of ``http.client``: the object stays, its class becomes a subclass."""

from __future__ import annotations

import functools
from typing import Any

from pytest_fanout.meter.flight import Flight


def tee(response: Any, flight: Flight) -> None:
    """Tell ``flight`` each piece that the agent reads from ``response``, and how it ends."""
    response._pytest_fanout_flight = flight
    response._pytest_fanout_busy = False
    response.__class__ = _teed(response.__class__)


def note_partial(flight: Flight, error: BaseException) -> None:
    """What had arrived when a body that was read in one go broke off stands in the error."""
    for cause in (error, *error.args):
        partial = getattr(cause, "partial", None)
        if isinstance(partial, bytes) and partial:
            flight.chunk(partial)
            return


@functools.lru_cache(maxsize=64)
def _teed(base: Any) -> Any:
    def read(response: Any, *args: Any) -> Any:
        return _noted(response, base.read, args)

    def read1(response: Any, *args: Any) -> Any:
        return _noted(response, base.read1, args)

    def readinto(response: Any, buffer: Any) -> Any:
        return _noted(response, base.readinto, (buffer,), buffer)

    def readline(response: Any, *args: Any) -> Any:
        # Of a chunked body it is made of calls of ``read``, which note by themselves.
        return base.readline(response, *args) if response.chunked else _noted(response, base.readline, args)

    def close(response: Any) -> None:
        base.close(response)
        response._pytest_fanout_flight.end("closed_early")

    def __del__(response: Any) -> None:
        flight = response.__dict__.get("_pytest_fanout_flight")
        if flight is not None:
            flight.end("closed_early" if flight.chunks else "unread")
        base.__del__(response)

    functions: dict[str, Any] = {
        one.__name__: functools.wraps(getattr(base, one.__name__))(one)
        for one in (read, read1, readinto, readline, close)
    }
    named = {
        "__del__": __del__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), functions | named)


def _noted(response: Any, read: Any, args: tuple[Any, ...], buffer: Any = None) -> Any:
    if response._pytest_fanout_busy:  # one way of reading that stands on another
        return read(response, *args)
    flight: Flight = response._pytest_fanout_flight
    response._pytest_fanout_busy = True
    try:
        got = read(response, *args)
    except BaseException as error:
        note_partial(flight, error)
        flight.end("error", type(error).__name__)
        raise
    finally:
        response._pytest_fanout_busy = False
    if got:
        flight.chunk(got if buffer is None else bytes(memoryview(buffer).cast("B")[:got]))
    if flight.outcome is None and (response.fp is None or response.length == 0):
        flight.end("complete")
    return got
