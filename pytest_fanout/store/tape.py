"""The file form of a recording, version 1: JSON Lines that git can diff.

Line 1 is the header; then, call by call, the parts that are new in it and the exchange itself; the last line is the end
mark with the digest of all lines before it, so that a file that was cut off or altered is told. Line endings are not
part of the digest. ``schemas/recording.schema.json`` describes each line, ``parts.py`` how contexts are shared.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest, Recording
from pytest_fanout.store import bodies, files, schemas
from pytest_fanout.store.parts import MIN_SIZE, Packer, Unpacker

FORMAT = "pytest-fanout/recording/1"
FAMILY = "pytest-fanout/recording/"

_TEXT = (str,)
_WHOLE = (int,)
_HEADER: Mapping[str, tuple[type, ...]] = {
    "format": _TEXT,
    "agent": _TEXT,
    "task": _TEXT,
    "trial": _WHOLE,
    "definition": (str, type(None)),
    "begun_at": _WHOLE,
    "duration_ms": _WHOLE,
    "status": _TEXT,
    "passed": (bool,),
    "models_requested": (list,),
    "models_served": (list,),
    "draw": _WHOLE,
    "replaced": (list,),
    "exchanges": _WHOLE,
    "hosts": (list,),
    "version": _TEXT,
}
_OPTIONAL = frozenset({"imported", "branched", "redraws"})  # from cassettes; with another's beginning; drawn anew
_BRANCHED: Mapping[str, tuple[type, ...]] = {"from": _TEXT, "exchanges": _WHOLE}
_EXCHANGE: Mapping[str, tuple[type, ...]] = {
    "seq": _WHOLE,
    "layer": _TEXT,
    "role": _TEXT,
    "bucket": _TEXT,
    "started_ms": _WHOLE,
    "request": (dict,),
    "answer": (dict,),
}
_REQUEST: Mapping[str, tuple[type, ...]] = {"method": _TEXT, "url": _TEXT, "headers": (list,)}
_SEEN = frozenset({"depth", "site"})  # where the gateway saw it; where the code has named it
_BODY_KEYS = frozenset({"json", "text", "base64"})
_ANSWER: Mapping[str, tuple[type, ...]] = {
    "status": (int, type(None)),
    "headers": (list,),
    "chunks": (list,),
    "ms": (list,),
    "ended_ms": _WHOLE,
    "outcome": _TEXT,
    "error": (str, type(None)),
}


def encode(recording: Recording) -> bytes:
    """The file of a recording. Its exchanges are put into stored form (bodies.py) here; ``digest`` is not used."""
    requests = [bodies.stored_request(exchange.request, exchange.role) for exchange in recording.exchanges]
    contents = [_body(request.body) for request, _ in requests]
    answers = [bodies.stored_answer(exchange.answer) for exchange in recording.exchanges]
    heard = [list(long_texts(bodies.json_value(answer.body))) for answer in answers]
    packer = Packer(
        value
        for content, texts in zip(contents, heard, strict=True)
        for value in ([content[1], texts] if content else [texts])
    )
    lines = [dumps(_header_line(recording))]
    count = 0
    for exchange, (request, redacted), content, answer, texts in zip(
        recording.exchanges, requests, contents, answers, heard, strict=True
    ):
        new: list[Any] = []
        line: dict[str, Any] = {"method": request.method, "url": request.url, "headers": _pairs(request.headers)}
        if content:
            kind, value = content
            line[kind], parts = packer.pack(value)
            new += parts
        if request.body and not redacted:
            line["raw"] = exchange.raw_body or hashlib.sha256(exchange.request.body).hexdigest()
        chunks = []
        for chunk in answer.chunks:
            form, parts = _chunk(chunk, packer, texts)
            chunks.append(form)
            new += parts
        for part in new:
            lines.append(dumps({"part": count, "value": part}))
            count += 1
        seen: dict[str, Any] = {} if exchange.depth is None else {"depth": exchange.depth}
        if exchange.site is not None:
            seen["site"] = exchange.site
        lines.append(
            dumps(
                {
                    "seq": exchange.seq,
                    "layer": exchange.layer,
                    "role": exchange.role,
                    "bucket": exchange.bucket,
                    **seen,
                    "started_ms": exchange.started_ms,
                    "request": line,
                    "answer": {
                        "status": answer.status,
                        "headers": _pairs(answer.headers),
                        "chunks": chunks,
                        "ms": list(answer.chunk_ms),
                        "ended_ms": answer.ended_ms,
                        "outcome": answer.outcome,
                        "error": answer.error,
                    },
                }
            )
        )
    lines.append(dumps({"end": _digest(lines)}))
    return b"\n".join(lines) + b"\n"


def _header_line(recording: Recording) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "agent": recording.agent,
        "task": recording.task,
        "trial": recording.trial,
        "definition": recording.definition,
        "begun_at": recording.begun_at,
        "duration_ms": recording.duration_ms,
        "status": recording.status,
        "passed": recording.passed,
        "models_requested": list(recording.models_requested),
        "models_served": list(recording.models_served),
        "draw": recording.draw,
        "replaced": list(recording.replaced),
        "exchanges": len(recording.exchanges),
        "hosts": sorted(hosts_of(recording.exchanges)),
        "version": _version(),
        **({"redraws": recording.redraws} if recording.redraws else {}),
        **({"imported": list(recording.imported)} if recording.imported else {}),
        **_branched(recording),
    }


def _branched(recording: Recording) -> dict[str, Any]:
    if recording.branched_from is None:
        return {}
    return {"branched": {"from": recording.branched_from, "exchanges": recording.shared}}


def _version() -> str:
    try:
        return importlib.metadata.version("pytest-fanout")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


def hosts_of(exchanges: Iterable[Exchange]) -> set[str]:
    """``host:port`` of the model requests among ``exchanges``."""
    return {bodies.host_of(exchange.request.url) for exchange in exchanges if exchange.role == "model"} - {""}


def dumps(document: Any) -> bytes:
    """One line. Keys keep their order: what a reader looks for first stands first."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, but an escape
        return json.dumps(document, separators=(",", ":"), check_circular=False).encode("ascii")


