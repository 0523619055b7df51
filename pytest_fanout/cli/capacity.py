"""``fanout-capacity``: the planner's tool. Words and exit codes only; what they mean is worked out in ``capacity``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from pytest_fanout.capacity.plan import Planned, plan_fleet, with_windows
from pytest_fanout.capacity.profiles import BUILT_IN, Profile
from pytest_fanout.capacity.project import profile_of, project_sides, sides_of
from pytest_fanout.cli import plotting
from pytest_fanout.cli.console import FanoutGroup, clean
from pytest_fanout.cli.hooks import with_hooks
from pytest_fanout.cli.traces import traces
from pytest_fanout.config import Settings, find_settings
from pytest_fanout.errors import ConfigError, GitError, UsageError
from pytest_fanout.gate import committed_budget, read_anchors
from pytest_fanout.gate.fleet import calibration_of, fleet_of, samples_of_anchor, samples_of_run
from pytest_fanout.gate.tree import folder_of, read_file
from pytest_fanout.records import MEASURED, Caps, Fleet, Projection, Samples
from pytest_fanout.report import explained, plan_page
from pytest_fanout.store.files import write_atomically
from pytest_fanout.store.fleet import EXAMPLE
from pytest_fanout.store.git import Repository

_OfClass = dict[str, list[Samples]]


@click.group(cls=FanoutGroup)
@click.version_option(package_name="pytest-fanout")
def main() -> None:
    """GPUs, concurrency, quotas and money of the agents whose anchors are committed.

    Exit codes: 0 done, 2 usage, 4 a file that cannot be read. The figures are judged by `pytest --fanout-budget`, where
    budget.toml has limits on capacity.
    """


main.add_command(traces)


@main.command()
def init() -> None:
    """Write fleet.toml as a commented example that changes nothing yet. Overwrites nothing."""
    settings = find_settings(Path.cwd())
    path, name = settings.baselines / "fleet.toml", f"{folder_of(settings)}/fleet.toml"
    if read_file(path) is not None:
        click.echo(f"kept {name}")
    else:
        write_atomically(path, EXAMPLE.encode("utf-8"))
        click.echo(f"wrote {name}")
    click.echo(f"\nnext:\n  take the # away from what you know in {name}\n  fanout-capacity plan")


def _page_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable."),
        click.option(
            "--format", "style", type=click.Choice(["table", "json", "md"]), default="table", show_default=True,
            help="How to print it.",
        ),
        click.option("--plot", metavar="FILE.svg", help="Draw demand against capacity, and the cliffs."),
        click.option("--explain", is_flag=True, help="Print each formula with its values."),
    ):  # fmt: skip
        command = option(command)
    return command


@main.command()
@_page_options
def plan(agents: tuple[str, ...], style: str, plot: str | None, explain: bool) -> None:
    """What the anchors of HEAD ask of the fleet today, by fleet.toml of the work tree."""
    plotting.check(plot)
    settings = find_settings(Path.cwd())
    run = _samples(settings, "HEAD", _repository(settings))
    _say(settings, {}, run, agents, style, plot, explain=explain, compared=False)


@main.command()
@click.argument("base")
@click.argument("run")
@_page_options
def compare(base: str, run: str, agents: tuple[str, ...], style: str, plot: str | None, explain: bool) -> None:
    """BASE beside RUN on the same demand: each a commit (its anchors) or a report of `pytest --fanout-budget`."""
    plotting.check(plot)
    settings = find_settings(Path.cwd())
    repo = _repository(settings)
    _say(
        settings, _samples(settings, base, repo), _samples(settings, run, repo), agents, style, plot,
        explain=explain, compared=True,
    )  # fmt: skip


@main.command()
def profiles() -> None:
    """The built-in GPU profiles: rates of reading and writing, and where they come from."""
    from pytest_fanout.cli.console import table

    rows = [
        [
            each.name,
            each.gpu,
            f"{each.prefill_tokens_per_s:,.0f}",
            f"{each.decode_tokens_per_s:,.0f}",
            "-" if each.other is None else f"{each.other.prefill_tokens_per_s:,.0f}",
            "-" if each.other is None else f"{each.other.decode_tokens_per_s:,.0f}",
        ]
        for each in BUILT_IN
    ]
    click.echo(table(rows, ("profile", "GPU", "P tokens/s", "D tokens/s", "P by context", "D by context")))
    click.echo(f"\n{BUILT_IN[0].source.partition(':')[0]}: {BUILT_IN[0].source.partition(', ')[2]}")


def _repository(settings: Settings) -> Repository:
    repo = Repository.find(settings.root)
    if repo is None:
        raise GitError(
            "no-git-repository",
            "the project is in no git repository",
            where=str(settings.root),
            mend="git init, and commit the project",
        )
    return repo


def _samples(settings: Settings, name: str, repo: Repository) -> dict[str, _OfClass]:
    """By class: of a report, or of the anchors of a commit."""
    path = Path(name)
    if path.is_file():
        from pytest_fanout.store.reports import read_report

        run = read_report(path)
        measured = [task for task in run.tasks if task.status in MEASURED]
        return {
            agent: samples_of_run([t for t in measured if t.agent == agent]) for agent in {t.agent for t in measured}
        }
    rev = repo.resolve(name)
    if rev is None:
        raise UsageError(
            "no-such-side",
            f"{name!r} is neither a report nor a commit",
            mend="name a report (fanout-report.json), a branch, a tag or a commit",
        )
    return {agent: samples_of_anchor(anchor) for agent, anchor in read_anchors(repo, rev, settings).items()}


@dataclass(frozen=True, slots=True)
class _Priced:
    fleet: Fleet
    profile: Profile
    projections: Sequence[Projection]
    planned: Planned


def _say(
    settings: Settings,
    base: Mapping[str, _OfClass],
    run: Mapping[str, _OfClass],
    agents: tuple[str, ...],
    style: str,
    plot: str | None,
    *,
    explain: bool,
    compared: bool,
) -> None:
    unknown = sorted(set(agents) - set(run))
    if unknown or not run:
        raise UsageError(
            "no-anchor",
            f"there is no anchor of {', '.join(unknown)}" if unknown else "there is no anchor",
            mend='fanout-baseline accept --reason "…", then commit baselines/',
        )
    priced = _price(settings, base, {name: run[name] for name in (agents or sorted(run))})
    fleet, plan = priced.fleet, priced.planned.fleet
    if plot is not None:
        plotting.draw(plot, priced.planned, fleet)
    if style == "json":
        document = plan_page.document(priced.projections, plan, fleet)
        if explain:
            document["explanation"] = {
                each.agent: explained.formulas(each, fleet, priced.profile) for each in priced.projections
            }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    found = plan_page.sections(priced.projections, plan, fleet, compared=compared)
    if explain:
        for each in priced.projections:
            lines = tuple(explained.formulas(each, fleet, priced.profile))
            found.append(plan_page.Section(f"How: {each.agent}", lines=lines))
    click.echo(clean(plan_page.render(found, markdown=style == "md"), keep_lines=True))


def _price(settings: Settings, base: Mapping[str, _OfClass], run: Mapping[str, _OfClass]) -> _Priced:
    fleet = fleet_of(settings)
    calibration = calibration_of(settings, fleet)
    extra: Sequence[Profile] = ()
    try:
        profile = profile_of(fleet, (), calibration)
    except ConfigError:
        # perhaps a profile of the project's own; pytest is loaded for nothing less
        extra = with_hooks(settings.root, lambda hooks: hooks.profiles())
        profile = profile_of(fleet, extra, calibration)
    weights = _weights(settings, run)
    sides, projections = [], []
    for agent in sorted(run):
        share = {task: weights.get(agent, {}).get(task, 1.0) for task in {*run[agent], *base.get(agent, {})}}
        made = sides_of(agent, base.get(agent), run[agent], fleet, share)
        sides.append(made)
        projections.append(project_sides(made, fleet, profile, weights.get(agent, {}), calibration))
    planned = plan_fleet(sides, fleet, profile, calibration, _caps(settings, list(run)))
    return _Priced(fleet, profile, [with_windows(each, planned) for each in projections], planned)


def _weights(settings: Settings, run: Mapping[str, _OfClass]) -> dict[str, dict[str, float]]:
    """Shares of tasks in production, where the eval set gives any."""
    from pytest_fanout.store.evalsets import read_evalset

    found = {}
    for agent, own in settings.agents.items():
        if agent in run and own.evalset.is_file():
            shares = {task.id: float(task.weight) for task in read_evalset(own.evalset, agent).tasks}
            if any(share != 1.0 for share in shares.values()):
                found[agent] = shares
    return found


def _caps(settings: Settings, agents: Sequence[str]) -> dict[str, Caps]:
    repo = _repository(settings)
    head = repo.head()
    budget, _ = committed_budget(repo, settings, None, head, today=datetime.now(UTC).date())
    return {agent: budget.caps_for(agent) for agent in agents}


if __name__ == "__main__":
    main()
