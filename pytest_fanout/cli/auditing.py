"""``fanout-baseline log``: the steps of anchors and budget on the main line, and who asked for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from pytest_fanout.cli.console import change_lines, clean
from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError
from pytest_fanout.gate.audit import Step, steps
from pytest_fanout.store.git import Repository

_WORDS = {
    "approved": "approved",
    "approved-later": "approved later",
    "tightening": "tightening",
    "waiver": "waiver",
    "unapproved": "NO APPROVAL",
    "broken": "BROKEN",
}


def say_log(settings: Settings, repo: Repository, agents: Sequence[str], most: int, form: str) -> None:
    """Print the audit, newest step first.

    Raises:
        GitError: there is no commit yet, or git does not answer.
    """
    rev = repo.head().rev
    if rev is None:
        raise GitError("no-commit", "HEAD has no commit yet", mend="commit the project first")
    found = steps(repo, rev, settings, agents, most=most)
    if form == "json":
        click.echo(json.dumps([_plain(step) for step in found], indent=1, ensure_ascii=True))
        return
    if not found:
        click.echo("no commit of this history changed an anchor or the budget" + (", for these" if agents else ""))
    for step in found:
        _say(step)
    if repo.is_shallow:
        click.echo("this clone is shallow: older steps are not in it (git fetch --unshallow)")


def _say(step: Step) -> None:
    commit = step.commit
    click.echo(
        f"{commit.day} {commit.rev[:12]} {clean(step.subject)}: {_WORDS[step.kind]}  {clean(commit.subject[:200])}"
    )
    for line in change_lines(step.changes):
        click.echo(f"  {line}")
    if step.approval is not None:
        until = ""
        if step.approval.expires_at is not None:
            until = datetime.fromtimestamp(step.approval.expires_at, UTC).strftime(", until %Y-%m-%d %H:%M UTC")
        click.echo(f"  {clean(step.approval.path)}, asked for by {clean(step.approval.requested_by)}{until}:")
        click.echo(f"    {clean(step.approval.reason)}")
        if step.later is not None:
            click.echo(f"  committed later, by {step.later.rev[:12]} of {step.later.day}")
    elif step.kind in ("unapproved", "broken"):
        click.echo(f"  {clean(step.why or '')}")


def _plain(step: Step) -> dict[str, Any]:
    approval = step.approval
    return {
        "commit": step.commit.rev,
        "day": step.commit.day.isoformat(),
        "message": step.commit.subject,
        "subject": step.subject,
        "kind": step.kind,
        "changes": [
            {"what": c.what, "name": c.name, "scope": c.scope, "old": c.old, "new": c.new} for c in step.changes
        ],
        "approval": None
        if approval is None
        else {
            "path": approval.path,
            "reason": approval.reason,
            "requested_by": approval.requested_by,
            "requested_on": approval.requested_on,
            "expires_at": approval.expires_at,
        },
        "why": step.why,
        "later": None if step.later is None else step.later.rev,
    }
