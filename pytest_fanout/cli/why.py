"""``fanout-baseline why``: why a run moved, from its report and the recordings of both commits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import click

from pytest_fanout.cli.console import clean
from pytest_fanout.cli.hooks import with_hooks
from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.records import Exchange, Explanation, Turn, Verdict
from pytest_fanout.store.git import Repository

NOTHING = "nothing to explain: the run stands on the recordings of its anchors, or there is no anchor to compare with"


def say_why(
    settings: Settings,
    repo: Repository,
    report: Path,
    *,
    base: str | None,
    agent: str | None,
    task: str | None,
    form: str,
    shapes_only: bool,
) -> None:
    """Print the explanations of a run.

    Args:
        task: only this task, below one line on its class; JSON has it as the one example.
        form: text, json or md.
        shapes_only: without prompts and other texts.

    Raises:
        UsageError: the report holds no such class or task.
            The project and its hooks cannot be loaded.
        IntegrityError: the report cannot be read.
    """
    from pytest_fanout.explain.redaction import redacted
    from pytest_fanout.gate.explaining import explanations
    from pytest_fanout.meter.samples import turns_of
    from pytest_fanout.report.json import plain
    from pytest_fanout.report.markdown import explained
    from pytest_fanout.report.why import all_lines, task_lines
    from pytest_fanout.store.reports import read_report

    run = read_report(report)
    classes = sorted({trial.agent for trial in run.tasks})
    if agent is not None and agent not in classes:
        raise UsageError(
            "why-unknown",
            f"the report holds no class {agent!r}; it holds: {', '.join(classes) or 'none'}",
            where=str(report),
            mend="fanout-baseline why, for all of them",
        )
    tasks = sorted({trial.task for trial in run.tasks if agent in (None, trial.agent)})
    if task is not None and task not in tasks:
        raise UsageError(
            "why-unknown",
            f"the report holds no task {task!r}; the first are: {', '.join(tasks[:5]) or 'none'}",
            where=str(report),
            mend="give the id of a task as the report has it",
        )

    @cache
    def reading() -> Callable[[Iterable[Exchange]], tuple[Turn, ...]]:
        """As a run reads: with the project's own codecs. pytest loads them only where something is to be explained."""
        codecs = with_hooks(settings.root, lambda hooks: tuple(hooks.codecs()))
        return lambda exchanges: turns_of(exchanges, codecs)

    holding = {trial.agent for trial in run.tasks if task in (None, trial.task)}
    commits = Verdict("invalid", (), (), repo.resolve_base(base, os.environ), run.head or repo.head())
    found: tuple[Explanation, ...] = explanations(
        commits,
        run,
        repo,
        settings,
        reading,
        agents=sorted(holding) if agent is None else (agent,),
        task=task,
    )
    if shapes_only:
        found = tuple(map(redacted, found))
    if form == "json":
        click.echo(clean(json.dumps([plain(one) for one in found], ensure_ascii=False, indent=1), keep_lines=True))
        return
    if not found:
        click.echo(NOTHING)
    for number, one in enumerate(found):
        lines = all_lines if task is None else partial(task_lines, task=task)
        told = (
            explained(one, lines, redacted=shapes_only) if form == "md" else "\n".join(lines(one, redacted=shapes_only))
        )
        click.echo(("\n" if number else "") + clean(told, keep_lines=True))
