"""The hook of httpx and httpx2: ``Client._send_single_request`` and ``AsyncClient._send_single_request``.

One code for both libraries; they differ in names of their own classes only. The point lies below redirects, auth flows
and SDK retries, so that each physical request passes once, and above every transport, so that mock transports and
a user's own cassettes are counted too. Replayed responses are built by the library itself: its own method is called on
a stand-in for the client whose transport gives the recorded chunks.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import INSIDE, outer_request
from pytest_fanout.meter.outflow import let_wait
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import Seam

MODULES: tuple[str, ...] = ("httpx", "httpx2")
_METHOD = "_send_single_request"
_MARK = "_pytest_fanout_hook"


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the client classes of ``module``; the returned function takes the patch off again.

    Classes that carry the hook already (``httpx2.alias_httpx()`` makes two names for one class) are left alone.
    """
    points = (
        (module.Client, _METHOD, _sync_hook),
        (module.AsyncClient, _METHOD, _async_hook),
        (module.HTTPTransport, "handle_request", _sync_transport),
        (module.AsyncHTTPTransport, "handle_async_request", _async_transport),
    )
    undo = [
        _patch(cls, name, make(module, seam, getattr(cls, name)))
        for cls, name, make in points
        if not hasattr(getattr(cls, name), _MARK)
    ]

    def uninstall() -> None:
        for step in undo:
            step()

    return uninstall


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one request through a mock transport by each hook; names of the hooks that did not see it exactly once."""
    failed = []
    for cls in (module.Client, module.AsyncClient):
        seam.probe = []
        try:
            _send_probe(module, cls)
        except Exception:
            seam.probe = []
        if len(seam.probe) != 1:
            failed.append(f"{module.__name__}.{cls.__name__}.{_METHOD}")
        seam.probe = None
    return failed


def _send_probe(module: ModuleType, cls: Any) -> None:
    transport = module.MockTransport(lambda request: module.Response(204))
    client = cls(transport=transport, trust_env=False)
    request = client.build_request("GET", "http://probe.invalid/")
    if cls is module.Client:
        client.send(request)
        client.close()
        return
    for step in (client.send(request), client.aclose()):
        try:
            step.send(None)  # a mock transport never waits, so no event loop is needed
        except StopIteration:
            continue
        step.close()


def _patch(cls: Any, name: str, hook: Any) -> Callable[[], None]:
    before = cls.__dict__[name]
    setattr(cls, name, hook)

    def undo() -> None:
        if cls.__dict__.get(name) is hook:
            setattr(cls, name, before)

    return undo


def _sync_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    layer = module.__name__
    tee = _sync_tee(module)
    build = _sync_playback(module, original)
    in_process = _in_process(module)

    @functools.wraps(original)
    def send(client: Any, request: Any) -> Any:
        if not seam.active:
            return original(client, request)
        if seam.probe is not None:
            seam.probe.append(layer)
            return original(client, request)
        sendable = isinstance(request.stream, module.SyncByteStream)
        body = request.read() if sendable else b""
        url = str(request.url)
        outer = seam.outer(request.method, url, body)
        if outer is None:
            return original(client, request)
        flight = seam.begin(
            layer,
            request.method,
            url,
            request.headers.raw,
            body,
            is_local=lambda: isinstance(client._transport_for_url(request.url), in_process),
        )
        token = INSIDE.set(outer)
        try:
            if flight is None:
                return original(client, request)
            playback = playback_of(flight)
            if playback is not None:
                return build(client, request, playback)
            outgoing = request if flight.opened is None else _outgoing(module, flight, request)
            response = original(client, outgoing)
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)
        return _watch(module, flight, request, response, tee)

    setattr(send, _MARK, True)
    return send


def _async_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    layer = module.__name__
    tee = _async_tee(module)
    build = _async_playback(module, original)
    in_process = _in_process(module)

    @functools.wraps(original)
    async def send(client: Any, request: Any) -> Any:
        if not seam.active:
            return await original(client, request)
        if seam.probe is not None:
            seam.probe.append(layer)
            return await original(client, request)
        sendable = isinstance(request.stream, module.AsyncByteStream)
        body = await request.aread() if sendable else b""
        url = str(request.url)
        outer = seam.outer(request.method, url, body)
        if outer is None:
            return await original(client, request)
        try:
            flight = seam.begin(
                layer,
                request.method,
                url,
                request.headers.raw,
                body,
                is_local=lambda: isinstance(client._transport_for_url(request.url), in_process),
                waits=False,
            )
            if flight is not None and flight.turn is not None:
                await let_wait(flight)
        except TaskStopped:
            await seam.let_finish()
            raise
        token = INSIDE.set(outer)
        try:
            if flight is None:
                return await original(client, request)
            playback = playback_of(flight)
            if playback is not None:
                return await build(client, request, playback)
            outgoing = request if flight.opened is None else _outgoing(module, flight, request)
            response = await original(client, outgoing)
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__)
            raise
        finally:
            INSIDE.reset(token)
        return _watch(module, flight, request, response, tee)

    setattr(send, _MARK, True)
    return send


def _sync_transport(module: ModuleType, seam: Seam, original: Any) -> Any:
    """Counts nothing: it notices transports that send one request of the client more than once."""

    @functools.wraps(original)
    def handle_request(transport: Any, request: Any) -> Any:
        sent = seam.sending(request.method, request.url.raw_path)
        if sent is None:
            _tell_bare(module, seam, request)
            return original(transport, request)
        try:
            response = original(transport, request)
        except BaseException:
            sent.status = 0
            raise
        sent.status = response.status_code
        return response

    setattr(handle_request, _MARK, True)
    return handle_request


def _async_transport(module: ModuleType, seam: Seam, original: Any) -> Any:
    """The same for asynchronous transports."""

    @functools.wraps(original)
    async def handle_async_request(transport: Any, request: Any) -> Any:
        sent = seam.sending(request.method, request.url.raw_path)
        if sent is None:
            _tell_bare(module, seam, request)
            return await original(transport, request)
        try:
            response = await original(transport, request)
        except BaseException:
            sent.status = 0
            raise
        sent.status = response.status_code
        return response

    setattr(handle_async_request, _MARK, True)
    return handle_async_request


def _tell_bare(module: ModuleType, seam: Seam, request: Any) -> None:
    """A transport that no client uses: what it sends has passed no counting point."""
    if seam.active and outer_request() is None:
        what = f"a transport of {module.__name__} was used without a client"
        seam.unbooked(request.method, str(request.url), what, "send requests by a client")


def _in_process(module: ModuleType) -> tuple[type, ...]:
    """Transports that call code of this process instead of a network."""
    return (module.MockTransport, module.WSGITransport, module.ASGITransport, _TestClientTransport)


class _OfTestClient(type):
    def __instancecheck__(cls, transport: object) -> bool:
        return type(transport).__module__ == "starlette.testclient"


class _TestClientTransport(metaclass=_OfTestClient):
    """Stands for the private transport of Starlette's and FastAPI's test client, without importing them."""


def _outgoing(module: ModuleType, flight: Flight, request: Any) -> Any:
    """A twin of the agent's request with the real keys, which the agent never sees."""
    opened = flight.opened
    if opened is None:
        return request
    twin = request.__class__.__new__(request.__class__)
    twin.__dict__.update(request.__dict__)
    twin.headers = module.Headers(opened.headers)
    if opened.url != flight.url:
        twin.url = module.URL(opened.url)
    return twin


