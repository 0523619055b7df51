"""baselines/fleet.toml: demand, GPU profile and prices. Strict TOML in, a Fleet record out.

A figure that is misread here moves every GPU count, so nothing is guessed: unknown keys, infinities and values out
of range are refused, and each default that was used is named in ``Fleet.defaulted``.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from pytest_fanout.config import check_agent_name
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import ClassDemand, CliffInputs, Fleet, Memory, Prices, Quota, Slo
from pytest_fanout.store.files import digest
from pytest_fanout.store.toml import load_toml

#: What `init` writes. Everything is commented out but the version, so that the file changes nothing until it is edited.
EXAMPLE = """\
# Demand, GPUs and prices: what a change of fanout costs. Changes to this file need an approval, as a budget does.
# Without demand for a class its capacity is given per 1,000 tasks an hour. Take the # away where you know better.
schema = 1

# [fleet]
# serves = "gpus"                          # own GPUs, or "provider": an API with quotas and token prices
# profile = "gpt-oss-120b-h200-tp1"        # a GPU profile; built-in ones are indicative, within a factor of 2
# or: model = "gpt-oss-120b" and gpu = "H200" in its place; or: calibration = "calibrations/NAME.json", your own
# target_utilisation = 0.70                # share of its throughput that a GPU is planned for at peak, at most 0.85
# gpus_reserved = 24                       # GPUs that you hold; without it nothing is held against a fleet
# gpus_burst = 0                           # GPUs that can be had beside them within minutes
# spare_replicas = 0                       # replicas beside those that the load needs
# cached_input_share_max = 1.0             # production's cache share of input tokens; an eval set hits more often
# cache_loss_points = 15.0                 # the scenario of a worse cache, percentage points of input
# burst_price_ratio = 2.5                  # price of a burst GPU hour over that of a reserved one

# [memory]                                 # where the model is not built in, or you know better
# kv_pool_gb_per_gpu = 55.0                # 10**9 bytes of contexts a GPU holds
# kv_bytes_per_token = 36_864
# sequences_per_replica_max = 256          # requests that a server runs at once, e.g. max_num_seqs

# [slo]                                    # held where there is a calibration
# itl_ms_max = 50.0                        # milliseconds between two tokens
# ttft_ms_max = 2_000.0                    # milliseconds to the first token

# [quota]                                  # of a provider; leave out what is not limited
# requests_per_minute = 30_000
# tokens_per_minute = 80_000_000           # input and output
# uncached_tokens_per_minute = 40_000_000  # a second bucket, without cache reads
# input_tokens_per_minute = 60_000_000
# output_tokens_per_minute = 8_000_000
# tokens_per_day = 40_000_000_000
# concurrent_requests = 4_000
# counts_cached_tokens = true              # whether cache reads count
# reserved_output_tokens_per_call = 4_096  # where max_tokens is booked before each call

# [prices]                                 # US dollars; new, cached and output are given together or not at all
# usd_per_million_new_input_tokens = 3.0
# usd_per_million_cached_input_tokens = 0.3
# usd_per_million_cache_write_tokens = 3.75
# usd_per_million_output_tokens = 15.0
# usd_per_gpu_hour = 4.0

# [cliffs]                                 # steps of demand that the fleet is tried on, in every combination
# fanout_ratio = 2.75                      # calls per task, after over before
# tasks_per_user_ratio = 6.0               # tasks per user and day, after over before
# survive = "all"                          # or "any": one combination of so many cliffs is enough

