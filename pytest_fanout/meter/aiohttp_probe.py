"""The self-check of aiohttp's hook: two requests that go the whole way, over connections that no network carries."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from pytest_fanout.meter.flight import RawHeaders
from pytest_fanout.meter.replies import Playback
from pytest_fanout.records import HttpAnswer

#: What the hooks saw of the probes, in the context of a probe; a request of anybody else's is none.
PROBING: ContextVar[list[str] | None] = ContextVar("pytest_fanout_aiohttp_probe", default=None)
_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"
_REST = b"3\r\nyes\r\n0\r\n\r\n"
_CHUNKS = (b"ok", b"yes")
#: Turns of the loop for both probes, for a version in which nothing comes back. Nothing here waits for anything outside
#: it, and time would be a poor measure: on a busy machine seconds pass between two turns.
_TURNS = 1000


class Probe:
    """Stands for the flight of a probe; ``playback``: the recording that answers it, None for the live one."""

    layer = "aiohttp"
    scope = replayed = None  # it is of no task

    def __init__(self, seen: list[str], request: Any) -> None:
        self._seen = seen
        self.chunks: list[bytes] = []
        self.url = str(request.url)
        self.playback: Playback | None = None
        if request.url.path == "/replayed":
            self.playback = Playback(HttpAnswer(200, (), _CHUNKS, (0, 0), 0), self)  # type: ignore[arg-type]

    def began(self, status: int, headers: RawHeaders) -> None:
        self._status = status

    def chunk(self, data: bytes) -> None:
        self.chunks.append(data)

    def end(self, outcome: str, error: str | None = None) -> None:
        if self.playback is not None:
            self._seen.append("replayed" if outcome == "complete" else outcome)
        elif (self._status, *self.chunks, outcome) == (200, *_CHUNKS, "complete"):
            self._seen.append("live")


def send_probes(module: ModuleType, request: Any, seen: list[str]) -> None:
    """Send both by ``request``, the library's own method.

    ``seen`` holds "live" and "replayed" once each afterwards, when every hook did its part.
    """
    token = PROBING.set(seen)
    try:
        # of no policy's choice, and never the current loop of its thread
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(_within_turns(_send(module, request)))
        finally:
            loop.close()
    except Exception:
        seen.clear()
    finally:
        PROBING.reset(token)
    if not seen:
        with warnings.catch_warnings():  # what is left of a failed probe is nothing the agent should hear of
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def _within_turns(sending: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(sending)
    for _ in range(_TURNS):
        if task.done():
            return task.result()
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    raise TimeoutError


async def _send(module: ModuleType, request: Any) -> None:
    # made anew each time: what a library offers is only known once it is there
    class Answering(asyncio.Transport):
        protocol: Any = None

        def write(self, data: Any) -> None:
            if data.startswith(b"POST"):
                self.protocol.data_received(_HEAD)
                asyncio.get_running_loop().call_soon(self.protocol.data_received, _REST)

        def writelines(self, list_of_data: Any) -> None:
            self.write(b"".join(list_of_data))

        def is_closing(self) -> bool:
            return False

        def close(self) -> None:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

        abort = close

    class Connector(module.BaseConnector):  # type: ignore[misc,name-defined]
        async def _create_connection(self, *_: Any) -> Any:
            protocol = self._factory()
            transport = Answering()
            transport.protocol = protocol
            protocol.connection_made(transport)
            return protocol

    async with module.ClientSession(connector=Connector(), cookie_jar=module.DummyCookieJar()) as session:
        for path in ("live", "replayed"):
            async with await request(session, "POST", f"http://probe.invalid/{path}", data=b"x") as response:
                if await response.read() != b"".join(_CHUNKS):
                    raise ValueError(path)
