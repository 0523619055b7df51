"""New draws judged by evidence: effect and a within-task permutation test, over trials, for all classes at once.

A growth is *found* at a look when its p value stands after Pocock's correction for looks and Holm's for the tests of
all classes, and its effect is above what the limit allows. It *stands* when later trials show such an effect by
themselves. Without one, a class passes when growth above the limit is ruled out, or when all trials are spent and the
best guess is within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_fanout.judge.arranged import FEWEST_TASKS, Arranged, Shown, Test, look
from pytest_fanout.judge.comparison import beside, value_of
from pytest_fanout.judge.distribution import PERCENTILES, largest
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.looks import holm, level, over_all_looks
from pytest_fanout.judge.reasons import reasons_of
from pytest_fanout.judge.runaways import is_open, runaways
from pytest_fanout.judge.shuffles import SEED, p_values
from pytest_fanout.judge.small_samples import percentile_interval
from pytest_fanout.records import Comparison, MetricEvidence, Needs, Runaway

#: A heavy growth above the limit with a p value up to this keeps the question open.
DOUBTFUL = 0.20


@dataclass(slots=True)
class Finding:
    """A growth that was found at a look, and whether later trials show it too."""

    test: Test
    at: int  # new trials at the look
    look: int  # number of the look, from 1
    confirmed: bool = False


@dataclass(slots=True)
class Case:
    """One class while it is judged."""

    agent: str
    arranged: Arranged
    looks: tuple[int, ...]  # the looks of its schedule that its trials allow, then all of its trials
    shown: list[dict[Test, Shown]] = field(default_factory=list)
    p: list[dict[Test, float]] = field(default_factory=list)
    exact: list[frozenset[str]] = field(default_factory=list)
    noises: dict[str, float | None] = field(default_factory=dict)
    findings: dict[Test, Finding] = field(default_factory=dict)
    permutations: int = 0

    @property
    def alpha(self) -> float:
        return float(self.arranged.draw.rules.alpha)

    @property
    def most_trials(self) -> int:
        return self.arranged.schedule[-1]


def judge_draws(draws: Mapping[str, Draw]) -> dict[str, Comparison]:
    """Judge every class that is on a new draw; one family of tests over all of them.

    The answer depends on the samples alone: neither on the order of classes or tasks, nor on when it is asked for.
    """
    cases = [_case(agent, draws[agent]) for agent in sorted(draws)]
    family = sum(len(case.arranged.tests) for case in cases)
    for index in range(max((len(case.looks) for case in cases), default=0)):
        for case in cases:
            if index < len(case.looks):
                _evaluate(case, index, family)
        _find(cases, index)
    for case in cases:
        _confirm(case)
    return {case.agent: _conclude(case, family) for case in cases}


def _case(agent: str, draw: Draw) -> Case:
    arranged = Arranged(draw)
    allowed = tuple(trials for trials in arranged.schedule if trials <= arranged.trials)
    return Case(agent, arranged, allowed)


def _evaluate(case: Case, index: int, family: int) -> None:
    """One look at one class: effects and p values."""
    arranged, last = case.arranged, case.looks[index]
    shown, blocks, noises = look(arranged, last)
    exact = frozenset(metric for metric in arranged.metrics if arranged.is_exact(metric, last))
    asked = [entry for entry in shown if entry.test.metric not in exact and entry.effect > _nothing(entry)]
    ps = {entry.test: 1.0 for entry in shown}
    if asked:
        import numpy as np

        places = {metric: place for place, metric in enumerate(arranged.metrics)}
        needed = level(case.alpha / family, arranged.schedule, arranged.trials_base)
        found, drawn = p_values(
            blocks,
            np.stack([entry.weights for entry in asked]),
            [places[entry.test.metric] for entry in asked],
            needed,
        )
        ps |= {entry.test: p for entry, p in zip(asked, found, strict=True)}
        case.permutations = max(case.permutations, drawn)
    case.shown.append({entry.test: entry for entry in shown})
    case.p.append(ps)
    case.exact.append(exact)
    case.noises = dict(zip(arranged.metrics, noises, strict=True))


def _nothing(entry: Shown) -> float:
    """The effect where nothing changed; what is not above it needs no test, which asks for growth alone."""
    return 0.0 if entry.scale == "share" else 1.0


def _find(cases: list[Case], index: int) -> None:
    """Holm over the family at one look: the tests that stand, and whose effect is above the limit."""
    adjusted = holm(
        {
            (case.agent, test): over_all_looks(p, case.arranged.schedule, case.arranged.trials_base)
            for case in cases
            for test, p in (case.p[min(index, len(case.p) - 1)] if case.p else {}).items()
        }
    )
    for case in cases:
        if index >= len(case.looks):
            continue
        for test, entry in case.shown[index].items():
            if test in case.findings:
                continue
            if test.metric in case.exact[index]:
                found = test.statistic == "body" and _is_over_raw(case, test.metric, 1, case.looks[index])
            else:
                found = adjusted[case.agent, test] <= case.alpha and entry.is_over
            if found:
                case.findings[test] = Finding(test, case.looks[index], index)


def _confirm(case: Case) -> None:
    """A finding stands when trials after it show the effect by themselves; at the last look, when its own last ones do.

    What a look found in all of its trials, and only in them, may be the luck of one session.
    """
    for finding in case.findings.values():
        ends = list(range(finding.at + 1, case.arranged.trials + 1))
        first = finding.at + 1
        if finding.at == case.most_trials and finding.look > 0:
            first, ends = case.looks[finding.look - 1] + 1, [finding.at]
        finding.confirmed = any(_shows(case, finding, first, last) for last in ends)


def _shows(case: Case, finding: Finding, first: int, last: int) -> bool:
    arranged, test = case.arranged, finding.test
    if test.metric in case.exact[finding.look]:
        return _is_over_raw(case, test.metric, first, last)
    before = case.shown[finding.look][test]
    return later_effect(arranged, before, first, last) > before.threshold


def later_effect(arranged: Arranged, before: Shown, first: int, last: int) -> float:
    """The effect of the trials ``first`` … ``last`` alone, over the tasks and weights of an earlier look.

    Nothing is shown where a tenth of the weight or more has no such trials.
    """
    import math

    import numpy as np

    total = covered = 0.0
    place = arranged.metrics.index(before.test.metric)
    for block in arranged.blocks(first, last):
        values = block.values[place]
        if before.scale == "log":
            values = np.log(np.maximum(values, 1.0))
        difference = values[:, block.trials_base :].mean(axis=1) - values[:, : block.trials_base].mean(axis=1)
        weights = before.weights[block.at]
        total += float(weights @ difference)
        covered += float(weights.sum())
    if covered <= 0.9:
        return -math.inf
    value = total / covered / before.unit
    return math.exp(value) if before.scale == "log" else value if before.scale == "share" else 1 + value


def _is_over_raw(case: Case, metric: str, first: int, last: int) -> bool:
    arranged = case.arranged
    table = arranged.trials_between(first, last)
    if set(table.statuses) != set(arranged.tasks):
        return False
    limits = list(arranged.limits[metric])
    return any(result.over for result in beside(arranged.anchor, table, limits) if result.gated)


def _conclude(case: Case, family: int) -> Comparison:
    arranged = case.arranged
    if arranged.trials and (not case.looks or case.looks[-1] != arranged.trials):
        case.looks = (*case.looks, arranged.trials)
        _evaluate(case, len(case.looks) - 1, family)
    verdicts = {test: _verdict_of(case, test) for test in arranged.tests} if case.shown else {}
    strays = runaways(arranged)
    needs = _needs(case, verdicts, strays)
    verdict = _verdict(case, verdicts, strays, needs)
    return Comparison(
        verdict=verdict,
        metrics=tuple(_evidence(case, test, word, family) for test, word in verdicts.items()),
        needs=needs,
        reasons=reasons_of(case, verdicts, strays, needs),
        runaways=strays,
        n=len(arranged.tasks),
        looks=len(case.looks),
        tests=family,
        permutations=case.permutations,
        seed=SEED,
        new=tuple(sorted(set(arranged.draw.run.statuses) - set(arranged.draw.anchor.statuses))),
        missing=tuple(sorted(set(arranged.draw.anchor.statuses) - set(arranged.draw.run.statuses))),
    )


def _verdict_of(case: Case, test: Test) -> str:
    """regressed unconfirmed shown open high low: what all the trials at hand say of one test."""
    finding = case.findings.get(test)
    if finding is not None and finding.confirmed:
        return "regressed"
    spent = case.arranged.trials >= case.most_trials
    if finding is not None and finding.at == case.arranged.trials:
        return "unconfirmed"
    entry, p = case.shown[-1][test], case.p[-1][test]
    if test.metric in case.exact[-1]:
        return "shown"  # not found: not over, exactly
    if test.statistic == "body":
        if entry.is_shown_within:
            return "shown"
        return "open" if not spent else "high" if entry.is_over else "low"
    if not entry.is_over or p > DOUBTFUL:
        return "shown"
    if not spent:
        return "open"
    return "high" if test.statistic == "share" or _percentile_is_over(case, test.metric) else "low"


def _percentile_is_over(case: Case, metric: str) -> bool:
    """Whether the run's p95 itself is above what the limit allows: else a heavy growth in doubt is no best guess."""
    arranged = case.arranged
    before, after = value_of(arranged.anchor, metric, "p95"), value_of(arranged.run, metric, "p95")
    if before is None or after is None:
        return True
    return after > before * arranged.threshold(metric, float(before or 1))


