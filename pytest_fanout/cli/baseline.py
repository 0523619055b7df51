"""``fanout-baseline``: the reviewer's tool. Words and exit codes only; what they mean is decided in ``gate``."""

from __future__ import annotations

import glob
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from pytest_fanout.cli import planning, recordings
from pytest_fanout.cli.console import METRIC_HEADERS, FanoutGroup, clean, metric_rows, say_plan, say_verdict, table
from pytest_fanout.config import Settings, find_settings, is_ci
from pytest_fanout.errors import FanoutError, GitError, IntegrityError, UsageError
from pytest_fanout.gate import carry_out, evaluate, exit_code, plan_accept, read_anchors
from pytest_fanout.gate import verify as verify_report
from pytest_fanout.gate.start import REPORT, start
from pytest_fanout.gate.tree import folder_of, to_commit
from pytest_fanout.judge import stats_of
from pytest_fanout.store.git import Repository


def _project() -> tuple[Settings, Repository]:
    settings = find_settings(Path.cwd())
    repo = Repository.find(settings.root)
    if repo is None:
        raise GitError(
            "no-git-repository",
            "the project is in no git repository",
            where=str(settings.root),
            mend="git init, and commit the project",
        )
    return settings, repo


@click.group(cls=FanoutGroup)
@click.version_option(package_name="pytest-fanout")
def main() -> None:
    """Anchors, budget and approvals of pytest-fanout.

    Exit codes: 0 within budget or done, 1 over budget, 2 usage, 3 not measured or not accepted, 4 integrity or no base.
    """


@main.command()
def init() -> None:
    """Write budget.toml with its defaults, and keep the report out of git. Overwrites nothing."""
    settings = find_settings(Path.cwd())
    done = start(settings)
    for name in done.written:
        click.echo(f"wrote {name}")
    for name in done.kept:
        click.echo(f"kept {name}")
    folder = folder_of(settings)
    click.echo(
        f"\nDemand, GPUs and prices, if you want capacity figures, stand in {folder}/fleet.toml.\n"
        "\nWho may approve is decided by your code owners. In .github/CODEOWNERS:\n"
        f"  /{folder}/      @your-org/capacity\n"
        "  /fixtures/      @your-org/capacity\n"
        "  /.github/       @your-org/platform\n"
        "  /pyproject.toml @your-org/platform\n"
        "\nnext:\n"
        f'  git add {folder} .gitignore && git commit -m "Add the fanout budget"\n'
        "  pytest --fanout-budget --fanout-mode=record"
    )


@main.command()
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable.")
@click.option("--reason", required=True, metavar="TEXT", help="For the reviewer: at least 20 characters.")
@click.option("--report", default=REPORT, metavar="PATH", show_default=True, help="The report of the run.")
@click.option("--base", "base_rev", metavar="REV", help="The commit that approvals depart from.")
@click.option("--removed", multiple=True, metavar="TASK", help="A marked test that was deleted on purpose; repeatable.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept(
    agents: tuple[str, ...], reason: str, report: str, base_rev: str | None, removed: tuple[str, ...], yes: bool
) -> None:
    """Make a measured run the anchor, with an approval for the reviewer where anything got looser."""
    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    plan = plan_accept(
        read_report(Path(report)),
        repo,
        settings,
        agents=agents,
        reason=reason,
        requested_by=repo.author(),
        today=datetime.now(UTC).date(),
        ci=is_ci(os.environ),
        base=repo.resolve_base(base_rev, os.environ),
        removals=removed,
        environ=os.environ,
    )
    say_plan(plan)
    if not plan.classes and not plan.budget:
        click.echo("nothing to accept")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "needs-yes", "there is no terminal to ask on, and nothing was written", mend="add --yes to write it"
            )
        if not click.confirm("Write this?"):
            click.echo("nothing was written")
            return
    done = carry_out(plan, settings)
    for name in done.written:
        click.echo(f"wrote {clean(name)}")
    for name in done.removed:
        click.echo(f"removed {clean(name)}")
    folder = folder_of(settings)
    few = [clean(planned.agent) for planned in plan.classes if planned.few is not None]
    verb = "lacks" if len(few) == 1 else "lack"
    lack = f"  record the trials that {' and '.join(few)} {verb}, as said above, and accept again\n" if few else ""
    click.echo(
        f"\nnext:\n{lack}  git add {to_commit(settings)} && git commit\n  have {folder}/ reviewed by its code owners"
    )


@main.command()
@click.option("--report", "pattern", default=REPORT, metavar="GLOB", show_default=True, help="The reports to check.")
@click.option("--reports-expected", type=click.IntRange(min=1), metavar="N", help="Fail unless there are so many.")
@click.option("--base", "base_rev", metavar="REV", help="The base; in CI it must be the event's own.")
def verify(pattern: str, reports_expected: int | None, base_rev: str | None) -> None:
    """The required check: judge reports anew from git. Runs no test."""
    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths or (reports_expected is not None and len(paths) != reports_expected):
        raise IntegrityError(
            "reports-missing",
            f"{len(paths)} reports match {pattern!r}, and {reports_expected or 'at least 1'} should",
            mend="see that every job ran `pytest --fanout-budget` and kept its report",
        )
    code = 0
    for path in paths:
        click.echo(f"{clean(path)}:")
        try:
            done = verify_report(
                read_report(Path(path)),
                repo,
                settings,
                option=base_rev,
                environ=os.environ,
                today=datetime.now(UTC).date(),
                now=int(time.time()),
            )
        except FanoutError as error:
            click.echo(f"error: {clean(str(error), keep_lines=True)}", err=True)
            code = max(code, error.exit_code)
            continue
        say_verdict(done.verdict)
        if done.why:
            click.echo(done.why)
        code = max(code, done.exit_code)
    sys.exit(code)


