"""Signed customers for a forecast: TOML or CSV in, an Outlook out. Nothing is guessed."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pytest_fanout.config import check_agent_name
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Customer, Outlook
from pytest_fanout.store.toml import load_toml

_GROWTH = ("dau_per_week", "tasks_per_user_per_week")
_LARGEST_SHARE = 1e9  # shares are added up: two of 1e308 are no number
_FIELDS = ("name", "live", "dau", "tasks_per_user_day")


def parse_customers(data: bytes, where: str) -> Outlook:
    """The outlook that a file states: CSV by its name, TOML else.

    Raises:
        ConfigError: an unknown or a missing key, a value that is none; naming file and customer.
    """
    return _csv(data, where) if where.lower().endswith(".csv") else _toml(data, where)


def _toml(data: bytes, where: str) -> Outlook:
    document = load_toml(data, where)
    _known(document, {"schema", "growth", "customer"}, where)
    if document.get("schema") != 1:
        raise _bad(where, "has no schema = 1", "add schema = 1 as its first line")
    growth, entries = document.get("growth", {}), document.get("customer", [])
    if not isinstance(growth, Mapping) or not isinstance(entries, list):
        raise _bad(where, "holds growth or customer that is no table", "write [growth] and [[customer]]")
    _known(growth, set(_GROWTH), f"{where}: [growth]")
    rates = [_share(growth.get(key, 0), f"{where}: [growth] {key}") for key in _GROWTH]
    found = []
    for number, entry in enumerate(entries, 1):
        place = f"{where}: customer {number}"
        if not isinstance(entry, Mapping):
            raise _bad(place, "is no table", "write [[customer]]")
        _known(entry, {*_FIELDS, "classes"}, place)
        found.append(_customer(entry, place))
    return Outlook(_each_once(found, where), *rates)


def _csv(data: bytes, where: str) -> Outlook:
    """Columns as the keys of TOML; ``classes`` holds pairs like ``support=0.8 research=0.2``."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(where, "is not UTF-8 text", "save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        header = list(reader.fieldnames or ())
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise _bad(f"{where}:{reader.line_num}", f"is not CSV: {error}", "mend the line") from None
    _known(dict.fromkeys(header), {*_FIELDS, "classes"}, where)
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None or not header:
        what = "names no columns" if twice is None else f"names the column {twice!r} twice"
        raise _bad(f"{where}:1", what, ",".join((*_FIELDS, "classes")))
    found = []
    for number, row in rows:
        place = f"{where}:{number}"
        if None in row or None in row.values():
            raise _bad(place, "has another number of cells than the first line", "mend the line")
        entry: dict[str, Any] = {key: value.strip() for key, value in row.items() if value.strip()}
        for key, kind in (("dau", int), ("tasks_per_user_day", float)):
            try:
                entry[key] = kind(entry[key])
            except (KeyError, ValueError):
                continue  # said where the customer is made
        entry["classes"] = _pairs(entry.get("classes", ""), place)
        found.append(_customer(entry, place))
    return Outlook(_each_once(found, where))


def _pairs(text: str, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in text.replace(";", " ").split():
        name, _, share = pair.partition("=")
        if name in found:
            raise _bad(where, f"has the class {name} twice", "add its shares up")
        try:
            found[name] = float(share)
        except ValueError:
            raise _bad(where, f"has classes {text!r}, which are no pairs of class=share", "support=0.8") from None
    return found


def _customer(entry: Mapping[str, Any], where: str) -> Customer:
    missing = [key for key in _FIELDS if key not in entry]
    if missing:
        raise _bad(where, f"lacks {', '.join(missing)}", f"add {missing[0]}")
    name, dau = entry["name"], entry["dau"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _bad(where, f"has a name {name!r}", "give it a name")
    if isinstance(dau, bool) or not isinstance(dau, int) or not 1 <= dau <= 10**10:
        raise _bad(where, f"has a dau of {dau!r}; it must be a whole number from 1 up", "daily active users")
    tasks = _number(entry["tasks_per_user_day"])
    if tasks is None or not 0 < tasks <= 100_000:
        raise _bad(where, f"has tasks_per_user_day {entry['tasks_per_user_day']}; it must be above 0", "tasks a day")
    classes = entry.get("classes", {})
    if not isinstance(classes, Mapping):
        raise _bad(where, "has classes that are no table", "classes = { support = 1.0 }")
    shares = {}
    for agent, value in classes.items():
        check_agent_name(agent, f"{where}: classes")
        share = _number(value)
        if share is None or not 0 <= share <= _LARGEST_SHARE:
            raise _bad(where, f"has a share {value} of {agent}; it must be from 0 to 1e9", "shares are relative")
        shares[agent] = share
    if shares and not any(shares.values()):
        raise _bad(where, "has no class with a share above 0", "give one of them a share")
    return Customer(name, _day(entry["live"], where), dau, tasks, shares, where)


def _day(value: Any, where: str) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _bad(where, f"has a live date {value!r}", "live = 2027-01-31") from None


def _each_once(found: list[Customer], where: str) -> tuple[Customer, ...]:
    counted = Counter(customer.name for customer in found)
    twice = next((name for name, count in counted.items() if count > 1), None)
    if twice is not None:
        raise _bad(where, f"has two customers {twice!r}", "rename one, or add them up")
    return tuple(sorted(found, key=lambda customer: (customer.live, customer.name)))


def _share(value: Any, where: str) -> float:
    number = _number(value)
    if number is None or not -0.5 <= number <= 1:
        raise _bad(where, f"is {value}; it must be a share a week from -0.5 to 1", "0.01 is 1 % a week")
    return number


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _known(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in set(entry) - known)
    if unknown:
        raise _bad(
            where, f"has unknown {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known))}", "rename it"
        )


def _bad(where: str, what: str, mend: str) -> ConfigError:
    return ConfigError("bad-customers", what, where=where, mend=mend)
