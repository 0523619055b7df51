"""Every verdict that the gate can reach, on real repositories with hand-made runs. TWENTY has p95 19 (limit 20)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import (
    EVALSET,
    TWENTY,
    World,
    git,
    make_run,
    redrawn,
    slugs,
    started,
    trial,
    with_trials,
    without,
)

from pytest_fanout.records import Problem, Run, SessionFacts, Totals

#: p95 19 -> 20 is within 19 x 1.1 = 20.9; 21 is over it. Tokens likewise: 1900, limit 2399 by at_least 500.
GROWN = {**TWENTY, "t19": [25], "t20": [25]}  # p95 25, tokens p95 2500
CEILINGS = {"fanout.p95": 27, "tokens.p95": 3000}


def same_run(world: World) -> Run:
    """The very run of the anchor."""
    return make_run()


def within_the_limit(world: World) -> Run:
    """p95 19 -> 20: one more, and not more than 10 %."""
    return make_run({**TWENTY, "t19": [20]})


def regression(world: World) -> Run:
    """p95 19 -> 25, nothing committed."""
    return make_run(GROWN)


def regression_of_tokens_alone(world: World) -> Run:
    """fanout as before, tokens p95 1900 -> 2400: 26 % and 500 more."""
    return with_trials(make_run(), ("t19", "t20"), samples={"input_tokens": 2380})


def tokens_just_within(world: World) -> Run:
    """Tokens p95 1900 -> 2399: 26 % more, and one token short of at_least."""
    return with_trials(make_run(), ("t19", "t20"), samples={"input_tokens": 2379, "output_tokens": 20})


def capped_stays_in(world: World) -> Run:
    """Two capped tasks at 25: they are the expensive ones and count."""
    return with_trials(make_run(GROWN), ("t19", "t20"), status="capped", passed=False)


def accepted_and_committed(world: World) -> Run:
    """Anchor at HEAD grew, an approval with ceilings covers it, and the run is the anchor's."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS)
    world.commit()
    return make_run(GROWN)


def accepted_but_not_committed(world: World) -> Run:
    """Both files stand in the work tree only: what is not committed allows nothing."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS)
    git(world.root, "add", "-A")
    return make_run(GROWN)


def approval_without_its_anchor(world: World) -> Run:
    """The approval is committed, the anchor is not."""
    world.approve(world.anchor(make_run()), CEILINGS)
    world.commit()
    return make_run(GROWN)


def anchor_without_its_approval(world: World) -> Run:
    """HEAD's anchor grew and nobody approved it."""
    world.anchor(make_run(GROWN))
    world.commit()
    return make_run(GROWN)


def creep_below_the_limit(world: World) -> Run:
    """p95 19 -> 20 is within the limit, yet an anchor never gets looser without approval."""
    world.anchor(make_run({**TWENTY, "t19": [20]}))
    world.commit()
    return make_run({**TWENTY, "t19": [20]})


def approval_too_small(world: World) -> Run:
    """Ceiling 24 for a growth to 25."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, {"fanout.p95": 24, "tokens.p95": 3000})
    world.commit()
    return make_run(GROWN)


def run_beyond_the_ceiling(world: World) -> Run:
    """The anchor is within the ceilings, a live run of it is not."""
    accepted_and_committed(world)
    return make_run({**TWENTY, "t19": [28], "t20": [28]}, mode="live")


def run_within_the_ceiling(world: World) -> Run:
    """Another draw than the anchor's, below the ceilings: no second review."""
    accepted_and_committed(world)
    return redrawn(make_run({**TWENTY, "t19": [26], "t20": [26]}))


def approval_of_another_evalset(world: World) -> Run:
    """The approval was given for other tasks."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS, evalset="sha256:" + "0" * 64)
    world.commit()
    return make_run(GROWN)


def approval_silent_on_a_metric(world: World) -> Run:
    """The approval has no ceiling for tokens.p95, which is gated too."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, {"fanout.p95": 27})
    world.commit()
    return make_run(GROWN)


def approval_from_elsewhere(world: World) -> Run:
    """The approval departs from an anchor that the base never had."""
    world.anchor(make_run(GROWN))
    world.approve(None, CEILINGS, from_digest="sha256:" + "1" * 64)
    world.commit()
    return make_run(GROWN)


