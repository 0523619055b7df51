"""The verdict on one agent class: its run beside the base's anchor, HEAD's anchor and the approvals of HEAD."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING

from pytest_fanout.gate.completeness import Measured, measure
from pytest_fanout.gate.control import causes_of, of_causes
from pytest_fanout.gate.draws import grown_by_evidence, new_tasks_over, of_evidence, with_evidence
from pytest_fanout.gate.drift import of_drift, of_taken_away
from pytest_fanout.gate.exactly import mismatch_of, of_exact_trials
from pytest_fanout.gate.loosening import gated_values, loosening
from pytest_fanout.gate.notices import notices_of
from pytest_fanout.gate.permits import Permit, Target, find_permit, waiver_in_force
from pytest_fanout.gate.tree import Unreadable
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import TrialTable, beside, table_of_baseline
from pytest_fanout.judge.limits import limit_value
from pytest_fanout.judge.movers import top_movers
from pytest_fanout.records import (
    TIMING_METRICS,
    TOKEN_METRICS,
    VERDICTS,
    Approval,
    Baseline,
    Budget,
    Cause,
    ClassResult,
    Comparison,
    Limit,
    MetricResult,
    Problem,
    Run,
)
from pytest_fanout.report.summary import number

if TYPE_CHECKING:
    from pytest_fanout.gate.capacity_limits import CapacityLimits

#: A waiver lifts these, and nothing worse.
WAIVABLE = frozenset({"regressed", "inconclusive", "stale"})

#: A metric's scope in words.
_SCOPES = {"all": "", "common": " of the common tasks"}

#: Verdicts that only the whole class can have: a shard says `shard` instead.
_OF_THE_WHOLE = frozenset(
    {"pass", "approved", "waived", "regressed", "inconclusive", "unapproved", "mismatch", "no-baseline"}
)


#: Notices that count tasks or trials, or ask for a run of the class.
_NOTICES_OF_THE_WHOLE = frozenset({"few-tasks", "few-trials", "provisional"})


@dataclass(frozen=True, slots=True)
class Grounds:
    """What every class is judged on: the run, the two commits, and the day."""

    run: Run
    budget: Budget
    new_approvals: tuple[Approval, ...]
    spent_approvals: tuple[Approval, ...]
    past_approvals: tuple[Approval, ...]  # all that the base holds, as it holds them
    gone_approvals: tuple[Approval, ...]  # those of them that HEAD does not hold as they were
    today: date
    now: int
    between: Callable[[str], Sequence[Baseline]]  # anchors of a class that commits between base and HEAD held
    lost: Callable[[str], Unreadable | None] = lambda agent: None  # what stands where the base's anchor should
    evidence: Mapping[str, Comparison] = field(default_factory=dict)  # of the classes on a new draw
    capacity: CapacityLimits | None = None


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some verdicts, ``pass`` of none."""
    # a word that this version does not know is no reason to pass
    known = (verdict if verdict in VERDICTS else "invalid" for verdict in verdicts)
    return min(known, key=VERDICTS.index, default="pass")


