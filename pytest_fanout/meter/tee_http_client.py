"""A note of what is read from a response of ``http.client``: the object stays, its class becomes a subclass."""

from __future__ import annotations

import functools
from typing import Any

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.patching import passed_on


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
    readline = _noting(base.readline)

    def readline_of_any(response: Any, *args: Any) -> Any:
        # Of a chunked body it is made of calls of ``read``, which note by themselves.
        return passed_on(base.readline, response, *args) if response.chunked else readline(response, *args)

    def close(response: Any) -> None:
        base.close(response)
        response._pytest_fanout_flight.end("closed_early")

    def __del__(response: Any) -> None:
        flight = response.__dict__.get("_pytest_fanout_flight")
        if flight is not None:
            flight.end("closed_early" if flight.chunks else "unread")
        base.__del__(response)

    methods = {
        "read": _noting(base.read),
        "read1": _noting(base.read1),
        "readinto": _noting(base.readinto, fills=True),
        "readline": functools.wraps(base.readline)(readline_of_any),
        "close": functools.wraps(base.close)(close),
        "__del__": __del__,
    }
    named = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (base,), methods | named)


def _noting(read: Any, *, fills: bool = False) -> Any:
    """A way of reading that notes what it gives. ``fills``: it writes into a buffer and gives the number of bytes."""

    @functools.wraps(read)
    def noted(response: Any, *args: Any) -> Any:
        if response._pytest_fanout_busy:  # one way of reading that stands on another
            return passed_on(read, response, *args)
        flight: Flight = response._pytest_fanout_flight
        response._pytest_fanout_busy = True
        try:
            got = passed_on(read, response, *args)
        except BaseException as error:
            note_partial(flight, error)
            flight.end("error", type(error).__name__)
            raise
        finally:
            response._pytest_fanout_busy = False
        if got:
            flight.chunk(bytes(memoryview(args[0]).cast("B")[:got]) if fills else got)
        if flight.outcome is None and (response.fp is None or response.length == 0):
            flight.end("complete")
        return got

    return noted