def approval_too_old(world: World) -> Run:
    """31 days old; 30 are allowed."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS, requested_on="2026-10-29")
    world.commit()
    return make_run(GROWN)


def approval_just_in_time(world: World) -> Run:
    """30 days old."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS, requested_on="2026-10-30")
    world.commit()
    return make_run(GROWN)


def approval_of_the_future(world: World) -> Run:
    """Two days ahead; one is allowed for time zones."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS, requested_on="2026-12-01")
    world.commit()
    return make_run(GROWN)


def approval_on_another_branch(world: World) -> Run:
    """The approval exists, and not in HEAD's tree."""
    accepted_and_committed(world)
    git(world.root, "switch", "-q", "-c", "other", "main")
    world.anchor(make_run(GROWN))
    world.commit()
    return make_run(GROWN)


def approval_spent(world: World) -> Run:
    """Base holds the approval already: it was used, its anchor was reverted, and it is not used twice."""
    git(world.root, "switch", "-q", "main")
    world.approve(world.anchor(make_run()), CEILINGS)
    world.commit()
    git(world.root, "switch", "-q", "-c", "again")
    world.anchor(make_run(GROWN))
    world.commit()
    return make_run(GROWN)


def approval_spent_and_renamed(world: World) -> Run:
    """The same content under another name is still spent."""
    approval_spent(world)
    folder = world.folder / "baselines" / "approvals"
    (name,) = folder.glob("*.json")
    name.rename(name.with_name(name.stem + "-2.json"))
    world.commit()
    return make_run(GROWN)


def first_anchor_approved(world: World) -> Run:
    """A class of its own: the base knows nothing of it."""
    world.anchor(make_run(agent="triage"), "triage")
    world.approve(None, {"fanout.p95": 20, "tokens.p95": 2400}, subject="triage")
    world.commit()
    return make_run(agent="triage", agents=("triage",))


def first_anchor_unapproved(world: World) -> Run:
    """The first anchor of a class needs an approval as well."""
    world.anchor(make_run(agent="triage"), "triage")
    world.commit()
    return make_run(agent="triage", agents=("triage",))


def no_anchor(world: World) -> Run:
    """Neither commit knows the class."""
    return make_run(agent="triage", agents=("triage",))


def anchor_deleted(world: World) -> Run:
    """HEAD dropped the anchor, and the class still runs."""
    git(world.root, "rm", "-q", "baselines/support.json")
    world.commit()
    return make_run()


def tightened(world: World) -> Run:
    """A lower anchor needs no approval; the run reproduces it."""
    lower = make_run({**TWENTY, "t19": [18]})
    world.anchor(lower)
    world.commit()
    return lower


def lowered_falsely(world: World) -> Run:
    """The anchor says 15 where the run has 19: over the tighter bound, and not reproduced."""
    world.anchor(make_run({**TWENTY, "t16": [15], "t17": [15], "t18": [15], "t19": [15]}))
    world.commit()
    return make_run()


def edited_by_hand_with_the_digest(world: World) -> Run:
    """A lower anchor that names recordings which give other numbers, though all within the limit."""
    lower = make_run({**TWENTY, "t19": [18]})
    recordings = {task.task: task.recording for task in make_run().tasks}
    world.anchor(replace(lower, tasks=tuple(replace(t, recording=recordings[t.task]) for t in lower.tasks)))
    world.commit()
    return make_run()


def anchor_whose_recordings_are_gone(world: World) -> Run:
    """Approved and committed, then recorded anew: the recordings that the anchor names are gone."""
    accepted_and_committed(world)
    return with_trials(make_run(GROWN), "t20", recording="sha256:" + "9" * 64)


def lowered_while_fewer_pass(world: World) -> Run:
    """A lower anchor with failing trials: work left undone is no improvement."""
    lower = with_trials(make_run({**TWENTY, "t19": [18]}), "t19", passed=False)
    world.anchor(lower)
    world.commit()
    return lower


def task_removed_unapproved(world: World) -> Run:
    """The heaviest task left the anchor and the eval set."""
    fewer = without(make_run(), "t20", defined=False)
    world.anchor(fewer)
    world.commit()
    return fewer


