"""Recorded answers as aiohttp's own responses: a connection without a network, on which the library goes its usual way.

The session gets a connection whose other end is a recording. It writes its request to nowhere, reads the recorded head,
and builds the response, cookies, traces and errors itself. A chunk is handed out when the agent waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from types import ModuleType
from typing import Any

from pytest_fanout.meter.replies import Playback
from pytest_fanout.wire.bodies import decode

Connect = Callable[[Any, Any, Playback], Awaitable[Any]]

_GAVE_UP = "CancelledError"
#: Where the recorded run failed before there was a connection, and so must the replay.
_BEFORE_SENDING = ("ConnectionTimeoutError", "ConnectTimeout")
_NEAREST = {"ConnectError": "ClientConnectorError", "ReadError": "ClientPayloadError"}  # names of httpx


def player(module: ModuleType) -> Connect:
    """``await connect(connector, request, playback)``: the connection from which that request will be answered."""
    protocol_class = _protocol(module)
    connection_class = _connection(module)

    async def connect(connector: Any, request: Any, playback: Playback) -> Any:
        # Let the siblings of this call run, as a network would: parallel calls stay parallel in replay.
        await asyncio.sleep(playback.pause_s(0 if _is_stream(playback) else len(playback.chunks)))
        loop = asyncio.get_running_loop()
        protocol = protocol_class(loop, playback, request)
        if playback.status is None:
            while playback.awaits_stop():
                await asyncio.sleep(0.001)
            name = playback.read_to_end() or "ConnectError"
            if name == _GAVE_UP:
                await give_up(playback)
            if name in _BEFORE_SENDING:
                raise TimeoutError
            error = error_named(module, name, request)
            if isinstance(error, module.ClientConnectorError):
                raise error
            protocol.failure = error
        return connection_class(connector, request.connection_key, protocol, loop)

    return connect


def _is_stream(playback: Playback) -> bool:
    """Whether it is handed out chunk by chunk; what is coded comes as a whole."""
    return len(playback.chunks) > 1 and not any(name.lower() == b"content-encoding" for name, _ in playback.headers)


async def give_up(playback: Playback) -> None:
    """The agent gave up waiting here: give it the time to do so again."""
    await asyncio.sleep(playback.ended_ms / 1000 + 1)


def error_named(module: ModuleType, name: str, request: Any) -> Exception:
    """The library's exception of a recorded name, or the nearest of it for a name of another library."""
    text = "pytest-fanout: replayed from the recording"
    kind: Any = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, module.ClientError)):
        if name == "TimeoutError":
            return TimeoutError(text)
        if "Timeout" in name or name == _GAVE_UP:
            kind = module.ServerTimeoutError
        else:
            kind = getattr(module, _NEAREST.get(name, "ServerDisconnectedError"))
    error: Exception
    try:
        if issubclass(kind, module.ClientConnectorCertificateError):
            error = kind(request.connection_key, Exception(text))
        elif issubclass(kind, module.ClientConnectorError):
            path = ("",) if kind.__name__ == "UnixClientConnectorError" else ()
            error = kind(*path, request.connection_key, OSError(0, text))
        elif issubclass(kind, module.ClientResponseError):
            error = kind(request.request_info, (), status=400, message=text)
        else:
            error = kind(text)
    except TypeError:  # it wants to be told more than a recording holds
        error = module.ClientConnectionError(text)
    return error


