"""Credentials never reach the disk: fields and query keys that hold them are redacted, and a scan looks for the rest.

Findings are told by kind and place. The secret itself is in no message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

REDACTED = "[redacted]"
#: What the sealed keys of our own begin with: they open nothing.
DUMMY = "fanout-sealed-"
MIN_VALUE_LENGTH = 12

#: Names of JSON fields, form fields and query keys whose value is a credential, without '-' and '_', in lower case.
#: ``token`` alone is not among them in bodies: it is a word of log probabilities.
CREDENTIAL_FIELDS = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "apitoken",
        "authorization",
        "authtoken",
        "bearertoken",
        "clientsecret",
        "idtoken",
        "passwd",
        "password",
        "privatekey",
        "refreshtoken",
        "secret",
        "secretaccesskey",
        "secretkey",
        "sessiontoken",
        "xapikey",
    }
)
QUERY_KEYS = CREDENTIAL_FIELDS | frozenset(
    {
        "awsaccesskeyid",
        "sig",
        "subscriptionkey",
        "xamzcredential",
        "xamzsecuritytoken",
        "xamzsignature",
        "xgoogcredential",
        "xgoogsignature",
    }
)
#: Query keys that are credentials at a model endpoint, but may be plain data (``?code=DE``, ``?key=sku-1``) in a tool's
#: request: there the value decides. Redacting plain data would make two different look-ups the same request.
UNCLEAR_QUERY_KEYS = frozenset({"auth", "code", "credential", "key", "signature", "token"})
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9._~%+/=-]{16,}\Z")

_BEFORE = r"(?<![A-Za-z0-9_-])"
_SHAPES = (
    ("an Anthropic key (sk-ant-…)", _BEFORE + r"sk-ant-[A-Za-z0-9_-]{16,}"),
    ("an OpenAI key (sk-…)", _BEFORE + r"sk-(?:(?:proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})"),
    ("an AWS access key (AKIA…)", _BEFORE + r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("a Google API key (AIza…)", _BEFORE + r"AIza[0-9A-Za-z_-]{35}(?![A-Za-z0-9_-])"),
    ("a GitHub token (ghp_…)", _BEFORE + r"(?:gh[oprsu]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,})"),
    ("a Slack token (xox…)", _BEFORE + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("a Hugging Face token (hf_…)", _BEFORE + r"hf_[A-Za-z0-9]{30,}"),
    ("a Groq key (gsk_…)", _BEFORE + r"gsk_[A-Za-z0-9]{40,}"),
    ("a bearer token (Bearer …)", r"(?i:\bbearer)\s+(?=[A-Za-z._~+/-]*[0-9])[A-Za-z0-9._~+/-]{20,}"),
    ("a private key (-----BEGIN …)", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"),
    ("a JSON Web Token (eyJ…)", _BEFORE + r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
)
_ANY = re.compile("|".join(f"(?P<s{index}>{shape})" for index, (_, shape) in enumerate(_SHAPES)))

_SECRET_NAME = re.compile(r"key|token|secret|passw|passphrase|credential|auth|(?:^|_)(?:pat|pwd)(?:_|$)", re.IGNORECASE)
_NOT_SECRET_NAME = re.compile(r"_(?:sock|file|path|dir|url|host)$|^xauthority$|^google_application_credentials$", re.I)


class Scanner:
    """Looks for key shapes and for the values of secret-looking environment variables; made once for many texts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        needles: dict[str, str] = {}
        for name, value in environ.items():
            if len(value) < MIN_VALUE_LENGTH or value.startswith(DUMMY):
                continue
            if not _SECRET_NAME.search(name) or _NOT_SECRET_NAME.search(name):
                continue
            # as it stands, as it looks inside JSON, and inside a URL
            for form in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, "")):
                needles.setdefault(form, f"the value of the environment variable {name}")
        self._needles = tuple(needles.items())

    def scan(self, text: str) -> tuple[str, ...]:
        """What kinds of secrets ``text`` holds, each once, in order of discovery; empty when it is clean."""
        found: dict[str, None] = {}
        # in raw JSON a line break before a key reads "\\nsk-…": its "n" must not hide where the key begins
        for match in _ANY.finditer(re.sub(r"\\[nrt]", " ", text)):
            if DUMMY not in match.group():
                found[_SHAPES[int(str(match.lastgroup)[1:])][0]] = None
        for needle, name in self._needles:
            if needle in text:
                found[name] = None
        return tuple(found)


def scan(text: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """``Scanner(environ).scan(text)``: what kinds of secrets a text holds."""
    return Scanner(environ).scan(text)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def is_secret_pair(name: str, value: str, is_model: bool) -> bool:
    """Whether a query pair such as ``api_key=…`` carries a credential; both parts may be percent-encoded."""
    plain = _plain(unquote_plus(name))
    if plain in QUERY_KEYS:
        return True
    return plain in UNCLEAR_QUERY_KEYS and (
        is_model or value == REDACTED or value.startswith(DUMMY) or _RANDOM.match(value) is not None
    )


def is_secret_field(name: str, value: str) -> bool:
    """Whether a form field carries a credential. Both may be percent-encoded."""
    plain = _plain(unquote_plus(name))
    # a signed token of a service account, made anew each time
    return plain in CREDENTIAL_FIELDS or (
        plain in ("assertion", "clientassertion") and value.startswith(("eyJ", REDACTED))
    )


def redact_fields(value: Any) -> tuple[Any, bool]:
    """A JSON value whose credential fields (scalars other than true, false and null) are redacted, and whether any was.

    Objects are left alone, so that a JSON Schema that *describes* a field called password stays what it is.
    """
    if isinstance(value, dict):
        out: dict[str, Any] = {}
        changed = False
        for key, item in value.items():
            if _plain(key) in CREDENTIAL_FIELDS and isinstance(item, str | int | float) and not isinstance(item, bool):
                out[key] = REDACTED if item != "" else item
                changed = changed or out[key] != item
            else:
                out[key], inner = redact_fields(item)
                changed = changed or inner
        return (out, True) if changed else (value, False)
    if isinstance(value, list):
        items = [redact_fields(item) for item in value]
        return ([item for item, _ in items], True) if any(inner for _, inner in items) else (value, False)
    return value, False


def redact_pairs(text: str, is_secret: Callable[[str, str], bool]) -> tuple[str, bool]:
    """``a=1&key=x`` with the values of credentials redacted, all else left as it is; and whether any was."""
    parts = text.split("&")
    for index, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and value and is_secret(name, value):
            parts[index] = f"{name}={REDACTED}"
    redacted = "&".join(parts)
    return redacted, redacted != text
