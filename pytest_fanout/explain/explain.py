"""Why a class moved: from the calls of both sides to totals, parts, sites and findings.

Pure: the same calls give the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_fanout.explain.causes import Said, findings_of
from pytest_fanout.explain.changes import changes_of, version_changes
from pytest_fanout.explain.labels import Labels, labels_of
from pytest_fanout.explain.learning import Site, learn
from pytest_fanout.explain.matching import Pair, match
from pytest_fanout.explain.parts import (
    METRICS,
    RULE,
    Groups,
    Sums,
    decomposed,
    grouped,
    order_of,
    refused_attempts,
    sums,
    unchanged_input,
)
from pytest_fanout.explain.places import AddedLine
from pytest_fanout.records import ClassTotal, ExplainedSite, Explanation, Part, Samples, VisitedTrial

SCOPES = ("mean", "p95")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a class.

    ``samples``: task -> its measured trials, what the gate judges. ``trials``: what their recordings show.
    ``definitions``: task -> digest of its definition; None: not known.
    """

    samples: Mapping[str, Sequence[Samples]]
    trials: Sequence[VisitedTrial]
    definitions: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Matched:
    """The call sites of both sides, beside the explanation that they are in."""

    explanation: Explanation
    tasks: tuple[str, ...]  # that both sides have, defined alike and recorded
    keys: tuple[Mapping[tuple[str, int], Sequence[str]], ...]  # by side, task and trial: the site of each call
    labels: tuple[Labels, Labels]  # by side and site: a changed site is called after the prompt of that side


def explain(
    agent: str, base: Side, run: Side, lines: Sequence[AddedLine] = (), notes: Sequence[str] = ()
) -> Matched | None:
    """The explanation of one class; None where no task is on both sides, or no recording.

    Args:
        lines: what the git diff between the two sides adds.
        notes: what could not be read.
    """
    shared = _shared(base, run)
    told = [{trial.task for trial in side.trials} for side in (base, run)]
    shown = tuple(task for task in shared if task in told[0] and task in told[1])
    if not shown:
        return None
    before, after = ([trial for trial in side.trials if trial.task in shown] for side in (base, run))
    pairs = match(learn(before), learn(after))
    has_reasoning = all(visit.reasoning_tokens is not None for trial in (*before, *after) for visit in trial.visits)
    groups = (
        grouped(before, [(pair.key, pair.base) for pair in pairs if pair.base], reasoning=has_reasoning),
        grouped(after, [(pair.key, pair.run) for pair in pairs if pair.run], reasoning=has_reasoning),
    )
    totals: list[ClassTotal] = []
    parts: list[Part] = []
    said: dict[str, Said] = {}
    unchanged = unchanged_input(pairs, before, after)
    for metric in METRICS:
        values = [_means(side, metric) for side in (base, run)]
        if any(values[0].get(task) is None or values[1].get(task) is None for task in shared):
            continue
        known = [{task: value for task, value in side.items() if value is not None} for side in values]
        for scope in SCOPES:
            tasks = shared if scope == "mean" else _tail(known[1], shared)
            sides = [
                sums(trials, group, metric, [task for task in tasks if task in shown], len(tasks))
                for trials, group in zip((before, after), groups, strict=True)
            ]
            if metric == "tokens":
                said[scope] = _said(sides)
            total = _total(metric, scope, known, tasks)
            refused = Fraction(0)
            if metric == "attempts":
                refused = refused_attempts(after, tasks) - refused_attempts(before, tasks)
            totals.append(total)
            parts += _parts(total, known, tasks, pairs, sides, refused, unchanged)
    changes = changes_of(pairs, before, after)
    labels = labels_of(pairs)
    explanation = Explanation(
        agent=agent,
        rule=RULE,
        totals=tuple(totals),
        parts=tuple(parts),
        sites=_sites(pairs, labels[1], {key for one in changes for key in one.sites}, (before, after), groups, shown),
        findings=findings_of(parts, totals, changes, pairs, lines, version_changes(before, after), said),
        notes=tuple(notes),
    )
    keys = tuple(_keys(*both) for both in zip((before, after), groups, strict=True))
    return Matched(explanation, shown, keys, labels)


def _said(sides: Sequence[Sums | None]) -> Said:
    """Calls and growth of answers by site."""
    calls: dict[str, Fraction] = {}
    growth: dict[str, Fraction] = {}
    for sign, side in zip((-1, 1), sides, strict=True):
        if side is None:
            return Said({}, {})
        for (key, *_), number in side.calls.items():
            calls[key] = calls.get(key, Fraction(0)) + number / 2
        for ((key, *_), name), amount in side.amounts.items():
            if name == "output":
                growth[key] = growth.get(key, Fraction(0)) + sign * amount
    return Said(calls, growth)


def _shared(base: Side, run: Side) -> tuple[str, ...]:
    """The tasks that both sides have, defined alike."""
    return tuple(
        task
        for task in sorted(run.samples)
        if task in base.samples
        and (
            base.definitions.get(task) is None
            or run.definitions.get(task) is None
            or base.definitions[task] == run.definitions[task]
        )
    )


