"""``fanout-baseline``: the reviewer's tool. Words and exit codes only; what they mean is decided in ``gate``."""

from __future__ import annotations

import glob
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from pytest_fanout.cli.console import FanoutGroup, clean, say_verdict, without_collecting
from pytest_fanout.cli.sides import repository_of
from pytest_fanout.config import Settings, find_settings, is_ci
from pytest_fanout.errors import FanoutError, IntegrityError, UsageError
from pytest_fanout.store.git import Repository

# Each command loads what it alone needs: the required check runs often, and needs little.

REPORT = "fanout-report.json"


def _project() -> tuple[Settings, Repository]:
    settings = find_settings(Path.cwd())
    return settings, repository_of(settings)


@click.group(cls=FanoutGroup)
@click.version_option(package_name="pytest-fanout")
def main() -> None:
    """Anchors, budget and approvals of pytest-fanout.

    Exit codes: 0 within budget or done, 1 over budget, 2 usage, 3 not measured or not accepted, 4 integrity or no base.

    \b
    A change that costs more, from red to green:
      pytest --fanout-budget                     red: over budget
      fanout-baseline accept --reason "…"        shows it, writes the approval
      git add baselines fixtures && git commit   and have it reviewed
    """


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Classes of the settings, for the shell; a project that cannot be read has none."""
    try:
        names = find_settings(Path.cwd()).agents
    except FanoutError:
        return []
    return [name for name in names if name.startswith(incomplete)]


_agents = click.option(
    "--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable.", shell_complete=_names
)
_from_report = click.option(
    "--report",
    "--from-report",
    "report",
    default=REPORT,
    metavar="PATH",
    show_default=True,
    help="The report of the run, also one that CI kept.",
    type=click.Path(),
)
_format = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="How to say it.",
)


@main.command(short_help="Write what a project needs and lacks.")
def init() -> None:
    """Write what a project needs and lacks: budget.toml, .gitignore, .gitattributes. Overwrites nothing.

    \b
    Example:
      fanout-baseline init && git add baselines .gitignore .gitattributes
    """
    from pytest_fanout.cli import approving

    approving.init(find_settings(Path.cwd()))


@main.command(short_help="Make a run the anchor, with an approval.")
@_agents
@click.option("--reason", required=True, metavar="TEXT", help="For the reviewer: at least 20 characters.")
@_from_report
@click.option("--base", "base_rev", metavar="REV", help="The commit that approvals depart from.")
@click.option(
    "--remove",
    "--removed",
    "removed",
    multiple=True,
    metavar="TASK",
    help="A marked test that was deleted on purpose; repeatable. No other task that did not run is let go.",
)
@_format
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept(
    agents: tuple[str, ...],
    reason: str,
    report: str,
    base_rev: str | None,
    removed: tuple[str, ...],
    form: str,
    yes: bool,
) -> None:
    """Make a measured run the anchor, with an approval for the reviewer where anything got looser.

    Shows what it would write, and asks. With --format md or json it only shows.

    \b
    Examples:
      fanout-baseline accept --reason "The planner now verifies its citations."
      fanout-baseline accept --agent support --reason "…" --from-report ci.json
    """
    from pytest_fanout.cli import approving, previews
    from pytest_fanout.cli.console import say_plan
    from pytest_fanout.gate import carry_out, plan_accept
    from pytest_fanout.gate.tree import to_commit
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
    if form != "text":
        click.echo(previews.plan_markdown(plan) if form == "md" else previews.plan_json(plan))
        return
    say_plan(plan)
    if not plan.classes and not plan.budget:
        click.echo("nothing to accept")
        return
    if not approving.confirmed(yes):
        return
    done = carry_out(plan, settings)
    for name in done.written:
        click.echo(f"wrote {clean(name)}")
    for name in done.removed:
        click.echo(f"removed {clean(name)}")
    few = [clean(planned.agent) for planned in plan.classes if planned.few is not None]
    verb = "lacks" if len(few) == 1 else "lack"
    lack = f"  record the trials that {' and '.join(few)} {verb}, as said above, and accept again\n" if few else ""
    commit = f"git add {to_commit(settings)} && git commit"
    click.echo(f"\nnext:\n{lack}  {commit}\n  {approving.review_advice(settings, repo)}")


@main.command(short_help="In an emergency, let a class pass for hours.")
@click.option("--agent", required=True, metavar="NAME", help="The class that may pass.", shell_complete=_names)
@click.option("--reason", required=True, metavar="TEXT", help="For the reviewer: at least 20 characters.")
@click.option("--hours", type=int, default=24, show_default=True, metavar="N", help="How long, from now: at most 72.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def waive(agent: str, reason: str, hours: int, yes: bool) -> None:
    """For an emergency: let a class pass for some hours although it is over budget or stale. Caps and `max` hold.

    \b
    Example:
      fanout-baseline waive --agent support --hours 12 --reason "Hotfix of the outage, FAN-311"
    """
    from pytest_fanout.cli import approving

    settings, repo = _project()
    sys.exit(approving.waive(settings, repo, agent, reason, hours, yes=yes, environ=os.environ))


@main.command(short_help="The required check: judge reports from git.")
@click.option("--report", "pattern", default=REPORT, metavar="GLOB", show_default=True, help="The reports to check.")
@click.option("--reports-expected", type=click.IntRange(min=1), metavar="N", help="Fail unless there are so many.")
@click.option("--base", "base_rev", metavar="REV", help="The base; in CI it must be the event's own.")
@without_collecting()
def verify(pattern: str, reports_expected: int | None, base_rev: str | None) -> None:
    """The required check: judge reports anew from git. Runs no test.

    \b
    Example:
      fanout-baseline verify --report 'reports/*/fanout-report.json' --reports-expected 2
    """
    from pytest_fanout.capacity.figures import counted
    from pytest_fanout.gate.check import refuse_copy
    from pytest_fanout.gate.check import verify as verify_report
    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths or (reports_expected is not None and len(paths) != reports_expected):
        raise IntegrityError(
            "reports-missing",
            f"{counted(len(paths), 'report')} match{'es' if len(paths) == 1 else ''} {pattern!r}, and "
            f"{reports_expected or 'at least 1'} should",
            mend="see that every job ran `pytest --fanout-budget` and kept its report"
            + ("; what `fanout-baseline combine` made of all shards is one: --reports-expected 1" if paths else ""),
        )
    code = 0
    seen: dict[str, str] = {}
    for path in paths:
        click.echo(f"{clean(path)}:")
        try:
            run = read_report(Path(path))
            refuse_copy(run, path, seen)
            done = verify_report(
                run,
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


@main.command(short_help="Judge all shards of one run as a whole.")
@click.option(
    "--report", "patterns", multiple=True, required=True, metavar="GLOB", help="The shards' reports; repeatable."
)
@click.option("--out", default=REPORT, metavar="PATH", show_default=True, help="The report of the whole run.")
def combine(patterns: tuple[str, ...], out: str) -> None:
    """Judge all shards of one run (pytest --fanout-shard=I/N), and write the report that `verify` takes.

    \b
    Example:
      fanout-baseline combine --report 'shards/*/fanout-report.json'
    """
    from pytest_fanout.cli import judging

    settings, repo = _project()
    sys.exit(judging.combine_shards(settings, repo, patterns, Path(out), os.environ))


@main.command(short_help="A report as a comment for a pull request.")
@click.option("--report", default=REPORT, metavar="PATH", show_default=True, help="The report to show.")
@click.option("--expect-head", metavar="SHA", help="Refuse a report that is not of this commit.")
def comment(report: str, expect_head: str | None) -> None:
    """Print the report as a comment for a pull request, in Markdown. Nothing in the report is believed or run.

    \b
    Example, in a job that knows the commit from elsewhere than the report:
      fanout-baseline comment --expect-head "$HEAD_SHA" > comment.md
    """
    from pytest_fanout.cli import judging

    sys.exit(judging.say_comment(Path(report), expect_head))


@main.command(short_help="The audit: each step and what allowed it.")
@click.option(
    "--agent", "agents", multiple=True, metavar="NAME", help="Only this class (or budget, fleet); repeatable."
)
@click.option("--most", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Commits to look at.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def log(agents: tuple[str, ...], most: int, form: str) -> None:
    """The audit: what each commit of the main line did to anchors and budget, by which approval, or by none.

    \b
    Example:
      fanout-baseline log --agent support
    """
    from pytest_fanout.cli import auditing

    auditing.say_log(*_project(), agents, most, form)


@main.command(short_help="Mend a merge conflict in baselines.")
@click.option(
    "--main", "side", type=click.Choice(["ours", "theirs"]), help="Whose anchors hold; else as branches tell."
)
def resolve(side: str | None) -> None:
    """Mend a merge conflict in baselines and recordings: the main branch's anchors, and what still fits of both sides.

    Code and eval sets are resolved by hand first: recordings are replayed against them. Nothing is committed.

    \b
    Example:
      git merge origin/main    # conflicts
      fanout-baseline resolve && git commit
    """
    from pytest_fanout.cli import resolving

    sys.exit(resolving.resolve_conflict(*_project(), side))


@main.command(short_help="The committed anchors, or a recording.")
@click.argument("agent", required=False)
@click.option("--recording", "task", metavar="TASK", help="Print a recording as a conversation: by task id or a part.")
@click.option("--trial", type=click.IntRange(min=1), metavar="N", help="Which of its recordings; else the first.")
@click.option("--agent", "of", metavar="NAME", help="The class that the task belongs to.")
@click.option("--full", is_flag=True, help="Cut no text of the conversation.")
def show(agent: str | None, task: str | None, trial: int | None, of: str | None, full: bool) -> None:
    """The committed anchors: their figures and where they come from. Or one recording, as a conversation.

    \b
    Example:
      fanout-baseline show support
      fanout-baseline show --recording refund --trial 2
    """
    from pytest_fanout.capacity.figures import counted
    from pytest_fanout.cli import recordings
    from pytest_fanout.cli.console import table
    from pytest_fanout.gate.tree import read_tree, refuse_lost
    from pytest_fanout.judge import stats_of

    if task is not None:
        recordings.show_recording(find_settings(Path.cwd()), task, agent=agent or of, trial=trial, full=full)
        return
    if trial is not None or full:
        raise UsageError("needs-recording", "--trial and --full are for a recording", mend="add --recording TASK")
    agent = agent or of
    settings, repo = _project()
    rev = repo.head().rev
    tree = read_tree(repo, rev, settings, "HEAD") if rev else None
    if tree is not None:
        refuse_lost(tree, (agent,) if agent else sorted({*tree.unreadable} - {"budget", "fleet"}))
    anchors = tree.anchors if tree is not None else {}
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
        click.echo(f"{name}: {counted(len(anchor.tasks), 'task')}, {counted(trials, 'trial')}, {anchor.digest}")
        click.echo(f"models served: {clean(', '.join(sorted(served))) or 'unknown'}")
        columns = ("mean", "p50", "p90", "p95", "p99", "max")
        rows = [[name, metric, *(_figure(row[column]) for column in columns)] for metric, row in stats.items()]
        click.echo(table(rows, ("class", "metric", *columns)))


def _figure(value: int | str | None) -> str:
    """A mean stands in an anchor as a text."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else value


