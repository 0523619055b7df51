"""Anchors: ``baselines/<class>.json``, the approved samples of each task, one line a task, bound by a digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import MEASURED, METRICS, Baseline, BaselineTask, Run, TaskRun, TrialFacts
from pytest_fanout.store.files import canonical, canonical_of_whole_numbers, digest, load_json, sha256_of
from pytest_fanout.store.schemas import fault, fits_exactly

SCHEMA = "pytest-fanout/baseline/1"
_TRIAL_KEYS = ("recording", "status", "passed", "begun_at", "requested", "served", "shared_prefix")
#: What the file shows its reviewer: metric -> statistic -> value. It is made above this room and follows from the
#: samples, so that it stands outside the digest and is compared on load.
Stats = Mapping[str, Mapping[str, "int | str | None"]]


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
            shared_prefix=trial.shared_prefix,
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


def write_baseline(baseline: Baseline, stats: Stats) -> bytes:
    """The bytes of the file: the digest on line 2, so that two concurrent updates conflict; one line a task."""
    document = _document(baseline)
    tasks = document.pop("tasks")
    lines = [f' "digest": "{sealed(baseline).digest}"']
    lines += [f' "{key}": {_one_line(document[key])}' for key in ("schema", "agent", "evalset")]
    rows = ",\n".join(f"  {_one_line(key)}: {_one_line(dict(value))}" for key, value in stats.items())
    lines.append(f' "stats": {{\n{rows}\n }}')
    entries = ",\n".join(f"  {_one_line(key)}: {_one_line(tasks[key])}" for key in sorted(tasks))
    lines.append(f' "tasks": {{\n{entries}\n }}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "surrogatepass")


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@lru_cache(maxsize=128)  # base and HEAD hold most anchors alike, and a verdict looks at them more than once
def parse_baseline(data: bytes, agent: str, where: str, stats_of: Callable[[Baseline], Stats]) -> Baseline:
    """The anchor of ``agent`` from its committed bytes.

    Args:
        stats_of: makes the reviewer's figures from the samples (``judge.stats_of``).

    Raises:
        IntegrityError: malformed, of another class, samples of unequal length, a digest or stats that do not fit.
    """
    document = load_json(data, where)
    make = canonical_of_whole_numbers  # the schema knows no others
    if not fits_exactly(document, "baseline"):
        make = canonical
        refuse_fractions(document, where)
        what = fault(document, "baseline")
        if what is not None:
            raise IntegrityError("schema", what, where=where, mend=_mend(where))
    if document["agent"] != agent:
        raise IntegrityError("misplaced", f"holds the anchor of {document['agent']!r}", where=where, mend=_mend(where))
    claimed, stats = document.pop("digest"), document.pop("stats")
    if sha256_of(make(document)) != claimed:
        raise IntegrityError(
            "digest-mismatch", "was edited: its digest does not fit its content", where=f"{where}:2", mend=_mend(where)
        )
    tasks = {name: _parse_task(name, entry, where) for name, entry in document["tasks"].items()}
    baseline = Baseline(agent, claimed, document["evalset"], tasks)
    if stats_of(baseline) != stats:
        raise IntegrityError(
            "stats-mismatch",
            "shows its reviewer other numbers than its samples give",
            where=f"{where}: stats",
            mend=_mend(where),
        )
    return baseline


def _parse_task(name: str, entry: Mapping[str, Any], where: str) -> BaselineTask:
    samples = entry["samples"]
    lengths = set(map(len, samples.values()))
    lengths.update(map(len, map(entry.__getitem__, _TRIAL_KEYS)))
    if len(lengths) != 1:
        raise IntegrityError(
            "uneven-trials", f"task {name!r} does not hold one value a trial", where=where, mend=_mend(where)
        )
    trials = tuple(
        TrialFacts(recording, status, passed == 1, begun_at, tuple(requested), tuple(served), prefix)
        for recording, status, passed, begun_at, requested, served, prefix in zip(
            *(entry[key] for key in _TRIAL_KEYS), strict=True
        )
    )
    return BaselineTask(
        entry["definition"] or "", dict(zip(samples, map(tuple, samples.values()), strict=True)), trials
    )


def refuse_fractions(document: Any, where: str) -> None:
    """Committed files hold integers, strings and null: 1.0 and true are refused, as their canonical form is another.

    Raises:
        IntegrityError: naming the value.
    """
    level: list[Any] = [document]
    while level:  # hundreds of thousands of values: the types of a whole level are looked at in one go
        if not {bool, float}.isdisjoint(map(type, level)):
            shown = json.dumps(next(value for value in level if isinstance(value, bool | float)))
            raise IntegrityError(
                "not-an-integer",
                f"holds {shown}; only integers, texts and null stand here",
                where=where,
                mend=_mend(where),
            )
        lists = [value for value in level if type(value) is list]
        level = list(chain(*lists, *(value.values() for value in level if type(value) is dict)))
