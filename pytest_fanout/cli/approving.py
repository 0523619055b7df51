"""What `accept` and `waive` have in common: the question before anything is written, and who is asked to review it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from pytest_fanout.cli.console import clean
from pytest_fanout.config import Settings, is_ci
from pytest_fanout.errors import EXIT_WITHIN, UsageError
from pytest_fanout.gate.tree import folder_of
from pytest_fanout.gate.waiving import LIFTED, plan_waiver, write_waiver
from pytest_fanout.store.git import Repository


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
    click.echo(f"{clean(agent)} may pass until {until} ({waiver.hours} hours) where it is {LIFTED}.")
    click.echo("Caps, maxima, and what was not measured for any other reason still fail; every report says waived.")
    if waiver.shortened:
        click.echo("It ends sooner than asked: a waiver of today lasts until 72 hours after its day began (UTC).")
    if waiver.earlier:
        click.echo(f"{len(waiver.earlier)} of this class before it: {', '.join(map(clean, waiver.earlier))}")
    if not confirmed(yes):
        return EXIT_WITHIN
    click.echo(f"wrote {clean(write_waiver(waiver, settings))}")
    folder = folder_of(settings)
    click.echo(f"\nnext:\n  git add {folder} && git commit\n  have {folder}/ reviewed by its code owners")
    click.echo(f"  before {until}: mend it, or fanout-baseline accept --agent {clean(agent)}")
    return EXIT_WITHIN
