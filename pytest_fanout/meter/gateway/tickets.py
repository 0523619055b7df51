"""Whose call it is: a token for each task, carried by its dummy keys, by its base URLs and by its proxy URL.

A token is 16 hex digits: 14 that name the task, and 2 that say how deep in agents that start agents its holder stands.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote

from pytest_fanout.meter.keys import token_of
from pytest_fanout.meter.task import TaskScope
from pytest_fanout.records import Caps

IN_PATH: Final = re.compile(r"/t-([0-9a-f]{16})(?=[/?]|$)")
_DEEPEST: Final = 255


class Ticket:
    """One task's right to call. Without a task, what is called with it belongs to the task that runs then."""

    def __init__(self, scope: TaskScope | None) -> None:
        self.stem = secrets.token_hex(7)
        self.flying = 0  # requests of it that the gateway is answering
        self.has_task = scope is not None
        self._scope = scope
        self._closed: Callable[[], TaskScope | None] = lambda: None
        self._ended = ("", "", 0, Caps())
        self._capped: str | None = None

    def token(self, depth: int = 0) -> str:
        return f"{self.stem}{min(depth, _DEEPEST):02x}"

    def close(self) -> None:
        """The task has ended: what is called from now on is late. All that the task has heard may go."""
        scope = self._scope
        if scope is not None:
            scope.closed = True
            self._ended = (scope.agent, scope.task, scope.trial, scope.caps)
            self._capped = scope.capped  # what a stopped task still calls is refused, as before its end
            self._closed, self._scope = weakref.ref(scope), None

    def scope(self) -> TaskScope | None:
        """The task, or a stand-in of its name once it has ended and is gone."""
        if not self.has_task:
            return None
        scope = self._scope or self._closed()
        return scope or TaskScope(*self._ended, None, closed=True, capped=self._capped)


class Tickets:
    """All tickets of a gateway; safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._by_scope: dict[int | None, Ticket] = {}
        self._by_stem: dict[str, Ticket] = {}

    def issue(self, scope: TaskScope | None) -> Ticket:
        """The one ticket of this task."""
        key = None if scope is None else id(scope)
        with self._changed:
            ticket = self._by_scope.get(key)
            if ticket is None:
                ticket = self._by_scope[key] = Ticket(scope)  # it keeps the scope alive, so its id stays its own
                self._by_stem[ticket.stem] = ticket
            return ticket

    def of_token(self, token: str) -> tuple[Ticket, int] | None:
        """The ticket that a token belongs to, and the depth it carries; None for one of somebody else."""
        ticket = self._by_stem.get(token[:14])
        return None if ticket is None else (ticket, int(token[14:16], 16))

    def of_keys(self, headers: Iterable[tuple[bytes, bytes]], target: str) -> tuple[Ticket, int] | None:
        """The ticket of the first known dummy key in a request, whatever header or part of the query it came in.

        The key of a task is heeded before that of a server that works for many of them.
        """
        first: tuple[Ticket, int] | None = None
        for text in (*(value.decode("latin-1") for _, value in headers), unquote(target)):
            token = token_of(text)
            found = self.of_token(token) if token is not None else None
            if found is not None and found[0].has_task:
                return found
            first = first or found
        return first

    def enter(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.flying += 1

    def leave(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.flying -= 1
            self._changed.notify_all()

    def close(self, scope: TaskScope) -> None:
        """What is called for this task from now on is late."""
        with self._changed:
            ticket = self._by_scope.pop(id(scope), None)
        if ticket is not None:
            ticket.close()

    def wait_for(self, scope: TaskScope, most_s: float) -> None:
        """Wait until nothing of this task is being answered any more, but not for ever."""
        until = time.monotonic() + most_s
        with self._changed:
            ticket = self._by_scope.get(id(scope))
            while ticket is not None and ticket.flying and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
