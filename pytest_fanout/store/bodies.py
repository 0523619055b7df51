"""What of a request and an answer is kept: allow-listed headers, redacted URLs and bodies, decoded content.

A deny-list forgets the header that nobody thought of; an allow-list forgets only what replay can do without.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pytest_fanout.records import HttpAnswer, HttpRequest
from pytest_fanout.store import secrets
from pytest_fanout.wire.sdks import sdk_of

REQUEST_HEADERS = frozenset(
    {
        "accept",
        "amz-sdk-invocation-id",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "idempotency-key",
        "openai-beta",
        "x-stainless-retry-count",
    }
)
RESPONSE_HEADERS = frozenset(
    {
        "apim-request-id",
        "content-type",
        "grpc-message-type",
        "grpc-status-details-bin",
        "link",  # tools that page through results follow it
        "location",  # so do redirects
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-amzn-bedrock-cache-read-input-token-count",
        "x-amzn-bedrock-cache-write-input-token-count",
        "x-amzn-bedrock-content-type",
        "x-amzn-bedrock-input-token-count",
        "x-amzn-bedrock-output-token-count",
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-request-id",
        "x-should-retry",
    }
)
MAX_DEPTH = 150  # deeper JSON is kept as text: walking it would end in a RecursionError


def stored_request(request: HttpRequest, role: str) -> tuple[HttpRequest, bool]:
    """The request as it is stored and matched: no secrets, no fragment, content encoding undone, JSON canonical.

    The second value says whether a credential in the body was redacted: the digest of the raw body must not be kept
    then, because a short password can be guessed from it.
    """
    headers = tuple(_stored_headers(request.headers))
    body, redacted = request.body, False
    encoding = _header(request.headers, "content-encoding")
    if encoding and body:
        decoded = _decode((body,), encoding)
        body = b"".join(decoded) if decoded is not None else body
    value = json_value(body)
    if value is not None:
        value, redacted = secrets.redact_fields(value)
        body = dump(value)
    elif "x-www-form-urlencoded" in _header(request.headers, "content-type"):
        text, redacted = secrets.redact_pairs(body.decode("utf-8", "surrogateescape"), secrets.is_secret_field)
        body = text.encode("utf-8", "surrogateescape")
    elif "multipart/" in _header(request.headers, "content-type"):
        body, redacted = secrets.redact_form_data(body)
    elif edits := secrets.redact_lines(body):
        (body,), redacted = _edited((body,), edits), True
    return HttpRequest(request.method.upper(), stored_url(request.url, role), headers, body), redacted


def _stored_headers(headers: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name in REQUEST_HEADERS:
            yield name, value
        elif name == "user-agent" and (sdk := sdk_of(value)) is not None:
            yield name, sdk  # which version it is explains much; the rest of it tells of the machine


def stored_url(url: str, role: str) -> str:
    """A URL without user, password and fragment, the values of secret query keys redacted."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    query, _ = secrets.redact_pairs(
        parts.query, lambda name, value: secrets.is_secret_pair(name, value, role == "model")
    )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def match_target(url: str, role: str) -> str:
    """What of a URL is matched: path, and query without credentials. A gateway may stand at another host and port."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    pairs = []
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if pair and not secrets.is_secret_pair(name, value, role == "model"):
            pairs.append(pair)
    path = parts.path or "/"
    if "%3" in path:  # a colon, as in the models of Bedrock, is the same with and without its escape
        path = path.replace("%3A", ":").replace("%3a", ":")
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def host_of(url: str) -> str:
    """``host:port`` of a URL, the port of its scheme when it names none; empty when there is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host:
        return ""
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{port or (443 if parts.scheme in ('https', 'wss') else 80)}"


def stored_answer(answer: HttpAnswer) -> HttpAnswer:
    """The answer as it is stored: allow-listed headers, chunks decoded one by one so that their boundaries stay."""
    chunks, times = answer.chunks, answer.chunk_ms
    encoding = _header(answer.headers, "content-encoding")
    kept = RESPONSE_HEADERS
    if encoding:
        decoded = _decode(chunks, encoding)
        if decoded is None:
            kept = RESPONSE_HEADERS | {"content-encoding"}  # the client decodes it when it is replayed
        else:
            pairs = [(chunk, at) for chunk, at in zip(decoded, times, strict=True) if chunk]
            chunks = tuple(chunk for chunk, _ in pairs)
            times = tuple(at for _, at in pairs)
    headers = tuple((name, _without_credentials(name, value)) for name, value in answer.headers if name in kept)
    if "content-encoding" not in kept:
        body = b"".join(chunks)
        value = json_value(body)
        redacted_value, redacted = secrets.redact_fields(value)
        if redacted:
            chunks, times = (dump(redacted_value),), times[-1:]
        elif value is None and (edits := secrets.redact_lines(body)):
            chunks = _edited(chunks, edits)
    return replace(answer, headers=headers, chunks=chunks, chunk_ms=times)


