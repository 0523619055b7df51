"""How the commands speak: tables and lines without control characters, errors as one clear message and an exit code."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import click

from pytest_fanout.capacity.figures import counted, number
from pytest_fanout.errors import FanoutError
from pytest_fanout.records import Change, ClassResult, MetricResult, Problem, Verdict
from pytest_fanout.report.printable import width, wrap
from pytest_fanout.store.masking import Masker

if TYPE_CHECKING:
    from pytest_fanout.gate import Plan
    from pytest_fanout.gate.plan import PlannedClass

OUTCOME_WORDS = {"within": "within budget", "over": "over budget", "not_measured": "not measured", "waived": "waived"}
_MOST_CHANGES = 20
_SHORTEST_NAME = 8
_COMMAND = re.compile(r"^[^\S\n]*(?=::)|(?<=##)(?=\[)", re.MULTILINE)
_COLOURS = {"within": "green", "waived": "yellow", "over": "red", "not_measured": "red"}


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


@contextmanager
def without_collecting() -> Iterator[None]:
    """Let the garbage collector rest: among a million values that all live until the end it only costs time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@cache
def masker() -> Masker:
    """What takes secrets out of all that a command says: by the environment that it was started in."""
    return Masker(dict(os.environ))


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Text from task ids, files and models as it may be shown: no secrets, and ``?`` for control characters.

    What a build log of GitHub Actions takes for a command (``::error::`` at the start of a line, ``##[``) is broken up.
    """
    shown = "".join(c if c.isprintable() or (keep_lines and c == "\n") else "?" for c in masker().text(text))
    return _COMMAND.sub(r"\g<0>?", shown)


#: Valid in JSON, hostile to whoever prints it: C1 controls, bidi and format characters, lone surrogates.
_STEERS = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")


def json_text(document: object) -> str:
    """A document for machines that a person may print: the same values, and nothing that steers a terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _STEERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Who reads: at a terminal lines are wrapped and painted, in a file or pipe they stay whole and plain."""

    columns: int | None
    colour: bool


def terminal() -> Terminal:
    """What stdout is. NO_COLOR (of any value) and TERM=dumb take the colours away."""
    if not sys.stdout.isatty():
        return Terminal(None, False)
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Terminal(shutil.get_terminal_size((80, 24)).columns, colour)


def painted(text: str, colour: str) -> str:
    """Bold and in a colour, where colours are wanted."""
    return click.style(text, fg=colour, bold=True) if terminal().colour else text


def say(text: str, indent: int = 0) -> None:
    """One paragraph, its further lines two columns deeper. Commands are not said with this: they have to be copied."""
    columns = terminal().columns
    if columns is None:
        click.echo(" " * indent + text)
        return
    first, *more = list(wrap(text, max(columns - indent - 2, 20))) or [""]
    click.echo(" " * indent + first)
    for line in more:
        click.echo(" " * (indent + 2) + line)


def table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Plain text, the first two columns left, numbers right."""
    from tabulate import tabulate

    align = ("left", "left", *("right" for _ in headers[2:]))

    def drawn(rows: Sequence[Sequence[str]]) -> str:
        return tabulate(rows, headers, tablefmt="simple", colalign=align if rows else None, disable_numparse=True)

    text, columns = drawn(rows), terminal().columns
    if columns is not None:
        # names are cut in their middle, numbers never
        for longest in range(60, _SHORTEST_NAME - 1, -1):
            if max(map(width, text.splitlines()), default=0) <= columns:
                break
            text = drawn([[_cut(cell, longest) for cell in row[:2]] + [*row[2:]] for row in rows])
    return "\n".join(painted(line, "red") if line.endswith(" OVER") else line for line in text.splitlines())


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    return f"{name[: (longest - 1) // 2]}…{name[len(name) - longest // 2 :]}"


def metric_rows(results: Sequence[ClassResult]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Headers, and a row for each metric: class, metric, anchor, run, its interval where there is one, limit, state."""
    shown = [
        (result, metric) for result in results for metric in result.metrics if metric.scope == "all" or metric.gated
    ]
    has_interval = any(metric.interval is not None for _, metric in shown)
    rows = []
    for result, metric in shown:
        interval = [_interval(metric)] if has_interval else []
        values = [number(metric.base), number(metric.run), *interval, number(metric.limit)]
        rows.append([clean(result.agent), _metric_name(metric), *values, _mark(metric)])
    return ("class", "metric", "anchor", "run", *["90 % of the run"] * has_interval, "limit", "state"), rows


def metric_table(results: Sequence[ClassResult]) -> str:
    """The same as plain text."""
    headers, rows = metric_rows(results)
    return table(rows, headers)


def _interval(metric: MetricResult) -> str:
    if metric.interval is None:
        return "-"
    return " to ".join(map(number, metric.interval))


def _metric_name(metric: MetricResult) -> str:
    return clean(metric.name) + (" (common tasks)" if metric.scope == "common" else "")


def _mark(metric: MetricResult) -> str:
    if metric.ceiling is not None:
        return f"approved up to {number(metric.ceiling)}"
    if metric.over:
        return "OVER"
    if not metric.gated or metric.limit is None or metric.run is None:
        return ""
    # of a new draw what the evidence says: a best guess above the limit is not within it
    return "within" if metric.evidence in (None, "low", "shown") else metric.evidence


def say_verdict(verdict: Verdict) -> None:
    """The outcome, what led to it, and the next command."""
    click.echo(painted(f"{OUTCOME_WORDS[verdict.outcome]}: {verdict.verdict}", _COLOURS[verdict.outcome]))
    if verdict.base.rev:
        say(f"base {verdict.base.rev[:12]} ({clean(verdict.base.source)})")
    for problem in verdict.problems:
        say(f"{problem.verdict}: {clean(problem.text)}", 2)
    for result in verdict.classes:
        say(f"{clean(result.agent)}: {result.verdict}", 2)
        for problem in (*result.problems, *result.notices):
            say(f"{problem.verdict}: {clean(problem.text)}", 4)
        if result.approval:
            say(f"approval: {clean(result.approval)}", 4)
    if verdict.next:
        click.echo("next:")
        for step in verdict.next:
            click.echo(f"  {clean(step)}")


def what_of(planned: PlannedClass) -> str:
    """What accepting means for the anchor of a class, in one sentence."""
    if planned.anchor is None:
        return "the class is given up; its anchor is removed"
    if planned.approval is None:
        return "its anchor moves; nothing gets looser, no approval is needed"
    if planned.approval.from_digest is None:
        return "its first anchor, and a reviewer has to approve it"
    if planned.result is not None and planned.result.baseline_base is None:
        return "its anchor in place of one that cannot be read, and a reviewer has to approve it"
    return "its anchor gets looser, and a reviewer has to approve that"


_CREEPING = Problem(
    "within-already",
    "it is within its budget, and passes without this: accepting raises the anchor, so that the next growth is "
    "measured from there (many small steps add up: fanout-baseline log)",
    "notice",
)
CREEPING = f"{_CREEPING.text} [{_CREEPING.slug}]"


def is_creeping(planned: PlannedClass) -> bool:
    """Whether a class that passes as it is would get a looser anchor."""
    result, approval = planned.result, planned.approval
    return result is not None and result.verdict == "pass" and approval is not None and approval.from_digest is not None


def say_plan(plan: Plan) -> None:
    """What accepting would write, before it does."""
    results = [planned.result for planned in plan.classes if planned.result is not None]
    if results:
        click.echo(metric_table(results))
        click.echo()
    for planned in plan.classes:
        draw = f" (draw {planned.draw})" if planned.draw > 1 else ""
        say(f"{clean(planned.agent)}{draw}: {what_of(planned)}")
        if is_creeping(planned):
            say(CREEPING, 2)
        if planned.endings:
            click.echo(
                "  {passed} of {trials} passed; {capped} capped, {failed} failed".format(
                    **{**planned.endings, "trials": counted(planned.endings["trials"], "trial")}
                )
            )
        if planned.provisional is not None:
            say(f"{planned.provisional} [provisional]", 2)
        if planned.few is not None:
            say(f"{clean(planned.few)} [few-trials]", 2)
        _say_changes(planned.changes)
        if planned.approval is not None:
            for name, bound in sorted(planned.approval.ceilings.items()):
                click.echo(f"  covered up to: {clean(name)} {number(bound)}")
    for approval in plan.budget:
        click.echo(f"{approval.subject}.toml gets looser, and a reviewer has to approve that")
        _say_changes(approval.changes)
    for agent in plan.unchanged:
        click.echo(f"{clean(agent)}: its committed anchor is this run already")


def change_lines(changes: Sequence[Change]) -> list[str]:
    """The changes that an approval shows its reviewer, a line each, at most twenty."""
    lines = []
    for change in changes[:_MOST_CHANGES]:
        scope = " (common tasks)" if change.scope == "common" else ""
        values = "" if change.old is None and change.new is None else f": {_value(change.old)} -> {_value(change.new)}"
        lines.append(f"{change.what.replace('_', ' ')} {clean(change.name)}{scope}{values}")
    if len(changes) > _MOST_CHANGES:
        lines.append(f"and {len(changes) - _MOST_CHANGES} more")
    return lines


def _say_changes(changes: Sequence[Change]) -> None:
    for line in change_lines(changes):
        say(line, 2)


def _value(value: int | str | None) -> str:
    if value is None:
        return "none"
    return number(value) if isinstance(value, int) else clean(value)
