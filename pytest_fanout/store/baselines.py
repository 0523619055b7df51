"""Anchors: ``baselines/<class>.json``, the approved samples of each task, one line a task, bound by a digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.judge import TrialTable, table_of_baseline, value_of
from pytest_fanout.judge.comparison import MEASURED
from pytest_fanout.judge.distribution import mean
from pytest_fanout.records import METRICS, Baseline, BaselineTask, Run, TaskRun, TrialFacts
from pytest_fanout.store.files import digest, load_json
from pytest_fanout.store.schemas import validate

SCHEMA = "pytest-fanout/baseline/1"
#: What the file shows its reviewer.
SHOWN_METRICS = ("fanout", "tokens", "tool_calls")
SHOWN_STATISTICS = ("p50", "p90", "p95", "p99", "max")


def _mend(where: str) -> str:
    return f"git checkout the committed {where}, or run `fanout-baseline accept` again"


def build_baseline(run: Run, agent: str) -> Baseline:
    """The anchor that this run of a class would become: every measured trial, capped and failed ones included."""
    by_task: dict[str, list[TaskRun]] = {}
    for trial in sorted((task for task in run.tasks if task.agent == agent), key=lambda task: task.trial):
        if trial.status in MEASURED:
            by_task.setdefault(trial.task, []).append(trial)
    tasks = {task: _task(trials) for task, trials in sorted(by_task.items())}
    return sealed(Baseline(agent, "", run.evalsets.get(agent), tasks))


def _task(trials: list[TaskRun]) -> BaselineTask:
    named = {name for trial in trials for name in trial.samples if "[" in name}
    samples = {
        name: tuple(trial.samples.get(name, 0 if "[" in name else None) for trial in trials)
        for name in (*METRICS, *sorted(named))
    }
    facts = tuple(
        TrialFacts(
            recording=trial.recording,
            status=trial.status,
            passed=trial.passed,
            begun_at=trial.begun_at,
            models_requested=trial.models_requested,
            models_served=trial.models_served,
        )
        for trial in trials
    )
    return BaselineTask(trials[0].definition or "", samples, facts)


def sealed(baseline: Baseline) -> Baseline:
    """The same anchor with the digest of its canonical form."""
    return replace(baseline, digest=digest(_document(baseline)))


def _document(baseline: Baseline) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "agent": baseline.agent,
        "evalset": baseline.evalset,
        "stats": _stats(table_of_baseline(baseline)),
        "tasks": {
            name: {
                "definition": task.definition or None,
                "samples": {metric: list(values) for metric, values in task.samples.items()},
                "recording": [trial.recording for trial in task.trials],
                "status": [trial.status for trial in task.trials],
                "passed": [int(trial.passed) for trial in task.trials],
                "begun_at": [trial.begun_at for trial in task.trials],
                "requested": [list(trial.models_requested) for trial in task.trials],
                "served": [list(trial.models_served) for trial in task.trials],
                "shared_prefix": [trial.shared_prefix for trial in task.trials],
            }
            for name, task in baseline.tasks.items()
        },
    }


def _stats(table: TrialTable) -> dict[str, dict[str, int | str | None]]:
    stats: dict[str, dict[str, int | str | None]] = {}
    for metric in SHOWN_METRICS:
        average = mean(table.column(metric))
        stats[metric] = {"mean": None if average is None else _two_decimals(average)}
        stats[metric] |= {name: value_of(table, metric, name) for name in SHOWN_STATISTICS}
    return stats


def _two_decimals(value: Fraction) -> str:
    hundredths = floor(value * 100 + Fraction(1, 2))
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def write_baseline(baseline: Baseline) -> bytes:
    """The bytes of the file: the digest on line 2, so that two concurrent updates conflict; one line a task."""
    document = _document(sealed(baseline))
    tasks = document.pop("tasks")
    lines = [f' "digest": "{sealed(baseline).digest}"']
    lines += [f' "{key}": {_one_line(document[key])}' for key in ("schema", "agent", "evalset")]
    stats = ",\n".join(f"  {_one_line(key)}: {_one_line(value)}" for key, value in document["stats"].items())
    lines.append(f' "stats": {{\n{stats}\n }}')
    entries = ",\n".join(f"  {_one_line(key)}: {_one_line(tasks[key])}" for key in sorted(tasks))
    lines.append(f' "tasks": {{\n{entries}\n }}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "surrogatepass")


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def parse_baseline(data: bytes, agent: str, where: str) -> Baseline:
    """The anchor of ``agent`` from its committed bytes.

    Raises:
        IntegrityError: malformed, of another class, samples of unequal length, a digest or stats that do not fit.
    """
    document = load_json(data, where)
    validate(document, "baseline", where, mend=_mend(where))
    refuse_fractions(document, where)
    if document["agent"] != agent:
        raise IntegrityError("misplaced", f"holds the anchor of {document['agent']!r}", where=where, mend=_mend(where))
    claimed = document.pop("digest")
    if digest(document) != claimed:
        raise IntegrityError(
            "digest-mismatch", "was edited: its digest does not fit its content", where=f"{where}:2", mend=_mend(where)
        )
    tasks = {name: _parse_task(name, entry, where) for name, entry in document["tasks"].items()}
    baseline = Baseline(agent, claimed, document["evalset"], tasks)
    if _stats(table_of_baseline(baseline)) != document["stats"]:
        raise IntegrityError(
            "stats-mismatch",
            "shows its reviewer other numbers than its samples give",
            where=f"{where}: stats",
            mend=_mend(where),
        )
    return baseline


def _parse_task(name: str, entry: Mapping[str, Any], where: str) -> BaselineTask:
    lengths = {len(values) for values in entry["samples"].values()}
    columns = ("recording", "status", "passed", "begun_at", "requested", "served", "shared_prefix")
    lengths |= {len(entry[key]) for key in columns}
    if len(lengths) != 1:
        raise IntegrityError(
            "uneven-trials", f"task {name!r} does not hold one value a trial", where=where, mend=_mend(where)
        )
    trials = tuple(
        TrialFacts(recording, status, passed == 1, begun_at, tuple(requested), tuple(served), prefix)
        for recording, status, passed, begun_at, requested, served, prefix in zip(
            *(entry[key] for key in columns), strict=True
        )
    )
    samples = {metric: tuple(values) for metric, values in entry["samples"].items()}
    return BaselineTask(entry["definition"] or "", samples, trials)


def refuse_fractions(document: Any, where: str) -> None:
    """Committed files hold integers, strings and null: 1.0 and true are refused, as their canonical form is another.

    Raises:
        IntegrityError: naming the value.
    """
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, bool | float):
            shown = json.dumps(value)
            raise IntegrityError(
                "not-an-integer",
                f"holds {shown}; only integers, texts and null stand here",
                where=where,
                mend=_mend(where),
            )
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