def _watch(module: ModuleType, flight: Flight, request: Any, response: Any, tee: Any) -> Any:
    response.request = request
    flight.began(response.status_code, response.headers.raw)
    if hasattr(response, "_content"):
        # A response that was born whole (mock transports, cassettes) never runs its stream again for the reader.
        inner = getattr(response.stream, "_stream", response.stream)
        if isinstance(inner, module.ByteStream):
            flight.chunk(b"".join(inner))
        else:
            flight.response_headers = [p for p in response.headers.raw if p[0].lower() != b"content-encoding"]
            flight.chunk(response.content)
        flight.end("complete")
    else:
        response.stream = tee(response.stream, flight)
    return response


def _sync_tee(module: ModuleType) -> Any:
    class Tee(module.SyncByteStream):  # type: ignore[misc,name-defined]
        """The response's stream, chunk by chunk as it arrives, with a note of each."""

        def __init__(self, stream: Any, flight: Flight) -> None:
            self._stream = stream
            self._flight = flight

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["_stream"], name)

        def __iter__(self) -> Iterator[bytes]:
            flight = self._flight
            try:
                for chunk in self._stream:
                    flight.chunk(chunk)
                    yield chunk
            except GeneratorExit:
                raise
            except BaseException as error:
                flight.end("error", type(error).__name__)
                raise
            flight.end("complete")

        def close(self) -> None:
            try:
                self._stream.close()
            finally:
                self._flight.end("closed_early")

        def __del__(self) -> None:
            self._flight.end("closed_early" if self._flight.chunks else "unread")

    return Tee


