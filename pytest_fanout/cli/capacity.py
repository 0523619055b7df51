"""``fanout-capacity``: the planner's tool. Words and exit codes only; what they mean is worked out in ``capacity``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pytest_fanout.capacity.plan import Planned, plan_fleet, with_windows
from pytest_fanout.capacity.profiles import BUILT_IN, Profile
from pytest_fanout.capacity.project import Sides, profile_of, project_sides, sides_of
from pytest_fanout.cli import plotting
from pytest_fanout.cli.calibrate import calibrate
from pytest_fanout.cli.console import FanoutGroup, clean, json_text
from pytest_fanout.cli.forecast import forecast
from pytest_fanout.cli.hooks import with_hooks
from pytest_fanout.cli.sides import OfClass, repository_of, samples_at, weights_of
from pytest_fanout.cli.sweep import sweep_group
from pytest_fanout.cli.traces import traces
from pytest_fanout.config import Settings, find_settings
from pytest_fanout.errors import ConfigError, UsageError, nearest
from pytest_fanout.gate.fleet import calibration_of, fleet_of
from pytest_fanout.gate.tree import folder_of, read_file, read_tree, refuse_lost
from pytest_fanout.records import Calibration, Caps, Fleet, Projection
from pytest_fanout.report import explained, explained_fleet, plan_page
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.files import refuse_links, write_atomically
from pytest_fanout.store.fleet import EXAMPLE


@click.group(cls=FanoutGroup)
@click.version_option(package_name="pytest-fanout")
def main() -> None:
    """GPUs, concurrency, quotas and money of the agents whose anchors are committed.

    Exit codes: 0 done, 2 usage, 4 a file that cannot be read. The figures are judged by `pytest --fanout-budget`, where
    budget.toml has limits on capacity.
    """


main.add_command(calibrate)
main.add_command(forecast)
main.add_command(sweep_group)
main.add_command(traces)


@main.command()
def init() -> None:
    """Write fleet.toml as a commented example that changes nothing yet. Overwrites nothing."""
    settings = find_settings(Path.cwd())
    path, name = settings.baselines / "fleet.toml", f"{folder_of(settings)}/fleet.toml"
    refuse_links(settings.baselines, settings.root)
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
    run = samples_at(settings, "HEAD", repository_of(settings))
    _say(settings, {}, run, agents, style, plot, explain=explain, compared=False)


@main.command()
@click.argument("base")
@click.argument("run")
@_page_options
def compare(base: str, run: str, agents: tuple[str, ...], style: str, plot: str | None, explain: bool) -> None:
    """BASE beside RUN on the same demand: each a commit (its anchors) or a report of `pytest --fanout-budget`."""
    plotting.check(plot)
    settings = find_settings(Path.cwd())
    repo = repository_of(settings)
    _say(
        settings, samples_at(settings, base, repo), samples_at(settings, run, repo), agents, style, plot,
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
    # weights differ from profile to profile
    certainty, _, source = BUILT_IN[0].source.partition(": ")
    click.echo(f"\n{certainty}: {source.partition(', ')[2]}")


@dataclass(frozen=True, slots=True)
class _Priced:
    fleet: Fleet
    profile: Profile
    projections: Sequence[Projection]
    planned: Planned
    sides: Sequence[Sides]
    calibration: Calibration | None

    def explained(self) -> dict[str, list[str]]:
        """The formulas of each class, and of all together under the name of no class."""
        used = (self.fleet, self.profile, self.calibration)
        pairs = zip(self.projections, self.sides, strict=True)
        found = {one.agent: explained.formulas(one, sides, *used) for one, sides in pairs}
        if self.planned.fleet is not None:
            found["fleet"] = explained_fleet.of_fleet(self.planned.fleet, self.sides, *used)
        return found


def _say(
    settings: Settings,
    base: Mapping[str, OfClass],
    run: Mapping[str, OfClass],
    agents: tuple[str, ...],
    style: str,
    plot: str | None,
    *,
    explain: bool,
    compared: bool,
) -> None:
    unknown = sorted(set(agents) - set(run))
    if unknown or not run:
        raise _no_anchor(unknown, sorted(run))
    priced = _price(settings, base, {name: run[name] for name in (agents or sorted(run))})
    fleet, plan = priced.fleet, priced.planned.fleet
    if plot is not None:
        plotting.draw(plot, priced.planned, fleet)
    if style == "json":
        document = plan_page.document(priced.projections, plan, fleet, compared=compared)
        if explain:
            document["explanation"] = priced.explained()
        click.echo(json_text(document))
        return
    found = plan_page.sections(priced.projections, plan, fleet, compared=compared)
    if explain:
        for name, lines in priced.explained().items():
            title = "all classes" if name == "fleet" else name
            found.append(plan_page.Section(f"How: {title}", lines=tuple(lines)))
    click.echo(clean(plan_page.render(found, markdown=style == "md"), keep_lines=True))


def _no_anchor(unknown: Sequence[str], known: Sequence[str]) -> UsageError:
    what, mend = "there is no anchor", 'fanout-baseline accept --reason "…", then commit baselines/'
    if unknown:
        what += f" of {', '.join(unknown)}"
    if unknown and known:
        what += f"; there are anchors of: {', '.join(known)}"
        near = nearest(unknown[0], known)
        mend = f"--agent {near}" if near else mend
    return UsageError("no-anchor", what, mend=mend)


def _price(settings: Settings, base: Mapping[str, OfClass], run: Mapping[str, OfClass]) -> _Priced:
    fleet = fleet_of(settings)
    calibration = calibration_of(settings, fleet)
    extra: Sequence[Profile] = ()
    try:
        profile = profile_of(fleet, (), calibration)
    except ConfigError:
        # perhaps a profile of the project's own; pytest is loaded for nothing less
        extra = with_hooks(settings.root, lambda hooks: hooks.profiles())
        profile = profile_of(fleet, extra, calibration)
    weights = weights_of(settings, run)
    sides, projections = [], []
    for agent in sorted(run):
        share = {task: weights.get(agent, {}).get(task, 1.0) for task in {*run[agent], *base.get(agent, {})}}
        made = sides_of(agent, base.get(agent), run[agent], fleet, share)
        sides.append(made)
        projections.append(project_sides(made, fleet, profile, weights.get(agent, {}), calibration))
    planned = plan_fleet(sides, fleet, profile, calibration, _caps(settings, list(run)))
    projections = [with_windows(each, planned, profile, fleet) for each in projections]
    return _Priced(fleet, profile, projections, planned, sides, calibration)


def _caps(settings: Settings, agents: Sequence[str]) -> dict[str, Caps]:
    repo = repository_of(settings)
    rev = repo.head().rev
    if rev is None:
        budget = parse_budget(None)
    else:
        tree = read_tree(repo, rev, settings, "HEAD")
        refuse_lost(tree, ("budget",))
        budget = tree.budget
    return {agent: budget.caps_for(agent) for agent in agents}


if __name__ == "__main__":
    main()