def task_removed_approved(world: World) -> Run:
    """The same with an approval."""
    old = world.anchor(make_run())
    task_removed_unapproved(world)
    world.approve(old, {"fanout.p95": 20, "tokens.p95": 2400})
    world.commit()
    return without(make_run(), "t20", defined=False)


def task_removed_from_the_evalset_only(world: World) -> Run:
    """The anchor still names it: it is expected, and it did not run."""
    return without(make_run(), "t20", defined=False)


def task_redefined(world: World) -> Run:
    """An easier input under the same id, recorded anew; the anchor was left alone."""
    easier = with_trials(make_run({**TWENTY, "t20": [2]}), "t20", definition="sha256:" + "d" * 64)
    return replace(easier, definitions={"support": {**easier.definitions["support"], "t20": "sha256:" + "d" * 64}})


def task_redefined_in_the_anchor(world: World) -> Run:
    """The same, and the anchor moved with it: lower, and still to be approved."""
    easier = task_redefined(world)
    world.anchor(easier)
    world.commit()
    return easier


def diluted_by_cheap_tasks(world: World) -> Run:
    """Twenty cheap tasks hide that t19 and t20 grew: all-task p95 is 18, that of the common tasks 25."""
    return make_run({**GROWN, **{f"cheap{number:02d}": [1] for number in range(40)}})


def diluted_in_the_anchor_too(world: World) -> Run:
    """The same with the anchor moved: the common tasks show it."""
    run = diluted_by_cheap_tasks(world)
    world.anchor(run)
    world.commit()
    return run


def task_missing(world: World) -> Run:
    """A task of the anchor has no completed run."""
    return without(make_run(), "t07")


def trial_missing(world: World) -> Run:
    """On the anchor's own recordings, a trial that it names is gone."""
    git(world.root, "switch", "-q", "main")
    world.anchor(make_run({**TWENTY, "t20": [20, 30]}))
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit()
    return make_run()


def worker_crashed(world: World) -> Run:
    """A crashed trial was not measured."""
    return with_trials(make_run(), "t07", status="crashed")


def one_trial_crashed(world: World) -> Run:
    """One trial of two died: it may have been the expensive one."""
    run = make_run()
    return replace(run, tasks=(*run.tasks, trial("support", "t07", 2, 7, status="crashed")))


def stale_task(world: World) -> Run:
    """A task asks what its recording does not hold; the others are fine."""
    return with_trials(make_run(), "t07", status="stale")


def silent_task(world: World) -> Run:
    """No counted call in one task."""
    return with_trials(make_run(), "t07", samples={"fanout": 0})


def silent_by_its_line(world: World) -> Run:
    """The eval line says that it makes no call; its anchor says so too."""
    quiet = with_trials(make_run(), "t01", samples={"fanout": 0}, no_calls=True)
    git(world.root, "switch", "-q", "main")
    world.anchor(quiet)
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit()
    return quiet


def usage_unknown(world: World) -> Run:
    """12 of 210 calls without usage are 5.7 %."""
    return with_trials(make_run(), "t12", unknown_usage=12)


def usage_mostly_known(world: World) -> Run:
    """10 of 210 calls without usage are 4.8 %, and below the percentile."""
    return with_trials(make_run(), "t10", unknown_usage=10)


def usage_lost(world: World) -> Run:
    """The usage of the two heaviest tasks is unknown, so that p95 of tokens is."""
    return with_trials(make_run(), ("t19", "t20"), samples={"output_tokens": None})


