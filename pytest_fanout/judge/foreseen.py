"""What a class can be shown to have done, as it was foreseen: the report of a new draw says what ``power`` says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.judge.arranged import Test
from pytest_fanout.judge.case import Case
from pytest_fanout.judge.power import sights_of
from pytest_fanout.judge.smallest import Sight, smallest_growth, standard_error


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The gated metrics that have noise, and whose noise that is."""

    sights: Mapping[str, Sight]
    whose: str
    tasks: int
    trials: int

    def finds(self, metric: str, level: float) -> float:
        """The smallest ratio of a metric that is found at this level."""
        sight = self.sights[metric]
        error = standard_error(sight.noise, self.tasks, self.trials, sight.trials_base)
        return smallest_growth(error, level, sight.allowed)

    def costliest(self, level: float, other: float) -> str | None:
        """The metric in which the lower of two levels hides most; the hardest to find among equals."""

        def hidden(metric: str) -> tuple[float, float]:
            found = self.finds(metric, level)
            return found / self.finds(metric, other), found

        return max(self.sights, key=hidden, default=None)


def foreseen(case: Case) -> Foreseen:
    """By the anchor's noise, as ``fanout-baseline power`` has it; where the anchor has none to tell, or trials share
    their beginnings with it, by that of this draw."""
    arranged, trials = case.arranged, case.most_trials
    draw = arranged.draw
    seen = case.seen[-1] if case.seen else None
    noises = {
        metric: noise
        for metric, noise in (seen.noises if seen is not None else {}).items()
        if noise and seen is not None and Test(metric, "body") in seen.plain
    }
    of_anchor = {} if arranged.is_paired else sights_of(draw.anchor, draw.limits, draw.rules)
    if of_anchor:
        sights = {metric: of_anchor[metric] for metric in noises if metric in of_anchor}
        return Foreseen(sights, "the anchor's noise", len(draw.anchor.statuses), trials)
    # beside each new trial of a pair stands the one that it shares its beginning with
    beside = trials if math.isinf(arranged.trials_base) else arranged.trials_base
    sights = {
        metric: Sight(noise, beside, case.alpha, len(arranged.tests), 0, arranged.threshold(metric, 1.0))
        for metric, noise in noises.items()
    }
    return Foreseen(sights, "the noise of this draw", len(arranged.tasks), trials)
