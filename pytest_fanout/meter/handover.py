"""Ownership through queues: what a worker does with an item belongs to whoever put the item in.

A worker that lives longer than a task (a consumer thread, an asyncio task of a fixture) has no owner of its own. It
gets one with each item that it takes from a ``queue.Queue``, ``PriorityQueue`` or ``SimpleQueue``, or from one of
asyncio's. Last-in-first-out queues are left alone: they hold pools of connections, not work. An item that goes back
into the queue that it came from (a client of a pool, a job that is tried again) keeps the owner that it had.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

if TYPE_CHECKING:
    from pytest_fanout.meter.ledger import Ledger, Place

_ATTRIBUTE: Final = "_pytest_fanout_owners"
_UNKNOWN: Final = object()
Patch = Callable[[Any, str, Callable[[Any], Any]], None]


class _Owners:
    """Who put the items in that one queue holds. Items are known by identity: a queue keeps them alive."""

    def __init__(self) -> None:
        # entered again by the same thread when the garbage collector, amid this, runs code that puts something
        self._lock = threading.RLock()
        self._inside: dict[int, Any] = {}  # an owner, or a deque of them for an item that is in there several times
        self._outside: dict[int, tuple[ref[Any], Place | None]] = {}  # taken, and not yet forgotten

    def put(self, item: Any, owner: Place | None) -> None:
        key = id(item)
        with self._lock:
            was = self._outside.pop(key, None)
            if was is not None and was[0]() is item:
                owner = was[1]
            there = self._inside.get(key, _UNKNOWN)
            if there is _UNKNOWN:
                self._inside[key] = owner
            elif type(there) is deque:
                there.append(owner)
            else:
                self._inside[key] = deque((there, owner))

    def take(self, item: Any) -> Any:
        """The owner, None for nobody's; ``_UNKNOWN`` for an item that came in unseen."""
        key = id(item)
        with self._lock:
            owner = self._inside.pop(key, _UNKNOWN)
            if type(owner) is deque:
                owners = owner
                owner = owners.popleft()
                self._inside[key] = owners if len(owners) > 1 else owners[0]
            if owner is not _UNKNOWN and type(item).__weakrefoffset__:  # texts, numbers and tuples cannot be watched
                self._outside[key] = ref(item, lambda dead: self._forget(key, dead)), owner
            return owner

    def _forget(self, key: int, dead: ref[Any]) -> None:
        with self._lock:
            was = self._outside.get(key)
            if was is not None and was[0] is dead:
                del self._outside[key]


def waited(get: Any, *args: Any, **kwargs: Any) -> Any:
    """Take an item, as ``patching.passed_on`` does: here, so that a thread which stands here is known to wait."""
    return get(*args, **kwargs)


def hand_over(ledger: Ledger, patch: Patch) -> Callable[[], None]:
    """Patch the queues; the returned function ends what ``patch`` cannot undo: queues of ours that live on.

    The inner methods are patched, so that a worker that waits in ``get`` already is seen as well.
    """
    active = True

    def note(channel: Any, item: Any) -> None:
        owners: _Owners | None = getattr(channel, _ATTRIBUTE, None)
        if owners is None:
            owners = _Owners()
            try:
                owners = vars(channel).setdefault(_ATTRIBUTE, owners)
            except TypeError:  # a class with slots
                return
        owners.put(item, ledger.place())

    def putting(put: Any) -> Any:
        def noted(channel: Any, item: Any, *args: Any, **kwargs: Any) -> None:
            if active:
                note(channel, item)  # before it is there for others to take
            put(channel, item, *args, **kwargs)

        return noted

    def getting(get: Any) -> Any:
        def taken(channel: Any, *args: Any, **kwargs: Any) -> Any:
            item = waited(get, channel, *args, **kwargs)
            owners: _Owners | None = getattr(channel, _ATTRIBUTE, None) if active else None
            if owners is not None and (owner := owners.take(item)) is not _UNKNOWN:
                ledger.hand(owner, owners)
            return item

        return taken

    for kind in (queue.Queue, queue.PriorityQueue, asyncio.Queue, asyncio.PriorityQueue):
        patch(kind, "_put", putting)
        patch(kind, "_get", getting)
    patch(queue, "SimpleQueue", lambda simple: _simple_queue(simple, putting, getting))

    def end() -> None:
        nonlocal active
        active = False

    return end


def _simple_queue(simple: Any, putting: Any, getting: Any) -> Any:
    """``queue.SimpleQueue`` is of C and takes no patch: queues made from now on are of a class derived from it."""
    members = {"__doc__": simple.__doc__, "__module__": simple.__module__}
    members.update((name, putting(getattr(simple, name))) for name in ("put", "put_nowait"))
    members.update((name, getting(getattr(simple, name))) for name in ("get", "get_nowait"))
    return type(simple.__name__, (simple,), members)
