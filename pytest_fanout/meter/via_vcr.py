"""The hook of vcrpy's own connections, which stand in the place of those of ``http.client`` while a cassette is open.

What a cassette answers never comes to ``http.client``: without this hook a call by urllib.request would count one while
a cassette records it, and none when it replays. Where the hook of a pool drives the connection it has counted already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytest_fanout.meter.ledger import INSIDE
from pytest_fanout.meter.patching import patch_all
from pytest_fanout.meter.recorded_socket import RecordedSocket, recorded_error
from pytest_fanout.meter.replies import playback_of
from pytest_fanout.meter.seam import Seam
from pytest_fanout.meter.via_http_client import DRIVEN, LAYER

MODULES: tuple[str, ...] = ("vcr.stubs",)
_POINT = "getresponse"


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the connection of ``module``; the returned function takes the patch off again."""
    cls = getattr(module, "VCRConnection", None)
    return patch_all([(cls, _POINT, lambda before: _hook(seam, before))])


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Ask a connection whose cassette knows the answer."""

    class Cassette:
        """Knows one answer to everything."""

        def can_play_response_for(self, request: object) -> bool:
            return True

        def play_response(self, request: object) -> dict[str, Any]:
            return {"status": {"code": 204, "message": ""}, "headers": {}, "body": {"string": b""}}

    seam.probe = []
    try:
        connection = type("Probe", (module.VCRHTTPConnection,), {"cassette": Cassette()})("probe.invalid")
        connection.request("GET", "/")
        connection.getresponse()
    except Exception:
        seam.probe = []
    seen, seam.probe = seam.probe, None
    return [] if seen == [LAYER] else [f"vcr.stubs.VCRConnection.{_POINT}"]


def _hook(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def getresponse(conn: Any, *args: Any, **more: Any) -> Any:
        request = conn.__dict__.get("_vcr_request")
        if not seam.active or request is None or getattr(conn, DRIVEN, False):
            return original(conn, *args, **more)
        if seam.probe is not None:
            seam.probe.append(LAYER)
            return original(conn, *args, **more)
        body = _body(request)
        outer = seam.outer(request.method, request.uri, body)
        if outer is None:
            return original(conn, *args, **more)
        headers = [(_bytes(name), _bytes(value)) for name, value in request.headers.items()]
        flight = seam.begin(LAYER, request.method, request.uri, headers, body)
        token = INSIDE.set(outer)
        conn._pytest_fanout_driven = True  # of the real connection below as well
        try:
            playback = playback_of(flight) if flight is not None else None
            if playback is not None:
                return _recorded(playback, request.method)
            if flight is not None and flight.opened is not None:
                request.uri = flight.opened.url
                request.headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in flight.opened.headers}
            response = original(conn, *args, **more)
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            conn._pytest_fanout_driven = False
            INSIDE.reset(token)
        if flight is not None:  # an answer of a cassette is there as a whole
            flight.began(response.status, [(_bytes(name), _bytes(value)) for name, value in response.getheaders()])
            if response.data:
                flight.chunk(response.data)
            flight.end("complete")
        return response

    return getresponse


def _recorded(playback: Any, method: str) -> Any:
    import http.client

    if playback.status is None:
        playback.wait_for_end()
        raise recorded_error(playback.read_to_end() or "")
    response = http.client.HTTPResponse(RecordedSocket(playback), method=method)  # type: ignore[arg-type]
    response.begin()
    return response


def _body(request: Any) -> bytes:
    body = request.body
    if hasattr(body, "read"):
        body = body.read()
    if body is None or isinstance(body, bytes):
        return body or b""
    return body.encode() if isinstance(body, str) else b"".join(body)


def _bytes(value: Any) -> bytes:
    if isinstance(value, list | tuple):  # as putheader() gives it
        value = ", ".join(map(str, value))
    return value if isinstance(value, bytes) else str(value).encode("latin-1", "replace")
