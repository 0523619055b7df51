"""The body of a live response of aiohttp, noted as it arrives and handed on as it is.

aiohttp's parser makes the ``StreamReader`` of a response and feeds it while the agent reads. Ours is that very object,
with a class of the same shape: nothing is buffered, delayed or copied. What has arrived with the head is noted first.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pytest_fanout.meter.flight import Flight, RawHeaders


class _Noting(list[Any]):
    """The reader's list of callbacks, its only attribute that a foreign object can stand in, with our note beside."""

    __slots__ = ("flight", "gave_up")

    def __init__(self, callbacks: list[Any], flight: Flight) -> None:
        super().__init__(callbacks)
        self.flight = flight
        self.gave_up: str | None = None  # what ended the last wait for data, when no data did


class Tee:
    """Notes what comes back for a flight: head, chunks and end."""

    def __init__(self, module: ModuleType) -> None:
        self._plain: Any = module.StreamReader
        self._empty: Any = module.streams.EMPTY_PAYLOAD
        self._noted = _noted_reader(module)
        # the content codings that the parser undoes before the body gets here
        self._undone = {"gzip", "deflate", "br"}
        if hasattr(module.compression_utils, "HAS_ZSTD"):
            self._undone.add("zstd")

    def watch(self, flight: Flight, response: Any, *, is_decoded: bool) -> None:
        """A response has begun; its body arrives from now on, if it is not there already."""
        headers: RawHeaders = list(response.raw_headers)
        if is_decoded and response.headers.get("Content-Encoding", "").lower() in self._undone:
            # The chunks are noted without the coding: a header that names it would make a lie of the record.
            headers = [pair for pair in headers if pair[0].lower() != b"content-encoding"]
        flight.began(response.status, headers)
        content: Any = response.content
        if content is self._empty or response.status == 101:
            flight.end("complete")
            return
        for chunk in content._buffer:
            flight.chunk(chunk)
        if content.is_eof():
            flight.end("complete")
        elif content.exception() is not None:
            flight.end("error", type(content.exception()).__name__)
        elif type(content) is self._plain:
            content._eof_callbacks = _Noting(content._eof_callbacks, flight)
            content.__class__ = self._noted


def _noted_reader(module: ModuleType) -> type:
    plain: Any = module.StreamReader
    closed: type[Exception] = module.ClientConnectionError

    class StreamReader(plain):  # type: ignore[misc]
        """aiohttp's reader, with a note of each thing that happens to it."""

        __slots__ = ()

        def feed_data(self, data: bytes, *size: int) -> Any:
            if data:
                self._eof_callbacks.flight.chunk(data)
            return plain.feed_data(self, data, *size)

        def feed_eof(self) -> None:
            self._eof_callbacks.flight.end("complete")
            plain.feed_eof(self)

        def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
            note = self._eof_callbacks
            if type(exc) is closed and exc.args == ("Connection closed",):
                # Not the connection: the response was released or closed, by the agent or because it gave up waiting.
                if note.gave_up is None:
                    note.flight.end("closed_early")
                else:
                    note.flight.end("error", note.gave_up)
            else:
                note.flight.end("error", type(exc).__name__)
            plain.set_exception(self, exc, *cause)

        async def _wait(self, func_name: str) -> None:
            note = self._eof_callbacks
            try:
                await plain._wait(self, func_name)
            except BaseException as error:
                note.gave_up = type(error).__name__
                raise
            note.gave_up = None

        def __del__(self) -> None:
            flight = self._eof_callbacks.flight
            flight.end("closed_early" if flight.chunks else "unread")

    StreamReader.__module__ = plain.__module__
    StreamReader.__qualname__ = plain.__qualname__
    return StreamReader