def _without_credentials(name: str, value: str) -> str:
    """A header of an answer whose URLs may hold some."""
    if name == "location":
        return stored_url(value, "tool")
    if name == "link":
        return re.sub("<([^<>]*)>", lambda found: f"<{stored_url(found[1], 'tool')}>", value)
    return value


def _edited(chunks: tuple[bytes, ...], edits: list[tuple[int, int, bytes]]) -> tuple[bytes, ...]:
    """Chunks with parts of the whole replaced; what is new stands where the old began, all other boundaries stay."""
    out, begin, pending = [], 0, list(edits)
    for chunk in chunks:
        end, at, pieces = begin + len(chunk), begin, []
        while pending and pending[0][0] < end:
            first, last, new = pending[0]
            pieces.append(chunk[at - begin : max(first, at) - begin])
            if first >= begin:
                pieces.append(new)
            at = min(last, end)
            if last > end:
                break
            pending.pop(0)
        pieces.append(chunk[at - begin :])
        out.append(b"".join(pieces))
        begin = end
    return tuple(out)


def json_value(body: bytes) -> Any:
    """The JSON object or array that ``body`` is and can be written again without loss; None for all else."""
    if body[:1].strip() not in (b"", b"{", b"["):  # cheap: most other bodies end here
        return None
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) and _depth_fits(value) else None


def dump(value: Any) -> bytes:
    """A JSON value as bytes: sorted keys, no spaces. Lone surrogates are escaped, so that it is always UTF-8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), check_circular=False).encode("ascii")


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(digits)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice")
    return out


def _depth_fits(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            children = item.values() if isinstance(item, dict) else item
            below.extend(child for child in children if isinstance(child, dict | list))
        if not below:
            return True
        level = below
    return False


def _header(headers: tuple[tuple[str, str], ...], wanted: str) -> str:
    return ", ".join(value for name, value in headers if name == wanted).lower()


def _decode(chunks: tuple[bytes, ...], encoding: str) -> tuple[bytes, ...] | None:
    """Each chunk decoded for itself; None when the encoding is not known here, or the bytes are not of it."""
    make = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "br": _brotli, "zstd": _zstd}.get(encoding.strip())
    try:
        feed = make() if make else None
        return tuple(feed(chunk) for chunk in chunks) if feed else None
    except Exception:  # each optional library has errors of its own; the bytes are then kept as they came
        return None


def _zlib(wbits: int) -> Callable[[bytes], bytes]:
    state = [zlib.decompressobj(wbits)]

    def feed(chunk: bytes) -> bytes:
        out = state[0].decompress(chunk)
        while state[0].eof and state[0].unused_data:  # gzip members may follow one another
            rest = state[0].unused_data
            state[0] = zlib.decompressobj(wbits)
            out += state[0].decompress(rest)
        return out

    return feed


def _gzip() -> Callable[[bytes], bytes]:
    return _zlib(zlib.MAX_WBITS | 16)


def _deflate() -> Callable[[bytes], bytes]:
    """``deflate`` means zlib, but servers send raw deflate as well: the first chunk tells."""
    state: list[Callable[[bytes], bytes]] = []

    def feed(chunk: bytes) -> bytes:
        if not state:
            try:
                state.append(_zlib(zlib.MAX_WBITS))
                return state[0](chunk)
            except zlib.error:
                state[0] = _zlib(-zlib.MAX_WBITS)
        return state[0](chunk)

    return feed


def _brotli() -> Callable[[bytes], bytes] | None:
    try:
        import brotli  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    decoder = brotli.Decompressor()
    feed: Callable[[bytes], bytes] = getattr(decoder, "process", None) or decoder.decompress
    return feed


def _zstd() -> Callable[[bytes], bytes] | None:
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    feed: Callable[[bytes], bytes] = zstandard.ZstdDecompressor().decompressobj().decompress
    return feed
