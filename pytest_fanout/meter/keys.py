"""Sealed keys: while something is measured the agent holds dummies, and only the counting seam knows the real ones.

What bypasses the seam, in any library or child process, meets a 401 instead of passing uncounted.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, unquote

from pytest_fanout.records import HttpAnswer, HttpRequest
from pytest_fanout.wire import hosts

_MARK: Final = "fanout-sealed-"
_MARK_BYTES: Final = _MARK.encode()
_DUMMY: Final = re.compile(r"fanout-sealed-([A-Z0-9_]+)-[0-9a-f]{16}")
_DUMMY_BYTES: Final = re.compile(rb"fanout-sealed-([A-Z0-9_]+)-[0-9a-f]{16}")
#: Variables that get a dummy only in place of a key. A dummy where none was set would change what a client does:
#: choose another sign-in, another variable of the same provider, or an invalid token where none is needed.
_ONLY_IN_PLACE: Final = frozenset(
    {
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AZURE_API_KEY",
        "AZURE_INFERENCE_CREDENTIAL",
        "AZURE_OPENAI_AD_TOKEN",
        "COHERE_API_KEY",
        "DEEPINFRA_TOKEN",
        "GOOGLE_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACEHUB_API_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "LITELLM_API_KEY",
        "OPENAI_ADMIN_KEY",
    }
)
#: A dummy is not added for the left one while the right one holds a key.
_INSTEAD_OF: Final = {
    "ANTHROPIC_API_KEY": "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY": "AZURE_OPENAI_AD_TOKEN",
    "CO_API_KEY": "COHERE_API_KEY",
    "DEEPINFRA_API_KEY": "DEEPINFRA_TOKEN",
    "GEMINI_API_KEY": "GOOGLE_API_KEY",
}
#: Shorter ones ("EMPTY", "x", "ollama") are placeholders: no secret, and they may stand in any URL or answer.
_SHORTEST: Final = 7
RawHeaders = list[tuple[bytes, bytes]]


def token_of(text: str) -> str | None:
    """The 16 hex digits of the first dummy key in ``text``; None where there is none."""
    found = _DUMMY.search(text) if _MARK in text else None
    return None if found is None else found.group()[-16:]


def sealed_names(text: str) -> list[str]:
    """The variables of all dummy keys in ``text``."""
    return [found.group(1) for found in _DUMMY.finditer(text)] if _MARK in text else []


class SealedKeys:
    """The real keys by their dummies. AWS access keys sign requests and cannot be swapped: they stay as they are."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._real: dict[str, str | None] = {}  # dummy -> key; None: none was set
        self._kept_as: dict[str, str] = {}  # real key -> what stands in its place in whatever is kept
        self._before: dict[str, tuple[str, str | None]] = {}  # variable -> (dummy, value before)

    def seal(self) -> None:
        """Put dummies into the environment."""
        environ = self._environ
        for name, real in _to_seal(environ):
            dummy = self._new_dummy(name, secrets.token_hex(8), real)
            self._before[name] = (dummy, environ.get(name))
        for name, (dummy, _) in self._before.items():
            environ[name] = dummy

    def issue(self, stem: str, token: str, base: Mapping[str, str]) -> dict[str, str]:
        """Dummies of the gateway for a child whose environment is ``base``: what to set there.

        Args:
            stem: the first 14 digits of all tokens of its task; the last two may differ in what comes back.
            token: 16 hex digits, the end of each dummy.
        """
        # What stands in ``base`` may be a dummy already, ours or that of another task: the real key is behind it.
        opened = {name: self._behind(name, base.get(name)) for name in hosts.KEY_VARIABLES}
        issued = {}
        for name, real in _to_seal({name: value for name, value in opened.items() if value}):
            self._new_dummy(name, stem + "00", real)
            issued[name] = f"{_MARK}{name}-{token}"
        return issued

    def _behind(self, name: str, value: str | None) -> str | None:
        found = _DUMMY.fullmatch(value) if value else None
        return value if found is None else self._real_of(found.group())

    def _new_dummy(self, name: str, token: str, real: str | None) -> str:
        dummy = f"{_MARK}{name}-{token}"
        self._real[dummy] = real
        if real is not None and len(real) >= _SHORTEST:
            self._kept_as[real] = _MARK + name
        return dummy

    def _real_of(self, dummy: str) -> str | None:
        """The key behind a dummy; one of the gateway is known by all but its last two digits, which say a depth."""
        return self._real[dummy] if dummy in self._real else self._real.get(dummy[:-2] + "00")

    def unseal(self) -> None:
        """Put back what stood there; a variable that the agent has set since keeps its value."""
        for name, (dummy, before) in self._before.items():
            if self._environ.get(name) != dummy:
                continue
            if before is None:
                del self._environ[name]
            else:
                self._environ[name] = before
        self._before.clear()

    @property
    def is_sealed(self) -> bool:
        return bool(self._real)

    def open_request(self, headers: RawHeaders, url: str) -> tuple[RawHeaders, str, str | None] | None:
        """Headers and URL with the real keys in place of the dummies.

        Returns:
            None when the request holds no dummy; otherwise (headers, url, missing). ``missing`` names the variable
            when no key at all is there for the request. A dummy without a key beside one with a key is left out.
        """
        if _MARK not in url and _MARK_BYTES not in b"\n".join([value for _, value in headers]):
            return None
        missing: str | None = None
        found = False
        opened: RawHeaders = []
        for name, value in headers:
            text = value.decode("latin-1")
            dummy = _DUMMY.search(text)
            if dummy is None:
                opened.append((name, value))
                continue
            real = self._real_of(dummy.group())
            if real is None:
                missing = missing or dummy.group(1)
                continue
            found = True
            opened.append((name, text.replace(dummy.group(), real).encode("latin-1", "replace")))
        dummy = _DUMMY.search(unquote(url)) if _MARK in url else None
        if dummy is not None:
            real = self._real_of(dummy.group())
            if real is None:
                missing = missing or dummy.group(1)
            else:
                found = True
                url = url.replace(dummy.group(), quote(real, safe=""))
        return opened, url, None if found else missing

    def scrub(self, request: HttpRequest) -> HttpRequest:
        """The request as it may be kept: no real key, and dummies without the part that differs from run to run."""
        headers = tuple((name, self._clean(value)) for name, value in request.headers)
        return replace(request, url=self._clean(request.url), headers=headers, body=self._clean_bytes(request.body))

    def scrub_answer(self, answer: HttpAnswer) -> HttpAnswer:
        """The same for an answer, which may say back what it was sent; only chunks that hold a key are touched."""
        headers = tuple((name, self._clean(value)) for name, value in answer.headers)
        return replace(answer, headers=headers, chunks=tuple(map(self._clean_bytes, answer.chunks)))

    def _clean(self, text: str) -> str:
        for real, name in self._kept_as.items():
            if real in text:
                text = text.replace(real, name)
        return _DUMMY.sub(rf"{_MARK}\1", text) if _MARK in text else text

    def _clean_bytes(self, data: bytes) -> bytes:
        for real, name in self._kept_as.items():
            data = data.replace(real.encode(), name.encode())
        return _DUMMY_BYTES.sub(_MARK_BYTES + rb"\1", data) if _MARK_BYTES in data else data


def _to_seal(environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """The variables that get a dummy, each with the key that stands there."""
    for name in hosts.KEY_VARIABLES:
        real = environ.get(name) or None
        if real is not None or not (name in _ONLY_IN_PLACE or environ.get(_INSTEAD_OF.get(name, ""))):
            yield name, real


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, in whatever spelling: nobody there checks keys, and names resolve to nothing
    else. An address of nowhere (``0.0.0.0``) leads there too.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        try:
            return host[:1].isdigit() and socket.inet_aton(host)[0] == 127  # 127.1, 0x7f000001
        except (OSError, UnicodeError):
            return False
    plain = getattr(address, "ipv4_mapped", None) or address
    return bool(plain.is_loopback or plain.is_unspecified)
