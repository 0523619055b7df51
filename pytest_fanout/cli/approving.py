"""``fanout-baseline init`` and ``waive``, and what `accept` shares with them: the question, and who reviews."""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from pytest_fanout.capacity.figures import counted
from pytest_fanout.cli.console import clean
from pytest_fanout.config import Settings, is_ci
from pytest_fanout.errors import EXIT_WITHIN, UsageError
from pytest_fanout.gate.start import start
from pytest_fanout.gate.tree import folder_of, kept_in
from pytest_fanout.gate.waiving import LIFTED, plan_waiver, write_waiver
from pytest_fanout.store.git import Repository
from pytest_fanout.store.owners import owners_of


def confirmed(yes: bool) -> bool:
    """Whether to write: ``--yes``, or the answer at a terminal.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "needs-yes", "there is no terminal to ask on, and nothing was written", mend="add --yes to write it"
        )
    if click.confirm("Write this?"):
        return True
    click.echo("nothing was written")
    return False


def init(settings: Settings) -> None:
    """Write what is missing, and say who should own it and what comes next."""
    done = start(settings)
    for name in done.written:
        click.echo(f"wrote {name}")
    for name in done.kept:
        click.echo(f"kept {name}")
    repo = Repository.find(settings.root)
    prefix = repo.prefix if repo is not None else ""
    folder = folder_of(settings)
    click.echo(f"\nDemand, GPUs and prices, if you want capacity figures, stand in {folder}/fleet.toml.")
    paths = _to_be_owned(settings, prefix)
    free = {path: team for path, team in paths.items() if repo is None or not _is_owned(repo, path)}
    if free:
        width = max(map(len, free)) + 1
        click.echo("\nWho may approve is decided by your code owners. In .github/CODEOWNERS:")
        for path, team in free.items():
            click.echo(f"  {path:<{width}} {team}")
    else:
        click.echo("\nWho may approve is decided by your code owners; all that should be owned is.")
    click.echo(
        f'\nnext:\n  git add {shlex.quote(folder)} .gitignore .gitattributes && git commit -m "Add the fanout budget"\n'
        "  pytest --fanout-budget --fanout-mode=record"
    )


def _is_owned(repo: Repository, path: str) -> bool:
    return bool(owners_of(repo.root, path[1:] + ("x" if path.endswith("/") else "")))


def _to_be_owned(settings: Settings, prefix: str) -> dict[str, str]:
    """Paths of CODEOWNERS, from the repository's root, and who might own them."""
    kept = [f"/{prefix}{path}/" for path in kept_in(settings)[:2]]
    evalsets = [path.parent.relative_to(settings.root).as_posix() for path in _evalsets(settings)]
    kept += [f"/{prefix}{folder}/" for folder in evalsets if folder != "."]
    # the folder of the eval sets often holds that of the recordings
    shortest = [path for path in kept if not any(path != other and path.startswith(other) for other in kept)]
    owned = dict.fromkeys(shortest, "@your-org/capacity")
    return owned | dict.fromkeys(
        ("/.github/", f"/{prefix}pyproject.toml", f"/{prefix}conftest.py"), "@your-org/platform"
    )


def _evalsets(settings: Settings) -> list[Path]:
    return [a.evalset for a in settings.agents.values() if a.evalset.is_relative_to(settings.root)]


def review_advice(settings: Settings, repo: Repository) -> str:
    """Who is asked to review what was written; told honestly where nobody can, or anybody may."""
    folder = folder_of(settings)
    owners = owners_of(repo.root, f"{repo.prefix}{folder}/approvals/x.json")
    if not owners:
        why = "there is no CODEOWNERS file" if owners is None else f"CODEOWNERS names nobody for {folder}/"
        text = f"have {folder}/ reviewed: {why}, so that anybody's review counts (fanout-baseline init)"
    elif len(owners) > 1 or "/" in owners[0]:
        text = f"have {folder}/ reviewed by its code owners: {', '.join(map(clean, owners))}"
    else:
        text = (
            f"have {folder}/ reviewed by its only code owner, {clean(owners[0])}. If that is you: nobody can approve "
            "their own pull request. Name a second owner, or let somebody else open the request. Merging past the "
            "rule as an admin works and is logged, but it is a growth that nobody reviewed: say so in the request."
        )
    return textwrap.fill(text, 76, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def waive(
    settings: Settings, repo: Repository, agent: str, reason: str, hours: int, *, yes: bool, environ: Mapping[str, str]
) -> int:
    """Say what a waiver would do, ask, write it, and say what is left to do. Gives back the exit code."""
    waiver = plan_waiver(
        repo,
        settings,
        agent=agent,
        reason=reason,
        hours=hours,
        requested_by=repo.author(),
        now=int(time.time()),
        ci=is_ci(environ),
        base=repo.resolve_base(None, environ),
        environ=environ,
    )
    until = datetime.fromtimestamp(waiver.approval.expires_at or 0, UTC).strftime("%Y-%m-%d %H:%M UTC")
    click.echo(f"{clean(agent)} may pass until {until} ({counted(waiver.hours, 'hour')}) where it is {LIFTED}.")
    click.echo("Caps, maxima, and what was not measured for any other reason still fail; every report says waived.")
    if waiver.shortened:
        click.echo("It ends sooner than asked: a waiver of today lasts until 72 hours after its day began (UTC).")
    if waiver.earlier:
        click.echo(f"{len(waiver.earlier)} of this class before it: {', '.join(map(clean, waiver.earlier))}")
    if not confirmed(yes):
        return EXIT_WITHIN
    click.echo(f"wrote {clean(write_waiver(waiver, settings))}")
    folder = folder_of(settings)
    click.echo(f"\nnext:\n  git add {shlex.quote(folder)} && git commit\n  {review_advice(settings, repo)}")
    click.echo(f'  before {until}: mend it, or fanout-baseline accept --agent {clean(agent)} --reason "…"')
    return EXIT_WITHIN
