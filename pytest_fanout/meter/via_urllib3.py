"""The hook of urllib3 2, and with it of requests, botocore and all else that stands on its pools.

The point is ``HTTPConnectionPool._make_request``: ``urlopen`` calls itself again for its own retries and redirects, so
that each physical request passes here once, with the exchange of the pool's connection for a user's cassette below.
The tunnel through a proxy, which ``urlopen`` builds before it, is put off until the request has been decided.

A replayed response is made by the method itself: it is called with a stand-in for the connection, whose socket says
what was recorded. urllib3 1 has other points and is left alone: ``via_http_client`` notices what it sends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytest_fanout.meter.flight import Flight, RawHeaders
from pytest_fanout.meter.ledger import INSIDE
from pytest_fanout.meter.patching import patch_all
from pytest_fanout.meter.reader import path_of
from pytest_fanout.meter.recorded_socket import REPLAYED, RecordedSocket, recorded_error, silent_socket
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import Seam
from pytest_fanout.meter.tee_http_client import note_partial
from pytest_fanout.meter.via_http_client import DRIVEN

MODULES: tuple[str, ...] = ("urllib3.connectionpool",)
_POINT = "_make_request"
_TUNNEL = "_prepare_proxy"
_PUT_OFF = "_pytest_fanout_tunnel"
_LAYER = "urllib3"
_PORTS = {"http": 80, "https": 443}


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the pools of ``module``; the returned function takes the patch off again."""
    if not _is_ours(module):
        return lambda: None
    return patch_all(
        (
            (module.HTTPConnectionPool, _POINT, lambda before: _request_hook(module, seam, before)),
            (module.HTTPSConnectionPool, _TUNNEL, lambda before: _tunnel_hook(seam, before)),
        )
    )


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one request through a pool whose connection ends in a fake socket."""
    if not _is_ours(module):
        return []
    seam.probe = []
    try:
        pool = module.HTTPConnectionPool("probe.invalid")
        pool.ConnectionCls = _stand_in(module)
        pool.urlopen("GET", "/", retries=False)
    except Exception:
        seam.probe = []
    seen, seam.probe = seam.probe, None
    return [] if seen == [_LAYER] else [f"urllib3.HTTPConnectionPool.{_POINT}"]


def _is_ours(module: ModuleType) -> bool:
    return hasattr(module, "BaseHTTPResponse")  # new in 2.0, and with it how responses are made


def _tunnel_hook(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def prepare_proxy(pool: Any, conn: Any) -> None:
        if not seam.active:
            original(pool, conn)
            return
        conn.__dict__[_PUT_OFF] = functools.partial(original, pool, conn)

    return prepare_proxy


def _build_tunnel(module: ModuleType, pool: Any, conn: Any) -> None:
    """What ``urlopen`` would have done before the request, with its own telling of timeouts."""
    build = conn.__dict__.pop(_PUT_OFF)
    try:
        build()
    except (module.BaseSSLError, OSError) as error:
        pool._raise_timeout(err=error, url=pool.proxy.url, timeout_value=conn.timeout)
        raise


def _request_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    watch = _watch(module)
    replay = _replay(module, original)

    def send(pool: Any, conn: Any, *args: Any, **more: Any) -> Any:
        """Hand on what a hook has booked or lets by."""
        known = conn.__dict__
        conn._pytest_fanout_driven = True  # by attribute: a connection of vcrpy tells the real one below it
        try:
            if _PUT_OFF in known:
                _build_tunnel(module, pool, conn)
            return original(pool, conn, *args, **more)
        finally:
            conn._pytest_fanout_driven = False

    @functools.wraps(original)
    def make_request(
        pool: Any, conn: Any, method: str, url: str, body: Any = None, headers: Any = None, **more: Any
    ) -> Any:
        if not seam.active or seam.probe is not None:
            if seam.probe is not None:
                seam.probe.append(_LAYER)
            return send(pool, conn, method, url, body=body, headers=headers, **more)
        full = _full_url(pool, url)
        # What is let by may be too big to hold.
        data, body = (b"", body) if seam.lets_by(method, full) else _whole(body, conn)
        outer = seam.outer(method, full, data)
        if outer is None:
            return _below(seam, method, full, send, pool, conn, method, url, body=body, headers=headers, **more)
        flight = seam.begin(_LAYER, method, full, _raw(headers or {}), data)
        token = INSIDE.set(outer)
        try:
            if flight is None:
                return send(pool, conn, method, url, body=body, headers=headers, **more)
            playback = playback_of(flight)
            if playback is not None:
                conn.__dict__.pop(_PUT_OFF, None)
                return replay(pool, conn, method, url, playback, more)
            asked = url
            if flight.opened is not None:
                headers, url = _opened(module, flight, url)
            preload = more.pop("preload_content", True)
            response = send(pool, conn, method, url, body=body, headers=headers, preload_content=False, **more)
            if url != asked:
                response.url = asked
            watch(response, flight)
            if preload:
                _preload(response, more.get("decode_content", True))
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)
        return response

    return make_request


def _below(seam: Seam, method: str, full: str, send: Any, *args: Any, **more: Any) -> Any:
    """A client above has booked this request: it is only noticed when that client's transport sends it again."""
    sent = seam.sending(method, path_of(full).encode())
    if sent is None:
        return send(*args, **more)
    try:
        response = send(*args, **more)
    except BaseException:
        sent.status = 0
        raise
    sent.status = response.status
    return response


