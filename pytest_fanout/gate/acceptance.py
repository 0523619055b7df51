"""Accepting a run: the anchor that it becomes and, where anything got looser, the approval that a reviewer reads.

``plan_accept`` decides and writes nothing; ``carry_out`` writes. The anchor is written last: what dies on the way
leaves an approval without its anchor, which allows nothing, and the same command run again mends it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError, NotAccepted, UsageError
from pytest_fanout.explain.sites import site_stats
from pytest_fanout.gate.author import Author, check_reason
from pytest_fanout.gate.capacity_limits import changes_of
from pytest_fanout.gate.classes import worst
from pytest_fanout.gate.commands import RECORD
from pytest_fanout.gate.draws import draws_of, grown_by_evidence
from pytest_fanout.gate.drift import drift_lines
from pytest_fanout.gate.few_trials import agents_of, few_words
from pytest_fanout.gate.inputs import changed_inputs, inputs_now, other_recordings
from pytest_fanout.gate.judgement import evaluate
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.loosening import endings, endings_changes, gated_values, loosening, lowered
from pytest_fanout.gate.lowering import lowered_by_luck
from pytest_fanout.gate.permits import find_budget_permit, split_spent
from pytest_fanout.gate.plan import Accepted, Plan, PlannedClass, carry_out
from pytest_fanout.gate.provisional import provisional_words
from pytest_fanout.gate.secrets import refuse_secrets
from pytest_fanout.gate.tree import Tree, folder_of, read_file, read_tree, work_tree_budget
from pytest_fanout.judge import judge_draws, stats_of, table_of_baseline
from pytest_fanout.judge.arranged import SHARES
from pytest_fanout.judge.limits import ceiling
from pytest_fanout.records import (
    OUTCOMES,
    Approval,
    Base,
    Budget,
    Change,
    ClassResult,
    Comparison,
    Limit,
    Run,
    Verdict,
)
from pytest_fanout.store.approvals import path_name
from pytest_fanout.store.baselines import build_baseline, write_baseline
from pytest_fanout.store.calibration import fleet_digest
from pytest_fanout.store.git import FETCH_DEPTH, Repository
from pytest_fanout.store.looser import looser, stricter
from pytest_fanout.store.recordings import RecordingStore


def plan_accept(
    run: Run,
    repo: Repository | None,
    settings: Settings,
    *,
    agents: Sequence[str] = (),
    reason: str,
    requested_by: str,
    today: date,
    ci: bool,
    base: Base,
    removals: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """Decide what accepting this run means. Writes nothing.

    Args:
        agents: only these classes; all that ran by default. A class that the settings no longer hold is given up.
        reason: for the reviewer, at least 20 characters.
        base: the commit whose anchors the approvals depart from.
        removals: ids of marked tests that were deleted on purpose (for eval sets the missing line says so).
        environ: whose secrets must not stand in what is accepted.

    Raises:
        NotAccepted: CI, a partial run, a shard, a run that was not measured or is of other inputs, a value above max,
            a secret.
        UsageError: the reason is too short, or a class is unknown.
        ConfigError: budget.toml cannot be read.
        GitError: no repository, or no base commit.
    """
    _refuse_in_ci(ci)
    check_reason(reason)
    if repo is None:
        raise GitError(
            "no-git-repository", "the project is in no git repository", mend="git init, and commit the project"
        )
    if base.rev is None:
        raise GitError("no-base", base.problem or "no base commit was found", mend=FETCH_DEPTH)
    work_tree_budget(settings)  # broken, it differs from every report's: that it is broken comes first
    _check_run(run, settings)
    head = repo.head()
    now = int(datetime(today.year, today.month, today.day, tzinfo=UTC).timestamp())
    verdict = evaluate(replace(run, base=base, head=head), repo, settings, today=today, now=now)
    _check_session(verdict)
    base_tree = read_tree(repo, base.rev, settings, "the base commit")
    head_tree = read_tree(repo, str(head.rev), settings, "HEAD")
    chosen = _choose(agents, run, base_tree, head_tree)
    author = Author(repo, settings, base, reason, requested_by, today)
    budget, budget_approvals = _plan_budget(base_tree, head_tree, author)
    results = {result.agent: result for result in verdict.classes}
    evidence = judge_draws(draws_of({**head_tree.anchors, **base_tree.anchors}, run.tasks, budget))
    planned, unchanged = [], []
    for agent in chosen:
        if agent not in run.agents:
            planned.append(_plan_removal(agent, base_tree, author))
            continue
        _check_class(results[agent], removals)
        plan = _plan_class(agent, run, results[agent], base_tree, budget.limits_for(agent), budget, author, evidence)
        committed = head_tree.anchors.get(agent)
        written = read_file(settings.baselines / f"{agent}.json")
        same = plan.anchor is not None and written == write_baseline(plan.anchor, stats_of(plan.anchor))
        covered = results[agent].verdict in ("pass", "approved")
        if same and covered and committed and plan.anchor and committed.digest == plan.anchor.digest:
            unchanged.append(agent)
        else:
            planned.append(plan)
    _check_recordings(run, chosen, settings)
    done = Plan(tuple(planned), budget_approvals, tuple(unchanged), base, verdict)
    refuse_secrets(done, head_tree.anchors, settings, environ or {})
    return done


def accept(
    run: Run,
    repo: Repository | None,
    settings: Settings,
    *,
    agents: Sequence[str] = (),
    reason: str,
    requested_by: str,
    today: date,
    ci: bool,
    base: Base,
    removals: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Accepted:
    """Plan and carry out at once; raises as ``plan_accept`` and ``carry_out`` do."""
    plan = plan_accept(
        run,
        repo,
        settings,
        agents=agents,
        reason=reason,
        requested_by=requested_by,
        today=today,
        ci=ci,
        base=base,
        removals=removals,
        environ=environ,
    )
    return carry_out(plan, settings)


def _refuse_in_ci(ci: bool) -> None:
    """Raise NotAccepted where a build would approve itself."""
    if ci:
        raise NotAccepted(
            "accept-in-ci",
            "a run is not accepted in CI: a build must not approve itself",
            mend="run `fanout-baseline accept` on your machine, with the report that CI kept",
        )


def _left_out(run: Run) -> str:
    """What a partial run did not run: whole classes, and tasks of those that ran."""
    ran = {(task.agent, task.task) for task in run.tasks}
    classes = sorted(agents_of(run) - {agent for agent, _ in ran})
    said = []
    if classes:
        said.append(f"{listed(classes)} {'was' if len(classes) == 1 else 'were'} not run")
    for agent in sorted(agents_of(run) - set(classes)):
        tasks = sorted(task for task in run.definitions.get(agent, {}) if (agent, task) not in ran)
        if tasks:
            said.append(f"{listed(tasks)} of {agent} {'was' if len(tasks) == 1 else 'were'} left out")
    return " and ".join(said) or "tasks were left out"


def _check_run(run: Run, settings: Settings) -> None:
    whole = "run `pytest --fanout-budget` on the whole class, then accept again"
    if run.session.shard:
        raise NotAccepted("accept-shard", f"the report is of shard {run.session.shard} only", mend=whole)
    if run.session.partial:
        mend = "run `pytest --fanout-budget` without -k, -m, node ids or --fanout-agent, then accept again"
        raise NotAccepted("accept-partial", f"the report is of a partial run: {_left_out(run)}", mend=mend)
    if run.mode == "live":
        raise NotAccepted(
            "accept-live",
            "the report is of a live run, which keeps no recordings: an anchor without them cannot be replayed",
            mend=f"{RECORD}, then accept that; --fanout-mode=rerecord where the recordings still fit",
        )
    changed = changed_inputs(dict(run.inputs), inputs_now(run, settings))
    if changed:
        raise NotAccepted(
            "inputs-changed",
            f"the report is of another tree: {listed(changed)} differ{'s' if len(changed) == 1 else ''} now",
            mend="run `pytest --fanout-budget` again (or merge the main branch first, for a report of CI)",
        )


def _check_recordings(run: Run, agents: Collection[str], settings: Settings) -> None:
    others = other_recordings(run, agents, RecordingStore(settings.recordings))
    if others:
        raise NotAccepted(
            "recordings-replaced",
            f"other recordings stand there than the run made or replayed: {listed(others)}",
            mend="let no two runs record the same tasks at once; run `pytest --fanout-budget` again, then accept",
        )


def _check_session(verdict: Verdict) -> None:
    for problem in verdict.problems:
        if problem.verdict != "notice" and OUTCOMES.get(problem.verdict, "not_measured") == "not_measured":
            raise NotAccepted(
                "not-measured",
                f"the run cannot be accepted, its verdict is {problem.verdict}: {problem.text}",
                mend="mend that first, then run `pytest --fanout-budget` again",
            )


def _check_class(result: ClassResult, removals: Collection[str]) -> None:
    allowed = {"tasks-removed"}
    named = {*removals, *(unicodedata.normalize("NFC", task) for task in removals)}  # as ids of marked tests are
    if result.missing and set(result.missing) <= named:
        allowed.add("tasks-missing")
    for problem in result.problems:
        if (
            OUTCOMES.get(problem.verdict, "not_measured") == "not_measured"
            and problem.verdict != "no-baseline"
            and problem.slug not in allowed
        ):
            raise NotAccepted(
                "not-measured",
                f"{result.agent} cannot be accepted, its verdict is {worst(p.verdict for p in result.problems)}: "
                f"{problem.text}",
                mend="mend that first, then run `pytest --fanout-budget` again",
            )
        if problem.slug == "over-max":
            raise NotAccepted(
                "accept-over-max",
                f"{problem.text}",
                mend="bring it back, or raise the maximum in budget.toml and have that approved first",
            )


def _choose(agents: Sequence[str], run: Run, base: Tree, head: Tree) -> tuple[str, ...]:
    known = {*run.agents, *base.anchors, *head.anchors}
    for agent in agents:
        if agent not in known:
            raise UsageError(
                "unknown-agent",
                f"{agent!r} is no agent class of this report or of the baselines; known: {', '.join(sorted(known))}",
                mend="use one of these with --agent",
            )
    return tuple(dict.fromkeys(agents)) if agents else tuple(sorted(run.agents))


def _plan_class(
    agent: str,
    run: Run,
    result: ClassResult,
    base: Tree,
    limits: Sequence[Limit],
    budget: Budget,
    author: Author,
    evidence: Mapping[str, Comparison],
) -> PlannedClass:
    anchor, origin = build_baseline(run, agent), base.anchors.get(agent)
    table = table_of_baseline(anchor)
    values = gated_values((table,) if origin is None else (table, table.only(origin.tasks)), limits)
    if origin is None:
        changes = [] if base.lost(agent) else [Change("class_added", agent)]
        changes += [Change("metric", name, "all", None, value) for name, value in sorted(values.items())]
    else:
        changes = list(loosening(origin, anchor, limits))
        if not changes:
            grown = grown_by_evidence(evidence.get(agent), budget.judge_for(agent))
            before = gated_values((table_of_baseline(origin),), limits)
            named: dict[str, int | None] = {f"{metric}.share": None for metric in grown if metric in SHARES}
            named |= {limit.name: values.get(limit.name) for limit in limits if limit.metric in grown}
            changes = [Change("metric", name, "all", before.get(name), value) for name, value in named.items()]
        for change in changes:
            if change.name == "pass.share" and lowered(origin, anchor, limits):
                raise NotAccepted(
                    "pass-share-fell",
                    f"the anchor of {agent} would be lowered by a run in which fewer trials pass "
                    f"({change.old} -> {change.new})",
                    mend="mend what fails first: an anchor goes down only when the work is still done",
                )
        lucky = lowered_by_luck(origin, anchor, result, limits, budget.judge_for(agent)) if not changes else ()
        if lucky:
            raise NotAccepted(
                "anchor-not-lower",
                f"a new draw of {agent} is lower in {', '.join(lucky)}, and nothing shows that the agent is: the "
                "luckier of two draws would be kept",
                mend="leave the anchor as it is, for the class is within budget of it, and commit the recordings",
            )
    of_capacity, ceilings = changes_of(result.metrics, budget.capacity_for(agent))
    changes += of_capacity
    if changes:
        added = set(anchor.tasks) - set(origin.tasks if origin else anchor.tasks)
        changes += [Change("task_added", task) for task in sorted(added)]
        changes = [change for change in changes if change.name != "pass.share"] + endings_changes(origin, anchor)
        changes += drift_lines(base.approvals, agent, anchor, limits, budget.judge_for(agent), author.today)
    approval = None
    if changes:
        ceilings |= {limit.name: ceiling(limit, values[limit.name]) for limit in limits if limit.name in values}
        approval = author.approval(
            "baseline",
            agent,
            base.origin(agent),
            changes,
            evalset=anchor.evalset,
            ceilings=ceilings,
        )
    return PlannedClass(
        agent=agent,
        result=result,
        anchor=anchor,
        sites=site_stats(run.tasks, agent),
        approval=approval,
        changes=tuple(changes),
        draw=max((task.draw for task in run.tasks if task.agent == agent), default=1),
        superseded=author.superseded(agent, path_name(approval.path) if approval else None),
        endings=endings(anchor),
        provisional=provisional_words(anchor, budget.judge_for(agent)),
        few=few_words(anchor, run, budget.judge_for(agent), is_committed=False),
    )


def _plan_removal(agent: str, base: Tree, author: Author) -> PlannedClass:
    origin, approval, changes = base.anchors.get(agent), None, (Change("class_removed", agent),)
    if origin is not None:
        approval = author.approval("baseline", agent, origin.digest, changes)
    kept = path_name(approval.path) if approval else None
    return PlannedClass(agent, None, None, None, approval, changes, 1, author.superseded(agent, kept))


def _plan_budget(base: Tree, head: Tree, author: Author) -> tuple[Budget, tuple[Approval, ...]]:
    """The budget that will hold, and the approvals that the work tree's budget.toml and fleet.toml still need."""
    new, _ = split_spent(head.approvals, base.approvals)
    wanted, approvals = work_tree_budget(author.settings), []
    budget, changes = stricter(base.budget, wanted), looser(base.budget, wanted)
    if base.lost("budget"):
        changes = (Change("budget", "budget.toml", None, "cannot be read", wanted.digest), *changes)
    if changes:
        budget = wanted
        if not find_budget_permit("budget", new, base.budget.digest, wanted.digest, author.today).approval:
            approvals.append(author.approval("budget", "budget", base.budget.digest, changes, to=wanted.digest))
    folder = author.settings.baselines
    where = f"{folder_of(author.settings)}/fleet.toml"
    fleet = fleet_digest(read_file(folder / "fleet.toml"), where, lambda name: read_file(folder / name))
    if base.fleet is None or fleet == base.fleet:
        return budget, tuple(approvals)
    if not find_budget_permit("fleet", new, base.fleet, fleet, author.today).approval:
        change = Change("budget", "fleet.toml", None, base.fleet, fleet)
        approvals.append(author.approval("budget", "fleet", base.fleet, (change,), to=fleet))
    return budget, tuple(approvals)