def judge_class(agent: str, base: Baseline | None, head: Baseline | None, grounds: Grounds) -> ClassResult:
    """Everything that is to say of one class. ``base`` and ``head`` are the anchors of the two commits."""
    run, limits = grounds.run, grounds.budget.limits_for(agent)
    measured = measure(run, agent, base, head, limits)
    problems = list(measured.problems)
    lost = grounds.lost(agent) if base is None else None
    permit, needs_permit = _permit(agent, base, head, measured, limits, grounds)
    covering = permit.approval if needs_permit else None
    problems += _of_anchors(agent, base, head, measured, permit, needs_permit, run, is_new=lost is None)
    moved = covering is not None and (base is not None or lost is not None)
    problems += _of_history(agent, base, head, limits, grounds, moved=moved)
    metrics = _metrics(base, head, measured, limits, covering)
    anchor = nearest_anchor(base, head, measured)
    # an approval holds the run to its ceilings, by raw numbers
    comparison = grounds.evidence.get(agent) if covering is None and measured.draw in ("new", "mixed") else None
    is_valid = not any(problem.verdict == "invalid" for problem in problems)
    if comparison is not None and anchor is not None:
        metrics = with_evidence(metrics, comparison, limits, measured.table)
        if is_valid:
            rules, partial = grounds.budget.judge_for(agent), measured.partial
            problems += of_evidence(agent, comparison, rules, mode=run.mode, partial=partial)
    if anchor is not None and is_valid:
        if covering is None:
            problems += new_tasks_over(agent, anchor, measured, limits)
        held_to = head if covering is not None and head is not None else anchor
        problems += of_exact_trials(run, measured, held_to, limits, by_evidence=comparison is not None)
    problems += _of_metrics(agent, metrics, limits, anchor, measured, covering)
    if any(problem.verdict == "regressed" for problem in problems) and base and head and base.digest == head.digest:
        early = find_permit(
            agent,
            grounds.new_approvals,
            grounds.spent_approvals,
            base.digest,
            Target(run.evalsets.get(agent), gated_values((measured.table,), limits)),
            grounds.today,
            tuple,
        )
        if early.approval:
            problems.append(
                Problem(
                    "anchor-not-committed",
                    f"{agent}: {early.approval.path} is committed and the anchor that it allows is not; "
                    f"mend: git add the anchor of {agent} and commit it",
                    "regressed",
                    agent,
                )
            )
    told: tuple[Cause, ...] = ()
    if anchor is not None:
        rules = grounds.budget.judge_for(agent)
        told = causes_of(run, agent, table_of_baseline(anchor), measured.table, limits, rules)
        problems += of_causes(agent, told)
    priced = grounds.capacity.judge(agent, anchor, measured, covering) if grounds.capacity else None
    if priced is not None:
        problems += priced.problems
    result = _result(agent, base, head, measured, metrics, problems, permit, needs_permit, grounds)
    of_capacity = priced.metrics if priced is not None else ()
    return replace(result, metrics=(*result.metrics, *of_capacity), evidence=comparison, causes=told)


def _permit(
    agent: str,
    base: Baseline | None,
    head: Baseline | None,
    measured: Measured,
    limits: Sequence[Limit],
    grounds: Grounds,
) -> tuple[Permit, bool]:
    """The approval of the step from base to HEAD, and whether that step needs one."""
    new = grounds.new_approvals
    if head is None:
        if base is None or agent in grounds.run.agents:
            return Permit(None), False
        # a class that is given up: only an approval without any ceiling says so
        target = Target(None, {})
        new = tuple(approval for approval in new if not approval.ceilings)
    else:
        if base is not None and not _is_looser(agent, base, head, measured, limits, grounds):
            return Permit(None), False
        target = _target(agent, base, head, measured, limits, grounds.run)

    def between() -> list[tuple[Baseline, Target]]:
        return [
            (anchor, Target(anchor.evalset, gated_values((table_of_baseline(anchor),), limits)))
            for anchor in grounds.between(agent)
        ]

    lost = grounds.lost(agent)
    origin = base.digest if base else lost.digest if lost else None
    return (
        find_permit(agent, new, grounds.spent_approvals, origin, target, grounds.today, between),
        True,
    )


def _is_looser(
    agent: str, base: Baseline, head: Baseline, measured: Measured, limits: Sequence[Limit], grounds: Grounds
) -> bool:
    if base.digest == head.digest:
        return False
    # a draw of its own that is committed as the anchor is one for all that: it is judged beside the base's
    judged = grounds.evidence.get(agent) if measured.draw == "same" else None
    if loosening(base, head, limits) or grown_by_evidence(judged, grounds.budget.judge_for(agent)):
        return True
    return grounds.capacity is not None and grounds.capacity.grew(agent, base, head)


def _target(
    agent: str, base: Baseline | None, head: Baseline, measured: Measured, limits: Sequence[Limit], run: Run
) -> Target:
    table = table_of_baseline(head)
    tables = [table]
    if base is not None:
        tables.append(table.only(base.tasks))
    # an anchor that was accepted for another eval set than the present one is not covered either
    evalset = run.evalsets.get(agent, head.evalset) if agent in run.evalsets else head.evalset
    return Target(evalset, gated_values(tables, limits))


