"""A waiver: an emergency in which a class may pass for some hours, told in a file that a reviewer approves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError, NotAccepted, UsageError
from pytest_fanout.gate.author import Author, check_reason
from pytest_fanout.gate.classes import WAIVABLE
from pytest_fanout.gate.secrets import refuse_secrets_in
from pytest_fanout.gate.tree import folder_of, read_tree
from pytest_fanout.records import Approval, Base
from pytest_fanout.store.approvals import WAIVER_HOURS, path_name, write_approval
from pytest_fanout.store.files import alone_in, refuse_links, write_atomically
from pytest_fanout.store.git import Repository

#: What a waiver lets pass, for messages.
LIFTED = ", ".join(sorted(WAIVABLE))


@dataclass(frozen=True, slots=True)
class Waiver:
    """What `waive` would write."""

    approval: Approval
    hours: int  # that it lasts from now
    shortened: bool  # it was asked for longer than a waiver of today can last
    earlier: tuple[str, ...]  # file names of the waivers of this class that are there already


def plan_waiver(
    repo: Repository,
    settings: Settings,
    *,
    agent: str,
    reason: str,
    hours: int,
    requested_by: str,
    now: int,
    ci: bool,
    base: Base,
    environ: Mapping[str, str],
) -> Waiver:
    """Decide what waiving means. Writes nothing.

    Args:
        hours: from now, at most 72; the end is never later than 72 hours after the day's start (UTC).
        now: unix seconds.
        environ: whose secrets must not stand in the file.

    Raises:
        NotAccepted: in CI; a secret in the reason.
        UsageError: the reason is too short, the hours are too many, or the class is unknown.
        GitError: there is no commit.
    """
    if ci:
        raise NotAccepted(
            "waive-in-ci",
            "nothing is waived in CI: a build must not let itself pass",
            mend="run `fanout-baseline waive` on your machine, and have its file reviewed",
        )
    check_reason(reason)
    if not 1 <= hours <= WAIVER_HOURS:
        raise UsageError("bad-hours", f"--hours={hours} is not between 1 and {WAIVER_HOURS}", mend="--hours=24")
    head = repo.head()
    if head.rev is None:
        raise GitError("no-commit", "HEAD has no commit yet", mend="commit the project first")
    anchors = read_tree(repo, head.rev, settings, "HEAD").anchors
    known = sorted({*settings.agents, *anchors})
    if agent not in known:
        raise UsageError(
            "unknown-agent",
            f"{agent!r} is no agent class of the settings or of the baselines; known: {', '.join(known) or 'none'}",
            mend="use one of these with --agent",
        )
    today = datetime.fromtimestamp(now, UTC).date()
    day = int(datetime(today.year, today.month, today.day, tzinfo=UTC).timestamp())
    latest = day + WAIVER_HOURS * 3600
    ends = min(now + hours * 3600, latest)
    base = base if base.rev is not None else replace(base, rev=head.rev)  # names only: a waiver departs from nothing
    author = Author(repo, settings, base, reason, requested_by, today)
    made = author.approval("waiver", agent, None, (), expires_at=ends)
    refuse_secrets_in(made, environ)
    return Waiver(made, (ends - now) // 3600, ends < now + hours * 3600, author.waivers(agent))


def write_waiver(waiver: Waiver, settings: Settings) -> str:
    """Write it, and give back its path relative to the project. Raises StorageError; IntegrityError for a link."""
    name = f"approvals/{path_name(waiver.approval.path)}"
    refuse_links(settings.baselines / "approvals", settings.root)
    with alone_in(settings.baselines):
        write_atomically(settings.baselines / name, write_approval(waiver.approval))
    return f"{folder_of(settings)}/{name}"
