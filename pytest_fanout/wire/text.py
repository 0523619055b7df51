"""Text that came over the wire, made safe to keep and to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

#: Beyond this many characters a text is not looked at when one short line is made of it.
_LOOK_AT = 4096


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can always be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(text: str, limit: int) -> str:
    """At most ``limit`` characters on one line: runs of blanks become one, what could steer a terminal is escaped."""
    words = " ".join(text[:_LOOK_AT].split())
    line = "".join(_visible(words))
    if len(line) > limit or len(text) > _LOOK_AT:
        return line[: max(limit - 1, 0)] + "…"
    return line


def first_words(text: str, limit: int) -> str:
    """As many whole words from the start as fit into ``limit`` characters; one word longer than that is cut."""
    words = " ".join(text[:_LOOK_AT].split(None, limit + 1)[: limit + 1])
    line = "".join(_visible(words[: limit + 1]))  # what is made visible is never shorter: the rest cannot matter
    if len(line) <= limit:
        return line
    cut = line.rfind(" ", 0, limit + 1)
    return line[: cut if cut > 0 else limit]


def _visible(text: str) -> Iterator[str]:
    for character in text:
        # Categories C*: controls, formats (bidi overrides, zero width), surrogates, private use, unassigned.
        if character.isascii() and character.isprintable():
            yield character
        elif unicodedata.category(character)[0] == "C":
            code = ord(character)
            yield f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        else:
            yield character
