"""Asking again for a background run: no call of its own, but its answer holds what the call that began the run cost."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final
from urllib.parse import unquote, urlsplit

from pytest_fanout.records import Attempt
from pytest_fanout.wire.bodies import Headers
from pytest_fanout.wire.calls import read_call

#: Fetching a run, or cancelling it: where runs are created, and the id of this one.
_RUN: Final = re.compile(r"(.*/(?:responses|interactions))/([^/:]+)(/cancel)?\Z", re.DOTALL)


def poll_id(method: str, url: str) -> str | None:
    """The id of the run that a request asks for again (or cancels); None for any other request. Never raises."""
    found = _found(method, url)
    return unquote(found.group(2)) if found else None


def read_poll(method: str, url: str, status: int | None, headers: Headers, body: bytes) -> Attempt | None:
    """What a poll tells of its run, as an attempt whose ``response_id`` is the run's. Never raises.

    Returns:
        Status ``pending`` while the run goes on. None when the request is no poll, or its answer tells nothing: an
        HTTP error, or a body that is empty, cut or unreadable.
    """
    found = _found(method, url)
    if found is None or status is None or not 200 <= status < 300:
        return None
    # The answer has the shape of the one that created the run.
    attempt = read_call("POST", "https://host" + found.group(1), b"", status, headers, body)
    if attempt is None or (attempt.status == "incomplete" and attempt.finish != "cancelled"):
        return None
    return replace(attempt, response_id=unquote(found.group(2)))


def _found(method: str, url: str) -> re.Match[str] | None:
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:
        return None
    found = _RUN.match(path[-4096:])
    if found is None or (method.upper() != "POST" if found.group(3) else method.upper() != "GET"):
        return None
    return found
