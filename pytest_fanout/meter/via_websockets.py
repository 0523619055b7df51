"""The hook of websockets: model calls on sockets of the Responses API, in its threading, asyncio and trio forms.

Messages are seen at ``ClientProtocol``, the part of the library that all its forms share and that does no I/O: what
passes there is what goes over the wire. The handshake is seen there too, which is where the real keys come in. Around
it, the methods that open the connection are hooked, so that nothing is opened where nothing may go out, and the
tripwire knows whose connection it is, and so that a connection whose calls are replayed leads to our own far end.
Sockets to other than model servers are listed, and left alone.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pytest_fanout.meter.channel import Channel, error_event
from pytest_fanout.meter.flight import Flight, RawHeaders
from pytest_fanout.meter.ledger import INSIDE
from pytest_fanout.meter.seam import OTHER_SOCKETS, Seam
from pytest_fanout.meter.socket_replies import FarEnd

MODULES: tuple[str, ...] = (
    "websockets.client",
    "websockets.sync.client",
    "websockets.asyncio.client",
    "websockets.trio.client",
)
LAYER = "websockets"
_MARK = "_pytest_fanout_hook"
_STATE = "_pytest_fanout_socket"


class _Knock(NamedTuple):
    """A booked handshake. ``far``: who answers it in replay."""

    flight: Flight
    far: FarEnd | None


#: The handshake that a connection is being opened for in this context.
_KNOCKED: ContextVar[_Knock | None] = ContextVar("pytest_fanout_knocked", default=None)
#: Module -> what opens a connection there, newest version of the library first.
_OPENERS = {
    "websockets.sync.client": (("reconnect", "open_connection"), ("", "connect")),
    "websockets.asyncio.client": (("connect", "open_tcp_connection"), ("connect", "create_connection")),
    "websockets.trio.client": (("connect", "open_connection"),),
}

#: What an opener may be told of the connection beneath.
_TO_OPEN = frozenset({"sock", "ssl", "server_hostname", "proxy", "proxy_ssl", "proxy_server_hostname", "unix", "path"})


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch what ``module`` holds of the library; the returned function takes the patches off again."""
    undo = [
        _patch(owner, name, make(seam, getattr(owner, name)))
        for owner, name, make in _points(module)
        if not hasattr(getattr(owner, name), _MARK)
    ]

    def uninstall() -> None:
        for step in undo:
            step()

    return uninstall


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one message through the protocol, which does no I/O, and open nothing by each opener; names of the patches
    that did not see it exactly once."""
    failed = []
    for owner, name, _ in _points(module):
        seam.probe = []
        with contextlib.suppress(Exception):
            _send_probe(module, owner, name)
        if len(seam.probe) != 1:
            failed.append(f"{module.__name__}.{getattr(owner, '__qualname__', '')}.{name}".replace("..", "."))
        seam.probe = None
    return failed


def _points(module: ModuleType) -> list[tuple[Any, str, Any]]:
    if module.__name__ == "websockets.client":
        protocol = module.ClientProtocol
        sent = [(protocol, name, _sent) for name in ("send_text", "send_binary", "send_continuation")]
        received = [(protocol, "events_received", _received), (protocol, "receive_eof", _ended)]
        return [(protocol, "send_request", _handshake), *sent, *received]
    for class_name, name in _OPENERS[module.__name__]:
        owner = getattr(module, class_name, None) if class_name else module
        if hasattr(owner, name):
            make = _sync_opener if module.__name__ == "websockets.sync.client" else _async_opener
            return [(owner, name, make)]
    return []


def _send_probe(module: ModuleType, owner: Any, name: str) -> None:
    if owner is module:
        owner.connect("no URL")
    elif name in ("open_connection", "open_tcp_connection", "create_connection"):
        opening = getattr(owner.__new__(owner), name)(None)  # without a URL it comes to nothing
        if hasattr(opening, "send"):
            opening.send(None)
    else:
        from websockets.uri import parse_uri

        protocol = owner(parse_uri("ws://probe.invalid/"))
        request = protocol.connect()
        protocol.expect_continuation_frame = name == "send_continuation"
        given = {"send_request": (request,), "events_received": (), "receive_eof": (), "send_continuation": (b"", True)}
        getattr(protocol, name)(*given.get(name, (b"",)))


def _patch(owner: Any, name: str, hook: Any) -> Callable[[], None]:
    own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, hook)

    def undo() -> None:
        if vars(owner).get(name) is not hook:
            return
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    return undo


def _marked(hook: Any) -> Any:
    setattr(hook, _MARK, True)
    return hook


# --- opening a connection ------------------------------------------------------------------------------------------


def _sync_opener(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def opened(*args: Any, **named: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        url, headers = _asked_for(args, named)
        if not seam.active or seam.probe is not None:
            return original(*args, **named)
        far = _knock(seam, url, headers) if seam.is_model("GET", url) else None
        if far is not None:
            args, named = _to(far, original, args, named)
        token = INSIDE.set(seam.outer("GET", url, b""))
        try:
            return original(*args, **named)
        finally:
            INSIDE.reset(token)

    return _marked(opened)


def _async_opener(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    async def opened(*args: Any, **named: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        url, headers = _asked_for(args, named)
        if not seam.active or seam.probe is not None:
            return await original(*args, **named)
        far = _knock(seam, url, headers) if seam.is_model("GET", url) else None
        if far is not None:
            args, named = _to(far, original, args, named)
        token = INSIDE.set(seam.outer("GET", url, b""))
        try:
            return await original(*args, **named)
        finally:
            INSIDE.reset(token)

    return _marked(opened)


def _asked_for(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, Any]:
    """URL and headers that a connection is opened for: of an object that knows both, or of the call itself."""
    first = args[0] if args else named.get("uri", "")
    if isinstance(first, str):
        return first, named.get("additional_headers")
    older = getattr(first, "handshake_args", (None,))[0]  # where they were until version 13
    return str(getattr(first, "uri", "")), getattr(first, "additional_headers", older)


def _knock(seam: Seam, url: str, headers: Any) -> FarEnd | None:
    """Book the handshake before anything is opened for it; when it is sent, it is found again in this context.

    Returns:
        Where the connection leads in replay; None where it goes out.

    Raises:
        InvalidStatus: it may not.
        TaskStopped: a cap of its task is reached.
    """
    from websockets.datastructures import Headers
    from websockets.exceptions import InvalidStatus
    from websockets.http11 import Response

    flight = seam.begin(_layer(seam, url), "GET", url, _raw(Headers(headers or {}).raw_items()), b"")
    if flight is None or flight.reply is None:
        far = FarEnd() if flight is not None and flight.replayed is not None else None
        _KNOCKED.set(_Knock(flight, far) if flight is not None else None)
        return far
    status, body = flight.reply.status or 400, flight.reply.body
    raise InvalidStatus(Response(status, "Refused", Headers([("Content-Length", str(len(body)))]), body))


def _layer(seam: Seam, url: str) -> str:
    return LAYER if seam.reader.classify("WS", url).kind == "channel" else OTHER_SOCKETS


def _to(
    far: FarEnd, original: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an opener, so that it opens nothing: whatever address, proxy or TLS they name is left out."""
    first = args[0] if args else named.pop("uri")
    if isinstance(first, str):
        kept = {name: value for name, value in named.items() if name not in _TO_OPEN}
        plain = first.replace("wss://", "ws://", 1)
        return (plain, *args[1:]), {**kept, "sock": far.near(), "unix": True, "proxy": None}
    twin = copy.copy(first)
    twin.proxy = None
    if hasattr(twin, "ws_uri"):
        twin.ws_uri = dataclasses.replace(twin.ws_uri, secure=False)
    else:  # until version 16
        twin.uri = twin.uri.replace("wss://", "ws://", 1)
    if hasattr(twin, "create_connection_kwargs"):
        twin.create_connection_kwargs = {"sock": far.near()}
    elif hasattr(twin, "connection_kwargs") and original.__name__ == "create_connection":
        twin.connection_kwargs = {"sock": far.near()}
    elif hasattr(twin, "stream"):
        import trio

        twin.stream = trio.SocketStream(trio.socket.from_stdlib_socket(far.near()))
    else:
        twin.sock = far.near()
    return (twin, *args[1:]), named


