"""The listening socket: connections are looked at before they are given to aiohttp, which reads their HTTP.

The first bytes tell a CONNECT, which aiohttp's server has no answer for, from all other requests.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from pytest_fanout.errors import UsageError

if TYPE_CHECKING:
    from pytest_fanout.meter.gateway.relay import Relay

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 512
_END_S: Final = 0.5  # for what is being answered when the gateway is stopped


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
        self.url = f"http://{_HOST}:{self._listener.getsockname()[1]}"
        self._opening: set[asyncio.Task[None]] = set()

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
            connection.setblocking(False)
            task = asyncio.ensure_future(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._relay.web_server, connection)