# [demand.support]                         # one table for each agent class
# dau = 200_000                            # daily active users
# tasks_per_user_day = 2.4                 # mean over all users; "2 a week" is 0.29
# peak_factor = 3.0                        # rate of the peak hour over the mean rate of the day
# iod = 1.0                                # variance over mean of arrivals in a minute: 1 is Poisson, traces 3 to 150
# onboarding_dau = 0                       # users of a customer who may come at once: a cliff
"""

_EMPTY: dict[str, Any] = {"schema": 1}


def parse_fleet(data: bytes | None, where: str) -> Fleet:
    """The fleet that ``data`` states, defaults applied; ``None`` (no file) means defaults and no demand.

    ``where`` names the file in messages. A file without figures has the digest of no file.

    Raises:
        ConfigError: not UTF-8, not TOML, conflict marks, an unknown key, a value of the wrong type or out of range, a
            demand table that cannot name an agent class; naming file, line or key.
    """
    if data is None:
        return _fleet(_EMPTY, where, is_default=True)
    document = load_toml(data, where, decimals=False)
    _check(document, where)
    return _fleet(document, where, is_default=False)


def _check(document: dict[str, Any], where: str) -> None:
    # Infinities and NaN pass every comparison of a schema in one direction or the other, and are never a figure.
    _finite(document, (), where)
    errors = sorted(
        _validator().iter_errors(document), key=lambda e: ([str(p) for p in e.absolute_path], str(e.validator))
    )
    if not errors:
        return
    error = errors[0]
    path = tuple(str(part) for part in error.absolute_path)
    place = _place(where, path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema["properties"])
        unknown = [key if key.isprintable() else repr(key) for key in sorted(set(error.instance) - set(known))]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise ConfigError(
            "unknown-key",
            f"unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; known: {', '.join(known)}",
            where=place,
            mend=f"rename {unknown[0]!r} to {near[0]!r}" if near else f"remove {unknown[0]!r}",
        )
    if error.validator in ("required", "dependentRequired"):
        needed = error.validator_value
        if error.validator == "dependentRequired":
            needed = [key for given, others in needed.items() if given in error.instance for key in others]
        missing = sorted({key for key in needed if key not in error.instance})
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            "bad-fleet",
            f"{', '.join(missing)} {verb} missing",
            where=place,
            mend=f"add {missing[0]} = 1" if missing[0] == "schema" else f"add {missing[0]}",
        )
    rule = {
        "minimum": "must be at least {}",
        "maximum": "must be at most {}",
        "minLength": "must not be empty",
        "maxLength": "must have at most {} characters",
        "type": "must be of type {}",
        "const": "must be {}: this version reads no other",
        "enum": "must be one of {}",
        "minItems": "must have {} entries",
        "maxItems": "must have {} entries",
    }[str(error.validator)].format(_rule(error.validator_value))
    raise ConfigError(
        "bad-fleet",
        f"is {_shown(error.instance)}; it {rule}",
        where=place,
        mend=f"mend {path[-1] if path else 'it'}",
    )


_TYPES = {"object": "table", "integer": "whole number"}


def _rule(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else _TYPES.get(str(value), value)


def _finite(value: Any, path: tuple[str, ...], where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(inner, (*path, key), where)
    elif isinstance(value, list):
        for inner in value:
            _finite(inner, path, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(
            "bad-fleet",
            f"is {value}; it must be a finite number",
            where=_place(where, path),
            mend=f"mend {path[-1]}",
        )


def _place(where: str, path: tuple[str, ...]) -> str:
    """``file: [table] key``, as far as the path goes; the schema's tables are at most two deep."""
    shown = tuple(key if key.isprintable() else repr(key) for key in path)
    tables, key = (shown[:2], shown[2:]) if path[:1] == ("demand",) else (shown[:1], shown[1:])
    if path == ("schema",):
        tables, key = (), shown
    inside = [f"[{'.'.join(tables)}]"] * bool(tables) + [".".join(key)] * bool(key)
    return ": ".join([where, " ".join(inside)] if inside else [where])


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


@cache
def _validator() -> Any:
    import jsonschema  # 50 ms to import: only when a fleet is read

    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/fleet.schema.json").read_bytes())
    return jsonschema.Draft202012Validator(schema)


