"""A WebSocket of the Responses API through the gateway: message by message, each call on it counted by its channel."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.channel import Channel, error_event
from pytest_fanout.meter.gateway.headers import RawHeaders, as_text
from pytest_fanout.meter.replies import Playback, playback_of

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse, web

    from pytest_fanout.meter.flight import Flight
    from pytest_fanout.meter.gateway.upstream import Upstream
    from pytest_fanout.meter.ledger import Place
    from pytest_fanout.meter.seam import Seam

LAYER: Final = "websockets"
_OF_THE_HANDSHAKE: Final = b"sec-websocket-"
_PROTOCOL: Final = b"sec-websocket-protocol"
_POLICY: Final = 1008  # the close code for a message that may not be sent
_GONE: Final = 1006  # no close frame came


class Asked(NamedTuple):
    """A handshake as it came. ``owner`` says who owns what is asked on the socket, whenever it is asked."""

    url: str  # of the upstream, http or https
    headers: RawHeaders  # end to end, as the agent sent them
    owner: Callable[[], Place | None]
    depth: int

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)


def is_channel(seam: Seam, asked: Asked) -> bool:
    """Whether the messages of this socket are read by a codec."""
    return seam.reader.classify("WS", asked.socket_url).kind == "channel"


class Refused(Exception):
    """The handshake is not passed on; ``status`` and ``body`` are the answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


