"""Eval sets: one task a line, and whether an answer is what its line expects.

A line is refused rather than guessed at: a task that is dropped silently is a task that is never over budget.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.records import EvalSet, EvalTask
from pytest_fanout.store import files

LINE_KEYS = frozenset({"id", "input", "expect", "tags", "weight", "no_calls"})
EXPECT_KEYS = frozenset({"equals", "contains", "matches", "json"})
ID_LENGTH = 200
EXAMPLE = '{"id": "refund-1", "input": "I want my money back"}'


def read_evalset(path: Path, agent: str, shown: str | None = None) -> EvalSet:
    """The eval set of one agent class, in file order. ``shown`` is how messages call the file (default: ``path``).

    The digest covers ids and definitions in the order of ids, so that moving lines about changes nothing.

    Raises:
        ConfigError: anything that cannot be used, naming file, line and key.
    """
    name = shown if shown is not None else str(path)
    tasks: list[EvalTask] = []
    lines: dict[str, int] = {}
    for number, text in _lines(path, agent, name):
        task = _task(text, number, f"{name}:{number}")
        if task.id in lines:
            raise ConfigError(
                "evalset-duplicate-id",
                f"the id {task.id!r} stands on line {lines[task.id]} as well; ids are unique in an eval set",
                where=f"{name}:{number}",
                mend="rename one of the two",
            )
        lines[task.id] = number
        tasks.append(task)
    if not tasks:
        raise ConfigError(
            "evalset-empty", "holds no task", where=name, mend=f"write one task a line, for example {EXAMPLE}"
        )
    digest = files.digest(sorted([task.id, task.definition] for task in tasks))
    return EvalSet(agent, name, digest, tuple(tasks))


def _lines(path: Path, agent: str, name: str) -> list[tuple[int, str]]:
    """Lines that are not blank, numbered from 1. A byte-order mark and CRLF are what editors add: tolerated."""
    try:
        data = files.read_committed(path)
    except FileNotFoundError:
        raise ConfigError(
            "evalset-missing",
            f"the eval set of agent class {agent!r} does not exist",
            where=name,
            mend=f"create it, or mend `evalset` under [tool.fanout.agents.{agent}]",
        ) from None
    except IntegrityError as error:
        raise ConfigError("evalset-unreadable", error.what, where=name, mend=error.mend) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(
            "evalset-bad-json", "is not UTF-8 text", where=f"{name}:{line}", mend="save the file as UTF-8"
        ) from None
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip(" \t\r")]


def _task(text: str, number: int, where: str) -> EvalTask:
    try:
        line = files.parse_json(text)
    except files.BadJson as bad:
        raise ConfigError(
            "evalset-bad-json", bad.what, where=where, mend=f"write one JSON object a line, for example {EXAMPLE}"
        ) from None
    if not isinstance(line, dict):
        raise ConfigError(
            "evalset-bad-json", "is not a JSON object", where=where, mend=f"write one a line, for example {EXAMPLE}"
        )
    unknown = sorted(set(line) - LINE_KEYS)
    if unknown:
        raise ConfigError(
            "evalset-unknown-key",
            f"unknown key{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))};"
            f" known: {', '.join(sorted(LINE_KEYS))}",
            where=where,
            mend=f"remove or rename {unknown[0]!r}; data of your own belongs into `input`",
        )
    if "id" not in line:
        raise ConfigError("evalset-missing-id", "has no id", where=where, mend='add "id": "…", unique in the file')
    _check_id(line["id"], where)
    if "input" not in line:
        raise _bad("input", "is missing", where, 'add "input": …, any JSON; the entry point is called with it')
    _check_expect(line, where)
    tags = line.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) and tag for tag in tags):
        raise _bad("tags", "must be a list of texts", where, 'for example "tags": ["refunds"]')
    weight = line.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e12:
        raise _bad("weight", "must be a number above 0 and at most 1e12", where, "remove it, or give a relative share")
    no_calls = line.get("no_calls", False)
    if not isinstance(no_calls, bool):
        raise _bad("no_calls", "must be true or false", where, 'write "no_calls": true')
    try:
        definition = files.digest({key: value for key, value in line.items() if key not in ("weight", "tags")})
    except RecursionError:
        raise ConfigError("evalset-bad-json", "is nested too deeply", where=where, mend="flatten its input") from None
    return EvalTask(
        line["id"], line["input"], line.get("expect"), tuple(tags), float(weight), no_calls, definition, number
    )


def _bad(key: str, what: str, where: str, mend: str) -> ConfigError:
    return ConfigError("evalset-bad-field", f"{key} {what}", where=where, mend=mend)


def _check_id(value: Any, where: str) -> None:
    mend = 'give it a plain text, for example "id": "refund-1"'
    if not isinstance(value, str) or not 1 <= len(value) <= ID_LENGTH:
        raise _bad("id", f"must be a text of 1 to {ID_LENGTH} characters", where, mend)
    if value != value.strip():
        raise _bad("id", "begins or ends with a space", where, mend)
    # line and paragraph separators break reports just as control characters do
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in value):
        raise _bad("id", "holds control characters", where, mend)


def _check_expect(line: Mapping[str, Any], where: str) -> None:
    """An expectation that no answer can fail is refused: it would look like a check and be none."""
    if "expect" not in line:
        return
    expect = line["expect"]
    mend = f"a text that the answer must contain, or an object of {', '.join(sorted(EXPECT_KEYS))}"
    if isinstance(expect, str):
        if not expect:
            raise _bad("expect", "is an empty text, which every answer contains", where, mend)
        return
    if not isinstance(expect, dict) or not expect:
        raise _bad("expect", "must be a text or an object with at least one rule", where, mend)
    unknown = sorted(set(expect) - EXPECT_KEYS)
    if unknown:
        raise _bad(f"expect.{unknown[0]}", "is no known rule", where, mend)
    if "contains" in expect:
        texts = expect["contains"]
        texts = texts if isinstance(texts, list) else [texts]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise _bad("expect.contains", "must be a text or a list of texts, none of them empty", where, mend)
    if "matches" in expect:
        pattern = expect["matches"]
        if not isinstance(pattern, str) or not pattern:
            raise _bad("expect.matches", "must be a regular expression that is not empty", where, mend)
        try:
            _pattern(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise _bad("expect.matches", f"is no regular expression: {error}", where, "mend the pattern") from None


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():  # "possible nested set" and the like must not end a run under -W error
        warnings.simplefilter("ignore")
        return re.compile(pattern)


def expectation_failure(expect: Any, answer: Any) -> str | None:
    """Why ``answer`` is not what ``expect`` (of an eval line) says, in one line; None: it is, or nothing is expected.

    Texts are looked for in ``str(answer)``, that of no answer (None) being empty. ``json`` wants every key that it
    names, and of a list every element in order; more may stand between them.
    """
    if expect is None:
        return None
    text = "" if answer is None else str(answer)
    rules = {"contains": expect} if isinstance(expect, str) else expect
    if "equals" in rules and not _same(rules["equals"], answer):
        return f"answer is {_short(answer)}, expected {_short(rules['equals'])}"
    if "contains" in rules:
        wanted = rules["contains"]
        for part in [wanted] if isinstance(wanted, str) else wanted:
            if part not in text:
                return f"answer does not contain {_short(part)}: {_short(text)}"
    if "matches" in rules and _pattern(rules["matches"]).search(text) is None:
        return f"answer does not match {_short(rules['matches'])}: {_short(text)}"
    if "json" in rules:
        value = answer
        if isinstance(answer, str | bytes) or answer is None:
            try:
                value = files.parse_json(answer if isinstance(answer, bytes) else text)
            except files.BadJson as bad:
                return f"answer {bad.what}: {_short(text)}"
        return _missing(rules["json"], value, "")
    return None


def _same(wanted: Any, value: Any) -> bool:
    """Equality of JSON values: true is not 1, 1 is 1.0, a tuple is a list."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, Mapping):
        return (
            isinstance(value, Mapping)
            and set(wanted) == set(value)
            and all(_same(item, value[key]) for key, item in wanted.items())
        )
    if isinstance(wanted, list):
        return (
            isinstance(value, list | tuple)
            and len(wanted) == len(value)
            and all(_same(left, right) for left, right in zip(wanted, value, strict=True))
        )
    return bool(wanted == value)


def _missing(wanted: Any, value: Any, at: str) -> str | None:
    """What of ``wanted`` is not in ``value``; ``at`` is the path so far."""
    here = at or "answer"
    if isinstance(wanted, Mapping):
        if not isinstance(value, Mapping):
            return f"{here} is {_short(value)}, expected an object"
        for key, item in wanted.items():
            if key not in value:
                return f"{here} has no key {key!r}"
            why = _missing(item, value[key], f"{at}.{key}" if at else str(key))
            if why is not None:
                return why
        return None
    if isinstance(wanted, list):
        if not isinstance(value, list | tuple):
            return f"{here} is {_short(value)}, expected a list"
        rest = iter(value)
        for item in wanted:
            if not any(_missing(item, candidate, at) is None for candidate in rest):
                return f"{here} does not hold {_short(item)} (in this order)"
        return None
    return None if _same(wanted, value) else f"{here} is {_short(value)}, expected {_short(wanted)}"


def _short(value: Any) -> str:
    """A value on one line, at most 80 characters: answers may be long and hold line breaks."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    lead = text[:81]
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in lead)
    return text if len(text) <= 80 else text[:79] + "…"