def _body(body: bytes) -> tuple[str, Any] | None:
    if not body:
        return None
    value = bodies.json_value(body)
    if value is not None:
        return "json", value
    try:
        return "text", body.decode("utf-8")
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode("ascii")


def long_texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value that may be worth a reference."""
    if isinstance(value, str):
        if len(value.encode("utf-8", "surrogatepass")) >= MIN_SIZE:
            yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from long_texts(item)


def _chunk(chunk: bytes, packer: Packer, texts: list[str]) -> tuple[Any, list[Any]]:
    try:
        return packer.pack_written(chunk.decode("utf-8"), texts)
    except UnicodeDecodeError:  # binary, or cut inside a character
        return {"base64": base64.b64encode(chunk).decode("ascii")}, []


def _pairs(headers: tuple[tuple[str, str], ...]) -> list[list[str]]:
    return [[name, value] for name, value in headers]


def _digest(lines: list[bytes]) -> str:
    return "sha256:" + hashlib.sha256(b"\n".join(lines)).hexdigest()


# --- reading -------------------------------------------------------------------------------------------------------


def checked_lines(data: bytes, where: str, mend: str) -> tuple[list[bytes], str]:
    """The lines before the end mark, and the digest, both proved to belong together.

    Raises:
        IntegrityError: conflict marks, cut off, altered.
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.startswith((b"<<<<<<< ", b"=======", b">>>>>>> ")):
            raise IntegrityError(
                "conflict-marks",
                "holds the marks of an unresolved merge conflict",
                where=f"{where}:{number}",
                mend="take the file of one side whole (git checkout --ours or --theirs), then run "
                "`pytest --fanout-budget` again",
            )
    if lines and lines[-1] in (b"", b"\r"):
        lines.pop()
    lines = [line.removesuffix(b"\r") for line in lines]
    try:
        end = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        end = None
    if not isinstance(end, dict) or set(end) != {"end"}:
        raise IntegrityError(
            "recording-truncated",
            "ends without its end mark: it was cut off, or is no recording",
            where=f"{where}:{max(len(lines), 1)}",
            mend=mend,
        )
    digest = _digest(lines[:-1])
    if end["end"] != digest:
        raise IntegrityError(
            "recording-altered", "was altered: its content does not fit its digest", where=where, mend=mend
        )
    return lines[:-1], digest