def _async_tee(module: ModuleType) -> Any:
    class Tee(module.AsyncByteStream):  # type: ignore[misc,name-defined]
        """The response's stream, chunk by chunk as it arrives, with a note of each."""

        def __init__(self, stream: Any, flight: Flight) -> None:
            self._stream = stream
            self._flight = flight

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["_stream"], name)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            flight = self._flight
            stream = self._stream.__aiter__()
            try:
                async for chunk in stream:
                    flight.chunk(chunk)
                    yield chunk
            except GeneratorExit:
                raise
            except BaseException as error:
                flight.end("error", type(error).__name__)
                raise
            finally:
                close = getattr(stream, "aclose", None)
                if close is not None:
                    await close()
            flight.end("complete")

        async def aclose(self) -> None:
            try:
                await self._stream.aclose()
            finally:
                self._flight.end("closed_early")

        def __del__(self) -> None:
            self._flight.end("closed_early" if self._flight.chunks else "unread")

    return Tee


class _StandIn:
    """The client, but for the transport."""

    def __init__(self, client: Any, transport: Any) -> None:
        self._client = client
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _transport_for_url(self, url: Any) -> Any:
        return self._transport


def _raise(module: ModuleType, name: str, request: Any) -> None:
    """Raise the library's exception of that name; a cancelled or unknown one comes back as a read timeout."""
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, module.TransportError)):
        cls = module.ReadTimeout
    raise cls("pytest-fanout: replayed from the recording", request=request)


def _head(module: ModuleType, playback: Playback, stream: Any) -> Any:
    extensions = {"http_version": b"HTTP/1.1"}
    return module.Response(playback.status, headers=list(playback.headers), stream=stream, extensions=extensions)


def _sync_playback(module: ModuleType, original: Any) -> Any:
    class Stream(module.SyncByteStream):  # type: ignore[misc,name-defined]
        def __init__(self, playback: Playback, request: Any) -> None:
            self._playback, self._request = playback, request

        def __iter__(self) -> Iterator[bytes]:
            for number, chunk in enumerate(self._playback.chunks):
                self._playback.wait(number)
                yield chunk
            self._playback.wait_for_end()
            error = self._playback.read_to_end()
            if error is not None:
                _raise(module, error, self._request)

        def close(self) -> None:
            self._playback.close()

    class Transport(module.BaseTransport):  # type: ignore[misc,name-defined]
        def __init__(self, playback: Playback) -> None:
            self._playback = playback

        def handle_request(self, request: Any) -> Any:
            self._playback.wait(0)
            if self._playback.status is None:
                _raise(module, self._playback.read_to_end() or "ConnectError", request)
            return _head(module, self._playback, Stream(self._playback, request))

    def build(client: Any, request: Any, playback: Playback) -> Any:
        return original(_StandIn(client, Transport(playback)), request)

    return build


async def _pause(playback: Playback, number: int) -> None:
    pause_s = playback.pause_s(number)
    if pause_s > 0:
        import anyio

        await anyio.sleep(pause_s)


def _async_playback(module: ModuleType, original: Any) -> Any:
    class Stream(module.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __init__(self, playback: Playback, request: Any) -> None:
            self._playback, self._request = playback, request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for number, chunk in enumerate(self._playback.chunks):
                await _pause(self._playback, number)
                yield chunk
            await _pause(self._playback, len(self._playback.chunks))
            error = self._playback.read_to_end()
            if error is not None:
                _raise(module, error, self._request)

        async def aclose(self) -> None:
            self._playback.close()

    class Transport(module.AsyncBaseTransport):  # type: ignore[misc,name-defined]
        def __init__(self, playback: Playback) -> None:
            self._playback = playback

        async def handle_async_request(self, request: Any) -> Any:
            import anyio

            # Let the siblings of this call run, as a network would: parallel calls stay parallel in replay.
            await anyio.sleep(self._playback.pause_s(0))
            if self._playback.status is None:
                while self._playback.awaits_stop():
                    await anyio.sleep(0.001)
                error = self._playback.read_to_end() or "ConnectError"
                if error == "CancelledError":
                    # The agent gave up waiting: give it the time to do so again.
                    await anyio.sleep(self._playback.ended_ms / 1000 + 1)
                _raise(module, error, request)
            return _head(module, self._playback, Stream(self._playback, request))

    async def build(client: Any, request: Any, playback: Playback) -> Any:
        return await original(_StandIn(client, Transport(playback)), request)

    return build
