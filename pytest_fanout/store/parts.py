"""Growing contexts stored once: what a trial sends again is a reference to where it stood first.

An agent resends its whole context with each call, so that storage would grow with calls times context. Here every list
element and every text of at least 80 bytes that occurs again in a trial becomes a numbered *part*, and a text that
begins like an earlier one keeps only its new end. Five forms stand for JSON values, each an object of just these keys:

    {"$part": 3}                            the value of part 3
    {"$parts": [3, 40]}                     in a list: the values of the parts 3 to 39, one after the other
    {"$part": 3, "upto": 120}               the first 120 characters (code points) of part 3, a text
    {"$join": [{"$part": 3, …}, "rest"]}    texts put together
    {"$literal": {…}}                       an object that itself has one of these keys; its values are read as usual

What a model answers is sent back to it with the next request. So a JSON text that was heard, which has to come back
byte for byte, may be a ``$join`` too, in which {"$part": 3, "as": "json"} stands for a text as JSON writes it
("ascii": with all but ASCII escaped).

Writing is exact: ``Unpacker`` gives back the very value. Parts refer to lower numbers only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

MIN_SIZE = 80
MIN_SHARED = 120  # characters that a text must share with an earlier one; a reference costs about 40
RECENT = 32  # earlier texts with the same beginning that are looked at
_ENCODE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False).encode
RESERVED = frozenset({"$part", "$parts", "$join", "$literal"})


class Packer:
    """Writes the bodies of one trial. All of them are needed first: only what occurs twice becomes a part."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._count: dict[str, int] = {}
        self._shares: dict[str, tuple[str, int]] = {}  # text -> (earlier text, characters shared)
        self._beginnings: dict[str, list[str]] = {}
        self._numbers: dict[str, int] = {}
        self._new: list[Any] = []
        for value in values:
            self._observe(value)

    def pack(self, value: Any) -> tuple[Any, list[Any]]:
        """The stored form of a value, and the parts that must stand before it, numbered on from the last call's."""
        self._new = []
        packed = self._pack(value)
        return packed, self._new

    def pack_written(self, text: str, inside: Iterable[str]) -> tuple[Any, list[Any]]:
        """The same of a JSON text that must come back as it is; of the texts ``inside`` it some may be parts."""
        self._new = []
        pieces: list[Any] = []
        rest = text
        for value in inside:
            key = _key(value)
            if key is None or self._count.get(key, 0) < 2:
                continue
            for style, written in _written(value):
                before, found, after = rest.partition(written)
                if found:
                    pieces += [before, {**self._refer(key, value), "as": style}]
                    rest = after
                    break
        return ({"$join": [*pieces, rest]} if pieces else text), self._new

    def _observe(self, value: Any) -> None:
        if isinstance(value, str):
            key = _key(value)
            if key is not None and self._seen_first(key):
                self._find_shared(value)
        elif isinstance(value, list):
            for item in value:
                key = None if isinstance(item, str) else _key(item)
                if key is None or self._seen_first(key):
                    self._observe(item)
        elif isinstance(value, dict):
            for name in sorted(value):
                self._observe(value[name])

    def _seen_first(self, key: str) -> bool:
        self._count[key] = self._count.get(key, 0) + 1
        return self._count[key] == 1

    def _find_shared(self, text: str) -> None:
        family = self._beginnings.setdefault(text[:MIN_SIZE], [])
        best, length = None, MIN_SHARED - 1
        for earlier in family[-RECENT:]:
            shared = _shared(text, earlier, length)
            if shared > length:
                best, length = earlier, shared
        if best is not None:
            self._shares[text] = (best, length)
            self._count[_text_key(best)] += 1  # it must be a part, to be referred to
        family.append(text)

    def _pack(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._refer(_key(value), value)
        if isinstance(value, list):
            return _in_runs(
                [self._pack(item) if isinstance(item, str) else self._refer(_key(item), item) for item in value]
            )
        if isinstance(value, dict):
            packed = {name: self._pack(value[name]) for name in sorted(value)}
            return {"$literal": packed} if RESERVED & packed.keys() else packed
        return value

    def _refer(self, key: str | None, value: Any) -> Any:
        if key is None or self._count[key] < 2:
            return self._inside(value)
        if key not in self._numbers:
            packed = self._inside(value)  # first: parts refer to lower numbers only
            self._numbers[key] = len(self._numbers)
            self._new.append(packed)
        return {"$part": self._numbers[key]}

    def _inside(self, value: Any) -> Any:
        if not isinstance(value, str):
            return self._pack(value)
        if value not in self._shares:
            return value
        earlier, length = self._shares[value]
        beginning: dict[str, Any] = self._refer(_text_key(earlier), earlier)
        if length < len(earlier):
            beginning["upto"] = length
        return {"$join": [beginning, value[length:]]}


def _written(text: str) -> Iterator[tuple[str, str]]:
    """How a text may stand inside JSON, without the quotes, and what that is called."""
    yield "json", _ENCODE(text)[1:-1]
    yield "ascii", json.dumps(text)[1:-1]


def _in_runs(items: list[Any]) -> list[Any]:
    """A packed list, neighbouring parts that stand side by side in it told at once."""
    out: list[Any] = []
    first = last = -1
    for item in items:
        number = item["$part"] if isinstance(item, dict) and item.keys() == {"$part"} else -1
        if number >= 0 and number == last + 1 and first >= 0:
            out[-1], last = {"$parts": [first, number + 1]}, number
            continue
        out.append(item)
        first = last = number
    return out


def _text_key(text: str) -> str:
    return '"' + text


def _key(value: Any) -> str | None:
    """What makes two values the same; None when a value is too small to be worth a reference."""
    if isinstance(value, str):
        return (
            _text_key(value)
            if len(value) >= MIN_SIZE or len(value.encode("utf-8", "surrogatepass")) >= MIN_SIZE
            else None
        )
    if not isinstance(value, list | dict):
        return None
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)
    return text if len(text) >= MIN_SIZE else None


