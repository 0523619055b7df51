"""Settings: where things are (pyproject.toml), and what this run asks for (flags, environment). Frozen.

Nothing here can loosen the gate: limits, caps and measuring rules stand in the committed budget.toml.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fanout.errors import ConfigError

AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
RESERVED_NAMES = frozenset({"budget", "fleet", "default", "approvals"})
MODES = ("replay", "record", "rerecord", "live")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent class of ``[tool.fanout.agents]``."""

    name: str
    entrypoint: str
    evalset: Path  # absolute
    check: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """``[tool.fanout]`` of the nearest pyproject.toml; paths are absolute."""

    root: Path  # folder of that pyproject.toml
    source: str  # its path, for messages
    baselines: Path
    recordings: Path
    agents: Mapping[str, AgentSettings]


def check_agent_name(name: str, where: str) -> str:
    """The name itself, or ConfigError when it cannot name an agent class."""
    if not AGENT_NAME.match(name) or name in RESERVED_NAMES:
        raise ConfigError(
            "bad-agent-name",
            f"{name!r} cannot name an agent class: lower-case letters, digits, '.', '_' and '-', at most 64 characters,"
            f" and none of {', '.join(sorted(RESERVED_NAMES))}",
            where=where,
            mend="rename the agent class",
        )
    return name


def find_settings(start: Path) -> Settings:
    """Read the nearest pyproject.toml from ``start`` upward. Without a ``[tool.fanout]`` table the defaults hold.

    Raises:
        ConfigError: unknown keys, wrong types, names that cannot be used; naming file and key.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if os.path.isfile(path):  # unlike Path.is_file it raises nothing, also where a folder may not be entered
            return _read(path)
    return Settings(start, str(start / "pyproject.toml"), start / "baselines", start / "fixtures" / "recordings", {})


def _read(path: Path) -> Settings:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ConfigError("bad-toml", "is nested too deeply", where=str(path), mend="mend the file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("bad-toml", f"is not valid TOML: {error}", where=str(path), mend="mend the file") from None
    except OSError as error:
        raise ConfigError(
            "not-readable", f"cannot be read: {error.strerror}", where=str(path), mend="mend its permissions"
        ) from None
    tool = document.get("tool", {})
    _table(tool, f"{path}: [tool]", "[tool.fanout]")
    table = tool.get("fanout", {})
    where = f"{path}: [tool.fanout]"
    _table(table, where, "[tool.fanout]")
    _known(table, {"baselines", "recordings", "agents"}, where)
    root = path.parent
    baselines = _path(table.get("baselines", "baselines"), "baselines", "baselines", root, where)
    recordings = _path(table.get("recordings", "fixtures/recordings"), "recordings", "fixtures/recordings", root, where)
    agents: dict[str, AgentSettings] = {}
    entries = table.get("agents", {})
    _table(entries, f"{path}: [tool.fanout.agents]", "[tool.fanout.agents.support]")
    for name, entry in entries.items():
        where = f"{path}: [tool.fanout.agents.{name}]"
        check_agent_name(name, where)
        _table(entry, where, f"[tool.fanout.agents.{name}]")
        _known(entry, {"entrypoint", "evalset", "check"}, where)
        for key in ("entrypoint", "evalset"):
            if not isinstance(entry.get(key), str) or not entry[key]:
                raise ConfigError(
                    "bad-setting", f"{key} is missing or not a text", where=where, mend=f'add {key} = "…"'
                )
        evalset = _path(entry["evalset"], "evalset", f"fixtures/{name}.jsonl", root, where)
        check = entry.get("check")
        if check is not None and not isinstance(check, str):
            raise ConfigError(
                "bad-setting", "check must be a text", where=where, mend='check = "package.module:callable"'
            )
        for key in ("entrypoint", "check"):
            value = entry.get(key)
            if value is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
                raise ConfigError(
                    "bad-entry-point",
                    f"{key} = {value!r} is not of the form module:callable",
                    where=where,
                    mend=f'{key} = "package.module:callable"',
                )
        agents[name] = AgentSettings(name, entry["entrypoint"], evalset, check)
    return Settings(root, str(path), baselines, recordings, agents)


def _table(value: Any, where: str, header: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError("bad-setting", "must be a table", where=where, mend=f"begin it with {header}")


def _path(value: Any, key: str, example: str, root: Path, where: str) -> Path:
    """An absolute path without ``..``: pytest names files so, and an eval set is known by its path."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ConfigError("bad-setting", f"{key} must be a path", where=where, mend=f'{key} = "{example}"')
    return Path(os.path.normpath(root / value))


def _known(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(
            "unknown-key",
            f"unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; known: {', '.join(sorted(known))}",
            where=where,
            mend=f"remove or rename {unknown[0]!r}",
        )


def is_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``CI`` is set to anything but empty, 0 or false."""
    return environ.get("CI", "").strip().lower() not in ("", "0", "false")