def _of_anchors(
    agent: str,
    base: Baseline | None,
    head: Baseline | None,
    measured: Measured,
    permit: Permit,
    needs_permit: bool,
    run: Run,
    *,
    is_new: bool,
) -> list[Problem]:
    problems = []
    accept = f'fanout-baseline accept --agent {agent} --reason "…"'
    if head is None and base is None:
        problems.append(
            Problem(
                "no-baseline",
                f"{agent}: HEAD holds no anchor for this class; mend: {accept}, then commit baselines/",
                "no-baseline",
                agent,
            )
        )
    elif head is None and not needs_permit:
        problems.append(
            Problem(
                "anchor-removed",
                f"{agent}: the base commit holds an anchor and HEAD does not; mend: bring it back with git checkout",
                "unapproved",
                agent,
            )
        )
    if needs_permit and permit.approval is None:
        first = "its first anchor" if is_new else "its anchor in place of one that cannot be read"
        what = first if base is None else "the removal of its anchor" if head is None else "its anchor"
        verb = "got looser" if base is not None and head is not None else "is committed"
        problems.append(
            Problem(
                "unapproved",
                f"{agent}: {what} {verb} without an approval that covers it ({permit.why}); mend: {accept}",
                "unapproved",
                agent,
            )
        )
    if head is not None and (base is None or base.digest != head.digest) and run.mode != "live":
        problems += mismatch_of(agent, head, measured, run, accept)
    return problems


def _of_history(
    agent: str, base: Baseline | None, head: Baseline | None, limits: Sequence[Limit], grounds: Grounds, *, moved: bool
) -> list[Problem]:
    """What the approvals of the class add up to."""
    if head is None:
        return []
    rules, gone = grounds.budget.judge_for(agent), grounds.gone_approvals
    return [
        *of_drift(
            grounds.past_approvals, grounds.new_approvals, agent, head, limits, rules, grounds.today, moved=moved
        ),
        *of_taken_away(gone, head, rules, grounds.today),
    ]


def _metrics(
    base: Baseline | None,
    head: Baseline | None,
    measured: Measured,
    limits: Sequence[Limit],
    covering: Approval | None,
) -> tuple[MetricResult, ...]:
    """All tasks, then the tasks shared with the anchor where those differ; bounds of base and of a tighter HEAD."""
    if not measured.table.statuses:
        return ()
    anchor = nearest_anchor(base, head, measured)
    if anchor is None:
        return beside(None, measured.table, limits)
    results: list[MetricResult] = []
    table = table_of_baseline(anchor)
    common = set(table.statuses) & set(measured.table.statuses)
    if not measured.partial:
        results += beside(table, measured.table, limits)
    if measured.partial or set(table.statuses) != set(measured.table.statuses):
        if common:
            results += beside(table.only(common), measured.table.only(common), limits, scope="common")
        elif measured.partial:
            results += beside(None, measured.table, limits)
    if head is not None and base is not None and head.digest != base.digest and covering is None:
        results = _tightened(results, table_of_baseline(head), measured, limits)
    if covering is not None:
        results = [
            replace(metric, ceiling=covering.ceilings.get(metric.name)) if metric.gated else metric
            for metric in results
        ]
    return tuple(results)


def nearest_anchor(base: Baseline | None, head: Baseline | None, measured: Measured) -> Baseline | None:
    """The anchor to compare with: the base's; HEAD's where the base has none, or none of the tasks of a partial run."""
    ran = set(measured.table.statuses)
    if base is not None and measured.partial and not ran & set(base.tasks):
        return head if head is not None and ran & set(head.tasks) else None
    return base or head


def _tightened(
    results: list[MetricResult], head: TrialTable, measured: Measured, limits: Sequence[Limit]
) -> list[MetricResult]:
    """HEAD's own anchor bounds the run as well, where it is the tighter one."""
    common = set(head.statuses) & set(measured.table.statuses)
    scopes = {
        "all": {metric.name: metric for metric in beside(head, measured.table, limits)},
        "common": {metric.name: metric for metric in beside(head.only(common), measured.table.only(common), limits)},
    }
    out = []
    for metric in results:
        other = scopes[metric.scope].get(metric.name)
        if other is not None and other.limit is not None and (metric.limit is None or other.limit < metric.limit):
            metric = replace(metric, limit=other.limit, over=metric.over or other.over)
        out.append(metric)
    return out