def _needs(case: Case, verdicts: Mapping[Test, str], strays: tuple[Runaway, ...]) -> Needs:
    """What to run next. A confirmation comes before everything else: only failing draws pay for it."""
    arranged = case.arranged
    words = set(verdicts.values())
    if not arranged.tasks or "regressed" in words or any(stray.repeated for stray in strays):
        return Needs()
    most = max(case.most_trials, 2)
    fresh = [task for task in arranged.tasks if task not in arranged.still]
    left = [task for task in fresh if arranged.counts[task] < most]
    if "unconfirmed" in words and left:
        members: set[str] = set()
        for test, word in verdicts.items():
            if word == "unconfirmed":
                weights = case.shown[case.findings[test].look][test].weights
                members |= {task for task, weight in zip(arranged.tasks, weights, strict=True) if weight > 0}
        chosen = tuple(task for task in left if task in members)
        if chosen:
            return Needs(chosen, 1, "confirm")
    few = len(arranged.tasks) < FEWEST_TASKS and arranged.draw.rules.inconclusive != "warn"
    if few:
        return Needs()  # it cannot pass whatever further trials say
    next_look = next((trials for trials in arranged.schedule if trials > arranged.trials), None)
    is_raw = not arranged.tests and any(not limit.evidence for limit in arranged.draw.limits)
    if next_look is not None and ("open" in words or not case.shown or is_raw):
        short = tuple(task for task in left if arranged.counts[task] < next_look)
        if short:
            return Needs(short, next_look - min(arranged.counts[task] for task in short), "look")
    again = tuple(stray.task for stray in strays if is_open(stray) and arranged.counts[stray.task] < most)
    return Needs(again, 1, "backstop") if again else Needs()


