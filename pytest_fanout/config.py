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
        if path.is_file():
            return _read(path)
    return Settings(start, str(start / "pyproject.toml"), start / "baselines", start / "fixtures" / "recordings", {})


def _read(path: Path) -> Settings:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("bad-toml", f"is not valid TOML: {error}", where=str(path), mend="mend the file") from None
    table = document.get("tool", {}).get("fanout", {})
    _known(table, {"baselines", "recordings", "agents"}, f"{path}: [tool.fanout]")
    root = path.parent
    folders = {}
    for key, default in (("baselines", "baselines"), ("recordings", "fixtures/recordings")):
        value = table.get(key, default)
        if not isinstance(value, str) or not value:
            raise ConfigError(
                "bad-setting", f"{key} must be a path", where=f"{path}: [tool.fanout]", mend=f'{key} = "{default}"'
            )
        folders[key] = root / value
    agents: dict[str, AgentSettings] = {}
    entries = table.get("agents", {})
    if not isinstance(entries, dict):
        raise ConfigError("bad-setting", "agents must be a table", where=f"{path}: [tool.fanout]")
    for name, entry in entries.items():
        where = f"{path}: [tool.fanout.agents.{name}]"
        check_agent_name(name, where)
        _known(entry, {"entrypoint", "evalset", "check"}, where)
        for key in ("entrypoint", "evalset"):
            if not isinstance(entry.get(key), str) or not entry[key]:
                raise ConfigError(
                    "bad-setting", f"{key} is missing or not a text", where=where, mend=f'add {key} = "…"'
                )
        check = entry.get("check")
        if check is not None and not isinstance(check, str):
            raise ConfigError("bad-setting", "check must be module:callable", where=where)
        for key in ("entrypoint", "check"):
            value = entry.get(key)
            if value is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
                raise ConfigError(
                    "bad-entry-point",
                    f"{key} = {value!r} is not of the form module:callable",
                    where=where,
                    mend=f'{key} = "package.module:callable"',
                )
        agents[name] = AgentSettings(name, entry["entrypoint"], root / entry["evalset"], check)
    return Settings(root, str(path), folders["baselines"], folders["recordings"], agents)


def _known(table: Any, known: set[str], where: str) -> None:
    if not isinstance(table, dict):
        raise ConfigError("bad-setting", "must be a table", where=where)
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
