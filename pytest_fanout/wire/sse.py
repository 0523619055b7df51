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
    missing. Bare lines that open an object or array are taken for data, up to the line that closes it: servers write
    raw errors into a running stream, on one line or on several.
    """
    name = ""
    lines: list[str] = []
    bare: list[bytes] = []
    for raw in split_lines(data.removeprefix(b"\xef\xbb\xbf")):
        if bare or raw.startswith((b"{", b"[")):
            if raw and not raw.startswith((b"data:", b"event:")):
                bare.append(raw)
                closer = b"}" if bare[0].startswith(b"{") else b"]"
                # the first line may hold it all; of later ones only one that is not indented closes it
                if raw.rstrip().endswith(closer) and not raw.startswith((b" ", b"\t")):
                    yield _bare_event(bare)
                    bare = []
                continue
            yield _bare_event(bare)
            bare = []
        if not raw:
            if lines:
                yield SseEvent(name, "\n".join(lines))
            name, lines = "", []
            continue
        field, _, value = raw.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    if bare:
        yield _bare_event(bare)
    if lines:
        yield SseEvent(name, "\n".join(lines))


def _bare_event(lines: list[bytes]) -> SseEvent:
    return SseEvent("", b"\n".join(lines).decode("utf-8", "replace"))


def split_lines(data: bytes) -> Iterator[bytes]:
    """The lines without their ends, which are CR LF, LF or CR; at most MAX_LINES."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in islice(io.BytesIO(data), MAX_LINES):
        yield line.removesuffix(b"\n")
