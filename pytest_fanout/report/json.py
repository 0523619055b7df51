"""The report for machines: one document that says what was judged and holds all that is needed to judge it again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from pytest_fanout.records import CallSite, ClassResult, Run, TaskRun, Verdict
from pytest_fanout.report import capacity, summary

SCHEMA = "pytest-fanout/report/1"

# Where a trial stands says its agent; its calls are not kept: their sums are, by site.
_NOT_IN_A_TRIAL = ("agent", "calls", "call_sites")


def document(run: Run, verdict: Verdict) -> dict[str, Any]:
    """Schema ``pytest-fanout/report/1``. Plain JSON values in a fixed order; unknown is null, never 0.

    ``store.reports.read_report`` makes the same Run of it, its trials in order of class, task and number, without
    their calls. ``measured`` holds what the run itself knew before it was judged.
    """
    sites = _SiteKeys()
    classes = _classes(run, verdict, sites)
    moved = [
        {**plain(delta, without=("site",)), "site": sites.key(delta.site)}
        for delta in sorted(verdict.sites, key=lambda delta: (delta.agent, delta.site.fingerprint))
    ]
    return {
        "schema": SCHEMA,
        "tool": f"pytest-fanout {_version()}",
        "outcome": verdict.outcome,
        "verdict": verdict.verdict,
        "headline": summary.headline(run, verdict),
        "run_id": run.run_id,
        "mode": run.mode,
        "begun_at": run.begun_at,
        "ci": run.ci,
        "sealed": run.sealed,
        "volatile": list(run.volatile),
        "base": plain(verdict.base),
        "head": plain(verdict.head),
        "inputs": plain(run.inputs),
        "session": plain(run.session),
        "totals": plain(run.totals),
        "problems": [plain(problem) for problem in verdict.problems if problem.verdict != "notice"],
        "notices": [plain(problem) for problem in verdict.problems if problem.verdict == "notice"],
        "measured": {
            "base": plain(run.base),
            "head": plain(run.head),
            "problems": [plain(problem) for problem in run.problems],
        },
        "agents": list(run.agents),
        "definitions": plain(run.definitions),
        "evalsets": plain(run.evalsets),
        "classes": classes,
        "call_sites": sites.document(),
        "explanation": {
            "sites": moved,
            "classes": [plain(item) for item in sorted(verdict.explanations, key=lambda item: item.agent)],
        },
        "capacity": {
            "lines": [
                *(f"{line.agent or 'all classes:'} {line.text}" for line in summary.capacity(verdict)),
                *capacity.details(verdict),
            ],
            "classes": [plain(item) for item in sorted(verdict.projections, key=lambda item: item.agent)],
            "fleet": None if verdict.fleet is None else plain(verdict.fleet),
        },
        "next": list(summary.next_steps(run, verdict)),
    }


class _SiteKeys:
    """Call sites are said once: by fingerprint, with a suffix in case two that differ share one."""

    def __init__(self) -> None:
        self._keys: dict[CallSite, str] = {}
        self._taken: set[str] = set()

    def key(self, site: CallSite) -> str:
        if site not in self._keys:
            key, number = site.fingerprint, 1
            while key in self._taken:
                number += 1
                key = f"{site.fingerprint}~{number}"
            self._taken.add(key)
            self._keys[site] = key
        return self._keys[site]

    def document(self) -> dict[str, Any]:
        return {key: plain(site) for site, key in sorted(self._keys.items(), key=lambda item: item[1])}


def _classes(run: Run, verdict: Verdict, sites: _SiteKeys) -> list[dict[str, Any]]:
    """One entry for each class that was judged or ran, by name; ``tasks`` holds its trials, by task and number.

    A class that nobody judged has verdict null.
    """
    judged = {result.agent: result for result in verdict.classes}
    trials: dict[str, list[TaskRun]] = {}
    for trial in sorted(run.tasks, key=lambda trial: (trial.agent, trial.task, trial.trial)):
        trials.setdefault(trial.agent, []).append(trial)
    return [
        {
            "name": agent,
            **_judgement(agent, judged.get(agent)),
            "tasks": [_trial(trial, sites) for trial in trials.get(agent, ())],
            "control": [plain(made, without=("agent",)) for made in run.control if made.agent == agent],
        }
        for agent in sorted({*judged, *trials, *run.agents, *(made.agent for made in run.control)})
    ]


def _judgement(agent: str, result: ClassResult | None) -> dict[str, Any]:
    if result is None:
        nothing = ClassResult(agent, "invalid", "none", (), (), 0, 0, 0)
        return {"outcome": None, **plain(nothing, without=("agent",)), "verdict": None}
    return {"outcome": result.outcome, **plain(result, without=("agent",))}


def _trial(trial: TaskRun, sites: _SiteKeys) -> dict[str, Any]:
    return {**plain(trial, without=_NOT_IN_A_TRIAL), "call_sites": [sites.key(site) for site in trial.call_sites]}


_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a record; None of what is none."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def plain(value: Any, *, without: Iterable[str] = ()) -> Any:
    """Records as objects, tuples as arrays, mappings sorted; a number that JSON cannot hold is not known.

    A fraction is an object: ``value`` to six decimals for people, ``exact`` as ``"14/3"``.
    """
    kind: Any = type(value)
    if kind in _AS_THEY_ARE:
        return value
    names = _fields(kind)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names if name not in without}
    if isinstance(value, Mapping):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return {"value": round(float(value), 6), "exact": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pytest-fanout")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