# --- what goes out -----------------------------------------------------------------------------------------------


def _full_url(pool: Any, target: str) -> str:
    """The URL of a request; a proxy is asked by the whole of it, others by the path."""
    if not target.startswith("/"):
        return target
    host, port, scheme = pool.host, pool.port, pool.scheme
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}{target}" if port in (None, _PORTS.get(scheme)) else f"{scheme}://{host}:{port}{target}"


def _whole(body: Any, conn: Any) -> tuple[bytes, Any]:
    """All bytes of a request's body, and what to send in its place: the same pieces, framed the same way."""
    if body is None:
        return b"", None
    if isinstance(body, bytes):
        return body, body
    if isinstance(body, str):
        return body.encode(), body
    if hasattr(body, "read"):
        pieces = []
        while piece := body.read(getattr(conn, "blocksize", 16384)):
            pieces.append(piece)
    else:
        try:
            return bytes(memoryview(body)), body
        except TypeError:
            pieces = list(body)
    return b"".join(p.encode() if isinstance(p, str) else p for p in pieces), iter(pieces)


def _raw(headers: Any) -> RawHeaders:
    try:
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    except (AttributeError, UnicodeEncodeError):  # botocore gives bytes, some callers numbers
        return [(_bytes(name), _bytes(value)) for name, value in headers.items()]


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("latin-1", "replace")


def _opened(module: ModuleType, flight: Flight, target: str) -> tuple[Any, str]:
    """Headers and request target with the real keys, which the agent never sees."""
    opened = flight.opened
    assert opened is not None
    headers = module.HTTPHeaderDict()
    for name, value in opened.headers:
        headers.add(name.decode("latin-1"), value.decode("latin-1"))
    if opened.url != flight.url:
        target = opened.url[len(flight.url) - len(target) :] if target.startswith("/") else opened.url
    return headers, target


# --- what comes back ---------------------------------------------------------------------------------------------


def _watch(module: ModuleType) -> Callable[[Any, Flight], None]:
    import http.client

    teed: dict[type, type] = {}

    def watch(response: Any, flight: Flight) -> None:
        flight.began(response.status, _raw(response.headers))
        cls = response.__class__
        if isinstance(getattr(response, "_fp", None), http.client.HTTPResponse):
            response._pytest_fanout_flight = flight
            response.__class__ = teed.get(cls) or teed.setdefault(cls, _teed(cls))
        else:  # born whole: a user's cassette, a mock
            if response.data:
                flight.chunk(response.data)
            flight.end("complete")

    return watch


def _preload(response: Any, decode_content: bool) -> None:
    """As the response does it while it is made, when the pool is not yet known to it."""
    if getattr(response, "_body", response) is not None:
        return
    kept = response._pool, response._connection
    response._pool = response._connection = None
    try:
        response._body = response.read(decode_content=decode_content)
    finally:
        response._pool, response._connection = kept