def _fleet(document: dict[str, Any], where: str, *, is_default: bool) -> Fleet:
    table = document.get("fleet", {})
    _one_way(document, where)
    named = "profile" not in table and ("model" in table or "calibration" in table)
    defaulted = {f"fleet.{key}" for key in _FLEET if key not in table and not (key == "profile" and named)}
    for name, keys in (("slo", _SLO), ("cliffs", ("survive",))):
        # without a cliff there is nothing to survive
        if name != "cliffs" or name in document:
            defaulted |= {f"{name}.{key}" for key in keys if key not in document.get(name, {})}
    demand = {}
    for name, entry in document.get("demand", {}).items():
        check_agent_name(name, f"{where}: [demand.{name}]")
        hours = tuple(float(share) for share in entry.get("hourly_shares", ()))
        if hours and not any(hours):
            raise ConfigError(
                "bad-fleet",
                "has no hour with any demand",
                where=f"{where}: [demand.{name}] hourly_shares",
                mend="give at least one hour a share above 0",
            )
        defaulted |= {f"demand.{name}.{key}" for key in ("peak_factor", "iod") if key not in entry}
        demand[name] = ClassDemand(
            name,
            int(entry["dau"]),
            float(entry["tasks_per_user_day"]),
            **{key: float(entry[key]) for key in ("peak_factor", "iod") if key in entry},
            onboarding_dau=int(entry.get("onboarding_dau", 0)),
            hourly_shares=hours,
        )
    quota = document.get("quota")
    return Fleet(
        digest=digest(_digestible(document)),
        source=where,
        demand=demand,
        prices=Prices(**{key: float(value) for key, value in document.get("prices", {}).items()}),
        defaulted=frozenset(defaulted),
        is_default=is_default,
        memory=Memory(**_figures(document.get("memory", {}))),
        slo=Slo(**_figures(document.get("slo", {}))),
        quota=None if quota is None else Quota(**quota),
        cliffs=CliffInputs(**_figures(document.get("cliffs", {}))),
        **_figures(table),
    )


_FLEET = (
    "serves", "profile", "target_utilisation", "gpus_burst", "spare_replicas", "cached_input_share_max",
    "cache_loss_points", "burst_price_ratio",
)  # fmt: skip
_SLO = ("itl_ms_max", "ttft_ms_max")
#: Whole numbers; all other figures are floats, also where the file says 1 for 1.0.
_COUNTS = frozenset({"gpus_reserved", "gpus_burst", "spare_replicas", *(f.name for f in fields(Quota))}) | {
    "sequences_per_replica_max"
}


def _figures(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: float(value) if isinstance(value, int) and not isinstance(value, bool) and key not in _COUNTS else value
        for key, value in table.items()
    }


def _one_way(document: dict[str, Any], where: str) -> None:
    """A fleet is named in one way: by a profile, by model and GPU, or by a calibration."""
    table = document.get("fleet", {})
    ways = [key for key in ("profile", "model", "calibration") if key in table]
    if len(ways) > 1:
        raise ConfigError(
            "bad-fleet",
            f"{' and '.join(ways)} both say what the fleet is",
            where=f"{where}: [fleet]",
            mend=f"remove {ways[0]}",
        )
    name = str(table.get("calibration", "x/y"))
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "/" not in name:
        raise ConfigError(
            "bad-fleet",
            f"is {name!r}; it must be in a folder beside fleet.toml, where no anchor stands",
            where=f"{where}: [fleet] calibration",
            mend='calibration = "calibrations/NAME.json"',
        )
    if table.get("serves") == "provider" and "quota" not in document:
        raise ConfigError(
            "bad-fleet",
            "a provider serves the model, and no quota says what it lets through",
            where=f"{where}: [fleet] serves",
            mend="add [quota]",
        )


def _digestible(value: Any) -> Any:
    """Without floats, whose text differs between writers: 3.0 is 3, 2.4 is "2.4"."""
    if isinstance(value, dict):
        return {key: _digestible(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_digestible(inner) for inner in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    return value
