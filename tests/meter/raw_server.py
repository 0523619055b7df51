"""A server that sends the bytes it is told to send, whatever they are: broken, cut off, mislabelled."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

HANG_UP = b""  # as the last piece: the connection is cut instead of being closed in order


class RawServer:
    """``answers``: path -> the pieces that are sent for it, one after the other. One request a connection."""

    def __init__(self, answers: Mapping[str, Sequence[bytes]]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> RawServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, suppress(OSError, ValueError, IndexError):
            head, body = b"", b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536) or _gone()
            head, _, body = head.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            while len(body) < length:
                body += connection.recv(65536) or _gone()
            self.requests.append(head + b"\r\n\r\n" + body)
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            for piece in self._answers[path]:
                if piece == HANG_UP:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    return
                connection.sendall(piece)


def _gone() -> bytes:
    raise OSError("the client has gone")


def whole(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> list[bytes]:
    """An answer with a content length."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    return ["\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body]


def chunked(*chunks: bytes, headers: Sequence[str] = (), kind: str = "text/event-stream") -> list[bytes]:
    """An answer in chunks, each sent by itself."""
    lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked", "connection: close"]
    head = "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")
    return [head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\n"]
