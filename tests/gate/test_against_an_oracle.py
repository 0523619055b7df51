"""The gate beside a second, naive statement of its contract: random small worlds, of which none may be falsely green.

Each world comes from its number alone. `naive_gate.py` and `oracle.py` were written from the pages of the contract and
say what keeps a run from being green; evidence may find more. Longer: `ORACLE_WORLDS=2000 pytest` on this file.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from drawn_agents import calls
from gate_world import NOW, TODAY, World
from naive_gate import NaiveLimit, by_task, figure, over
from oracle import reasons
from oracle_worlds import Made, anew, one, times, whole, world_of

from pytest_fanout.gate import accept, combine, evaluate
from pytest_fanout.records import Base, ClassResult, Head, Run, Totals, Verdict
from pytest_fanout.store.approvals import parse_approval

GREEN = ("within", "waived")
WORLDS = int(os.environ.get("ORACLE_WORLDS", "36"))
#: Worlds that were falsely green once.
KNOWN = (93, 582)


@cache
def verdict_of(number: int) -> Verdict:
    return world_of(number).judged()


def numbers(step: int = 1) -> Iterator[int]:
    yield from range(0, WORLDS, step)


def test_no_world_is_green_that_the_contract_keeps_from_it() -> None:
    """Growth, gaps, maxima, anchors, budgets and approvals, recomputed as their pages say."""
    wrong = {}
    for number in (*numbers(), *KNOWN):
        world = world_of(number)
        if verdict_of(number).outcome in GREEN and (why := reasons(world)):
            wrong[number] = (verdict_of(number).verdict, world.about, why)

    assert wrong == {}


def test_the_worlds_are_of_all_kinds() -> None:
    """Each kind of reason occurs, and each verdict that a world without one may have."""
    kinds = Counter(reason.split(":")[0] for number in numbers() for reason in reasons(world_of(number)))
    verdicts = Counter(verdict_of(number).verdict for number in numbers())

    assert {"same draw", "mixed draw", "raw", "max", "anchor", "budget", "missing"} <= kinds.keys()
    assert {"pass", "regressed", "inconclusive", "incomplete", "unapproved", "invalid"} <= verdicts.keys()


def test_what_is_left_out_of_a_red_run_makes_it_no_greener() -> None:
    """One trial of it, or all trials of one task."""
    wrong = []
    for number in numbers(4):
        world, chance = world_of(number), random.Random(number)
        if verdict_of(number).outcome in GREEN or not world.run.tasks:
            continue
        gone = chance.choice(world.run.tasks)
        alone = replace(world.run, tasks=tuple(made for made in world.run.tasks if made is not gone))
        every = replace(world.run, tasks=tuple(made for made in world.run.tasks if made.task != gone.task))
        wrong += [(number, gone.task) for run in (alone, every) if world.judged(run).outcome in GREEN]

    assert wrong == []


def test_the_order_of_tasks_and_trials_decides_nothing() -> None:
    """The same classes, number by number and word by word."""
    for number in numbers(4):
        world, mixed = world_of(number), list(world_of(number).run.tasks)
        random.Random(number).shuffle(mixed)

        assert world.judged(replace(world.run, tasks=tuple(mixed))).classes == verdict_of(number).classes, number


def beside(world: Made, other: Made) -> Run:
    """The run with a class more, which replays its own anchor."""

    def named(run: Run) -> Run:
        return replace(run, tasks=tuple(replace(made, agent="aaa") for made in run.tasks))

    theirs = named(other.base)
    for side in ("base", "head"):
        mine: Run = getattr(world, side)
        setattr(world, side, replace(mine, tasks=(*mine.tasks, *theirs.tasks)))
    return replace(
        world.run,
        agents=("aaa", "support"),
        tasks=(*theirs.tasks, *world.run.tasks),
        definitions={**world.run.definitions, "aaa": other.base.definitions["support"]},
        evalsets={**world.run.evalsets, "aaa": other.base.evalsets["support"]},
    )


def test_a_second_class_changes_nothing_for_the_first() -> None:
    """Where it replays its anchor, so that no question of evidence is added."""

    def told(verdict: Verdict) -> list[object]:
        found: list[ClassResult] = [result for result in verdict.classes if result.agent == "support"]
        return [(r.verdict, r.draw, r.metrics, [problem.slug for problem in r.problems]) for r in found]

    for number in numbers(6):
        world = world_of(number)
        run = beside(world, world_of(1_000_000 + number))

        assert told(world.judged(run)) == told(verdict_of(number)), number


def dealt_out(run: Run, chance: random.Random) -> dict[str, Run]:
    """Shards of a run: each task goes to one of them by chance, and its trials come in any order."""
    count = chance.randint(1, 5)
    names = sorted({made.task for made in run.tasks} | run.definitions["support"].keys())
    home = {name: chance.randint(1, count) for name in names}
    parts = {}
    for number in range(1, count + 1):
        trials = [made for made in run.tasks if home[made.task] == number]
        chance.shuffle(trials)
        session = replace(run.session, shard=f"{number}/{count}", ran=len(trials), collected=len(trials))
        totals = run.totals if number == count else Totals()
        parts[f"{number}.json"] = replace(
            run, run_id=f"run-{number}", tasks=tuple(trials), session=session, totals=totals
        )
    return parts


def test_shards_that_are_dealt_by_chance_are_the_run_again() -> None:
    """The verdict on all of them together is that on the run, to the last word; none alone is within budget."""
    for number in numbers(6):
        world = world_of(number)
        parts = dealt_out(world.run, random.Random(number))

        assert world.judged(combine(parts)) == verdict_of(number), number
        assert all(world.judged(part).outcome not in GREEN for part in parts.values()), number


def test_an_unchanged_run_on_an_unchanged_tree_is_green() -> None:
    """The anchor's own numbers, unless above a maximum; drawn anew they are at least not regressed."""
    for number in numbers(4):
        world = world_of(number)
        world.head = world.run = world.base
        world.head_limits, world.head_judge, world.is_looser = world.limits, world.judge, False
        world.approvals = world.spent = ()
        if reasons(world):
            continue
        fresh = replace(world.base, mode="record", tasks=tuple(anew(made) for made in world.base.tasks))

        assert world.judged().verdict == "pass", number
        assert world.judged(fresh).verdict in ("pass", "inconclusive"), number