def value_of(samples: Samples, metric: str) -> int | None:
    """One of the explained metrics of a trial."""
    if metric in ("fanout", "attempts"):
        return samples.get(metric)
    spent = [samples.get("input_tokens"), samples.get("output_tokens")]
    cached = samples.get("cached_input_tokens") if metric == "uncached_tokens" else 0
    if spent[0] is None or spent[1] is None or cached is None:
        return None
    return spent[0] + spent[1] - cached


def _means(side: Side, metric: str) -> dict[str, Fraction | None]:
    found: dict[str, Fraction | None] = {}
    for task, trials in side.samples.items():
        values = [value_of(samples, metric) for samples in trials]
        known = [value for value in values if value is not None]
        found[task] = Fraction(sum(known), len(known)) if known and len(known) == len(values) else None
    return found


def _tail(values: Mapping[str, Fraction], shared: Sequence[str]) -> tuple[str, ...]:
    """The tasks at or above the p95 (inverted_cdf) of the run."""
    ordered = sorted(values[task] for task in shared)
    bound = ordered[-(-len(ordered) * 95 // 100) - 1]
    return tuple(task for task in shared if values[task] >= bound)


def _total(metric: str, scope: str, values: Sequence[Mapping[str, Fraction]], tasks: Sequence[str]) -> ClassTotal:
    """Of all tasks of each side, or of the tail on both."""
    names: Sequence[Sequence[str]] = [sorted(side) for side in values] if scope == "mean" else [tasks, tasks]
    base, run = (_mean(side, own) for side, own in zip(values, names, strict=True))
    return ClassTotal(metric, scope, base, run, tuple(tasks))


def _mean(values: Mapping[str, Fraction], tasks: Sequence[str]) -> Fraction:
    return sum((values[task] for task in tasks), Fraction(0)) / len(tasks)


def _parts(
    total: ClassTotal,
    values: Sequence[Mapping[str, Fraction]],
    tasks: Sequence[str],
    pairs: Sequence[Pair],
    sides: Sequence[Sums | None],
    refused: Fraction,
    unchanged: Mapping[str, frozenset[str]],
) -> list[Part]:
    """The parts of a delta, what is of no site among them, so that they add up to it."""
    found: list[Part] = []
    metric, scope = total.metric, total.scope
    shared = _mean(values[1], tasks) - _mean(values[0], tasks)
    if total.delta != shared:
        found.append(Part(metric, scope, "evalset", None, total.delta - shared))
    if sides[0] is not None and sides[1] is not None:
        found += decomposed(sides[0], sides[1], pairs, metric, scope, unchanged)
    if refused:
        found.append(Part(metric, scope, "refused", None, refused))
    if rest := total.delta - sum((part.value for part in found), Fraction(0)):
        found.append(Part(metric, scope, "untold", None, rest))
    return sorted(found, key=order_of)


def _sites(
    pairs: Sequence[Pair],
    labels: Labels,
    changed: set[str],
    sides: tuple[Sequence[VisitedTrial], Sequence[VisitedTrial]],
    groups: tuple[Groups, Groups],
    tasks: Sequence[str],
) -> tuple[ExplainedSite, ...]:
    calls = [_by_site(sums(side, own, "fanout", tasks, len(tasks))) for side, own in zip(sides, groups, strict=True)]
    tokens = [_by_site(sums(side, own, "tokens", tasks, len(tasks))) for side, own in zip(sides, groups, strict=True)]
    found = []
    for pair in pairs:
        state = "new" if pair.base is None else "gone" if pair.run is None else "same"
        if state == "same" and pair.key in changed:
            state = "changed"
        amounts = [None if side is None else side.get(pair.key, Fraction(0)) for side in tokens]
        counts = [(side or {}).get(pair.key, Fraction(0)) for side in calls]
        found.append(
            ExplainedSite(
                key=pair.key,
                label=labels[pair.key],
                state=state,
                api=pair.site.api,
                models_base=_models(pair.base, sides[0]),
                models_run=_models(pair.run, sides[1]),
                calls_base=counts[0],
                calls_run=counts[1],
                tokens_base=amounts[0],
                tokens_run=amounts[1],
            )
        )
    return tuple(found)


def _keys(trials: Sequence[VisitedTrial], groups: Groups) -> dict[tuple[str, int], Sequence[str]]:
    return {
        (trial.task, trial.trial): [groups.group[at, number][0] for number in range(len(trial.visits))]
        for at, trial in enumerate(trials)
    }


def _by_site(told: Sums | None) -> dict[str, Fraction] | None:
    if told is None:
        return None
    found: dict[str, Fraction] = {}
    for (group, _), value in told.amounts.items():
        found[group[0]] = found.get(group[0], Fraction(0)) + value
    return found


def _models(site: Site | None, trials: Sequence[VisitedTrial]) -> tuple[str, ...]:
    if site is None:
        return ()
    return tuple(sorted({trials[at].visits[number].model or "unknown" for at, number in site.visits}))
