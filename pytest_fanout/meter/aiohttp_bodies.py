"""The body of a request of aiohttp as bytes, and the very same pieces of it for the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

_WHOLE = ("BytesPayload", "StringPayload", "JsonPayload", "JsonBytesPayload")
_MARK = "_pytest_fanout_pieces"

Whole = Callable[[Any], "bytes | None"]
Made = Callable[[Any], Awaitable[bytes]]


def body_readers(module: ModuleType) -> tuple[Whole, Made]:
    """``whole(request)`` and ``await made(request)``: the bytes that will be sent, before compression and framing.

    ``whole`` knows those that are there already, and is None for all others. A body that is made while it is sent (a
    generator, a file, a form with files) is made now, once, and sent in the same pieces afterwards: framing and headers
    were decided when the request was built, and stay. Where making it fails, sending it fails in the same place as it
    would have.
    """
    payloads = module.payload
    kinds = {kind for name in _WHOLE if (kind := getattr(payloads, name, None)) is not None}
    collector = _collector(module)

    def whole(request: Any) -> bytes | None:
        body = request.body
        if type(body) in kinds:
            value = body._value
            return value if type(value) is bytes else bytes(value)
        return None if isinstance(body, payloads.Payload) else bytes(body)

    async def made(request: Any) -> bytes:
        body = request.body
        pieces: list[bytes] | None = vars(body).get(_MARK)
        if pieces is None:
            pieces = await _make(body, request, collector())
        return b"".join(pieces)

    return whole, made


async def _make(body: Any, request: Any, collector: Any) -> list[bytes]:
    failure: Exception | None = None
    try:
        if hasattr(body, "write_with_length"):
            await body.write_with_length(collector, request._get_content_length())
        else:
            await body.write(collector)
    except Exception as error:
        failure = error
    pieces: list[bytes] = collector.pieces

    async def write(writer: Any, *_: Any) -> None:
        for name in ("write", "write_with_length", _MARK):
            vars(body).pop(name, None)  # sent once more, at a redirect, it does what it would have done
        for piece in pieces:
            await writer.write(piece)
        if failure is not None:
            raise failure

    body.write = body.write_with_length = write
    setattr(body, _MARK, pieces)
    return pieces


def _collector(module: ModuleType) -> Any:
    class Collector(module.abc.AbstractStreamWriter):  # type: ignore[misc,name-defined]
        """Where a body is written to before there is a connection."""

        transport = None

        def __init__(self) -> None:
            self.pieces: list[bytes] = []

        async def write(self, chunk: Any, *_: Any, **__: Any) -> None:
            self.pieces.append(bytes(chunk))

        async def write_eof(self, chunk: bytes = b"") -> None:
            if chunk:
                self.pieces.append(bytes(chunk))

        async def drain(self) -> None:
            pass

        def enable_compression(self, *_: Any, **__: Any) -> None:
            pass

        def enable_chunking(self) -> None:
            pass

        async def write_headers(self, *_: Any) -> None:
            pass

    return Collector
