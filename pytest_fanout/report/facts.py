"""The evidence behind a verdict, in the words that every report uses: rows, classes, tasks, call sites, session."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.capacity.figures import counted
from pytest_fanout.records import ClassResult, MetricResult, Run, SiteDelta, TaskDelta, TaskRun, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.evidence import UNDECIDED, evidence_texts
from pytest_fanout.report.summary import number

CALM_ROWS = 3  # rows of a class that is within budget


def state(result: ClassResult, metric: MetricResult) -> str:
    """The last column: what this row means for the verdict. Only a judged, known value is ever ``ok``."""
    if metric.over and (result.verdict == "pass" or not metric.gated):
        return "noted"
    if metric.over:
        if result.verdict == "approved" and metric.ceiling is not None:
            return "approved"
        return "waived" if result.verdict == "waived" else "OVER"
    if metric.run is None:
        return "unknown"
    if metric.evidence in UNDECIDED or _is_luck(metric):
        return "~"
    return "-" if result.outcome == "not_measured" else "ok"


def _is_luck(metric: MetricResult) -> bool:
    """Whether the figure of a new draw is above its limit, and no growth is seen behind it."""
    return bool(metric.gated and metric.evidence and metric.limit is not None and (metric.run or 0) > metric.limit)


def shown_metrics(result: ClassResult) -> list[MetricResult]:
    """Gated metrics; of a class that passes only those nearest to their limit, in their own order."""
    gated = [metric for metric in result.metrics if metric.gated or metric.over]
    if result.verdict != "pass" or len(gated) <= CALM_ROWS:
        return gated
    nearest = sorted(range(len(gated)), key=lambda index: -summary.nearness(gated[index]))[:CALM_ROWS]
    return [gated[index] for index in sorted(nearest)]


HEADERS = ("class", "metric", "base", "run", "change", "limit", "state")


def metric_rows(result: ClassResult) -> list[tuple[str, ...]]:
    """Cells of HEADERS for each row that is shown, unescaped."""
    rows: list[tuple[str, ...]] = []
    for metric in shown_metrics(result):
        name = metric.name if metric.scope == "all" else f"{metric.name} ({metric.scope})"
        base = "-" if metric.base is None else number(metric.base)
        limit = "-" if metric.limit is None else number(metric.limit)
        moved = summary.change(metric.base, metric.run)
        rows.append((result.agent, name, base, number(metric.run), moved, limit, state(result, metric)))
    return rows


def class_texts(run: Run, result: ClassResult) -> list[str]:
    """What stands behind the rows: tasks, trials, draw and quality first, then the largest trial of each metric."""
    trials = [trial for trial in run.tasks if trial.agent == result.agent]
    draw = {"same": "same draw", "new": "new draw", "mixed": "partly a new draw", "none": "no draw to compare"}.get(
        result.draw, result.draw
    )
    nth = max((trial.draw for trial in trials), default=1)
    first = [
        f"{result.verdict}: {result.tasks_ran:,} of {counted(result.tasks_expected, 'task')}",
        counted(result.trials, "trial") + f", {draw}" + (f" (draw {nth})" if nth > 1 else ""),
    ]
    if result.pass_share[1]:
        quality = f"{result.pass_share[0]:,} of {result.pass_share[1]:,} trials passed"
        if result.pass_share_base[1]:
            quality += f" (base {result.pass_share_base[0]:,} of {result.pass_share_base[1]:,})"
        first.append(quality)
    texts = ["; ".join(first)]
    largest: dict[str, str] = {}
    for metric in shown_metrics(result):
        if metric.max is not None:
            where = f" in {metric.max_task}" if metric.max_task is not None else ""
            largest.setdefault(metric.name.partition(".")[0], f"{number(metric.max)}{where}")
    if largest:
        texts.append("max " + ", ".join(f"{name} {text}" for name, text in largest.items()))
    texts += evidence_texts(result)
    hidden = sum(metric.gated for metric in result.metrics) - len(shown_metrics(result))
    if hidden > 0:
        texts.append(f"{counted(hidden, 'more limit')} kept, in the report")
    texts += _ended_otherwise(trials)
    texts += _leftovers(trials)
    requested = sorted({model for trial in trials for model in trial.models_requested})
    served = sorted({model for trial in trials for model in trial.models_served})
    if requested or served:
        asked = f"model {summary.listed(requested, 5) or 'not named'}"
        texts.append(
            asked if served == requested else f"{asked}, served by {summary.listed(served, 5) or 'none that said'}"
        )
    for word, tasks in (("new", result.new), ("removed", result.removed)):
        if tasks:
            texts.append(f"{counted(len(tasks), word + ' task')}: {summary.listed(tasks)}")
    if result.approval:
        texts.append(f"approval in force: {result.approval}")
    elif result.approval_why:
        texts.append(f"no approval covers it: {result.approval_why}")
    return texts


def _ended_otherwise(trials: Sequence[TaskRun]) -> list[str]:
    """``capped: 2 trials of a, b (by fanout)`` for each way in which trials did not end well, with what ended them: the
    caps, or the errors that were raised; stale ones have a section."""
    ended: dict[str, list[TaskRun]] = {}
    for trial in trials:
        if trial.status not in ("ok", "stale"):
            ended.setdefault(trial.status, []).append(trial)
    texts = []
    for status, mine in sorted(ended.items()):
        tasks = dict.fromkeys(sorted(trial.task for trial in mine))
        text = f"{status}: {counted(len(mine), 'trial')} of {summary.listed(tasks, 5)}"
        caps = sorted({trial.capped for trial in mine if trial.capped})
        errors = sorted({_error(trial.error) for trial in mine if trial.error and not trial.capped})
        if caps:
            text += f" (by {summary.listed(caps, 5)})"
        if errors:
            text += f": {'; '.join(errors[:2])}" + (f" and {len(errors) - 2} more" if len(errors) > 2 else "")
        texts.append(text)
    return texts


def _error(error: str) -> str:
    """The first line of what a trial raised, short enough for a line of the report."""
    return summary.shortened(error.strip().partition("\n")[0], 100)


def _leftovers(trials: Sequence[TaskRun]) -> list[str]:
    """What was recorded and not asked for again: the numbers are those of the fewer calls. Stale trials end early."""
    fewer = [trial for trial in trials if trial.leftover and trial.status != "stale"]
    if not fewer:
        return []
    left = sum(trial.leftover for trial in fewer)
    tasks = summary.listed(dict.fromkeys(sorted(trial.task for trial in fewer)), 5)
    return [
        f"fewer calls than recorded: {counted(left, 'recorded request')} not made in {counted(len(fewer), 'trial')}"
        f" of {tasks}"
    ]


def growth(result: ClassResult) -> list[TaskDelta]:
    """The tasks whose mean fanout or tokens rose, in the order given."""

    def rose(base: Sequence[int | None], run: Sequence[int | None]) -> bool:
        before, after = summary.mean(base), summary.mean(run)
        return before is not None and after is not None and after > before

    return [
        delta
        for delta in result.top
        if rose(delta.fanout_base, delta.fanout_run) or rose(delta.tokens_base, delta.tokens_run)
    ]


def site_text(delta: SiteDelta, beside: Sequence[SiteDelta] = ()) -> str:
    """``new call site in research: "You verify…" (gpt-4o), 1.25 calls a trial``.

    Args:
        beside: what else is told. Of prompts only the beginning is kept, so that two that begin alike say so.
    """
    calls = f"{_hundredths(delta.calls_base)} -> {_hundredths(delta.calls_run)}"
    if delta.change == "new":
        calls = _hundredths(delta.calls_run)
    word = {"new": "new call site", "more": "more often", "gone": "gone"}.get(delta.change, delta.change)
    label = delta.site.label or "no system prompt"
    how = f"{delta.site.model or delta.site.api}{_apart(delta, beside)}"
    return f'{word} in {delta.agent}: "{label}" ({how}), {calls} calls a trial'


def _apart(delta: SiteDelta, beside: Sequence[SiteDelta]) -> str:
    """What tells a site from another of its class with the same label."""
    own = delta.site
    alike = [
        other
        for other in beside
        if other.agent == delta.agent and other.site.label == own.label and other.site.fingerprint != own.fingerprint
    ]
    if any(other.site.tools != own.tools for other in alike):
        return f", tools {', '.join(own.tools)}" if own.tools else ", no tools"
    same = any(
        (other.site.model, other.site.api) == (own.model, own.api) and _sides(other) & _sides(delta) for other in alike
    )
    return ", one of several prompts that begin so" if same else ""


def _sides(delta: SiteDelta) -> set[str]:
    return {"base", "run"} - {{"new": "base", "gone": "run"}.get(delta.change, "")}


def _hundredths(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 100:,.2f}".removesuffix("0").removesuffix(".0")


def told_sites(verdict: Verdict) -> list[SiteDelta]:
    """Call sites that are new, run more often, changed or gone; what costs most first, without explained classes."""
    order = {"new": 0, "more": 1, "changed": 2, "gone": 3}
    explained = {item.agent for item in verdict.explanations if any(f.label == "observed" for f in item.findings)}
    told = [delta for delta in verdict.sites if delta.change in order and delta.agent not in explained]
    return sorted(
        told,
        key=lambda delta: (
            order[delta.change],
            (delta.calls_base or 0) - (delta.calls_run or 0),
            delta.site.fingerprint,
        ),
    )


def session_texts(run: Run, verdict: Verdict) -> list[str]:
    """How it was measured: mode, trials, what did not run, what was counted beside the agents' calls."""
    session, totals = run.session, run.totals
    tasks = len({(trial.agent, trial.task) for trial in run.tasks})
    texts = [
        f"{run.mode}: {counted(len(run.tasks), 'trial')} of {counted(tasks, 'task')}, {session.expected:,} expected"
    ]
    if session.shard:
        texts.append(f"shard {session.shard}: only the combined shards are judged")
    if session.partial:
        stopped = any(problem.slug == "spend-limit" for problem in run.problems)
        left_out = "a selection and the spend limit" if stopped else "a selection"
        part, what = f"partial {tasks}/{session.expected}", "tasks"
        classes = sorted(set(run.agents) - {trial.agent for trial in run.tasks})
        if tasks >= session.expected and classes:  # each task of the classes that were selected ran
            part, what = "partial", f"{'a class' if len(classes) == 1 else 'classes'} ({summary.listed(classes, 5)})"
        texts.append(f"{part}: {left_out} left {what} out; nothing can be accepted from it")
    left = [
        f"{count:,} {word}"
        for word, count in (
            ("deselected", session.deselected),
            ("skipped", session.skipped),
            ("withheld", session.withheld),
        )
        if count
    ]
    if left:
        texts.append("pytest items " + ", ".join(left))
    if session.stopped:
        texts.append(f"ended early: {session.stopped}")
    if session.pytest_exit:
        texts.append(f"pytest itself ended with exit {session.pytest_exit}")
    if not run.sealed:
        texts.append("API keys were not sealed: calls that bypass the count go unseen")
    amounts = [
        counted(totals.calls, "model call"),
        counted(totals.attempts, "attempt"),
        counted(totals.tokens, "token"),
    ]
    beside = [
        f"{count:,} {word}"
        for word, count in (
            ("aside", totals.aside), ("late", totals.late), ("unattributed", totals.unattributed),
            ("unclassified", totals.unclassified), ("other", totals.other),
        )
        if count
    ]  # fmt: skip
    texts.append("counted " + ", ".join(amounts) + (f"; {', '.join(beside)}" if beside else ""))
    if run.control:
        calls = sum(trial.samples.get("fanout") or 0 for trial in run.control)
        texts.append(f"control arm: {counted(calls, 'more model call')} in {counted(len(run.control), 'trial')}")
    return texts


def ignored_texts(run: Run) -> list[str]:
    """For each entry of `volatile` that was in force, in how many requests it ignored something that differed."""
    if run.mode == "live":  # nothing is matched
        return []
    texts = []
    for entry in run.volatile:
        found = [(trial.agent, trial.task, trial.ignored[entry]) for trial in run.tasks if entry in trial.ignored]
        tasks = len({(agent, task) for agent, task, _ in found})
        said = "nothing that differed"
        if found:
            said = (
                f"differences in {counted(sum(count for _, _, count in found), 'request')} of {counted(tasks, 'task')}"
            )
        texts.append(f"volatile {summary.toml_text(entry)}: {said}")
    return texts


def could_be_ignored(run: Run) -> list[str]:
    """The entries of `volatile` under which recordings that were not proved would have been, each once."""
    return list(dict.fromkeys(entry for trial in run.tasks for entry in trial.volatile))
