"""Recordings made from cassettes of vcrpy and pytest-recording, as far as those can tell what was said.

A cassette holds no times, no chunks and no order of concurrent calls; what filters of its own have removed is gone.
A recording of it says so in its header, and what depends on the clock stays unknown wherever it is replayed.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from pytest_fanout import wire
from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.records import Attempt, Endpoint, Exchange, HttpAnswer, HttpRequest, Recording
from pytest_fanout.store import files
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.recordings import RecordingStore, refuse_empty_answers
from pytest_fanout.wire.bodies import decode
from pytest_fanout.wire.endpoints import host_of
from pytest_fanout.wire.hosts import is_model_host

Redact = Callable[[HttpRequest, HttpAnswer], tuple[HttpRequest, HttpAnswer]]
LAYER: Final = "vcrpy"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MEND: Final = "record the task with pytest-fanout instead: pytest --fanout-budget --fanout-mode=record"


class Reader(Protocol):
    """What tells model calls from other requests and reads them, by the codecs of a project as well."""

    def classify(self, method: str, url: str) -> Endpoint: ...

    def read(self, request: HttpRequest, answer: HttpAnswer) -> Attempt | None: ...


class _BuiltIn:
    """No codecs but our own."""

    def classify(self, method: str, url: str) -> Endpoint:
        return wire.classify(method, url)

    def read(self, request: HttpRequest, answer: HttpAnswer) -> Attempt | None:
        said = (answer.status, answer.headers, answer.body)
        return wire.read_call(request.method, request.url, request.body, *said)


BUILT_IN: Final = _BuiltIn()


@dataclass(frozen=True, slots=True)
class Cassette:
    """A file, and the trial that its recording is to be. ``how``: why it is this task, for people."""

    path: Path
    task: str
    trial: int
    how: str


def find_cassettes(
    paths: Iterable[Path], root: Path, *, task: str | None, trial: int, known: Iterable[str]
) -> tuple[Cassette, ...]:
    """The cassettes at some paths, each with its task; several of one task are its trials, in the order of their names.

    Args:
        paths: files, and folders that are searched for ``.yaml``, ``.yml`` and ``.json``.
        root: of the project: test ids begin there.
        task: the task of all of them; None: each is named after its own.
        trial: the number of the first.
        known: ids of the eval set: a file that is named like one is of that task.

    Raises:
        UsageError: no such path, no cassette there, or no task to be made of a name.
    """
    ids, taken, found = frozenset(known), dict[str, int](), []
    for path in _files(paths):
        own, how = (task, "--task") if task is not None else _task_of(path, root, ids)
        found.append(Cassette(path, own, trial + taken.get(own, 0), how))
        taken[own] = taken.get(own, 0) + 1
    return tuple(found)


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES)
        if not inside:
            raise UsageError(
                "no-cassettes",
                "holds no file that ends with .yaml, .yml or .json" if path.is_dir() else "does not exist",
                where=str(path),
                mend="name a cassette of vcrpy, or a folder of them",
            )
        found += inside
    return list(dict.fromkeys(found))


def _task_of(path: Path, root: Path, known: frozenset[str]) -> tuple[str, str]:
    """An eval set's task that the file is named after, or the test that pytest-recording names it after."""
    if path.stem in known:
        return path.stem, "an id of the eval set"
    parts = path.resolve().parts
    base = root.resolve()
    with contextlib.suppress(ValueError):
        folder = Path(*parts[:-3]).relative_to(base).as_posix()
        if len(parts) > 3 and parts[-3] == "cassettes":
            prefix = "" if folder == "." else f"{folder}/"
            name = path.stem
            head, dot, rest = name.partition(".")
            if dot and head[:1].isupper() and "[" not in head:
                name = f"{head}::{rest}"
            return f"{prefix}{parts[-2]}.py::{name}", "the test of pytest-recording"
    raise UsageError(
        "cassette-of-no-task",
        "is named after no task of the eval set, and lies in no folder cassettes/<test module>/ of pytest-recording",
        where=str(path),
        mend="name its task: --task ID",
    )


def read_cassette(
    cassette: Cassette, agent: str, definition: str | None, root: Path, reader: Reader = BUILT_IN
) -> Recording:
    """A cassette as a recording; nothing is written.

    Raises:
        IntegrityError: it cannot be read, holds no call of a model, or an answer of a model that is empty.
    """
    where = str(cassette.path)
    exchanges, begun_at = _exchanges(cassette.path, reader)
    refuse_empty_answers(exchanges, where, _MEND)
    asked, served = set(), set()
    answered = False
    for exchange in exchanges:
        request, answer = exchange.request, exchange.answer
        attempt = reader.read(request, answer)
        if attempt is None or attempt.kind not in ("generate", "compact"):
            continue
        asked.add(attempt.model_requested or "")
        served.add(attempt.model_served or "")
        answered = answered or attempt.status != "error" or attempt.usage_source != "none"
    if not answered:
        raise IntegrityError(
            "cassette-without-calls",
            f"holds {len(exchanges)} requests and no answer of a model that is known here",
            where=where,
            mend="leave it out, or record its task anew with pytest-fanout",
        )
    with contextlib.suppress(ValueError):
        where = cassette.path.resolve().relative_to(root.resolve()).as_posix()
    return Recording(
        agent=agent,
        task=cassette.task,
        trial=cassette.trial,
        definition=definition or files.digest({"test": cassette.task}),
        begun_at=begun_at,
        duration_ms=0,
        status="ok",
        passed=True,
        exchanges=exchanges,
        models_requested=tuple(sorted(asked - {""})),
        models_served=tuple(sorted(served - {""})),
        imported=(where if not Path(where).is_absolute() else cassette.path.name,),
    )


