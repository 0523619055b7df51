"""The hook of aiohttp: ``BaseConnector.connect``, ``ClientRequest.send`` and ``ClientResponse.start``.

These three are one hop of a request, in this order and with one ``Connection`` object between them, in every version
from 3.10 on. They lie below redirects, middlewares and the library's own retries, so that each physical request passes
once, and see the request as it goes out: URL with query, headers with cookies, the body in its final form. Mocks and
cassettes replace ``ClientSession._request`` far above; what they answer is booked by ``aiohttp_mocks``.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import ModuleType
from typing import Any

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import aiohttp_mocks
from pytest_fanout.meter.aiohttp_bodies import body_readers
from pytest_fanout.meter.aiohttp_mocks import MOCKED
from pytest_fanout.meter.aiohttp_probe import PROBING, Probe, send_probes
from pytest_fanout.meter.aiohttp_replies import player
from pytest_fanout.meter.aiohttp_tee import Tee
from pytest_fanout.meter.flight import Flight, RawHeaders
from pytest_fanout.meter.ledger import INSIDE, Outer, Sent
from pytest_fanout.meter.outflow import UNPACED, let_wait
from pytest_fanout.meter.reader import path_of
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import AIOHTTP_SOCKETS, Seam

MODULES: tuple[str, ...] = ("aiohttp",)
_LAYER = "aiohttp"
_PATIENCE_S = 10.0  # for a self-check on a thread
_MARK = "_pytest_fanout_hook"
_HOP = "_pytest_fanout_hop"
_RAW = "_pytest_fanout_raw"
#: By these a request tells trace configurations what is sent.
_TELL = ("_on_headers_request_sent", "_on_chunk_request_sent")


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the classes of ``module``; the returned function takes the patches off again.

    A version that does not offer what is needed here is left alone: ``prove`` will say so.
    """
    undo: list[Callable[[], None]] = []

    def uninstall() -> None:
        while undo:
            undo.pop()()

    try:
        if hasattr(module.BaseConnector.connect, _MARK):
            return uninstall
        hooks = _Hooks(module, seam)
        for owner, name, hook in hooks.points():
            undo.append(_patch(owner, name, hook))
        undo.append(aiohttp_mocks.install(module, seam, hooks.tee))
    except (AttributeError, ImportError, KeyError, TypeError):
        uninstall()
    return uninstall


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one request over a connection in memory, and answer one from a recording; what of it did not work."""
    seen: list[str] = []
    try:
        request = aiohttp_mocks.own_request(module)
    except (AttributeError, KeyError):
        request = None
    if asyncio._get_running_loop() is None:
        send_probes(module, request, seen)
    else:
        # On a thread, since a loop runs here. It may not wait for good: this may be the middle of an import.
        worker = threading.Thread(target=send_probes, args=(module, request, seen), daemon=True)
        worker.start()
        worker.join(_PATIENCE_S)
        seen = list(seen)
    wanted = {"live": "aiohttp.BaseConnector.connect", "replayed": "aiohttp.ClientResponse.start"}
    return [name for what, name in wanted.items() if seen.count(what) != 1]


def _patch(owner: Any, name: str, hook: Any) -> Callable[[], None]:
    before = owner.__dict__[name]
    setattr(owner, name, hook)

    def undo() -> None:
        if owner.__dict__.get(name) is hook:
            setattr(owner, name, before)

    return undo


class _Passed:
    """Stands for a hop that is none of ours."""


_PASSED = _Passed()


class _Hooks:
    """The hooked methods, with what they share."""

    def __init__(self, module: ModuleType, seam: Seam) -> None:
        self.module = module
        self.seam = seam
        self.tee = Tee(module)
        self.whole, self.made = body_readers(module)
        self.play = player(module)

    def points(self) -> tuple[tuple[Any, str, Any], ...]:
        """Owner, name and hook of each method, in the order of the way."""
        connector, request, response = self.module.BaseConnector, self.module.ClientRequest, self.module.ClientResponse
        handler = self.module.client_proto.ResponseHandler
        return (
            (connector, "connect", self._connect(connector.connect)),
            (handler, "set_response_params", self._set_response_params(handler.set_response_params)),
            (request, "send", self._send(request.send)),
            (response, "start", self._start(response.start)),
        )

    def _connect(self, original: Any) -> Any:
        seam = self.seam

        @functools.wraps(original)
        async def connect(connector: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if not seam.active:
                return await original(connector, request, *args, **kwargs)
            if (probing := PROBING.get()) is not None:
                probe = Probe(probing, request)
                if probe.playback is not None:
                    return _on(await self.play(connector, request, probe.playback), _PASSED)
                return _on(await original(connector, request, *args, **kwargs), probe)
            mocked = MOCKED.get()
            if mocked is not None and (given := mocked.seen()) is not None:
                return _on(await self.play(connector, request, given), _PASSED)
            body = self.whole(request)
            try:
                hop, outer, playback = self._book(request, await self.made(request) if body is None else body)
                if type(hop) is Flight and hop.turn is not None and hop.layer not in UNPACED:
                    await let_wait(hop)
            except TaskStopped:
                await seam.let_finish()
                raise
            token = INSIDE.set(outer) if outer is not None else None
            try:
                if playback is not None:
                    return _on(await self.play(connector, request, playback), _PASSED)
                return _on(await original(connector, request, *args, **kwargs), hop)
            except BaseException as error:
                # the session makes that of a bare timeout here
                _failed(hop, "ConnectionTimeoutError" if type(error) is TimeoutError else type(error).__name__)
                raise
            finally:
                if token is not None:
                    _leave(INSIDE, token)

        setattr(connect, _MARK, True)
        return connect

    def _book(self, request: Any, body: bytes) -> tuple[Flight | Sent | _Passed, Outer | None, Playback | None]:
        """What this hop is, below which request its connection is made, and what answers it instead of a network."""
        seam = self.seam
        method, url = request.method, str(request.url)
        layer = _LAYER
        if method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket":
            layer, url = AIOHTTP_SOCKETS, _scheme(url, "ws")
        outer = seam.outer(method, url, body)
        if outer is None:
            return seam.sending(method, path_of(url).encode()) or _PASSED, None, None
        flight = seam.begin(layer, method, url, raw_headers(request), body, waits=False)
        if flight is None:
            return _PASSED, outer, None
        return flight, outer, playback_of(flight)

    def _send(self, original: Any) -> Any:
        seam = self.seam

        @functools.wraps(original)
        async def send(request: Any, connection: Any) -> Any:
            hop = _hop_of(connection)
            if hop is None and seam.active and request.method != "CONNECT":  # CONNECT is a proxy's own matter
                hop = await self._late(request, connection)
            if hop is None or hop is _PASSED:
                return await original(request, connection)
            if isinstance(hop, self.module.connector.Connection):
                return await original(request, hop)
            try:
                if type(hop) is not Flight:
                    return await original(request, connection)
                if hop.opened is not None:
                    response = await self._send_opened(original, request, connection, hop)
                else:
                    response = await original(request, connection)
            except BaseException as error:
                _failed(hop, type(error).__name__)
                raise
            if len(request.headers) != len(hop.headers):
                hop.headers = raw_headers(request)  # some are added at the last moment
            return response

        return send

    async def _late(self, request: Any, connection: Any) -> Any:
        """A connector of the user's own has not asked ours: it is booked now, still before anything is sent."""
        hop: Any
        body = self.whole(request)
        hop, _, playback = self._book(request, await self.made(request) if body is None else body)
        if playback is not None:
            hop = await self.play(connection._connector, request, playback)
            hop.protocol.set_response_params()
        _on(connection, hop)
        return hop

    async def _send_opened(self, original: Any, request: Any, connection: Any, flight: Flight) -> Any:
        """Write the request with the real keys, which no object of the agent's holds before or afterwards."""
        assert flight.opened is not None
        headers, url = request.headers, request.url
        opened = type(headers)()
        for name, value in flight.opened.headers:
            opened.add(name.decode(), value.decode("utf-8", "surrogateescape"))
        sent = set(opened)
        request.headers = opened
        if flight.opened.url != flight.url:
            request.url = type(url)(flight.opened.url, encoded=True)
        told = [tell for tell in _TELL if hasattr(request, tell)]
        for tell in told:
            setattr(request, tell, _as_the_agent_knows_it(getattr(request, tell), url, headers))
        try:
            response = await original(request, connection)
        finally:
            for tell in told:
                delattr(request, tell)
            for added in [added for added in opened if added not in sent]:
                headers[added] = opened[added]
            request.headers, request.url = headers, url
        response._request_info = request.request_info
        return response

    def _start(self, original: Any) -> Any:
        tee, connection_class = self.tee, self.module.connector.Connection

        @functools.wraps(original)
        async def start(response: Any, connection: Any) -> Any:
            hop = _hop_of(connection)
            if hop is None or hop is _PASSED:
                return await original(response, connection)
            if isinstance(hop, connection_class):
                connection.close()
                return await original(response, hop)
            protocol = connection.protocol
            try:
                started = await original(response, connection)
            except BaseException as error:
                _failed(hop, type(error).__name__)
                raise
            if type(hop) is Sent:
                hop.status = response.status
                return started
            if hop.layer == AIOHTTP_SOCKETS and response.status != 101:
                hop.url = _scheme(hop.url, "http")  # no channel came of it
            tee.watch(hop, response, is_decoded=not getattr(protocol, _RAW, False))
            return started

        return start

    def _set_response_params(self, original: Any) -> Any:
        @functools.wraps(original)
        def set_response_params(protocol: Any, **settings: Any) -> None:
            setattr(protocol, _RAW, not settings.get("auto_decompress", True))
            original(protocol, **settings)

        return set_response_params