def end_of(tail: bytes) -> str | None:
    """The digest in the end mark of a file whose last bytes these are, unproved; None: there is none."""
    try:
        end = json.loads(tail.rstrip().rpartition(b"\n")[2])
    except ValueError:
        return None
    found = end.get("end") if isinstance(end, dict) else None
    return found if isinstance(found, str) else None


def decode(data: bytes, where: str, mend: str) -> Recording:
    """The recording that a file holds.

    Raises:
        IntegrityError: anything that is not as ``encode`` writes it, naming line and key.
    """
    lines, digest = checked_lines(data, where, mend)
    header = header_of(lines[0] if lines else b"", where, mend)
    unpacker = Unpacker()
    exchanges: list[Exchange] = []
    for number, text in enumerate(lines[1:], 2):
        line = _parse(text, f"{where}:{number}", mend)
        try:
            if isinstance(line, dict) and set(line) == {"part", "value"}:
                unpacker.add(line["part"], line["value"])
            else:
                exchanges.append(_exchange(line, unpacker))
        except (_Malformed, ValueError, RecursionError) as error:
            raise _malformed(line, str(error), f"{where}:{number}", mend) from None
    if header["exchanges"] != len(exchanges):
        raise _malformed(header, f"exchanges is {header['exchanges']}, found {len(exchanges)}", f"{where}:1", mend)
    return Recording(
        header["agent"],
        header["task"],
        header["trial"],
        header["definition"],
        header["begun_at"],
        header["duration_ms"],
        header["status"],
        header["passed"],
        tuple(exchanges),
        tuple(header["models_requested"]),
        tuple(header["models_served"]),
        header["draw"],
        tuple(header["replaced"]),
        digest,
        header.get("redraws", 0),
        tuple(header.get("imported", ())),
        header.get("branched", {}).get("from"),
        header.get("branched", {}).get("exchanges", 0),
        header["version"],
    )


def header_of(text: bytes, where: str, mend: str) -> dict[str, Any]:
    """The header line of a recording, checked."""
    header = _parse(text.removesuffix(b"\r"), f"{where}:1", mend)
    version = header.get("format") if isinstance(header, dict) else None
    if isinstance(version, str) and version.startswith(FAMILY) and version != FORMAT:
        raise IntegrityError(
            "recording-format",
            f"has the format {version!r}; this version of pytest-fanout reads {FORMAT!r}",
            where=where,
            mend="upgrade pytest-fanout",
        )
    try:
        _check(header, _HEADER, _OPTIONAL)
        if version != FORMAT:
            raise _Malformed(f"format must be {FORMAT!r}")
        for key in ("models_requested", "models_served", "replaced", "hosts"):
            _items(header[key], (str,), key)
        if type(header.get("redraws", 1)) is not int or header.get("redraws", 1) < 1:
            raise _Malformed("redraws has the wrong type")
        if type(header.get("imported", [])) is not list:
            raise _Malformed("imported has the wrong type")
        _items(header.get("imported", []), (str,), "imported")
        if "branched" in header:
            _check(header["branched"], _BRANCHED)
            if header["branched"]["exchanges"] > header["exchanges"]:
                raise _Malformed("branched names more exchanges than there are")
    except _Malformed as error:
        raise _malformed(header, str(error), f"{where}:1", mend) from None
    return dict(header)


class _Malformed(Exception):
    """What is wrong with a line."""


def _parse(text: bytes, where: str, mend: str) -> Any:
    try:
        return files.parse_json(text)
    except files.BadJson as bad:
        raise IntegrityError("recording-malformed", bad.what, where=where, mend=mend) from None


