"""The server's end of a WebSocket: enough of RFC 6455 for JSON text frames. Names and key as that standard has them."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import BinaryIO

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


def accept_key(key: str) -> str:
    """The value of ``Sec-WebSocket-Accept``."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()


def read_text(source: BinaryIO, sink: BinaryIO) -> bytes | None:
    """The next text message, whole; pings are answered. None when the client has closed."""
    message = b""
    while True:
        head = source.read(2)
        if len(head) < 2:
            return None
        kind, is_last = head[0] & 0x0F, bool(head[0] & 0x80)
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(source.read(2 if size == 126 else 8))
        mask = source.read(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(source.read(size)))
        if kind == _CLOSE:
            _send(sink, _CLOSE, data)
            return None
        if kind == _PING:
            _send(sink, _PONG, data)
        elif kind != _PONG:
            message += data
            if is_last:
                return message


def send_text(sink: BinaryIO, text: str) -> None:
    _send(sink, _TEXT, text.encode())


def _send(sink: BinaryIO, kind: int, data: bytes) -> None:
    size = len(data)
    length = struct.pack("!B", size) if size < 126 else struct.pack("!BH" if size < 1 << 16 else "!BQ", *_long(size))
    sink.write(bytes([0x80 | kind]) + length + data)


def _long(size: int) -> tuple[int, int]:
    return (126 if size < 1 << 16 else 127), size
