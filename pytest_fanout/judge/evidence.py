"""New draws judged by evidence: effect and a within-task permutation test, over trials, for all classes at once.

A growth is *found* at a look when its p value stands after Pocock's correction for looks and Holm's for the tests of
all classes, and its effect is above what the limit allows. It *stands* when later trials show such an effect by
themselves. Without one, a class passes when growth above the limit is ruled out, or when all trials are spent and the
best guess is within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from pytest_fanout.judge.arranged import FEWEST_TASKS, Arranged, Shown, Test, look, told
from pytest_fanout.judge.case import Case, Finding, Seen
from pytest_fanout.judge.comparison import beside, value_of
from pytest_fanout.judge.distribution import PERCENTILES, largest
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.foreseen import Foreseen, foreseen
from pytest_fanout.judge.limits import is_over
from pytest_fanout.judge.looks import holm, level, over_all_looks
from pytest_fanout.judge.reasons import reasons_of
from pytest_fanout.judge.runaways import is_open, runaways
from pytest_fanout.judge.shuffles import SEED, Sum, p_values
from pytest_fanout.judge.small_samples import percentile_interval
from pytest_fanout.records import Comparison, MetricEvidence, Needs, Runaway

#: A heavy growth above the limit with a p value up to this keeps the question open.
DOUBTFUL = 0.20
#: When all trials are spent, it is red up to this one.
DOUBTFUL_AT_LAST = 0.05


def judge_draws(draws: Mapping[str, Draw]) -> dict[str, Comparison]:
    """Judge every class that is on a new draw; one family of tests over all of them.

    The answer depends on the samples alone: neither on the order of classes or tasks, nor on when it is asked for.
    """
    cases = [Case(agent, Arranged(draws[agent])) for agent in sorted(draws)]
    family = sum(len(case.arranged.tests) for case in cases)
    looks = [[trials for trials in case.arranged.schedule if trials <= case.arranged.whole] for case in cases]
    for index in range(max(map(len, looks), default=0)):
        fresh = [
            case
            for case, allowed in zip(cases, looks, strict=True)
            if index < len(allowed) and not any(finding.confirmed for finding in case.findings.values())
        ]
        for case in fresh:
            _evaluate(case, case.arranged.schedule[index], family)
        _find(cases, fresh, index)
        for case in fresh:
            for finding in case.findings.values():
                finding.confirmed = _confirmed(case, finding)
    return {case.agent: _conclude(case, family) for case in cases}


def _evaluate(case: Case, trials: int, family: int) -> None:
    """One look at one class: effects and p values."""
    arranged = case.arranged
    now = look(arranged, trials)
    exact = frozenset(metric for metric in arranged.metrics if arranged.is_exact(metric, trials))
    # where nothing grew there is nothing to test: the question is one-sided
    asked = [
        test
        for test, entries in now.shown.items()
        if test.metric not in exact and any(entry.effect > (entry.scale != "share") for entry in entries)
    ]
    ps = dict.fromkeys(now.shown, 1.0)
    best = {test: entries[0] for test, entries in now.shown.items()}
    if asked:
        sums = [
            (entry, Sum(now.planes[test, version], entry.weights, place))
            for place, test in enumerate(asked)
            for version, entry in enumerate(now.shown[test])
        ]
        needed = level(case.alpha / family, arranged.schedule, arranged.trials_base)
        found, scores, drawn = p_values(now.blocks, [one for _, one in sums], needed)
        ps |= dict(zip(asked, found, strict=True))
        for place, test in enumerate(asked):
            mine = [(score, entry) for score, (entry, one) in zip(scores, sums, strict=True) if one.hypothesis == place]
            best[test] = max(mine, key=lambda pair: pair[0])[1]
        case.permutations = max(case.permutations, drawn)
    plain = {test: entries[0] for test, entries in now.shown.items()}
    case.seen.append(Seen(trials, plain, best, ps, exact, now.noises))


def _find(cases: list[Case], fresh: list[Case], index: int) -> None:
    """Holm over the family at one look: the tests that stand, and whose effect is above the limit."""
    adjusted = holm(
        {
            (case.agent, test): over_all_looks(p, case.arranged.schedule, case.arranged.trials_base)
            for case in cases
            for test, p in (case.seen[-1].p if case.seen else {}).items()
        }
    )
    for case in fresh:
        seen = case.seen[-1]
        for test, entry in seen.best.items():
            if test in case.findings:
                continue
            if test.metric in seen.exact:
                found = test.statistic == "body" and _is_over_raw(case, test.metric, 1, seen.trials)
            else:
                found = adjusted[case.agent, test] <= case.alpha and entry.is_over
            if found:
                case.findings[test] = Finding(entry, index, seen.trials)


def _confirmed(case: Case, finding: Finding) -> bool | None:
    """Whether trials after the look show the effect by themselves; at the last look, whether its own last ones do.

    What a look found in all of its trials, and only in them, may be the luck of one session. None: nothing tells yet.
    """
    arranged, exact = case.arranged, finding.shown.test.metric in case.seen[finding.look].exact
    first, ends = finding.trials + 1, range(finding.trials + 1, arranged.trials + 1)
    if finding.trials == case.most_trials and finding.look > 0:
        first, ends = case.seen[finding.look - 1].trials + 1, range(finding.trials, finding.trials + 1)
    told = False
    for last in ends:
        if exact:
            if arranged.whole >= last:
                told = True
                if _is_over_raw(case, finding.shown.test.metric, first, last):
                    return True
            continue
        effect = later_effect(arranged, finding.shown, first, last)
        if effect is not None:
            told = True
            if effect > finding.shown.threshold:
                return True
    return False if told else None


def later_effect(arranged: Arranged, before: Shown, first: int, last: int) -> float | None:
    """The effect of the trials ``first`` … ``last`` alone, over the tasks and weights of an earlier look.

    None where a tenth of the weight or more has no such trials.
    """
    import numpy as np

    total = covered = 0.0
    place = arranged.metrics.index(before.test.metric)
    for block in arranged.blocks(first, last):
        values = block.values[place]
        if before.scale == "log":
            values = np.log(np.maximum(values, 1.0))
        if before.bounds is not None:
            values = np.clip(values, before.bounds[0][block.at, None], before.bounds[1][block.at, None])
        difference = values[:, block.trials_base :].mean(axis=1) - values[:, : block.trials_base].mean(axis=1)
        weights = before.weights[block.at] * block.shares
        total += float(weights @ difference)
        covered += float(weights.sum())
    if covered <= 0.9:
        return None
    return told(total / covered / before.unit, before.scale)


def _is_over_raw(case: Case, metric: str, first: int, last: int) -> bool:
    arranged = case.arranged
    table = arranged.trials_between(first, last)
    if set(table.statuses) != set(arranged.tasks):
        return False
    limits = list(arranged.limits[metric])
    return any(result.over for result in beside(arranged.anchor, table, limits) if result.gated)


def _conclude(case: Case, family: int) -> Comparison:
    arranged = case.arranged
    if arranged.trials and (not case.seen or case.seen[-1].trials != arranged.trials):
        _evaluate(case, arranged.trials, family)
    verdicts = {test: _verdict_of(case, test) for test in arranged.tests} if case.seen else {}
    strays = runaways(arranged)
    needs = _needs(case, verdicts, strays)
    verdict = _verdict(case, verdicts, strays, needs)
    ahead = foreseen(case)
    return Comparison(
        verdict=verdict,
        metrics=tuple(_evidence(case, test, word, family) for test, word in verdicts.items()),
        needs=needs,
        reasons=reasons_of(case, verdicts, strays, needs, ahead),
        runaways=strays,
        n=len(arranged.tasks),
        looks=len(case.seen),
        tests=family,
        permutations=case.permutations,
        seed=SEED,
        **(_what_limits_cost(case, family, ahead) if arranged.tests else {}),
        new=tuple(sorted(set(arranged.draw.run.statuses) - set(arranged.draw.anchor.statuses))),
        missing=tuple(sorted(set(arranged.draw.anchor.statuses) - set(arranged.draw.run.statuses))),
    )


def _verdict_of(case: Case, test: Test) -> str:
    """regressed unconfirmed shown open high low: what all the trials at hand say of one test."""
    finding = case.findings.get(test)
    if finding is not None and finding.confirmed:
        return "regressed"
    if finding is not None and (finding.confirmed is None or finding.trials == case.most_trials):
        return "unconfirmed"
    seen = case.seen[-1]
    entry, p = seen.plain[test], seen.p[test]
    if test.metric in seen.exact:
        return "shown"  # not found: not over, exactly
    if test.statistic == "body":
        if entry.is_shown_within:
            return "shown"
        # a best guess of few tasks, or one that only rounds to at_least, is noise where no limited figure bears it out
        whole = case.arranged.threshold(test.metric, entry.unit, rounded=False)
        is_plain = entry.effect > whole and not entry.n < FEWEST_TASKS <= len(case.arranged.tasks)
        is_high = entry.is_over and (is_plain or _statistic_is_over(case, test))
        return "open" if not case.is_spent else "high" if is_high else "low"
    if not entry.is_over or p > DOUBTFUL:
        return "shown"
    if not case.is_spent:
        return "open"
    if p > DOUBTFUL_AT_LAST or (test.statistic == "heavy" and not _statistic_is_over(case, test)):
        return "low"
    return "high"


def _statistic_is_over(case: Case, test: Test) -> bool:
    """Whether a statistic that is limited is itself above what its limit allows: else a heavy growth in doubt is no
    best guess."""
    arranged = case.arranged
    for limit in arranged.limits[test.metric]:
        if test.statistic == "heavy" and limit.statistic == "p50":
            continue  # which the dearest tasks do not move
        before = arranged.base_value(test.metric, limit.statistic)
        after = value_of(arranged.run, test.metric, limit.statistic, unknown="high")
        if before is None or after is None or is_over(limit, before, after):
            return True
    return False


def _needs(case: Case, verdicts: Mapping[Test, str], strays: tuple[Runaway, ...]) -> Needs:
    """What to run next. A confirmation comes before everything else: only failing draws pay for it."""
    arranged = case.arranged
    words = set(verdicts.values())
    if not arranged.tasks or "regressed" in words or any(stray.repeated for stray in strays):
        return Needs()
    most = max(case.most_trials, 2)
    left = [task for task in arranged.fresh if arranged.counts[task] < most]
    if "unconfirmed" in words and left:
        members: set[str] = set()
        for test, word in verdicts.items():
            if word == "unconfirmed":
                weights = case.findings[test].shown.weights
                members |= {task for task, weight in zip(arranged.tasks, weights, strict=True) if weight > 0}
        chosen = tuple(task for task in left if task in members)
        if chosen:
            return Needs(chosen, 1, "confirm")
    if len(arranged.tasks) < FEWEST_TASKS:
        return Needs()  # it cannot pass whatever further trials say
    again = tuple(stray.task for stray in strays if is_open(stray) and arranged.counts[stray.task] < most)
    if again:
        return Needs(again, 1, "backstop")  # it is little, and may settle the rest
    next_look = next((trials for trials in arranged.schedule if trials > arranged.whole), None)
    is_raw = not arranged.tests and any(not limit.evidence for limit in arranged.draw.limits)
    if next_look is not None and ("open" in words or not case.seen or is_raw):
        # the tasks that are farthest behind first, so that every task asked for takes the same number of trials
        return Needs(
            tuple(task for task in left if arranged.counts[task] == arranged.whole),
            min([next_look, *(count for task in arranged.fresh if (count := arranged.counts[task]) > arranged.whole)])
            - arranged.whole,
            "look",
        )
    return Needs()


def _verdict(case: Case, verdicts: Mapping[Test, str], strays: tuple[Runaway, ...], needs: Needs) -> str:
    words = set(verdicts.values())
    if case.arranged.unknown or not case.arranged.tasks:
        return "invalid"
    if "regressed" in words or any(stray.repeated for stray in strays):
        return "regressed"
    waits = needs.why in ("confirm", "backstop") or (needs.why == "look" and case.arranged.tests)
    if waits or words & {"unconfirmed", "open", "high"} or len(case.arranged.tasks) < FEWEST_TASKS:
        return "inconclusive"
    return "pass"


def _evidence(case: Case, test: Test, word: str, family: int) -> MetricEvidence:
    arranged = case.arranged
    seen = case.seen[-1]
    finding = case.findings.get(test) if word in ("regressed", "unconfirmed") else None
    entry = case.told(test) if finding is not None else seen.plain[test]
    before, after = arranged.anchor.column(test.metric), arranged.run.column(test.metric)
    share = test.statistic == "share"
    top, top_task = largest(after)
    fresh = arranged.fresh or arranged.tasks
    exact = test.metric in seen.exact
    return MetricEvidence(
        name=test.metric,
        statistic=test.statistic,
        verdict=word,
        effect=_rounded(entry.effect),
        interval=(_rounded(entry.interval[0]), _rounded(entry.interval[1])),
        threshold=_rounded(entry.threshold),
        p=None if exact else _rounded((case.seen[finding.look] if finding is not None else seen).p[test]),
        level=None if exact else _level(case, family),
        n=entry.n,
        trials_base=min(len(arranged.anchor.statuses[task]) for task in fresh),
        trials_run=min(arranged.counts[task] for task in fresh),
        noise=None if share else _rounded(seen.noises[test.metric]),
        p95_base=None if share else arranged.base_value(test.metric, "p95"),
        p95_run=None if share else value_of(arranged.run, test.metric, "p95", unknown="high"),
        p95_base_interval=None if share else percentile_interval(before, PERCENTILES["p95"]),
        p95_run_interval=None if share else percentile_interval(after, PERCENTILES["p95"]),
        max=None if share else top,
        max_task=None if share else top_task,
        found_at=finding.trials if finding is not None else None,
    )


class _Costs(TypedDict, total=False):
    level: float | None
    level_one_less: float | None
    finds_of: str | None
    finds: float | None
    finds_one_less: float | None
    finds_trials: int | None


def _what_limits_cost(case: Case, family: int, ahead: Foreseen) -> _Costs:
    """What all tests of the run leave to each, and what one limit less would."""
    needed, one_less = _level(case, family), _level(case, family - _of_one_limit(case.arranged))
    costs: _Costs = {"level": needed, "level_one_less": one_less}
    metric = ahead.costliest(needed, one_less)
    if metric is not None:
        costs["finds_of"] = metric
        costs["finds"] = _rounded(ahead.finds(metric, needed))
        costs["finds_one_less"] = _rounded(ahead.finds(metric, one_less))
        costs["finds_trials"] = ahead.trials
    return costs


def _level(case: Case, family: int) -> float:
    return _digits(level(case.alpha / max(family, 1), case.arranged.schedule, case.arranged.trials_base))


def _of_one_limit(arranged: Arranged) -> int:
    """Tests that the metric with the most of them brings into the family."""
    return max(sum(test.metric == metric for test in arranged.tests) for metric in arranged.metrics)


def _rounded(value: float | None) -> float | None:
    """Six digits: what differs beyond them differs between machines."""
    return None if value is None else _digits(value)


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
