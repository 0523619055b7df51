"""One agent class as the page shows it: limits, distributions, why it moved, its call trees, its approved past."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from pytest_fanout.capacity.figures import counted
from pytest_fanout.explain.causes import words_of
from pytest_fanout.records import (
    ClassResult,
    ClassTotal,
    Example,
    Explanation,
    MetricResult,
    Part,
    Past,
    Run,
    TaskDelta,
    TaskRun,
    TreeLine,
    Verdict,
)
from pytest_fanout.report import facts, summary, why
from pytest_fanout.report.page import plots
from pytest_fanout.report.page.curves import STATISTICS, Curve, curve, of_anchor, of_run
from pytest_fanout.report.page.data import Data
from pytest_fanout.report.page.parts import CallCell, ClassPart, Picture, Table, Told, Tree
from pytest_fanout.report.summary import number

DRAWN = {"fanout": "model calls of a task", "tokens": "tokens of a task"}
TONES = {"within": "good", "over": "bad", "not_measured": "bad", "waived": "warn"}
_MOST_BARS = 8
_WATERFALLS = ("fanout", "tokens", "uncached_tokens")
_MOST_CALLS = 40  # of a tree
_MOST_TASKS = 12
_MOST_DETAIL = 24
_LABEL = 48  # characters that a row of a waterfall has room for, beside its figure
_WHERE = 56  # and for a call site
_STATES = {"OVER": "over limit", "unknown": "unknown", "noted": "over, not gated"}
_OPEN = {
    "unconfirmed": "grew, unconfirmed",
    "high": "above, may be chance",
    "open": "open",
    "low": "below, open",
    "shown": "above, not shown to have grown",
}


def class_part(
    key: str, run: Run, verdict: Verdict, result: ClassResult, past: Past, data: Data, *, is_open: bool
) -> ClassPart:
    """All that is known of a class. ``key``: prefix of the ids of its elements."""
    trials = [trial for trial in run.tasks if trial.agent == result.agent]
    explanation = next((item for item in verdict.explanations if item.agent == result.agent), None)
    judged, explained = data.of_class(result.agent), data.of_explanation(result.agent) if explanation else ""
    return ClassPart(
        key=key,
        name=result.agent,
        tone=TONES[result.outcome] if result.verdict != "shard" else "warn",
        outcome=summary.OUTCOME_WORDS[result.outcome],
        verdict=result.verdict,
        is_open=is_open,
        reason=without_mend(summary.class_reason(run, verdict, result)),
        texts=tuple(facts.class_texts(run, result)),
        metrics=_metrics(result, judged),
        curves=_curves(key, result, trials, past, data),
        why=why.headline(explanation).partition(": ")[2] if explanation else "",
        found=_found(explanation) if explanation else (),
        notes=explanation.notes if explanation else (),
        waterfalls=_waterfalls(key, explanation, explained) if explanation else (),
        sites=_sites(explanation, explained) if explanation else None,
        trees=tuple(_tree(one, f"{explained}/examples/{at}") for at, one in enumerate(explanation.examples))
        if explanation
        else (),
        tasks=_tasks(result, judged),
        trends=_trends(key, result, past),
    )


def without_mend(reason: str) -> str:
    """A reason without its commands: they stand where they can be copied."""
    return re.sub(r"; mend: [^;]*", "", reason)


def _metrics(result: ClassResult, judged: str) -> Table:
    rows, marked = [], set()
    for at, metric in enumerate(result.metrics):
        name = metric.name if metric.scope == "all" else f"{metric.name} ({metric.scope})"
        base, limit, most = ("-" if each is None else number(each) for each in (metric.base, metric.limit, metric.max))
        change = summary.change(metric.base, metric.run)
        rows.append((name, base, number(metric.run), change, limit, most, str(metric.n), _state(result, metric)))
        if facts.state(result, metric) == "OVER":
            marked.add(at)
    headers = ("metric", "base", "run", "change", "limit", "largest trial", "tasks", "state")
    return Table(f"Limits of {result.agent}", headers, tuple(rows), f"{judged}/metrics", marked=frozenset(marked))


def _state(result: ClassResult, metric: MetricResult) -> str:
    if not metric.gated and not metric.over:
        return "not gated"
    state = facts.state(result, metric)
    return _OPEN.get(metric.evidence or "", "open") if state == "~" else _STATES.get(state, state)


# --- distributions -------------------------------------------------------------------------------------------------


def _curves(key: str, result: ClassResult, trials: Sequence[TaskRun], past: Past, data: Data) -> tuple[Picture, ...]:
    anchor = past.anchors.get(result.agent)
    limits = {metric.name: metric.limit for metric in result.metrics if metric.scope == "all"}
    found = []
    for metric, what in DRAWN.items():
        base = curve(of_anchor(anchor.tasks, metric)) if anchor else None
        run = curve(of_run(trials, metric))
        if base is None and run is None:
            continue
        limit = limits.get(f"{metric}.p95")
        text = f"Share of tasks with at most so many {what}. {_side('base', base)}; {_side('run', run)}"
        text += f"; limit of p95 {number(limit)}." if limit is not None else "; p95 has no limit."
        title = f"{result.agent}: {what}"
        told = {"base": _statistics(base), "run": _statistics(run), "limit": limit}
        place = data.add_distribution(result.agent, metric, told)
        svg = plots.ecdf(f"{key}-{metric}", title, text, base, run, limit)
        found.append(
            Picture(
                "tokens of a task" if metric == "tokens" else f"{metric}: {what}",
                svg,
                text,
                _numbers(title, base, run, limit, place),
            )
        )
    return tuple(found)


def _side(name: str, side: Curve | None) -> str:
    if side is None:
        return f"{name} not known"
    told = ", ".join(f"{mark} {number(side.statistics[mark])}" for mark in STATISTICS)
    return f"{name} {told}" + (f", {counted(side.unknown, 'trial')} not known" if side.unknown else "")


def _numbers(title: str, base: Curve | None, run: Curve | None, limit: int | None, place: str) -> Table:
    def told(side: Curve | None, name: str) -> str:
        return "-" if side is None else number(side.statistics[name])

    rows: list[tuple[str, ...]] = [
        (name, told(base, name), told(run, name), number(limit) if name == "p95" and limit is not None else "-")
        for name in STATISTICS
    ]
    rows += [
        (word, *("-" if side is None else number(getattr(side, word)) for side in (base, run)), "-")
        for word in ("tasks", "trials")
    ]
    if any(side is not None and side.unknown for side in (base, run)):
        unknown = ("-" if side is None else number(side.unknown) for side in (base, run))
        rows.append(("trials not known", *unknown, "-"))
    where = f"The largest trial of the run is one of {run.max_task}." if run and run.max_task else ""
    return Table(title, ("", "base", "run", "limit"), tuple(rows), place, more=where)


def _statistics(side: Curve | None) -> dict[str, int | str | None] | None:
    if side is None:
        return None
    counts = {"tasks": side.tasks, "trials": side.trials, "unknown": side.unknown}
    return {**side.statistics, "max_task": side.max_task, **counts}


# --- why it moved --------------------------------------------------------------------------------------------------


def _found(explanation: Explanation) -> tuple[Told, ...]:
    return tuple(
        Told(
            finding.label,
            why.finding_text(explanation, finding),
            tuple(why.share_lines(explanation, finding)),
            finding.detail[:_MOST_DETAIL]
            + (
                (f"… {counted(len(finding.detail) - _MOST_DETAIL, 'more line')} in the data",)
                if len(finding.detail) > _MOST_DETAIL
                else ()
            ),
            finding.places,
        )
        for finding in explanation.findings
    )


def _waterfalls(key: str, explanation: Explanation, explained: str) -> tuple[Picture, ...]:
    told = why.worth_telling(explanation.totals)
    return tuple(
        _waterfall(key, explanation, total, explained)
        for total in explanation.totals
        if total.scope == "mean" and total.metric in _WATERFALLS and total.delta and (total.metric, "mean") in told
    )


def _waterfall(key: str, explanation: Explanation, total: ClassTotal, explained: str) -> Picture:
    name = why.NAMES[total.metric]
    parts = [part for part in explanation.parts if (part.metric, part.scope) == (total.metric, total.scope)]
    told = [(_what(part), _where(explanation, part), part.value) for part in parts]
    rest = sum((value for *_, value in told[_MOST_BARS:]), Fraction(0))
    shown = told[:_MOST_BARS] + ([(counted(len(told) - _MOST_BARS, "smaller part"), "", rest)] if rest else [])
    bars = [plots.Bar("base", "", 0.0, float(total.base), "total", _short(total.base))]
    reached = total.base
    for what, where, value in shown:
        kind, sign = ("more", "+") if value > 0 else ("less", "")
        label, site = summary.shortened(what, _LABEL), summary.shortened(where, _WHERE)
        bars.append(plots.Bar(label, site, float(reached), float(reached + value), kind, sign + _short(value)))
        reached += value
    bars.append(plots.Bar("run", "", 0.0, float(total.run), "total", _short(total.run)))
    title = f"What the change in {name} a task is made of"
    words = [(why.signed(value), f"{what}: {where}" if where else what) for what, where, value in told]
    listed = [f"{value} {text}" for value, text in words[:_MOST_BARS]]
    listed += [f"{why.signed(rest)} {counted(len(told) - _MOST_BARS, 'smaller part')}"] if rest else []
    text = f"From {why.figure(total.base)} to {why.figure(total.run)} {name} a task, mean over tasks: "
    text += "; ".join(listed) + "."
    rows = [("base", why.figure(total.base), "")]
    rows += [
        (text, value, why.percent(part.value / total.delta)) for (value, text), part in zip(words, parts, strict=True)
    ]
    rows.append(("run", why.figure(total.run), why.signed(total.delta)))
    table = Table(f"Parts of {name} a task", ("part", f"{name} a task", "of the change"), tuple(rows), explained)
    return Picture(title, plots.waterfall(f"{key}-w-{total.metric}", title, text, bars), text, table)


def _what(part: Part) -> str:
    """What grew."""
    return words_of(part.kind, part.value) + (f" after {', '.join(part.after)}" if part.after else "")


def _where(explanation: Explanation, part: Part) -> str:
    """At which call site; empty for what is of none."""
    return next((f'"{site.label}"' for site in explanation.sites if site.key == part.site), "")


def _short(value: Fraction) -> str:
    """A figure of a picture: from a hundred on without decimals, which its table has."""
    return f"{float(value):,.0f}" if abs(value) >= 100 else why.figure(value)


def _sites(explanation: Explanation, explained: str) -> Table:
    rows = tuple(
        (
            site.label,
            site.state,
            ", ".join(site.models_run or site.models_base),
            why.figure(site.calls_base),
            why.figure(site.calls_run),
            why.figure(site.tokens_base),
            why.figure(site.tokens_run),
        )
        for site in explanation.sites
    )
    headers = ("call site", "state", "model", "calls base", "calls run", "tokens base", "tokens run")
    return Table("Call sites, calls and tokens a task", headers, rows, f"{explained}/sites", words=3)


def _tree(example: Example, place: str) -> Tree:
    text = "The same requests on both sides."
    if example.parts_at is not None:
        text = f"They part at call {example.parts_at}: {'; '.join(example.differs) or 'another request'}"
    longest = max(len(example.base), len(example.run))
    rows = [
        tuple(_cell(side[at]) if at < len(side) else None for side in (example.base, example.run))
        for at in range(min(longest, _MOST_CALLS))
    ]
    return Tree(
        example.task,
        f"Trial {example.trial_base} of the base and {example.trial_run} of the run",
        text,
        example.parts_at or 0,
        tuple((row[0], row[1]) for row in rows),
        f"{counted(longest - _MOST_CALLS, 'more call')} in the data." if longest > _MOST_CALLS else "",
        place,
    )


def _cell(line: TreeLine) -> CallCell:
    kind = {
        "begun": "",
        "turn": "goes on",
        "repeated": "repeated",
        "again": "asked before",
        "reasked": "rejected answer",
    }
    note = [kind[line.kind], f"after {', '.join(line.tools)}" if line.tools else ""]
    tokens = "tokens unknown" if line.tokens is None else counted(line.tokens, "token")
    return CallCell(min(line.depth, 5), line.label, ", ".join(filter(None, note)), tokens)


# --- tasks and the past --------------------------------------------------------------------------------------------


def _tasks(result: ClassResult, judged: str) -> Table | None:
    moved = [delta for delta in result.top if _has_moved(delta)]
    if not moved:
        return None
    rows = tuple(
        (
            delta.task,
            summary.mean_text(delta.fanout_base),
            summary.mean_text(delta.fanout_run),
            summary.mean_text(delta.tokens_base),
            summary.mean_text(delta.tokens_run),
        )
        for delta in moved[:_MOST_TASKS]
    )
    more = f"{counted(len(moved) - _MOST_TASKS, 'more task')} in the data." if len(moved) > _MOST_TASKS else ""
    headers = ("task", "fanout base", "fanout run", "tokens base", "tokens run")
    return Table("Tasks that moved most, means over their trials", headers, rows, f"{judged}/top", more=more)


def _has_moved(delta: TaskDelta) -> bool:
    sides = ((delta.fanout_base, delta.fanout_run), (delta.tokens_base, delta.tokens_run))
    return any(summary.mean(base) != summary.mean(run) for base, run in sides)


def _trends(key: str, result: ClassResult, past: Past) -> tuple[Picture, ...]:
    gated = {metric.name: metric for metric in result.metrics if metric.gated and metric.scope == "all"}
    found = []
    for at, trend in enumerate(past.trends):
        metric = gated.get(trend.metric)
        if trend.agent != result.agent or metric is None or not trend.steps:
            continue
        values = [step.value for step in trend.steps]
        now = number(metric.run)
        text = f"{trend.metric} as approved: {', '.join(map(number, values))}; this run {now}."
        title = f"{result.agent}: {trend.metric} over its approvals"
        rows = [(step.day, step.reason, number(step.value)) for step in trend.steps]
        rows.append(("this run", "", now))
        table = Table(title, ("day", "reason", trend.metric), tuple(rows), f"/trends/{at}", words=2)
        days = [step.day for step in trend.steps]
        found.append(
            Picture(
                f"{trend.metric} over its approvals",
                plots.trend(f"{key}-a{at}", title, text, values, days, metric.run),
                text,
                table,
            )
        )
    return tuple(found)
