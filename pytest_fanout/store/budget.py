"""budget.toml: what agents may spend, and how strictly they are measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from pytest_fanout.config import check_agent_name
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import METRICS, STATISTICS, Budget, Caps, JudgeRules, Limit, MeasureRules
from pytest_fanout.store.toml import load_toml, toml_digest

#: What `init` writes and what holds without a file; both have the same digest.
DEFAULT_TEXT = """\
# What agents may spend, and how strictly they are measured.
# Loosening anything in this file needs an approval: `fanout-baseline accept --reason "..."` writes it.
schema = 1

# "<metric>.<statistic>": over when the run is above base x (1 + increase) and has grown by at_least or more,
# or is above max.
# [agents.NAME.limits] overrides field by field; "none" drops a limit.
[default.limits]
"fanout.p95" = { increase = "10%", at_least = 1 }
"tokens.p95" = { increase = "10%", at_least = 500 }

# Hard, per task, enforced while the task runs. "none" removes a cap.
[default.caps]
fanout = 200
attempts = 600
tokens = 2_000_000
tool_calls = 400
parallel_calls = 32
spawn_depth = 8
wall_seconds = 900
identical_errors = 5

# Growth over all approvals of a class within this time is shown to its reviewer.
[default.judge]
drift = "25% in 90 days"

