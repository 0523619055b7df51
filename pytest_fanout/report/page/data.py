"""Every number of the page as JSON in the page itself, safe inside its element whatever ids and prompts hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from pytest_fanout.records import METRICS, Baseline, Past, Run, TaskRun, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.json import document, plain

SCHEMA = "pytest-fanout/page/1"
#: What of an anchor the pictures show; all of it is in its own file.
_OF_ANCHOR = ("fanout", "input_tokens", "output_tokens")
# `<` ends the element, the two separators end a line of script, the others steer whoever prints them
_UNSAFE = {
    code: f"\\u{code:04x}"
    for code in (*map(ord, "<>&"), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def embedded(run: Run, verdict: Verdict, past: Past) -> Markup:
    """The text of the page's element ``application/json``.

    ``report``: the JSON report, its ``tasks`` empty, for they stand in ``trials`` in a shorter form: by class and side
    a list of tasks, and for each metric a list a task with one value a trial, as in an anchor's file. Null: not known.
    """
    # the trials make nearly all of a report, so they are never made into objects
    report = document(replace(run, tasks=()), verdict) | {
        "headline": summary.headline(run, verdict),
        "next": list(summary.next_steps(run, verdict)),
    }
    by_class: dict[str, list[TaskRun]] = {}
    for trial in run.tasks:
        by_class.setdefault(trial.agent, []).append(trial)
    trials = {
        agent: {"base": _anchor(past.anchors.get(agent)), "run": _run(by_class.get(agent, ()))}
        for agent in sorted({*by_class, *(result.agent for result in verdict.classes)})
    }
    whole = {"schema": SCHEMA, "report": report, "trials": trials, "trends": plain(past.trends)}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # lone surrogates, from streams that were split, have no UTF-8
    return Markup(text.translate(_UNSAFE).encode("utf-8", "backslashreplace").decode())


def _run(trials: Sequence[TaskRun]) -> dict[str, Any]:
    tasks: dict[str, list[TaskRun]] = {}
    for trial in sorted(trials, key=lambda trial: (trial.task, trial.trial)):
        tasks.setdefault(trial.task, []).append(trial)
    names = {name for trial in trials for name in trial.samples}
    rows = tasks.values()
    return {
        "task": list(tasks),
        "trial": [[trial.trial for trial in row] for row in rows],
        "status": [[trial.status for trial in row] for row in rows],
        "passed": [[trial.passed for trial in row] for row in rows],
        "samples": {name: [[trial.samples.get(name) for trial in row] for row in rows] for name in _ordered(names)},
    }


def _anchor(anchor: Baseline | None) -> dict[str, Any] | None:
    if anchor is None:
        return None
    tasks = dict(sorted(anchor.tasks.items()))
    return {
        "task": list(tasks),
        "status": [[trial.status for trial in task.trials] for task in tasks.values()],
        "samples": {name: [task.samples.get(name) for task in tasks.values()] for name in _OF_ANCHOR},
    }


def _ordered(names: set[str]) -> list[str]:
    return [*(name for name in METRICS if name in names), *sorted(names - set(METRICS))]
