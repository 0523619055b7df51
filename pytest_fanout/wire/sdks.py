"""Which SDK has made a request, and what in it an update of that SDK has added or left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from pytest_fanout.wire.bodies import load_json
from pytest_fanout.wire.text import one_line

_PRODUCT: Final = re.compile(r"([A-Za-z][\w.+-]*(?:/[A-Za-z][\w.+-]*)*)[/ ]v?(\d[\w.+-]*)")
_MOST: Final = 6  # keys that are named
_LONGEST: Final = 80


def sdk_of(user_agent: str) -> str | None:
    """Name and version of the first product of a User-Agent, ``OpenAI/Python 2.8.0``; None where none is told."""
    found = _PRODUCT.match(user_agent.strip())
    return found.group()[:_LONGEST] if found else None


def sdk_update(before: Iterable[tuple[str, str]], after: Iterable[tuple[str, str]]) -> str | None:
    """``OpenAI/Python 2.8.0 -> 2.9.1``, when the headers of two requests name two versions of one SDK."""
    found = []
    for headers in (before, after):
        agent = next((value for name, value in headers if name == "user-agent"), "")
        found.append(_PRODUCT.match(agent))
    old, new = found
    if old is None or new is None or old.group(1) != new.group(1) or old.group(2) == new.group(2):
        return None
    return f"{old.group()[:_LONGEST]} -> {new.group(2)[:_LONGEST]}"


def without_one_sided(recorded: bytes, requested: bytes) -> tuple[bytes, bytes, str]:
    """Two bodies without the keys that stand in one of them only, and those keys in words.

    ``service_tier, tools[].strict added; user left out``. Empty where there are none, or a body is no JSON object.
    """
    old, new = load_json(recorded), load_json(requested)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return recorded, requested, ""
    gone: dict[str, None] = {}
    come: dict[str, None] = {}
    try:
        old, new = _common(old, new, "", gone, come)
        rest = [json.dumps(side, ensure_ascii=True).encode() for side in (old, new)]
    except (RecursionError, ValueError):
        return recorded, requested, ""
    told = [f"{_listed(keys)} {word}" for word, keys in (("added", come), ("left out", gone)) if keys]
    return rest[0], rest[1], "; ".join(told)


def _common(old: Any, new: Any, at: str, gone: dict[str, None], come: dict[str, None]) -> tuple[Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for side, other, found in ((old, new, gone), (new, old, come)):
            for key in side.keys() - other.keys():
                found[f"{at}.{key}".lstrip(".")] = None
        pairs = {key: _common(old[key], new[key], f"{at}.{key}", gone, come) for key in old if key in new}
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}
    if isinstance(old, list) and isinstance(new, list):
        both = [_common(before, after, f"{at}[]", gone, come) for before, after in zip(old, new, strict=False)]
        shared = len(both)
        return [pair[0] for pair in both] + old[shared:], [pair[1] for pair in both] + new[shared:]
    return old, new


def _listed(keys: dict[str, None]) -> str:
    names = sorted(keys)
    more = len(names) - _MOST
    return ", ".join(one_line(name, 40) for name in names[:_MOST]) + (f" and {more} more" if more > 0 else "")