def times_lost(world: World) -> Run:
    """The recordings of two tasks were imported from cassettes, which hold no durations, and a limit is on them."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/budget.toml", 'schema = 1\n[agents.support.limits]\n"duration_ms.p95" = { max = 900 }\n')
    world.commit()
    git(world.root, "switch", "-q", "feature")
    git(world.root, "merge", "-q", "main")
    return with_trials(make_run(), ("t19", "t20"), samples={"duration_ms": None})


def unattributed(world: World) -> Run:
    """Calls that nobody owns."""
    return make_run(totals=Totals(unattributed=1))


def unclassified(world: World) -> Run:
    """Requests to a model endpoint that no codec reads."""
    return make_run(totals=Totals(unclassified=1))


def hook_failed(world: World) -> Run:
    """A problem of the session counts for the run as a whole."""
    return make_run(problems=(Problem("hook-failed", "the httpx hook does not count", "invalid"),))


def unknown_verdict_word(world: World) -> Run:
    """A problem with a verdict that this version does not know is no reason to pass."""
    return make_run(problems=(Problem("new", "from a later version", "quarantined"),))


def partial_here(world: World) -> Run:
    """A12: -k on a developer's machine; what ran is judged."""
    run = make_run()
    return replace(
        run,
        tasks=tuple(task for task in run.tasks if task.task == "t07"),
        session=SessionFacts(expected=20, collected=1, ran=1, deselected=19, partial=True),
    )


def partial_here_regressed(world: World) -> Run:
    """A12: the task that ran grew from 7 to 9; its own anchor values are what it is compared with."""
    run = make_run({**TWENTY, "t07": [9]})
    return replace(
        run, tasks=tuple(t for t in run.tasks if t.task == "t07"), session=SessionFacts(partial=True, expected=20)
    )


def partial_in_ci(world: World) -> Run:
    """A12: the same in CI."""
    return replace(partial_here(world), ci=True)


def lost_without_selection(world: World) -> Run:
    """A12: tasks are missing and no selection explains it."""
    return replace(partial_here(world), session=SessionFacts(expected=20, collected=20, ran=1))


def stopped_early(world: World) -> Run:
    """A12: -x after a failure."""
    return replace(make_run(), session=SessionFacts(expected=20, ran=20, pytest_exit=1, stopped="-x"))


def pytest_interrupted(world: World) -> Run:
    """A12: pytest's own exit 2 is never a pass."""
    return replace(make_run(), session=SessionFacts(expected=20, ran=20, pytest_exit=2))


def nothing_ran(world: World) -> Run:
    """A12: 0 of n, even as a partial run on a developer's machine."""
    return replace(make_run(), tasks=(), session=SessionFacts(expected=20, deselected=20, partial=True))


def shard(world: World) -> Run:
    """Half of the tasks, all of them measured."""
    half = [f"t{number:02d}" for number in range(1, 11)]
    return replace(without(make_run(GROWN), *half), session=SessionFacts(expected=10, ran=10, shard="2/2"))


def shard_with_a_hole(world: World) -> Run:
    """A shard that lost one of its own tasks."""
    return without(shard(world), "t20")


