"""Coverage-guided fuzzing of the readers: whatever comes over the wire, the record is whole and its numbers are honest.

Run: ``pip install -e '.[fuzz]' && python fuzz/read_call.py -max_total_time=600 -timeout=20 -rss_limit_mb=1024``.
A failure leaves its input in ``crash-*``; ``python fuzz/read_call.py crash-…`` runs that one again, and
``FANOUT_FUZZ_SHOW=1`` prints what it stands for. See "Fuzzing" in docs/wire.md.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import atheris
import brotli
import zstandard

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "wire")]

with atheris.instrument_imports(include=["pytest_fanout.wire"]):
    from aws_frames import encode_frame
    from invariants import check_invariants, check_quick
    from wire_examples import EXAMPLES

    from pytest_fanout.wire import classify, is_unclassified, read_call
    from pytest_fanout.wire.canonical import body_key
    from pytest_fanout.wire.changes import describe_changes
    from pytest_fanout.wire.eventstream import parse_frames
    from pytest_fanout.wire.quick import quick_cost
    from pytest_fanout.wire.thinning import can_thin, thin

_GOOGLE = "https://generativelanguage.googleapis.com/v1beta"
_VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l"
_BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model"
URLS = sorted(
    {example.url for example in EXAMPLES.values()}
    | {
        "https://api.openai.com/v1/completions",
        "https://api.openai.com/v1/responses/compact",
        "https://api.openai.com/v1/decisions",
        f"{_GOOGLE}/models/gemini-x:generateContent",
        f"{_GOOGLE}/models/gemini-x:streamGenerateContent?alt=sse",
        f"{_GOOGLE}/interactions",
        f"{_VERTEX}/publishers/anthropic/models/claude-x:streamRawPredict",
        f"{_VERTEX}/publishers/acme/models/m:rawPredict",
        f"{_VERTEX}/endpoints/1:predict",
        f"{_BEDROCK}/m/converse-stream",
        f"{_BEDROCK}/m/invoke-with-response-stream",
        "http://localhost:11434/api/chat",
        "http://localhost:11434/api/generate",
        "https://api.mistral.ai/v1/conversations",
        "https://api.mistral.ai/v1/fim/completions",
        "https://api.openai.com/v1/files",
        "wss://api.openai.com/v1/responses",
    }
)
BODIES = [EXAMPLES[name] for name in sorted(EXAMPLES)]
STATUSES = [200, 200, 200, 200, 200, 201, 204, 307, 400, 424, 429, 500, 529, 0, -1, None]
TYPES = [
    "application/json",
    "text/event-stream",
    "text/event-stream; charset=utf-8",
    "application/vnd.amazon.eventstream",
    "application/x-ndjson",
    "application/json, text/event-stream",
    "",
]
CODINGS = ["", "", "", "", "gzip", "deflate", "br", "zstd", "gzip, gzip", "br, gzip", "identity", "rot13"]
VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2.0,
    2.5,
    2**53,
    2**53 + 1,
    10**400,
    "",
    "text",
    "\ud800",
    [],
    {},
    [None],
    [{}],
]
SHOW = bool(os.environ.get("FANOUT_FUZZ_SHOW"))


def documents() -> Iterator[Any]:
    """Every JSON value that the worked examples hold, events and chunks among them."""
    for entry in json.loads((ROOT / "tests" / "wire" / "worked_examples.json").read_text(encoding="utf-8")):
        yield entry["request"]
        for form in ("document", "events", "frames", "chunks", "lines"):
            yield entry.get(form)


def subtrees(node: Any) -> Iterator[Any]:
    yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from subtrees(inner)


PARTS = [part for document in documents() for part in subtrees(document) if isinstance(part, (dict, list)) and part]
WORDS = sorted({key for part in PARTS if isinstance(part, dict) for key in part})


class Case(NamedTuple):
    """One exchange as the readers get it."""

    method: str
    url: str
    request: bytes
    status: int | None
    headers: list[tuple[str, str]]
    body: bytes


def paths(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [at] + [path for key, value in inner for path in paths(value, (*at, key))]


def mutated(document: Any, data: atheris.FuzzedDataProvider) -> Any:
    """A document in which a few values have become something else, have gone, or have been joined by another."""
    for _ in range(data.ConsumeIntInRange(1, 3)):
        all_paths = paths(document)
        path = all_paths[data.ConsumeIntInRange(0, len(all_paths) - 1)]
        value = copy.deepcopy(VALUES[data.ConsumeIntInRange(0, len(VALUES) - 1)])
        kind = data.ConsumeIntInRange(0, 4)
        if kind == 0:
            value = data.ConsumeIntInRange(0, 100) if data.ConsumeBool() else data.ConsumeUnicode(6)
        elif kind == 1:
            value = copy.deepcopy(PARTS[data.ConsumeIntInRange(0, len(PARTS) - 1)])
        if not path:
            return value
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        how = data.ConsumeIntInRange(0, 3)
        if how == 0 and isinstance(parent, dict):
            del parent[path[-1]]
        elif how == 1 and isinstance(parent, dict):
            parent[WORDS[data.ConsumeIntInRange(0, len(WORDS) - 1)]] = value
        elif how == 2 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        else:
            parent[path[-1]] = value
    return document


def mutate_lines(body: bytes, data: atheris.FuzzedDataProvider) -> bytes:
    """Server-sent events, or lines of JSON, with one of them changed, sent twice, moved or left out."""
    mark = b"\n\n" if b"data:" in body else b"\n"
    told = [piece for piece in body.split(mark) if piece]
    at = data.ConsumeIntInRange(0, len(told) - 1)
    how = data.ConsumeIntInRange(0, 4)
    if how == 0:
        told.insert(data.ConsumeIntInRange(0, len(told)), told[at])
    elif how == 1:
        told.insert(data.ConsumeIntInRange(0, len(told) - 1), told.pop(at))
    elif how == 2:
        del told[at]
    else:
        head, brace, rest = told[at].partition(b"{")
        try:
            document = mutated(json.loads(brace + rest), data)
            told[at] = head + json.dumps(document).encode()
        except ValueError:
            told[at] += data.ConsumeBytes(8)
    return mark.join(told) + mark


def mutate_frames(body: bytes, data: atheris.FuzzedDataProvider) -> bytes:
    """Frames whose checksums hold, one of them changed, sent twice, moved or left out."""
    told = [(one.kind, one.name, one.payload) for one in parse_frames(body)]
    at = data.ConsumeIntInRange(0, len(told) - 1)
    kind, name, payload = told[at]
    how = data.ConsumeIntInRange(0, 5)
    if how == 0:
        told.insert(data.ConsumeIntInRange(0, len(told)), told[at])
    elif how == 1:
        told.insert(data.ConsumeIntInRange(0, len(told) - 1), told.pop(at))
    elif how == 2:
        del told[at]
    elif how == 3:
        told[at] = (
            data.PickValueInList(["event", "exception", "error", ""]),
            data.ConsumeUnicodeNoSurrogates(6),
            payload,
        )
    else:
        document = json.loads(payload)
        if name == "chunk" and how == 4:
            inner = json.loads(base64.b64decode(document["bytes"]))
            document["bytes"] = base64.b64encode(json.dumps(mutated(inner, data)).encode()).decode()
        else:
            document = mutated(document, data)
        told[at] = (kind, name, json.dumps(document).encode())
    names = {"event": ":event-type", "exception": ":exception-type"}
    return b"".join(
        encode_frame({":message-type": kind, names.get(kind, ":error-code"): name}, payload)
        for kind, name, payload in told
    )


def make_body(body: bytes, form: str, data: atheris.FuzzedDataProvider) -> bytes:
    """A body made from one of the worked examples, or noise."""
    how = data.ConsumeIntInRange(0, 7)
    if how == 0:
        return data.ConsumeBytes(200)
    if how == 1:
        return body[: data.ConsumeIntInRange(0, len(body))]
    if how == 2:
        at = data.ConsumeIntInRange(0, len(body))
        end = min(len(body), at + data.ConsumeIntInRange(0, 40))
        return body[:at] + data.ConsumeBytes(20) + body[end:]
    if how == 3:
        ends = data.PickValueInList([b"\r\n", b"\r", b"\n: comment\n", b"\ndata: \n", b"\n\n\n", b"\xff\n"])
        return body.replace(b"\n", ends)
    if form in ("frames", "chunks"):
        return mutate_frames(body, data)
    if form in ("events", "lines"):
        return mutate_lines(body, data)
    return json.dumps(mutated(json.loads(body), data)).encode()


def encode(body: bytes, coding: str) -> bytes:
    for name in coding.split(", "):
        if name == "gzip":
            body = gzip.compress(body, 1, mtime=0)
        elif name == "deflate":
            body = zlib.compress(body, 1)
        elif name == "br":
            body = brotli.compress(body, quality=1)
        elif name == "zstd":
            body = zstandard.compress(body, 1)
    return body


def make_case(raw: bytes) -> Case:
    data = atheris.FuzzedDataProvider(raw)
    example = BODIES[data.ConsumeIntInRange(0, len(BODIES) - 1)]
    other = BODIES[data.ConsumeIntInRange(0, len(BODIES) - 1)]
    url = example.url if data.ConsumeIntInRange(0, 3) else URLS[data.ConsumeIntInRange(0, len(URLS) - 1)]
    status = STATUSES[data.ConsumeIntInRange(0, len(STATUSES) - 1)]
    headers = list(example.headers.items())
    if data.ConsumeIntInRange(0, 3) == 0:
        headers = [("Content-Type", TYPES[data.ConsumeIntInRange(0, len(TYPES) - 1)])]
    if data.ConsumeIntInRange(0, 7) == 0:
        headers.append((data.PickValueInList(["retry-after", "x-amzn-errortype", "date", "x-request-id"]), "soon"))
        headers.append(("x-amzn-bedrock-input-token-count", data.PickValueInList(["7", "-7", "7.0", "9" * 20])))
    coding = CODINGS[data.ConsumeIntInRange(0, len(CODINGS) - 1)]
    how = data.ConsumeIntInRange(0, 3)
    request = example.request if how else json.dumps(mutated(json.loads(other.request), data)).encode()
    request = b"" if how == 1 else request
    body = make_body(example.body, example.form, data)
    if coding:
        headers.append(("Content-Encoding", coding))
        packed = encode(body, coding)
        body = body if data.ConsumeIntInRange(0, 5) == 0 else packed
        if data.ConsumeIntInRange(0, 5) == 0:
            body = body[: data.ConsumeIntInRange(0, len(body))]
    if data.ConsumeIntInRange(0, 30) == 0:
        url = data.ConsumeUnicode(30) + url
    return Case("POST", url, request, status, headers, body)


def run_one(raw: bytes) -> None:
    """Read one exchange and hold the record to what every record is."""
    case = make_case(raw)
    if SHOW:
        print(case)
    endpoint = classify(case.method, case.url)
    is_unclassified(case.method, case.url)
    attempt = read_call(*case)
    assert (attempt is None) == (endpoint.api is None or endpoint.kind == "channel")
    if attempt is None:
        return
    check_invariants(attempt, case.status)
    assert attempt == read_call(*case)
    is_packed = any(name == "Content-Encoding" for name, _ in case.headers)
    if case.status == 200 and endpoint.kind == "generate" and not is_packed:
        check_quick(quick_cost(endpoint.api, case.body), attempt)
    if can_thin(endpoint.api) and not is_packed:
        # what a long stream is thinned to while it flies reads like the whole of it
        thinned = case._replace(request=b"", body=b"".join(thin(endpoint.api, case.body)))
        assert read_call(*thinned) == read_call(*case._replace(request=b"")), thinned
    if len(raw) % 4:
        return
    body_key(case.request, "application/json")
    lines = describe_changes(case.url, case.request, case.body)
    assert len(lines) <= 8
    assert all(len(line) <= 200 and line.isprintable() for line in lines)


if __name__ == "__main__":
    atheris.Setup(sys.argv, run_one)
    atheris.Fuzz()