class _Nowhere(asyncio.Transport):
    """The network end of a connection that has none."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = False

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def abort(self) -> None:
        self._closed = True

    def get_write_buffer_size(self) -> int:
        return 0


def _protocol(module: ModuleType) -> Any:
    from multidict import CIMultiDict, CIMultiDictProxy

    reader_class = _reader(module)
    message_class: Any = module.http.RawResponseMessage
    empty: Any = module.streams.EMPTY_PAYLOAD
    bodiless = frozenset({"HEAD"})

    class Played(module.client_proto.ResponseHandler):  # type: ignore[misc,name-defined]
        """aiohttp's own side of a connection, with the recorded response in its queue."""

        failure: Exception | None = None

        def __init__(self, loop: Any, playback: Playback, request: Any) -> None:
            super().__init__(loop)
            self._answer = playback
            self._asked = request
            self.connection_made(_Nowhere())

        def set_response_params(self, **settings: Any) -> None:
            super().set_response_params(**{**settings, "read_timeout": None})
            if self.failure is not None:
                self.set_exception(self.failure)
                return
            self.feed_data(self._message(settings), 0)

        def _message(self, settings: dict[str, Any]) -> tuple[Any, Any]:
            playback = self._answer
            status = playback.status or 0
            pairs = [(name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
                     for name, value in playback.headers]  # fmt: skip
            headers = CIMultiDictProxy(CIMultiDict(pairs))
            try:
                reason = HTTPStatus(status).phrase
            except ValueError:
                reason = ""
            raw = tuple(playback.headers)
            message = message_class(module.HttpVersion11, status, reason, headers, raw, False, None, False, True)
            if self._asked.method in bodiless or status in (204, 304):
                playback.read_to_end()
                return message, empty
            chunks = list(playback.chunks)
            coding = headers.get("Content-Encoding")
            if coding and settings.get("auto_decompress", True):
                chunks = [decode(b"".join(chunks), coding).data]
            limit = settings.get("read_bufsize", 2**16)
            return message, reader_class(self, limit, settings.get("timer"), self._loop, playback, chunks)

        # Nothing flows here that could be held back.
        def pause_reading(self) -> None:
            pass

        def resume_reading(self, *_: Any, **__: Any) -> None:
            pass

    return Played


def _reader(module: ModuleType) -> Any:
    class Reader(module.StreamReader):  # type: ignore[misc,name-defined]
        """A body that is recorded: each wait brings the next chunk."""

        def __init__(
            self, protocol: Any, limit: int, timer: Any, loop: Any, playback: Playback, chunks: list[bytes]
        ) -> None:
            super().__init__(protocol, limit, timer=timer, loop=loop)
            self._playback = playback
            self._left = iter(chunks)
            self._number = 0  # of the chunk that came last
            if len(chunks) > 1:
                self._feed(next(self._left))
            elif playback.is_whole:
                # As from a network, a short answer is there at once, and its connection is free again.
                for chunk in self._left:
                    self._feed(chunk)
                playback.read_to_end()
                self.feed_eof()

        def _feed(self, chunk: bytes) -> None:
            self.begin_http_chunk_receiving()
            self.feed_data(chunk)
            self.end_http_chunk_receiving()

        async def _wait(self, func_name: str) -> None:
            self._number += 1
            await asyncio.sleep(self._playback.pause_s(self._number))
            chunk = next(self._left, None)
            if chunk is not None:
                self._feed(chunk)
                return
            name = self._playback.read_to_end()
            if name is None:
                self.feed_eof()
                return
            if name == _GAVE_UP:
                with self._timer:
                    await give_up(self._playback)
            error = error_named(module, name, self._protocol._asked)
            self.set_exception(error)
            raise error

        async def wait_eof(self) -> None:
            while not self._eof:
                await self._wait("wait_eof")

        def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
            self._playback.close()
            super().set_exception(exc, *cause)

        def __del__(self) -> None:
            self._playback.close()

    Reader.__name__ = Reader.__qualname__ = "StreamReader"
    return Reader


def _connection(module: ModuleType) -> Any:
    class Connection(module.connector.Connection):  # type: ignore[misc,name-defined]
        """A connection that no pool knows."""

        _protocol: Any

        def close(self) -> None:
            self._notify_release()
            if self._protocol is not None:
                self._protocol.close()
                self._protocol = None

        release = close

        def __del__(self, *_: Any) -> None:
            self.close()

    return Connection
