"""The identity of a request body: what two bodies must share to be the same question."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_fanout.errors import ConfigError
from pytest_fanout.wire.places import PROMPT, SYSTEM, TOOLS

#: Stands where a volatile text or value stood. Private-use characters: no honest body holds it.
_MARK: Final = "\ue000volatile\ue000"
_MEND: Final = "write a JSON pointer such as /metadata/run, or a regular expression that matches some text"
#: Pointers that begin with one of these, and go on with nothing but the rest, hide the question itself.
_WHOLE: Final = frozenset({"*", "model", *PROMPT, *SYSTEM, *TOOLS})
_PARTS: Final = frozenset({"*", "content", "parts", "text"})
_ANY_PROMPT: Final = "You are a helpful agent. Answer in 3 words!\nPlan briefly, step 1."
_BOUNDARY: Final = re.compile(r"multipart/[^;]+;(?:.*;)?\s*boundary=(?:\"([^\"]+)\"|([^;\s]+))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Volatile:
    """What differs from run to run without being another question. Pointers are split into their segments."""

    pointers: tuple[tuple[str, ...], ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pointers or self.patterns)


NOTHING_VOLATILE: Final = Volatile()


def compile_volatile(entries: Sequence[object], where: str) -> Volatile:
    """Read the ``volatile`` setting.

    Args:
        entries: those that start with "/" are JSON pointers (RFC 6901; a segment ``*`` stands for any key or index)
            to values that are ignored. Others are regular expressions; what they match inside a string is ignored.
        where: file and key, for the message.

    Raises:
        ConfigError: an entry that is no text, or empty, or no regular expression, or that matches the empty text or
            all of any text: with it no change of a prompt would make a recording stale.
    """
    pointers: list[tuple[str, ...]] = []
    patterns: list[re.Pattern[str]] = []
    for number, entry in enumerate(entries):
        place = f"{where}[{number}]"
        if not isinstance(entry, str) or not entry:
            raise _bad(f"{entry!r} is not a text", place)
        if entry.startswith("/"):
            segments = tuple(part.replace("~1", "/").replace("~0", "~") for part in entry.split("/")[1:])
            if segments[0] in _WHOLE and all(segment in _PARTS for segment in segments[1:]):
                raise _bad(f"{entry!r} would ignore what requests are told apart by", place)
            pointers.append(segments)
            continue
        try:
            pattern = re.compile(entry)
        except (re.error, OverflowError, RecursionError) as error:
            raise _bad(f"{entry!r} is not a regular expression: {error}", place) from None
        if pattern.fullmatch(""):
            raise _bad(f"{entry!r} matches the empty text", place)
        if not re.search(r"\w", pattern.sub("", _ANY_PROMPT)):
            raise _bad(f"{entry!r} would ignore what requests are told apart by", place)
        patterns.append(pattern)
    return Volatile(tuple(pointers), tuple(patterns))


def _bad(what: str, where: str) -> ConfigError:
    return ConfigError("bad-volatile", what, where=where, mend=_MEND)


def body_key(body: bytes, content_type: str | None, volatile: Volatile = NOTHING_VOLATILE) -> str:
    """SHA-256 (hex) of a request body as a question: order of keys and layout of JSON do not matter.

    What cannot be read without doubt (bytes that are no UTF-8, an object with a key given twice) is taken byte by
    byte: two questions must never share a key. Never raises.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return _digest("bytes", _without_boundary(body, content_type))
    try:
        document = json.loads(text, object_pairs_hook=_unique)
        for pointer in volatile.pointers:
            document = _masked(document, pointer)
        document = _replaced(document, volatile.patterns)
        told = json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError, MemoryError):
        told = _without_boundary(body, content_type).decode("utf-8")
        return _digest("text", _substituted(told, volatile.patterns).encode("utf-8"))
    return _digest("json", told.encode("ascii"))


def ignored_by(recorded: bytes, requested: bytes, volatile: Volatile) -> tuple[str, ...]:
    """The entries of ``volatile``, as they were given, that take something else out of one body than of the other."""
    before, after = (_taken(body, volatile) for body in (recorded, requested))
    return tuple(entry for entry in before if before[entry] != after[entry])


def _taken(body: bytes, volatile: Volatile) -> dict[str, list[str]]:
    """What each entry takes out of a body, as ``body_key`` does."""
    taken: dict[str, list[str]] = {}
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError, MemoryError):
        document = text
    for pointer in volatile.pointers:
        found = taken.setdefault(_entry(pointer), [])
        found += [json.dumps(value, sort_keys=True) for value in _values(document, pointer)]
        document = _masked(document, pointer)
    for pattern in volatile.patterns:
        taken.setdefault(pattern.pattern, []).extend(
            match.group() for text in _texts(document) for match in pattern.finditer(text)
        )
        document = _replaced(document, (pattern,))
    return taken


def _entry(pointer: tuple[str, ...]) -> str:
    return "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in pointer)


def _values(node: Any, pointer: tuple[str, ...]) -> Iterator[Any]:
    if not pointer:
        yield node
    elif isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else ((str(at), value) for at, value in enumerate(node))
        for key, value in items:
            if pointer[0] in ("*", key):
                yield from _values(value, pointer[1:])


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _texts(value)


def _digest(kind: str, data: bytes) -> str:
    return hashlib.sha256(kind.encode() + b"\n" + data).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _masked(node: Any, pointer: tuple[str, ...]) -> Any:
    if not pointer:
        return _MARK
    segment, rest = pointer[0], pointer[1:]
    if isinstance(node, dict):
        return {k: _masked(v, rest) if segment in ("*", k) else v for k, v in node.items()}
    if isinstance(node, list):
        return [_masked(v, rest) if segment in ("*", str(at)) else v for at, v in enumerate(node)]
    return node


def _replaced(node: Any, patterns: Iterable[re.Pattern[str]]) -> Any:
    if not patterns:
        return node
    if isinstance(node, str):
        return _substituted(node, patterns)
    if isinstance(node, dict):
        return {key: _replaced(value, patterns) for key, value in node.items()}
    if isinstance(node, list):
        return [_replaced(value, patterns) for value in node]
    return node


def _substituted(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(_MARK, text)
    return text


def _without_boundary(body: bytes, content_type: str | None) -> bytes:
    """A multipart body with its boundary, which clients draw at random, replaced by a fixed one."""
    found = _BOUNDARY.match((content_type or "")[:1000].strip())
    if not found:
        return body
    boundary = (found.group(1) or found.group(2)).encode("ascii", "replace")
    return body.replace(b"--" + boundary, b"--boundary")
