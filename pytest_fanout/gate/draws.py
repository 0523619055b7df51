"""New draws in the gate: what the judge of evidence is given of a run, and what its answer means for a class.

The session asks the same judge, by the same ``draws_of``, what to run next.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_fanout.gate.commands import LIVE, RECORD, WHOLE
from pytest_fanout.gate.completeness import Measured
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import Draw, TrialTable, limit_value, table_of_baseline, table_of_runs, value_of
from pytest_fanout.judge.arranged import FEWEST_TASKS
from pytest_fanout.judge.distribution import PERCENTILES
from pytest_fanout.judge.small_samples import percentile_interval
from pytest_fanout.records import (
    MEASURED,
    Baseline,
    Budget,
    Comparison,
    JudgeRules,
    Limit,
    MetricResult,
    Problem,
    TaskRun,
)

#: The worst of a metric's tests speaks for it.
_WORST = ("regressed", "unconfirmed", "high", "open", "low", "shown")
#: ``inconclusive = "warn"`` makes a notice of it; what a further trial can still tell is not waved through, and fewer
#: than ten tasks never pass.
_WARNED = "growth-not-shown"


def draws_of(anchors: Mapping[str, Baseline], trials: Sequence[TaskRun], budget: Budget) -> dict[str, Draw]:
    """Every class of ``anchors`` of which some task is on a new draw, ready for ``judge_draws``."""
    found = {agent: draw_of(agent, anchor, trials, budget) for agent, anchor in anchors.items()}
    return {agent: draw for agent, draw in found.items() if draw is not None}


def draw_of(agent: str, anchor: Baseline, trials: Sequence[TaskRun], budget: Budget) -> Draw | None:
    """The trials of ``agent`` among ``trials`` beside its anchor; None where all of them ran on the anchor's own.

    A task is on the same draw when every trial of it ran on a recording that the anchor names.
    """
    fresh = fresh_tasks(agent, anchor, trials)
    if not fresh:
        return None
    table = table_of_runs(trials_of(trials, agent))
    same = frozenset(set(table.statuses) & set(anchor.tasks) - fresh)
    return Draw(table_of_baseline(anchor), table, budget.limits_for(agent), budget.judge_for(agent), same)


def fresh_tasks(agent: str, anchor: Baseline, trials: Sequence[TaskRun]) -> set[str]:
    """The anchor's tasks of which a measured trial ran on another recording than the anchor names, or on none."""
    mine = (trial for trial in trials_of(trials, agent) if trial.status in MEASURED)
    return {trial.task for trial in mine if trial.task in anchor.tasks and not _is_same(trial, anchor)}


def _is_same(trial: TaskRun, anchor: Baseline) -> bool:
    named = {fact.recording for fact in anchor.tasks[trial.task].trials}
    return not trial.new_draw and trial.recording is not None and trial.recording in named


def with_evidence(
    metrics: Sequence[MetricResult], comparison: Comparison, limits: Sequence[Limit], run: TrialTable
) -> tuple[MetricResult, ...]:
    """Raw numbers with the evidence beside them: over is what the evidence, a maximum or ``evidence = "off"`` says."""
    words: dict[str, list[str]] = {}
    for entry in comparison.metrics:
        words.setdefault(entry.name, []).append(entry.verdict)
    by_name = {limit.name: limit for limit in limits}
    out = []
    for metric in metrics:
        name, statistic = metric.name.rsplit(".", 1)
        interval = percentile_interval(run.column(name), PERCENTILES[statistic]) if statistic in PERCENTILES else None
        limit = by_name.get(metric.name)
        if limit is None or not limit.evidence or limit.increase is None or name not in words:
            out.append(replace(metric, interval=interval))
            continue
        word = min(words[name], key=_WORST.index)
        above = limit.max is not None and metric.run is not None and metric.run > limit.max
        out.append(replace(metric, interval=interval, evidence=word, over=above or word == "regressed"))
    return tuple(out)


def of_evidence(
    agent: str, comparison: Comparison, rules: JudgeRules, *, mode: str, partial: bool
) -> Iterator[Problem]:
    """The reasons of the judge as problems and notices of the class, with the mend that goes on from such a run."""
    for reason in comparison.reasons:
        warned = rules.inconclusive == "warn" and reason.slug == _WARNED
        text = reason.text
        if partial and reason.slug == "few-tasks-new-draw":
            text = f"{text.partition('; mend: ')[0]}; mend: run the whole class: {WHOLE}"
        elif mode == "live" and text.endswith(RECORD):
            text = f"{text.removesuffix(RECORD)}{LIVE}, with as many trials as the evidence asks for"
        yield Problem(reason.slug, f"{agent}: {text}", "notice" if warned else reason.verdict, agent)


def grown_by_evidence(comparison: Comparison | None, rules: JudgeRules) -> frozenset[str]:
    """Metrics of which evidence found growth above a limit, or has such growth as its best guess and cannot tell.

    An anchor of such a draw is a looser one, whatever its gated numbers are.
    """
    if comparison is None:
        return frozenset()
    doubted = ("open",) if rules.inconclusive == "warn" and comparison.n >= FEWEST_TASKS else ("open", "high")
    grown = {stray.metric for stray in comparison.runaways if stray.repeated}
    for entry in comparison.metrics:
        is_above = entry.effect is not None and entry.threshold is not None and entry.effect > entry.threshold
        if entry.verdict in ("regressed", "unconfirmed") or (entry.verdict in doubted and is_above):
            grown.add(entry.name)
    return frozenset(grown)


def new_tasks_over(agent: str, anchor: Baseline, measured: Measured, limits: Sequence[Limit]) -> Iterator[Problem]:
    """Tasks that no anchor knows have nothing to be compared with: each is held to the limit of the class as it is."""
    table = table_of_baseline(anchor)
    for limit in limits:
        if limit.statistic not in ("p95", "p99", "p99.9", "max") or limit.increase is None:
            continue
        bound = limit_value(limit, value_of(table, limit.metric, limit.statistic))
        column = measured.table.column(limit.metric)
        for task in measured.new:
            known = [value for value in column.get(task, ()) if value is not None]
            if bound is not None and known and statistics.median_low(known) > bound:
                yield Problem(
                    "new-task-over",
                    f"{agent}: the new task {task} takes {statistics.median_low(known):,} {limit.metric}, above the "
                    f"{bound:,} that {limit.name} allows the class; "
                    f'mend: make it cheaper, or accept it: fanout-baseline accept --agent {agent} --reason "…"',
                    "regressed",
                    agent,
                )
