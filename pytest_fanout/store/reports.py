"""fanout-report.json on disk: written whole or not at all, and read back only when nobody has touched it.

A report that is missing, cut off, of another version or altered is an IntegrityError, never an empty run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import (
    OUTCOMES,
    Base,
    CallSite,
    ControlTrial,
    Head,
    Problem,
    Run,
    SessionFacts,
    StaleNote,
    TaskRun,
    Totals,
)
from pytest_fanout.store import files, schemas

SCHEMA = "pytest-fanout/report/1"
AGAIN = "run `pytest --fanout-budget` again"
MAX_BYTES = 256 * 2**20
# Valid in a JSON string, hostile to whoever prints the file: C1 controls, line separators, bidi, lone surrogates.
_HOSTILE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def write_report(path: Path, document: Mapping[str, Any]) -> None:
    """Write ``document`` with its digest in one step.

    Raises:
        IntegrityError: it does not fit the schema; nothing is written.
        StorageError: the file could not be written; what stood there is whole.
    """
    given = {key: value for key, value in document.items() if key != "digest"}
    # what a reader will see: surrogate pairs from split streams become one character, and the digest is of that
    written = json.loads(json.dumps(given, allow_nan=False))
    written["digest"] = files.digest(written)
    _check_shape(written, str(path))
    digest = written.pop("digest")
    text = f'{{"digest":"{digest}",' + _laid_out(written)[1:]
    text = _HOSTILE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    files.write_atomically(path, text.encode() + b"\n")


#: How the file begins. What follows is the canonical form with line ends between its values (a string holds none), so
#: that a report of tens of thousands of trials need not be written out again to see that it is whole.
_SEALED = re.compile(rb'\{"digest":"(sha256:[0-9a-f]{64})",')


def _laid_out(value: Any, depth: int = 4) -> str:
    """The canonical form with line ends: down to ``depth`` one line a value, that is, one a trial."""
    if not depth or not isinstance(value, dict | list) or not value:
        return files.canonical(value).decode("utf-8", "surrogatepass")
    if isinstance(value, list):
        return "[\n" + ",\n".join(_laid_out(item, depth - 1) for item in value) + "\n]"
    return (
        "{\n"
        + ",\n".join(
            f"{json.dumps(key, ensure_ascii=False)}:{_laid_out(value[key], depth - 1)}" for key in sorted(value)
        )
        + "\n}"
    )


def _is_whole(data: bytes, document: Mapping[str, Any], digest: object) -> bool:
    """Whether the digest is that of the document. The fast way knows files that were left as they were written."""
    head = _SEALED.match(data)
    if head is not None and head[1].decode("ascii") == digest:
        text = b"{" + data[head.end() :].replace(b"\n", b"")
        if digest == "sha256:" + hashlib.sha256(text).hexdigest():
            return True
    return digest == files.digest(document)


def write_unfinished(path: Path, run_id: str, *, mode: str = "replay", begun_at: int | None = None) -> None:
    """Put a valid report in place that says *invalid, run not finished*, so that a run that dies is never green.

    ``begun_at``: unix seconds, by default now. Raises as ``write_report`` does.
    """
    base = {"rev": None, "source": "none", "is_gate": False, "problem": "run not finished"}
    problem = dataclasses.asdict(Problem("run-not-finished", "run not finished", "invalid"))
    none_counted = dict.fromkeys(
        ("calls", "attempts", "tokens", "aside", "late", "unattributed", "unclassified", "other"), 0
    )
    items = dict.fromkeys(("expected", "collected", "ran", "deselected", "skipped"), 0)
    # pytest's own exit is not known yet: 2, interrupted, is what holds if nothing replaces this report
    session = {**items, "shard": None, "pytest_exit": 2, "partial": False, "stopped": "run not finished"}
    write_report(
        path,
        {
            "schema": SCHEMA,
            "tool": "pytest-fanout",
            "outcome": OUTCOMES["invalid"],
            "verdict": "invalid",
            "headline": "not measured (invalid): run not finished",
            "run_id": run_id,
            "mode": mode,
            "begun_at": int(time.time()) if begun_at is None else begun_at,
            "ci": False,
            "sealed": True,
            "base": base,
            "head": {"rev": None, "dirty": False},
            "inputs": {},
            "session": session,
            "totals": none_counted,
            "problems": [problem],
            "notices": [],
            "measured": {"base": None, "head": None, "problems": [problem]},
            "agents": [],
            "definitions": {},
            "evalsets": {},
            "classes": [],
            "call_sites": {},
            "explanation": {"sites": [], "classes": []},
            "capacity": {"lines": ["GPUs not projected: the run did not finish"], "classes": []},
            "next": ["pytest --fanout-budget"],
        },
    )


def read_verdict(path: Path) -> tuple[str, str]:
    """Outcome and verdict as the report says them. Raises IntegrityError as ``read_report`` does."""
    document = load_document(path)
    return document["outcome"], document["verdict"]


def read_report(path: Path) -> Run:
    """The run that the report was made from, its trials in order of class, task and number, without their calls.

    Raises:
        IntegrityError: missing, not a file, cut off, of another version, altered since it was written.
    """
    document = load_document(path)
    where = str(path)
    sites = {
        key: CallSite(site["fingerprint"], site["api"], site["model"], tuple(site["tools"]), site["label"])
        for key, site in document["call_sites"].items()
    }
    measured = document["measured"]
    return Run(
        run_id=document["run_id"],
        mode=document["mode"],
        begun_at=document["begun_at"],
        agents=tuple(document["agents"]),
        tasks=tuple(
            _trial(entry["name"], trial, sites, where) for entry in document["classes"] for trial in entry["tasks"]
        ),
        definitions=document["definitions"],
        evalsets=document["evalsets"],
        session=SessionFacts(**document["session"]),
        totals=Totals(**document["totals"]),
        problems=_problems(measured["problems"]),
        base=Base(**measured["base"]) if measured["base"] is not None else None,
        head=Head(**measured["head"]) if measured["head"] is not None else None,
        inputs=document["inputs"],
        ci=document["ci"],
        sealed=document["sealed"],
        tool=document["tool"],
        volatile=tuple(document.get("volatile", ())),
        control=tuple(
            ControlTrial(entry["name"], **{**made, "models_served": tuple(made["models_served"])})
            for entry in document["classes"]
            for made in entry.get("control", ())
        ),
    )


def _problems(entries: Iterable[Mapping[str, Any]]) -> tuple[Problem, ...]:
    return tuple(Problem(**entry) for entry in entries)


def _setters() -> tuple[tuple[str, Callable[[TaskRun, Any], None], Any], ...]:
    """Of each field of a trial: its name, what sets it, and its value where the report has none."""
    found = []
    for field in dataclasses.fields(TaskRun):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        found.append((field.name, getattr(TaskRun, field.name).__set__, default))
    return tuple(found)


_SETTERS = _setters()


def _trial(agent: str, values: dict[str, Any], sites: Mapping[str, CallSite], where: str) -> TaskRun:
    """One of tens of thousands: what is empty, as most of it is, is looked at and left. ``values`` is used up."""
    named = values["call_sites"]
    if any(key not in sites for key in named):
        unknown = next(key for key in named if key not in sites)
        raise IntegrityError(
            "report-malformed", f"names the call site {unknown!r} that it does not describe", where=where, mend=AGAIN
        )
    stale = values["stale"]
    if stale is not None:
        lines = {key: tuple(stale.get(key, ())) for key in ("changes", "kinds")}
        values["stale"] = StaleNote(**{**stale, **lines})
    values["problems"] = _problems(values["problems"])
    values["call_sites"] = tuple([sites[key] for key in named])
    for key in ("models_requested", "models_served", "hosts", "volatile"):
        values[key] = tuple(values.get(key, ()))
    values["agent"] = agent
    # what the class itself does with more than thirty arguments takes three times as long; the schema knows them all
    made = object.__new__(TaskRun)
    for name, put, default in _SETTERS:
        put(made, values.get(name, default))
    return made


def load_document(path: Path) -> dict[str, Any]:
    """The checked document: strict JSON, version, digest, schema, and an outcome that belongs to its verdict.

    Raises:
        IntegrityError: as ``read_report`` does.
    """
    where = str(path)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise IntegrityError("report-missing", "is not a regular file", where=where, mend=f"remove it, then {AGAIN}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise IntegrityError("report-malformed", "is larger than 256 MiB", where=where, mend=AGAIN)
        data = path.read_bytes()
    except FileNotFoundError:
        raise IntegrityError(
            "report-missing", "there is no report", where=where, mend="pytest --fanout-budget"
        ) from None
    except OSError as error:
        raise IntegrityError(
            "report-missing", f"cannot be read: {error.strerror or error}", where=where, mend="mend its permissions"
        ) from None
    if not data.rstrip().endswith(b"}"):
        raise IntegrityError("report-truncated", "is cut off: its end is missing", where=where, mend=AGAIN)
    document = files.load_json(data, where, mend=AGAIN)
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise IntegrityError("report-malformed", "is not a fanout report", where=where, mend=AGAIN)
    if document["schema"] != SCHEMA:
        raise IntegrityError(
            "report-version",
            f"has schema {document['schema'][:60]!r}; this version of pytest-fanout reads {SCHEMA!r}",
            where=where,
            mend=f"use one version of pytest-fanout for both steps, then {AGAIN}",
        )
    said = document.pop("digest", None)
    try:
        is_whole = _is_whole(data, document, said)
    except RecursionError:
        raise IntegrityError("report-malformed", "is nested too deeply", where=where, mend=AGAIN) from None
    if not is_whole:
        raise IntegrityError("report-altered", "was changed after it was written", where=where, mend=AGAIN)
    document["digest"] = said
    _check_shape(document, where)
    if document["outcome"] != OUTCOMES[document["verdict"]]:
        raise IntegrityError(
            "report-malformed",
            f"says outcome {document['outcome']!r} beside verdict {document['verdict']!r}",
            where=where,
            mend=AGAIN,
        )
    return document


def _check_shape(document: Mapping[str, Any], where: str) -> None:
    """Raise IntegrityError naming the key that fits the schema least."""
    fault = schemas.fault(document, "report")
    if fault is not None:
        raise IntegrityError("report-malformed", f"does not fit its schema: {fault}", where=where, mend=AGAIN)
