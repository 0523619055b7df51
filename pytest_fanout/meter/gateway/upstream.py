"""The gateway's own connections to the providers: aiohttp's client, with all turned off that would change a byte."""

from __future__ import annotations

import contextlib
import io
import os
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pytest_fanout.meter.gateway.authority import extra_roots
from pytest_fanout.meter.gateway.headers import RawHeaders, to_send
from pytest_fanout.meter.ledger import ANY, INSIDE, Outer
from pytest_fanout.meter.reader import peer_of

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientWebSocketResponse

_NOT_OURS: Final = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_CONNECT_S: Final = 60.0
_IDLE_S: Final = 4.0  # shorter than servers wait, so that a connection is not used while they close it
_AS_FILE: Final = 1 << 20  # from this size a body is written piece by piece, and others get their turn


class ConnectFailed(Exception):
    """No connection came about: nothing was sent."""


class Upstream:
    """Sends requests as they are: no redirects, no cookies, no decoding, no time limit but the agent's own."""

    def __init__(self) -> None:
        import aiohttp
        from multidict import CIMultiDict
        from yarl import URL

        self._multidict, self._url = CIMultiDict, URL
        self._aiohttp = aiohttp
        self._proxies = getproxies()
        self._roots: ssl.SSLContext | None = None  # read when it is first needed: it takes longer than all else here
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            skip_auto_headers=_NOT_OURS,
            max_line_size=1 << 20,
            max_field_size=1 << 20,
        )

    async def close(self) -> None:
        await self._session.close()

    async def send(self, method: str, url: str, headers: RawHeaders, body: bytes) -> ClientResponse:
        """The response, its body not read yet. It must be released or closed.

        Raises:
            ConnectFailed: nothing was sent.
            aiohttp.ClientError, OSError: the connection ended before an answer began.
        """
        aiohttp = self._aiohttp
        host, port = peer_of(url)
        # All that is sent below is this one request, which the seam has booked.
        token = INSIDE.set(Outer(ANY, urlsplit(url).path, body, host, port, True, []))
        try:
            return await self._session.request(
                method,
                self._url(url, encoded=True),
                headers=self._multidict(to_send(headers)),
                data=None if not body else io.BytesIO(body) if len(body) >= _AS_FILE else body,
                allow_redirects=False,
                proxy=self._proxy_for(url, host),
                ssl=self._trusted() if url.startswith("https:") else True,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL) as error:
            raise ConnectFailed(str(error)) from None
        finally:
            INSIDE.reset(token)

    async def open_socket(self, url: str, headers: RawHeaders, protocols: list[str]) -> ClientWebSocketResponse:
        """A WebSocket whose messages come as they are: pings and the close are passed on by the caller.

        Raises:
            ConnectFailed: nothing was sent.
            aiohttp.WSServerHandshakeError: the server refused.
        """
        aiohttp = self._aiohttp
        host, port = peer_of(url)
        token = INSIDE.set(Outer(ANY, urlsplit(url).path, b"", host, port, True, []))
        try:
            return await self._session.ws_connect(
                self._url(url, encoded=True),
                headers=self._multidict(to_send(headers)),
                protocols=protocols,
                autoclose=False,
                autoping=False,
                max_msg_size=0,
                compress=0,
                proxy=self._proxy_for(url.replace("ws", "http", 1), host),
                ssl=self._trusted() if url.startswith("wss:") else True,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL) as error:
            raise ConnectFailed(str(error)) from None
        finally:
            INSIDE.reset(token)

    def _trusted(self) -> ssl.SSLContext:
        """The system's roots, those that the gateway's own environment names, and certifi's where it is installed."""
        if self._roots is None:
            self._roots = ssl.create_default_context()
            for path in extra_roots(os.environ):
                self._roots.load_verify_locations(path)
            with contextlib.suppress(ImportError):
                import certifi

                self._roots.load_verify_locations(certifi.where())
        return self._roots

    def _proxy_for(self, url: str, host: str) -> str | None:
        """The proxy that the gateway's own environment names for this host."""
        if not self._proxies:
            return None
        found = self._proxies.get(url.partition(":")[0].lower()) or self._proxies.get("all")
        if not found or proxy_bypass(host):
            return None
        return found if "://" in found else f"http://{found}"
