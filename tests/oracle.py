"""What keeps a made world from being green, by section 6 of the design alone: each reason in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from naive_gate import NaiveLimit, Trials, by_task, covers, looser, over, over_max, value, waives, within
from oracle_worlds import Made

from pytest_fanout.records import MEASURED, TaskRun


def reasons(world: Made) -> list[str]:
    """Each reason why this world is not green. None: evidence, or what is not said here, may still keep it from it."""
    base, head, run = (by_task(made.tasks) for made in (world.base, world.head, world.run))
    found = list(_whatever_is_waived(world, base, head, run))
    if not any(waives(approval) for approval in world.approvals):
        found += _unless_waived(world, run)
        if run and not _is_permitted(world, head, run):
            for side, anchor in (("base", base), ("HEAD", head)):
                found += (f"{reason} ({side}'s anchor)" for reason in _grown(world, anchor, run, side))
    return found


def _limits(world: Made) -> Sequence[NaiveLimit]:
    return tuple(dict.fromkeys((*world.limits, *world.head_limits)))


def _whatever_is_waived(world: Made, base: Trials, head: Trials, run: Trials) -> Iterator[str]:
    stale = {made.task for made in world.run.tasks if made.status == "stale"}
    for task in world.run.definitions["support"]:
        if task not in run and task not in stale:
            yield f"missing: {task} has no measured trial"
    for made in world.run.tasks:
        if made.status not in (*MEASURED, "stale"):
            yield f"missing: trial {made.trial} of {made.task} is {made.status}"
    if all(not made.new_draw for made in world.run.tasks):
        ran = {(made.task, made.recording) for made in world.run.tasks}
        for task in head.keys() & world.run.definitions["support"].keys():
            if any((task, made.recording) not in ran for made in head[task]):
                yield f"missing: a trial of {task} that HEAD's anchor names"
    for task, row in run.items():
        if all(value(made, "fanout", 1) == 0 for made in row):
            yield f"silent: {task} has no counted call"
    for limit in _limits(world):
        if over_max(limit, run):
            yield f"max: {limit.name} is above it"
    if looser(world.limits, base, head) and not _is_permitted(world, head, run):
        yield "anchor: it got looser"
    if world.is_looser:
        yield "budget: it got looser"
    if world.run.totals.unattributed:
        yield "invalid: a call of nobody"
    calls = [(made.unknown_usage, value(made, "fanout", 1)) for row in run.values() for made in row]
    unknown, every = (sum(row[place] for row in calls) for place in range(2))
    if 20 * unknown > every and any(limit.metric == "tokens" for limit in _limits(world)):
        yield "invalid: of more than 5 % of the calls nobody knows the usage"
    if world.base != world.head and not _is_reproduced(world, head):
        yield "anchor: its own recordings do not give it"


def _is_permitted(world: Made, head: Trials, run: Trials) -> bool:
    origin, evalset = world.anchor("base").digest, world.run.evalsets["support"]
    return any(
        covers(approval, origin, evalset, world.spent)
        and all(within(approval, world.limits, trials) for trials in (head, run) if trials)
        for approval in world.approvals
    )


def _is_reproduced(world: Made, head: Trials) -> bool:
    """Whether what the run replayed of HEAD's anchor gave the gated numbers once more; in replay that is all of it."""
    ran = {(made.task, made.recording): made for made in world.run.tasks if made.status in MEASURED}
    metrics = [limit.metric for limit in world.limits if limit.statistic != "share"]
    for made in (made for task, row in head.items() if task in {t for t, _ in ran} for made in row):
        again = ran.get((made.task, made.recording))
        if again is None and world.run.mode == "replay":
            return False
        if again is not None and any(value(again, name, -1) != value(made, name, -1) for name in metrics):
            return False
    return True


def _unless_waived(world: Made, run: Trials) -> Iterator[str]:
    for made in world.run.tasks:
        if made.status == "stale":
            yield f"stale: trial {made.trial} of {made.task}"
    if not run:
        yield "missing: nothing was measured"


