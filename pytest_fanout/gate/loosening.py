"""In which ways one anchor is looser than another: what a reviewer has to approve."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pytest_fanout.gate.permits import Target
from pytest_fanout.judge import TrialTable, table_of_baseline, value_of
from pytest_fanout.records import Baseline, Change, Limit


def loosening(base: Baseline, head: Baseline, limits: Sequence[Limit]) -> tuple[Change, ...]:
    """Every gated number that got worse, on all tasks and on the common ones; tasks removed and redefined; where there
    is none of these, a smaller part of the trials that passes, or a larger one that a cap has stopped."""
    old, new = table_of_baseline(base), table_of_baseline(head)
    common = set(base.tasks) & set(head.tasks)
    changes = list(metric_changes(old, new, limits, "all"))
    if set(base.tasks) != set(head.tasks):
        changes += metric_changes(old.only(common), new.only(common), limits, "common")
    changes += [Change("task_removed", task) for task in sorted(set(base.tasks) - common)]
    changes += [
        Change("task_redefined", task)
        for task in sorted(common)
        if base.tasks[task].definition != head.tasks[task].definition
    ]
    # a failure that the anchor holds fails no test any more, so that it gets in by nobody's back door
    if not changes and pass_share_fell(old, new):
        changes.append(Change("metric", "pass.share", "all", _share(old), _share(new)))
    # nor does a trial that a cap has stopped, once the anchor says that it was
    before, after = endings(base), endings(head)
    if not changes and after["capped"] * before["trials"] > before["capped"] * after["trials"]:
        changes.append(Change("metric", "capped.trials", "all", before["capped"], after["capped"]))
    return tuple(changes)


def metric_changes(old: TrialTable, new: TrialTable, limits: Sequence[Limit], scope: str) -> list[Change]:
    """Gated values that are larger in ``new``, or no longer known."""
    out = []
    for limit in limits:
        before, after = (value_of(table, limit.metric, limit.statistic, unknown="high") for table in (old, new))
        if before is not None and (after is None or after > before):
            out.append(Change("metric", limit.name, scope, before, after))
    return out


def endings(anchor: Baseline | None) -> dict[str, int]:
    """How the trials of an anchor ended: how many there are, passed, were stopped by a cap, or failed."""
    facts = [fact for task in anchor.tasks.values() for fact in task.trials] if anchor else []
    return {
        "trials": len(facts),
        "passed": sum(fact.passed for fact in facts),
        "capped": sum(fact.status in ("capped", "timeout") for fact in facts),
        "failed": sum(fact.status == "failed" for fact in facts),
    }


def endings_changes(old: Baseline | None, new: Baseline) -> list[Change]:
    """For the reviewer, where not every trial of the new anchor passed: shares and counts, which bind nothing."""
    before, after = endings(old), endings(new)
    if after["passed"] == after["trials"]:
        return []
    was = f"{before['passed']}/{before['trials']}" if old else None
    changes = [Change("metric", "pass.share", "all", was, f"{after['passed']}/{after['trials']}")]
    changes += [
        Change("metric", f"{name}.trials", "all", before[name] if old else None, after[name])
        for name in ("capped", "failed")
        if after[name] or before[name]
    ]
    return changes


def lowered(base: Baseline, head: Baseline, limits: Sequence[Limit]) -> tuple[str, ...]:
    """Names of gated metrics whose value is smaller in ``head``."""
    old, new = table_of_baseline(base), table_of_baseline(head)
    names = []
    for limit in limits:
        before, after = (value_of(table, limit.metric, limit.statistic, unknown="high") for table in (old, new))
        if before is not None and after is not None and after < before:
            names.append(limit.name)
    return tuple(names)


def pass_share_fell(base: TrialTable, head: TrialTable) -> bool:
    """Whether a smaller part of the trials passes."""
    passed_base, trials_base = base.pass_share
    passed, trials = head.pass_share
    return bool(trials and trials_base) and Fraction(passed, trials) < Fraction(passed_base, trials_base)


def _share(table: TrialTable) -> str:
    passed, trials = table.pass_share
    return f"{passed}/{trials}"


def target_of(anchor: Baseline, limits: Sequence[Limit], common: set[str] | None = None) -> Target:
    """The raw gated values that an approval's ceilings have to reach: the larger of all and of the common tasks."""
    table = table_of_baseline(anchor)
    return Target(anchor.evalset, gated_values((table, table.only(common)) if common else (table,), limits))


def gated_values(tables: Sequence[TrialTable], limits: Sequence[Limit]) -> dict[str, int]:
    """For each limit the largest value among the tables; a value that is not known is left out."""
    values: dict[str, int] = {}
    for limit in limits:
        known = [value_of(table, limit.metric, limit.statistic, unknown="high") for table in tables]
        numbers = [value for value in known if value is not None]
        if numbers:
            values[limit.name] = max(numbers)
    return values
