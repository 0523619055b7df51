"""Slow growth: what many approved steps add up to. Computed from the approval files alone, so that a shallow clone
is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from pytest_fanout.gate.loosening import target_of
from pytest_fanout.judge.limits import percent
from pytest_fanout.records import Approval, Baseline, Change, JudgeRules, Limit, Problem
from pytest_fanout.store.approvals import day_of


@dataclass(frozen=True, slots=True)
class Growth:
    """One gated metric over the approvals of a class.

    ``first``: its value in the first anchor. ``before``: its value before the first approval of the window; None when
    no approval of the window says anything of it.
    """

    name: str
    now: int
    first: int | None
    before: int | None

    def exceeds(self, share: Fraction) -> bool:
        return self.before is not None and self.now > self.before * (1 + share)


def growth_of(
    approvals: Sequence[Approval], agent: str, anchor: Baseline, limits: Sequence[Limit], days: int, today: date
) -> tuple[Growth, ...]:
    """How far each gated metric has moved since the first anchor and within the last ``days`` days."""
    first: dict[str, tuple[date, int]] = {}
    before: dict[str, tuple[date, int]] = {}
    for approval, day in approvals_of(approvals, agent):
        in_window = (today - day).days <= days
        for change in approval.changes:
            if change.what != "metric" or change.scope == "common":
                continue
            start = change.old if change.old is not None else change.new  # a first anchor departs from itself
            if isinstance(start, int):
                _earliest(first, change.name, day, start)
                if in_window:
                    _earliest(before, change.name, day, start)
    values = target_of(anchor, limits).values
    return tuple(Growth(name, now, _start(first, name), _start(before, name)) for name, now in values.items())


def _earliest(starts: dict[str, tuple[date, int]], name: str, day: date, start: int) -> None:
    """Keep the start of the earliest day; of several on one day the lowest, for file names do not tell their order."""
    kept = starts.setdefault(name, (day, start))
    if kept[0] == day and start < kept[1]:
        starts[name] = (day, start)


def _start(starts: Mapping[str, tuple[date, int]], name: str) -> int | None:
    return starts[name][1] if name in starts else None


def approvals_of(approvals: Sequence[Approval], agent: str) -> list[tuple[Approval, date]]:
    """The approvals of the anchors of a class with their days, oldest first."""
    mine = [(approval, day_of(approval)) for approval in approvals if approval.kind == "baseline"]
    dated = [(approval, day) for approval, day in mine if approval.subject == agent and day is not None]
    return sorted(dated, key=lambda pair: (pair[1], pair[0].path))


def drift_lines(
    approvals: Sequence[Approval], agent: str, anchor: Baseline, limits: Sequence[Limit], rules: JudgeRules, today: date
) -> tuple[Change, ...]:
    """What an approval of ``anchor`` has to say of the growth that it adds to: one line a metric beyond the budget."""
    return tuple(
        Change("drift", growth.name, "all", growth.before, growth.now)
        for growth in growth_of(approvals, agent, anchor, limits, rules.drift_days, today)
        if growth.exceeds(rules.drift)
    )


def of_drift(
    history: Sequence[Approval],
    new: Sequence[Approval],
    agent: str,
    anchor: Baseline,
    limits: Sequence[Limit],
    rules: JudgeRules,
    today: date,
    *,
    moved: bool,
) -> list[Problem]:
    """Growth beyond the drift budget, counted from the approvals that the base holds: one step alone is no drift.

    Args:
        history: approvals as the base holds them, so that no file that HEAD takes away or alters takes growth away.
        new: approvals of HEAD that the base does not hold.
        moved: HEAD's anchor is looser than the base's. Only then is growth that no approval speaks of ``unapproved``;
            what the base has already is told, for no later change could mend it.
    """
    problems = []
    for growth in growth_of(history, agent, anchor, limits, rules.drift_days, today):
        if not growth.exceeds(rules.drift):
            continue
        words = f"{agent}: {drift_words(growth, rules)}"
        if moved and not _is_spoken_of((*history, *new), agent, growth, rules, today):
            mend = f'fanout-baseline accept --agent {agent} --reason "…" writes it'
            text = f"{words}, and no approval has a drift line that reaches it; mend: {mend}"
            problems.append(Problem("drift-unapproved", text, "unapproved", agent))
        else:
            problems.append(Problem("drift", words, "notice", agent))
    return problems


def _is_spoken_of(approvals: Sequence[Approval], agent: str, growth: Growth, rules: JudgeRules, today: date) -> bool:
    """An approval of the window has a drift line of the metric, and its ceiling reaches the value of now."""
    for approval, day in approvals_of(approvals, agent):
        named = any(change.what == "drift" and change.name == growth.name for change in approval.changes)
        if named and (today - day).days <= rules.drift_days and approval.ceilings.get(growth.name, -1) >= growth.now:
            return True
    return False


def drift_words(growth: Growth, rules: JudgeRules) -> str:
    """One line for the reviewer."""
    words = (
        f"{growth.name} grew {growth.before:,} -> {growth.now:,} over the approvals of {rules.drift_days} days, "
        f"more than {percent(rules.drift).replace('%', ' %')}"
    )
    if growth.first is not None and growth.first != growth.before:
        words += f" (since the first anchor {growth.first:,} -> {growth.now:,})"
    return words


def of_taken_away(gone: Sequence[Approval], anchor: Baseline, rules: JudgeRules, today: date) -> list[Problem]:
    """Approvals of the class that the base holds and HEAD does not, while growth is still counted from them.

    A change that is reverted takes its approval with it, and those since: the anchor is then the one that the approval
    departed from.
    """
    agent = anchor.agent
    reverted = [day for approval, day in approvals_of(gone, agent) if approval.from_digest == anchor.digest]
    since = min(reverted, default=date.max)
    return [
        Problem(
            "approval-removed",
            f"{agent}: {approval.path} is gone or altered, and growth over {rules.drift_days} days is counted from it; "
            f"mend: git checkout <base> -- {approval.path}",
            "unapproved",
            agent,
        )
        for approval, day in approvals_of(gone, agent)
        if (today - day).days <= rules.drift_days and day < since
    ]