@pytest.mark.parametrize("number", [0, 5])
def test_two_commits_in_memory_are_judged_as_those_of_git(tmp_path: Path, number: int) -> None:
    """The worlds stand on no git; a real repository with the same files gives the same classes."""
    world, project = world_of(number), World.make(tmp_path / "project")
    revs = []
    for side in ("base", "head"):
        for name, data in world.files(side).items():
            project.write(name, data)
        revs.append(project.commit(side))
    run = replace(world.run, base=Base(revs[0], "test"), head=Head(revs[1]))

    found = evaluate(run, project.repo, project.settings, today=TODAY, now=NOW)

    assert found.verdict == verdict_of(number).verdict
    assert [r.metrics for r in found.classes] == [r.metrics for r in verdict_of(number).classes]


def test_the_naive_figures_are_worked_by_hand() -> None:
    """Tasks of 2, 3, 3 and 9 calls: half of them and more take 3 at most, and the mean is 4.25."""
    four = by_task([one(task, 1, calls) for task, calls in zip("abcd", (2, 3, 3, 9), strict=True)])

    names = ("p50", "p90", "p95", "max", "mean")
    assert [figure(four, f"fanout.{name}") for name in names] == [3, 9, 9, 9, 4]
    # one trial of 1 and one of 9 weigh as much as one task of two trials does: a half each of a half
    two = by_task([one("a", 1, 1), one("a", 2, 9), one("b", 1, 4)])
    assert (figure(two, "fanout.p50"), figure(two, "fanout.mean")) == (4, 5)
    more = by_task([one(task, 1, calls) for task, calls in zip("abcd", (2, 3, 3, 10), strict=True)])
    assert [over(NaiveLimit("fanout.p95", increase, 1), four, more) for increase in (10, 12)] == [True, False]


