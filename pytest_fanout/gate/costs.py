"""What a verdict costs and why: capacity and call sites of each class, anchor beside run, added to the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_fanout.capacity.plan import plan_fleet, with_windows
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, profile_of, project_sides, sides_of
from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.explain.sites import compare_sites
from pytest_fanout.gate.classes import worst
from pytest_fanout.gate.fleet import calibration_of, fleet_of, samples_of_anchor, samples_of_run
from pytest_fanout.gate.tree import problem_of, read_sites, read_tree
from pytest_fanout.records import (
    MEASURED,
    Baseline,
    Caps,
    Problem,
    Projection,
    Run,
    SiteDelta,
    Verdict,
)
from pytest_fanout.store.fleet import parse_fleet
from pytest_fanout.store.git import Repository

#: Their numbers, or those of the tasks that are left, would pass for a projection of the class.
_NOT_MEASURED = frozenset({"invalid", "incomplete", "stale", "integrity"})
#: Verdicts of classes whose growth is explained without being asked for.
EXPLAINED = frozenset({"regressed", "inconclusive", "unapproved", "approved", "waived"})


def with_costs(
    verdict: Verdict,
    run: Run,
    repo: Repository | None,
    settings: Settings,
    *,
    profiles: Sequence[Profile] = (),
    weights: Mapping[str, Mapping[str, float]] | None = None,
    caps: Mapping[str, Caps] | None = None,
) -> Verdict:
    """The verdict with its projections and call sites. A file that cannot be read is a problem, never a gap.

    The anchor beside the run is that of the base commit, or HEAD's where the base has none. The fleet is the one of
    the work tree: a planner who edits it sees what it does; the gate judges none of it.

    Args:
        weights: share of each task in production, by class.
        caps: what a task may take at most, by class.
    """
    problems: list[Problem] = []
    fleet, calibration = parse_fleet(None, "fleet.toml"), None
    try:
        found = fleet_of(settings)
        calibration, fleet = calibration_of(settings, found), found
    except FanoutError as error:
        problems.append(problem_of(error, "invalid"))
    anchors = anchors_beside(verdict.base.rev, verdict.head.rev, repo, settings)
    projections: list[Projection] = []
    sites: list[SiteDelta] = []
    priced: list[Sides] = []
    for result in verdict.classes:
        trials = [task for task in run.tasks if task.agent == result.agent and task.status in MEASURED]
        if not trials or result.verdict in _NOT_MEASURED:
            continue
        anchor, rev = anchors.get(result.agent, (None, None))
        try:
            share = {task.task: (weights or {}).get(result.agent, {}).get(task.task, 1.0) for task in trials}
            base = samples_of_anchor(anchor) if anchor else None
            if base is not None and (run.session.partial or run.session.shard):
                base = {task: samples for task, samples in base.items() if task in share}
            if base is not None:
                share |= {task: 1.0 for task in base if task not in share}
            sides = sides_of(result.agent, base, samples_of_run(trials), fleet, share)
            profile = profile_of(fleet, profiles, calibration)
            projections.append(project_sides(sides, fleet, profile, share, calibration))
            priced.append(sides)
        except FanoutError as error:
            problems.append(problem_of(error, "invalid", result.agent))
        # sites are known for the class as a whole: beside other tasks they would show what nobody changed
        same_tasks = anchor is not None and set(anchor.tasks) == {task.task for task in trials}
        if repo is not None and rev is not None and same_tasks:
            try:
                sites += compare_sites(result.agent, read_sites(repo, rev, settings, result.agent), trials)
            except FanoutError as error:
                problems.append(problem_of(error, "integrity", result.agent))
    plan = None
    # a part of the tasks, or of the classes, is not the fleet
    if len(priced) == len(verdict.classes) and priced and not (run.session.partial or run.session.shard):
        profile = profile_of(fleet, profiles, calibration)
        planned = plan_fleet(priced, fleet, profile, calibration, caps or {})
        plan = planned.fleet
        projections = [with_windows(item, planned, profile, fleet) for item in projections]
    return replace(
        verdict,
        fleet=plan,
        verdict=worst((verdict.verdict, *(problem.verdict for problem in problems))),
        problems=(*verdict.problems, *problems),
        projections=tuple(projections),
        sites=tuple(sites),
    )


def anchors_beside(
    base: str | None, head: str | None, repo: Repository | None, settings: Settings
) -> dict[str, tuple[Baseline, str]]:
    """The anchor to compare with, by class, and the commit that holds it: the base's, or else HEAD's."""
    found: dict[str, tuple[Baseline, str]] = {}
    if repo is None:
        return found
    for rev in (head, base):
        if rev is not None and repo.resolve(rev) is not None:
            anchors = read_tree(repo, rev, settings, rev).anchors
            found |= {agent: (anchor, rev) for agent, anchor in anchors.items()}
    return found
