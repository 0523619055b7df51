"""Which call sites an agent's calls come from, base beside run, and how they add up to the delta.

A site is compared by its fingerprint. Those that only one side has are paired by what is known of them, the first words
of their prompts, their tools and API: a reworded prompt, or another model, is a site that changed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_fanout.explain.matching import ENOUGH, likeness
from pytest_fanout.explain.templates import words
from pytest_fanout.records import CallSite, SiteDelta, SiteStats, TaskRun

#: Trials whose count is one: a stale, invalid or crashed trial was cut short, and would look like calls saved.
_MEASURED = frozenset({"ok", "failed", "capped", "timeout"})

#: Stands for the calls whose site could not be read, so that sites always add up to the fanout.
NO_SITE = CallSite("0" * 16, "unknown", None, (), "(calls without a call site)")


@dataclass(frozen=True, slots=True)
class Parts:
    """Delta of the mean calls per task, split by what became of their sites. Exact: the four sum to ``delta``."""

    delta: Fraction
    new: Fraction
    gone: Fraction
    more: Fraction
    fewer: Fraction


def site_stats(tasks: Sequence[TaskRun], agent: str) -> SiteStats:
    """Calls and known tokens of each site, summed over the measured trials of ``agent``; other classes are left out.

    Every task counts once. Where tasks have unlike numbers of trials, the sums are those that each task would have
    with the least common multiple of these numbers; ``weight`` is then tasks x that multiple.
    """
    by_task: dict[str, list[TaskRun]] = defaultdict(list)
    for task_run in tasks:
        if task_run.agent == agent and task_run.status in _MEASURED:
            by_task[task_run.task].append(task_run)
    common = math.lcm(*(len(trials) for trials in by_task.values())) if by_task else 0
    calls: dict[str, int] = defaultdict(int)
    tokens: dict[str, int] = defaultdict(int)
    sites: dict[str, CallSite] = {}
    for trials in by_task.values():
        factor = common // len(trials)
        for trial in trials:
            for site in trial.call_sites:
                sites.setdefault(site.fingerprint, site)
            for fingerprint, count in trial.sites.items():
                calls[fingerprint] += factor * count
            for fingerprint, count in trial.site_tokens.items():
                tokens[fingerprint] += factor * count
            rest = (trial.samples.get("fanout") or 0) - sum(trial.sites.values())
            if rest > 0:
                calls[NO_SITE.fingerprint] += factor * rest
                sites[NO_SITE.fingerprint] = NO_SITE
    for fingerprint in calls:
        sites.setdefault(fingerprint, CallSite(fingerprint, "unknown", None, (), "(not described)"))
    return SiteStats(
        agent=agent,
        weight=common * len(by_task),
        sites=tuple(sites[fingerprint] for fingerprint in sorted(sites) if fingerprint in calls),
        calls={fingerprint: calls[fingerprint] for fingerprint in sorted(calls)},
        tokens={fingerprint: tokens[fingerprint] for fingerprint in sorted(tokens) if fingerprint in calls},
    )


def compare_sites(agent: str, base: SiteStats | None, run: Sequence[TaskRun]) -> tuple[SiteDelta, ...]:
    """Each site of base or run with its calls per trial, largest change first.

    A site that one side does not have has 0 calls there; one that changed is described as it is in the run. Without
    base stats, or without a trial of the class, there is nothing to compare: empty.
    """
    stats = site_stats(run, agent)
    if base is None or base.weight == 0 or stats.weight == 0:
        return ()
    described = {site.fingerprint: site for site in (*base.sites, *stats.sites)}
    changed = _changed(base, stats, described)  # in the run -> in the base
    paired = set(changed.values())
    deltas = []
    for fingerprint in sorted((set(base.calls) | set(stats.calls)) - paired):
        was = changed.get(fingerprint, fingerprint)
        before, after = _per_trial(base, was, 100), _per_trial(stats, fingerprint, 100)
        deltas.append(
            SiteDelta(
                agent=agent,
                site=described.get(fingerprint, CallSite(fingerprint, "unknown", None, (), "(not described)")),
                calls_base=before,
                calls_run=after,
                tokens_base=_tokens(base, was),
                tokens_run=_tokens(stats, fingerprint),
                change="changed" if was != fingerprint else _change(base, stats, fingerprint, before, after),
            )
        )
    deltas.sort(key=lambda d: (-abs((d.calls_run or 0) - (d.calls_base or 0)), d.site.label, d.site.fingerprint))
    return tuple(deltas)


def _changed(base: SiteStats, run: SiteStats, described: Mapping[str, CallSite]) -> dict[str, str]:
    """Which site that only the run has is which that only the base has, by what is alike, then by calls.

    The place in the flow is known where each side has one site only; else it counts as another one.
    """
    told = [
        [
            one
            for one in sorted(side.calls)
            if side.calls[one] and not other.calls.get(one) and one in described and described[one].api != "unknown"
        ]
        for side, other in ((base, run), (run, base))
    ]
    is_one = sum(map(bool, base.calls.values())) == sum(map(bool, run.calls.values())) == 1
    found: dict[str, str] = {}
    pairs = []
    for old in told[0]:
        for new in told[1]:
            one, other = described[old], described[new]
            alike = likeness(one, other, 0.0 if is_one else 1.0, words(one.label), words(other.label))
            if alike >= ENOUGH:
                pairs.append((-alike, abs(_per_trial(base, old, 100) - _per_trial(run, new, 100)), old, new))
    for _, _, old, new in sorted(pairs):
        if new not in found and old not in found.values():
            found[new] = old
    return found


def decompose(base: SiteStats, run: SiteStats) -> Parts:
    """The delta of mean calls per task as sums over new, gone, more and less often run sites.

    Raises:
        ValueError: one side has no trials.
    """
    if base.weight == 0 or run.weight == 0:
        raise ValueError("nothing to decompose: one side has no trials")
    parts = dict.fromkeys(("new", "gone", "more", "fewer"), Fraction(0))
    for fingerprint in set(base.calls) | set(run.calls):
        before = Fraction(base.calls.get(fingerprint, 0), base.weight)
        after = Fraction(run.calls.get(fingerprint, 0), run.weight)
        if before == after:
            continue
        kind = "new" if before == 0 else "gone" if after == 0 else "more" if after > before else "fewer"
        parts[kind] += after - before
    delta = Fraction(sum(run.calls.values()), run.weight) - Fraction(sum(base.calls.values()), base.weight)
    return Parts(delta=delta, **parts)


def _per_trial(stats: SiteStats, fingerprint: str, unit: int) -> int:
    """Calls per trial in 1/``unit``, half up."""
    return math.floor(Fraction(stats.calls.get(fingerprint, 0) * unit, stats.weight) + Fraction(1, 2))


def _tokens(stats: SiteStats, fingerprint: str) -> int | None:
    """Per trial, half up; None where the site has calls but no known tokens (no call that ran costs 0)."""
    if not stats.calls.get(fingerprint):
        return 0
    if not stats.tokens.get(fingerprint):
        return None
    return math.floor(Fraction(stats.tokens[fingerprint], stats.weight) + Fraction(1, 2))


def _change(base: SiteStats, run: SiteStats, fingerprint: str, before: int, after: int) -> str:
    """By presence, then by the rounded figures: "more" beside two equal numbers would lose its reader."""
    if not base.calls.get(fingerprint):
        return "new" if run.calls.get(fingerprint) else "same"
    if not run.calls.get(fingerprint):
        return "gone"
    return "same" if before == after else "more" if after > before else "fewer"
