"""The smallest growth of all tasks together that a new draw finds in four of five cases, and what finds less."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_fanout.judge.arranged import FEWEST_TASKS, FEWEST_TASKS_HEAVY
from pytest_fanout.judge.looks import information, level, schedule

#: A growth counts as one that can be seen when so many draws find it.
FOUND = 0.80
#: The growth that every eval set should be able to show.
QUARTER = 1.25
#: Beside a limit that allows as much: half as much again as it allows.
BESIDE_LIMIT = 1.5
#: More trials of a task than this are not proposed: tasks serve better.
MOST_TRIALS = 20
#: Nor a limit above this, in percent.
MOST_INCREASE = 200


@dataclass(frozen=True, slots=True)
class Sight:
    """What decides which growth of one metric a new draw finds, its numbers of tasks and trials apart.

    ``noise``: SD of the logarithm between trials of one task; ``trials_base``: of a task in the anchor; ``tests``:
    hypotheses of the class below 20 tasks; ``tests_heavy``: those that 20 tasks add; ``allowed``: ratio.
    """

    noise: float
    trials_base: float
    alpha: float
    tests: int
    tests_heavy: int
    allowed: float

    def level(self, tasks: int, trials: int) -> float:
        """What a p value may be at most at each look, among all tests of the class."""
        family = self.tests + (self.tests_heavy if tasks >= FEWEST_TASKS_HEAVY else 0)
        return level(self.alpha / max(family, 1), schedule(trials), self.trials_base)

    def finds(self, tasks: int, trials: int, of: int | None = None) -> float:
        """The smallest growth that is found, as a ratio; ``of``: trials that the looks are planned for."""
        error = standard_error(self.noise, tasks, trials, self.trials_base)
        return smallest_growth(error, self.level(tasks, of or trials), self.allowed)

    def tasks_for(self, growth: float, trials: int, least: int = FEWEST_TASKS) -> int | None:
        """How many tasks, at least ``least``, find this growth and can pass; None: the limit allows it."""
        if self.allowed >= growth:
            return None
        few = max(least, FEWEST_TASKS, self._enough(growth, trials, FEWEST_TASKS))
        if few < FEWEST_TASKS_HEAVY:
            return few
        return max(least, FEWEST_TASKS_HEAVY, self._enough(growth, trials, FEWEST_TASKS_HEAVY))

    def _enough(self, growth: float, trials: int, tasks: int) -> int:
        """How many tasks find it at the level that holds for ``tasks``."""
        needed = largest_error(growth, self.level(tasks, trials), self.allowed)
        return math.ceil((standard_error(self.noise, 1, trials, self.trials_base) / needed) ** 2)

    def trials_for(self, growth: float, tasks: int, trials: int) -> int | None:
        """How many new trials, more than ``trials``, find this growth; None: none that are worth it."""
        if self.allowed >= growth or tasks < FEWEST_TASKS:
            return None
        needed = largest_error(growth, self.level(tasks, trials), self.allowed)
        left = tasks * (needed / self.noise) ** 2 - 1 / self.trials_base if self.noise else math.inf
        if left * MOST_TRIALS < 1:
            return None
        start = max(trials + 1, math.ceil(1 / left) - 2)
        # the level was that of ``trials``, and hangs on the number a little
        return next((more for more in range(start, MOST_TRIALS + 1) if self.finds(tasks, more) <= growth), None)

    @property
    def should_find(self) -> float:
        """A quarter; where the limit allows about as much, half as much again as it allows."""
        return max(QUARTER, 1 + BESIDE_LIMIT * (self.allowed - 1))

    def increase_for(self, tasks: int, trials: int) -> int | None:
        """The least ``increase`` in percent, in steps of 5, beside which they find what they should; None: none."""
        if tasks < FEWEST_TASKS:
            return None  # whatever is allowed, so few cannot pass
        error, bar = standard_error(self.noise, tasks, trials, self.trials_base), self.level(tasks, trials)
        for percent in range(5, MOST_INCREASE + 1, 5):
            beside = replace(self, allowed=1 + percent / 100)
            if beside.allowed > self.allowed and smallest_growth(error, bar, beside.allowed) <= beside.should_find:
                return percent
        return None


def standard_error(noise: float, tasks: int, trials_run: float, trials_base: float) -> float:
    """Of the mean log ratio of ``tasks`` tasks; ``noise``: SD of the logarithm between trials of one task."""
    return noise * math.sqrt(1 / information(trials_run, trials_base) / tasks)


def smallest_growth(error: float, level: float, allowed: float) -> float:
    """As a ratio. It has to pass the bound of its p value, and the limit itself."""
    bound, reach = z(1 - level), z(FOUND)
    return math.exp(max((bound + reach) * error, math.log(allowed) + reach * error))


def largest_error(growth: float, level: float, allowed: float) -> float:
    """The standard error beside which ``growth``, more than is allowed, is the smallest that is found."""
    return min(math.log(growth) / (z(1 - level) + z(FOUND)), math.log(growth / allowed) / z(FOUND))


def z(share: float) -> float:
    """The standard normal quantile."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)
