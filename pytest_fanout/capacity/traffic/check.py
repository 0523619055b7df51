"""Numbers that no trace can hold: a row that has one is named, and nothing is worked out from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_fanout.capacity.traffic.measures import rows_of
from pytest_fanout.capacity.traffic.steps import TIMES, WRITTEN

Expression = Any
_WORDS = {
    "input": "input tokens",
    "cached": "cached input tokens",
    "output": "output tokens",
    "duration_ms": "duration in ms",
    "fanout": "fanout",
    "tool_calls": "tool calls",
    "started": "start",
    "ended": "end",
}

#: From the first of these years to before the second a trace may have been written.
_YEARS = (1970, 2200)


@dataclass(frozen=True, slots=True)
class BadRow:
    """The first row that cannot be. ``file`` None: the rows are no files. ``ids``: what to look for in it."""

    what: str
    field: str
    file: str | None
    ids: tuple[str, ...]


def marked(steps: Expression) -> Expression:
    """The rows that cannot be, each with its fault."""
    import ibis

    faults = []
    for name in WRITTEN:
        text, value = steps[f"text_{name}"], steps[name]
        said = text.try_cast("float64")
        none = said.isnull() | said.isnan() | said.isinf() | (said != said.floor())
        faults.append((text.notnull() & none.fill_null(True), f"text_{name}"))
        faults.append((value < 0, name))
    faults += [(steps[f"text_{name}"].notnull() & steps[name].isnull(), f"text_{name}") for name in TIMES]
    # a whole number is taken for seconds: one of milliseconds is a year of five digits
    first, last = (ibis.literal(f"{year}-01-01").cast("timestamp") for year in _YEARS)
    faults += [((steps[name] < first) | (steps[name] >= last), name) for name in TIMES]
    faults.append((steps.cached > steps.input, "cached_over_input"))
    faults.append((steps.ended < steps.started, "ended"))
    fault = ibis.cases(*[(found.fill_null(False), ibis.literal(label)) for found, label in faults], else_=None)
    # as texts: Python knows no year above 9999
    named = steps.mutate(fault=fault, **{name: steps[name].cast("string") for name in TIMES})
    return named.filter(named.fault.notnull())


def bad_row(steps: Expression) -> BadRow | None:
    """One row that cannot be; None: every row can."""
    found = rows_of(marked(steps).limit(1))
    if not found:
        return None
    row = found[0]
    ids = tuple(str(row[name]) for name in ("span", "task") if row[name] is not None)
    return BadRow(_what(row), row["fault"].removeprefix("text_"), row["file"], ids)


def _what(row: dict[str, Any]) -> str:
    fault = row["fault"]
    if fault == "cached_over_input":
        return f"cached input tokens ({row['cached']:,}) are more than input tokens ({row['input']:,})"
    if fault == "ended":
        return f"it ends ({row['ended']}) before it starts ({row['started']})"
    if fault.startswith("text_"):
        name = fault.removeprefix("text_")
        return f"{_WORDS[name]}: {row[fault]!r} is no {'time' if name in TIMES else 'whole number'}"
    if fault in TIMES:
        return f"{_WORDS[fault]}: {row[fault]} is no time of a trace; a time in whole numbers is in seconds"
    return f"{_WORDS[fault]}: {row[fault]:,} is below 0"
