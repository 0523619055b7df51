"""What has no noise is compared exactly: tasks on the anchor's own recordings, and trials that a cap has stopped.

A stopped trial is cheap for the number that it came to, and dear for the one that it would have come to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_fanout.capacity.figures import counted
from pytest_fanout.gate.completeness import Measured
from pytest_fanout.gate.draws import fresh_tasks
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import TrialTable, beside, table_of_baseline
from pytest_fanout.records import MEASURED, Baseline, Limit, Problem, Run, TaskRun

#: By so much the share of stopped trials may rise on another draw, where no evidence is asked.
STOPPED_RISE = Fraction(5, 100)
#: Statuses of trials that a cap has stopped: how that is said, and the limit on shares that allows some of them.
_STOPPED = {"capped": ("by a cap", "capped"), "timeout": ("by the cap on wall_seconds", "failed")}


def of_exact_trials(
    run: Run, measured: Measured, anchor: Baseline, limits: Sequence[Limit], *, by_evidence: bool
) -> Iterator[Problem]:
    """Growth that no chance explains, on the tasks that anchor and run share.

    Args:
        anchor: the one that the run is held to.
        by_evidence: the judge of new draws has the class, with the share of its stopped trials.
    """
    if not by_evidence and all(_STOPPED.keys().isdisjoint(row) for row in measured.table.statuses.values()):
        return  # the usual run: nothing was stopped, and raw numbers decide all else
    table, common = table_of_baseline(anchor), set(anchor.tasks) & set(measured.table.statuses)
    fresh = fresh_tasks(measured.agent, anchor, run.tasks)
    still = common - fresh
    yield from _stopped(measured, table, still, limits, Fraction(0))
    if not by_evidence:
        yield from _stopped(measured, table, common & fresh, limits, STOPPED_RISE)
        return
    base, gated = table.only(common), [replace(limit, max=None) for limit in limits if limit.evidence]
    accept = f'fanout-baseline accept --agent {measured.agent} --reason "…"'
    for result in beside(base, _with(base, measured.table, still), gated) if still else ():
        if result.over:
            metric = result.name.rsplit(".", 1)[0]
            before, after = base.column(metric), measured.table.column(metric)
            moved = sorted(task for task in still if Counter(before[task]) != Counter(after[task]))
            yield Problem(
                "same-tasks-over",
                f"{measured.agent}: {result.name} {result.base} -> {result.run} (limit {result.limit}) by the tasks "
                f"alone that ran on the anchor's own recordings, where nothing is chance: {listed(moved)}; "
                f"mend: bring it back, or have it approved: {accept}",
                "regressed",
                measured.agent,
            )
    # a percentile of the dearest holds each new task by itself
    middle = [limit for limit in gated if limit.statistic in ("mean", "p50", "p90")]
    for result in beside(base, _with(base, measured.table, set(measured.new)), middle) if measured.new else ():
        if result.over:
            yield Problem(
                "new-tasks-over",
                f"{measured.agent}: {result.name} {result.base} -> {result.run} (limit {result.limit}) by the new "
                f"tasks alone: {listed(measured.new)}; mend: make them cheaper, or accept them: {accept}",
                "regressed",
                measured.agent,
            )


def _with(base: TrialTable, run: TrialTable, tasks: set[str]) -> TrialTable:
    """The anchor's trials, and the run's in their place or beside them for some tasks."""
    return TrialTable(
        {**base.samples, **{task: run.samples[task] for task in tasks}},
        {**base.statuses, **{task: run.statuses[task] for task in tasks}},
    )


def _stopped(
    measured: Measured, base: TrialTable, tasks: set[str], limits: Sequence[Limit], allowed: Fraction
) -> Iterator[Problem]:
    before, after = base.only(tasks).statuses, measured.table.only(tasks).statuses
    for status, (how, limited) in _STOPPED.items():
        is_limited = any(limit.metric == limited for limit in limits)
        if is_limited or _share(after, status) <= _share(before, status) + allowed:
            continue
        now, then = (sum(row.count(status) for row in statuses.values()) for statuses in (after, before))
        trials, of = (sum(map(len, statuses.values())) for statuses in (after, before))
        more = sorted(task for task in tasks if after[task].count(status) > before[task].count(status))
        yield Problem(
            "stopped-by-caps",
            f"{measured.agent}: {counted(now, 'trial')} of {trials} {'was' if now == 1 else 'were'} stopped {how}, and "
            f"{then or 'none'} of {of} in the anchor: {listed(more)}; nobody knows what they would have come to; "
            "mend: find out what keeps them going",
            "regressed",
            measured.agent,
        )


def _share(statuses: Mapping[str, Sequence[str]], status: str) -> Fraction:
    """Every task counts once."""
    shares = [Fraction(row.count(status), len(row)) for row in statuses.values() if row]
    return sum(shares, Fraction(0)) / max(len(shares), 1)


def mismatch_of(agent: str, head: Baseline, measured: Measured, run: Run, accept: str) -> list[Problem]:
    """A new anchor has to be what its recordings give: in replay each of them, in other modes those that replay."""
    other: list[str] = []
    by_recording = {
        (task.task, task.recording): task for task in trials_of(run.tasks, agent) if task.status in MEASURED
    }
    for name, entry in head.tasks.items():
        if name not in measured.table.statuses:
            continue
        for index, fact in enumerate(entry.trials):
            trial = by_recording.get((name, fact.recording))
            if trial is None and run.mode != "replay":
                continue
            if trial is None or not _reproduces(trial, {key: row[index] for key, row in entry.samples.items()}):
                other.append(f"{name} (trial {index + 1})")
    if not other:
        return []
    return [
        Problem(
            "mismatch",
            f"{agent}: the recordings that the committed anchor names do not give its numbers, or are gone: "
            f"{listed(other)}; mend: {accept}",
            "mismatch",
            agent,
        )
    ]


def _reproduces(trial: TaskRun, samples: dict[str, int | None]) -> bool:
    names = set(samples) | {name for name in trial.samples if "[" in name}
    return all(
        trial.samples.get(name, 0 if "[" in name else None) == samples.get(name, 0 if "[" in name else None)
        for name in names
    )
