"""Planning before spending: what an anchor's own noise lets the judge of new draws see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pytest_fanout.judge.arranged import SHARES, Arranged, look
from pytest_fanout.judge.comparison import TrialTable
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.looks import schedule
from pytest_fanout.judge.smallest import QUARTER, Sight, standard_error
from pytest_fanout.records import JudgeRules, Limit, Power


def power_of(anchor: TrialTable, limits: Sequence[Limit], rules: JudgeRules) -> list[Power]:
    """What new draws of a class can show, by metric that is gated by evidence.

    The standard error of the mean log ratio of n tasks is noise x sqrt((1/k + 1/T) / n) for k new trials beside T of
    the anchor. A growth has to pass the p value's bound, among all tests of this class, and the limit itself.
    """
    arranged = _beside_itself(anchor, limits, rules)
    sights = _sights(arranged, rules)
    counts = [len(row) for row in anchor.statuses.values()]
    tasks, least = len(counts), min(counts, default=0)
    looks = schedule(rules.trials)
    out = []
    for metric in arranged.metrics:
        if metric in SHARES:
            continue
        sight = sights.get(metric)
        if sight is None:
            out.append(Power(metric, tasks, least, None, arranged.threshold(metric, 1.0), (), None, None))
            continue
        finds = tuple((trials, sight.finds(tasks, trials, looks[-1])) for trials in looks)
        last = standard_error(sight.noise, tasks, looks[-1], sight.trials_base)
        red = 0.5 * math.erfc(math.log(sight.allowed) / last / math.sqrt(2)) if last else 0.0
        enough = sight.tasks_for(QUARTER, looks[-1])
        out.append(Power(metric, tasks, least, sight.noise, sight.allowed, finds, red, enough))
    return out


def sights_of(anchor: TrialTable, limits: Sequence[Limit], rules: JudgeRules) -> dict[str, Sight]:
    """By metric what decides which growth is found, with the noise of the anchor; without those whose noise no task
    shows, as each has one trial only."""
    return _sights(_beside_itself(anchor, limits, rules), rules)


def _sights(arranged: Arranged, rules: JudgeRules) -> dict[str, Sight]:
    counts = list(arranged.counts.values())
    if not any(count > 1 for count in counts):
        return {}
    # anchor beside itself: effects are nothing, the noise is that of all its trials
    noises = look(arranged, arranged.trials).noises
    bodies = [test.metric for test in arranged.tests if test.statistic == "body"]
    heavies = sum(any(limit.statistic != "p50" for limit in arranged.limits[metric]) for metric in bodies)
    tests = sum(test.statistic != "heavy" for test in arranged.tests)
    return {
        metric: Sight(noise, arranged.trials_base, float(rules.alpha), tests, heavies, arranged.threshold(metric, 1.0))
        for metric in bodies
        if (noise := noises[metric]) is not None
    }


def _beside_itself(anchor: TrialTable, limits: Sequence[Limit], rules: JudgeRules) -> Arranged:
    # as a new draw of the same agent, whose trials begin for themselves: as pairs they would have no noise
    return Arranged(Draw(anchor, replace(anchor, beginnings={}), tuple(limits), rules))