def _malformed(line: Any, what: str, where: str, mend: str) -> IntegrityError:
    """The schema names the key best; what it cannot say (a part that is not there) is said by the reader."""
    try:
        what = schemas.fault(line, "recording") or what
    except RecursionError:
        what = "is nested too deeply"
    return IntegrityError("recording-malformed", what, where=where, mend=mend)


def _check(value: Any, spec: Mapping[str, tuple[type, ...]], others: frozenset[str] = frozenset()) -> None:
    """By hand: jsonschema would take longer than all else together on a stream of a thousand chunks."""
    if not isinstance(value, dict):
        raise _Malformed("is not an object")
    for key, types in spec.items():
        if key not in value:
            raise _Malformed(f"lacks {key!r}")
        item = value[key]
        if type(item) not in types or (type(item) is int and item < 0):
            raise _Malformed(f"{key} has the wrong type")
    if len(value) > len(spec) and value.keys() - spec.keys() - others:
        raise _Malformed(f"has unknown keys {', '.join(sorted(value.keys() - spec.keys() - others))}")


def _items(values: Any, types: tuple[type, ...], key: str) -> None:
    for value in values:
        if type(value) not in types:
            raise _Malformed(f"{key} holds an item of the wrong type")


def _exchange(line: Any, unpacker: Unpacker) -> Exchange:
    _check(line, _EXCHANGE, _SEEN)
    depth, site = line.get("depth"), line.get("site")
    if site is not None and type(site) is not str:
        raise _Malformed("site has the wrong type")
    if depth is not None and (type(depth) is not int or depth < 0):
        raise _Malformed("depth has the wrong type")
    request, answer = line["request"], line["answer"]
    _check(request, _REQUEST, _BODY_KEYS | {"raw"})
    _check(answer, _ANSWER)
    _items(answer["ms"], (int,), "ms")
    if len(answer["ms"]) != len(answer["chunks"]):
        raise _Malformed("ms and chunks differ in length")
    raw = request.get("raw", "")
    if not isinstance(raw, str):
        raise _Malformed("raw has the wrong type")
    return Exchange(
        line["seq"],
        line["layer"],
        line["role"],
        line["bucket"],
        HttpRequest(request["method"], request["url"], _headers(request), _body_bytes(request, unpacker)),
        HttpAnswer(
            answer["status"],
            _headers(answer),
            tuple(_chunk_bytes(chunk, unpacker) for chunk in answer["chunks"]),
            tuple(answer["ms"]),
            answer["ended_ms"],
            answer["outcome"],
            answer["error"],
        ),
        line["started_ms"],
        depth=depth,
        site=site,
        raw_body=raw,
    )


def _headers(line: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    for pair in line["headers"]:
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
            raise _Malformed("headers must be pairs of texts")
    return tuple((name, value) for name, value in line["headers"])


def _body_bytes(request: Mapping[str, Any], unpacker: Unpacker) -> bytes:
    kinds = _BODY_KEYS & request.keys()
    if not kinds:
        return b""
    if len(kinds) > 1:
        raise _Malformed(f"has {' and '.join(sorted(kinds))}: only one body is possible")
    kind = next(iter(kinds))
    if kind == "json":
        try:
            return unpacker.text(request[kind]).encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate
            return bodies.dump(unpacker.unpack(request[kind]))
    value = unpacker.unpack(request[kind])
    if not isinstance(value, str):
        raise _Malformed(f"{kind} must be text")
    return value.encode("utf-8", "surrogatepass") if kind == "text" else _binary(value)


def _chunk_bytes(chunk: Any, unpacker: Unpacker) -> bytes:
    if isinstance(chunk, str) or (isinstance(chunk, dict) and "$join" in chunk):
        return unpacker.written(chunk).encode("utf-8", "surrogatepass")
    if isinstance(chunk, dict) and set(chunk) == {"base64"} and isinstance(chunk["base64"], str):
        return _binary(chunk["base64"])
    raise _Malformed("chunks must be texts or base64")


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Malformed("holds bad base64") from None
