"""One class while it is judged: what each look saw, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_fanout.judge.arranged import Arranged, Shown, Test


@dataclass(slots=True)
class Finding:
    """A growth that was found at a look, and whether later trials show it too (None: there are none)."""

    shown: Shown  # the sum that spoke: later trials have to show the like of it
    look: int  # its place among the looks
    trials: int  # new trials at that look
    confirmed: bool | None = None


@dataclass(slots=True)
class Seen:
    """One look at one class: of each test the sum that speaks, its p value; the metrics without noise."""

    trials: int
    plain: dict[Test, Shown]
    best: dict[Test, Shown]
    p: dict[Test, float]
    exact: frozenset[str]
    noises: Mapping[str, float | None]


@dataclass(slots=True)
class Case:
    """One class while it is judged."""

    agent: str
    arranged: Arranged
    seen: list[Seen] = field(default_factory=list)
    findings: dict[Test, Finding] = field(default_factory=dict)
    permutations: int = 0

    @property
    def alpha(self) -> float:
        return float(self.arranged.draw.rules.alpha)

    @property
    def most_trials(self) -> int:
        return self.arranged.schedule[-1]

    def told(self, test: Test) -> Shown:
        """What is reported of a finding: all trials together, plainly, if that is over the limit too.

        What the look showed that found it is larger than the truth more often than not.
        """
        last, found = self.seen[-1], self.findings[test].shown
        return next((entry for entry in (last.plain[test], last.best[test]) if entry.is_over), found)

    @property
    def is_spent(self) -> bool:
        return self.arranged.whole >= self.most_trials
