"""What mocks and cassettes answer in aiohttp's place: they replace ``ClientSession._request``, so no hop is ever seen.

A call under such a replacement is watched from the methods above it. If a hop of it was booked below, nothing is left
to do, in whatever order things were imported or patched. If none was, the mock has answered, and that is booked.
"""

from __future__ import annotations

import functools
import gc
import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

from pytest_fanout.meter.aiohttp_tee import Tee
from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import Seam

_VERBS = ("request", "get", "options", "head", "post", "put", "patch", "delete")
#: What of a call decides how its answer is read.
_OF_THE_ANSWER = ("allow_redirects", "auto_decompress", "raise_for_status", "read_bufsize", "timeout")


class Mocked:
    """A call that runs under a mock: how many hops were booked below it, and what answers the next one."""

    def __init__(self, given: Playback | None = None) -> None:
        self.hops = 0
        self._given = given

    def seen(self) -> Playback | None:
        """A hop has come: the answer that was kept for it, once."""
        self.hops += 1
        given, self._given = self._given, None
        return given


MOCKED: ContextVar[Mocked | None] = ContextVar("pytest_fanout_mocked", default=None)


def install(module: ModuleType, seam: Seam, tee: Tee) -> Callable[[], None]:
    """Patch the methods of ``ClientSession`` that agents call, and ``aiohttp.request``."""
    watch = _Watch(module, seam, tee)
    session = module.ClientSession
    points = [(session, verb, watch.verb(verb, getattr(session, verb))) for verb in _VERBS]
    alone = watch.function(module.request)
    points += [(module, "request", alone), (module.client, "request", alone)]
    before = [(owner, name, vars(owner)[name], hook) for owner, name, hook in points]
    for owner, name, hook in points:
        setattr(owner, name, hook)

    def undo() -> None:
        for owner, name, was, hook in before:
            if vars(owner).get(name) is hook:
                setattr(owner, name, was)

    return undo


def own_request(module: ModuleType) -> Any:
    """The library's own ``ClientSession._request``, also where a mock or cassette has taken its place already."""
    found = vars(module.ClientSession)["_request"]
    while found is not None and not _is_the_librarys(module, found):
        found = getattr(found, "__wrapped__", None)
    if found is None:  # whoever replaced it means to put it back, so it is still somewhere
        functions = (thing for thing in gc.get_objects() if isinstance(thing, FunctionType))
        found = next((f for f in functions if f.__name__ == "_request" and _is_the_librarys(module, f)), None)
    return found


def _is_the_librarys(module: ModuleType, function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == module.client.__file__


class _Watch:
    def __init__(self, module: ModuleType, seam: Seam, tee: Tee) -> None:
        self._module = module
        self._seam = seam
        self._tee = tee
        self._own = own_request(module)

    def _is_mocked(self, session: Any) -> bool:
        replaced = vars(self._module.ClientSession)["_request"] is not self._own or "_request" in vars(session)
        return replaced and self._seam.active

    def verb(self, name: str, original: Any) -> Any:
        positional = ("method", "url") if name == "request" else ("url",)

        @functools.wraps(original)
        def send(session: Any, *args: Any, **kwargs: Any) -> Any:
            context = original(session, *args, **kwargs)
            if self._is_mocked(session):
                asked = {"method": name, **dict(zip(positional, args, strict=False)), **kwargs}
                self._wrap(context, session, asked)
            return context

        return send

    def function(self, original: Any) -> Any:
        @functools.wraps(original)
        def request(*args: Any, **kwargs: Any) -> Any:
            context = original(*args, **kwargs)
            session = getattr(context, "_session", None)
            if session is not None and self._is_mocked(session):
                self._wrap(context, session, {**dict(zip(("method", "url"), args, strict=False)), **kwargs})
            return context

        return request

    def _wrap(self, context: Any, session: Any, asked: dict[str, Any]) -> None:
        if inspect.isawaitable(context._coro):
            context._coro = self._watched(session, context._coro, asked)

    async def _watched(self, session: Any, call: Any, asked: dict[str, Any]) -> Any:
        mocked = Mocked()
        token = MOCKED.set(mocked)
        begun = time.perf_counter_ns()
        response, error = None, None
        try:
            response = await call
        except BaseException as raised:
            error = raised
        finally:
            MOCKED.reset(token)
        if not mocked.hops and (flight := self._book(session, asked)) is not None:
            playback = playback_of(flight)
            if playback is None:
                flight.started_ns = begun
                self._note(flight, response, error)
            else:
                return await self._played(session, asked, playback)
        if error is not None:
            raise error
        return response

    def _book(self, session: Any, asked: dict[str, Any]) -> Flight | None:
        method, url, body = str(asked["method"]).upper(), _url(session, asked), _body(session, asked)
        if self._seam.outer(method, url, body) is None:
            return None
        named = {**session.headers, **dict(asked.get("headers") or {})}
        headers = [(str(name).encode(), str(value).encode()) for name, value in named.items()]
        return self._seam.begin("aiohttp", method, url, headers, body, is_local=lambda: True)

    def _note(self, flight: Flight, response: Any, error: BaseException | None) -> None:
        module = self._module
        if error is not None and not isinstance(error, module.ClientResponseError):
            flight.end("error", type(error).__name__)
        elif isinstance(response, module.ClientResponse):
            self._tee.watch(flight, response, is_decoded=True)
        else:
            status = getattr(error if error is not None else response, "status", 200)
            flight.began(status if isinstance(status, int) else 200, [])
            flight.end("complete")

    async def _played(self, session: Any, asked: dict[str, Any], playback: Playback) -> Any:
        """The recorded answer, or a refusal, in place of the mock's: built by the library, as everywhere."""
        token = MOCKED.set(Mocked(playback))
        try:
            kept = {name: asked[name] for name in _OF_THE_ANSWER if name in asked}
            return await self._own(session, asked["method"], asked["url"], params=asked.get("params"), **kept)
        finally:
            MOCKED.reset(token)


def _url(session: Any, asked: dict[str, Any]) -> str:
    from yarl import URL

    url, base, params = URL(asked["url"]), getattr(session, "_base_url", None), asked.get("params")
    if base is not None and not url.absolute:
        url = base.join(url)
    return str(url.update_query(params) if params else url)


def _body(session: Any, asked: dict[str, Any]) -> bytes:
    """The body of a request that a mock has answered; b"" for one that only sending it would have made."""
    data, document = asked.get("data"), asked.get("json")
    if document is not None:
        data = session.json_serialize(document)
    if isinstance(data, str):
        return data.encode()
    return bytes(data) if isinstance(data, (bytes, bytearray)) else b""
