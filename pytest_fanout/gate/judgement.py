"""From a run and two commits to a verdict. Only committed blobs are read: what is not committed allows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate.advice import next_steps
from pytest_fanout.gate.classes import Grounds, judge_class, worst
from pytest_fanout.gate.completeness import of_session
from pytest_fanout.gate.draws import draws_of
from pytest_fanout.gate.inherited import with_inherited
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.permits import find_budget_permit, split_spent
from pytest_fanout.gate.tree import Tree, folder_of, read_tree, settings_at, to_commit
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import judge_draws, stats_of
from pytest_fanout.records import (
    Base,
    Baseline,
    Budget,
    ClassResult,
    Head,
    Problem,
    Run,
    Verdict,
)
from pytest_fanout.store.approvals import write_approval
from pytest_fanout.store.baselines import parse_baseline
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.git import FETCH_DEPTH, Repository
from pytest_fanout.store.looser import looser, stricter


def evaluate(run: Run, repo: Repository | None, settings: Settings, *, today: date, now: int) -> Verdict:
    """Judge a run against the base commit and HEAD.

    Args:
        run: as measured; ``run.base`` names the commit to compare with and ``run.head`` the one that was measured.
            Without them they are looked up (the base without an option).
        repo: None when the project is in no git repository: the verdict is then ``no-base``.
        today: the day that ages are counted from.
        now: unix seconds, for waivers.

    Returns:
        The verdict. Faults of committed files are problems of it and are not raised.

    Raises:
        GitError: git does not answer.
        ConfigError: the baselines folder lies outside the project.
    """
    folder_of(settings)
    head = run.head or (repo.head() if repo else Head(None))
    base = run.base or (repo.resolve_base(None) if repo else Base(None, "none"))
    problems = list(of_session(run))
    problems += _of_commits(repo, base, head)
    if repo is None or head.rev is None or repo.resolve(head.rev) is None:
        classes = _without_commit(run)
        return _verdict(run, classes, problems, base, head, settings, None)
    head_tree = read_tree(repo, head.rev, settings, "HEAD")
    base_rev = base.rev if base.rev and repo.resolve(base.rev) else None
    base_tree = head_tree
    if base_rev not in (None, head.rev):
        before = settings_at(repo, str(base_rev), settings)
        base_tree = read_tree(repo, str(base_rev), before, "the base commit", is_history=True)
    lost, replaced = _of_base(base_tree, head_tree)
    broken = list(dict.fromkeys((*head_tree.problems, *lost)))
    problems += replaced
    budget, of_budget = effective(base_tree, head_tree, today)
    problems += of_budget
    new, spent = split_spent(head_tree.approvals, base_tree.approvals)

    def between(agent: str) -> Sequence[Baseline]:
        return anchors_between(repo, base_rev, str(head.rev), settings, agent)

    evidence = judge_draws(draws_of({**head_tree.anchors, **base_tree.anchors}, run.tasks, budget))
    past = base_tree.approvals
    kept = {write_approval(approval) for approval in head_tree.approvals}  # all that it says, under whatever name
    gone = tuple(approval for approval in past if write_approval(approval) not in kept)
    revs = [rev for rev in (base_rev, head.rev) if rev is not None]
    capacity = None
    if any(budget.capacity.values()):  # else nothing is priced
        from pytest_fanout.gate.capacity_limits import CapacityLimits

        capacity = CapacityLimits(budget, run, {**head_tree.anchors, **base_tree.anchors}, repo, revs, settings)
    grounds = Grounds(run, budget, new, spent, past, gone, today, now, between, base_tree.lost, evidence, capacity)
    # whatever the run itself says of its classes: a trial of a class that nobody lists is judged as well
    measured = {task.agent for task in run.tasks}
    agents = sorted({*run.agents, *run.definitions, *measured, *head_tree.anchors, *base_tree.anchors})
    problems += _of_no_class(run, agents, base_tree.budget, head_tree.budget)
    results = []
    for agent in agents:
        mine = [problem for problem in broken if problem.agent == agent]
        if not mine and _is_left_out(run, agent):
            continue
        result = judge_class(agent, base_tree.anchors.get(agent), head_tree.anchors.get(agent), grounds)
        if mine:
            result = replace(result, verdict="integrity", problems=(*mine, *result.problems))
        results.append(result)
    results = with_inherited(results, run, repo, settings, (base, head), (base_tree, head_tree))
    known = {result.agent for result in results}
    problems += [problem for problem in broken if problem.agent not in known]
    problems += [problem for problem in run.problems if problem.agent is not None and problem.agent not in known]
    if base.rev is None:
        # without a base nothing is within budget, whatever the numbers beside HEAD's own anchor look like
        results = [replace(result, verdict=worst((result.verdict, "no-base"))) for result in results]
    return _verdict(run, results, problems, base, head, settings, budget)


def _of_commits(repo: Repository | None, base: Base, head: Head) -> list[Problem]:
    if repo is None:
        return [
            Problem(
                "no-git-repository",
                "the project is in no git repository, so that there is no base to compare with; "
                "mend: git init, and commit the project",
                "no-base",
            )
        ]
    if head.rev is None:
        return [Problem("no-commit", "HEAD has no commit yet; mend: commit the project first", "no-base")]
    if repo.resolve(head.rev) is None:
        return [
            Problem(
                "no-base", f"the measured commit {head.rev[:12]} is not in this clone; mend: {FETCH_DEPTH}", "no-base"
            )
        ]
    if base.rev is None:
        return [Problem("no-base", base.problem or f"no base commit was found; mend: {FETCH_DEPTH}", "no-base")]
    if repo.resolve(base.rev) is None:
        return [
            Problem("no-base", f"the base commit {base.rev[:12]} is not in this clone; mend: {FETCH_DEPTH}", "no-base")
        ]
    problems = []
    if not base.is_gate or base.rev == head.rev:
        problems.append(Problem("not-a-gate", f"not a gate result: the base ({base.source}) is HEAD itself", "notice"))
    if head.dirty:
        problems.append(
            Problem(
                "uncommitted",
                "the work tree differs from HEAD: budget, fleet, anchors and approvals were read from commits; agents, "
                "eval sets and recordings ran as they stand in the work tree",
                "notice",
            )
        )
    return problems


def _of_base(base: Tree, head: Tree) -> tuple[list[Problem], list[Problem]]:
    """What the base holds and cannot be read: as it stands where HEAD mends nothing; else as notices, for what HEAD
    holds in its place needs an approval of its own."""
    lost, replaced = [], []
    for name, found in base.unreadable.items():
        mended = head.lost(name) is None and (name in (*head.anchors, "budget", "fleet", ""))
        if not mended:
            lost.append(found.problem)
            continue
        text = found.problem.text.partition("; mend: ")[0]
        words = f"{text}: what HEAD holds in its place needs an approval of its own"
        replaced.append(Problem("base-unreadable", words, "notice", found.problem.agent))
    return lost, replaced


def effective(base: Tree, head: Tree, today: date) -> tuple[Budget, tuple[Problem, ...]]:
    """The budget that holds between two commits, and what was loosened without an approval."""
    new, _ = split_spent(head.approvals, base.approvals)
    problems: list[Problem] = []
    budget = stricter(base.budget, head.budget)
    changes = looser(base.budget, head.budget)
    lost = base.lost("budget") is not None and head.lost("budget") is None
    if changes or lost:
        permit = find_budget_permit("budget", new, base.budget.digest, head.budget.digest, today)
        if permit.approval:
            budget = head.budget
            problems.append(Problem("budget-approved", f"budget.toml got looser, by {permit.approval.path}", "notice"))
        elif lost:
            problems.append(
                Problem(
                    "budget-replaced",
                    f"budget.toml stands in place of one that cannot be read, without an approval ({permit.why}); "
                    'mend: fanout-baseline accept --reason "…"',
                    "unapproved",
                )
            )
        else:
            shown = listed(f"{change.name} {_words(change.old)} -> {_words(change.new)}" for change in changes)
            problems.append(
                Problem(
                    "budget-loosened",
                    f"budget.toml got looser without an approval: {shown} ({permit.why}); "
                    'mend: fanout-baseline accept --reason "…"',
                    "unapproved",
                )
            )
    # whether other demand is looser cannot be told from the file alone, so that every change of it is reviewed
    if base.fleet is not None and base.fleet != head.fleet:
        permit = find_budget_permit("fleet", new, base.fleet, head.fleet, today)
        if permit.approval is None:
            problems.append(
                Problem(
                    "fleet-changed",
                    f"fleet.toml, or the calibration that it names, changed without an approval ({permit.why}); "
                    'mend: fanout-baseline accept --reason "…"',
                    "unapproved",
                )
            )
    return budget, tuple(problems)


def _of_no_class(run: Run, agents: Sequence[str], base: Budget, head: Budget) -> list[Problem]:
    """Entries of budget.toml for a class that is nowhere: a misspelt name would leave its limits out in silence."""
    names = sorted(set(head.limits) - {"default", *agents})
    if not names or run.session.partial or run.session.shard:
        return []
    # taking an old entry out needs an approval, so that one which outlives its class only informs
    verdict = "notice" if set(names) <= set(base.limits) else "invalid"
    text = (
        f"budget.toml has an entry for {', '.join(names)}, and no class is called so: it limits nothing; "
        f"mend: name one of {', '.join(agents) or 'no class at all'} in [agents.<class>]"
    )
    return [Problem("budget-of-no-class", text, verdict)]


def _words(value: int | str | None) -> str:
    return "nothing" if value is None else str(value)


def committed_budget(
    repo: Repository | None, settings: Settings, base: Base | None, head: Head | None, *, today: date
) -> tuple[Budget, tuple[Problem, ...]]:
    """The budget that a run is measured under: caps and measuring rules as committed, the stricter of base and HEAD
    unless an approval covers the step. Without git or commits: the defaults. Never raises for a malformed file."""
    if repo is None or head is None or head.rev is None:
        return parse_budget(None), ()
    tree = read_tree(repo, head.rev, settings, "HEAD")
    if base is None or base.rev in (None, head.rev):
        return tree.budget, tree.problems
    before = settings_at(repo, str(base.rev), settings)
    old = read_tree(repo, str(base.rev), before, "the base commit")
    budget, problems = effective(old, tree, today)
    return budget, (*tree.problems, *problems)


def read_anchors(repo: Repository, rev: str, settings: Settings) -> dict[str, Baseline]:
    """The anchors that a commit holds; those that cannot be read are left out (``evaluate`` reports them)."""
    return dict(read_tree(repo, rev, settings, rev).anchors)


def anchors_between(
    repo: Repository, base: str | None, head: str, settings: Settings, agent: str
) -> tuple[Baseline, ...]:
    """The anchors of a class that commits between two others held, newest first; broken ones are left out."""
    if base is None:
        return ()
    where = f"{folder_of(settings)}/{agent}.json"
    found = []
    for rev in repo.history(base, head, where):
        try:
            data = repo.read(rev, where)
            if data is not None:
                found.append(parse_baseline(data, agent, where, stats_of))
        except FanoutError:
            continue  # a broken anchor on the way is no link of a chain
    return tuple(found)


def _is_left_out(run: Run, agent: str) -> bool:
    """A class of which a partial run, or a shard, measured nothing is not judged at all."""
    if trials_of(run.tasks, agent):
        return False
    if any(problem.agent == agent and problem.slug == "spend-limit" for problem in run.problems):
        return False  # it was selected, and its turn never came
    return bool(run.session.shard) or (run.session.partial and not run.ci)


def _without_commit(run: Run) -> list[ClassResult]:
    return [
        ClassResult(agent, "no-base", "none", (), (), len(run.definitions.get(agent, {})), 0, 0)
        for agent in sorted(run.agents)
    ]


def _verdict(
    run: Run,
    classes: Sequence[ClassResult],
    problems: Sequence[Problem],
    base: Base,
    head: Head,
    settings: Settings,
    budget: Budget | None,
) -> Verdict:
    seen: dict[str, Problem] = {}
    for problem in problems:
        seen.setdefault(f"{problem.slug} {problem.text}", problem)
    verdict = worst(
        (
            *(result.verdict for result in classes),
            *(problem.verdict for problem in seen.values() if problem.verdict != "notice"),
        )
    )
    if run.session.shard and verdict in ("pass", "approved", "unapproved"):
        verdict = "shard"
    result = Verdict(verdict, tuple(classes), tuple(seen.values()), base, head)
    return replace(result, next=next_steps(result, run, folder_of(settings), to_commit(settings), budget))
