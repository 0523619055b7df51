"""What differs between two runs of the same trial, and the narrowest entry of ``volatile`` that would ignore it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pytest_fanout.wire.bodies import load_json
from pytest_fanout.wire.changes import first_difference
from pytest_fanout.wire.shapes import obj, string
from pytest_fanout.wire.text import one_line

_MOST: Final = 20  # differences of one text that are looked at
_WINDOW: Final = 120  # characters around a difference in which its shape is looked for
_CONTEXT: Final = 30  # characters before a difference that stand in its entry
_MARK: Final = "\ue000"
#: Where a whole value is too much to ignore: it holds the conversation, or what the model is told of its tools.
_SPOKEN: Final = frozenset(
    {"messages", "input", "inputs", "contents", "prompt", "chat_history", "message"}
    | {"system", "instructions", "systemInstruction", "system_instruction", "preamble"}
    | {"tools", "functions", "toolConfig"}
)
#: What decides on cost or answer is never suggested: to ignore it is to measure something else.
_TELLING: Final = frozenset(
    {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stream", "temperature", "top_p"}
    | {"reasoning", "reasoning_effort", "thinking", "effort", "tool_choice", "toolChoice", "response_format", "text"}
    | {"generationConfig", "generation_config", "inferenceConfig", "config", "output_config", "service_tier"}
)
_DAY: Final = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
#: Most telling first. What is said of it, and its pattern.
_SHAPES: Final = tuple(
    (what, pattern, re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])"))
    for what, pattern in (
        ("a date and time", r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"),
        ("a fresh id", r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
        ("a date", r"\d{4}-\d{2}-\d{2}"),
        ("a date", r"\d{1,4}[./]\d{1,2}[./]\d{2,4}"),
        ("a date", rf"{_DAY},? \d{{1,2}}\.? [A-Z][a-z]+,? \d{{4}}"),
        ("a date", rf"{_DAY},? [A-Z][a-z]+ \d{{1,2}}[a-z]{{0,2}},? \d{{4}}"),
        ("a date", r"\d{1,2}\.? [A-Z][a-z]+,? \d{4}"),
        ("a date", r"[A-Z][a-z]+ \d{1,2}[a-z]{0,2},? \d{4}"),
        ("a day of the week", _DAY),
        ("a time", r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?"),
        ("a time in seconds", r"1\d{9}(?:\.\d+|\d{3})?"),
        ("an address in memory", r"0x[0-9a-fA-F]+"),
        ("a path", r"(?:/[\w.@+-]+){2,}/?"),
        ("a number", r"\d+(?:\.\d+)?"),
    )
)
_WORD: Final = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{6,}(?![A-Za-z0-9_-])")
_PIECE: Final = re.compile(r"\w+|[^\w\s]")
_SPECIAL: Final = re.compile(r"[.^$*+?{}\[\]\\|()]")


@dataclass(frozen=True, slots=True)
class Unsteady:
    """One thing that differs. ``volatile``: the entry that ignores it; None: no entry can."""

    place: str  # "messages[0] (system)", "metadata.run"
    what: str  # "a date", "a fresh id", "the same words in another order", …
    volatile: str | None = None


def unsteady_parts(recorded: bytes, requested: bytes, heard: str = "") -> tuple[Unsteady, ...]:
    """What differs between two bodies of one request, in order. Empty when they are the same question.

    Args:
        heard: all that the trial was answered before: an order of such pieces is that of results.
    """
    old, new = load_json(recorded), load_json(requested)
    try:
        if isinstance(old, dict | list) and isinstance(new, dict | list):
            return tuple(dict.fromkeys(_Walk(old, heard).parts(old, new, ())))
        texts = recorded.decode("utf-8"), requested.decode("utf-8")
    except (RecursionError, UnicodeDecodeError):
        return () if recorded == requested else (Unsteady("the body", "other bytes"),)
    return tuple(dict.fromkeys(_Walk(None, heard).texts(*texts, ())))


class _Walk:
    def __init__(self, root: Any, heard: str) -> None:
        self._root = root
        self._heard = heard

    def parts(self, old: Any, new: Any, at: tuple[str, ...]) -> Iterator[Unsteady]:
        if isinstance(old, str) and isinstance(new, str):
            yield from self.texts(old, new, at)
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in sorted({*old, *new}):
                if (key in old) != (key in new):
                    yield Unsteady(self._place((*at, key)), "a key that is not always there")
                else:
                    yield from self.parts(old[key], new[key], (*at, key))
        elif isinstance(old, list) and isinstance(new, list):
            yield from self._lists(old, new, at)
        elif old != new or type(old) is not type(new):
            yield Unsteady(self._place(at), "another value", self._pointer(at))

    def _lists(self, old: list[Any], new: list[Any], at: tuple[str, ...]) -> Iterator[Unsteady]:
        if len(old) != len(new):
            yield Unsteady(self._place(at), f"{len(old)} items, then {len(new)}")
            return
        told = [[json.dumps(item, sort_keys=True) for item in side] for side in (old, new)]
        if told[0] != told[1] and Counter(told[0]) == Counter(told[1]):
            moved = [item for item, now in zip(old, new, strict=True) if item != now]
            yield Unsteady(self._place(at), self._order([text for item in moved for text in _strings(item)], "items"))
            return
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from self.parts(before, after, (*at, str(index)))

    def texts(self, old: str, new: str, at: tuple[str, ...]) -> Iterator[Unsteady]:
        if old == new:
            return
        pieces = [_PIECE.findall(side) for side in (old, new)]
        if Counter(pieces[0]) == Counter(pieces[1]):
            moved = [piece for piece, now in zip(*pieces, strict=True) if piece != now]
            yield Unsteady(self._place(at), self._order(moved, "words"))
            return
        whole = self._whole(old, new, at)
        if whole is not None:
            yield whole
            return
        for _ in range(_MOST):
            found = _shape_at(old, new, first_difference(old, new))
            if found is None:
                break
            what, entry = found
            yield Unsteady(self._place(at), what, entry)
            old, new = (re.sub(entry, _MARK, side) for side in (old, new))
            if old == new:
                return
        yield Unsteady(self._place(at), "another text")

    def _whole(self, old: str, new: str, at: tuple[str, ...]) -> Unsteady | None:
        """The difference as one whole value, where ignoring it ignores nothing that is said to the model."""
        is_id = bool(at) and at[0] in _SPOKEN and at[-1].lower().endswith("id")
        if not at or (at[0] in _SPOKEN and not is_id):
            return None
        fits = (what for what, _, shape in _SHAPES if shape.fullmatch(old) and shape.fullmatch(new))
        what = next(fits, "a fresh id" if is_id or _is_id(old, new) else "another value")
        return Unsteady(self._place(at), what, self._pointer(at))

    def _pointer(self, at: tuple[str, ...]) -> str | None:
        if not at or at[0] in _TELLING:
            return None
        spoken = at[0] in _SPOKEN
        segments = ("*" if spoken and part.isdigit() else part for part in at)
        return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in segments)

    def _order(self, moved: list[str], what: str) -> str:
        telling = [text for text in moved if len(text) > 2]
        if telling and all(text in self._heard for text in telling):
            return "results in another order"
        return f"the same {what} in another order"

    def _place(self, at: tuple[str, ...]) -> str:
        """``messages[0] (user)``, or the path of a setting."""
        if not at:
            return "the body"
        if len(at) > 1 and at[1].isdigit() and at[0] in _SPOKEN and isinstance(self._root, dict):
            items = self._root.get(at[0])
            item = obj(items[int(at[1])]) if isinstance(items, list) and int(at[1]) < len(items) else {}
            role = string(item.get("role")) or string(item.get("type"))
            return f"{at[0]}[{at[1]}]" + (f" ({one_line(role, 30)})" if role else "")
        path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in at).lstrip(".")
        return one_line(path, 60)


def _shape_at(old: str, new: str, at: int) -> tuple[str, str] | None:
    """What stands in both texts where they begin to differ, and the entry that ignores it."""
    for what, pattern, shape in _SHAPES:
        start = _common_start(shape, old, new, at)
        if start is not None:
            return what, _with_context(old, start, pattern)
        if what == "a path":  # a word of random characters tells more than the number that it may begin with
            start = _common_start(_WORD, old, new, at)
            words = [match.group() for side in (old, new) if start is not None and (match := _WORD.match(side, start))]
            if start is not None and len(words) == 2 and _is_id(*words):
                return "a fresh id", _with_context(old, start, _id_pattern(*words))
    return None


def _common_start(shape: re.Pattern[str], old: str, new: str, at: int) -> int | None:
    """Where matches of one shape begin in both texts that hold the first difference."""
    starts = []
    for side in (old, new):
        around = shape.finditer(side, max(at - _WINDOW, 0), at + _WINDOW)
        starts.append(next((match.start() for match in around if match.start() <= at <= match.end()), None))
    return starts[0] if starts[0] is not None and starts[0] == starts[1] else None


def _is_id(old: str, new: str) -> bool:
    """Whether two words look drawn at random: of one length, with a digit in each."""
    return (
        len(old) == len(new)
        and _WORD.fullmatch(old) is not None
        and _WORD.fullmatch(new) is not None
        and all(any(c.isdigit() for c in word) for word in (old, new))
    )


def _id_pattern(old: str, new: str) -> str:
    common = old[: first_difference(old, new)]
    prefix = common[: max(common.rfind("_"), common.rfind("-")) + 1]
    rest = old[len(prefix) :], new[len(prefix) :]
    hexadecimal = all(set(word) <= set("0123456789abcdef") for word in rest)
    return f"{prefix}{'[0-9a-f]' if hexadecimal else '[A-Za-z0-9_-]'}{{{len(rest[0])}}}"


def _with_context(text: str, start: int, pattern: str) -> str:
    """The pattern behind the words that stand before it: the same shape elsewhere may be what the task is about."""
    if start == 0:
        return "^" + _grouped(pattern)
    before = text[max(start - _CONTEXT, 0) : start]
    before = before[before.rfind(_MARK) + 1 :]
    context = re.search(r"[^\d\n]*\Z", before)
    words = context.group() if context else ""
    if len(words) == len(before) == _CONTEXT:
        words = words[words.find(" ") + 1 :]  # begin with a whole word
    elif len(words) < len(before) and before[-len(words) - 1] == "\n":
        return "\\n" + _escaped(words) + _grouped(pattern)
    entry = _escaped(words) + _grouped(pattern)
    return f"[/]{entry[1:]}" if entry.startswith("/") else entry  # else it would be a pointer


def _grouped(pattern: str) -> str:
    return f"(?:{pattern})" if "|" in re.sub(r"\(\?:[^()]*\)", "", pattern) else pattern


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + match[0], text).replace("\t", "\\t").replace("\r", "\\r")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


Words = tuple[frozenset[bytes], int]


def words_of(body: bytes) -> Words:
    """The words of a body, and how many there are with those that come again, for ``likeness``."""
    words = re.findall(rb"\w+", body)
    return frozenset(words), len(words)


def likeness(old: Words, new: Words) -> int:
    """How much two bodies share: the larger, the more alike. Words that both hold count, wherever they stand, and a
    context that has grown is another one."""
    return len(old[0] & new[0]) - abs(old[1] - new[1])
