"""One request through the gateway: whose it is, where it goes, what the seam says, and the answer, unbuffered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.gateway import sockets
from pytest_fanout.meter.gateway.headers import RawHeaders, as_text, end_to_end, proxy_token, value_of
from pytest_fanout.meter.gateway.proxying import Tunnel
from pytest_fanout.meter.gateway.tickets import IN_PATH, Ticket
from pytest_fanout.meter.gateway.upstream import ConnectFailed, Upstream
from pytest_fanout.meter.keys import is_loopback
from pytest_fanout.meter.ledger import AGENT, Place
from pytest_fanout.meter.outflow import let_wait
from pytest_fanout.meter.reader import matches_host, peer_of
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.wire import hosts

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDict

    from pytest_fanout.meter.gateway.authority import Authority
    from pytest_fanout.meter.gateway.destinations import Destinations
    from pytest_fanout.meter.gateway.tickets import Tickets
    from pytest_fanout.meter.gateway.variables import Routes
    from pytest_fanout.meter.seam import Seam

LAYER: Final = "gateway"
_TASK_KEY: Final = b"x-fanout-key"  # by which a server says for which of its tasks it calls
_LARGEST_LINE: Final = 1 << 20  # of a request line or a header: agents send long ones, and the upstream decides
_ADDED: Final = ("Content-Type", "Date", "Server")
_SILENT: Final = logging.getLogger("pytest_fanout.gateway")


class _Asked(NamedTuple):
    """A request as it came, and who it belongs to."""

    method: str
    url: str  # of the upstream
    headers: RawHeaders  # end to end, as the agent sent them
    ticket: Ticket
    depth: int


class Relay:
    """Answers every request of the gateway. An asynchronous context manager: it holds the upstream connections."""

    def __init__(self, seam: Seam, tickets: Tickets, routes: Routes, authority: Callable[[], Authority]) -> None:
        from aiohttp import web
        from multidict import CIMultiDict

        self._multidict = CIMultiDict
        self._web = web
        self._whole_answer: type[web.Response] = _unadorned(web.Response)
        self._streamed_answer: type[web.StreamResponse] = _unadorned(web.StreamResponse)
        self._seam = seam
        self.tickets = tickets
        self._routes = routes
        self._upstream = Upstream()
        self._authority = authority
        self.address = ""  # host:port that the server listens on
        self.destinations: Destinations | None = None  # None: keys go wherever their holder sends them
        self.tunnels: dict[object, Tunnel] = {}  # by the client's address
        _SILENT.addHandler(logging.NullHandler())
        _SILENT.propagate = False
        #: Turns a connection into requests; a client that hangs up cancels what is being answered to it.
        self.web_server = web.Server(
            self.answer,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            logger=_SILENT,
            max_line_size=_LARGEST_LINE,
            max_field_size=_LARGEST_LINE,
        )

    async def __aenter__(self) -> Relay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._upstream.close()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request to its end."""
        target = request.raw_path
        headers = end_to_end(request.raw_headers)
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        tunnel = self.tunnels.get(peer)
        if tunnel is not None:
            known = self.tickets.of_keys(headers, target) or (tunnel.ticket, tunnel.depth)
            return await self._owned(request, _Asked(request.method, tunnel.origin + target, headers, *known))
        if not target.startswith(("http://", "https://")):
            return await self._reverse(request, target, headers)
        authority, _, path = target.partition("://")[2].partition("/")
        if authority == self.address:  # a client that asks even for this gateway through its proxy
            return await self._reverse(request, f"/{path}", headers)
        token = proxy_token(request.raw_headers)
        by_proxy = self.tickets.of_keys(headers, target) or self.known_by_proxy(token)
        if by_proxy is None:
            return self._not_known(407, request.method, target, headers, token)
        return await self._owned(request, _Asked(request.method, target, headers, *by_proxy))

    async def _reverse(self, request: web.BaseRequest, target: str, headers: RawHeaders) -> web.StreamResponse:
        """A request to a route of the gateway."""
        found = IN_PATH.match(target)
        token = found.group(1) if found else None
        if found:
            target = target[found.end() :] or "/"
        known = self.tickets.of_keys(headers, target)
        if known is None and token is not None:
            known = self.tickets.of_token(token)
        if target.partition("?")[0] == "/":
            return self._hello(known is not None)
        route = self._routes.find(target)
        url = route[0].target(route[1]) if route is not None else None
        if known is None:
            return self._not_known(401, request.method, url or target.partition("?")[0], headers, "", target)
        if url is None:
            return self._nowhere(request, target, route[0].needs if route is not None else ())
        asked = _Asked(request.method, url, headers, *known)
        if value_of(headers, b"authorization").startswith(b"AWS4-") and not is_loopback(peer_of(url)[0]):
            return self._signed(asked)
        return await self._owned(request, asked)

    async def _owned(self, request: web.BaseRequest, asked: _Asked) -> web.StreamResponse:
        misled = self.destinations.misled(asked.headers, asked.url) if self.destinations is not None else None
        if misled is not None:
            return self._misled(asked, misled)
        is_socket = value_of(request.raw_headers, b"upgrade").lower() == b"websocket"
        self.tickets.enter(asked.ticket)
        try:
            return await (self._socket(request, asked) if is_socket else self._exchange(request, asked))
        except Exception as error:  # of ours, or of a user's hook: the call may be uncounted, so it must not go unsaid
            where = f"{asked.method} {asked.url.partition('?')[0]}"
            text = f"the gateway failed on {where}: {type(error).__name__}: {error}"
            self.tell(asked.ticket, "gateway-failed", text, "invalid")
            return self._error(500, "gateway-failed", text)
        finally:
            self.tickets.leave(asked.ticket)

    # --- for the server, which opens tunnels ------------------------------------------------------------------------

    @property
    def authority(self) -> Authority:
        return self._authority()

    def known_by_proxy(self, token: str | None) -> tuple[Ticket, int] | None:
        return self.tickets.of_token(token) if token else None

    def is_passthrough(self, host: str, port: int) -> bool:
        """Whether a host may be spoken to in a protocol that nobody reads; never one that serves models."""
        rules = self._seam.rules
        is_model = hosts.is_model_host(f"{host}:{port}", rules.model_hosts)
        return not is_model and matches_host(host, port, rules.passthrough)

    def refusal(self, url: str, token: str | None) -> bytes:
        """The bytes that answer a CONNECT without the token of a task."""
        body = self._refuse_unknown("CONNECT", url, [], token, url)
        head = b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="fanout"\r\n'
        return (
            head
            + b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
            + body
        )

    @property
    def leak(self) -> str:
        """How bad it is that something tried to pass unread."""
        return "invalid" if self._seam.rules.strict_egress else "notice"

    def tell(self, ticket: Ticket, slug: str, text: str, verdict: str = "notice") -> None:
        """A problem of the task that a request or a tunnel belongs to."""
        owner = ticket.scope() or self._seam.ledger.running or self._seam
        owner.add_problem(slug, text, verdict)

    # --- the exchange ----------------------------------------------------------------------------------------------

    def _owner(self, ticket: Ticket) -> Place | None:
        """Whose a call with this ticket is, if it is made now."""
        scope = ticket.scope()
        ledger = self._seam.ledger
        running = ledger.running if scope is None and not ledger.setup_depth else None
        return Place(scope, AGENT) if scope is not None else running.home if running is not None else None

    async def _exchange(self, request: web.BaseRequest, asked: _Asked) -> web.StreamResponse:
        body = await self._read(request)
        asked = _without_task_key(asked)
        owner = self._owner(asked.ticket)
        try:
            flight = self._seam.begin(
                LAYER, asked.method, asked.url, asked.headers, body, place=owner, depth=asked.depth, waits=False
            )
            if flight is not None and flight.turn is not None:
                await let_wait(flight)
        except TaskStopped as stopped:
            return self._capped(stopped)
        playback = playback_of(flight) if flight is not None else None
        if playback is not None:
            return await self._play(request, playback, flight)
        return await self._forward(request, asked, body, flight)

    async def _socket(self, request: web.BaseRequest, asked: _Asked) -> web.StreamResponse:
        asked = _without_task_key(asked)
        handshake = sockets.Asked(asked.url, asked.headers, lambda: self._owner(asked.ticket), asked.depth)
        if not sockets.is_channel(self._seam, handshake):
            return self._no_socket(asked)
        try:
            return await sockets.relay(self._seam, self._upstream, request, handshake)
        except TaskStopped as stopped:
            return self._capped(stopped)
        except sockets.Refused as refused:
            return self._plain(refused.status, refused.body)
        except ConnectFailed as error:
            return self._unreachable(asked.url, str(error))

    async def _read(self, request: web.BaseRequest) -> bytes:
        """The whole body, its content codings left on: what is counted is what was sent."""
        if value_of(request.raw_headers, b"expect").lower() == b"100-continue":
            transport = request.transport
            if transport is not None:
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunks = []
        while data := await request.content.readany():
            chunks.append(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _forward(
        self, request: web.BaseRequest, asked: _Asked, body: bytes, flight: Flight | None
    ) -> web.StreamResponse:
        opened = flight.opened if flight is not None else None
        headers, url = opened if opened is not None else (asked.headers, asked.url)
        note = flight if flight is not None else _NOBODY
        try:
            answer = await self._upstream.send(asked.method, url, headers, body)
        except ConnectFailed as error:
            note.end("error", "ConnectError")
            return self._unreachable(asked.url, str(error))
        except asyncio.CancelledError:
            note.end("error", "CancelledError")
            raise
        except Exception:  # whatever the client library calls it: no answer began
            note.end("error", "ReadError")
            await self._cut(request)
        try:
            raw = list(answer.raw_headers)
            note.began(answer.status, raw)
            headers, content = end_to_end(raw), answer.content
            if content.is_eof() and request.method != "HEAD":  # all of it is here: head and body go out together
                data = content.read_nowait()
                if data:
                    note.chunk(data)
                note.end("complete")
                return self._whole(answer.status, answer.reason, headers, data, flight)
            response = self._head(answer.status, answer.reason, headers, flight)
            if not await self._prepared(request, response):
                note.end("closed_early")
                return response
            while True:
                try:
                    data = await content.readany()
                except asyncio.CancelledError:
                    note.end("closed_early")
                    raise
                except Exception:
                    note.end("error", "ReadError")
                    await self._cut(request)
                if data:
                    note.chunk(data)
                if content.at_eof():
                    note.end("complete")  # before the client can know: when it goes on, this one is booked
                if not data:
                    break
                try:
                    await response.write(data)
                except asyncio.CancelledError:
                    note.end("closed_early")
                    raise
                except ConnectionError:
                    note.end("closed_early")
                    return response
        finally:
            if answer.content.at_eof():
                answer.release()
            else:
                answer.close()
        await self._finished(response)
        return response

    async def _play(self, request: web.BaseRequest, playback: Playback, flight: Flight | None) -> web.StreamResponse:
        """A recorded answer, or one of ours."""
        if playback.status is None:
            while playback.awaits_stop():
                await asyncio.sleep(0.001)
            await asyncio.sleep(playback.pause_s(len(playback.chunks)))
            try:
                error = playback.read_to_end()
            except TaskStopped as stopped:
                return self._error(400, "capped", str(stopped).removeprefix("pytest-fanout: "))
            if error == "ConnectError":
                return self._unreachable(flight.url if flight is not None else "", "as recorded")
            if error == "CancelledError":
                # The agent gave up waiting: give it the time to do so again.
                await asyncio.sleep(playback.ended_ms / 1000 + 1)
            await self._cut(request)
        response = self._head(playback.status, None, end_to_end(playback.headers), flight)
        await asyncio.sleep(playback.pause_s(0))
        try:
            await response.prepare(request)
            for number, chunk in enumerate(playback.chunks):
                if (pause_s := playback.pause_s(number)) > 0:
                    await asyncio.sleep(pause_s)
                if chunk:
                    await response.write(chunk)
            await asyncio.sleep(playback.pause_s(len(playback.chunks)))
            if playback.read_to_end() is not None:
                await self._cut(request)
            await response.write_eof()
        except ConnectionError:
            pass
        finally:
            playback.close()
        return response

    # --- answers of our own ----------------------------------------------------------------------------------------

    def _not_known(
        self, status: int, method: str, url: str, headers: RawHeaders, token: str | None, target: str | None = None
    ) -> web.StreamResponse:
        where = (target or url).partition("?")[0]
        response = self._plain(status, self._refuse_unknown(method, url, headers, token, where))
        if status == 407:
            response.headers["proxy-authenticate"] = 'Basic realm="fanout"'
        return response

    def _refuse_unknown(self, method: str, url: str, headers: RawHeaders, token: str | None, where: str) -> bytes:
        if token is None:
            # Many clients show a proxy their credentials only once it asks for them: nothing to tell of.
            return b'{"error": {"type": "pytest_fanout", "message": "pytest-fanout: the proxy wants credentials"}}'
        flight = self._seam.refuse_unknown(LAYER, method, url, headers, b"", f"{method} {where}")
        assert flight.reply is not None
        return flight.reply.body

    def _nowhere(self, request: web.BaseRequest, target: str, needs: tuple[str, ...]) -> web.StreamResponse:
        path = target.partition("?")[0]
        if needs:
            why, mend = "the region of its provider is not known", f"set {' or '.join(needs)}"
        else:
            why, mend = "no base-URL variable leads there", "use the base URLs of the environment as they are"
        text = f"{request.method} {path} came to the gateway, and {why}: nothing was sent"
        self._seam.add_problem("gateway-no-upstream", f"{text}\n  mend: {mend}")
        return self._error(404, "gateway-no-upstream", f"{text}; {mend}")

    def _no_socket(self, asked: _Asked) -> web.StreamResponse:
        where = asked.url.partition("?")[0]
        text = f"a WebSocket to {where} was asked for, which nobody would read: it was refused with 501"
        mend = "let the agent use HTTP for it, streamed or not"
        self.tell(asked.ticket, "gateway-websocket", f"{text}\n  mend: {mend}")
        return self._error(501, "gateway-websocket", f"{text}; {mend}")

    def _signed(self, asked: _Asked) -> web.StreamResponse:
        text = f"{asked.method} {asked.url} is signed with AWS credentials for the gateway's address: nothing was sent"
        mend = "give the agent a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK), or use the forward proxy"
        self.tell(asked.ticket, "gateway-signed", f"{text}\n  mend: {mend}", "invalid")
        return self._error(400, "gateway-signed", f"{text}; {mend}")

    def _misled(self, asked: _Asked, name: str) -> web.StreamResponse:
        where = asked.url.partition("?")[0]
        text = f"{asked.method} {where} would have carried {name} to a server that it is not for: nothing was sent"
        mend = "where that server is yours, name it in its base-URL variable around the gateway"
        self.tell(asked.ticket, "key-misled", f"{text}\n  mend: {mend}", "invalid")
        return self._error(403, "key-misled", f"{text}; {mend}")

    def _capped(self, stopped: TaskStopped) -> web.StreamResponse:
        return self._error(400, "capped", str(stopped).removeprefix("pytest-fanout: "))

    def _unreachable(self, url: str, why: str) -> web.StreamResponse:
        return self._error(
            502, "upstream-unreachable", f"{url.partition('?')[0]} could not be reached: {why}", retry=True
        )

    def _hello(self, known: bool) -> web.StreamResponse:
        """Who is here; a nested ``fanout-gateway`` asks it whether its token is still known."""
        return self._plain(200, json.dumps({"gateway": "pytest-fanout", "token": known}).encode())

    def _error(self, status: int, slug: str, text: str, *, retry: bool = False) -> web.StreamResponse:
        message = f"pytest-fanout: {text}; see docs/messages.md#{slug}"
        body = json.dumps({"error": {"type": "pytest_fanout", "code": slug, "message": message}}).encode()
        return self._plain(status, body, retry=retry)

    def _plain(self, status: int, body: bytes, *, retry: bool = False) -> web.StreamResponse:
        headers = {"content-type": "application/json"} | ({} if retry else {"x-should-retry": "false"})
        return self._web.Response(status=status, body=body, headers=headers)

    def _head(self, status: int, reason: str | None, headers: RawHeaders, flight: Flight | None) -> web.StreamResponse:
        return self._streamed_answer(status=status, reason=reason, headers=self._pairs(headers, flight))

    def _whole(
        self, status: int, reason: str | None, headers: RawHeaders, body: bytes, flight: Flight | None
    ) -> web.StreamResponse:
        return self._whole_answer(status=status, reason=reason, headers=self._pairs(headers, flight), body=body)

    def _pairs(self, headers: RawHeaders, flight: Flight | None) -> CIMultiDict[str]:
        pairs = self._multidict((as_text(name), as_text(value)) for name, value in headers)
        near = flight.scope.near_caps() if flight is not None and flight.scope is not None else ()
        if near:
            pairs["x-fanout-cap-warning"] = ", ".join(f"{cap}={share:.2f}" for cap, share in near)
        return pairs

    async def _prepared(self, request: web.BaseRequest, response: web.StreamResponse) -> bool:
        """Send the head; False where the client has gone."""
        try:
            await response.prepare(request)
        except ConnectionError:
            return False
        return True

    async def _finished(self, response: web.StreamResponse) -> None:
        with contextlib.suppress(ConnectionError):
            await response.write_eof()

    async def _cut(self, request: web.BaseRequest) -> NoReturn:
        """End the connection as the upstream did: what was sent arrives, and no clean end. It cancels this task."""
        if request.transport is not None:
            request.transport.close()
        await asyncio.get_running_loop().create_future()
        raise ConnectionAbortedError


def _without_task_key(asked: _Asked) -> _Asked:
    """The header that names the task has done its work: it is neither kept nor sent on."""
    return asked._replace(headers=[pair for pair in asked.headers if pair[0].lower() != _TASK_KEY])


def _unadorned(kind: Any) -> Any:
    """``kind`` of answer without the headers that aiohttp adds to those of the upstream."""

    class Unadorned(kind):  # type: ignore[misc]
        async def _prepare_headers(self) -> None:
            added = [name for name in _ADDED if name not in self.headers]
            await super()._prepare_headers()
            for name in added:
                self.headers.popall(name, None)

    return Unadorned


class _Nobody:
    """Stands for the flight of a request that nobody counts."""

    def began(self, status: int, headers: RawHeaders) -> None: ...

    def chunk(self, data: bytes) -> None: ...

    def end(self, outcome: str, error: str | None = None) -> None: ...


_NOBODY: Final = _Nobody()