def _grown(world: Made, anchor: Trials, run: Trials, side: str) -> Iterator[str]:
    """Growth beside an anchor that is over a limit whatever evidence says."""
    named = {(task, made.recording) for task, row in anchor.items() for made in row}
    replayed = {
        task: row
        for task, row in run.items()
        if all(not made.new_draw and (task, made.recording) in named for made in row)
    }
    new = {task: row for task, row in run.items() if task not in anchor}
    old = {task: row for task, row in run.items() if task in anchor}
    names = [limit.name for limit in _limits(world)]
    same = bool(old) and replayed.keys() == old.keys()
    for limit in _limits(world):
        if same and over(limit, anchor, run):
            yield f"same draw: {limit.name} is over"
        if not limit.evidence and over(limit, anchor, run):
            yield f"raw: {limit.name} is over, and evidence is off"
        if replayed and over(limit, anchor, {**anchor, **replayed}):
            yield f"mixed draw: {limit.name} is over by the tasks that replay alone"
        is_alike = all(_alike(anchor[task], row, limit.metric) for task, row in old.items())
        if new and is_alike and over(limit, anchor, {**anchor, **new}):
            yield f"new tasks: {limit.name} is over by them alone"
        if side == "base" and old.keys() == anchor.keys() and not new and limit.increase is not None:
            repeats = limit.statistic != "share" and sum(len(row) - 1 for row in anchor.values()) >= 10
            if repeats and all(_has_no_noise(t, limit.metric) for t in (anchor, run)) and over(limit, anchor, run):
                yield f"no noise: {limit.name} is over"
            if limit.statistic != "share" and all(_is_far(anchor[task], run[task], limit) for task in anchor):
                yield f"far above: every trial of {limit.metric}"
    for limit in _limits(world):
        if limit.increase is not None and limit.statistic != "share" and side == "base" and not new:
            for task in old:
                if _runs_away(anchor, old, task, limit):
                    yield f"runaway: {task} by {limit.metric}"
    by_evidence = [limit for limit in _limits(world) if limit.evidence and limit.increase is not None]
    noisy = [
        e for e in by_evidence if e.statistic != "share" and not all(_has_no_noise(t, e.metric) for t in (anchor, run))
    ]
    if world.base == world.head and 0 < len(run) < 10 and not replayed and noisy and old:
        yield f"few tasks: {len(run)} of another draw"
    if side == "base" and old and not new and "capped.share" not in names and not _count(anchor, "capped"):
        yield from ["stopped: every trial is capped"] * (_count(old, "capped") == sum(map(len, old.values())))
    if same and not new:
        for status, share in (("capped", "capped.share"), ("timeout", "failed.share")):
            more = _count(run, status) > _count({task: anchor[task] for task in run}, status)
            if more and share not in names:
                yield f"stopped: more trials are {status}"


def _count(trials: Mapping[str, Sequence[TaskRun]], status: str) -> int:
    return sum(made.status == status for row in trials.values() for made in row)


def _has_no_noise(trials: Trials, metric: str) -> bool:
    return all(len({value(made, metric, -1) for made in row}) == 1 for row in trials.values())


def _alike(before: Sequence[TaskRun], after: Sequence[TaskRun], metric: str) -> bool:
    return [value(made, metric, -1) for made in before] == [value(made, metric, -1) for made in after]


def _runs_away(anchor: Trials, run: Trials, task: str, limit: NaiveLimit) -> bool:
    """Two trials and half of them above three times all that the task did, and no other trial anywhere so much as
    twice what its task did least."""
    most = max(value(made, limit.metric, 0) for made in anchor[task])
    far = [value(made, limit.metric, 0) > 3 * most + 10 * max(limit.at_least, 1) for made in run[task]]
    others = [anchor[name] for name in anchor] + [[*anchor[name], *run[name]] for name in run if name != task]
    return (
        sum(far) >= 2
        and 2 * sum(far) >= len(far)
        and len(run) >= 10
        and all(
            max(value(made, limit.metric, 0) for made in row) <= 2 * min(value(made, limit.metric, 0) for made in row)
            for row in others
        )
    )


def _is_far(before: Sequence[TaskRun], after: Sequence[TaskRun], limit: NaiveLimit) -> bool:
    """Each new trial is above three times all old ones, and ten times ``at_least`` more."""
    most = max(value(made, limit.metric, 0) for made in before)
    return min(value(made, limit.metric, 0) for made in after) > 3 * most + 10 * max(limit.at_least, 1)
