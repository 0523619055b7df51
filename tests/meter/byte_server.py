"""Two small servers on loopback: one that answers with exact bytes, and an HTTP proxy. Both keep a log."""

from __future__ import annotations

import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

CUT = b"<cut>"  # as a piece of an answer: the connection is closed here


@dataclass(frozen=True)
class Asked:
    """One request as it arrived; ``body`` without the framing of chunks."""

    method: str
    target: str
    headers: dict[str, str]  # lower-case names
    body: bytes
    chunked: bool


def plain(body: bytes, status: int = 200, **headers: str) -> list[bytes]:
    """An answer with a content-length; ``content_type="…"`` and so on are further headers."""
    named = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in named.items())]
    return ["\r\n".join((*lines, f"content-length: {len(body)}", "", "")).encode() + body]


def chunked(pieces: Iterable[bytes], content_type: str = "text/event-stream") -> list[bytes]:
    """An answer in chunks, each sent on its own; the end mark is another piece."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return [head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


class _Threaded(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of many tests."""


class _Server:
    def __init__(self, handler: type[socketserver.StreamRequestHandler], **known: Any) -> None:
        handler = type("Handler", (handler,), {"server_of": self, "disable_nagle_algorithm": True, **known})
        self._server = _Threaded(("127.0.0.1", 0), handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class RawServer(_Server):
    """``answer`` gives the pieces of each answer, sent one by one; with ``context`` the server speaks TLS."""

    def __init__(self, answer: Callable[[Asked], Iterable[bytes]], context: ssl.SSLContext | None = None) -> None:
        self.log: list[Asked] = []
        super().__init__(_Answering, answer=staticmethod(answer), context=context)
        self.base_url = f"http{'s' if context else ''}://localhost:{self.port}"


class _Answering(socketserver.StreamRequestHandler):
    server_of: RawServer
    answer: Callable[[Asked], Iterable[bytes]]
    context: ssl.SSLContext | None

    def setup(self) -> None:
        if self.context is not None:
            self.request = self.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.context is not None:
            self.request.close()

    def handle(self) -> None:
        while (asked := read_asked(self.rfile)) is not None:
            self.server_of.log.append(asked)
            for piece in self.answer(asked):
                if piece is CUT:
                    self.request.shutdown(socket.SHUT_RDWR)
                    return
                self.wfile.write(piece)
            if asked.headers.get("connection", "").lower() == "close":
                return


def read_asked(rfile: Any) -> Asked | None:
    """The next request of a connection, None at its end."""
    line = rfile.readline().decode("latin-1").split()
    if len(line) < 2:
        return None
    headers: dict[str, str] = {}
    while (text := rfile.readline().strip()) != b"":
        name, _, value = text.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    in_chunks = "chunked" in headers.get("transfer-encoding", "")
    body = b""
    while in_chunks:
        size = int(rfile.readline(), 16)
        body += rfile.read(size)
        rfile.readline()
        if not size:
            break
    return Asked(line[0], line[1], headers, body or rfile.read(int(headers.get("content-length", 0))), in_chunks)


class Proxy:
    """An HTTP proxy, by CONNECT and by whole URLs, in a process of its own: what it connects to is not the agent's."""

    def __enter__(self) -> Proxy:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        os.set_blocking(self._process.stdout.fileno(), False)
        self._log: list[str] = []
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    @property
    def log(self) -> list[str]:
        """The first words of each request so far: written before anything is answered."""
        assert self._process.stdout is not None
        self._log += (self._process.stdout.read() or b"").decode().splitlines()
        return self._log


class _Forwarding(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = read_asked(self.rfile)
        if asked is None:
            return
        print(asked.method, asked.target, flush=True)
        host, _, port = asked.target.removeprefix("http://").partition("/")[0].partition(":")
        with socket.create_connection((host, int(port))) as upstream:
            if asked.method == "CONNECT":
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = "/" + asked.target.removeprefix("http://").partition("/")[2]
                lines = [f"{name}: {value}" for name, value in asked.headers.items() if name != "connection"]
                head = "\r\n".join((f"{asked.method} {path} HTTP/1.1", *lines, "connection: close", "", ""))
                upstream.sendall(head.encode() + asked.body)
            back = threading.Thread(target=_pump, args=(upstream, self.request), daemon=True)
            back.start()
            if asked.method == "CONNECT":
                _pump(self.request, upstream)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


if __name__ == "__main__":
    with _Server(_Forwarding) as server:
        print(server.port, flush=True)
        sys.stdin.read()
