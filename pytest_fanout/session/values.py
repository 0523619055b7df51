"""Python values as JSON and back, exactly: what a recorded tool was called with, and what it returned or raised.

JSON's own values stand for themselves. Everything else is an object of one key that begins with ``$``:

    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}  {"$bytes": "base64"}  {"$map": [[key, value], ...]}
    {"$float": "nan"}  {"$datetime": "ISO"}  {"$date": "ISO"}  {"$time": "ISO"}  {"$timedelta": [days, s, us]}
    {"$decimal": "1.50"}  {"$uuid": "..."}  {"$path": "..."}  {"$enum": ["module:Class", name]}
    {"$object": ["module:Class", {field: value}]}  a dataclass, built again without calling its ``__init__``
    {"$error": ["module:Class", [argument, ...]]}  an exception

Nothing is pickled: a recording is a text that a reviewer reads. Classes are looked up by name and must be what the key
says.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import importlib
import json
import math
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

_PLAIN = frozenset({type(None), bool, int, str})
_MAX_DEPTH = 200


class Unrecordable(Exception):
    """A value has no exact form here; the text says which one, and where it stands."""


def to_json(value: Any, at: str = "") -> Any:
    """The JSON form of a value.

    Raises:
        Unrecordable: it, or something in it, could not be given back as it is. ``at`` is what the text calls it.
    """
    return _to_json(value, at, 0)


def _to_json(value: Any, at: str, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _MAX_DEPTH:
        raise Unrecordable(f"{at} is nested deeper than {_MAX_DEPTH} levels")
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [_to_json(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(value)]
    if kind is dict:
        return _map(value, at, depth)
    if kind is tuple:
        return {"$tuple": [_to_json(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(value)]}
    if kind in (set, frozenset):
        # the order of a set differs from run to run
        items = [_to_json(item, f"an item of {at}", depth + 1) for item in value]
        return {f"${kind.__name__}": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    return _special(value, at, depth)


def _map(value: dict[Any, Any], at: str, depth: int) -> Any:
    if all(type(key) is str for key in value) and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: _to_json(item, f"{at}[{key!r}]", depth + 1) for key, item in value.items()}
    pairs = value.items()
    return {
        "$map": [
            [_to_json(key, f"a key of {at}", depth + 1), _to_json(item, f"{at}[{key!r}]", depth + 1)]
            for key, item in pairs
        ]
    }


def _special(value: Any, at: str, depth: int) -> Any:
    kind = type(value)
    if kind is datetime.datetime and (value.tzinfo is None or type(value.tzinfo) is datetime.timezone):
        return {"$datetime": value.isoformat()}
    if kind is datetime.date:
        return {"$date": value.isoformat()}
    if kind is datetime.time and value.tzinfo is None:
        return {"$time": value.isoformat()}
    if kind is datetime.timedelta:
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    if kind is decimal.Decimal:
        return {"$decimal": str(value)}
    if kind is uuid.UUID:
        return {"$uuid": str(value)}
    if isinstance(value, pathlib.Path) and kind is type(pathlib.Path()):
        return {"$path": value.as_posix()}
    if isinstance(value, enum.Enum) and _found(kind) and value.name is not None:
        return {"$enum": [_name(kind), value.name]}
    if dataclasses.is_dataclass(kind) and _found(kind):
        names = [field.name for field in dataclasses.fields(value)]
        extra = set(getattr(value, "__dict__", {})) - set(names)
        if not extra:
            return {"$object": [_name(kind), {n: _to_json(getattr(value, n), f"{at}.{n}", depth + 1) for n in names}]}
    raise Unrecordable(f"{at} is of the type {_name(kind).replace(':', '.')}, which cannot be recorded")


def error_to_json(error: Exception) -> Any:
    """The JSON form of an exception: its class and arguments.

    Raises:
        Unrecordable: the class cannot be found by its name, or cannot be built from these arguments again.
    """
    kind = type(error)
    made = {"$error": [_name(kind), [_to_json(arg, f"args[{n}]", 0) for n, arg in enumerate(error.args)]]}
    if not _found(kind):
        raise Unrecordable(f"the class {_name(kind).replace(':', '.')} cannot be found by its name")
    try:
        again = from_json(made)
    except ValueError:
        again = None
    if type(again) is not kind or str(again) != str(error):
        raise Unrecordable(f"{_name(kind).replace(':', '.')} cannot be built again from its arguments")
    return made


def from_json(document: Any) -> Any:
    """The value that ``to_json`` or ``error_to_json`` wrote.

    Raises:
        ValueError: it is not as they write it, or a class is not there any more.
    """
    if isinstance(document, list):
        return [from_json(item) for item in document]
    if not isinstance(document, dict):
        return document
    key = next(iter(document), "")
    if len(document) != 1 or not key.startswith("$"):
        return {name: from_json(item) for name, item in document.items()}
    try:
        return _READERS[key](document[key])
    except (KeyError, TypeError, ArithmeticError, AttributeError, ImportError) as error:
        raise ValueError(f"{key} cannot be read: {type(error).__name__}: {error}") from None


def _object(parts: Any) -> Any:
    kind = _class(parts[0])
    if not dataclasses.is_dataclass(kind):
        raise ValueError(f"{parts[0]} is no dataclass any more")
    fields = {field.name for field in dataclasses.fields(kind)}
    if fields != set(parts[1]):
        raise ValueError(f"the fields of {parts[0]} have changed")
    made = object.__new__(kind)
    for name, value in parts[1].items():
        object.__setattr__(made, name, from_json(value))
    return made


def _error(parts: Any) -> Any:
    kind = _class(parts[0])
    if not issubclass(kind, Exception):
        raise ValueError(f"{parts[0]} is no exception")
    return kind(*(from_json(arg) for arg in parts[1]))


def _enum(parts: Any) -> Any:
    kind = _class(parts[0])
    if not issubclass(kind, enum.Enum):
        raise ValueError(f"{parts[0]} is no enumeration any more")
    return kind[parts[1]]


_READERS: dict[str, Callable[[Any], Any]] = {
    "$tuple": lambda items: tuple(from_json(item) for item in items),
    "$set": lambda items: {from_json(item) for item in items},
    "$frozenset": lambda items: frozenset(from_json(item) for item in items),
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$map": lambda pairs: {from_json(key): from_json(value) for key, value in pairs},
    "$float": float,
    "$datetime": datetime.datetime.fromisoformat,
    "$date": datetime.date.fromisoformat,
    "$time": datetime.time.fromisoformat,
    "$timedelta": lambda parts: datetime.timedelta(*parts),
    "$decimal": decimal.Decimal,
    "$uuid": uuid.UUID,
    "$path": pathlib.Path,
    "$enum": _enum,
    "$object": _object,
    "$error": _error,
}


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise ValueError(f"{name} is no class")
    return found


def _found(kind: type) -> bool:
    try:
        return _class(_name(kind)) is kind
    except (ImportError, AttributeError, ValueError):
        return False