@main.command(short_help="Why a run moved: what changed, and its share.")
@click.option("--agent", metavar="NAME", help="Only this class.")
@click.option("--task", metavar="ID", help="Only this task, call by call.")
@click.option("--format", "form", type=click.Choice(("text", "json", "md")), default="text", show_default=True)
@click.option("--redacted", "shapes_only", is_flag=True, help="Shapes and numbers only, no prompts.")
@click.option("--report", default=REPORT, metavar="PATH", show_default=True, help="The report of the run.")
@click.option("--base", "base_rev", metavar="REV", help="The commit to compare with.")
def why(agent: str | None, task: str | None, form: str, shapes_only: bool, report: str, base_rev: str | None) -> None:
    """Why a run moved: what changed in prompts, tools and models, and what of the growth each carries.

    \b
    Example:
      fanout-baseline why --agent support --task refund
    """
    from pytest_fanout.cli.why import say_why

    say_why(*_project(), Path(report), base=base_rev, agent=agent, task=task, form=form, shapes_only=shapes_only)


@main.command("import-cassettes", short_help="Make recordings of cassettes of vcrpy.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--agent", required=True, metavar="NAME", help="The class that the tasks belong to.")
@click.option("--task", metavar="ID", help="The task; else each file is of the one that it is named after.")
@click.option("--trial", type=click.IntRange(min=1), default=1, metavar="N", help="The number of the first. [1]")
def import_cassettes(paths: tuple[Path, ...], agent: str, task: str | None, trial: int) -> None:
    """Make recordings of cassettes of vcrpy or pytest-recording: files, or folders of them.

    Without --task a file is of the task of the eval set that it is named after, or, in cassettes/<test module>/, of the
    test that pytest-recording names it after. Several cassettes of one task are its trials.

    \b
    Example:
      fanout-baseline import-cassettes --agent support tests/cassettes
    """
    from pytest_fanout.cli import recordings

    sys.exit(recordings.import_cassettes(find_settings(Path.cwd()), paths, agent, task, trial))