def _shared(left: str, right: str, above: int) -> int:
    """How many characters two texts have in common at their beginning; 0 when not more than ``above``."""
    low, high = above + 1, min(len(left), len(right))
    if low > high or left[:low] != right[:low]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Unpacker:
    """Reads what ``Packer`` wrote. Anything else is a ValueError that says what is wrong."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._texts: list[str] = []

    def add(self, number: Any, value: Any) -> None:
        """Take in part ``number``; parts come in order from 0."""
        if type(number) is not int or number != len(self._parts):
            raise ValueError(f"part must be {len(self._parts)}")
        text = self.text(value)
        self._parts.append(self.unpack(value))
        self._texts.append(text)

    def text(self, value: Any) -> str:
        """The packed value as JSON text, keys sorted, no spaces: the text of each part is made once.

        This is what makes loading cheap: a context of 60 KB is put together from a few texts.
        """
        if isinstance(value, dict):
            if RESERVED.isdisjoint(value):
                return "{" + ",".join(f"{_ENCODE(name)}:{self.text(value[name])}" for name in sorted(value)) + "}"
            if len(value) == 1 and "$part" in value:
                self._part(value)  # a reference that cannot be followed is told
                return self._texts[value["$part"]]
            return _ENCODE(self.unpack(value))
        if isinstance(value, list):
            texts: list[str] = []
            for item in value:
                if isinstance(item, dict) and "$parts" in item:
                    first, end = self._run(item)
                    texts += self._texts[first:end]
                else:
                    texts.append(self.text(item))
            return "[" + ",".join(texts) + "]"
        return _ENCODE(value)

    def written(self, form: Any) -> str:
        """The JSON text that ``pack_written`` was given."""
        if isinstance(form, str):
            return form
        if not isinstance(form, dict) or form.keys() != {"$join"} or not isinstance(form["$join"], list):
            raise ValueError("a text that was heard must be a text or a $join")
        return "".join(piece if isinstance(piece, str) else self._inside_json(piece) for piece in form["$join"])

    def _inside_json(self, reference: Any) -> str:
        if not isinstance(reference, dict) or reference.keys() != {"$part", "as"}:
            raise ValueError("$join puts together something that is no text")
        part = self._part({"$part": reference["$part"]})
        style = reference["as"]
        if not isinstance(part, str) or style not in ("json", "ascii"):
            raise ValueError(f"part {reference['$part']} cannot be written as {style!r}")
        return self._texts[reference["$part"]][1:-1] if style == "json" else json.dumps(part)[1:-1]

    def unpack(self, value: Any) -> Any:
        """The value that was packed."""
        if isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if isinstance(item, dict) and "$parts" in item:
                    first, end = self._run(item)
                    items += self._parts[first:end]
                else:
                    items.append(self.unpack(item))
            return items
        if not isinstance(value, dict):
            return value
        if RESERVED.isdisjoint(value):
            return {name: self.unpack(item) for name, item in value.items()}
        if "$part" in value and value.keys() <= {"$part", "upto"}:
            return self._part(value)
        if "$join" in value and len(value) == 1 and isinstance(value["$join"], list):
            texts = [self._part(item) if isinstance(item, dict) else item for item in value["$join"]]
            if all(isinstance(text, str) for text in texts):
                return "".join(texts)
            raise ValueError("$join puts together something that is no text")
        if "$literal" in value and len(value) == 1 and isinstance(value["$literal"], dict):
            return {name: self.unpack(item) for name, item in value["$literal"].items()}
        raise ValueError(f"an object mixes {', '.join(sorted(RESERVED & value.keys()))} with other keys")

    def _run(self, reference: dict[str, Any]) -> tuple[int, int]:
        """From which part, and up to which one, an element of a list stands for several."""
        run = reference["$parts"]
        if len(reference) != 1 or not isinstance(run, list) or [type(number) for number in run] != [int, int]:
            raise ValueError("$parts must be two numbers")
        if not 0 <= run[0] < run[1] <= len(self._parts):
            raise ValueError(f"refers to the parts {run[0]} to {run[1] - 1}, which do not all stand before it")
        return run[0], run[1]

    def _part(self, reference: dict[str, Any]) -> Any:
        number, upto = reference.get("$part"), reference.get("upto")
        if type(number) is not int or not 0 <= number < len(self._parts):
            raise ValueError(f"refers to part {number!r}, which does not stand before it")
        part = self._parts[number]
        if upto is None and "upto" not in reference:
            return part
        if type(upto) is not int or not isinstance(part, str) or not 0 <= upto <= len(part):
            raise ValueError(f"upto {upto!r} does not fit part {number}")
        return part[:upto]