def _of_metrics(
    agent: str,
    metrics: Sequence[MetricResult],
    limits: Sequence[Limit],
    anchor: Baseline | None,
    measured: Measured,
    covering: Approval | None,
) -> list[Problem]:
    problems = []
    maxima = {limit.name: limit.max for limit in limits}
    for metric in [each for each in metrics if each.gated]:
        where = f"{agent}: {metric.name}{_SCOPES[metric.scope]}"
        top = maxima.get(metric.name)
        if metric.run is None:
            problems.append(
                Problem(
                    "value-unknown",
                    f"{where} of this run is not known; mend: {_known_by(metric.name)}",
                    "invalid",
                    agent,
                )
            )
        elif top is not None and metric.run > top:
            problems.append(
                Problem(
                    "over-max",
                    f"{where} is {metric.run:,}, above the maximum {top:,} of budget.toml, "
                    "which no approval and no waiver lifts",
                    "regressed",
                    agent,
                )
            )
        elif anchor is not None and metric.base is None and (top is None or _is_relative(limits, metric.name)):
            problems.append(
                Problem(
                    "value-unknown",
                    f"{where} is not known in the anchor; mend: record the class anew and accept it",
                    "invalid",
                    agent,
                )
            )
        elif covering is not None:
            if metric.ceiling is None or metric.run > metric.ceiling:
                problems.append(
                    Problem(
                        "over-ceiling",
                        f"{where} is {metric.run:,}, above the ceiling {number(metric.ceiling)} of {covering.path}",
                        "regressed",
                        agent,
                    )
                )
        elif metric.over and metric.evidence is None:  # evidence gives reasons of its own
            problems.append(
                Problem(
                    "over-limit",
                    f"{where} {number(metric.base)} -> {number(metric.run)} (limit {number(metric.limit)})",
                    "regressed",
                    agent,
                )
            )
    return problems


def _is_relative(limits: Sequence[Limit], name: str) -> bool:
    return any(limit.name == name and limit_value(replace(limit, max=None), 1) is not None for limit in limits)


def _result(
    agent: str,
    base: Baseline | None,
    head: Baseline | None,
    measured: Measured,
    metrics: tuple[MetricResult, ...],
    problems: list[Problem],
    permit: Permit,
    needs_permit: bool,
    grounds: Grounds,
) -> ClassResult:
    run, anchor = grounds.run, base or head
    verdict = worst(problem.verdict for problem in problems if problem.verdict != "notice")
    notices = [problem for problem in problems if problem.verdict == "notice"]
    approval = permit.approval.path if permit.approval and needs_permit else None
    why = permit.why if needs_permit else None
    if verdict == "pass" and approval:
        verdict = "approved"
    waiver = waiver_in_force((*grounds.new_approvals, *grounds.spent_approvals), agent, grounds.now)
    if waiver and verdict in WAIVABLE:
        hard = any(problem.slug in ("over-max", "too-few-cliffs") for problem in problems)
        capped = any(task.status in ("capped", "timeout") for task in trials_of(run.tasks, agent))
        if hard or capped:
            why = f"{waiver.path} is a waiver, and a cap or a maximum still holds"
        else:
            verdict, approval, why = "waived", waiver.path, None
    if run.session.shard:
        # what only the whole can tell is told of it alone, and accepting, which most of it asks for, is refused here
        problems = [problem for problem in problems if problem.verdict not in _OF_THE_WHOLE]
        verdict = "shard" if verdict in _OF_THE_WHOLE else verdict
    table = table_of_baseline(anchor) if anchor else None
    rules = grounds.budget.judge_for(agent)
    of_class = notices_of(run, agent, measured, table, head or base, metrics, rules, grounds.now)
    notices += [notice for notice in of_class if not run.session.shard or notice.slug not in _NOTICES_OF_THE_WHOLE]
    return ClassResult(
        agent=agent,
        verdict=verdict,
        draw=measured.draw,
        metrics=metrics,
        problems=tuple(problem for problem in problems if problem.verdict != "notice"),
        tasks_expected=len({*measured.expected, *measured.table.statuses}),
        tasks_ran=len(measured.table.statuses),
        trials=measured.table.trials,
        pass_share=measured.table.pass_share,
        pass_share_base=table.pass_share if table else (0, 0),
        top=top_movers(table, measured.table) if table else (),
        stale=measured.stale,
        missing=measured.missing,
        new=measured.new,
        removed=tuple(
            sorted(
                {
                    *measured.removed,
                    *(set(base.tasks if base else ()) - set(measured.table.statuses) - measured.expected),
                }
            )
        ),
        approval=approval,
        approval_why=why,
        notices=tuple(notices),
        baseline_base=base.digest if base else None,
        baseline_head=head.digest if head else None,
    )


def _known_by(name: str) -> str:
    """What makes a metric known that is not: durations are missing only where a recording was imported."""
    if name.startswith("spawn_depth."):
        return "run the agent, or those that it starts, through the gateway, which alone sees it"
    if re.split(r"[.\[]", name)[0] in TIMING_METRICS - TOKEN_METRICS:
        return "record anew what was imported: pytest --fanout-budget --fanout-mode=rerecord"
    return "let the client ask for usage"
