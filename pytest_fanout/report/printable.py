"""Text that is safe to print: control characters escaped, display width known, lines never wider than asked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Controls, format characters (bidi overrides, zero-width), surrogates, line separators, private use, unassigned.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ASCII = str.maketrans(
    {
        "→": "->", "…": "...", "–": "-", "—": "-", "·": "-", "•": "*", "×": "x", "≤": "<=", "≥": ">=",
        "“": '"', "”": '"', "‘": "'", "’": "'", "─": "-", "│": "|", "═": "=", "║": "|", "\xa0": " ",
    }
)  # fmt: skip
_PLAIN = re.compile(r"[ -~]*\Z")


def _backslashed(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape(text: str, *, ascii_only: bool = False) -> str:
    """``text`` on one line and without anything that steers a terminal; ``\\x1b`` becomes four visible characters.

    With ``ascii_only`` arrows, dashes, quotes and ellipses are spelled in ASCII, other characters backslash-escaped.
    ``##[``, which a build log of GitHub Actions may read as a command, is broken up.
    """
    if ascii_only:
        text = text.translate(_ASCII)
    if not _PLAIN.match(text):
        text = "".join(
            _backslashed(char)
            if unicodedata.category(char) in _UNPRINTABLE or (ascii_only and not char.isascii())
            else char
            for char in text
        )
    return text.replace("##[", "#\\#[")


def char_width(char: str) -> int:
    """Terminal columns of one printable character: 2 for wide East Asian ones, 0 for combining marks."""
    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def width(text: str) -> int:
    """Terminal columns of an escaped text."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def _head(text: str, columns: int) -> tuple[str, str]:
    """The longest beginning that fits, never empty, and the rest."""
    used = 0
    for index, char in enumerate(text):
        used += char_width(char)
        if used > columns and index:
            return text[:index], text[index:]
    return text, ""


def wrap(text: str, columns: int) -> Iterator[str]:
    """Lines of at most ``columns``, broken at spaces, inside words only where a word is too long."""
    line = ""
    for word in text.split(" "):
        while True:
            candidate = f"{line} {word}" if line else word
            if width(candidate) <= columns:
                line = candidate
                break
            if line:
                yield line
                line = ""
                continue
            head, word = _head(word, columns)
            yield head
            if not word:
                break
    if line:
        yield line
