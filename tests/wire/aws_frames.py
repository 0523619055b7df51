"""AWS event streams as bytes, from the notation of the worked examples. test_wire_eventstream.py holds it to botocore.

A frame is ``["messageStart", {...}]``; ``["exception throttlingException", {...}]`` and ``["error InternalFailure",
{...}]`` are the other two kinds. A chunk of Invoke is the model's own event.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

CONTENT_TYPE = {"content-type": "application/vnd.amazon.eventstream"}
_NAMES = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}


def encode_frame(headers: dict[str, Any], payload: bytes) -> bytes:
    """One frame. Header values: text, bytes, bool and int (64 bit)."""
    told = b"".join(_header(name, value) for name, value in headers.items())
    head = struct.pack(">II", 16 + len(told) + len(payload), len(told))
    body = head + struct.pack(">I", zlib.crc32(head)) + told + payload
    return body + struct.pack(">I", zlib.crc32(body))


def _header(name: str, value: Any) -> bytes:
    head = bytes([len(name.encode())]) + name.encode()
    if isinstance(value, bool):
        return head + (b"\x00" if value else b"\x01")
    if isinstance(value, int):
        return head + b"\x05" + struct.pack(">q", value)
    data = value if isinstance(value, bytes) else value.encode()
    return head + (b"\x06" if isinstance(value, bytes) else b"\x07") + struct.pack(">H", len(data)) + data


def frame(name: str, content: Any) -> bytes:
    """The frame of one line of the notation. ``content``: JSON of any kind, or the payload as bytes."""
    kind, _, rest = name.rpartition(" ")
    kind = kind or "event"
    headers = {_NAMES[kind]: rest, ":content-type": "application/json", ":message-type": kind}
    return encode_frame(headers, content if isinstance(content, bytes) else json.dumps(content).encode())


def frames(lines: list[list[Any]]) -> bytes:
    return b"".join(frame(*line) for line in lines)


def chunk(event: Any) -> bytes:
    """A chunk of Invoke around an event of the model's own (JSON, or bytes as they are)."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return frame("chunk", {"bytes": base64.b64encode(data).decode(), "p": "abcdefghij"})


def chunks(events: list[Any]) -> bytes:
    return b"".join(chunk(event) for event in events)
