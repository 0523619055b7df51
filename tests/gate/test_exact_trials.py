"""What no chance explains: growth of tasks on the anchor's own recordings, and trials that a cap has stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drawn_agents import calls
from gate_world import EVALSET, NOW, TODAY, make_run, sha, trial, with_trials

from pytest_fanout.gate.classes import Grounds, judge_class
from pytest_fanout.gate.completeness import measure
from pytest_fanout.gate.draws import draws_of
from pytest_fanout.judge import judge_draws
from pytest_fanout.records import Approval, ClassResult, Run
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

BASE = calls(20, 5, seed=4)
NAMES = sorted(BASE)
#: One call and its tokens: what a trial has come to that was stopped right after it.
ONE = {"fanout": 1, "attempts": 1, "input_tokens": 80, "output_tokens": 20}
LIMITS = 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "10%", at_least = 1 }\n"tokens.p95" = "none"\n'
CAPPED: dict[str, Any] = {"status": "capped", "capped": "fanout", "passed": False, "samples": ONE}
TIMED_OUT: dict[str, Any] = CAPPED | {"status": "timeout", "capped": "wall_seconds"}


def judged(run: Run, *new: Approval, head: Run | None = None, budget: str = LIMITS) -> ClassResult:
    base, read = build_baseline(make_run(BASE), "support"), parse_budget(budget.encode())
    evidence = judge_draws(draws_of({"support": base}, run.tasks, read))
    grounds = Grounds(run, read, new, (), (), (), TODAY, NOW, lambda agent: (), evidence=evidence)
    return judge_class("support", base, build_baseline(head, "support") if head else base, grounds)


def anew(run: Run, *tasks: str) -> Run:
    """Those tasks on recordings that are made now."""
    return replace(
        run,
        tasks=tuple(
            replace(made, new_draw=True, recording=sha(f"anew {made.task} {made.trial}"))
            if made.task in tasks
            else made
            for made in run.tasks
        ),
    )


def said(result: ClassResult) -> list[str]:
    return [problem.text for problem in result.problems]


@pytest.mark.parametrize(
    ("stopped", "how"), [(CAPPED, "by a cap"), (TIMED_OUT, "by the cap on wall_seconds")], ids=["capped", "timed out"]
)
def test_trials_that_are_stopped_on_the_same_draw_are_not_cheap(stopped: dict[str, Any], how: str) -> None:
    """A lower cap, or an agent that hangs: all numbers are below the anchor's, and none of them is the whole."""
    result = judged(with_trials(make_run(BASE), NAMES[:2], **stopped))

    assert (result.verdict, result.draw) == ("regressed", "same")
    assert said(result) == [
        f"support: 10 trials of 100 were stopped {how}, and none of 100 in the anchor: t000, t001; nobody knows what "
        "they would have come to; mend: find out what keeps them going"
    ]


def test_one_stopped_trial_is_one_too_many_where_nothing_is_chance() -> None:
    """Of a hundred."""
    run = make_run(BASE)
    first = replace(run.tasks[0], status="capped", capped="fanout", passed=False)

    (text,) = said(judged(replace(run, tasks=(first, *run.tasks[1:]))))

    assert text.startswith("support: 1 trial of 100 was stopped by a cap, and none of 100 in the anchor: t000; ")


def test_trials_that_time_out_on_another_draw_are_found() -> None:
    """Evidence finds the share of timed-out trials as it finds that of capped ones, whatever the other numbers say."""
    result = judged(with_trials(anew(make_run(BASE), *NAMES), NAMES[:8], **TIMED_OUT))

    assert result.verdict == "regressed"
    (text,) = said(result)
    assert text.startswith("support: the share of timed-out trials rose by 40 points")


def test_a_limit_on_the_share_says_itself_how_many_may_be_stopped() -> None:
    """A class that is held by its caps."""
    budget = f'{LIMITS}"capped.share" = {{ max = 10 }}\n'
    few, many = (with_trials(make_run(BASE), NAMES[:count], **CAPPED) for count in (2, 3))

    assert judged(few, budget=budget).verdict == "pass"
    assert [problem.slug for problem in judged(many, budget=budget).problems] == ["over-max"]


