"""Credentials never reach the disk: fields and query keys that hold them are redacted. scanner.py finds the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus

from pytest_fanout.store.scanner import DUMMY

REDACTED = "[redacted]"

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
        "ocpapimsubscriptionkey",
        "passphrase",
        "passwd",
        "password",
        "privatekey",
        "proxyauthorization",
        "refreshtoken",
        "secret",
        "secretaccesskey",
        "secretkey",
        "sessiontoken",
        "xapikey",
        "xauthtoken",
        "xgoogapikey",
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
#: The same in bodies. Logs of probabilities call words tokens.
UNCLEAR_FIELDS = frozenset({"auth", "credential", "credentials", "pass", "pwd", "token"})
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9._~%+/=-]{16,}\Z")
_NESTED = 4  # JSON in texts of JSON
#: All names of credential fields hold one of these.
_WORTH_READING = re.compile(r"auth|cookie|credential|key|pass|pwd|secret|token", re.IGNORECASE)
_WORTH_READING_BYTES = re.compile(_WORTH_READING.pattern.encode(), re.IGNORECASE)
_LINE = re.compile(rb"^(?:data:[ ]?)?([{\[][^\r\n]*[}\]])[ \t]*\r?$", re.MULTILINE)
_FORM_FIELD = re.compile(
    rb"(content-disposition:[ ]*form-data;[ ]*name=\"([^\"\r\n]+)\"\r?\n"
    rb"(?:[^\r\n]+\r?\n){0,20}\r?\n)([^\r\n]+)(?=\r?\n--)",
    re.IGNORECASE,
)


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

    JSON inside of texts is looked through as well: so stand the arguments and results of tools in bodies. Objects are
    left alone, so that a JSON Schema that *describes* a field called password stays what it is.
    """
    return _redacted(value, 0)


def _redacted(value: Any, depth: int) -> tuple[Any, bool]:
    if isinstance(value, str):
        return _redacted_text(value, depth)
    if isinstance(value, dict):
        out: dict[str, Any] = {}
        changed = False
        name = next((value[key] for key in ("name", "key") if isinstance(value.get(key), str)), "")
        for key, item in value.items():
            # {"name": "Authorization", "value": …} is how lists of headers and of form fields are written
            label = name if key == "value" else key
            if _is_credential(label, item):
                out[key] = [REDACTED for _ in item] if isinstance(item, list) else REDACTED
            else:
                out[key], _ = _redacted(item, depth)
            changed = changed or out[key] != item
        return (out, True) if changed else (value, False)
    if isinstance(value, list):
        items = [_redacted(item, depth) for item in value]
        return ([item for item, _ in items], True) if any(inner for _, inner in items) else (value, False)
    return value, False


def _is_credential(name: str, value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) and _is_credential(name, item) for item in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return False
    plain = _plain(name)
    if plain in CREDENTIAL_FIELDS:
        return True
    if not isinstance(value, str):
        return False
    return (plain in UNCLEAR_FIELDS and _RANDOM.match(value) is not None) or (
        plain in ("cookie", "setcookie") and "=" in value
    )


def _redacted_text(text: str, depth: int) -> tuple[str, bool]:
    """A text that is JSON, with its own credential fields redacted; as it is where it holds none."""
    if depth >= _NESTED or text.lstrip()[:1] not in ("{", "[", '"') or not _WORTH_READING.search(text):
        return text, False
    try:
        value, changed = _redacted(json.loads(text), depth + 1)
    except (ValueError, RecursionError):
        return text, False
    return (json.dumps(value, ensure_ascii=False), True) if changed else (text, False)


def redact_lines(data: bytes) -> list[tuple[int, int, bytes]]:
    """What to put in the place of which bytes, so that no line of a stream (JSON Lines, SSE) holds a credential field.

    Returns:
        Beginning, end and new text of each line's JSON that holds one, in order.
    """
    if not _WORTH_READING_BYTES.search(data):
        return []
    edits = []
    for found in _LINE.finditer(data):
        try:
            value, changed = redact_fields(json.loads(found[1]))
        except (ValueError, RecursionError):
            continue
        if changed:
            written = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
            edits.append((*found.span(1), written))
    return edits


def redact_form_data(body: bytes) -> tuple[bytes, bool]:
    """A multipart body without the values of credential fields; and whether there were any."""

    def redacted(found: re.Match[bytes]) -> bytes:
        name = found[2].decode("utf-8", "replace")
        value = found[3].decode("utf-8", "replace")
        return found[1] + REDACTED.encode() if is_secret_field(name, value) else found[0]

    out = _FORM_FIELD.sub(redacted, body)
    return out, out != body


def redact_pairs(text: str, is_secret: Callable[[str, str], bool]) -> tuple[str, bool]:
    """``a=1&key=x`` with the values of credentials redacted, all else left as it is; and whether any was."""
    parts = text.split("&")
    for index, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and value and is_secret(name, value):
            parts[index] = f"{name}={REDACTED}"
    redacted = "&".join(parts)
    return redacted, redacted != text