@main.command()
@click.argument("agent", required=False)
@click.option("--recording", "task", metavar="TASK", help="Print a recording as a conversation: by task id or a part.")
@click.option("--trial", type=click.IntRange(min=1), metavar="N", help="Which of its recordings; else the first.")
@click.option("--agent", "of", metavar="NAME", help="The class that the task belongs to.")
@click.option("--full", is_flag=True, help="Cut no text of the conversation.")
def show(agent: str | None, task: str | None, trial: int | None, of: str | None, full: bool) -> None:
    """The committed anchors: their figures and where they come from. Or one recording, as a conversation."""
    if task is not None:
        recordings.show_recording(find_settings(Path.cwd()), task, agent=agent or of, trial=trial, full=full)
        return
    if trial is not None or full:
        raise UsageError("needs-recording", "--trial and --full are for a recording", mend="add --recording TASK")
    agent = agent or of
    settings, repo = _project()
    rev = repo.head().rev
    anchors = read_anchors(repo, rev, settings) if rev else {}
    if agent is not None and agent not in anchors:
        raise UsageError(
            "unknown-agent",
            f"HEAD holds no readable anchor of {agent!r}; it holds: {', '.join(sorted(anchors)) or 'none'}",
            mend="run `pytest --fanout-budget`, then `fanout-baseline accept`",
        )
    if not anchors:
        click.echo("HEAD holds no anchor")
    for name in sorted(anchors) if agent is None else (agent,):
        anchor = anchors[name]
        stats = stats_of(anchor)
        trials = sum(len(task.trials) for task in anchor.tasks.values())
        served = {model for task in anchor.tasks.values() for trial in task.trials for model in trial.models_served}
        click.echo(f"{name}: {len(anchor.tasks)} tasks, {trials} trials, {anchor.digest}")
        click.echo(f"models served: {clean(', '.join(sorted(served))) or 'unknown'}")
        columns = ("mean", "p50", "p90", "p95", "p99", "max")
        rows = [
            [name, metric, *("-" if row[column] is None else str(row[column]) for column in columns)]
            for metric, row in stats.items()
        ]
        click.echo(table(rows, ("class", "metric", *columns)))


@main.command("import-cassettes")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--agent", required=True, metavar="NAME", help="The class that the tasks belong to.")
@click.option("--task", metavar="ID", help="The task; else each file is of the one that it is named after.")
@click.option("--trial", type=click.IntRange(min=1), default=1, metavar="N", help="The number of the first. [1]")
def import_cassettes(paths: tuple[Path, ...], agent: str, task: str | None, trial: int) -> None:
    """Make recordings of cassettes of vcrpy or pytest-recording: files, or folders of them.

    Without --task a file is of the task of the eval set that it is named after, or, in cassettes/<test module>/, of the
    test that pytest-recording names it after. Several cassettes of one task are its trials.
    """
    sys.exit(recordings.import_cassettes(find_settings(Path.cwd()), paths, agent, task, trial))


@main.command()
@click.option("--report", default=REPORT, metavar="PATH", show_default=True, help="The report of the run.")
@click.option("--base", "base_rev", metavar="REV", help="The commit to compare with.")
def diff(report: str, base_rev: str | None) -> None:
    """A run beside the base's anchors, metric by metric; exits by the verdict."""
    from dataclasses import replace

    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    run = replace(read_report(Path(report)), base=repo.resolve_base(base_rev, os.environ), head=repo.head())
    verdict = evaluate(run, repo, settings, today=datetime.now(UTC).date(), now=int(time.time()))
    click.echo(table(metric_rows(verdict.classes), METRIC_HEADERS))
    for result in verdict.classes:
        for task in result.top:
            click.echo(
                f"moved: {clean(result.agent)} {clean(task.task)} fanout {task.fanout_base} -> {task.fanout_run}"
            )
    click.echo()
    say_verdict(verdict)
    sys.exit(exit_code(verdict))


@main.command()
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable.")
def power(agents: tuple[str, ...]) -> None:
    """The smallest growth that a new draw of each class can show, from the anchors' own noise."""
    planning.say_power(*_project(), agents, datetime.now(UTC).date())


@main.command()
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable.")
@click.option("--draws", default=100, show_default=True, type=click.IntRange(1, 10_000), help="How many to judge.")
def selfcheck(agents: tuple[str, ...], draws: int) -> None:
    """How often draws that are made of each anchor's own trials are red: the false alarms to expect."""
    planning.say_selfcheck(*_project(), agents, draws, datetime.now(UTC).date())


if __name__ == "__main__":
    main()
