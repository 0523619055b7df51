"""The listening socket: connections are looked at before they are given to aiohttp, which reads their HTTP.

The first bytes tell a CONNECT, which aiohttp's server has no answer for, from all other requests; behind a CONNECT they
tell TLS, plain HTTP and what is neither. Bytes are looked at without being taken from the socket, so that whoever gets
the connection reads it from its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from pytest_fanout.errors import UsageError
from pytest_fanout.meter.gateway.headers import proxy_token
from pytest_fanout.meter.gateway.proxying import Tunnel, origin_of, split_authority

if TYPE_CHECKING:
    from pytest_fanout.meter.gateway.relay import Relay
    from pytest_fanout.meter.gateway.tickets import Ticket

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 512
_END_S: Final = 0.5  # for what is being answered when the gateway is stopped
_CONNECT: Final = b"CONNECT "
_LARGEST_HEAD: Final = 65536
_HEAD_S: Final = 30.0  # for a head that has begun, and for the first word in a tunnel
_TURNS: Final = 10  # of the loop, in which aiohttp hands on what it has read, and a connection that is new is known
_LOOK_S: Final = 0.001  # between two looks at connections that hold something unread
_SILENT_S: Final = 1.0  # after which a passthrough host is taken for one whose server speaks first
_TLS: Final = 0x16  # the first byte of a handshake
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Server:
    """Accepts on loopback, and only there.

    Raises:
        UsageError: the port is taken or may not be used.
    """

    def __init__(self, relay: Relay, port: int) -> None:
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        try:
            self._listener.bind((_HOST, port))
            self._listener.listen(_BACKLOG)
        except OSError as error:
            self._listener.close()
            raise UsageError(
                "gateway-port",
                f"the gateway cannot listen on {_HOST}:{port}: {error.strerror}",
                mend="choose another port, or 0 for any that is free",
            ) from None
        self._address = self._listener.getsockname()[:2]
        self.url = f"http://{_HOST}:{self._address[1]}"
        relay.address = f"{_HOST}:{self._address[1]}"
        self._opening: set[asyncio.Task[None]] = set()
        self._connections: WeakSet[socket.socket] = WeakSet()  # that may carry requests
        self._draining: set[asyncio.Task[None]] = set()

    def drain(self, most_s: float) -> None:
        """From any other thread: wait until what clients have sent up to now is read and booked, but not for ever.

        A process that has ended leaves behind what it sent last: in the backlog, or unread in its connections.
        """
        drained = threading.Event()

        def begin() -> None:
            task = asyncio.ensure_future(self._drain())
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)
            task.add_done_callback(lambda _: drained.set())

        with contextlib.suppress(RuntimeError):  # the loop has ended: nothing is read any more
            self._loop.call_soon_threadsafe(begin)
            drained.wait(most_s)

    async def _drain(self) -> None:
        # Each is waited for until it has been seen empty once, so that clients which go on asking hold up nobody.
        known: set[socket.socket] = set()
        unread: set[socket.socket] = set()
        quiet = 0
        while quiet < _TURNS:
            now = {self._listener, *self._connections}
            unread = _readable((unread & now) | (now - known))
            known = now
            quiet = 0 if unread else quiet + 1
            await asyncio.sleep(_LOOK_S if unread else 0)

    def stop(self) -> None:
        """From any thread: ``run`` comes to an end."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        accepting = asyncio.ensure_future(self._accept())
        await self._stopped.wait()
        for task in (accepting, *self._opening):
            task.cancel()
        self._listener.close()
        await self._relay.web_server.shutdown(_END_S)

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # too many open files: those that are open will end
                await asyncio.sleep(0.05)
                continue
            self._connections.add(connection)
            task = asyncio.ensure_future(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        given = False
        try:
            connection.setblocking(False)
            self._relay.tunnels.pop(connection.getpeername(), None)  # of an earlier client with this port
            first = await self._begin(connection, _CONNECT)
            if first == _CONNECT:
                given = await self._connect(connection)
            elif first:
                given = True
                await self._loop.connect_accepted_socket(self._relay.web_server, connection)
        except (OSError, TimeoutError):
            pass  # it has gone, or never said what it wants
        finally:
            if not given:
                connection.close()

    # --- looking at bytes that are not taken ------------------------------------------------------------------------

    async def _begin(self, connection: socket.socket, word: bytes) -> bytes:
        """The first bytes: ``word``, or as many as tell that it is not that one; b"" for a client that has gone."""
        while True:
            await self._readable(connection)
            seen = connection.recv(len(word), socket.MSG_PEEK)
            if not word.startswith(seen) or len(seen) in (0, len(word)):
                return seen
            await asyncio.sleep(0.005)  # a word in pieces: the socket stays readable

    async def _head(self, connection: socket.socket) -> bytes:
        """A whole head, taken from the socket; b"" when it is too large or does not come to its end."""
        while True:
            await self._readable(connection)
            seen = connection.recv(_LARGEST_HEAD, socket.MSG_PEEK)
            end = seen.find(b"\r\n\r\n") + 4
            if end >= 4:
                return connection.recv(end)
            if not seen or len(seen) >= _LARGEST_HEAD:
                return b""
            await asyncio.sleep(0.005)

    async def _readable(self, connection: socket.socket) -> None:
        ready = self._loop.create_future()
        self._loop.add_reader(connection, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(connection)

    # --- CONNECT ----------------------------------------------------------------------------------------------------

    async def _connect(self, connection: socket.socket) -> bool:
        """Open a tunnel; whether the connection has found somebody who closes it."""
        async with asyncio.timeout(_HEAD_S):
            head = await self._head(connection)
        line, *rest = head.split(b"\r\n")
        headers = [(name.strip(), value.strip()) for name, _, value in (entry.partition(b":") for entry in rest)]
        words = line.decode("latin-1").split(" ")
        target = split_authority(words[1]) if len(words) == 3 else None
        if target is None:
            await self._say(connection, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return False
        host, port = target
        relay = self._relay
        if target == self._address:  # a client that asks even for this gateway through its proxy
            await self._say(connection, _ESTABLISHED)
            await self._loop.connect_accepted_socket(relay.web_server, connection)
            return True
        known = relay.known_by_proxy(proxy_token(headers))
        if known is None:
            refusal = relay.refusal(origin_of("https", host, port), proxy_token(headers))
            await self._say(connection, refusal)
            return False
        ticket, depth = known
        await self._say(connection, _ESTABLISHED)
        first = await self._first(connection, _SILENT_S if relay.is_passthrough(host, port) else _HEAD_S)
        if first == b"":
            return False
        if first is not None and first[0] == _TLS:
            relay.tunnels[connection.getpeername()] = Tunnel(origin_of("https", host, port), ticket, depth)
            return await self._speak_tls(connection, host, port, ticket)
        if first is not None and first.isalpha() and first.isupper():
            relay.tunnels[connection.getpeername()] = Tunnel(origin_of("http", host, port), ticket, depth)
            await self._loop.connect_accepted_socket(relay.web_server, connection)
            return True
        if relay.is_passthrough(host, port):
            await self._pump(connection, host, port)
            return True
        relay.tell(
            ticket,
            "proxy-not-http",
            f"{host}:{port} was asked for through the proxy with a protocol that is not HTTP: it was refused"
            "\n  mend: name it in passthrough of budget.toml",
            relay.leak,
        )
        return False

    async def _first(self, connection: socket.socket, most_s: float) -> bytes | None:
        """The first byte in a tunnel; b"" for a client that has gone, None for one that waits to be spoken to."""
        try:
            async with asyncio.timeout(most_s):
                await self._readable(connection)
        except TimeoutError:
            return None
        return connection.recv(1, socket.MSG_PEEK)

    async def _speak_tls(self, connection: socket.socket, host: str, port: int, ticket: Ticket) -> bool:
        relay = self._relay
        context = await asyncio.to_thread(relay.authority.context_for, host)
        relay.tickets.enter(ticket)  # the end of a task waits until it is known how this came out
        try:
            await self._loop.connect_accepted_socket(relay.web_server, connection, ssl=context)
        except ssl.SSLError:
            relay.tell(
                ticket,
                "proxy-not-trusted",
                f"a client did not accept the gateway's certificate for {host}:{port}: it sent nothing"
                "\n  mend: let it heed one of the CA variables of its environment, or name the host in passthrough",
            )
        finally:
            relay.tickets.leave(ticket)
        return True

    async def _pump(self, connection: socket.socket, host: str, port: int) -> None:
        """Both ways, unread: a passthrough host that does not speak HTTP."""
        self._connections.discard(connection)
        inner = await asyncio.open_connection(sock=connection)
        try:
            outer = await asyncio.open_connection(host, port)
        except OSError:
            inner[1].close()
            return
        try:
            await asyncio.gather(_copy(inner[0], outer[1]), _copy(outer[0], inner[1]))
        finally:
            inner[1].close()
            outer[1].close()

    async def _say(self, connection: socket.socket, data: bytes) -> None:
        await self._loop.sock_sendall(connection, data)


def _readable(sockets: Iterable[socket.socket]) -> set[socket.socket]:
    """Those which hold bytes, connections or an end that nobody has read."""
    found = {number: one for one in sockets if (number := one.fileno()) >= 0}
    poll = select.poll()
    for number in found:
        poll.register(number, select.POLLIN)
    return {found[number] for number, _ in poll.poll(0)}


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until the source's end, which is handed on: the other direction may go on."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
