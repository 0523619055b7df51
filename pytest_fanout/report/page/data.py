"""Every number of the page as JSON in the page itself, safe inside its element whatever ids and prompts hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from pytest_fanout.records import METRICS, Baseline, Explanation, Past, Run, TaskRun, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.json import document, plain

SCHEMA = "pytest-fanout/page/1"
#: What of an anchor the pictures show; all of it is in its own file.
_OF_ANCHOR = ("fanout", "input_tokens", "output_tokens")
# `<` ends the element, the others end a line of script or steer whoever prints them; lone surrogates have no UTF-8
_UNSAFE = re.compile("[<>&\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Data:
    """What stands in the page's element ``application/json``, and where in it a class is found."""

    whole: dict[str, Any]
    _classes: Mapping[str, int]
    _explained: Mapping[str, int]

    def of_class(self, agent: str) -> str:
        """The pointer to what was judged of a class."""
        return f"/report/classes/{self._classes[agent]}"

    def of_explanation(self, agent: str) -> str:
        """The pointer to why it moved."""
        return f"/report/explanation/classes/{self._explained[agent]}"

    def add_distribution(self, agent: str, metric: str, sides: Mapping[str, Any]) -> str:
        """Keep what a picture marks; the pointer to it."""
        self.whole["distributions"].setdefault(agent, {})[metric] = sides
        return "/distributions/" + "/".join(name.replace("~", "~0").replace("/", "~1") for name in (agent, metric))

    def text(self) -> Markup:
        """As it is embedded."""
        text = json.dumps(self.whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return Markup(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def data_of(run: Run, verdict: Verdict, past: Past) -> Data:
    """Everything but the distributions, which are added as they are drawn.

    ``report``: the JSON report, its ``tasks`` empty, for they stand in ``trials`` in a shorter form: by class and side
    a list of tasks, and for each metric a list a task with one value a trial, as in an anchor's file, or one value
    where all trials have the same. Null: not known. Digests of tasks and lists of all tasks are left out.
    """
    # the trials make nearly all of a report, so they are never made into objects
    brief = replace(verdict, explanations=tuple(map(_without_tasks, verdict.explanations)))
    report = document(replace(run, tasks=(), definitions={}), brief) | {
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
    gated = {(each.agent, metric.name): metric.run for each in verdict.classes for metric in each.metrics}
    trends = [plain(trend) | {"run": gated.get((trend.agent, trend.metric))} for trend in past.trends]
    return Data(
        {"schema": SCHEMA, "report": report, "distributions": {}, "trials": trials, "trends": trends},
        {each["name"]: at for at, each in enumerate(report["classes"])},
        {each["agent"]: at for at, each in enumerate(report["explanation"]["classes"])},
    )


def _run(trials: Sequence[TaskRun]) -> dict[str, Any]:
    tasks: dict[str, list[TaskRun]] = {}
    for trial in sorted(trials, key=lambda trial: (trial.task, trial.trial)):
        tasks.setdefault(trial.task, []).append(trial)
    names = {name for trial in trials for name in trial.samples}
    rows = tasks.values()
    return {
        "task": list(tasks),
        "trial": _column([[trial.trial for trial in row] for row in rows]),
        "status": _column([[trial.status for trial in row] for row in rows]),
        "passed": _column([[trial.passed for trial in row] for row in rows]),
        "samples": {
            name: _column([[trial.samples.get(name) for trial in row] for row in rows]) for name in _ordered(names)
        },
    }


def _anchor(anchor: Baseline | None) -> dict[str, Any] | None:
    if anchor is None:
        return None
    tasks = dict(sorted(anchor.tasks.items()))
    return {
        "task": list(tasks),
        "status": _column([[trial.status for trial in task.trials] for task in tasks.values()]),
        "samples": {
            name: _column([list(task.samples.get(name, ())) for task in tasks.values()]) for name in _OF_ANCHOR
        },
    }


def _column(rows: list[list[Any]]) -> Any:
    """The rows, or the one value that stands in all of them."""
    first = next((value for row in rows for value in row), None)
    return first if all(value == first for row in rows for value in row) else rows


def _without_tasks(explanation: Explanation) -> Explanation:
    totals = (total if total.scope != "mean" else replace(total, tasks=()) for total in explanation.totals)
    return replace(explanation, totals=tuple(totals))


def _ordered(names: set[str]) -> list[str]:
    return [*(name for name in METRICS if name in names), *sorted(names - set(METRICS))]
