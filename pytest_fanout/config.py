"""Settings: where things are (pyproject.toml), and what this run asks for (flags, environment). Frozen.

Nothing here can loosen the gate: limits, caps and measuring rules stand in the committed budget.toml.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fanout.errors import ConfigError

AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
RESERVED_NAMES = frozenset({"budget", "fleet", "default", "approvals"})
SITES_SUFFIX = ".sites"  # NAME.sites.json holds the call sites of the class NAME
MODES = ("replay", "record", "rerecord", "live")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent class of ``[tool.fanout.agents]``; one of ``entrypoint``, ``command`` and ``serve`` is given."""

    name: str
    entrypoint: str | None  # module:callable
    evalset: Path  # absolute
    check: str | None = None
    command: tuple[str, ...] = ()  # run once a trial; the setting is entrypoint too
    serve: tuple[str, ...] = ()  # run once a measuring process
    post: str = "/"  # the path on that server
    ready_seconds: int = 30
    proxy: bool = False  # send the tools' HTTP of a command or server through the gateway as well
    children: bool = False  # send the calls of what the entry point starts through the gateway
    requests_per_minute: int | None = None  # what its provider allows; live calls of all workers keep within
    tokens_per_minute: int | None = None
    parallel_calls: int | None = None

    @property
    def needs_gateway(self) -> bool:
        return bool(self.command or self.serve or self.children)


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
    if not AGENT_NAME.match(name) or name in RESERVED_NAMES or name.endswith(SITES_SUFFIX):
        raise ConfigError(
            "bad-agent-name",
            f"{name!r} cannot name an agent class: lower-case letters, digits, '.', '_' and '-', at most 64 characters,"
            f" none of {', '.join(sorted(RESERVED_NAMES))}, and not ending in {SITES_SUFFIX}",
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
    except ValueError:  # int() refuses more than 4300 digits
        raise ConfigError(
            "bad-toml", "holds a number of too many digits", where=str(path), mend="mend the file"
        ) from None
    except OSError as error:
        raise ConfigError(
            "not-readable", f"cannot be read: {error.strerror}", where=str(path), mend="mend its permissions"
        ) from None
    tool = document.get("tool", {})
    _table(tool, f"{path}: [tool]", "[tool.fanout]")
    for table, holder, name in (("fanout", document, "fanout"), *((f"tool.{n}", tool, n) for n in _MISNAMED)):
        if isinstance(holder.get(name), dict):
            raise _bad(f"[{table}] is read by nobody", str(path), f"call it [tool.fanout], as in {_EXAMPLE}")
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
        agents[name] = _agent(name, entry, root, where)
    return Settings(root, str(path), baselines, recordings, agents)


_MISNAMED = ("pytest-fanout", "pytest_fanout")
_EXAMPLE = "[tool.fanout.agents.support]"
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")
_PACES = ("requests_per_minute", "tokens_per_minute", "parallel_calls")
_AGENT_KEYS = {"entrypoint", "evalset", "check", "serve", "post", "ready_seconds", "proxy", "children", *_PACES}


def _agent(name: str, entry: Mapping[str, Any], root: Path, where: str) -> AgentSettings:
    """One entry of ``[tool.fanout.agents]``."""
    _known(entry, _AGENT_KEYS, where)
    if "entrypoint" in entry and "serve" in entry:
        raise _bad("entrypoint and serve are both given", where, "keep one of them")
    if "serve" not in entry and not entry.get("entrypoint"):
        raise _bad("entrypoint is missing or not a text", where, 'add entrypoint = "…"')
    if not isinstance(entry.get("evalset"), str) or not entry["evalset"]:
        raise _bad("evalset is missing or not a text", where, 'add evalset = "…"')
    check = entry.get("check")
    if check is not None and not isinstance(check, str):
        raise _bad("check must be a text", where, 'check = "package.module:callable"')
    if check is not None and not _CALLABLE.match(check):
        raise _no_callable("check", check, where, 'check = "package.module:callable"')
    entrypoint, command = _entry_point(entry["entrypoint"], where) if "entrypoint" in entry else (None, ())
    serve = _command("serve", entry["serve"], where) if "serve" in entry else ()
    outside = bool(command or serve)
    _only(entry, ("post", "ready_seconds"), bool(serve), where, "for a server: serve = […]")
    _only(entry, ("proxy",), outside, where, "for a command or a server")
    _only(entry, ("children",), not outside, where, "for an entry point module:callable")
    if serve and "post" not in entry:
        raise _bad("post is missing: the path that each task is sent to", where, 'add post = "/chat"')
    post = entry.get("post", "/")
    if not isinstance(post, str) or not re.fullmatch(r"/[!-~]*", post):
        raise _bad("post must be a path on the server that begins with /", where, 'post = "/chat"')
    ready_seconds = entry.get("ready_seconds", 30)
    if type(ready_seconds) is not int or not 1 <= ready_seconds <= 3600:
        raise _bad("ready_seconds must be a whole number from 1 to 3600", where, "ready_seconds = 30")
    proxy = entry.get("proxy", False)
    if not isinstance(proxy, bool):
        raise _bad("proxy must be true or false", where, "proxy = true")
    if "children" in entry and entry["children"] != "gateway":
        raise _bad('children can only be "gateway"', where, 'children = "gateway"')
    return AgentSettings(
        name=name,
        entrypoint=entrypoint,
        evalset=_path(entry["evalset"], "evalset", f"fixtures/{name}.jsonl", root, where),
        check=check,
        command=command,
        serve=serve,
        post=post,
        ready_seconds=ready_seconds,
        proxy=proxy,
        children="children" in entry,
        **{key: _amount(key, entry[key], where) for key in _PACES if key in entry},
    )


def _entry_point(value: Any, where: str) -> tuple[str | None, tuple[str, ...]]:
    """``module:callable``, or the words of a command: a list, or a text with blanks."""
    if isinstance(value, str) and not re.search(r"\s", value):
        if not _CALLABLE.match(value):
            raise _no_callable(
                "entrypoint",
                value,
                where,
                'entrypoint = "package.module:callable", or a command: ["node", "agent.mjs"]',
            )
        return value, ()
    return None, _command("entrypoint", value, where)


def _command(key: str, value: Any, where: str) -> tuple[str, ...]:
    words: Any = value
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise _bad(f"{key} is no command line: {error}", where, f'{key} = ["node", "agent.mjs"]') from None
    is_list = isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    if not is_list or not words[0].strip() or any("\0" in word for word in words):
        raise _bad(f"{key} must be a command, as a text or a list of texts", where, f'{key} = ["node", "agent.mjs"]')
    return tuple(words)


def _only(entry: Mapping[str, Any], keys: tuple[str, ...], allowed: bool, where: str, what: str) -> None:
    for key in keys:
        if key in entry and not allowed:
            raise _bad(f"{key} is only {what}", where, f"remove {key}")


def _amount(key: str, value: Any, where: str) -> int:
    if type(value) is not int or not 1 <= value <= 10**12:
        raise _bad(f"{key} must be a whole number from 1 up", where, f"{key} = 60")
    return value


def _bad(what: str, where: str, mend: str) -> ConfigError:
    return ConfigError("bad-setting", what, where=where, mend=mend)


def _no_callable(key: str, value: str, where: str, mend: str) -> ConfigError:
    return ConfigError(
        "bad-entry-point", f"{key} = {value!r} is not of the form module:callable", where=where, mend=mend
    )


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
    """Whether ``CI`` is set to anything but empty, 0 or false.

    GitHub and GitLab say so by variables of their own as well: there ``CI=false``, which some build tools want, turns
    nothing off.
    """
    if any(environ.get(name, "").lower() == "true" for name in ("GITHUB_ACTIONS", "GITLAB_CI")):
        return True
    return environ.get("CI", "").strip().lower() not in ("", "0", "false")
