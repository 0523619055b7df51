"""Which committed approval, if any, lets an anchor or a budget be looser than the base's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from pytest_fanout.records import Approval, Baseline
from pytest_fanout.store.approvals import age_fault, day_of, path_name


@dataclass(frozen=True, slots=True)
class Permit:
    """The approval in force, or why none is."""

    approval: Approval | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An anchor that an approval has to cover: its eval set and the raw values of the gated metrics."""

    evalset: str | None
    values: Mapping[str, int]


def split_spent(
    head: Sequence[Approval], base: Sequence[Approval]
) -> tuple[tuple[Approval, ...], tuple[Approval, ...]]:
    """Approvals of HEAD that are new, and those that the base holds already, under whatever name: they are history."""
    nonces = {approval.nonce for approval in base}
    new = tuple(approval for approval in head if approval.nonce not in nonces)
    return new, tuple(approval for approval in head if approval.nonce in nonces)


def covers(approval: Approval, target: Target, today: date) -> str | None:
    """Why the approval does not cover the target, or None when it does."""
    if approval.evalset != target.evalset:
        return "it was given for another eval set"
    fault = age_fault(approval, today)
    if fault:
        return fault
    for name, value in target.values.items():
        bound = approval.ceilings.get(name)
        if bound is None:
            return f"it says nothing of {name}"
        if value > bound:
            return f"it covers {name} up to {bound:,}, and this is {value:,}"
    return None


def find_permit(
    agent: str,
    new: Sequence[Approval],
    spent: Sequence[Approval],
    origin: str | None,
    target: Target,
    today: date,
    between: Callable[[], Sequence[tuple[Baseline, Target]]],
) -> Permit:
    """The approval that leads from the base's anchor (``origin``, None: there is none) to ``target``.

    Args:
        between: anchors that commits between base and HEAD held, for chains: two approved changes that are merged
            together depart from each other, and each link has to be covered by its own approval.
    """
    mine = [approval for approval in new if approval.kind == "baseline" and approval.subject == agent]
    why = [
        f"{path_name(approval.path)} is spent: the base commit holds it already"
        for approval in spent
        if approval.kind == "baseline" and approval.subject == agent and approval.from_digest == origin
    ]
    for approval in sorted(mine, key=lambda approval: approval.path, reverse=True):
        if approval.from_digest == origin:
            fault = covers(approval, target, today)
            if fault is None:
                return Permit(approval)
            why.append(f"{path_name(approval.path)}: {fault}")
    others = [approval for approval in mine if approval.from_digest != origin]
    if others:
        reached = _reachable(mine, origin, between(), today)
        for approval in others:
            if approval.from_digest not in reached:
                why.append(f"{path_name(approval.path)} departs from another anchor than the base's")
                continue
            fault = covers(approval, target, today)
            if fault is None:
                return Permit(approval)
            why.append(f"{path_name(approval.path)}: {fault}")
    return Permit(None, "; ".join(why) if why else "HEAD holds no approval for it")


def _reachable(
    approvals: Sequence[Approval], origin: str | None, between: Sequence[tuple[Baseline, Target]], today: date
) -> set[str | None]:
    reached = {origin}
    grew = True
    while grew:
        grew = False
        for anchor, target in between:
            if anchor.digest in reached:
                continue
            if any(a.from_digest in reached and covers(a, target, today) is None for a in approvals):
                reached.add(anchor.digest)
                grew = True
    return reached


def find_budget_permit(
    subject: str, new: Sequence[Approval], origin: str | None, goal: str | None, today: date
) -> Permit:
    """The chain of budget approvals from one digest to another; its last link is returned."""
    edges = [approval for approval in new if approval.kind == "budget" and approval.subject == subject]
    reached: dict[str | None, Approval | None] = {origin: None}
    why = []
    grew = True
    while grew:
        grew = False
        for approval in edges:
            if approval.from_digest in reached and approval.to_digest not in reached:
                fault = age_fault(approval, today)
                if fault is None:
                    reached[approval.to_digest] = approval
                    grew = True
    if goal in reached and reached[goal] is not None:
        return Permit(reached[goal])
    for approval in edges:
        fault = age_fault(approval, today)
        why.append(f"{path_name(approval.path)}: {fault or 'it leads from or to another content'}")
    return Permit(None, "; ".join(why) if why else "HEAD holds no approval for it")


def waiver_in_force(approvals: Sequence[Approval], agent: str, now: int) -> Approval | None:
    """The waiver of a class that holds at ``now`` (unix seconds); a day before its date is allowed: time zones."""
    for approval in approvals:
        day = day_of(approval)
        if approval.kind != "waiver" or approval.subject != agent or day is None or approval.expires_at is None:
            continue
        begins = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) - 86_400
        if begins <= now < approval.expires_at:
            return approval
    return None