def max_exceeded(world: World) -> Run:
    """A maximum is raw: 25 > 22, approved or not."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/budget.toml", 'schema = 1\n[agents.support.limits]\n"fanout.p95" = { max = 22 }\n')
    world.commit()
    git(world.root, "switch", "-q", "feature")
    git(world.root, "merge", "-q", "main")
    return accepted_and_committed(world)


def waiver(world: World, **changes: object) -> Run:
    """An emergency: over the limit, waived for two days."""
    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_000_000, **changes)
    world.commit()
    return make_run(GROWN)


def waiver_of_stale(world: World) -> Run:
    """A waiver lets stale recordings pass, too."""
    waiver(world)
    return stale_task(world)


def waiver_of_capped(world: World) -> Run:
    """Caps still hold."""
    waiver(world)
    return capped_stays_in(world)


def waiver_of_a_maximum(world: World) -> Run:
    """A maximum still holds."""
    max_exceeded(world)
    waiver(world)
    git(world.root, "checkout", "-q", "main", "--", "baselines/support.json")
    world.commit()
    return make_run(GROWN)


def dilution_approved_by_its_own_p95(world: World) -> Run:
    """p95 of all tasks is 18 and covered up to 20; that of the common tasks is 25 and is not."""
    old = world.anchor(make_run())
    run = diluted_in_the_anchor_too(world)
    world.approve(old, {"fanout.p95": 20, "tokens.p95": 2400})
    world.commit()
    return run


def waiver_of_missing(world: World) -> Run:
    """What was not measured for another reason is not waived."""
    waiver(world)
    return task_missing(world)


def waiver_of_another_class(world: World) -> Run:
    """A waiver names one class."""
    return waiver(world, subject="triage")


def class_given_up(world: World) -> Run:
    """The settings dropped a class and its anchor was left: it is expected, and did not run."""
    world.anchor(make_run(agent="triage"), "triage")
    world.commit()
    git(world.root, "branch", "-f", "main")
    world.commit()
    return make_run()


def class_given_up_unapproved(world: World) -> Run:
    """The anchor went as well, without an approval."""
    class_given_up(world)
    git(world.root, "rm", "-q", "baselines/triage.json")
    world.commit()
    return make_run()


def class_given_up_approved(world: World) -> Run:
    """The same with an approval that has no ceilings."""
    gone = world.anchor(make_run(agent="triage"), "triage")
    class_given_up_unapproved(world)
    world.approve(gone, {}, subject="triage", evalset=None)
    world.commit()
    return make_run()


def class_given_up_by_a_growth_approval(world: World) -> Run:
    """An approval of a growth does not let the class go."""
    gone = world.anchor(make_run(agent="triage"), "triage")
    class_given_up_unapproved(world)
    world.approve(gone, CEILINGS, subject="triage", evalset=None)
    world.commit()
    return make_run()


def looser_budget(world: World) -> Run:
    """The limit was raised in the same change; the base's still holds, and nobody approved."""
    world.write("baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "50%" }\n')
    world.commit()
    return make_run()


def stricter_budget(world: World) -> Run:
    """A stricter limit counts at once: 19 -> 20 is more than 2 %."""
    text = '"fanout.p95" = { increase = "2%", at_least = 1 }\n"tokens.p95" = { increase = "10%", at_least = 500 }\n'
    world.write("baselines/budget.toml", f"schema = 1\n[default.limits]\n{text}")
    world.commit()
    return within_the_limit(world)


def no_tokens_limit(world: World) -> Run:
    """A limit that is dropped in the change still holds: the stricter of both budgets is used."""
    world.write(
        "baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "10%", at_least = 1 }\n'
    )
    world.commit()
    return make_run()


SCENARIOS: list[tuple[Callable[[World], Run], str, str | None]] = [
    (same_run, "pass", None),
    (within_the_limit, "pass", None),
    (regression, "regressed", "over-limit"),
    (regression_of_tokens_alone, "regressed", "over-limit"),
    (tokens_just_within, "pass", None),
    (capped_stays_in, "regressed", "over-limit"),
    (accepted_and_committed, "approved", None),
    (accepted_but_not_committed, "regressed", "over-limit"),
    (approval_without_its_anchor, "regressed", "anchor-not-committed"),
    (anchor_without_its_approval, "unapproved", "unapproved"),
    (creep_below_the_limit, "unapproved", "unapproved"),
    (approval_too_small, "unapproved", "unapproved"),
    (run_beyond_the_ceiling, "regressed", "over-ceiling"),
    (run_within_the_ceiling, "approved", "noise-not-considered"),
    (approval_of_another_evalset, "unapproved", "unapproved"),
    (approval_silent_on_a_metric, "unapproved", "unapproved"),
    (approval_from_elsewhere, "unapproved", "unapproved"),
    (approval_too_old, "unapproved", "unapproved"),
    (approval_just_in_time, "approved", None),
    (approval_of_the_future, "unapproved", "unapproved"),
    (approval_on_another_branch, "unapproved", "unapproved"),
    (approval_spent, "unapproved", "unapproved"),
    (approval_spent_and_renamed, "unapproved", "unapproved"),
    (tightened, "pass", None),
    (lowered_falsely, "mismatch", "over-limit"),
    (edited_by_hand_with_the_digest, "mismatch", "mismatch"),
    (anchor_whose_recordings_are_gone, "mismatch", "mismatch"),
    (lowered_while_fewer_pass, "unapproved", "unapproved"),
    (task_removed_unapproved, "unapproved", "unapproved"),
    (task_removed_approved, "approved", None),
    (task_removed_from_the_evalset_only, "incomplete", "tasks-removed"),
    (task_redefined, "unapproved", "tasks-redefined"),
    (task_redefined_in_the_anchor, "unapproved", "unapproved"),
    (diluted_by_cheap_tasks, "regressed", "over-limit"),
    (diluted_in_the_anchor_too, "unapproved", "unapproved"),
    (task_missing, "incomplete", "tasks-missing"),
    (trial_missing, "incomplete", "trials-missing"),
    (worker_crashed, "incomplete", "trial-crashed"),
    (one_trial_crashed, "incomplete", "trial-crashed"),
    (stale_task, "stale", "stale"),
    (silent_task, "invalid", "no-calls"),
    (silent_by_its_line, "pass", None),
    (usage_unknown, "invalid", "usage-unknown"),
    (usage_mostly_known, "pass", None),
    (usage_lost, "invalid", "value-unknown"),
    (times_lost, "invalid", "value-unknown"),
    (unattributed, "invalid", "unattributed-calls"),
    (unclassified, "invalid", "unclassified-calls"),
    (hook_failed, "invalid", "hook-failed"),
    (unknown_verdict_word, "invalid", "new"),
    (partial_here, "pass", "partial-run"),
    (partial_here_regressed, "regressed", "partial-run"),
    (partial_in_ci, "incomplete", "tasks-missing"),
    (lost_without_selection, "incomplete", "tasks-missing"),
    (stopped_early, "incomplete", "stopped-early"),
    (pytest_interrupted, "incomplete", "pytest-stopped"),
    (nothing_ran, "incomplete", "nothing-measured"),
    (shard, "shard", None),
    (shard_with_a_hole, "incomplete", "tasks-missing"),
    (max_exceeded, "regressed", "over-max"),
    (waiver, "waived", "over-limit"),
    (waiver_of_stale, "waived", "stale"),
    (waiver_of_capped, "regressed", "over-limit"),
    (waiver_of_a_maximum, "regressed", "over-max"),
    (dilution_approved_by_its_own_p95, "unapproved", "unapproved"),
    (waiver_of_missing, "incomplete", "tasks-missing"),
    (waiver_of_another_class, "regressed", "over-limit"),
    (class_given_up, "incomplete", "tasks-missing"),
    (class_given_up_unapproved, "unapproved", "unapproved"),
    (class_given_up_approved, "approved", None),
    (class_given_up_by_a_growth_approval, "unapproved", "unapproved"),
    (looser_budget, "unapproved", "budget-loosened"),
    (stricter_budget, "regressed", "over-limit"),
    (no_tokens_limit, "unapproved", "budget-loosened"),
    (anchor_deleted, "unapproved", "anchor-removed"),
]
#: Scenarios of a second class; the first one runs beside it.
SECOND_CLASS = [
    (first_anchor_approved, "approved", None),
    (first_anchor_unapproved, "unapproved", "unapproved"),
    (no_anchor, "no-baseline", "no-baseline"),
]


@pytest.mark.parametrize(
    ("scenario", "verdict", "slug"), SCENARIOS, ids=[scenario.__name__ for scenario, _, _ in SCENARIOS]
)
def test_each_scenario_has_its_verdict(
    tmp_path: Path, scenario: Callable[[World], Run], verdict: str, slug: str | None
) -> None:
    """The worst class decides, and the verdict names the reason by its slug."""
    world = started(tmp_path / "project")
    run = scenario(world)

    found = world.judge(run)

    assert found.verdict == verdict, found
    assert slug is None or slug in slugs(found)


@pytest.mark.parametrize(("scenario", "verdict", "slug"), SECOND_CLASS, ids=[s.__name__ for s, _, _ in SECOND_CLASS])
def test_a_class_that_the_base_does_not_know(
    tmp_path: Path, scenario: Callable[[World], Run], verdict: str, slug: str | None
) -> None:
    """A first anchor needs an approval from nothing; without an anchor there is no baseline."""
    world = started(tmp_path / "project")
    second, first = scenario(world), make_run()
    both = replace(
        first,
        agents=("support", "triage"),
        tasks=(*first.tasks, *second.tasks),
        definitions={**first.definitions, **second.definitions},
        evalsets={"support": EVALSET, "triage": EVALSET},
    )

    found = world.judge(both)

    assert {result.agent: result.verdict for result in found.classes} == {"support": "pass", "triage": verdict}
    assert found.verdict == verdict
    assert slug is None or slug in slugs(found)
