"""How far a live run is, as a line of its own now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from pytest_fanout.records import Prices, TaskRun
from pytest_fanout.session.flow.forecast import Trial, price
from pytest_fanout.session.flow.words import counted, dollars, number, span

#: Shortest and longest time between two lines, in seconds. Between them a line comes with each further tenth.
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 30.0


class Progress:
    """Fed with each trial that has ended.

    Args:
        trials: those that will run for all that is known; ``asked`` adds what turns out to be needed.
        clock: seconds, from any beginning.
    """

    def __init__(self, trials: Sequence[Trial], prices: Prices, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prices = prices
        self._total = 0
        self._open: dict[tuple[str, str], int] = {}
        self.asked(trials)
        self._begun_at = self._told_at = clock()
        self._told_tenth = 0
        self._done = self._calls = self._tokens = self._unknown = 0
        self._usd = price(prices, 0, 0, 0)  # None without prices

    def asked(self, trials: Sequence[Trial]) -> None:
        """So many trials more will run."""
        self._total += len(trials)
        for trial in trials:
            self._open[trial.agent, trial.task] = self._open.get((trial.agent, trial.task), 0) + 1

    def add(self, run: TaskRun) -> str | None:
        """Count a trial; the line to show now, None when the last one is fresh enough."""
        self._done += 1
        key = (run.agent, run.task)
        if key in self._open:
            self._open[key] -= 1
        if run.new_draw:
            self._spend(run)
        now = self._clock()
        tenth = self._done * 10 // max(self._total, 1)
        since_s = now - self._told_at
        if since_s < SHORTEST_S or (since_s < LONGEST_S and tenth == self._told_tenth):
            return None
        self._told_at, self._told_tenth = now, tenth
        return self.line()

    def _spend(self, run: TaskRun) -> None:
        self._calls += run.spent_calls
        asked, cached, made = (
            run.samples.get(name) for name in ("input_tokens", "cached_input_tokens", "output_tokens")
        )
        if asked is None or made is None:
            self._unknown += 1
            self._usd = None
            return
        self._tokens += asked + made
        usd = price(self._prices, asked - (cached or 0), cached or 0, made)
        self._usd = None if usd is None or self._usd is None else self._usd + usd

    def line(self) -> str:
        """Where it stands."""
        tasks = sum(left <= 0 for left in self._open.values())
        at_least = "at least " if self._unknown else ""
        parts = [
            f"fanout: {number(tasks)} of {counted(len(self._open), 'task')} done ({number(self._done)} of"
            f" {counted(self._total, 'trial')})",
            counted(self._calls, "live call"),
            f"{at_least}{counted(self._tokens, 'token')}",
        ]
        if self._usd is not None:
            parts.append(dollars(self._usd))
        left = max(0, self._total - self._done)
        if left and self._done:
            parts.append(f"about {span((self._clock() - self._begun_at) / self._done * left)} left")
        return ", ".join(parts)
