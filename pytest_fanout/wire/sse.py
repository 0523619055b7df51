"""Server-sent events out of the bytes of a whole body."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

#: First bytes of the lines that an event stream may open with.
_OPENINGS = (b"data:", b"data\n", b"event:", b"id:", b"retry:", b":")
#: Lines that are looked at. A stream has about one event for each token, and two or three lines for each event.
MAX_LINES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its name ("" where none was given) and its data lines joined by a line feed."""

    name: str
    data: str


def looks_like_sse(data: bytes) -> bool:
    """Whether a body without a helpful content type is an event stream."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_OPENINGS)


def is_too_long(data: bytes) -> bool:
    """Whether a body holds more lines than are looked at."""
    if len(data) <= MAX_LINES:
        return False
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") > MAX_LINES


def parse_sse(data: bytes) -> Iterator[SseEvent]:
    """The events in order, as far as MAX_LINES reach. Never raises.

    Lines end with CR LF, LF or CR and nothing else: Unicode's other line ends may stand inside JSON. An event that
    the body ends in the middle of is given as far as it came, since its data may be whole and only the blank line
    missing. A bare line that opens an object is taken for data: servers write raw errors into a running stream.
    """
    name = ""
    lines: list[str] = []
    for raw in _lines(data.removeprefix(b"\xef\xbb\xbf")):
        if not raw:
            if lines:
                yield SseEvent(name, "\n".join(lines))
            name, lines = "", []
            continue
        if raw.startswith(b"{"):
            yield SseEvent("", raw.decode("utf-8", "replace"))
            continue
        field, _, value = raw.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    if lines:
        yield SseEvent(name, "\n".join(lines))


def _lines(data: bytes) -> Iterator[bytes]:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in islice(io.BytesIO(data), MAX_LINES):
        yield line.removesuffix(b"\n")
