"""A recording that answers: a request hears only what was recorded for it, each recorded answer once.

Two requests are the same when method, path, query (without credentials) and canonical body are. The digest of the raw
body decides most look-ups; only a request whose bytes differ is parsed. Identical requests hear their answers in
recorded order, so that a chain of 503, 503, 200 stays one, and concurrent ones keep their multiset of answers.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from pytest_fanout.records import HttpRequest, Recording, Replayed, StaleNote
from pytest_fanout.store import bodies
from pytest_fanout.wire.canonical import Volatile, body_key, compile_volatile, ignored_by
from pytest_fanout.wire.changes import changes_and_kinds
from pytest_fanout.wire.endpoints import without_model
from pytest_fanout.wire.sdks import sdk_update, without_one_sided
from pytest_fanout.wire.unsteady import Words, likeness, words_of

_CANDIDATES: Final = 20  # recorded requests, the next ones in order, of which one may be like another


@dataclass(frozen=True, slots=True)
class _Miss:
    """The first request that was not on the recording, and the recorded one that it should have been (its index)."""

    call: int
    role: str
    request: HttpRequest  # stored form
    expected: int | None
    same_recorded: int  # recorded exchanges of the very same request, all used


@dataclass(frozen=True, slots=True)
class _Lines:
    """What has changed, and the same without the words around it."""

    changes: tuple[str, ...]
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """A request that was not on the recording, and the recorded one that a forgiving source has answered it with."""

    call: int
    requested: HttpRequest  # stored form, as the recorded one
    recorded: HttpRequest | None
    changes: tuple[str, ...]


class ReplaySource:
    """Answers the requests of one trial from its recording; safe to ask from any thread.

    Args:
        recording: as the store gives it, or None when the trial has none: then every request is a miss.
        volatile: what matching ignores: the entries of budget.toml ``[measure]``, or as ``compile_volatile`` read them.
        task_label: how notes call the trial, e.g. ``support::refund::t1``.
        forgiving: answer a request that is not on the recording with the unused one that is most like it, so that all
            that differs is seen in one run; it is noted as a miss all the same.
        until_miss: after the first request that is not on the recording nothing is answered any more.

    Raises:
        ConfigError: an entry of ``volatile`` that cannot be read.
    """

    def __init__(
        self,
        recording: Recording | None,
        volatile: Volatile | Sequence[str] = (),
        task_label: str = "",
        *,
        forgiving: bool = False,
        until_miss: bool = False,
    ) -> None:
        self.task_label = task_label
        self.ignored: Counter[str] = Counter()  # requests that an entry of ``volatile`` made no other question of
        self.missed: list[Missed] = []  # of a forgiving source
        self._forgiving = forgiving
        self._until_miss = until_miss
        self._words: dict[int, Words] = {}
        self._keys: dict[int, Hashable] = {}
        self.other_hosts: set[str] = set()  # asked, but recorded under another host: a notice, no more
        self._exchanges = recording.exchanges if recording is not None else ()
        self._has_recording = recording is not None
        if not isinstance(volatile, Volatile):
            volatile = compile_volatile(volatile, "budget.toml: [measure] volatile")
        self._volatile = volatile
        self._lock = threading.Lock()
        self._used = [False] * len(self._exchanges)
        self._served = 0
        self._asked: Counter[tuple[str, str]] = Counter()  # by endpoint
        self._miss: _Miss | None = None
        self._endpoints = [_endpoint(exchange.request, exchange.role) for exchange in self._exchanges]
        self._by_canonical: dict[Hashable, deque[int]] | None = None  # made on the first request whose bytes differ
        self._by_raw: dict[Hashable, deque[int]] = {}
        for index, exchange in enumerate(self._exchanges):
            request = exchange.request
            if exchange.raw_body or not request.body:
                key = (request.method, bodies.match_target(request.url, exchange.role), exchange.raw_body)
                self._by_raw.setdefault(key, deque()).append(index)

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        """What was recorded for this request and has not been given out yet; None when there is nothing."""
        raw = hashlib.sha256(request.body).hexdigest() if request.body else ""
        key = (request.method.upper(), bodies.match_target(request.url, role), raw)
        with self._lock:
            if self._until_miss and self._miss is not None:
                return None
            self._asked[_endpoint(request, role)] += 1
            index = self._take(self._by_raw.get(key))
            if index is None and self._served < len(self._exchanges):
                index = self._take(self._canonical().get(self._canonical_key(request, role)))
                if index is not None and self._volatile:
                    recorded, stored = self._exchanges[index].request, bodies.stored_request(request, role)[0]
                    self.ignored.update(ignored_by(recorded.body, stored.body, self._volatile))
            if index is None:
                if self._miss is None or self._forgiving:
                    miss = self._describe(request, role)
                    self._miss = self._miss or miss
                    index = self._forgive(miss) if self._forgiving else None
                if index is None:
                    return None
            self._used[index] = True
            self._served += 1
            exchange = self._exchanges[index]
            host = bodies.host_of(request.url)
            if host != bodies.host_of(exchange.request.url):
                self.other_hosts.add(host)
        return Replayed(exchange.answer, exchange.started_ms, exchange.request.body)

    @property
    def leftover(self) -> int:
        """Recorded exchanges that nobody has asked for."""
        return len(self._exchanges) - self._served

    def resumes_ms(self, idle_ms: int) -> int:
        """When, by the clock of the recording, the first request is sent that is not on it: when the one was sent that
        it stands for, where that comes after all that was asked; else ``idle_ms`` after the last recorded answer."""
        with self._lock:
            asked = [exchange for exchange, used in zip(self._exchanges, self._used, strict=True) if used]
            place = self._miss.expected if self._miss is not None else None
            if place is not None and all(e.started_ms <= self._exchanges[place].started_ms for e in asked):
                return self._exchanges[place].started_ms
            return max((e.started_ms + e.answer.ended_ms for e in asked), default=0) + idle_ms

    @property
    def asked(self) -> int:
        """Requests so far, those that were missed among them."""
        return self._asked.total()

    def note(self) -> StaleNote | None:
        """Why this trial does not fit its recording, told by the first request that is not on it; None when all fit."""
        with self._lock:
            miss = self._miss
            if miss is None:
                return None
            lines = self._changes(miss)
            asked = self._asked.total()
            return StaleNote(
                miss.call, miss.role, lines.changes, len(self._exchanges), asked, self.leftover, lines.kinds
            )

    def _forgive(self, miss: _Miss) -> int | None:
        """Note a miss, and choose the recorded exchange that it is answered with."""
        index = None if miss.same_recorded else miss.expected
        if index is not None:
            endpoint = _endpoint(miss.request, miss.role)
            alike = [i for i, known in enumerate(self._endpoints) if known == endpoint and not self._used[i]] or [index]
            asked = words_of(miss.request.body)
            index = max(alike[:_CANDIDATES], key=lambda i: likeness(self._words_of(i), asked))
            miss = replace(miss, expected=index)
        recorded = None if index is None else self._exchanges[index].request
        self.missed.append(Missed(miss.call, miss.request, recorded, self._changes(miss).changes))
        return index

    def _words_of(self, index: int) -> Words:
        if index not in self._words:
            self._words[index] = words_of(self._exchanges[index].request.body)
        return self._words[index]

    def _take(self, queue: deque[int] | None) -> int | None:
        """The first entry that the other index has not given out."""
        while queue:
            index = queue.popleft()
            if not self._used[index]:
                return index
        return None

    def _canonical(self) -> dict[Hashable, deque[int]]:
        if self._by_canonical is None:
            self._by_canonical = {}
            for index in range(len(self._exchanges)):
                self._by_canonical.setdefault(self._key_of(index), deque()).append(index)
        return self._by_canonical

    def _canonical_key(self, request: HttpRequest, role: str) -> Hashable:
        return self._key(bodies.stored_request(request, role)[0], role)

    def _key_of(self, index: int) -> Hashable:
        if index not in self._keys:
            exchange = self._exchanges[index]
            self._keys[index] = self._key(exchange.request, exchange.role)
        return self._keys[index]

    def _key(self, stored: HttpRequest, role: str) -> Hashable:
        content_type = next((value for name, value in stored.headers if name == "content-type"), "")
        body = body_key(stored.body, content_type, self._volatile) if stored.body else ""
        return stored.method, bodies.match_target(stored.url, role), body

    def _describe(self, request: HttpRequest, role: str) -> _Miss:
        stored = bodies.stored_request(request, role)[0]
        endpoint = _endpoint(request, role)
        expected = next(
            (i for i, known in enumerate(self._endpoints) if known == endpoint and not self._used[i]),
            None,
        )
        same = 0
        if expected is None and endpoint not in self._endpoints:
            # with the model in the path, another model is another endpoint
            family = _family(endpoint)
            expected = next(
                (i for i, known in enumerate(self._endpoints) if _family(known) == family and not self._used[i]), None
            )
        if expected is not None:
            key = self._key(stored, role)
            same = sum(self._key_of(index) == key for index in range(len(self._exchanges)))
        return _Miss(self._asked.total(), role, stored, expected, same)

    def _changes(self, miss: _Miss) -> _Lines:
        told = self._told(miss)
        if miss.role != "tool" or not self._has_recording:
            return told
        name = _tool_name(miss.request)
        named = (tuple(f"{name}: {line}" for line in lines) for lines in (told.changes, told.kinds))
        return _Lines(*named)

    def _told(self, miss: _Miss) -> _Lines:
        if not self._has_recording:
            return _Lines(("no recording of this trial",))
        method, path = endpoint = _endpoint(miss.request, miss.role)
        recorded = self._endpoints.count(endpoint)
        if recorded == 0 and miss.expected is None:
            is_tool = miss.role == "tool"
            return _Lines(("is not on the recording" if is_tool else f"{method} {path} is not on the recording",))
        if miss.expected is None:
            made = max(recorded + 1, self._asked[endpoint])
            if miss.role == "model":
                text = f"at least {made} calls of {method} {path}, {recorded} recorded: fanout rose"
                return _Lines((text,), (f"more calls of {method} {path}",))
            return _Lines((f"at least {made} requests of {method} {path}, {recorded} recorded",))
        if miss.same_recorded:
            text = f"the same request is made at least {miss.same_recorded + 1} times, {miss.same_recorded} recorded"
            return _Lines((text,), ("the same request again",))
        return self._differences(self._exchanges[miss.expected].request, miss)

    def _differences(self, before: HttpRequest, miss: _Miss) -> _Lines:
        after = miss.request
        lines, kinds = changes_and_kinds(after.url, before.body, after.body, before.url)
        queries = [_query(before, miss.role), _query(after, miss.role)]
        first: tuple[str, ...] = ()
        if queries[0] != queries[1]:
            first = (f"query: {queries[0][:80]!r} -> {queries[1][:80]!r}",)
        update = sdk_update(before.headers, after.headers)
        if update is not None:
            old, new, keys = without_one_sided(before.body, after.body)
            if keys:
                # what is left when these keys are taken away is what somebody has changed
                first = (*first, f"probably by the SDK ({update}): {keys}")
                lines, kinds = changes_and_kinds(after.url, old, new, before.url)
                if bodies.json_value(old) == bodies.json_value(new):
                    lines = kinds = ()
            else:
                first = (*first, f"SDK: {update}")
        return _Lines((*first, *lines) or ("the body differs",), (*first, *kinds))


def _tool_name(request: HttpRequest) -> str:
    method, path = _endpoint(request, "tool")
    return f"tool {unquote(path[1:])}" if method == "CALL" else f"tool {method} {path}"


def _endpoint(request: HttpRequest, role: str) -> tuple[str, str]:
    return request.method.upper(), bodies.match_target(request.url, role).partition("?")[0]


def _family(endpoint: tuple[str, str]) -> tuple[str, str]:
    return endpoint[0], without_model(endpoint[1])


def _query(request: HttpRequest, role: str) -> str:
    return bodies.match_target(request.url, role).partition("?")[2]
