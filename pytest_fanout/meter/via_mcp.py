"""The hook of MCP over stdio: what an agent asks a tool server that is a child process, one JSON message a line.

Seen at the pipes of that process, below every client of the package ``mcp``. Each request is recorded as a tool's, with
all that the server says until its answer; in replay a task starts no server. What a server says while nobody waits for
it is passed on and not recorded. MCP over HTTP is recorded as HTTP.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import TOOL, outer_request
from pytest_fanout.meter.replies import playback_of
from pytest_fanout.meter.seam import Seam
from pytest_fanout.wire.bodies import load_json

MODULES: tuple[str, ...] = ("mcp.client.stdio",)
LAYER = "mcp"
METHOD = "MCP"
_OPENER = "_create_platform_compatible_process"
_MARK = "_pytest_fanout_hook"
_HEAD = [(b"content-type", b"application/x-ndjson")]
_SIZE = 65536


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch what opens a server's process; the returned function takes the patch off again."""
    before = getattr(module, _OPENER)
    if hasattr(before, _MARK):
        return lambda: None
    hook = _hook(module, seam, before)
    setattr(hook, _MARK, True)
    setattr(module, _OPENER, hook)

    def undo() -> None:
        if getattr(module, _OPENER) is hook:
            setattr(module, _OPENER, before)

    return undo


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Ask for a process without a command, which starts none; the patch if it did not see that exactly once."""
    seam.probe = []
    with contextlib.suppress(Exception):
        getattr(module, _OPENER)("", []).send(None)
    failed = [] if len(seam.probe) == 1 else [f"{module.__name__}.{_OPENER}"]
    seam.probe = None
    return failed


def _hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    anyio: Any = module.anyio
    stdin, stdout = _streams(anyio)

    @functools.wraps(original)
    async def opened(command: str, args: list[str], *others: Any, **named: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
            return None
        if not seam.active:
            return await original(command, args, *others, **named)
        above = outer_request()
        place = seam.ledger.place()
        in_task = place is not None and not place.scope.closed and (above is None or above.method != TOOL)
        pipe = _Pipe(seam, _name(command, args))
        if seam.is_replay() and in_task:
            return _NoProcess(stdin(None, pipe), stdout(None, pipe, anyio))
        process = await original(command, args, *others, **named)
        process._stdin = stdin(process._stdin, pipe)
        process._stdout = stdout(process._stdout, pipe, anyio)
        return process

    return opened


def _name(command: str, args: list[str]) -> str:
    """What a server is called on recordings: of its command line only what no path and no secret is in."""
    first = next((arg for arg in args if not arg.startswith("-")), "")
    return quote(" ".join(os.path.basename(part.rstrip("/\\")) for part in (command, first) if part))


class _Asked(NamedTuple):
    """A request that has no answer yet."""

    flight: Flight
    id: Any
    token: Any  # by which the server tells of its progress


class _Pipe:
    """What goes to and fro between a client and one server."""

    def __init__(self, seam: Seam, name: str) -> None:
        self._seam = seam
        self._name = name
        self._sending = b""
        self._hearing = b""
        self._asked: dict[str, _Asked] = {}
        self.inbox: deque[bytes] = deque()  # recorded lines that the client has not read yet
        self.ended = False
        self.rings: Callable[[], None] = lambda: None

    def lines_of(self, data: bytes) -> list[bytes]:
        *lines, self._sending = (self._sending + data).split(b"\n")
        return lines

    async def asks(self, line: bytes, is_live: bool, anyio: Any) -> bool:
        """The client sends a line. Whether it goes on to the server."""
        message = load_json(line)
        if not isinstance(message, dict):
            return is_live
        if message.get("method") == "notifications/cancelled":
            asked = self._asked.pop(_key(_dict(message.get("params")).get("requestId")), None)
            if asked is not None:
                asked.flight.end("error", "CancelledError")
        if "method" not in message or message.get("id") is None:
            return is_live
        token = _dict(_dict(message.get("params")).get("_meta")).get("progressToken")
        above = outer_request()
        if above is not None and above.method == TOOL:
            return is_live
        method = str(message["method"])
        url = f"mcp:///{self._name}/{quote(method)}"
        flight = self._seam.begin(LAYER, METHOD, url, [(b"content-type", b"application/json")], _body(message))
        if flight is None:
            if not is_live:
                self._say({"id": message["id"], "error": _error("no task is running, and replay starts no server")})
            return is_live
        if flight.reply is not None:
            said = _dict(_dict(load_json(flight.reply.body)).get("error")).get("message")
            self._say({"id": message["id"], "error": _error(str(said))})
            return False
        if flight.replayed is not None:
            await self._play(_Asked(flight, message["id"], token), anyio)
            return False
        self._asked[_key(message["id"])] = _Asked(flight, message["id"], token)
        return is_live

    async def _play(self, asked: _Asked, anyio: Any) -> None:
        playback = playback_of(asked.flight)
        assert playback is not None
        asked.flight.status = playback.status
        for line in b"".join(playback.chunks).splitlines():
            message = _dict(load_json(line))
            if "method" not in message:
                message["id"] = asked.id
            elif "progressToken" in _dict(message.get("params")):
                message["params"]["progressToken"] = asked.token
            self._say(message)
        while playback.awaits_stop():
            await anyio.sleep(0.001)
        error = playback.read_to_end()
        if error == "EndOfStream":
            self.ended = True
            self.rings()

    def _say(self, message: dict[str, Any]) -> None:
        self.inbox.append(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.rings()

    def hears(self, data: bytes) -> None:
        """The server has sent something."""
        *lines, self._hearing = (self._hearing + data).split(b"\n")
        for line in lines:
            message = load_json(line)
            if isinstance(message, dict) and self._asked:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            asked = self._asked.pop(_key(message.get("id")), None)
            message = {**message, "id": 0}  # the client counts its requests: the same one has another number next time
        else:
            params = _dict(message.get("params"))
            token = params.get("progressToken")
            known = [some for some in self._asked.values() if token is not None and some.token == token]
            asked = known[0] if known else next(iter(self._asked.values()))
            if token is not None:
                message = {**message, "params": {**params, "progressToken": 0}}
        if asked is None:
            return
        if asked.flight.status is None:
            asked.flight.began(200, _HEAD)
        asked.flight.chunk(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        if "method" not in message:
            asked.flight.end("complete")

    def hangs_up(self, error: str) -> None:
        """Nothing will come any more."""
        self.ended = True
        for asked in self._asked.values():
            asked.flight.end("error", error)
        self._asked.clear()
        self.rings()


def _body(message: dict[str, Any]) -> bytes:
    """What of a request tells it from others: not its number, and not which client of which version says hello."""
    method, params = message["method"], _dict(message.get("params"))
    if method == "initialize":
        params = {key: value for key, value in params.items() if key not in ("clientInfo", "protocolVersion")}
    told = _dict(params.get("_meta")).items()
    meta = {
        key: value for key, value in told if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")
    }
    params = {key: value for key, value in params.items() if key != "_meta"} | ({"_meta": meta} if meta else {})
    return json.dumps({"method": method, "params": params}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _key(number: Any) -> str:
    return json.dumps(number)


def _error(text: str) -> dict[str, Any]:
    return {"code": -32000, "message": f"pytest-fanout: {text.removeprefix('pytest-fanout: ')}"}


class _NoProcess:
    """What stands for a server in replay."""

    pid = 0

    def __init__(self, stdin: Any, stdout: Any) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, None

    @property
    def returncode(self) -> int | None:
        return 0 if self.stdin.closed else None

    async def wait(self) -> int:
        return 0

    async def aclose(self) -> None:
        await self.stdin.aclose()

    async def __aenter__(self) -> _NoProcess:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def kill(self) -> None:
        self.stdin.closed = True

    terminate = kill


def _streams(anyio: Any) -> tuple[Any, Any]:
    """The two ends of the pipe, as classes of the library that the client uses."""

    class Stdin(anyio.abc.ByteSendStream):  # type: ignore[misc]
        def __init__(self, live: Any, pipe: _Pipe) -> None:
            self._live, self._pipe, self.closed = live, pipe, False

        async def send(self, item: bytes) -> None:
            lines = [
                line for line in self._pipe.lines_of(item) if await self._pipe.asks(line, self._live is not None, anyio)
            ]
            if lines:
                await self._live.send(b"".join(line + b"\n" for line in lines))

        async def aclose(self) -> None:
            self.closed = True
            if self._live is None:
                self._pipe.hangs_up("ClosedResourceError")
            else:
                await self._live.aclose()

    class Stdout(anyio.abc.ByteReceiveStream):  # type: ignore[misc]
        def __init__(self, live: Any, pipe: _Pipe, anyio: Any) -> None:
            self._live, self._pipe = live, pipe
            self._bell: Any = None
            pipe.rings = self._ring

        def _ring(self) -> None:
            if self._bell is not None:
                self._bell.set()

        async def receive(self, max_bytes: int = _SIZE) -> bytes:
            while not self._pipe.inbox:
                self._bell = anyio.Event()
                if self._live is not None:
                    data = await self._from_server(max_bytes)
                    if data is not None:
                        return data
                elif self._pipe.ended:
                    raise anyio.EndOfStream
                else:
                    await self._bell.wait()
            return self._pipe.inbox.popleft()

        async def _from_server(self, max_bytes: int) -> bytes | None:
            """What the server sends, or None when a recorded line came first."""
            got: list[bytes | Exception] = []

            async def read() -> None:
                try:
                    got.append(await self._live.receive(max_bytes))
                except Exception as error:
                    got.append(error)
                self._bell.set()

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await self._bell.wait()
                group.cancel_scope.cancel()
            if not got:
                return None
            if isinstance(got[0], Exception):
                self._pipe.hangs_up(type(got[0]).__name__)
                raise got[0]
            self._pipe.hears(got[0])
            return got[0]

        async def aclose(self) -> None:
            self._pipe.hangs_up("ClosedResourceError")
            if self._live is not None:
                await self._live.aclose()

    return Stdin, Stdout
