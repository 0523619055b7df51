"""Values that recorded tools take and give come back exactly, or are refused by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import subprocess
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.session.values import Unrecordable, error_to_json, from_json, to_json


class Colour(enum.Enum):
    RED = "r"


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class Checked:
    ran: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.ran = True


class Odd(Exception):
    def __init__(self, needs: str, two: int) -> None:
        super().__init__(f"{needs} {two}")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        ("ß\ud800", "ß\ud800"),
        (1.5, 1.5),
        ([1, [2]], [1, [2]]),
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        ((1, "x"), {"$tuple": [1, "x"]}),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"b", "a"}), {"$frozenset": ["a", "b"]}),
        (b"\x00\xff", {"$bytes": "AP8="}),
        ({1: "one"}, {"$map": [[1, "one"]]}),
        ({"$tuple": [1]}, {"$map": [["$tuple", [1]]]}),
        (math.inf, {"$float": "inf"}),
        (dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), {"$datetime": "2026-01-02T03:04:05.000006+00:00"}),
        (dt.date(2026, 1, 2), {"$date": "2026-01-02"}),
        (dt.time(3, 4), {"$time": "03:04:00"}),
        (dt.timedelta(1, 2, 3), {"$timedelta": [1, 2, 3]}),
        (decimal.Decimal("1.50"), {"$decimal": "1.50"}),
        (uuid.UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
        (pathlib.Path("a/b"), {"$path": "a/b"}),
        (Colour.RED, {"$enum": ["test_values:Colour", "RED"]}),
        (Point(1, ("t",)), {"$object": ["test_values:Point", {"x": 1, "tags": {"$tuple": ["t"]}}]}),
        (Checked(), {"$object": ["test_values:Checked", {"ran": True}]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_have_one_form_and_come_back(value: Any, form: Any) -> None:
    """What is written is as the table says; read again it is equal, and of the same type."""
    assert to_json(value) == form
    again = from_json(json.loads(json.dumps(form)))
    assert (type(again), again) == (type(value), value)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.sampled_from(["$tuple", "$map", "$x"]) | st.integers(), inner)
        | st.sets(st.integers() | st.text())
    ),
)


@given(_VALUES)
def test_any_value_comes_back(value: Any) -> None:
    """However values are put together, JSON and back gives the very value; nothing is taken for a mark of ours."""
    again = from_json(json.loads(json.dumps(to_json(value))))
    assert (again, repr(again)) == (value, repr(value)) or isinstance(value, set | dict | list | tuple)
    assert again == value


@pytest.mark.parametrize(
    "error",
    [ValueError("no", 3), KeyError("k"), FileNotFoundError(2, "gone"), subprocess.CalledProcessError(1, ["ls"])],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_come_back(error: Exception) -> None:
    """Class, arguments and text of an exception are the same again."""
    again = from_json(json.loads(json.dumps(error_to_json(error))))
    assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))


def _local() -> Exception:
    class Local(Exception):
        pass

    return Local("x")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: to_json(object(), "session"), "session is of the type builtins.object, which cannot be recorded"),
        (
            lambda: to_json({"a": [1, {2j}]}, "x"),
            "an item of x['a'][1] is of the type builtins.complex, which cannot be recorded",
        ),
        (lambda: to_json(True.__class__, "x"), "x is of the type builtins.type, which cannot be recorded"),
        (lambda: error_to_json(Odd("a", 2)), "test_values.Odd cannot be built again from its arguments"),
        (
            lambda: error_to_json(_local()),
            "the class test_values._local.<locals>.Local cannot be found by its name",
        ),
    ],
    ids=["object", "inside", "class", "odd-exception", "local-exception"],
)
def test_what_cannot_come_back_is_refused_by_name(make: Any, text: str) -> None:
    """A value that would come back as something else is no silent approximation."""
    with pytest.raises(Unrecordable) as raised:
        make()
    assert str(raised.value) == text


def test_endless_values_are_refused() -> None:
    """A list that holds itself has no form."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Unrecordable, match="nested deeper than 200 levels"):
        to_json(endless, "x")


@pytest.mark.parametrize(
    "document",
    [
        {"$nothing": 1},
        {"$tuple": 3},
        {"$bytes": "?"},
        {"$decimal": "x"},
        {"$object": ["no.such:Thing", {}]},
        {"$object": ["builtins:print", {}]},
        {"$error": ["builtins:SystemExit", []]},
        {"$object": ["test_values:Point", {"x": 1}]},
    ],
    ids=["mark", "tuple", "bytes", "decimal", "module", "function", "no-exception", "fields"],
)
def test_what_was_altered_is_a_value_error(document: Any) -> None:
    """Only what was written is read: no other class is made and nothing else is called."""
    with pytest.raises(ValueError):
        from_json(document)
