"""Typed access to JSON that may have any shape. Nothing here raises."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from pytest_fanout.wire.text import clean

#: Counts above this are no measurement; JSON readers in other languages cannot even hold them.
MAX_COUNT = 2**53


def obj(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def either(body: dict[str, Any], key: str) -> Any:
    """The value of a camelCase key, which Google's APIs read in snake_case as well."""
    value = body.get(key)
    return body.get(_snake(key)) if value is None else value


@cache
def _snake(key: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found.group().lower(), key)


def items(value: Any) -> list[Any]:
    """The array, or an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an array; whatever else it holds is left out."""
    return [item for item in items(value) if isinstance(item, dict)]


def string(value: Any) -> str | None:
    """The text if it is one and not empty, safe to write as UTF-8."""
    return clean(value) if isinstance(value, str) and value else None


def index(value: Any) -> int | None:
    """An index, or None for anything but a small non-negative integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def arguments(value: Any) -> str:
    """Tool arguments as text: a text as received, any other JSON in its compact form."""
    if isinstance(value, str):
        return clean(value)
    if value is None:
        return ""
    try:
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except (RecursionError, ValueError):
        return ""


def texts(content: Any) -> str:
    """The text of a message's content: a text, or the text parts of a list joined by line feeds."""
    if isinstance(content, str):
        return clean(content)
    parts = (part if isinstance(part, str) else string(obj(part).get("text")) for part in items(content))
    return "\n".join(clean(part) for part in parts if part)


def merge(into: dict[str, Any], new: Any) -> None:
    """Take each value of ``new`` that is not null: usage repeated in one answer is a newer snapshot, never a part."""
    for key, value in obj(new).items():
        if isinstance(value, dict):
            inner = into.get(key)
            into[key] = {
                **(inner if isinstance(inner, dict) else {}),
                **{k: v for k, v in value.items() if v is not None},
            }
        elif value is not None:
            into[key] = value
