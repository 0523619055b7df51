"""Error bodies and the headers that say when to come back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pytest_fanout.wire.shapes import items, obj, objects, string

_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "x-generation-id",
    "x-litellm-call-id",
)


def error_type(document: Any, headers: Mapping[str, str]) -> str | None:
    """The name of an error: its code where that is a word, else its type, else whatever names it; None unknown."""
    body = obj(_first(document))
    error = body.get("error")
    inner = obj(error) or body
    code = inner.get("code")
    named = (
        code if isinstance(code, str) and not code.isdigit() else None,
        inner.get("type") if inner.get("type") != "error" else None,
        inner.get("status"),
        inner.get("reason"),
        _shape_name(headers.get("x-amzn-errortype")) or _shape_name(inner.get("__type")),
        str(code) if code is not None and not isinstance(code, (dict, list)) else None,
    )
    for name in named:
        if text := string(name):
            return text[:200]
    return "error" if error else None


def _shape_name(given: Any) -> str | None:
    """AWS names an error by a shape, with its namespace before a # or an address after a colon."""
    return given.split(":")[0].rpartition("#")[2] if isinstance(given, str) else None


def retry_after_s(headers: Mapping[str, str], document: Any = None) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``retry-after`` (a date is measured from the answer's own date).

    Google says it in the error body instead: details that hold ``"retryDelay": "3.5s"``.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    until, now = _date(headers.get("retry-after")), _date(headers.get("date"))
    if until is None or now is None:
        return _delay(document)
    try:
        return max((until - now).total_seconds(), 0.0)
    except TypeError:  # one date names its zone, the other does not
        return None


def _delay(document: Any) -> float | None:
    error = obj(obj(_first(document)).get("error"))
    for detail in objects(error.get("details")):
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", string(detail.get("retryDelay")) or "")
        if found:
            return float(found.group(1))
    return None


def _first(document: Any) -> Any:
    """The error itself: Gemini wraps one into an array now and then."""
    return items(document)[0] if items(document) else document


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id of the request."""
    return next((text for name in _REQUEST_IDS if (text := string(headers.get(name)))), None)


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