# volatile, passthrough, live_inputs, ignore, model_hosts, stateful_tools: lists.
# seal_keys, strict_egress: true or false.
[measure]
volatile = []
"""

_LIMIT = re.compile(r"(?P<metric>[a-z_]+(?:\[[^\[\]]{1,200}\])?)\.(?P<statistic>[a-z]+[0-9]*(?:\.9)?)\Z")
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%\Z")
_DRIFT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)% in (\d{1,5}) days\Z")
_NAMED = ("tool_calls", "tool_ms")
_SHARES = ("capped", "failed")
#: On what the class costs by fleet.toml; kept apart from limits on samples, which are judged task by task.
_CAPACITY = frozenset({"capacity.gpus_p95", "capacity.cost_month", "capacity.cliffs"})
_LISTS = ("volatile", "passthrough", "live_inputs", "ignore", "model_hosts", "stateful_tools")
_FLAGS = ("seal_keys", "strict_egress")
_LARGEST = 2**53 - 1


def parse_budget(data: bytes | None, where: str = "budget.toml") -> Budget:
    """The budget with its defaults applied; ``None``: the defaults of the documentation.

    Raises:
        ConfigError: an unknown key, metric or statistic, or a value that cannot be used; naming file and key.
    """
    document = load_toml(DEFAULT_TEXT.encode() if data is None else data, where)
    _known(document, {"schema", "default", "agents", "measure"}, where, "")
    schema = document.get("schema")
    if schema != 1 or isinstance(schema, bool):
        _refuse(where, "schema", "must be 1, the version that this release reads", "schema = 1")
    default = _table(document, "default", where, "")
    agents = _table(document, "agents", where, "")
    limits = {"default": _limits(default, _default_limits(), where, "default", replaces=True)}
    caps = {"default": _caps(default, Caps(), where, "default")}
    judge = {"default": _judge(default, JudgeRules(), where, "default")}
    _known(default, {"limits", "caps", "judge"}, where, "default")
    for name in agents:
        check_agent_name(name, f"{where}: [agents.{name}]")
        key = f"agents.{name}"
        entry = _table(agents, name, where, "agents")
        _known(entry, {"limits", "caps", "judge"}, where, key)
        limits[name] = _limits(entry, limits["default"], where, key)
        caps[name] = _caps(entry, caps["default"], where, key)
        judge[name] = _judge(entry, judge["default"], where, key)
    return Budget(
        digest=toml_digest(document),
        limits={name: tuple(each for each in row if each.metric != "capacity") for name, row in limits.items()},
        capacity={name: tuple(each for each in row if each.metric == "capacity") for name, row in limits.items()},
        caps=caps,
        judge=judge,
        measure=_measure(_table(document, "measure", where, ""), where),
        is_default=data is None,
    )


def _default_limits() -> tuple[Limit, ...]:
    tenth = Fraction(1, 10)
    return (Limit("fanout", "p95", tenth, 1), Limit("tokens", "p95", tenth, 500))


def _limits(
    entry: Mapping[str, Any], inherited: tuple[Limit, ...], where: str, key: str, *, replaces: bool = False
) -> tuple[Limit, ...]:
    table = entry.get("limits")
    if table is None:
        return inherited
    key = f"{key}.limits"
    table = _table(entry, "limits", where, key.removesuffix(".limits"))
    # the file's own [default.limits] is the whole list; an agent's list is laid over the default one
    merged = {} if replaces else {limit.name: limit for limit in inherited}
    for name, value in table.items():
        metric, statistic_name = _limit_name(name, where, f'{key}."{name}"')
        if value == "none":
            merged.pop(name, None)
            continue
        merged[name] = _limit(merged.get(name) or Limit(metric, statistic_name), value, where, f'{key}."{name}"')
    return tuple(merged.values())


def _limit_name(name: str, where: str, key: str) -> tuple[str, str]:
    if name in _CAPACITY:
        metric, _, statistic_name = name.partition(".")
        return metric, statistic_name
    found = _LIMIT.match(name) if name.isprintable() else None
    if found is None:
        _refuse(where, key, "is not of the form <metric>.<statistic>", 'write it like "fanout.p95"')
    metric, statistic_name = found["metric"], found["statistic"]
    family, _, tool = metric.partition("[")
    if family in _SHARES and not tool:
        if statistic_name != "share":
            _refuse(where, key, f"{family} has the statistic share only", f'"{family}.share"')
        return metric, statistic_name
    if (family not in _NAMED) if tool else (family != "tokens" and family not in METRICS):
        known = ", ".join(("tokens", *METRICS, "tool_calls[NAME]", "tool_ms[NAME]", "capped.share", "failed.share"))
        _refuse(where, key, f"{metric!r} is not a metric; known: {known}", "rename or remove it")
    if statistic_name not in STATISTICS:
        _refuse(
            where, key, f"{statistic_name!r} is not a statistic; known: {', '.join(STATISTICS)}", "rename or remove it"
        )
    return metric, statistic_name


def _limit(base: Limit, value: Any, where: str, key: str) -> Limit:
    if not isinstance(value, Mapping):
        _refuse(where, key, "must be a table", '{ increase = "10%", at_least = 1 }')
    if base.name == "capacity.cliffs":
        _known(value, {"min"}, where, key)
        if "min" not in value:
            _refuse(where, key, "limits nothing: it needs min, the cliffs to survive at once", "{ min = 1 }")
        return replace(base, min=_count(value["min"], where, f"{key}.min", 0))
    _known(value, {"increase", "at_least", "max", "evidence"}, where, key)
    limit = base
    if "increase" in value:
        limit = replace(limit, increase=_percent(value["increase"], where, f"{key}.increase"))
    if "at_least" in value:
        limit = replace(limit, at_least=_count(value["at_least"], where, f"{key}.at_least", 0))
    if "max" in value:
        limit = replace(limit, max=_count(value["max"], where, f"{key}.max", 0))
    if "evidence" in value:
        if value["evidence"] not in ("on", "off"):
            _refuse(where, f"{key}.evidence", 'must be "on" or "off"', 'evidence = "on"')
        limit = replace(limit, evidence=value["evidence"] == "on")
    if limit.increase is None and limit.max is None:
        _refuse(where, key, "limits nothing: it needs increase or max", 'increase = "10%"')
    return limit


def _caps(entry: Mapping[str, Any], inherited: Caps, where: str, key: str) -> Caps:
    table = _table(entry, "caps", where, key)
    names = {field.name for field in fields(Caps)}
    _known(table, names, where, f"{key}.caps")
    values: dict[str, int | None] = {
        name: None if value == "none" else _count(value, where, f"{key}.caps.{name}", 1)
        for name, value in table.items()
    }
    return replace(inherited, **values)


def _judge(entry: Mapping[str, Any], inherited: JudgeRules, where: str, key: str) -> JudgeRules:
    table = _table(entry, "judge", where, key)
    key = f"{key}.judge"
    _known(table, {"trials", "alpha", "sessions", "inconclusive", "drift", "max_age_days"}, where, key)
    values: dict[str, Any] = {}
    for name in ("trials", "sessions", "max_age_days"):
        if name in table:
            values[name] = _count(table[name], where, f"{key}.{name}", 1)
    if "alpha" in table:
        alpha = table["alpha"]
        share = Fraction(alpha) if isinstance(alpha, Decimal) and alpha.is_finite() else None
        share = share if share is not None else _percent(alpha, where, f"{key}.alpha")
        if not 0 < share < 1:
            _refuse(where, f"{key}.alpha", "must lie between 0 and 1", "alpha = 0.05")
        values["alpha"] = share
    if "inconclusive" in table:
        if table["inconclusive"] not in ("fail", "warn"):
            _refuse(where, f"{key}.inconclusive", 'must be "fail" or "warn"', 'inconclusive = "fail"')
        values["inconclusive"] = table["inconclusive"]
    if "drift" in table:
        found = _DRIFT.match(table["drift"]) if isinstance(table["drift"], str) else None
        if found is None or int(found[2]) < 1:
            _refuse(where, f"{key}.drift", "must read like 25% in 90 days", 'drift = "25% in 90 days"')
        values |= {"drift": Fraction(found[1]) / 100, "drift_days": int(found[2])}
    return replace(inherited, **values)


def _measure(table: Mapping[str, Any], where: str) -> MeasureRules:
    _known(table, {*_LISTS, *_FLAGS}, where, "measure")
    values: dict[str, Any] = {}
    for name in _LISTS:
        entries = table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            _refuse(where, f"measure.{name}", "must be a list of texts", f"{name} = []")
        values[name] = tuple(entries)
    for name in _FLAGS:
        if name in table:
            if not isinstance(table[name], bool):
                _refuse(where, f"measure.{name}", "must be true or false", f"{name} = true")
            values[name] = table[name]
    return MeasureRules(**values)


def _percent(value: Any, where: str, key: str) -> Fraction:
    found = _PERCENT.match(value) if isinstance(value, str) else None
    if found is None:
        _refuse(where, key, "must be a percentage in quotes", 'write it like "10%"')
    return Fraction(found[1]) / 100


def _count(value: Any, where: str, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        _refuse(where, key, f"must be a whole number, at least {least}", "write a whole number without quotes")
    return value


def _table(entry: Mapping[str, Any], name: str, where: str, key: str) -> Mapping[str, Any]:
    value = entry.get(name, {})
    if not isinstance(value, Mapping):
        _refuse(where, f"{key}.{name}".lstrip("."), "must be a table", f"[{key}.{name}]".replace("[.", "["))
    return value


def _known(table: Mapping[str, Any], known: set[str], where: str, key: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        place = f"{where}: [{key}]" if key else where
        raise ConfigError(
            "unknown-key",
            f"unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; known: {', '.join(sorted(known))}",
            where=place,
            mend=f"remove or rename {unknown[0]!r}",
        )


def _refuse(where: str, key: str, what: str, mend: str) -> NoReturn:
    raise ConfigError("bad-budget", f"{key} {what}", where=where, mend=mend)


def names_of(*budgets: Budget) -> Iterator[str]:
    """ "default" and every agent that one of the budgets names, in order."""
    yield from sorted({name for budget in budgets for name in (*budget.limits, *budget.caps, *budget.judge)})
