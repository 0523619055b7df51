"""Endpoints and codecs, the user's own ones asked first, with an answer cache for the call path."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pytest_fanout import wire
from pytest_fanout.records import Attempt, Endpoint, HttpAnswer, HttpRequest
from pytest_fanout.wire.quick import Cost, quick_cost

#: Kinds that are fanout.
COUNTED = frozenset({"generate", "compact"})
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_CACHE_SIZE = 1024
_KINDS = frozenset(
    {"generate", "compact", "embed", "rerank", "moderate", "count", "batch", "agent_run", "channel", "other"}
)


class Reader:
    """``wire`` with the codecs of ``pytest_fanout_codecs`` in front; a codec that raises does not stop the agent."""

    def __init__(self, codecs: Iterable[Any] = ()) -> None:
        self._codecs = tuple(codecs)
        self._cache: dict[tuple[str, str], tuple[Endpoint, Any]] = {}

    def classify(self, method: str, url: str) -> Endpoint:
        return self._find(method, url)[0]

    def api_of(self, method: str, url: str) -> str | None:
        """The API whose built-in codec reads this endpoint; None where there is none, or one of the user's own does."""
        endpoint, codec = self._find(method, url)
        return endpoint.api if codec is None else None

    def is_readable(self, method: str, url: str) -> bool:
        """Whether some codec reads the answers of this endpoint."""
        endpoint, codec = self._find(method, url)
        return codec is not None or wire.is_readable(endpoint)

    def quick_cost(self, method: str, url: str, body: bytes) -> Cost | None:
        """What a plain 200 answer cost, or None where it takes ``read_parts`` to tell."""
        endpoint, codec = self._find(method, url)
        return quick_cost(endpoint.api, body) if codec is None and endpoint.kind == "generate" else None

    def read(self, request: HttpRequest, answer: HttpAnswer) -> Attempt | None:
        said = (answer.status, answer.headers, answer.body)
        attempt = self.read_parts(request.method, request.url, request.body, *said)
        if attempt is not None and answer.thinned and attempt.usage_source == "estimated":
            # of a text that is not there any more
            return replace(attempt, input_tokens=None, output_tokens=None, usage_source="missing")
        return attempt

    def read_parts(
        self,
        method: str,
        url: str,
        request_body: bytes,
        status: int | None,
        headers: Iterable[tuple[str, str]],
        body: bytes,
    ) -> Attempt | None:
        codec = self._find(method, url)[1]
        if codec is not None:
            try:
                read = codec.read_call(method, url, request_body, status, headers, body)
            except Exception:
                read = None
            if isinstance(read, Attempt):
                return read
            endpoint = self.classify(method, url)
            # The codec claimed this URL: what it cannot read still counts, with unknown usage.
            return Attempt(
                api=endpoint.api or "unknown",
                kind=endpoint.kind,
                status="incomplete" if status and status < 300 else "error",
                http_status=status,
                usage_source="missing" if status and status < 300 else "none",
                notes=("codec_error",),
            )
        return wire.read_call(method, url, request_body, status, tuple(headers), body)

    def read_poll(
        self, method: str, url: str, status: int | None, headers: Iterable[tuple[str, str]], body: bytes
    ) -> Attempt | None:
        """What a request that asks again for a background run was told of it; None for any other request."""
        if self._find(method, url)[1] is not None:
            return None
        return wire.read_poll(method, url, status, tuple(headers), body)

    def _find(self, method: str, url: str) -> tuple[Endpoint, Any]:
        found = self._cache.get((method, url))
        if found is None:
            found = self._ask(method, url)
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[method, url] = found
        return found

    def _ask(self, method: str, url: str) -> tuple[Endpoint, Any]:
        for codec in self._codecs:
            try:
                endpoint = codec.classify(method, url)
            except Exception:
                endpoint = None
            if endpoint is None:
                continue
            if not isinstance(endpoint, Endpoint) or endpoint.kind not in _KINDS:
                endpoint = Endpoint("unknown", "generate")  # it is claimed: counted, rather than left out
            return endpoint, codec
        return wire.classify(method, url), None


def peer_of(url: str) -> tuple[str, int]:
    """Host in lower case and port of a URL; ("", 0) for what is none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", 0


def path_of(url: str) -> str:
    """Path of a URL; "" for what is none."""
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def host_port(url: str) -> str:
    """``host:port`` of a URL."""
    host, port = peer_of(url)
    return f"{host}:{port}"


def matches_host(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Whether one of ``patterns`` (``host``, ``host:port``, ``*`` for any characters) names this peer."""
    return any(
        fnmatch.fnmatchcase(f"{host}:{port}" if ":" in pattern else host, pattern.strip().lower())
        for pattern in patterns
    )