# --- what passes the protocol --------------------------------------------------------------------------------------


class _Socket:
    """What is known of one connection: the call that opened it, and the calls on it."""

    def __init__(self, seam: Seam, url: str, headers: RawHeaders, far: FarEnd | None = None) -> None:
        self.seam = seam
        self.url = url
        self.far = far
        self.handshake: Flight | None = None
        is_read = seam.reader.classify("WS", url).kind == "channel"
        self.channel = Channel(seam, LAYER, url, headers) if is_read else None
        self.sending: list[bytes] = []
        self.receiving: list[bytes] = []

    def take(self, events: Iterable[Any]) -> None:
        for event in events:
            opcode = getattr(event, "opcode", None)
            if opcode is None:  # the answer to the handshake
                if self.handshake is not None:
                    self.handshake.began(event.status_code, _raw(event.headers.raw_items()))
                    self.handshake.end("complete")
            elif opcode <= 2 and self.channel is not None:  # continuation, text, binary
                message = _whole(self.receiving, event.data, event.fin)
                if message is not None:
                    self.channel.hears(message)

    def asks(self, data: Any, fin: bool) -> None:
        message = _whole(self.sending, data, fin) if self.channel is not None else None
        if self.channel is None or message is None:
            return
        refusal = self.channel.asks(message)
        if self.far is not None:
            self.far.expect(self.channel.asked, error_event(refusal) if refusal is not None else None)
        elif refusal is not None:
            from websockets.exceptions import ProtocolError

            raise ProtocolError(refusal)

    def ends(self, protocol: Any) -> None:
        by_client = protocol.close_sent is not None and not protocol.close_rcvd_then_sent
        outcome, error = ("closed_early", None) if by_client else ("error", "ConnectionClosedError")
        if self.handshake is not None:
            self.handshake.end(outcome, error)
        if self.channel is not None:
            self.channel.ends(outcome, error)


