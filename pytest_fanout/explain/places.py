"""Where in a git diff a changed text stands: path and line of what was added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")
_LETTERS = re.compile(r"[^\W_]+")
_MOST = 5
_FEWEST = 3  # words of a text, to be found by a part of it


@dataclass(frozen=True, slots=True)
class AddedLine:
    """A line that a diff adds."""

    path: str
    number: int
    words: tuple[str, ...]
    text: str


def added_lines(diff: str) -> tuple[AddedLine, ...]:
    """The lines that a diff of git adds (``-U0`` or more), in order."""
    found: list[AddedLine] = []
    path, number, is_body = "", 0, False
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            path, is_body = "", False
        elif not is_body and line.startswith("+++ "):
            path = line[4:].strip().strip('"').removeprefix("b/")
        elif hunk := _HUNK.match(line):
            number, is_body = int(hunk.group(1)), True
        elif is_body and line.startswith("+"):
            found.append(AddedLine(path, number, _words(_unescaped(line[1:])), line[1:]))
            number += 1
        elif is_body and line.startswith(" "):
            number += 1
    return tuple(found)


def places_of(texts: Iterable[str], lines: Sequence[AddedLine]) -> tuple[str, ...]:
    """``path:line`` of the added lines that carry one of some texts, at most five.

    A text is carried where its words stand in the line one after the other, or a run of at least three words of it
    makes up what the line says. ``name\\0value`` is carried by a line that holds both.
    """
    found: dict[str, None] = {}
    for text in texts:
        name, is_setting, value = text.partition("\0")
        wanted = _words(text)
        for line in lines:
            if is_setting:
                is_carried = name in line.text and value.strip('"') in line.text
            else:
                is_carried = _carries(line.words, wanted)
            if is_carried:
                found[f"{line.path}:{line.number}"] = None
                if len(found) == _MOST:
                    return tuple(found)
    return tuple(found)


def _carries(line: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not wanted or not line:
        return False
    if _holds(line, wanted):
        return len(wanted) >= _FEWEST or len("".join(wanted)) >= 6
    # a prompt that the code breaks over several lines, or puts values into
    size = max(_FEWEST, len(line) * 2 // 3)
    return len(line) >= _FEWEST and any(
        _holds(wanted, line[start : start + size]) for start in range(max(len(line) - size + 1, 0))
    )


def _holds(whole: tuple[str, ...], part: tuple[str, ...]) -> bool:
    first = part[0]
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1) if whole[at] == first)


def _words(text: str) -> tuple[str, ...]:
    return tuple(_LETTERS.findall(text.casefold()))


def _unescaped(text: str) -> str:
    return text.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'")