def import_cassette(
    cassette: Cassette,
    agent: str,
    definition: str | None,
    root: Path,
    store: RecordingStore,
    redact: Redact | None = None,
    reader: Reader = BUILT_IN,
) -> Recording:
    """Store a cassette as the recording of its trial.

    Args:
        redact: what to make of each request and answer before it is stored; raises FanoutError where it cannot tell.
        reader: tells model calls from other requests.

    Raises:
        UsageError: the trial is recorded already.
        IntegrityError: the cassette cannot be a recording.
        StorageError: it holds a secret, or the disk refuses.
    """
    recording = read_cassette(cassette, agent, definition, root, reader)
    if cassette.trial in store.trials(agent, cassette.task):
        raise UsageError(
            "already-recorded",
            f"trial {cassette.trial} of {agent}::{cassette.task} is recorded already, and an import replaces nothing",
            where=str(store.path(agent, cassette.task, cassette.trial)),
            mend=f"--trial {max(store.trials(agent, cassette.task)) + 1}, or remove that file first",
        )
    if redact is not None:
        recording = replace(recording, exchanges=tuple(_redacted(exchange, redact) for exchange in recording.exchanges))
    return store.save(recording)


def _redacted(exchange: Exchange, redact: Redact) -> Exchange:
    request, answer = redact(exchange.request, exchange.answer)
    return replace(exchange, request=request, answer=answer)


def definitions_of(agent: str, evalset: Path | None) -> Mapping[str, str]:
    """The definitions of a class's eval set by task id; none where the class has no eval set.

    Raises:
        ConfigError: the eval set cannot be read.
    """
    return {} if evalset is None else {task.id: task.definition for task in read_evalset(evalset, agent).tasks}


def _exchanges(path: Path, reader: Reader) -> tuple[tuple[Exchange, ...], int]:
    """What a cassette holds, in its order, one millisecond apart; and when it was made, in Unix seconds."""
    from vcr.serialize import deserialize  # type: ignore[import-untyped]
    from vcr.serializers import jsonserializer, yamlserializer  # type: ignore[import-untyped]

    serializer = jsonserializer if path.suffix == ".json" else yamlserializer
    try:
        read = deserialize(path.read_text(encoding="utf-8"), serializer)
        pairs = list(zip(read[0], read[1], strict=True))
        exchanges = tuple(_exchange(number, request, answer, reader) for number, (request, answer) in enumerate(pairs))
        made = next((at for _, answer in pairs if (at := _date_of(answer)) is not None), int(path.stat().st_mtime))
    except Exception as error:  # of vcrpy, of YAML, or of a shape that is none of theirs
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise IntegrityError(
            "cassette-unreadable", f"is no cassette of vcrpy: {why}", where=str(path), mend=_MEND
        ) from None
    return exchanges, made


def _exchange(number: int, request: Any, answer: Mapping[str, Any], reader: Reader) -> Exchange:
    status, headers, body = _answer(answer)
    heard = HttpAnswer(status, headers, (body,) if body else (), (0,) if body else (), 0)
    sent = HttpRequest(
        str(request.method).upper(),
        str(request.uri),
        tuple((str(name).lower(), _text(value)) for name, value in request.headers.items()),
        _body(request.body_bytes),
    )
    role = "model" if _is_model(sent, reader) else "tool"
    return Exchange(number, LAYER, role, "agent", sent, heard, number)


def _is_model(request: HttpRequest, reader: Reader) -> bool:
    if reader.classify(request.method, request.url).kind != "other":
        return True
    if wire.is_unclassified(request.method, request.url):
        return True
    return is_model_host(host_of(request.url))


def _answer(answer: Mapping[str, Any]) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    """Status, headers and body; vcrpy before version 6 wrote those of httpx in a form of its own."""
    is_old = "status_code" in answer
    status = int(answer["status_code"] if is_old else answer["status"]["code"])
    body = answer.get("content") if is_old else (answer.get("body") or {}).get("string")
    headers = []
    for name, values in (answer.get("headers") or {}).items():
        for value in values if isinstance(values, list | tuple) else (values,):
            headers.append((str(name).lower(), _text(value)))
    return status, *_decoded(tuple(headers), _body(body))


def _decoded(headers: tuple[tuple[str, str], ...], body: bytes) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """The body without its coding. Cassettes often name one that was undone before they were written."""
    encoding = ", ".join(value for name, value in headers if name == "content-encoding")
    if not encoding or not body:
        return headers, body
    plain = decode(body, encoding)
    if "undecodable" in plain.notes:
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            return headers, body  # a coding that is not known here: the client undoes it when it is replayed
        plain = decode(body, None)
    return tuple(pair for pair in headers if pair[0] != "content-encoding"), plain.data


def _body(value: Any) -> bytes:
    """A body as bytes. aiohttp's are kept as they were given to it: JSON that it would have written, or form fields."""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if hasattr(value, "read"):
        return _body(value.read())
    if isinstance(value, list) and all(isinstance(part, bytes | str) for part in value) and value:
        return b"".join(map(_body, value))
    return json.dumps(value).encode("utf-8")


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _date_of(answer: Mapping[str, Any]) -> int | None:
    for name, value in _answer(answer)[1]:
        if name == "date":
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                return max(0, int(email.utils.parsedate_to_datetime(value).timestamp()))
    return None
