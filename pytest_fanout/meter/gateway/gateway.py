"""The gateway as its owner sees it: started on first use, asked for environments, told of the end of a task, stopped.

It runs on a background thread of the measuring process with an event loop of its own, and asks the same seam as the
hooks: counting, caps, recordings, replay and redaction are the same code.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_fanout.errors import UsageError
from pytest_fanout.meter.gateway.authority import Authority
from pytest_fanout.meter.gateway.proxying import proxy_variables
from pytest_fanout.meter.gateway.tickets import Tickets
from pytest_fanout.meter.gateway.variables import Routes
from pytest_fanout.meter.ledger import own_thread

if TYPE_CHECKING:
    from pytest_fanout.meter.keys import SealedKeys
    from pytest_fanout.meter.seam import Seam
    from pytest_fanout.meter.task import TaskScope

#: In the environment of every child that the gateway counts: its URL with the token of the task.
VARIABLE: Final = "FANOUT_GATEWAY"
_VERTEX: Final = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
_START_S: Final = 30.0
_SETTLE_S: Final = 2.0
_DRAIN_S: Final = 5.0  # on a machine that does much else; an idle one needs a millisecond


class Gateway:
    """A reverse proxy for model calls on 127.0.0.1. Made by ``Meter.gateway()``.

    Args:
        seam: asked about every request.
        keys: the real keys; its dummies tell whose call a request is.
        port: to listen on; 0: any that is free.

    Raises:
        UsageError: the extra is not installed, or the port is taken.
    """

    def __init__(self, seam: Seam, keys: SealedKeys, *, port: int = 0) -> None:
        self._seam = seam
        self._keys = keys
        self._tickets = Tickets()
        self._routes = Routes()
        self._ready = threading.Event()
        self._over = threading.Event()
        self._failed: BaseException | None = None
        self._server: Any = None
        self._relay: Any = None
        self._port = port
        self._made: Authority | None = None
        self._making = threading.Lock()
        self.url = ""
        own_thread(self._run)  # the gateway outlives the task that is running
        if not self._ready.wait(_START_S):
            raise RuntimeError("the gateway did not start")
        if self._failed is not None:
            raise self._failed

    def environ_for(
        self, scope: TaskScope | None, base: Mapping[str, str], *, proxy: bool = False, depth: int = 0
    ) -> dict[str, str]:
        """The environment of a child whose calls belong to ``scope``; None: to the task that runs when they come.

        Args:
            base: the environment it would have had: its base URLs become the upstreams, its keys stay here.
            depth: how deep in agents that start agents the child stands; 0: it is the task's own agent.
            proxy: send all its HTTP through the gateway as well, with a CA that it is told to trust.
        """
        ticket = self._tickets.issue(scope)
        token = ticket.token(depth)
        home = f"{self.url}/t-{token}"
        environ = dict(base)
        environ |= self._keys.issue(ticket.stem, token, base)
        environ |= self._routes.variables(base, self.url, home, proxied=proxy)
        environ[VARIABLE] = home
        vertex = next((name for name in _VERTEX if base.get(name, "").lower() in ("1", "true")), None)
        if vertex is not None and not proxy and not base.get("GOOGLE_VERTEX_BASE_URL"):
            text = f"{vertex} is set: google-genai keeps to Vertex's own address and sign-in, past the gateway"
            (scope or self._seam).add_problem("gateway-blind", f"{text}\n  mend: use the forward proxy")
        if proxy:
            environ |= proxy_variables(self.url, token)
            environ |= self._authority().variables(base)
        return environ

    def bind_keys(self, environ: Mapping[str, str]) -> None:
        """From now on a key goes to its own provider, and to the server that its base-URL variable names, and nowhere
        else: for code that nobody trusts. ``environ``: the trusted one."""
        from pytest_fanout.meter.gateway.destinations import Destinations

        self._relay.destinations = Destinations(environ)

    def close_scope(self, scope: TaskScope) -> None:
        """The child of this task has ended: what comes with its key afterwards is late.

        What it has sent before is read. Requests that are being answered get a moment to come to an end, so that the
        last answer is counted whole. ``Meter.close_task`` does the same; done before it, the wait is no part of the
        task's time.
        """
        self.drain()
        self._tickets.wait_for(scope, _SETTLE_S)
        self._tickets.close(scope)

    def drain(self) -> None:
        """What clients have sent up to now is read, and booked to whom it belongs now."""
        if self._server is not None:
            self._server.drain(_DRAIN_S)

    def stop(self) -> None:
        """Close every connection and end the thread. Safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            self._over.wait(_SETTLE_S)
        with self._making:
            if self._made is not None:
                self._made.close()
                self._made = None

    def _authority(self) -> Authority:
        with self._making:
            if self._made is None:
                self._made = Authority()
            return self._made

    def _run(self) -> None:
        import asyncio

        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()
            self._over.set()

    async def _serve(self) -> None:
        try:
            import aiohttp  # noqa: F401
        except ImportError:
            raise UsageError(
                "gateway-not-installed",
                "the gateway stands on aiohttp, which is not installed",
                mend="pip install 'pytest-fanout[gateway]'",
            ) from None
        from pytest_fanout.meter.gateway.relay import Relay
        from pytest_fanout.meter.gateway.server import Server

        async with Relay(self._seam, self._tickets, self._routes, self._authority) as relay:
            self._relay = relay
            server = Server(relay, self._port)
            self.url = server.url
            self._server = server
            self._ready.set()
            await server.run()
