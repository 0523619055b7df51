"""Which trials of a task may change sides in a shuffle: those that would be alike if nothing had changed.

Trials that share no beginning are alike, all of them. A new trial that was branched shares its beginning with a trial
of the anchor: it is like that one, and with the others it has less in common. So the two change sides with each other
only, and their difference is what followed the beginning; what beginnings differ by cancels out. Several continuations
of one beginning are a stratum together with the trial that they share it with: they count for the one beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Beginnings = Sequence["str | None"]


class Stratum(NamedTuple):
    """Trials of one task that may change sides among themselves, by their places. ``share``: its part of the task."""

    base: tuple[int, ...]
    run: tuple[int, ...]
    share: float


def is_paired(base: Beginnings, run: Beginnings) -> bool:
    """Whether any new trial shares its beginning with one of the anchor."""
    return not set(run).isdisjoint(name for name in base if name is not None)


def strata_of(base: Beginnings, run: Beginnings, first: int, last: int) -> list[Stratum]:
    """The strata of a task, of its new trials ``first`` ... ``last`` (from 1); each new trial counts alike.

    A new trial without such a beginning is compared with the anchor's trials that nobody else is compared with. Where
    there are none it joins the smallest stratum: the shuffles then think that less is shared than is, which finds less.

    Args:
        base, run: the recording that each trial's beginning was first drawn for, None where that is not known.
    """
    new = range(first - 1, min(last, len(run)))
    named = {name for name in base if name is not None}
    clusters: dict[str, tuple[list[int], list[int]]] = {}
    free: list[int] = []
    for place in new:
        name = run[place]
        if name is not None and name in named:
            clusters.setdefault(name, ([], []))[1].append(place)
        else:
            free.append(place)
    rest: list[int] = []
    for place, name in enumerate(base):
        (clusters[name][0] if name is not None and name in clusters else rest).append(place)
    groups = list(clusters.values())
    if free and rest:
        groups.append((rest, free))
    elif free:
        min(groups, key=lambda group: len(group[1]))[1].extend(free)
    return [Stratum(tuple(old), tuple(fresh), len(fresh) / len(new)) for old, fresh in groups]