@main.command(short_help="A run beside the base's anchors.")
@_from_report
@click.option("--base", "base_rev", metavar="REV", help="The commit to compare with.")
@_format
def diff(report: str, base_rev: str | None, form: str) -> None:
    """A run beside the base's anchors, metric by metric; exits by the verdict.

    \b
    Examples:
      fanout-baseline diff
      fanout-baseline diff --format md > comparison.md
    """
    from dataclasses import replace

    from pytest_fanout.cli import judging
    from pytest_fanout.cli.console import metric_table, say
    from pytest_fanout.gate import evaluate, exit_code
    from pytest_fanout.report.summary import means
    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    run = replace(read_report(Path(report)), base=repo.resolve_base(base_rev, os.environ), head=repo.head())
    if form != "text":
        sys.exit(judging.say_judged(run, repo, settings, form))
    verdict = evaluate(run, repo, settings, today=datetime.now(UTC).date(), now=int(time.time()))
    click.echo(metric_table(verdict.classes))
    for result in verdict.classes:
        for task in result.top:
            fanout, tokens = means(task.fanout_base, task.fanout_run), means(task.tokens_base, task.tokens_run)
            say(f"moved: {clean(result.agent)} {clean(task.task)} fanout {fanout}, tokens {tokens}")
    click.echo()
    say_verdict(verdict)
    sys.exit(exit_code(verdict))


