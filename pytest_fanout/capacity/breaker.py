"""A client's circuit breaker: where too much of what it asks for fails, it asks for nothing until a probe came back.

The values are those of incidents with agents: 40 % of the requests of 60 seconds fail, and for 20 minutes nothing is
sent and nothing tried again; then one request is. Times are given, no clock is read here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """``closed``: requests pass; ``open``: none does; ``half-open``: one does, and what becomes of it decides."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Policy:
    """When a breaker opens, and for how long."""

    failed_percent: int = 40
    window_s: float = 60.0
    cool_down_s: float = 1_200.0
    fewest: int = 20  # of fewer answers no share is made


@dataclass(frozen=True, slots=True)
class Opening:
    """What the window held when a breaker opened."""

    at_s: float
    failed: int
    answered: int  # with the failed ones


@dataclass(slots=True)
class Breaker:
    """One client's; times in seconds of any clock, and never an earlier one after a later one."""

    policy: Policy = field(default_factory=Policy)
    _answers: deque[tuple[float, bool]] = field(default_factory=deque)  # when, failed
    _failed: int = 0
    _opened_s: float | None = None  # None: closed
    _is_probing: bool = False
    _round: int = 0

    def state(self, at_s: float) -> State:
        """What a request at that time would meet."""
        if self._opened_s is None:
            return State.CLOSED
        return State.OPEN if at_s - self._opened_s < self.policy.cool_down_s else State.HALF_OPEN

    def ask(self, at_s: float) -> int | None:
        """Whether a request may be sent: None, or what its answer is to be told with."""
        state = self.state(at_s)
        if state is State.OPEN or self._is_probing:
            return None
        self._is_probing = state is State.HALF_OPEN
        return self._round

    def answered(self, asked: int, at_s: float, *, failed: bool) -> Opening | None:
        """The end of a request. What was sent before the last change of state says nothing of the present one.

        Args:
            asked: what ``ask`` gave.

        Returns:
            The window, where this answer opens the breaker.
        """
        if asked != self._round:
            return None
        if self._is_probing:
            self._turn(at_s if failed else None)
            return Opening(at_s, 1, 1) if failed else None
        self._answers.append((at_s, failed))
        self._failed += failed
        while at_s - self._answers[0][0] >= self.policy.window_s:
            self._failed -= self._answers.popleft()[1]
        count = len(self._answers)
        if count < self.policy.fewest or 100 * self._failed < self.policy.failed_percent * count:
            return None
        found = Opening(at_s, self._failed, count)
        self._turn(at_s)
        return found

    def _turn(self, opened_s: float | None) -> None:
        self._answers.clear()
        self._failed, self._opened_s, self._is_probing = 0, opened_s, False
        self._round += 1
