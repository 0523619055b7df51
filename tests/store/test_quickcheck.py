"""The quick check of a schema: its yes is jsonschema's yes, whatever the document."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from gate_world import make_run
from jsonschema import Draft202012Validator

from pytest_fanout.records import Base, Head, Verdict
from pytest_fanout.report.json import document
from pytest_fanout.store import schemas
from pytest_fanout.store.quickcheck import quick_check

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.0,
    1.5,
    2**60,
    "",
    "x",
    "sha256:" + "0" * 64,
    [],
    [None],
    {},
    {"x": 1},
)


def report() -> dict[str, Any]:
    run = make_run({"t1": [3, 4], "t2": [5]})
    made = document(run, Verdict("no-base", (), (), Base(None, "none"), Head(None)))
    plain: dict[str, Any] = json.loads(json.dumps({**made, "digest": "sha256:" + "0" * 64}))
    return plain


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    found = [at] if at else []
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            found += places(value[key], (*at, key))
    return found


def mutated(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with one thing replaced, removed or added."""
    made = copy.deepcopy(document)
    *way, last = rng.choice(places(made))
    target: Any = made
    for key in way:
        target = target[key]
    what = rng.randrange(3)
    if what == 0:
        target[last] = rng.choice(ODD)
    elif what == 1:
        del target[last]
    elif isinstance(target, dict):
        target["unheard_of"] = rng.choice(ODD)
    else:
        target.append(rng.choice(ODD))
    return made


def test_a_report_fits_quickly() -> None:
    """Else every verify would take the slow way."""
    quick = quick_check(schemas.load("report"))

    assert quick is not None
    assert quick(report())


def test_no_document_that_jsonschema_refuses_gets_a_quick_yes() -> None:
    """300 reports with one fault each, or none: most are refused, and whatever gets a yes is valid."""
    schema = schemas.load("report")
    quick, slow = quick_check(schema), Draft202012Validator(schema)
    assert quick is not None
    rng, good = random.Random(20261130), report()
    refused = 0
    for _ in range(300):
        made = mutated(good, rng)
        if quick(made):
            assert slow.is_valid(made)
        else:
            refused += 1

    assert refused > 150


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 0, "maximum": 9},
        {"type": ["string", "null"], "minLength": 1, "maxLength": 70},
        {"type": "number"},
        {"type": "boolean"},
        {"enum": [None, "x"]},
        {"enum": [0, -1]},
        {"type": "object", "minProperties": 1, "propertyNames": {"pattern": "^x"}},
        {"type": "object", "required": ["x"]},
        {"const": "x"},
        {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}]},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "additionalProperties": False, "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"$ref": "#/$defs/me", "$defs": {"me": {"type": ["array", "null"], "items": {"$ref": "#/$defs/me"}}}},
    ],
)
def test_each_rule_says_yes_only_where_jsonschema_does(schema: dict[str, Any], value: Any) -> None:
    """And a no only where it does, or where a float stands for an integer: that is left to jsonschema."""
    quick = quick_check(schema)
    assert quick is not None

    valid = Draft202012Validator(schema).is_valid(value)

    assert quick(value) == valid or (valid and isinstance(value, float))
    assert not (quick(value) and not valid)


ROWS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"anyOf": [{"type": "null"}, {"const": "x"}]}},
    },
}


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([{"a": 1}, {"a": 2}], True),
        ([{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 3}], True),
        ([{"a": 1, "b": None}, {"a": 2, "b": "y"}], False),
        ([{"a": 1}, {"b": "x"}], False),  # as many keys each, and not the same
        ([{"a": 1}, {"a": -1}], False),
        ([{"a": 1}, {"a": True}], False),
        ([{"a": 1}, {"a": 1, "c": 1}], False),
        ([{"b": None}, {"b": None}], False),
        ([{"a": 1}, None], False),
    ],
)
def test_rows_are_looked_at_by_column_and_one_that_does_not_fit_is_seen(rows: list[Any], fits: bool) -> None:
    """Each of them has its own keys, and each value its own type."""
    quick = quick_check(ROWS)
    assert quick is not None

    assert quick(rows) is fits
    assert Draft202012Validator(ROWS).is_valid(rows) is fits


@pytest.mark.parametrize("schema", [{"oneOf": []}, {"enum": [1, True]}, {"$ref": "other.json"}, {"if": {}}])
def test_a_rule_that_is_not_known_has_no_quick_way(schema: dict[str, Any]) -> None:
    """Then jsonschema looks at every document."""
    assert quick_check(schema) is None
