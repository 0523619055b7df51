"""A request of ``http.client`` as bytes: taken apart, and its head made anew."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from pytest_fanout.meter.flight import Flight, RawHeaders

_PORTS = {80: "http", 443: "https"}


class Request(NamedTuple):
    """A request as it is about to go over the wire.

    ``missing``: bytes of the body that the head announces and that are not there; None: the end of a chunked body is
    not there.
    """

    line: bytes
    method: str
    target: str
    headers: RawHeaders
    body: bytes  # without the framing of chunks
    missing: int | None


def read_request(pieces: list[bytes]) -> Request:
    """The request that ``pieces`` hold: head and body, as ``http.client`` makes them."""
    head, _, rest = pieces[0].partition(b"\r\n\r\n")
    body = b"".join((rest, *pieces[1:])) if len(pieces) > 1 else rest
    line, *lines = head.split(b"\r\n")
    method, target, *_ = line.decode("latin-1").split(" ")
    headers: RawHeaders = []
    length, chunked = 0, False
    for text in lines:
        if text[:1] in (b" ", b"\t") and headers:  # a value given in several lines
            headers[-1] = (headers[-1][0], headers[-1][1] + b" " + text.strip())
            continue
        name, _, value = text.partition(b":")
        value = value.strip()
        headers.append((name, value))
        lower = name.lower()
        if lower == b"content-length" and value.isdigit():
            length = int(value)
        elif lower == b"transfer-encoding":
            chunked = value.lower() == b"chunked"
    if not chunked:
        return Request(line, method, target, headers, body, length - len(body))
    content, is_whole = _unchunked(body)
    return Request(line, method, target, headers, content, 0 if is_whole else None)


def _unchunked(data: bytes) -> tuple[bytes, bool]:
    """The content of a chunked body, and whether its end is there."""
    content: list[bytes] = []
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        try:
            size = int(data[at:end].partition(b";")[0], 16) if end >= 0 else -1
        except ValueError:
            size = -1
        if size < 0:
            return b"".join(content), False
        if size == 0:
            return b"".join(content), data.find(b"\r\n\r\n", end - 2) >= 0
        content.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def with_headers(request: Request, flight: Flight) -> bytes:
    """The head of a request with the real keys, which the agent never sees."""
    opened = flight.opened
    assert opened is not None
    line = request.line
    if opened.url != flight.url:
        cut = 0 if request.target == flight.url else len(flight.url) - len(request.target)
        line = line.replace(request.target.encode("latin-1"), opened.url[cut:].encode("latin-1"), 1)
    return b"\r\n".join((line, *(name + b": " + value for name, value in opened.headers), b"", b""))


def url_of(conn: Any, target: str) -> str:
    """The URL that a connection asks by ``target``: a proxy is asked by the whole of it, or through a tunnel."""
    if not target.startswith("/"):
        return target
    host, port = (conn._tunnel_host, conn._tunnel_port) if conn._tunnel_host else (conn.host, conn.port)
    scheme = _PORTS.get(conn.default_port, "http")
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{scheme}://{host}{target}" if port == conn.default_port else f"{scheme}://{host}:{port}{target}"


def blocks_of(conn: Any, data: Any) -> list[bytes]:
    """What ``send`` would put on the wire, block by block.

    Raises:
        TypeError: ``data`` is nothing that can be sent.
    """
    if isinstance(data, bytes):
        return [data]
    if hasattr(data, "read"):
        blocks = []
        while block := data.read(conn.blocksize):
            blocks.append(block.encode("iso-8859-1") if isinstance(block, str) else block)
        return blocks
    try:
        return [bytes(memoryview(data))]
    except TypeError:
        if isinstance(data, Iterable) and not isinstance(data, str):
            return [bytes(memoryview(block)) for block in data]
        raise TypeError(f"data should be a bytes-like object or an iterable, got {type(data)!r}") from None


def is_of_urllib3(conn: Any) -> bool:
    """Whether a connection is one of urllib3's, of a copy in another package too."""
    return _is_of_urllib3(conn.__class__)


@functools.lru_cache(maxsize=64)
def _is_of_urllib3(cls: Any) -> bool:
    return any(base.__module__.endswith("urllib3.connection") for base in cls.__mro__)