async def relay(seam: Seam, upstream: Upstream, request: web.BaseRequest, asked: Asked) -> web.StreamResponse:
    """Open the socket to the provider, then the agent's, and pass messages until one of them closes. In replay nothing
    is opened: the agent's messages are answered from the recording.

    Raises:
        Refused: by a cap, in replay, for want of a key, or by the provider.
        ConnectFailed: nothing was sent.
        TaskStopped: a cap of its task is reached.
    """
    from aiohttp import web

    flight = seam.begin(LAYER, "GET", asked.socket_url, asked.headers, b"", place=asked.owner(), depth=asked.depth)
    if flight is not None and flight.reply is not None:
        raise Refused(flight.reply.status or 400, flight.reply.body)
    channel = Channel(seam, LAYER, asked.socket_url, asked.headers, owner=asked.owner, depth=asked.depth)
    if flight is not None and flight.replayed is not None:
        inner = web.WebSocketResponse(autoclose=False, max_msg_size=0, compress=False)
        await inner.prepare(request)
        try:
            await _replay(request, inner, channel)
        finally:
            channel.ends("closed_early", None)
        return inner
    outer = await _open(upstream, asked, flight)
    inner = web.WebSocketResponse(
        autoclose=False,
        autoping=False,
        max_msg_size=0,
        compress=False,
        protocols=(outer.protocol,) if outer.protocol else (),
    )
    try:
        await inner.prepare(request)
        asking = asyncio.ensure_future(_ask(inner, outer, channel))
        hearing = asyncio.ensure_future(_hear(request, inner, outer, channel))
        try:
            await asyncio.wait((asking, hearing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (asking, hearing):
                task.cancel()
            await asyncio.gather(asking, hearing, return_exceptions=True)
    finally:
        channel.ends("closed_early", None)  # unless a side has said already how it ended
        await outer.close()
    return inner


async def _open(upstream: Upstream, asked: Asked, flight: Flight | None) -> ClientWebSocketResponse:
    from aiohttp import WSServerHandshakeError

    headers, url = asked.headers, asked.socket_url
    if flight is not None:
        flight.kept = False  # the calls on it are kept
        headers, url = flight.opened or (headers, url)
    named = next((as_text(value) for name, value in headers if name.lower() == _PROTOCOL), "")
    protocols = [word.strip() for word in named.split(",") if word.strip()]
    sent = [(name, value) for name, value in headers if not name.lower().startswith(_OF_THE_HANDSHAKE)]
    try:
        opened = await upstream.open_socket(url, sent, protocols)
    except WSServerHandshakeError as error:
        if flight is not None:
            flight.began(error.status, [])
            flight.end("complete")
        raise Refused(error.status, json.dumps({"error": {"message": error.message}}).encode()) from None
    except BaseException as error:
        if flight is not None:
            flight.end("error", type(error).__name__)
        raise
    if flight is not None:
        flight.began(101, [])
        flight.end("complete")
    return opened


async def _ask(inner: web.WebSocketResponse, outer: ClientWebSocketResponse, channel: Channel) -> None:
    """From the agent to the provider, until the agent closes or may ask no more."""
    from aiohttp import WSMsgType

    while True:
        message = await inner.receive()
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            if await _is_refused(inner, channel, message.data):
                return
            await _pass(outer, message)
        elif message.type in (WSMsgType.PING, WSMsgType.PONG):
            await _pass(outer, message)
        else:
            channel.ends("closed_early", None)
            with contextlib.suppress(ConnectionError):
                await outer.close(code=inner.close_code or _POLICY)
            return


async def _is_refused(inner: web.WebSocketResponse, channel: Channel, data: str | bytes) -> bool:
    """Book a message of the agent; one that may not be sent is answered, and ends the socket."""
    try:
        refusal = channel.asks(data.encode() if isinstance(data, str) else data)
    except TaskStopped as stopped:
        refusal = json.dumps({"error": {"type": "pytest_fanout", "code": "capped", "message": str(stopped)}})
    if refusal is not None:
        await inner.send_str(error_event(refusal).decode())
        await inner.close(code=_POLICY)
    return refusal is not None


async def _replay(request: web.BaseRequest, inner: web.WebSocketResponse, channel: Channel) -> None:
    """Answer each message with what was recorded for it, until the agent closes or the recorded socket was gone."""
    from aiohttp import WSMsgType

    patience: float | None = None
    broken: Playback | None = None
    while True:
        try:
            message = await asyncio.wait_for(inner.receive(), patience)
        except TimeoutError:
            assert broken is not None
            while broken.awaits_stop():
                await asyncio.sleep(0.001)
            with contextlib.suppress(TaskStopped):
                broken.read_to_end()
            if request.transport is not None:
                request.transport.close()
            return
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return
        if await _is_refused(inner, channel, message.data):
            return
        playback = playback_of(channel.asked) if channel.asked is not None else None
        if playback is None:
            continue
        for line in playback.chunks:
            channel.hears(line)  # before the agent can know
            await inner.send_str(line.decode().rstrip("\n"))
        if not playback.is_whole:
            broken, patience = playback, playback.patience_s if playback.is_prefix else 0.0


async def _hear(
    request: web.BaseRequest, inner: web.WebSocketResponse, outer: ClientWebSocketResponse, channel: Channel
) -> None:
    """From the provider to the agent, until the provider closes: the agent's socket ends as the provider's did."""
    from aiohttp import WSMsgType

    while True:
        message = await outer.receive()
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            data = message.data
            channel.hears(data.encode() if isinstance(data, str) else data)  # before the agent can know
            await _pass(inner, message)
        elif message.type in (WSMsgType.PING, WSMsgType.PONG):
            await _pass(inner, message)
        else:
            channel.ends("error", "ConnectionClosedError")
            if message.type == WSMsgType.CLOSE and outer.close_code not in (None, _GONE):
                await inner.close(code=outer.close_code or _POLICY, message=str(message.extra or "").encode())
            elif request.transport is not None:
                request.transport.close()
            return


async def _pass(sink: Any, message: Any) -> None:
    from aiohttp import WSMsgType

    if message.type == WSMsgType.TEXT:
        await sink.send_str(message.data)
    elif message.type == WSMsgType.BINARY:
        await sink.send_bytes(message.data)
    elif message.type == WSMsgType.PING:
        await sink.ping(message.data)
    else:
        await sink.pong(message.data)
