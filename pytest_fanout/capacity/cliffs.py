"""Steps of demand on one fleet: a big customer, a regression of fanout, users who ask for more; in every combination.

Cliffs change the inputs of the model, never the GPUs: more calls of a loop carry longer contexts, so that tokens grow
with the square of fanout.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_fanout.capacity.constraints import Stream
from pytest_fanout.capacity.means import TaskRow, means_of
from pytest_fanout.records import CliffCell, Cliffs, Fleet

NAMES = ("onboarding", "fanout", "behavioural")


def cliffs_of(fleet: Fleet) -> tuple[str, ...]:
    """The cliffs that fleet.toml describes."""
    described = {
        "onboarding": any(demand.onboarding_dau for demand in fleet.demand.values()),
        "fanout": fleet.cliffs.fanout_ratio is not None,
        "behavioural": fleet.cliffs.tasks_per_user_ratio is not None,
    }
    return tuple(name for name in NAMES if described[name])


def stepped(stream: Stream, cliffs: Sequence[str], fleet: Fleet) -> Stream:
    """The stream after some cliffs."""
    rate, means, demand = stream.rate, stream.means, fleet.demand.get(stream.agent)
    if "onboarding" in cliffs and demand is not None:
        rate *= (demand.dau + demand.onboarding_dau) / demand.dau
    if "behavioural" in cliffs:
        rate *= fleet.cliffs.tasks_per_user_ratio or 1.0
    if "fanout" in cliffs:
        means = means_of([with_fanout(row, fleet.cliffs.fanout_ratio or 1.0) for row in means.rows])
    return replace(stream, rate=rate, means=means)


def with_fanout(row: TaskRow, ratio: float) -> TaskRow:
    """The task with so many times its calls, as a loop: a first context b, and a more tokens with each call.

    Raw input is k b + a k (k - 1) / 2. Where the longest context is not known, or does not fit a loop, all grows in
    proportion.
    """
    if row.calls is None or row.new_input is None or row.cached_input is None or row.output is None:
        return row
    calls, given = row.calls, row.new_input + row.cached_input
    more, longest, new = given * ratio, row.context_max, row.new_input * ratio
    if longest is not None and calls > 1 and longest > 0:
        first = 2 * given / calls - longest
        added = (longest - first) / (calls - 1)
        if first > 0 and added >= 0:
            count = calls * ratio
            reached = first + added * (count - 1)
            more = count * first + added * count * (count - 1) / 2
            # what was read anew beside the growth of the context is read anew as often as before
            again = (row.new_input - longest) / (given - longest) if row.new_input > longest else 0.0
            new = reached + again * (more - reached) if again else row.new_input * reached / longest
            longest = reached
    context = (more + row.output * ratio / 2) / (calls * ratio) if calls else 0.0
    held = row.held_token_s
    if held is not None:
        held *= ratio * (context / row.context if row.context else 1.0)

    def times(value: float | None) -> float | None:
        return None if value is None else value * ratio

    return replace(
        row,
        calls=calls * ratio,
        new_input=min(new, more),
        cached_input=max(0.0, more - new),
        output=row.output * ratio,
        cache_write=times(row.cache_write),
        held_token_s=held,
        model_s=times(row.model_s),
        tool_s=times(row.tool_s),
        residency_s=times(row.residency_s),
        context_max=longest,
        tools={name: seconds * ratio for name, seconds in row.tools.items()},
    )


def cliffs_on(
    streams: Sequence[Stream], fleet: Fleet, available: float, gpus_of: Callable[[Sequence[Stream]], float | None]
) -> Cliffs:
    """Every combination of the cliffs of fleet.toml, and how many of them the fleet survives at once.

    Args:
        available: GPUs that can be had within minutes.
        gpus_of: GPUs of some streams on a fleet that may be driven to saturation; None: no number.
    """
    names = cliffs_of(fleet)
    plain = gpus_of(streams)
    cells = []
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            gpus = gpus_of([stepped(stream, chosen, fleet) for stream in streams]) if chosen else plain
            fits = gpus is not None and gpus <= available * (1 + 1e-9)
            short = None if gpus is None else max(0.0, 1 - available / gpus) if not fits and gpus else 0.0
            cells.append(CliffCell(chosen, gpus, gpus / plain if gpus is not None and plain else None, fits, short))
    return Cliffs(tuple(cells), survivable(cells, fleet.cliffs.survive), available)


def survivable(cells: Sequence[CliffCell], rule: str) -> int | None:
    """The most cliffs at once: of which every combination fits (``all``), or one does (``any``).

    None where not even the demand without any cliff fits.
    """
    found = None
    for count in range(max(len(cell.cliffs) for cell in cells) + 1):
        of_size = [cell.fits for cell in cells if len(cell.cliffs) == count]
        if all(of_size) if rule == "all" or count == 0 else any(of_size):
            found = count
        elif rule == "all" or count == 0:
            break
    return found
