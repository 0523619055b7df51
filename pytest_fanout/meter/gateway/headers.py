"""Headers between two connections: what belongs to one connection only, and what is handed on. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

RawHeaders = list[tuple[bytes, bytes]]
#: Of one connection, never of the message (RFC 9110, section 7.6.1).
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
#: Of a request besides: the client library writes its own, after the URL and the body that really go out.
_OF_THE_CLIENT: Final = frozenset({b"host", b"content-length", b"expect"})


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Without the headers of one connection, those that ``Connection`` names among them."""
    pairs = list(headers)
    named = {
        token.strip().lower()
        for name, value in pairs
        if name.lower() in (b"connection", b"proxy-connection")
        for token in value.split(b",")
    }
    dropped = _HOP_BY_HOP | (named - {b"content-type", b"content-length", b"content-encoding"})
    return [(name, value) for name, value in pairs if name.lower() not in dropped]


def to_send(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Headers of a request for the client library."""
    return [(as_text(name), as_text(value)) for name, value in headers if name.lower() not in _OF_THE_CLIENT]


def as_text(value: bytes) -> str:
    """As text that has the same bytes as UTF-8 where it is UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """The first value of a header, b"" without one."""
    return next((value for key, value in headers if key.lower() == name), b"")


def proxy_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token in a proxy's credentials (user or password); None where none were sent, "" where they hold none."""
    text = value_of(headers, b"proxy-authorization").decode("latin-1")
    if not text:
        return None
    scheme, _, encoded = text.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).decode("latin-1").partition(":")
    except (binascii.Error, ValueError):
        return ""
    return password or user
