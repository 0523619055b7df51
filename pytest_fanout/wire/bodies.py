"""From the bytes of a body to text or JSON: content decoding with a cap, and JSON loading that never raises."""

from __future__ import annotations

import contextlib
import importlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_fanout.wire.eventstream import looks_like_frames

#: Decompressed bytes that are looked at; a body that unfolds to more is cut here.
MAX_DECODED: Final = 64 * 1024 * 1024
#: Codings stacked on one body that are undone; HTTP has no use for more.
_MAX_CODINGS: Final = 4
#: Bytes that are fed at once to a library that cannot limit its output.
_STEP: Final = 64
#: Values that a JSON text may hold, so that what it unfolds to stays within a few hundred megabytes.
MAX_VALUES: Final = 8_000_000
#: gzip members that are undone; each costs a copy of what is left.
_MAX_MEMBERS: Final = 64

Headers = Mapping[str, str] | Iterable[tuple[str, str]] | None


class _NotJson:
    """The type of NOT_JSON."""

    def __repr__(self) -> str:
        return "NOT_JSON"


#: What ``load_json`` returns for bytes that are no JSON text (None is JSON's null).
NOT_JSON: Final = _NotJson()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body without its content codings. ``notes``: undecodable, truncated_encoding, too_large."""

    data: bytes
    notes: tuple[str, ...] = ()


def header_map(headers: Headers) -> dict[str, str]:
    """Headers with names in lower case; repeated ones joined by a comma. What is no header is left out."""
    found: dict[str, str] = {}
    try:
        pairs = list(headers.items() if isinstance(headers, (dict, Mapping)) else headers or ())
    except Exception:  # a foreign mapping or iterator; its failure must not become the agent's
        return found
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            continue
        name, value = pair
        if isinstance(name, bytes):
            name = name.decode("latin-1")
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(name, str) and isinstance(value, str):
            key = name.strip().lower()
            found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def decode(body: bytes, content_encoding: str | None) -> Decoded:
    """Undo gzip, deflate, and (where a library is installed) br and zstd, up to MAX_DECODED bytes.

    Clients and cassettes often keep the header after they decoded the body, so a body that plainly is text already
    is returned as it stands.
    """
    codings = [c.strip().lower() for c in (content_encoding or "").split(",")]
    codings = [c for c in codings if c and c != "identity"]
    if len(codings) > _MAX_CODINGS:
        return Decoded(body, ("undecodable",))
    data = body
    notes: list[str] = []
    for coding in reversed(codings):
        if not data or _is_plain(data):
            break
        if coding in ("gzip", "x-gzip"):
            step = _inflate(data, zlib.MAX_WBITS | 16)
        elif coding == "deflate":
            # The name means zlib, yet some servers send the raw stream.
            step = _inflate(data, zlib.MAX_WBITS) or _inflate(data, -zlib.MAX_WBITS)
        elif coding == "br":
            step = _brotli(data)
        elif coding == "zstd":
            step = _zstd(data)
        else:
            step = None
        if step is None:
            return Decoded(b"", (*notes, "undecodable"))
        data = step.data
        notes.extend(step.notes)
    if len(data) > MAX_DECODED:
        data = data[:MAX_DECODED]
        notes.append("too_large")
    return Decoded(data, tuple(dict.fromkeys(notes)))


def _is_plain(data: bytes) -> bool:
    """Whether the bytes already are JSON or a stream of events or frames rather than compressed."""
    if looks_like_frames(data):
        return True
    head = data[:64].lstrip()
    if not head.startswith((b"{", b"[", b"data:", b"event:", b"id:", b"retry:", b":")):
        return False
    try:
        data[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > 4090  # a character cut by the slice
    return b"\0" not in data[:4096]


def _inflate(data: bytes, wbits: int) -> Decoded | None:
    """All members of a gzip or zlib stream; None when not even the first begins."""
    out: list[bytes] = []
    size = 0
    for _ in range(_MAX_MEMBERS):
        if not data:
            return Decoded(b"".join(out))
        unpack = zlib.decompressobj(wbits)
        try:
            piece = unpack.decompress(data, MAX_DECODED - size + 1)
        except zlib.error:
            if not size:
                return None
            return Decoded(b"".join(out), ("truncated_encoding",))
        out.append(piece)
        size += len(piece)
        if size > MAX_DECODED:
            return Decoded(b"".join(out)[:MAX_DECODED], ("too_large",))
        if not unpack.eof:
            return Decoded(b"".join(out), ("truncated_encoding",))
        data = unpack.unused_data.lstrip(b"\0")
    return Decoded(b"".join(out), ("too_large",) if data else ())


def _brotli(data: bytes) -> Decoded | None:
    try:
        import brotli  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        try:
            import brotlicffi as brotli  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            return None
    unpack = brotli.Decompressor()
    return _stepwise(data, unpack.process, unpack.is_finished)


def _zstd(data: bytes) -> Decoded | None:
    new = _zstd_maker()
    if new is None:
        return None
    unpack = new()

    def feed(piece: bytes) -> bytes:
        nonlocal unpack
        made: bytes = b""
        while piece:  # a body may hold several frames, each read by an object of its own
            if unpack.eof:
                unpack = new()
            made += unpack.decompress(piece)
            piece = unpack.unused_data if unpack.eof else b""
        return made

    return _stepwise(data, feed, lambda: bool(unpack.eof))


def _zstd_maker() -> Callable[[], Any] | None:
    """Makes decompressors of one frame, from whichever library is there: a package, or Python's own from 3.14."""
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]

        maker: Callable[[], Any] = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj
        return maker
    except ImportError:
        pass
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            own: Callable[[], Any] = importlib.import_module(name).ZstdDecompressor
            return own
    return None


def _stepwise(data: bytes, feed: Callable[[bytes], bytes], is_finished: Callable[[], bool]) -> Decoded | None:
    """Undo a coding in small steps, because not every version of its library can limit what a step unfolds to."""
    out: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(data), _STEP):
            piece = feed(data[at : at + _STEP])
            out.append(piece)
            size += len(piece)
            if size > MAX_DECODED:
                return Decoded(b"".join(out)[:MAX_DECODED], ("too_large",))
        if is_finished():
            return Decoded(b"".join(out))
    except Exception:  # each library has an error class of its own
        pass
    return Decoded(b"".join(out), ("truncated_encoding",)) if size else None


def load_json(data: bytes | str) -> Any:
    """The JSON value, or NOT_JSON, also for one of more than MAX_VALUES values.

    Bytes that are no UTF-8 are replaced; integers beyond 2**63 become infinity.
    """
    if len(data) > MAX_VALUES and _count_values(data) > MAX_VALUES:
        return NOT_JSON
    text = data.decode("utf-8-sig", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return NOT_JSON
    except (RecursionError, MemoryError):
        return NOT_JSON
    except ValueError:  # an integer with more digits than Python converts
        try:
            return json.loads(text, parse_int=bounded_int)
        except (ValueError, RecursionError, MemoryError):
            return NOT_JSON


def _count_values(data: bytes | str) -> int:
    """How many values a JSON text holds at most."""
    if isinstance(data, bytes):
        return data.count(b",") + data.count(b"[") + data.count(b"{")
    return data.count(",") + data.count("[") + data.count("{")


def bounded_int(digits: str) -> int | float:
    """The integer, or infinity where the text has more digits than Python converts."""
    try:
        return int(digits)
    except ValueError:
        return float("inf")
