"""Who asks for an approval, when and why: what accepting a run and waiving have in common."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pytest_fanout.capacity.figures import counted
from pytest_fanout.config import Settings
from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.gate.tree import folder_of, read_file
from pytest_fanout.records import Approval, Base, Change
from pytest_fanout.store.approvals import approval_name, parse_approval
from pytest_fanout.store.git import Repository

REASON_LENGTH = 20
_LONGEST_REASON = 2000


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks, when and why; makes approvals and knows which of them this branch has made before."""

    repo: Repository
    settings: Settings
    base: Base
    reason: str
    requested_by: str
    today: date

    def approval(
        self,
        kind: str,
        subject: str,
        origin: str | None,
        changes: Sequence[Change],
        *,
        to: str | None = None,
        evalset: str | None = None,
        ceilings: dict[str, int] | None = None,
        expires_at: int | None = None,
    ) -> Approval:
        """A new one, under a file name that no other approval has."""
        made = Approval(
            path="",
            kind=kind,
            subject=subject,
            from_digest=origin,
            to_digest=to,
            evalset=evalset,
            ceilings=ceilings or {},
            changes=tuple(changes),
            reason=self.reason.strip(),
            requested_by=self.requested_by,
            requested_on=self.today.isoformat(),
            nonce=secrets.token_hex(8),
            expires_at=expires_at,
        )
        taken, again = self._taken(kind, subject), 1
        while approval_name(made, again) in taken:
            again += 1
        return replace(made, path=f"{folder_of(self.settings)}/approvals/{approval_name(made, again)}")

    def on_base(self) -> Collection[str]:
        try:
            return self.repo.list(str(self.base.rev), f"{folder_of(self.settings)}/approvals")
        except IntegrityError:
            return ()  # the folder is no folder there, and holds none

    def superseded(self, subject: str, kept: str | None) -> tuple[str, ...]:
        """Approvals of a class in the work tree that the base does not hold, except the one that is written now."""
        on_base = self.on_base()
        return tuple(
            name
            for name in self._here()
            if name not in on_base and name != kept and self._is_of("baseline", subject, name)
        )

    def waivers(self, subject: str) -> tuple[str, ...]:
        """The waivers of a class that the work tree holds already, by file name."""
        return tuple(name for name in self._here() if self._is_of("waiver", subject, name))

    def _taken(self, kind: str, subject: str) -> Collection[str]:
        """File names of others: those of the base, and in the work tree those that this approval does not replace."""
        own = {name for name in self._here() if kind != "waiver" and self._is_of(kind, subject, name)}
        return {*self.on_base(), *(name for name in self._here() if name not in own)}

    def _here(self) -> Sequence[str]:
        folder = self.settings.baselines / "approvals"
        return sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else ()

    def _is_of(self, kind: str, subject: str, name: str) -> bool:
        with contextlib.suppress(IntegrityError):
            approval = parse_approval(read_file(self.settings.baselines / "approvals" / name) or b"", name)
            return approval.kind == kind and approval.subject == subject
        return False  # one that cannot be read is left for its owner; evaluate reports it once committed


def check_reason(reason: str) -> None:
    """Raise UsageError for a reason that is too short for a reviewer, or too long for a file that people diff."""
    words = reason.strip()
    if len(words) < REASON_LENGTH:
        raise UsageError(
            "reason-too-short",
            f"the reason has {counted(len(words), 'character')}; the reviewer needs at least {REASON_LENGTH}",
            mend='--reason "Why this growth is worth its cost"',
        )
    if len(words) > _LONGEST_REASON:
        raise UsageError(
            "reason-too-long",
            f"the reason has {counted(len(words), 'character')}; at most {_LONGEST_REASON:,} are kept",
            mend="shorten it, and link to the rest",
        )
