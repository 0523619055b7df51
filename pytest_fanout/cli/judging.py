"""``fanout-baseline combine`` and ``comment``: a run judged and its report written, a report shown."""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pytest_fanout.capacity.figures import counted
from pytest_fanout.capacity.profiles import find_profile
from pytest_fanout.cli.console import clean, masker, say_verdict
from pytest_fanout.cli.hooks import with_hooks
from pytest_fanout.config import Settings, is_ci
from pytest_fanout.errors import EXIT_OVER, EXIT_WITHIN, FanoutError, IntegrityError
from pytest_fanout.gate import combine, evaluate, exit_code, verify
from pytest_fanout.gate.costs import with_costs
from pytest_fanout.gate.fleet import fleet_of
from pytest_fanout.records import Run, Verdict
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.git import Repository


def judged(run: Run, repo: Repository, settings: Settings) -> Verdict:
    """The verdict on a run with its capacity and call sites, as the session makes it."""
    verdict = evaluate(run, repo, settings, today=datetime.now(UTC).date(), now=int(time.time()))
    return with_costs(
        verdict, run, repo, settings, profiles=_profiles(settings), weights=_weights(settings, run.evalsets)
    )


def _profiles(settings: Settings) -> Sequence[Any]:
    """Profiles of the project's hooks: pytest is started only where fleet.toml names none of ours."""
    try:
        find_profile(fleet_of(settings))
    except FanoutError as error:
        if error.slug == "unknown-profile":
            return with_hooks(settings.root, lambda hooks: hooks.profiles())
    return ()  # what else is wrong with fleet.toml is a problem of the verdict


def _weights(settings: Settings, digests: Mapping[str, str | None]) -> dict[str, dict[str, float]]:
    """Of the eval sets that the run was made with; any other leaves all tasks alike."""
    found = {}
    for name, agent in settings.agents.items():
        try:
            evalset = read_evalset(agent.evalset, name)
        except FanoutError:
            continue
        if evalset.digest == digests.get(name):
            found[name] = {task.id: task.weight for task in evalset.tasks}
    return found


def combine_shards(
    settings: Settings, repo: Repository, patterns: Sequence[str], out: Path, environ: Mapping[str, str]
) -> int:
    """Judge all shards of a run as one, write its report, and give back the exit code.

    Raises:
        IntegrityError: shards that do not make a whole; the report then says that the run is not finished.
    """
    from pytest_fanout.report.json import document
    from pytest_fanout.store.reports import read_report, write_report, write_unfinished

    paths = sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)})
    if out.resolve() not in {Path(path).resolve() for path in paths}:
        write_unfinished(out, "combine")  # shards that do not fit leave no older report behind as if it were theirs
    run = combine({path: read_report(Path(path)) for path in paths})
    verdict = judged(run, repo, settings)
    write_report(out, document(run, verdict))
    click.echo(f"combined {counted(len(paths), 'shard')} into {clean(str(out))}")
    code = exit_code(verdict)
    if is_ci(environ):  # a report that is of another tree than the one that is checked out says nothing of it
        done = verify(
            run, repo, settings, option=None, environ=environ, today=datetime.now(UTC).date(), now=int(time.time())
        )
        code = max(code, done.exit_code)
    say_verdict(verdict)
    if code == EXIT_WITHIN and run.session.pytest_exit:
        click.echo(f"pytest ended with exit code {run.session.pytest_exit} in a shard, so that this cannot pass")
        code = EXIT_OVER
    return code


def say_judged(run: Run, repo: Repository, settings: Settings, form: str) -> int:
    """Print a run judged anew, as Markdown or as the document of the report; give back the exit code."""
    from pytest_fanout.report.json import document
    from pytest_fanout.report.markdown import render

    verdict = masker().record(judged(run, repo, settings))
    if form == "md":
        click.echo(render(run, verdict).rstrip("\n"))
    else:
        click.echo(json.dumps(document(run, verdict), indent=1, ensure_ascii=True))
    return exit_code(verdict)


def say_comment(path: Path, expect_head: str | None) -> int:
    """Print the comment, also one that says that there is nothing to show; give back the exit code."""
    from pytest_fanout.report.comment import comment, unreadable
    from pytest_fanout.store.judgements import read_judgement
    from pytest_fanout.store.reports import AGAIN, read_report

    try:
        run, verdict = read_report(path), read_judgement(path)
        commits = {verdict.head.rev, verdict.head.merges}
        if expect_head is not None and expect_head not in commits:
            raise IntegrityError(
                "report-of-another-commit",
                f"the report is of commit {(verdict.head.rev or 'none')[:12]}, and --expect-head is {expect_head[:12]}",
                mend="take the report of the run that was made for this commit",
            )
    except FanoutError as error:
        click.echo(f"error: {clean(str(error), keep_lines=True)}", err=True)
        _print(unreadable(clean(error.what)))
        return error.exit_code
    try:
        text = comment(run, verdict)
    except Exception:  # a forged report can contradict itself in any way; without a comment the older one would stand
        bad = IntegrityError("report-malformed", "says what cannot be shown", where=str(path), mend=AGAIN)
        click.echo(f"error: {clean(str(bad), keep_lines=True)}", err=True)
        _print(unreadable(bad.what))
        return bad.exit_code
    _print(text)
    return EXIT_WITHIN


def _print(markdown: str) -> None:
    """For a file more than for a terminal: UTF-8 whatever the console speaks."""
    click.echo(markdown.encode("utf-8", "replace"), nl=False)
