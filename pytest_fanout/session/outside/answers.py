"""What goes in and what comes out: a task's input as one JSON document, and its answer as JSON or as text. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

#: An answer longer than this is a mistake.
MOST_BYTES: Final = 50_000_000


def document_of(given: Any) -> bytes:
    """A task's input as one line of JSON in UTF-8."""
    return json.dumps(given, ensure_ascii=False).encode("utf-8") + b"\n"


def answer_of(said: bytes) -> Any:
    """An object, an array or a quoted text where all of it is one JSON document of that kind; otherwise the text as it
    is, without the line end at its end. A bare number, true, false or null stays a text.

    Raises:
        ValueError: it is not UTF-8, or too long.
    """
    if len(said) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES:,} bytes")
    try:
        text = said.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error}") from None
    if text.lstrip()[:1] in ("{", "[", '"'):
        try:
            return json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            pass
    return text.removesuffix("\n").removesuffix("\r")


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
