"""Which attempts are one logical call. Pure.

Attempt B continues call A when they are the same request (method, URL, body), A's last attempt did not succeed, and
one of these holds, first rule first:

1. both carry the same ``amz-sdk-invocation-id``;
2. both carry the same ``idempotency-key``;
3. B says by ``x-stainless-retry-count`` > 0 that it is a retry;
4. A failed with a transport error or with 408, 409, 429 or 5xx, and B began after A had ended.

An identical request after a success is a call of its own, whatever headers it carries: an agent that repeats itself is
what must be found. Concurrent identical requests are calls of their own too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_fanout.records import Attempt, Exchange, ModelCall

_RETRIED = frozenset({408, 409, 429})
_SAME_CALL = ("amz-sdk-invocation-id", "idempotency-key")


@dataclass(frozen=True, slots=True)
class Counted:
    """An exchange with a generation endpoint, read."""

    exchange: Exchange
    attempt: Attempt


def group_attempts(counted: Iterable[Counted]) -> tuple[ModelCall, ...]:
    """Logical calls in order of their first attempts."""
    return tuple(ModelCall(tuple(item.attempt for item in call)) for call in group_counted(counted))


def group_counted(counted: Iterable[Counted]) -> list[list[Counted]]:
    """The same with the exchanges."""
    calls: list[list[Counted]] = []
    open_calls: dict[tuple[str, str, bytes], list[list[Counted]]] = {}
    for item in sorted(counted, key=lambda one: (one.exchange.started_ms, one.exchange.seq)):
        request = item.exchange.request
        candidates = open_calls.setdefault((request.method, request.url, request.body), [])
        call = next((one for one in reversed(candidates) if _continues(one[-1], item)), None)
        if call is None:
            call = []
            calls.append(call)
            candidates.append(call)
        call.append(item)
        if not _failed(item):
            candidates.remove(call)
    return calls


def _failed(item: Counted) -> bool:
    return item.attempt.status in ("error", "incomplete") or item.exchange.answer.outcome == "error"


def _continues(before: Counted, now: Counted) -> bool:
    old, new = dict(before.exchange.request.headers), dict(now.exchange.request.headers)
    for name in _SAME_CALL:
        if old.get(name) and new.get(name):
            return old[name] == new[name]
    answer = before.exchange.answer
    if now.exchange.started_ms < before.exchange.started_ms + answer.ended_ms:
        return False
    count = new.get("x-stainless-retry-count", "")
    if count.isdigit() and int(count) > 0:
        return True
    status = answer.status
    return answer.outcome == "error" or status is None or status in _RETRIED or status >= 500
