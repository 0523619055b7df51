"""What users' hooks return, looked at before it is used: a wrong value is told with the place of the hook."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import Any, Final

from pytest_fanout.errors import UsageError
from pytest_fanout.records import Endpoint, HttpAnswer, HttpRequest

_READERS: Final = ("classify", "read_call")
_PROBE: Final = ("POST", "https://codec-check.invalid/")  # no codec's, and no address either


def codecs_of(relay: Any) -> list[Any]:
    """The codecs of ``pytest_fanout_codecs``, in the order in which they are asked.

    Raises:
        UsageError: a hook raised or returned no list of codecs, naming where it stands.
    """
    found = []
    for place, value in _each_returned(relay):
        for codec in _as_list(place, relay.name, value, "codecs"):
            missing = [name for name in _READERS if not callable(getattr(codec, name, None))]
            if isinstance(codec, type) or missing:
                what = f"the class {codec.__name__}, not an object of it" if isinstance(codec, type) else (
                    f"an object of type {type(codec).__name__} without {' and '.join(missing)}"
                )  # fmt: skip
                raise _wrong(place, relay.name, f"returned {what}", "a codec has classify(…) and read_call(…)")
            _try_codec(place, relay.name, codec)
            found.append(codec)
    return found


def profiles_of(relay: Any) -> tuple[Any, ...]:
    """The GPU profiles of ``pytest_fanout_profiles``.

    Raises:
        UsageError: a hook raised or returned no list of profiles, naming where it stands.
    """
    found = []
    for place, value in _each_returned(relay):
        from pytest_fanout.capacity.profiles import Profile

        for profile in _as_list(place, relay.name, value, "profiles"):
            if not isinstance(profile, Profile):
                raise _wrong(
                    place,
                    relay.name,
                    f"returned a value of type {type(profile).__name__} in its list",
                    "return a list of pytest_fanout.capacity.profiles.Profile",
                )
            found.append(profile)
    return tuple(found)


def redacted(relay: Any, request: HttpRequest, response: HttpAnswer) -> tuple[HttpRequest, HttpAnswer]:
    """What the redact hooks make of an exchange, each given what the one before returned.

    Raises:
        UsageError: one of them raised, or returned something else than such a pair or None.
    """
    for impl in relay.get_hookimpls():
        known = {"request": request, "response": response}
        try:
            changed: Any = impl.function(*[known[name] for name in impl.argnames])
        except Exception as error:
            said = f"raised {type(error).__name__}: {error}"
            raise _wrong(_place(impl.function), relay.name, said, "mend the hook") from error
        if changed is None:
            continue
        is_pair = isinstance(changed, (tuple, list)) and len(changed) == 2
        if not (is_pair and isinstance(changed[0], HttpRequest) and isinstance(changed[1], HttpAnswer)):
            raise _wrong(
                _place(impl.function),
                relay.name,
                f"returned a value of type {type(changed).__name__}",
                "return (request, response), changed with dataclasses.replace, or None",
            )
        request, response = changed
        if (fault := _fault(request, response)) is not None:
            raise _wrong(
                _place(impl.function), relay.name, f"returned a pair whose {fault}", "keep the types of its fields"
            )
    return request, response


def _fault(request: HttpRequest, response: HttpAnswer) -> str | None:
    """What of an exchange cannot be stored."""
    for name, value in (("method", request.method), ("url", request.url)):
        if not isinstance(value, str):
            return f"request.{name} is of type {type(value).__name__}"
    if not isinstance(request.body, bytes):
        return f"request.body is of type {type(request.body).__name__}"
    for side, headers in (("request", request.headers), ("response", response.headers)):
        if not all(isinstance(pair, tuple) and [type(part) for part in pair] == [str, str] for pair in headers):
            return f"{side}.headers are no pairs of texts"
    if not all(isinstance(chunk, bytes) for chunk in response.chunks):
        return "response.chunks are no bytes"
    if len(response.chunks) != len(response.chunk_ms):
        return f"response has {len(response.chunks)} chunks and {len(response.chunk_ms)} chunk_ms"
    return None


def _each_returned(relay: Any) -> Iterator[tuple[str, Any]]:
    """Place and value of each implementation that returns one, the last registered first, as pluggy calls them."""
    for impl in reversed(relay.get_hookimpls()):
        place = _place(impl.function)
        try:
            value = impl.function()
        except Exception as error:
            raise _wrong(place, relay.name, f"raised {type(error).__name__}: {error}", "mend the hook") from error
        if value is not None:
            yield place, value


def _as_list(place: str, hook: str, value: Any, what: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(place, hook, f"returned a value of type {type(value).__name__}", f"return a list of {what}")
    return list(value)


def _try_codec(place: str, hook: str, codec: Any) -> None:
    """Ask it for a URL that is nobody's: a classify that cannot be called, or answers with something else, shows."""
    name = type(codec).__name__
    mend = "classify(method, url) returns a pytest_fanout.records.Endpoint, or None for a URL that is not its own"
    try:
        endpoint = codec.classify(*_PROBE)
    except Exception as error:
        said = f"returned {name}, whose classify raised {type(error).__name__}: {error}"
        raise _wrong(place, hook, said, mend) from error
    if endpoint is not None and not isinstance(endpoint, Endpoint):
        raise _wrong(
            place, hook, f"returned {name}, whose classify returned a value of type {type(endpoint).__name__}", mend
        )


def _place(function: Any) -> str:
    """File and line of a hook, as short as it can be said."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return getattr(function, "__module__", None) or "a plugin"
    short = os.path.relpath(code.co_filename) if os.path.isabs(code.co_filename) else code.co_filename
    return f"{code.co_filename if short.startswith('..') else short}:{code.co_firstlineno}"


def _wrong(place: str, hook: str, what: str, mend: str) -> UsageError:
    return UsageError("bad-hook", f"{hook} {what}", where=place, mend=mend)
