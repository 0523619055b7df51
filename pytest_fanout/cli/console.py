"""How the commands speak: tables and lines without control characters, errors as one clear message and an exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import click

from pytest_fanout.errors import FanoutError
from pytest_fanout.gate import Plan
from pytest_fanout.records import Change, ClassResult, MetricResult, Verdict
from pytest_fanout.store.masking import Masker

OUTCOME_WORDS = {"within": "within budget", "over": "over budget", "not_measured": "not measured", "waived": "waived"}
_MOST_CHANGES = 20


class FanoutGroup(click.Group):
    """A command group whose user errors are messages on stderr, never tracebacks."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FanoutError as error:
            click.echo(f"error: {clean(str(error), keep_lines=True)}", err=True)
            ctx.exit(error.exit_code)
        finally:
            for problem in masker().take():
                click.echo(f"note: {problem.text}", err=True)


@cache
def masker() -> Masker:
    """What takes secrets out of all that a command says: by the environment that it was started in."""
    return Masker(dict(os.environ))


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Text from task ids, files and models as it may be shown: no secrets, and ``?`` for control characters."""
    return "".join(c if c.isprintable() or (keep_lines and c == "\n") else "?" for c in masker().text(text))


def number(value: int | None) -> str:
    """With thousands separators; a value that is not known is a dash, never a zero."""
    return "-" if value is None else f"{value:,}"


def table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Plain text, the first two columns left, numbers right."""
    from tabulate import tabulate

    align = ("left", "left", *("right" for _ in headers[2:]))
    return tabulate(rows, headers, tablefmt="simple", colalign=align if rows else None, disable_numparse=True)


def metric_rows(results: Sequence[ClassResult]) -> list[list[str]]:
    """One row a metric: class, metric, anchor, run, limit, ceiling, mark."""
    return [
        [
            clean(result.agent),
            _metric_name(metric),
            *map(number, (metric.base, metric.run, metric.limit)),
            _mark(metric),
        ]
        for result in results
        for metric in result.metrics
        if metric.scope == "all" or metric.gated
    ]


def _metric_name(metric: MetricResult) -> str:
    return clean(metric.name) + (" (common tasks)" if metric.scope == "common" else "")


def _mark(metric: MetricResult) -> str:
    if metric.ceiling is not None:
        return f"approved up to {number(metric.ceiling)}"
    return "OVER" if metric.over else ""


METRIC_HEADERS = ("class", "metric", "anchor", "run", "limit", "state")


def say_verdict(verdict: Verdict) -> None:
    """The outcome, what led to it, and the next command."""
    click.echo(f"{OUTCOME_WORDS[verdict.outcome]}: {verdict.verdict}")
    if verdict.base.rev:
        click.echo(f"base {verdict.base.rev[:12]} ({clean(verdict.base.source)})")
    for problem in verdict.problems:
        click.echo(f"  {problem.verdict}: {clean(problem.text)}")
    for result in verdict.classes:
        click.echo(f"  {clean(result.agent)}: {result.verdict}")
        for problem in (*result.problems, *result.notices):
            click.echo(f"    {problem.verdict}: {clean(problem.text)}")
        if result.approval:
            click.echo(f"    approval: {clean(result.approval)}")
    if verdict.next:
        click.echo("next:")
        for step in verdict.next:
            click.echo(f"  {clean(step)}")


def say_plan(plan: Plan) -> None:
    """What accepting would write, before it does."""
    results = [planned.result for planned in plan.classes if planned.result is not None]
    if results:
        click.echo(table(metric_rows(results), METRIC_HEADERS))
        click.echo()
    for planned in plan.classes:
        what = "its anchor moves; nothing gets looser, no approval is needed"
        if planned.anchor is None:
            what = "the class is given up; its anchor is removed"
        elif planned.approval is not None:
            what = "its anchor gets looser, and a reviewer has to approve that"
            if planned.approval.from_digest is None:
                what = "its first anchor, and a reviewer has to approve it"
        draw = f" (draw {planned.draw})" if planned.draw > 1 else ""
        click.echo(f"{clean(planned.agent)}{draw}: {what}")
        if planned.endings:
            click.echo(
                "  {passed} of {trials} trials passed; {capped} capped, {failed} failed".format(**planned.endings)
            )
        if planned.provisional is not None:
            click.echo(f"  {planned.provisional} [provisional]")
        if planned.few is not None:
            click.echo(f"  {clean(planned.few)} [few-trials]")
        _say_changes(planned.changes)
        if planned.approval is not None:
            for name, bound in sorted(planned.approval.ceilings.items()):
                click.echo(f"  covered up to: {clean(name)} {number(bound)}")
    for approval in plan.budget:
        click.echo(f"{approval.subject}.toml gets looser, and a reviewer has to approve that")
        _say_changes(approval.changes)
    for agent in plan.unchanged:
        click.echo(f"{clean(agent)}: its committed anchor is this run already")


def _say_changes(changes: Sequence[Change]) -> None:
    for change in changes[:_MOST_CHANGES]:
        scope = " (common tasks)" if change.scope == "common" else ""
        values = "" if change.old is None and change.new is None else f": {_value(change.old)} -> {_value(change.new)}"
        click.echo(f"  {change.what.replace('_', ' ')} {clean(change.name)}{scope}{values}")
    if len(changes) > _MOST_CHANGES:
        click.echo(f"  and {len(changes) - _MOST_CHANGES} more")


def _value(value: int | str | None) -> str:
    if value is None:
        return "none"
    return number(value) if isinstance(value, int) else clean(value)
