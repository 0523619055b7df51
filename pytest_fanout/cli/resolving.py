"""``fanout-baseline resolve``: the words, and the replay in a pytest of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from pytest_fanout.cli.console import clean
from pytest_fanout.config import Settings
from pytest_fanout.errors import EXIT_NOT_MEASURED, EXIT_WITHIN, FanoutError, IntegrityError
from pytest_fanout.gate.resolving import find_conflict, resolve
from pytest_fanout.records import Run
from pytest_fanout.store.git import Repository

_MOST_NAMES = 10


def resolve_conflict(settings: Settings, repo: Repository, main: str | None) -> int:
    """Mend what is unmerged, say how, and what is left to do. 0: all recordings fit; 3: some must be made.

    Raises:
        UsageError: the conflict is not one of ours alone.
        IntegrityError: the replay gave no report.
    """
    conflict = find_conflict(repo, settings, main)
    if conflict is None:
        click.echo("nothing is unmerged in baselines or recordings")
        return EXIT_WITHIN
    done = resolve(conflict, repo, settings, lambda: _replay(settings), lambda line: click.echo(f"{line} …"))
    for path in done.files:
        click.echo(f"{clean(path)}: the main branch's ({conflict.main[:12]})")
    for words, tasks in (("the main branch's", done.main), ("the other side's", done.other)):
        if tasks:
            click.echo(f"recordings kept, {words}: {_names(tasks)}")
    click.echo("\nadded to the index; nothing is committed. next:")
    if done.to_record:
        click.echo(f"  no recording fits the merged code for {_names(done.to_record)}:")
        click.echo("  pytest --fanout-budget --fanout-mode=record")
        click.echo(f"  git add {clean(shlex.quote(_shown(settings)))}")
    click.echo("  git commit (or git rebase --continue)")
    click.echo("  pytest --fanout-budget, and fanout-baseline accept where it is over budget: an approval that")
    click.echo("  departed from another anchor than the main branch's no longer covers anything")
    return EXIT_NOT_MEASURED if done.to_record else EXIT_WITHIN


def _names(tasks: tuple[str, ...]) -> str:
    more = len(tasks) - _MOST_NAMES
    return ", ".join(map(clean, tasks[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")


def _shown(settings: Settings) -> str:
    return Path(os.path.relpath(settings.recordings, settings.root)).as_posix()  # it may lie beside the project


def _replay(settings: Settings) -> Run:
    """The whole gate, once, in a process of its own: the code under test is loaded as it is now."""
    from pytest_fanout.store.reports import read_report

    with tempfile.TemporaryDirectory(prefix="fanout-resolve-") as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--fanout-budget", f"--fanout-report={report}"],
            cwd=settings.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        try:
            run = read_report(report)
        except FanoutError:
            run = None
        if run is None or not run.tasks:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-5:]
            raise IntegrityError(
                "replay-failed",
                f"the replay ended with exit code {done.returncode} and measured nothing:\n" + "\n".join(lines),
                mend="see that `pytest --fanout-budget` runs on the merged code, then resolve again",
            )
        return run
