"""What the judge of new draws is given: one class, its anchor's trials and its new ones."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fanout.judge.comparison import TrialTable
from pytest_fanout.records import JudgeRules, Limit


@dataclass(frozen=True, slots=True)
class Draw:
    """One class on a new draw. Trials stand in the order of their numbers.

    ``same``: tasks that ran on the anchor's own recordings, so that their numbers have no noise.
    """

    anchor: TrialTable
    run: TrialTable
    limits: tuple[Limit, ...]
    rules: JudgeRules
    same: frozenset[str] = frozenset()