def test_the_anchors_own_stopped_trials_are_no_news() -> None:
    """They were accepted, and replay as they are."""
    accepted = with_trials(make_run(BASE), NAMES[:2], status="capped", capped="fanout", passed=False)
    approval = Approval(
        path="baselines/approvals/2026-11-29-support.json",
        kind="baseline",
        subject="support",
        from_digest=build_baseline(make_run(BASE), "support").digest,
        to_digest=None,
        evalset=EVALSET,
        ceilings={"fanout.p95": 40},
        changes=(),
        reason="These two tasks are held by their cap.",
        requested_by="dana@example.com",
        requested_on=TODAY.isoformat(),
        nonce="5b1f0c9e7d3a2468",
    )

    assert judged(accepted, approval, head=accepted).verdict == "approved"
    # another draw of it, in which all are stopped, is within the ceilings and not what was approved
    every = replace(with_trials(anew(accepted, *NAMES), NAMES, **CAPPED), mode="record")
    assert [problem.slug for problem in judged(every, approval, head=accepted).problems] == ["stopped-by-caps"]


def test_an_anchor_that_is_edited_to_hold_stopped_trials_needs_an_approval() -> None:
    """Its numbers are the same and all of its trials pass; after it, a stopped trial would be no news."""
    edited = with_trials(make_run(BASE), NAMES[:2], status="capped")

    (text,) = said(judged(make_run(BASE), head=edited))

    assert text == (
        "support: its anchor got looser without an approval that covers it (HEAD holds no approval for it); mend: "
        'fanout-baseline accept --agent support --reason "…"'
    )


def test_growth_on_the_same_recordings_is_exact_beside_tasks_that_are_drawn_anew() -> None:
    """The four dearest tasks take half as much again, exactly; one cheap task was recorded anew, and hides nothing."""
    run = make_run({task: [round(value * 1.5) for value in BASE[task]] for task in NAMES[-4:]} | {
        task: BASE[task] for task in NAMES[:-4]
    })  # fmt: skip

    alone, beside_another = judged(run), judged(anew(run, NAMES[0]))

    assert (alone.verdict, alone.draw) == ("regressed", "same")
    assert (beside_another.verdict, beside_another.draw) == ("regressed", "mixed")
    assert [problem.slug for problem in beside_another.problems] == ["same-tasks-over"]
    assert said(beside_another) == [
        "support: fanout.p95 27 -> 39 (limit 29) by the tasks alone that ran on the anchor's own recordings, where "
        "nothing is chance: t016, t017, t018, t019; mend: bring it back, or have it approved: "
        'fanout-baseline accept --agent support --reason "…"'
    ]
    assert judged(anew(make_run(BASE), NAMES[0])).verdict == "pass"


@pytest.mark.parametrize("draw", ["same", "mixed"])
def test_new_tasks_move_a_mean_on_another_draw_as_on_the_same(draw: str) -> None:
    """20 tasks of 13.8 calls on the mean, and four new ones of 60: a limit on the mean holds no single task."""
    budget = 'schema = 1\n[default.limits]\n"fanout.p95" = "none"\n"tokens.p95" = "none"\n'
    budget += '"fanout.mean" = { increase = "10%", at_least = 1 }\n'
    new, cheap = ({f"t99{number}": [calls_each] for number in range(4)} for calls_each in (60, 10))

    def ran(more: dict[str, list[int]]) -> ClassResult:
        run = make_run(BASE | more)
        return judged(anew(run, NAMES[0]) if draw == "mixed" else run, budget=budget)

    found = ran(new)

    assert (found.verdict, found.draw) == ("regressed", draw)
    if draw == "mixed":
        assert [problem.slug for problem in found.problems] == ["new-tasks-over"]
        assert said(found) == [
            "support: fanout.mean 14 -> 21 (limit 15) by the new tasks alone: t990, t991, t992, t993; mend: make them "
            'cheaper, or accept them: fanout-baseline accept --agent support --reason "…"'
        ]
    assert ran(cheap).verdict == "pass"


def test_a_trial_that_runs_twice_stands_for_no_other() -> None:
    """Trial 2 of a task is gone, and trial 1 was run again by a plugin: the task is short of one all the same."""
    run, anchor = make_run({"a": [1, 1], "b": [2, 2]}), build_baseline(make_run({"a": [1, 1], "b": [2, 2]}), "support")
    kept = [made for made in run.tasks if (made.task, made.trial) != ("a", 2)]

    found = measure(replace(run, tasks=(*kept, kept[0])), "support", anchor, anchor, ())

    assert [problem.slug for problem in found.problems] == ["trials-missing"]


def test_an_anchor_that_holds_a_trial_twice_asks_for_it_once() -> None:
    """As one was accepted from a run in which a plugin ran a trial again."""
    run = make_run({"a": [1, 1]})
    anchor = build_baseline(replace(run, tasks=(*run.tasks, trial("support", "a", 1, 1))), "support")

    assert len(anchor.tasks["a"].trials) == 3
    assert measure(run, "support", anchor, anchor, ()).problems == ()