def _verdict(case: Case, verdicts: Mapping[Test, str], strays: tuple[Runaway, ...], needs: Needs) -> str:
    words = set(verdicts.values())
    if case.arranged.unknown or not case.arranged.tasks:
        return "invalid"
    if "regressed" in words or any(stray.repeated for stray in strays):
        return "regressed"
    if needs or words & {"unconfirmed", "open", "high"} or len(case.arranged.tasks) < FEWEST_TASKS:
        return "inconclusive"
    return "pass"


def _evidence(case: Case, test: Test, word: str, family: int) -> MetricEvidence:
    arranged = case.arranged
    entry = case.shown[-1][test]
    before, after = arranged.anchor.column(test.metric), arranged.run.column(test.metric)
    share = test.statistic == "share"
    top, top_task = largest(after)
    fresh = [task for task in arranged.tasks if task not in arranged.still] or list(arranged.tasks)
    finding = case.findings.get(test)
    exact = test.metric in case.exact[-1]
    return MetricEvidence(
        name=test.metric,
        statistic=test.statistic,
        verdict=word,
        effect=_rounded(entry.effect),
        interval=(_rounded(entry.interval[0]), _rounded(entry.interval[1])),
        threshold=_rounded(entry.threshold),
        p=None if exact else _rounded(case.p[-1][test]),
        level=None if exact else _rounded(level(case.alpha / family, arranged.schedule, arranged.trials_base)),
        n=entry.n,
        trials_base=min(len(arranged.anchor.statuses[task]) for task in fresh),
        trials_run=min(arranged.counts[task] for task in fresh),
        noise=None if share else _rounded(case.noises[test.metric]),
        p95_base=None if share else value_of(arranged.anchor, test.metric, "p95", unknown="low"),
        p95_run=None if share else value_of(arranged.run, test.metric, "p95", unknown="high"),
        p95_base_interval=None if share else percentile_interval(before, PERCENTILES["p95"]),
        p95_run_interval=None if share else percentile_interval(after, PERCENTILES["p95"]),
        max=None if share else top,
        max_task=None if share else top_task,
        found_at=finding.at if finding is not None and word in ("regressed", "unconfirmed") else None,
    )


def _rounded(value: float | None) -> float | None:
    """Six digits: what differs beyond them differs between machines."""
    return None if value is None else float(f"{value:.6g}")
