"""What a live run may spend, and how fast each class may ask its provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.config import AgentSettings
from pytest_fanout.errors import UsageError
from pytest_fanout.session.flow.words import number

_LIMIT = re.compile(r"\s*([0-9]+(?:[_,][0-9]+)*)\s*(call|token)s?\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """So many model calls, or so many tokens (input and output), in the whole run."""

    amount: int
    unit: str  # calls or tokens

    def allows(self, calls: int, tokens: int) -> bool:
        """Whether a run may come to stand there."""
        return (calls if self.unit == "calls" else tokens) <= self.amount

    def __str__(self) -> str:
        return f"{self.amount}{self.unit}"

    @property
    def told(self) -> str:
        return f"{number(self.amount)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Pace:
    """What a provider allows a class; None: not known, so that only its own refusals slow the class down."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # input and output, cached ones included
    parallel_calls: int | None = None


def parse_spend_limit(text: str | None) -> SpendLimit | None:
    """``500calls``, ``2_000_000 tokens``; None: there is no limit. Raises UsageError for anything else."""
    if text is None:
        return None
    found = _LIMIT.fullmatch(text)
    amount = int(re.sub("[_,]", "", found[1])) if found is not None and len(found[1]) <= 18 else 0
    if found is None or amount < 1:
        raise UsageError(
            "bad-spend-limit",
            f"--fanout-spend-limit={text} is not a number of calls or of tokens, from 1 up",
            mend="--fanout-spend-limit=500calls, or --fanout-spend-limit=2_000_000tokens",
        )
    return SpendLimit(amount, f"{found[2].lower()}s")


def paces_of(agents: Mapping[str, AgentSettings]) -> dict[str, Pace]:
    """The provider limits that the settings name, by class."""
    return {
        name: Pace(agent.requests_per_minute, agent.tokens_per_minute, agent.parallel_calls)
        for name, agent in agents.items()
    }
