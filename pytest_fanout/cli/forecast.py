"""``fanout-capacity forecast``: GPUs by week, from signed customers, growth and the accepted anchors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import click

from pytest_fanout.capacity.forecast import Forecaster
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, profile_of, sides_of
from pytest_fanout.cli.console import clean, json_text
from pytest_fanout.cli.hooks import with_hooks
from pytest_fanout.cli.sides import OfClass, repository_of, samples_at, weights_of
from pytest_fanout.config import Settings, find_settings
from pytest_fanout.errors import ConfigError
from pytest_fanout.gate.fleet import calibration_of, fleet_of
from pytest_fanout.records import Calibration, Fleet, Outlook
from pytest_fanout.report import forecast_page, plan_page
from pytest_fanout.store.customers import parse_customers

_GROWTH = click.FloatRange(-0.5, 1.0)


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--weeks", type=click.IntRange(1, 104), default=13, show_default=True, help="How many.")
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="First day of the first week; today without it.")
@click.option("--dau-growth-per-week", type=_GROWTH, help="Share: 0.01 is 1 % more users each week.")
@click.option("--tasks-growth-per-week", type=_GROWTH, help="Share by which tasks per user and day grow each week.")
@click.option("--since", metavar="REV", help="A commit: fanout accepted since then is among the causes.")
@click.option(
    "--format", "style", type=click.Choice(["table", "json", "md"]), default="table", show_default=True,
    help="How to print it.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Print how the demand of the first and the last week is made.")
def forecast(
    file: str | None,
    weeks: int,
    start: datetime | None,
    dau_growth_per_week: float | None,
    tasks_growth_per_week: float | None,
    since: str | None,
    style: str,
    explain: bool,
) -> None:
    """GPUs of each week (p50, p95), the weeks in which the fleet does not hold, and what causes that.

    FILE names signed customers, as TOML or CSV (docs/capacity.md). Demand and fleet are those of fleet.toml of the work
    tree, tasks those of the anchors of HEAD.
    """
    first = start.date() if start else _today()
    if first > date.max - timedelta(weeks=weeks + 1):
        raise click.BadParameter("is too late: the last week would have no date", param_hint="--start")
    settings = find_settings(Path.cwd())
    repo = repository_of(settings)
    outlook = Outlook() if file is None else parse_customers(Path(file).read_bytes(), file)
    if dau_growth_per_week is not None:
        outlook = replace(outlook, dau_growth_per_week=dau_growth_per_week)
    if tasks_growth_per_week is not None:
        outlook = replace(outlook, tasks_per_user_growth_per_week=tasks_growth_per_week)
    fleet = fleet_of(settings)
    calibration = calibration_of(settings, fleet)
    now = _sides(settings, samples_at(settings, "HEAD", repo), fleet)
    before = None if since is None else _sides(settings, samples_at(settings, since, repo), fleet)
    forecaster = Forecaster(now, fleet, _profile(settings, fleet, calibration), calibration, before)
    made = forecaster.forecast(outlook, first, weeks, since)
    demands = [(made.weeks[index].start, forecaster.demand(outlook, first, index)) for index in sorted({0, weeks - 1})]
    lines = forecast_page.formulas(demands) if explain else []
    if style == "json":
        document = forecast_page.document(made, fleet)
        if explain:
            document["explanation"] = lines
        click.echo(json_text(document))
        return
    found = forecast_page.sections(made, fleet)
    if explain:
        found.append(plan_page.Section("How: demand", lines=tuple(lines)))
    click.echo(clean(plan_page.render(found, markdown=style == "md"), keep_lines=True))


def _today() -> date:
    return datetime.now(UTC).date()


def _sides(settings: Settings, samples: Mapping[str, OfClass], fleet: Fleet) -> list[Sides]:
    priced = {agent: samples[agent] for agent in sorted(samples) if agent in fleet.demand}
    weights = weights_of(settings, priced)
    return [
        sides_of(agent, None, tasks, fleet, {task: weights.get(agent, {}).get(task, 1.0) for task in tasks})
        for agent, tasks in priced.items()
    ]


def _profile(settings: Settings, fleet: Fleet, calibration: Calibration | None) -> Profile:
    try:
        return profile_of(fleet, (), calibration)
    except ConfigError:
        # perhaps a profile of the project's own; pytest is loaded for nothing less
        return profile_of(fleet, with_hooks(settings.root, lambda hooks: hooks.profiles()), calibration)
