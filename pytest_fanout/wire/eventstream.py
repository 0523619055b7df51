"""AWS binary event streams out of the bytes of a whole body."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

_PRELUDE: Final = Struct(">III")  # length of the frame, length of its headers, CRC-32 of these eight bytes
_CRC: Final = Struct(">I")
#: Limits of the format, as AWS's own parsers hold them.
_MAX_HEADERS: Final = 128 * 1024
_MAX_PAYLOAD: Final = 24 * 1024 * 1024
#: Frames that are looked at; a stream holds about one for each token.
MAX_FRAMES: Final = 1_000_000
#: Bytes of a header value by its type; those of types 6 and 7 begin with their own length.
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _TEXT = 6, 7


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. ``kind``: event, exception, error, or "broken" for the place where reading had to stop.

    ``name`` is the type of an event or exception, the code of an error, or why reading stopped: ``cut`` (the body
    ends inside a frame), ``bad_frame`` (a checksum, a length or the headers do not hold), ``too_large``.
    """

    kind: str
    name: str
    payload: bytes = b""


def looks_like_frames(data: bytes) -> bool:
    """Whether a body is an event stream: the checksum of its first frame's head holds."""
    if len(data) < _PRELUDE.size:
        return False
    length, _, crc = _PRELUDE.unpack_from(data)
    return bool(length >= _PRELUDE.size + _CRC.size and zlib.crc32(data[:8]) == crc)


def parse_frames(data: bytes) -> Iterator[Frame]:
    """The frames in order. Never raises, and trusts no length that its checksum and the body do not bear out.

    Where a frame does not hold, the last thing given is a frame of kind "broken": clients stop there too, so nothing
    that follows was heard by anybody.
    """
    at = 0
    view = memoryview(data)
    for _ in range(MAX_FRAMES):
        if at == len(data):
            return
        if at + _PRELUDE.size > len(data):
            yield Frame("broken", "cut")
            return
        length, headers_length, crc = _PRELUDE.unpack_from(data, at)
        payload_length = length - headers_length - _PRELUDE.size - _CRC.size
        if (
            zlib.crc32(view[at : at + 8]) != crc
            or headers_length > _MAX_HEADERS
            or not 0 <= payload_length <= _MAX_PAYLOAD
        ):
            yield Frame("broken", "bad_frame")
            return
        end = at + length
        if end > len(data):
            yield Frame("broken", "cut")
            return
        headers_end = at + _PRELUDE.size + headers_length
        told = _CRC.unpack_from(data, end - _CRC.size)[0]
        headers = _headers(data[at + _PRELUDE.size : headers_end])
        if zlib.crc32(view[at : end - _CRC.size]) != told or headers is None:
            yield Frame("broken", "bad_frame")
            return
        kind = headers.get(":message-type", "event")
        name = headers.get({"event": ":event-type", "exception": ":exception-type"}.get(kind, ":error-code"), "")
        yield Frame(kind, name, data[headers_end : end - _CRC.size])
        at = end
    if at != len(data):
        yield Frame("broken", "too_large")


def _headers(data: bytes) -> dict[str, str] | None:
    """The headers that are texts; None where they are no headers, or one stands twice."""
    found: dict[str, str] = {}
    seen: set[bytes] = set()
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end]
        if name_end >= len(data) or name in seen:
            return None
        seen.add(name)
        kind = data[name_end]
        at = name_end + 1
        if kind in (_BYTES, _TEXT):
            if at + 2 > len(data):
                return None
            size = int.from_bytes(data[at : at + 2], "big")
            at += 2
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            return None
        if at + size > len(data):
            return None
        if kind == _TEXT:
            found[name.decode("utf-8", "replace")] = data[at : at + size].decode("utf-8", "replace")
        at += size
    return found
