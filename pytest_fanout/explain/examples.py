"""Tasks that grew, one trial of each side: its calls as a tree, and the first call where the two part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_fanout.explain.explain import Side, value_of
from pytest_fanout.records import Example, HttpRequest, TreeLine, Visit, VisitedTrial
from pytest_fanout.wire.changes import describe_changes

MOST = 3  # tasks of a class


def most_grown(base: Side, run: Side, tasks: Sequence[str]) -> tuple[str, ...]:
    """The tasks whose mean fanout rose most, then whose tokens did; those that did not rise are left out."""
    ranked = []
    for task in tasks:
        rose = tuple(_mean(run, task, metric) - _mean(base, task, metric) for metric in ("fanout", "tokens"))
        if max(rose) > 0:
            ranked.append((-rose[0], -rose[1], task))
    return tuple(task for *_, task in sorted(ranked)[:MOST])


def typical(trials: Sequence[VisitedTrial], task: str) -> VisitedTrial:
    """Of the trials of a task the one with the median number of calls, the lower where there are two."""
    own = sorted((trial for trial in trials if trial.task == task), key=lambda one: (len(one.visits), one.trial))
    return own[(len(own) - 1) // 2]


def example(
    base: VisitedTrial,
    run: VisitedTrial,
    keys: tuple[Sequence[str], Sequence[str]],
    labels: tuple[Mapping[str, str], Mapping[str, str]],
    requests: tuple[Sequence[HttpRequest], Sequence[HttpRequest]],
) -> Example:
    """Both trials beside each other.

    Args:
        keys: the call site of each call, by side.
        labels: of the call sites, by side.
        requests: what each call has sent, by side.
    """
    differs: tuple[str, ...] = ()
    pairs = zip(base.visits, run.visits, strict=False)
    at = next((number for number, (one, other) in enumerate(pairs) if one.request != other.request), None)
    shorter = min(len(base.visits), len(run.visits))
    if at is not None:
        before, after = requests[0][at], requests[1][at]
        if keys[0][at] != keys[1][at]:
            names = [own[side[at]] for own, side in zip(labels, keys, strict=True)]
            differs = (f'another call site: "{names[0]}" -> "{names[1]}"',)
        differs += describe_changes(after.url, before.body, after.body, before.url)
    elif len(base.visits) != len(run.visits):
        at = shorter
        differs = ("no further call" if len(run.visits) == shorter else "a further call",)
    trees = [_tree(*side) for side in zip((base, run), keys, labels, strict=True)]
    return Example(run.task, base.trial, run.trial, trees[0], trees[1], None if at is None else at + 1, differs)


def _tree(trial: VisitedTrial, keys: Sequence[str], labels: Mapping[str, str]) -> tuple[TreeLine, ...]:
    """A conversation that begins between two calls of another one is inside it, as an agent that a tool calls is."""
    heads = _heads(trial.visits)
    ends: dict[int, int] = {}  # conversation -> start of its last call
    for number, visit in enumerate(trial.visits):
        ends[heads[number]] = max(ends.get(heads[number], 0), visit.started_ms)
    depths: list[int] = []
    for head in heads:
        begin = trial.visits[head]
        around = {
            heads[other]
            for other in range(len(trial.visits))
            if heads[other] != head
            and trial.visits[heads[other]].started_ms < begin.started_ms
            and ends[head] < ends[heads[other]]
        }
        depths.append(len(around))
    return tuple(
        TreeLine(depths[number], keys[number], labels[keys[number]], visit.kind, visit.after, _tokens(visit))
        for number, visit in enumerate(trial.visits)
    )


def _heads(visits: Sequence[Visit]) -> list[int]:
    """The call that began the conversation of each."""
    heads: list[int] = []
    for number, visit in enumerate(visits):
        heads.append(number if visit.follows is None else heads[visit.follows])
    return heads


def _tokens(visit: Visit) -> int | None:
    if visit.input_tokens is None or visit.output_tokens is None:
        return None
    return visit.input_tokens + visit.output_tokens


def _mean(side: Side, task: str, metric: str) -> float:
    values = [value_of(samples, metric) for samples in side.samples[task]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0
