"""The contract of the gate said once more, as simply as it can be: from its pages, and not from its code.

It says only one side: what keeps a run from being green. It knows no evidence, and believes no figure that it did not
work out itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from gate_world import NOW, TODAY

from pytest_fanout.records import MEASURED, Approval, TaskRun

#: Larger than any number that was counted.
UNKNOWN = 10**9
#: task -> its measured trials
Trials = Mapping[str, Sequence[TaskRun]]


@dataclass(frozen=True)
class NaiveLimit:
    """One entry of budget.toml. ``increase``: percent; None: only ``max`` holds."""

    name: str
    increase: int | None = None
    at_least: int = 0
    max: int | None = None
    evidence: bool = True

    @property
    def metric(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def statistic(self) -> str:
        return self.name.rpartition(".")[2]

    def toml(self) -> str:
        fields = [f"at_least = {self.at_least}"]
        fields += [f'increase = "{self.increase}%"'] if self.increase is not None else []
        fields += [f"max = {self.max}"] if self.max is not None else []
        fields += [] if self.evidence else ['evidence = "off"']
        return f'"{self.name}" = {{ {", ".join(fields)} }}'


# --- figures: the page on percentiles in concepts.md ------------------------------------------------------------------


def by_task(trials: Iterable[TaskRun], agent: str = "support") -> dict[str, list[TaskRun]]:
    found: dict[str, list[TaskRun]] = {}
    for made in trials:
        if made.agent == agent and made.status in MEASURED:
            found.setdefault(made.task, []).append(made)
    return found


def value(made: TaskRun, metric: str, unknown: int) -> int:
    if metric == "tokens":
        parts = (made.samples["input_tokens"], made.samples["output_tokens"])
        return unknown if None in parts else sum(part or 0 for part in parts)
    found = made.samples.get(metric, 0)
    return unknown if found is None else found


def figure(trials: Trials, name: str, unknown: int = UNKNOWN) -> int:
    """A limited figure: each task counts once, a percentile is the first value that its share of the weight reaches."""
    metric, _, statistic = name.rpartition(".")
    rows = [made for row in trials.values() for made in row]
    if statistic == "share":
        bad = {"capped": ("capped",), "failed": ("failed", "timeout")}[metric]
        return -(-100 * sum(made.status in bad for made in rows) // len(rows)) if rows else 0
    pairs = sorted(
        (value(made, metric, unknown), Fraction(1, len(row) * len(trials))) for row in trials.values() for made in row
    )
    if statistic == "mean":
        return int(sum(number * weight for number, weight in pairs) + Fraction(1, 2))
    share = Fraction(1) if statistic == "max" else Fraction(int(statistic[1:]), 100)
    reached = Fraction(0)
    for number, weight in pairs:
        reached += weight
        if reached >= share:
            return number
    return 0  # nothing was measured


def both(before: Trials, after: Trials) -> list[tuple[Trials, Trials]]:
    """The two places where a figure is compared: all tasks, and those that both sides have."""
    common = before.keys() & after.keys()
    shared = ({task: before[task] for task in common}, {task: after[task] for task in common})
    return [(before, after), *([shared] if common else [])]


def over(limit: NaiveLimit, before: Trials, after: Trials) -> bool:
    """Above base x (1 + increase), and grown by ``at_least`` or more."""
    for old, new in both(before, after):
        was, now = figure(old, limit.name, 0), figure(new, limit.name)
        if limit.increase is not None and 100 * now > was * (100 + limit.increase) and now - was >= limit.at_least:
            return True
    return False


def over_max(limit: NaiveLimit, run: Trials) -> bool:
    return limit.max is not None and figure(run, limit.name) > limit.max


# --- what is committed -----------------------------------------------------------------------------------------------


def looser(limits: Sequence[NaiveLimit], before: Trials, after: Trials) -> bool:
    """Whether an anchor allows more than another: a gated figure, fewer or other tasks, a smaller part that passes."""
    if any(figure(new, limit.name) > figure(old, limit.name) for limit in limits for old, new in both(before, after)):
        return True
    if any(task not in after or after[task][0].definition != before[task][0].definition for task in before):
        return True
    old, new = ([made.passed for row in side.values() for made in row] for side in (before, after))
    return Fraction(sum(new), len(new)) < Fraction(sum(old), len(old))


def covers(approval: Approval, origin: str, evalset: str | None, spent: Sequence[Approval]) -> bool:
    """Whether an approval is one of a step away from the anchor ``origin`` today; its ceilings are asked apart."""
    return (
        (approval.kind, approval.subject) == ("baseline", "support")
        and (approval.from_digest, approval.evalset) == (origin, evalset)
        and approval.nonce not in {old.nonce for old in spent}
        and -1 <= (TODAY - date.fromisoformat(approval.requested_on)).days <= 30
    )


def within(approval: Approval, limits: Sequence[NaiveLimit], trials: Trials) -> bool:
    """Whether all gated figures lie within the ceilings."""
    return all(figure(trials, limit.name) <= approval.ceilings.get(limit.name, -1) for limit in limits)


def waives(approval: Approval) -> bool:
    return (approval.kind, approval.subject) == ("waiver", "support") and (approval.expires_at or 0) > NOW
