"""``fanout-baseline power`` and ``selfcheck``: what an eval set can show of a new draw, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pytest_fanout.cli.console import clean, table
from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.gate.tree import read_tree, refuse_lost
from pytest_fanout.judge import table_of_baseline
from pytest_fanout.judge.arranged import FEWEST_TASKS
from pytest_fanout.judge.power import power_of
from pytest_fanout.judge.reasons import percent
from pytest_fanout.judge.selfcheck import selfcheck
from pytest_fanout.records import Baseline, Budget, Power
from pytest_fanout.store.git import Repository

HEADERS = ("class", "metric", "tasks", "trials", "a rerun moves a task by", "allowed", "found", "red", "for 25 %")


def say_power(settings: Settings, repo: Repository, agents: tuple[str, ...]) -> None:
    """One row a gated metric: the smallest growth that four of five draws find, and how many tasks +25 % takes."""
    rows = []
    for agent, anchor, budget in _anchors(settings, repo, agents):
        for entry in power_of(table_of_baseline(anchor), budget.limits_for(agent), budget.judge_for(agent)):
            rows.append([clean(agent), clean(entry.metric), *_cells(entry)])
    if not rows:
        click.echo("no limit is gated by evidence")
        return
    click.echo(table(rows, HEADERS))
    click.echo(
        "\nfound: the smallest growth that four of five draws find, after the first trial and after the last.\n"
        "red: how often the best guess for an unchanged class ends above the limit. for 25 %: tasks that it takes,\n"
        f"at least the {FEWEST_TASKS} below which no new draw passes. All by the noise of the anchor's own trials."
    )


def _cells(entry: Power) -> list[str]:
    start = [str(entry.tasks), str(entry.trials_base)]
    if entry.noise is None:
        return [*start, "not known: one trial a task", percent(entry.allowed), "-", "-", "-"]
    first, last = entry.finds[0], entry.finds[-1]
    found = f"{percent(first[1])} after {first[0]}, {percent(last[1])} after {last[0]}"
    red = "-" if entry.red is None else f"{100 * entry.red:.1f} %"
    needed = entry.tasks_for_quarter
    least = FEWEST_TASKS if needed is None else needed
    add = "" if least <= entry.tasks else f", {least - entry.tasks} more"
    enough = f"{least} tasks{add}"
    if needed is None:
        enough = f"the limit allows it{add and f'; to pass {enough}'}"
    return [*start, percent(1 + entry.noise).lstrip("+"), percent(entry.allowed), found, red, enough]


def say_selfcheck(settings: Settings, repo: Repository, agents: tuple[str, ...], draws: int) -> None:
    """One line a class: how often draws of its own anchor are red."""
    for agent, anchor, budget in _anchors(settings, repo, agents):
        if min(len(task.trials) for task in anchor.tasks.values()) < 2:
            raise UsageError(
                "selfcheck-one-trial",
                f"the anchor of {agent} holds tasks with one trial only: nothing can be drawn from it",
                mend=f"record it anew with more trials: pytest --fanout-budget --fanout-mode=rerecord "
                f"--fanout-agent={agent}",
            )
        found = selfcheck(table_of_baseline(anchor), budget.limits_for(agent), budget.judge_for(agent), draws)
        click.echo(
            f"{clean(agent)}: of {found.draws} draws of its own trials {found.regressed} regressed and "
            f"{found.inconclusive} inconclusive, after {found.trials:.1f} trials a task on average"
        )


def _anchors(settings: Settings, repo: Repository, agents: tuple[str, ...]) -> Iterator[tuple[str, Baseline, Budget]]:
    head = repo.head()
    tree = read_tree(repo, head.rev, settings, "HEAD") if head.rev else None
    if tree is not None:
        refuse_lost(tree, ("budget", *(agents or sorted({*tree.unreadable} - {"fleet"}))))
    found = tree.anchors if tree is not None else {}
    unknown = sorted(set(agents) - set(found))
    if tree is None or unknown or not found:
        raise UsageError(
            "no-anchor",
            f"HEAD holds no anchor of {', '.join(unknown)}" if unknown else "HEAD holds no anchor",
            mend='fanout-baseline accept --reason "…", then commit baselines/',
        )
    for agent in sorted(agents or found):
        yield agent, found[agent], tree.budget