@main.command(short_help="The smallest growth that a draw can show.")
@_agents
def power(agents: tuple[str, ...]) -> None:
    """The smallest growth that a new draw of each class can show, from the anchors' own noise.

    \b
    Example:
      fanout-baseline power --agent support
    """
    from pytest_fanout.cli import planning

    planning.say_power(*_project(), agents)


@main.command(short_help="How often an unchanged class is red.")
@_agents
@click.option("--draws", default=100, show_default=True, type=click.IntRange(1, 10_000), help="How many to judge.")
def selfcheck(agents: tuple[str, ...], draws: int) -> None:
    """How often draws that are made of each anchor's own trials are red: the false alarms to expect.

    \b
    Example:
      fanout-baseline selfcheck --draws 500
    """
    from pytest_fanout.cli import planning

    planning.say_selfcheck(*_project(), agents, draws)


@main.command(short_help="The gated figures of a run as OpenMetrics.")
@click.option("--report", default=REPORT, metavar="PATH", show_default=True, help="The report of the run.")
def metrics(report: str) -> None:
    """The gated figures of a run as OpenMetrics text. Judges nothing: exits with 0 whatever the verdict.

    \b
    Example:
      fanout-baseline metrics > metrics.txt
    """
    from pytest_fanout.gate import evaluate
    from pytest_fanout.report.openmetrics import render
    from pytest_fanout.store.reports import read_report

    settings, repo = _project()
    run = read_report(Path(report))
    click.echo(render(evaluate(run, repo, settings, today=datetime.now(UTC).date(), now=int(time.time()))), nl=False)


if __name__ == "__main__":
    main()
