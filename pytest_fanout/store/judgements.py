"""The verdict that a report tells, read back as it was judged: for showing it where it cannot be judged anew."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import CallSite, ClassResult, Explanation, FleetPlan, Projection, SiteDelta, Verdict
from pytest_fanout.store.reports import AGAIN, load_document


def read_judgement(path: Path) -> Verdict:
    """The verdict as the report says it. Nothing of it has been checked against git: ``gate.verify`` does that.

    Raises:
        IntegrityError: missing, not a file, cut off, of another version, altered since it was written.
    """
    document = load_document(path)
    sites = {key: _record(CallSite, entry) for key, entry in document["call_sites"].items()}
    explanation = document["explanation"]
    if isinstance(explanation, list):  # of a version that knew sites only
        explanation = {"sites": explanation, "classes": []}
    unknown = [entry["site"] for entry in explanation["sites"] if entry["site"] not in sites]
    if unknown:
        raise IntegrityError(
            "report-malformed",
            f"names the call site {unknown[0]!r} that it does not describe",
            where=str(path),
            mend=AGAIN,
        )
    verdict: Verdict = _record(
        Verdict,
        {
            **document,
            "problems": [*document["problems"], *document["notices"]],
        },
        classes=tuple(
            _record(ClassResult, {**entry, "agent": entry["name"]})
            for entry in document["classes"]
            if entry["verdict"] is not None
        ),
        projections=tuple(_record(Projection, entry) for entry in document["capacity"]["classes"]),
        fleet=None if (fleet := document["capacity"].get("fleet")) is None else _record(FleetPlan, fleet),
        sites=tuple(
            _record(SiteDelta, {**entry, "site": None}, site=sites[entry["site"]]) for entry in explanation["sites"]
        ),
        explanations=tuple(_record(Explanation, entry) for entry in explanation["classes"]),
    )
    return verdict


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _record(kind: Any, values: Mapping[str, Any], **made: Any) -> Any:
    """A record of plain JSON values that fit the schema; keys that it has no field for are left out."""
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name in values and field.name not in made]
    return kind(**{name: _value(hints[name], values[name]) for name in names}, **made)


def _value(hint: Any, value: Any) -> Any:
    if hint is Fraction:
        return Fraction(value["exact"])
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return _record(hint, value)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        some = [argument for argument in arguments if argument is not type(None)]
        return value if value is None or len(some) != 1 else _value(some[0], value)
    if isinstance(value, list):
        each = arguments[0] if arguments else None
        return tuple(_value(each, entry) for entry in value)
    return value