def _whole(parts: list[bytes], data: Any, fin: bool) -> bytes | None:
    """A message, once its last fragment is there."""
    if fin and not parts:
        return bytes(data)
    parts.append(bytes(data))
    if not fin:
        return None
    message = b"".join(parts)
    parts.clear()
    return message


def _socket_of(protocol: Any, seam: Seam, headers: RawHeaders | None = None) -> _Socket | None:
    """The state of a connection; None where it goes to no model server."""
    state = vars(protocol).get(_STATE)
    if isinstance(state, _Socket) and state.seam is seam:
        return state
    uri = getattr(protocol, "uri", None) or protocol.wsuri  # its name until version 14
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    port = "" if uri.port == (443 if uri.secure else 80) else f":{uri.port}"
    url = f"{'wss' if uri.secure else 'ws'}://{host}{port}{uri.resource_name}"
    if not seam.is_model("GET", url):
        if headers is not None:
            seam.meet("a WebSocket was opened", "GET", url)
        return None
    state = _Socket(seam, url, headers or [])
    setattr(protocol, _STATE, state)
    return state


def _handshake(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def send_request(protocol: Any, request: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        if not seam.active or seam.probe is not None:
            return original(protocol, request)
        headers = _raw(request.headers.raw_items())
        knock = _KNOCKED.get()
        _KNOCKED.set(None)
        if knock is not None and knock.far is not None:
            state = _Socket(seam, knock.flight.url, headers, knock.far)
            state.handshake = knock.flight
            setattr(protocol, _STATE, state)
            return original(protocol, request)
        found = _socket_of(protocol, seam, headers)
        if found is None:
            return original(protocol, request)
        state, flight = found, knock.flight if knock is not None else None
        if flight is None or flight.url != state.url:  # the opener was bound before the hooks
            layer = OTHER_SOCKETS if seam.is_replay() else _layer(seam, state.url)
            flight = seam.begin(layer, "GET", state.url, headers, b"")
        if flight is None:
            return original(protocol, request)
        flight.headers = headers
        if flight.reply is not None:
            # The library's own code makes its error of it, as if the server had answered so.
            body = flight.reply.body
            head = f"HTTP/1.1 {flight.reply.status} Refused\r\nContent-Length: {len(body)}\r\n\r\n"
            return protocol.receive_data(head.encode() + body)
        state.handshake = flight
        flight.kept = state.channel is None  # of a channel that is read, the calls on it are kept
        return original(protocol, _outgoing(seam, flight, request))

    return _marked(send_request)


def _outgoing(seam: Seam, flight: Flight, request: Any) -> Any:
    """A twin of the handshake with the real keys, which the agent never sees."""
    opened = seam.keys.open_request(flight.headers, flight.url) if seam.keys.is_sealed else None
    if opened is None:
        return request
    from websockets.datastructures import Headers

    url = urlsplit(opened[1])
    path = request.path if opened[1] == flight.url else f"{url.path}?{url.query}"
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in opened[0]]
    return type(request)(path, Headers(pairs))


def _sent(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def send(protocol: Any, data: Any, fin: bool = True) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        elif seam.active:
            state = _socket_of(protocol, seam)
            if state is not None:
                state.asks(data, fin)
        return original(protocol, data, fin)

    return _marked(send)


def _received(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def events_received(protocol: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        events = original(protocol)
        state = vars(protocol).get(_STATE)
        if events and isinstance(state, _Socket):
            state.take(events)
        return events

    return _marked(events_received)


def _ended(seam: Seam, original: Any) -> Any:
    @functools.wraps(original)
    def receive_eof(protocol: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        original(protocol)
        state = vars(protocol).get(_STATE)
        if isinstance(state, _Socket):
            state.ends(protocol)

    return _marked(receive_eof)


def _raw(pairs: Iterable[tuple[str, str]]) -> RawHeaders:
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in pairs]
