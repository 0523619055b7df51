"""The same draw: its numbers have no noise, so that they are compared exactly."""

from __future__ import annotations

from pytest_fanout.judge.comparison import beside, value_of
from pytest_fanout.judge.distribution import PERCENTILES, largest
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.limits import limit_value
from pytest_fanout.judge.small_samples import percentile_interval
from pytest_fanout.records import Comparison, MetricEvidence, Reason


def judge_replayed(draw: Draw) -> Comparison:
    """Every limit by raw numbers on the tasks that both sides have; the tasks that changed are named."""
    shared = sorted(set(draw.anchor.statuses) & set(draw.run.statuses))
    anchor, run = draw.anchor.only(shared), draw.run.only(shared)
    metrics, reasons = [], []
    for result in beside(anchor, run, draw.limits):
        if not result.gated:
            continue
        metric, statistic = result.name.rsplit(".", 1)
        limit = next(limit for limit in draw.limits if limit.name == result.name)
        before, after = anchor.column(metric), run.column(metric)
        top, top_task = largest(after)
        bound = limit_value(limit, result.base)
        metrics.append(
            MetricEvidence(
                name=metric,
                statistic=statistic,
                verdict="regressed" if result.over else "shown",
                effect=result.run / result.base if result.run is not None and result.base else None,
                interval=(None, None),
                threshold=bound / result.base if bound is not None and result.base else None,
                p=None,
                level=None,
                n=len(shared),
                trials_base=min(len(row) for row in anchor.statuses.values()),
                trials_run=min(len(row) for row in run.statuses.values()),
                p95_base=value_of(anchor, metric, "p95", unknown="low"),
                p95_run=value_of(run, metric, "p95", unknown="high"),
                p95_base_interval=percentile_interval(before, PERCENTILES["p95"]),
                p95_run_interval=percentile_interval(after, PERCENTILES["p95"]),
                max=top,
                max_task=top_task,
            )
        )
        if result.over:
            text = f"{result.name} {_told(result.base)} -> {_told(result.run)} (limit {_told(result.limit)})"
            reasons.append(Reason("over-limit", text, "regressed"))
        changed = [task for task in shared if sorted(map(_key, before[task])) != sorted(map(_key, after[task]))]
        if changed:
            more = f" and {len(changed) - 10} more" if len(changed) > 10 else ""
            text = f"{metric} changed in {len(changed)} of {len(shared)} tasks: {', '.join(changed[:10])}{more}"
            reasons.append(Reason("tasks-changed", text, "notice"))
    return Comparison(
        verdict="regressed" if any(entry.verdict == "regressed" for entry in metrics) else "pass",
        metrics=tuple(metrics),
        reasons=tuple(dict.fromkeys(reasons)),
        n=len(shared),
        new=tuple(sorted(set(draw.run.statuses) - set(draw.anchor.statuses))),
        missing=tuple(sorted(set(draw.anchor.statuses) - set(draw.run.statuses))),
    )


def _key(value: int | None) -> int:
    return -1 if value is None else value


def _told(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
