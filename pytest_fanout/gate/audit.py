"""The audit: each step of anchors, budget and waivers on the main line, and the approval that allowed it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_fanout.config import Settings
from pytest_fanout.gate.judgement import anchors_between
from pytest_fanout.gate.loosening import gated_values, loosening, target_of
from pytest_fanout.gate.permits import Target, find_budget_permit, find_permit, split_spent
from pytest_fanout.gate.tree import Tree, folder_of, read_tree
from pytest_fanout.judge import table_of_baseline
from pytest_fanout.records import Approval, Baseline, Budget, Change
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.git import Repository
from pytest_fanout.store.history import Commit, main_line
from pytest_fanout.store.looser import looser, stricter


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that one commit did. ``kind``: approved, approved-later, tightening, waiver, unapproved, broken (what
    it committed cannot be read)."""

    commit: Commit
    subject: str  # agent class, "budget" or "fleet"
    kind: str
    changes: tuple[Change, ...]
    approval: Approval | None = None
    why: str | None = None  # why nothing allowed it, or why it cannot be read
    later: Commit | None = None  # of approved-later: the commit that brought the approval


def steps(
    repo: Repository, rev: str, settings: Settings, agents: Collection[str] = (), *, most: int = 50
) -> list[Step]:
    """What the newest commits of the main line did to anchors and budget, newest first.

    Each step is judged by the rules of today, with its own day for the age of approvals: what was merged past the
    gate stands out as ``unapproved``. What a later commit approved while it still stood is ``approved-later``: a branch
    may commit a file first and its approval after the run, and must where the file mends one that cannot be read.

    Args:
        agents: only steps of these classes; all, with budget and fleet, by default.
        most: commits that are looked at.

    Raises:
        GitError: git does not answer.
    """
    trees: dict[str | None, Tree] = {None: Tree({}, parse_budget(None), None, ())}

    def tree(at: str | None) -> Tree:
        if at not in trees:
            trees[at] = read_tree(repo, str(at), settings, str(at))
        return trees[at]

    def made(commit: Commit, old: Tree, new: Tree) -> list[Step]:
        return [*_of_budget(commit, old, new), *_of_anchors(commit, old, new, repo, settings)]

    found: list[Step] = []
    commits = main_line(repo, rev, [folder_of(settings)], most)
    for place, commit in enumerate(commits):
        old, new = tree(commit.parent), tree(commit.rev)
        for step in (*_broken(commit, old, new), *made(commit, old, new)):
            if agents and step.subject not in agents:
                continue
            if step.kind == "unapproved":
                step = _later(step, commits[:place][::-1], old, new, tree, made)
            found.append(step)
    return found


def _later(
    step: Step,
    after: Sequence[Commit],
    old: Tree,
    new: Tree,
    tree: Callable[[str | None], Tree],
    made: Callable[[Commit, Tree, Tree], list[Step]],
) -> Step:
    """The step with the approval that a later commit brought, as long as what it committed stood there unchanged.

    Args:
        after: the commits that follow it, oldest first.
    """
    for later in after:
        then = tree(later.rev)
        if _held(then, step.subject) != _held(new, step.subject):
            break
        for again in made(replace(step.commit, day=later.day), old, replace(new, approvals=then.approvals)):
            if again.subject == step.subject and again.kind == "approved":
                return replace(again, commit=step.commit, kind="approved-later", later=later)
    return step


def _held(tree: Tree, subject: str) -> str | None:
    return {"budget": tree.budget.digest, "fleet": tree.fleet}.get(subject, tree.origin(subject))


def _broken(commit: Commit, old: Tree, new: Tree) -> Iterator[Step]:
    """Files that this commit left unreadable, the folder itself with the name "baselines"."""
    for name, lost in sorted(new.unreadable.items()):
        before = old.lost(name)
        if before is None or before.digest != lost.digest:
            yield Step(commit, name or "baselines", "broken", (), None, lost.problem.text)


def _of_anchors(commit: Commit, old: Tree, new: Tree, repo: Repository, settings: Settings) -> Iterator[Step]:
    approvals, spent = split_spent(new.approvals, old.approvals)
    budget = stricter(old.budget, new.budget)
    for agent in sorted({*old.anchors, *new.anchors}):
        base, head = old.anchors.get(agent), new.anchors.get(agent)
        if head is None and new.lost(agent):
            continue  # told as broken
        if base is not None and head is not None and base.digest == head.digest:
            continue
        limits = budget.limits_for(agent)
        changes = _changes(agent, base, head, budget)
        if not changes:
            yield Step(commit, agent, "tightening", ())
            continue
        target = Target(None, {})
        mine = approvals
        if head is None:
            mine = tuple(approval for approval in approvals if not approval.ceilings)
        else:
            target = target_of(head, limits, set(base.tasks) & set(head.tasks) if base else None)

        def between(agent: str = agent) -> list[tuple[Baseline, Target]]:
            limits = budget.limits_for(agent)
            anchors = anchors_between(repo, commit.parent, commit.rev, settings, agent)
            return [(a, Target(a.evalset, gated_values((table_of_baseline(a),), limits))) for a in anchors]

        origin = old.origin(agent)
        permit = find_permit(agent, mine, spent, origin, target, commit.day, between)
        kind = "approved" if permit.approval else "unapproved"
        yield Step(commit, agent, kind, changes, permit.approval, permit.why)
    for approval in approvals:
        if approval.kind == "waiver":
            yield Step(commit, approval.subject, "waiver", (), approval)


def _changes(agent: str, base: Baseline | None, head: Baseline | None, budget: Budget) -> tuple[Change, ...]:
    if head is None:
        return (Change("class_removed", agent),)
    if base is None:
        values = gated_values((table_of_baseline(head),), budget.limits_for(agent))
        metrics = (Change("metric", name, "all", None, value) for name, value in sorted(values.items()))
        return (Change("class_added", agent), *metrics)
    return loosening(base, head, budget.limits_for(agent))


def _of_budget(commit: Commit, old: Tree, new: Tree) -> Iterator[Step]:
    approvals, _ = split_spent(new.approvals, old.approvals)
    changes = looser(old.budget, new.budget)
    if old.lost("budget"):  # nothing tells whether it was looser
        changes = (Change("budget", "budget.toml", None, "cannot be read", new.budget.digest), *changes)
    if new.lost("budget"):
        pass  # told as broken
    elif changes:
        yield _budget_step(commit, "budget", changes, approvals, old.budget.digest, new.budget.digest)
    elif old.budget.digest != new.budget.digest:
        yield Step(commit, "budget", "tightening", ())
    if old.fleet not in (None, new.fleet) and new.lost("fleet") is None:
        change = Change("budget", "fleet.toml", None, old.fleet, new.fleet)
        yield _budget_step(commit, "fleet", (change,), approvals, old.fleet, new.fleet)


def _budget_step(
    commit: Commit,
    subject: str,
    changes: tuple[Change, ...],
    approvals: tuple[Approval, ...],
    origin: str | None,
    goal: str | None,
) -> Step:
    permit = find_budget_permit(subject, approvals, origin, goal, commit.day)
    return Step(commit, subject, "approved" if permit.approval else "unapproved", changes, permit.approval, permit.why)
