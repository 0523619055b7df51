"""Code or environment: a new draw's growth told apart by the base commit's agent, run beside it on the same tasks.

Three sets of trials: the anchor (old code, old environment), the control arm (old code, today's environment) and the
new draw (new code, today's environment). Control beside anchor is what the environment did, new draw beside control
is what the code did; both are the judge's own comparison of draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_fanout.judge.comparison import TrialTable
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.records import Cause, JudgeRules, Limit, MetricEvidence


def causes(
    anchor: TrialTable, run: TrialTable, control: TrialTable, limits: Sequence[Limit], rules: JudgeRules
) -> tuple[Cause, ...]:
    """For each gated metric what is behind its growth, on the tasks that all three hold.

    A part is named when its p value is at most alpha / 2 (there are two parts) and it is half of what the limit allows
    or more: on the scale of logarithms, on which the parts add up. Empty where no task is held by all three.
    """
    tasks = set(anchor.statuses) & set(run.statuses) & set(control.statuses)
    if not tasks:
        return ()
    gated = tuple(limit for limit in limits if limit.increase is not None and limit.metric not in ("capped", "failed"))
    before, after, beside = (table.only(tasks) for table in (anchor, run, control))
    found = [
        {
            entry.name: entry
            for entry in judge_draws({"": Draw(old, new, gated, rules)})[""].metrics
            if entry.statistic == "body"
        }
        for old, new in ((before, beside), (beside, after))
    ]
    level = float(rules.alpha) / 2
    out = []
    for metric in dict.fromkeys(limit.metric for limit in gated):
        environment, code = found[0].get(metric), found[1].get(metric)
        if environment is None or code is None:
            continue
        label = _LABELS[_is_behind(environment, level), _is_behind(code, level)]
        out.append(Cause(metric, label, environment, code, len(tasks), control.trials))
    return tuple(out)


_LABELS = {(True, True): "both", (True, False): "environment", (False, True): "code", (False, False): "unknown"}


def is_large(part: MetricEvidence) -> bool:
    """Whether a part is at least half of what the limit allows, on the scale of logarithms."""
    if part.effect is None or part.effect <= 1 or part.threshold is None:
        return False
    return math.log(part.effect) >= math.log(part.threshold) / 2


def _is_behind(part: MetricEvidence, level: float) -> bool:
    return is_large(part) and (part.p is None or part.p <= level)  # without a p value it is exact