def test_a_recording_that_stands_for_another_one_is_a_trial_that_is_missing() -> None:
    """Trial 2 plays the cheaper recording of trial 1 again: its own, which the anchor names, never ran."""
    anchor = whole([one("a", 1, 2), one("a", 2, 9), one("b", 1, 3), one("b", 2, 3)])
    limits = (NaiveLimit("fanout.mean", 10, 1),)
    cheap = replace(one("a", 1, 2), trial=2)
    run = replace(anchor, tasks=(anchor.tasks[0], cheap, *anchor.tasks[2:]))

    found = Made(limits, anchor, anchor, run, limits).judged()

    assert [problem.slug for problem in found.classes[0].problems] == ["trials-missing"]
    assert Made(limits, anchor, anchor, anchor, limits).judged().verdict == "pass"


def test_an_edited_anchor_is_not_borne_out_by_a_run_that_records_little() -> None:
    """Within every limit, and other than its recordings say: they replay where the mode records as well."""
    base = whole([one(task, 1, 10) for task in "abcdefghij"])
    lower = replace(
        base, tasks=tuple(replace(m, samples=one(m.task, 1, 9 + (m.task > "b")).samples) for m in base.tasks)
    )
    limits = (NaiveLimit("fanout.mean", 50, 1),)

    for mode in ("replay", "record", "rerecord"):
        found = Made(limits, base, lower, replace(base, mode=mode), limits).judged()
        assert [problem.slug for problem in found.classes[0].problems] == ["mismatch"], mode


def drawn_dearer() -> tuple[Run, Run]:
    """An anchor, and another draw in which 12 of 20 tasks take 80 % more and p95 falls from 25 to 24."""
    before = calls(20, 5, seed=4, noise=0.2)
    after = calls(20, 5, seed=40, noise=0.12, times=lambda place: 1.8 if place < 12 else 0.9)
    old, new = (
        whole([one(task, number, value) for task, row in drawn.items() for number, value in enumerate(row, 1)])
        for drawn in (before, after)
    )
    return old, replace(new, mode="record", tasks=tuple(anew(made) for made in new.tasks))


def test_growth_that_evidence_found_is_not_accepted_without_approval() -> None:
    """The draw that was red is committed as the anchor, and replays itself: beside the base's anchor it is as red."""
    limits = (NaiveLimit("fanout.p95", 10, 1),)
    base, dearer = drawn_dearer()
    replayed = replace(dearer, mode="replay", tasks=tuple(replace(made, new_draw=False) for made in dearer.tasks))

    assert Made(limits, base, base, dearer, limits).judged().verdict == "regressed"
    found = Made(limits, base, replayed, replayed, limits).judged()
    assert [problem.slug for problem in found.classes[0].problems] == ["unapproved"]


def test_accept_writes_an_approval_for_growth_that_no_gated_number_shows(tmp_path: Path) -> None:
    """Its ceilings are 24 x 1.1 = 26; with it the next run of the same numbers is green, and one of others is not."""
    limits = (NaiveLimit("fanout.p95", 10, 1),)
    base, dearer = drawn_dearer()
    world, project = Made(limits, base, base, dearer, limits), World.make(tmp_path / "project")
    for name, data in world.files("base").items():
        project.write(name, data)
    project.commit("base")
    project.branch()
    origin = Base(project.repo.resolve("main"), "test")
    words = {"reason": "The planner now verifies its citations.", "requested_by": "dana@example.com"}

    done = accept(project.measured(dearer), project.repo, project.settings, today=TODAY, ci=False, base=origin, **words)

    (path,) = [name for name in done.written if "approvals" in name]
    approval = parse_approval((project.folder / path).read_bytes(), path)
    assert (approval.ceilings, [(c.name, c.old, c.new) for c in approval.changes]) == (
        {"fanout.p95": 26},
        [("fanout.p95", 25, 24)],
    )
    project.commit("accepted")
    replayed = replace(dearer, mode="replay", tasks=tuple(replace(made, new_draw=False) for made in dearer.tasks))
    more = replace(replayed, tasks=tuple(times(made, 1, 1) for made in replayed.tasks))
    assert [project.judge(run).verdict for run in (replayed, more)] == ["approved", "mismatch"]