def _on(connection: Any, hop: Any) -> Any:
    setattr(connection, _HOP, hop)
    return connection


def _hop_of(connection: Any) -> Any:
    return getattr(connection, "__dict__", {}).get(_HOP)


def _failed(hop: Any, error: str) -> None:
    if type(hop) is Sent:
        hop.status = 0
    elif hop is not _PASSED:
        if getattr(hop, "layer", None) == AIOHTTP_SOCKETS:
            hop.url = _scheme(hop.url, "http")
        hop.end("error", error)


def _leave(variable: ContextVar[Any], token: Token[Any]) -> None:
    try:
        return variable.reset(token)
    except ValueError:  # a coroutine that is thrown away with its loop ends in another context
        return None


def _scheme(url: str, scheme: str) -> str:
    """A URL of HTTP or WebSocket with the other scheme, secure where it was."""
    name, _, rest = url.partition("://")
    return f"{scheme}s://{rest}" if name.endswith("s") else f"{scheme}://{rest}"


def _as_the_agent_knows_it(tell: Any, url: Any, headers: Any) -> Any:
    """What trace configurations of the agent are told, without the real keys."""

    async def told(method: str, _: Any, what: Any) -> None:
        await tell(method, url, what if isinstance(what, bytes) else headers)

    return told


def raw_headers(request: Any) -> RawHeaders:
    """The headers of a request as they go out."""
    return [(name.encode(), value.encode()) for name, value in request.headers.items()]