def _teed(base: Any) -> Any:
    """A subclass of a response's class that notes each piece that it takes from the connection."""
    raw_read, handle_chunk, next_chunk, close = (
        base._raw_read,
        base._handle_chunk,
        base._update_chunk_length,
        base.close,
    )

    def _raw_read(response: Any, *args: Any, **more: Any) -> Any:
        flight = response._pytest_fanout_flight
        try:
            data = raw_read(response, *args, **more)
        except BaseException as error:
            if not args or args[0] is None:
                note_partial(flight, error)
            flight.end("error", type(error).__name__)
            raise
        if data:
            flight.chunk(data)
        if flight.outcome is None and response._fp is not None and response._fp.isclosed():
            flight.end("complete")
        return data

    def _handle_chunk(response: Any, amt: Any) -> Any:
        flight = response._pytest_fanout_flight
        try:
            data = handle_chunk(response, amt)
        except BaseException as error:
            flight.end("error", type(error).__name__)
            raise
        flight.chunk(data)
        return data

    def _update_chunk_length(response: Any) -> None:
        response._pytest_fanout_reading = True  # a broken answer is closed before the error is raised
        try:
            next_chunk(response)
        except BaseException as error:
            response._pytest_fanout_flight.end("error", type(error).__name__)
            raise
        finally:
            response._pytest_fanout_reading = False
        if response.chunk_left == 0:
            response._pytest_fanout_flight.end("complete")

    def closed(response: Any) -> None:
        close(response)
        if not response.__dict__.get("_pytest_fanout_reading"):
            response._pytest_fanout_flight.end("closed_early")

    def __del__(response: Any) -> None:
        flight = response.__dict__.get("_pytest_fanout_flight")
        if flight is not None:
            flight.end("closed_early" if flight.chunks else "unread")
        base.__del__(response)

    functions = {
        "_raw_read": _raw_read,
        "_handle_chunk": _handle_chunk,
        "_update_chunk_length": _update_chunk_length,
        "close": functools.wraps(close)(closed),
        "__del__": __del__,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), functions)


# --- replay ------------------------------------------------------------------------------------------------------


def _stand_in(module: ModuleType) -> Any:
    class StandIn(module.HTTPConnection):  # type: ignore[misc,name-defined]
        """A connection that is open to a recorded answer; what it sends is booked already."""

        is_verified = True

        def __init__(self, host: str, *, answer: RecordedSocket | None = None, **more: Any) -> None:
            super().__init__(host)
            self.sock = answer or silent_socket()
            self.__dict__[DRIVEN] = True

    return StandIn


def _replay(module: ModuleType, original: Any) -> Any:
    stand_in = _stand_in(module)

    def replay(pool: Any, conn: Any, method: str, url: str, playback: Playback, more: dict[str, Any]) -> Any:
        if playback.status is None:
            playback.wait_for_end()
            raise _error(playback.read_to_end() or "NewConnectionError", pool, conn, url)
        options = {name: value for name, value in more.items() if name != "chunked"}
        answering = stand_in("replay.invalid", answer=RecordedSocket(playback))
        return original(pool, answering, method, url, headers={}, **options)

    return replay


def _error(name: str, pool: Any, conn: Any, url: str) -> Exception:
    """The error of that name as the library makes it."""
    import socket

    from urllib3 import exceptions

    made: dict[str, Callable[[], Exception]] = {
        "ConnectTimeoutError": lambda: exceptions.ConnectTimeoutError(conn, REPLAYED),
        "NameResolutionError": lambda: exceptions.NameResolutionError(pool.host, conn, socket.gaierror(REPLAYED)),
        "NewConnectionError": lambda: exceptions.NewConnectionError(conn, REPLAYED),
        "ProtocolError": lambda: exceptions.ProtocolError(REPLAYED),
        "ProxyError": lambda: exceptions.ProxyError(REPLAYED, OSError(REPLAYED)),
        "ReadTimeoutError": lambda: exceptions.ReadTimeoutError(pool, url, REPLAYED),
        "SSLError": lambda: exceptions.SSLError(REPLAYED),
    }
    return made[name]() if name in made else recorded_error(name)
