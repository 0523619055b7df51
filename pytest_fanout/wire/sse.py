"""Server-sent events out of the bytes of a whole body."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

#: First bytes of the lines that an event stream may open with.
_OPENINGS = (b"data:", b"data\n", b"event:", b"id:", b"retry:", b":")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its name ("" where none was given) and its data lines joined by a line feed."""

    name: str
    data: str


def looks_like_sse(data: bytes) -> bool:
    """Whether a body without a helpful content type is an event stream."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_OPENINGS)


def parse_sse(data: bytes) -> Iterator[SseEvent]:
    """The events in order. Never raises.

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
    """The lines without their ends, which are CR LF, LF or CR."""
    for line in io.BytesIO(data):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if b"\r" in text:
            yield from text.split(b"\r")
        else:
            yield text
