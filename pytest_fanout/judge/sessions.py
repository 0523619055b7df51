"""In how many sessions an anchor was drawn: the trials of one session share its luck."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from pytest_fanout.records import Baseline

#: Trials of one task that were begun this much after the first one of a session belong to the next one.
APART_S = 3600


def sessions_of(begun_at: Iterable[int]) -> int:
    """The largest number of moments among ``begun_at`` (unix seconds) that lie an hour or more apart."""
    count, last = 0, None
    for moment in sorted(begun_at):
        if last is None or moment - last >= APART_S:
            count, last = count + 1, moment
    return count


def anchor_sessions(anchor: Baseline) -> int | None:
    """Sessions of at least half of the anchor's tasks; None where no trial says when it was begun.

    A whole session can be off by 10 % (statistics.md 3), which no test within tasks can see.
    """
    counts = [
        sessions_of(known)
        for entry in anchor.tasks.values()
        if (known := [fact.begun_at for fact in entry.trials if fact.begun_at is not None])
    ]
    return median_low(counts) if counts else None
