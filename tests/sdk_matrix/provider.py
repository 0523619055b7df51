"""A provider on loopback that counts what arrives and speaks a dialect of its own; its log is the ground truth.

Each server plays one story to whoever calls:

plain    every request is answered with text
tools    the first request that offers our tools is answered by asking for both of them
retry    the first generation request is refused with 429, the rest is as in ``tools``
early    as ``plain``; a stream stops half-way and waits until the client has hung up

It checks the key: a wrong one, or a dummy, is answered 401.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, cast

from sdk_matrix import channel
from sdk_matrix.dialects import openai_responses_dialect as openai_responses
from sdk_matrix.dialects.turns import (
    ANSWER,
    ARGUMENTS,
    LAST_TOOL,
    RESULTS,
    TOOLS,
    Asked,
    Dialect,
    Reply,
    Said,
    Tokens,
    ToolAsk,
    Turn,
)

STORIES = ("plain", "tools", "retry", "early")
#: How long a half-told stream waits for its client to hang up, in seconds.
PATIENCE_S = 20.0


@dataclass
class Heard:
    """One request and its answer. ``tokens`` None: the client has not heard, or not to the end, what it cost."""

    method: str
    path: str
    generates: bool = False
    status: int | None = None
    tools: tuple[str, ...] = ()
    tokens: Tokens | None = None
    hung_up: bool = False
    brings_results: bool = False  # its body holds what both tools say


@dataclass(frozen=True)
class Truth:
    """What one server has seen: the sums that ours must equal. None: some answer of it did not say."""

    calls: int
    attempts: int
    tool_calls: Mapping[str, int]
    tokens: Tokens
    hung_up: int
    brought_results: bool
    statuses: tuple[int | None, ...]


class Provider:
    """One server; ``url`` has no path."""

    def __init__(self, dialect: str, story: str, key: str) -> None:
        self.dialect = cast(Dialect, import_module(f"sdk_matrix.dialects.{dialect}_dialect"))
        self.story = story
        self.key = key
        self.log: list[Heard] = []
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"provider": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        stopping = threading.Thread(target=self._server.shutdown)
        stopping.start()
        socket.create_connection(self._server.server_address).close()  # wakes it, so that it need not look often
        stopping.join()
        self._server.server_close()  # waits for the requests that are still being answered
        self._thread.join()

    def truth(self) -> Truth:
        """The sums; ask when the clients are gone."""
        generated = [heard for heard in self.log if heard.generates]
        answered = [heard for heard in generated if heard.status == 200]
        return Truth(
            calls=len(answered),
            attempts=len(generated),
            tool_calls=dict(sorted(Counter(tool for heard in answered for tool in heard.tools).items())),
            tokens=_sum([heard.tokens for heard in answered]),
            hung_up=sum(heard.hung_up for heard in self.log),
            brought_results=any(heard.brings_results for heard in answered),
            statuses=tuple(heard.status for heard in self.log),
        )

    # --- the story ---------------------------------------------------------------------------------------------

    def refuses(self) -> bool:
        """Whether this is the one generation request that is refused."""
        return self.story == "retry" and not any(heard.status for heard in self.log if heard.generates)

    def answer(self, asked: Asked, body: bytes) -> tuple[Said, Turn]:
        """What the model says to a request."""
        number = sum(heard.generates for heard in self.log)
        turns, wanted = self.dialect.TURNS, [name for name in TOOLS if name in asked.offered]
        has_asked = any(heard.tools for heard in self.log)
        turn = turns.after if has_asked else turns.text
        asks: tuple[ToolAsk, ...] = ()
        if self.story in ("tools", "retry") and wanted and not has_asked:
            turn = turns.asking
            asks = tuple(ToolAsk(f"call{number}t{i}x", name, ARGUMENTS) for i, name in enumerate(wanted))
        elif LAST_TOOL in asked.offered:
            asks = (ToolAsk(f"call{number}t0x", LAST_TOOL, {"answer": ANSWER}),)
        usage = turn.wire if asked.wants_usage else None
        return Said(number, asked.model, "" if asks else _dressed(body), asks, usage), turn


def _has_results(body: bytes) -> bool:
    return all(str(result).encode() in body for result in RESULTS)


def _dressed(body: bytes) -> str:
    """The answer, in the form that the prompts of some frameworks ask for."""
    if b"[[ ## answer ## ]]" in body:
        return f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
    return ANSWER


def _sum(tokens: list[Tokens | None]) -> Tokens:
    sums = []
    for part in fields(Tokens):
        values = [getattr(one, part.name) if one is not None else None for one in tokens]
        sums.append(None if None in values else sum(values))
    return Tokens(*sums)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def process_request(self, request: Any, client_address: Any) -> None:
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the story."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    provider: Provider

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the log is the provider's."""

    def _serve(self) -> None:
        body = self._read_body()
        path, _, query = self.path.partition("?")
        heard = Heard(self.command, path)
        provider = self.provider
        dialect = provider.dialect
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = dialect.asked(path, query, json.loads(body)) if self.command == "POST" else None
        with provider.lock:
            provider.log.append(heard)
            heard.generates = asked is not None
            heard.brings_results = _has_results(body)
            refuses = asked is not None and provider.refuses()
            if asked is not None:
                said, turn = provider.answer(asked, body)
        if dialect.key_in(headers, query) != provider.key:
            self._send(heard, dialect.refusal(401))
        elif headers.get("upgrade", "").lower() == "websocket":
            self._channel(heard, headers["sec-websocket-key"])
        elif asked is None:
            self._send(heard, dialect.other(self.command, path) or Reply.json({"error": "no such path"}, 404))
        elif refuses:
            self._send(heard, dialect.refusal(429))
        else:
            heard.tools = tuple(ask.name for ask in said.asks)
            if asked.streamed:
                self._stream(heard, list(dialect.streamed(path, said)))
            else:
                self._send(heard, dialect.plain(path, said))
            if asked.wants_usage and not heard.hung_up:
                heard.tokens = turn.tokens

    def _channel(self, heard: Heard, key: str) -> None:
        """A WebSocket: each ``response.create`` that comes on it is a request of its own."""
        heard.status, self.close_connection = 101, True
        accepted = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": channel.accept_key(key)}
        self._head(101, accepted)
        dialect = self.provider.dialect
        while (body := channel.read_text(self.rfile, self.wfile)) is not None:
            created = Heard("WS", heard.path, generates=True, status=200, brings_results=_has_results(body))
            asked = dialect.asked(heard.path, "", json.loads(body))
            assert asked is not None
            with self.provider.lock:
                self.provider.log.append(created)
                said, turn = self.provider.answer(asked, body)
            created.tools = tuple(ask.name for ask in said.asks)
            created.hung_up = not self._tell([json.dumps(event) for event in openai_responses.events(said)])
            created.tokens = None if created.hung_up else turn.tokens

    def _tell(self, frames: list[str]) -> bool:
        """Whether the client has listened to the end."""
        waits_before = len(frames) // 2 if self.provider.story == "early" else None
        try:
            for index, frame in enumerate(frames):
                if index == waits_before and self._hangs_up():
                    return False
                channel.send_text(self.wfile, frame)
        except OSError:
            return False
        return True

    do_GET = do_POST = do_HEAD = _serve

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            return b"".join(self._read_chunks())
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _read_chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _send(self, heard: Heard, reply: Reply) -> None:
        heard.status = reply.status
        self._head(reply.status, {"content-type": reply.content_type, **dict(reply.headers)}, len(reply.body))
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _stream(self, heard: Heard, events: list[bytes]) -> None:
        heard.status = 200
        self._head(200, {"content-type": self.provider.dialect.STREAM_TYPE, "transfer-encoding": "chunked"})
        waits_before = len(events) // 2 if self.provider.story == "early" else None
        try:
            for index, event in enumerate(events):
                if index == waits_before and self._hangs_up():
                    raise ConnectionError
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # a quick client has hung up before the half
            heard.hung_up, self.close_connection = True, True

    def _hangs_up(self) -> bool:
        """Whether the client closes now: on a WebSocket that comes as a last message, else as the end of all."""
        if not select.select([self.connection], [], [], PATIENCE_S)[0]:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) in (b"", b"\x88")
        except OSError:
            return True

    def _head(self, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("x-request-id", f"req_{len(self.provider.log)}")
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("content-length", str(length))
        self.end_headers()
