"""A relay on loopback in front of a server: a Unix socket, or an HTTP proxy, plain and with CONNECT."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Any


class Relay:
    """Hands each connection on to ``port`` on loopback.

    Args:
        path: listen on this Unix socket. Otherwise it is an HTTP proxy on a port of its own, for any host.
        tls: what a CONNECT is answered with: the proxy is the server of that name itself.
    """

    def __init__(self, port: int, *, path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        # opened before anything is measured: the relay's own connections are not what is looked at
        self._ready = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        self._tls = tls
        self._listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self._listener.bind(path or ("127.0.0.1", 0))
        self._listener.listen()
        self._is_proxy = path is None
        self.url = "" if path else f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []  # first lines of requests
        self._open: list[Any] = [*self._ready]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Relay:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._listener)
        self._threads[0].join(5)  # what it has accepted by now is open, and there is no more
        for connection in self._open:
            self._end(connection)
        for thread in self._threads:
            thread.join(5)

    @staticmethod
    def _end(connection: Any) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._run(self._serve, connection)

    def _run(self, target: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _serve(self, connection: Any) -> None:
        upstream = self._ready.pop()
        try:
            if self._is_proxy:
                connection, first = self._greet(connection)
                upstream.sendall(first)
            self._run(self._pump, upstream, connection)
            self._pump(connection, upstream)
        except OSError:
            return

    def _greet(self, connection: Any) -> tuple[Any, bytes]:
        """The connection to go on with, and what has been read of it."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 16)
        line, rest = data.split(b"\r\n", 1)
        self.asked.append(line)
        method, target, version = line.split(b" ")
        if method == b"CONNECT":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            assert self._tls is not None
            secure = self._tls.wrap_socket(connection, server_side=True)
            self._open.append(secure)
            return secure, b""
        path = b"/" + target.split(b"/", 3)[3]
        return connection, b" ".join([method, path, version]) + b"\r\n" + rest

    @staticmethod
    def _pump(source: Any, sink: Any) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return
