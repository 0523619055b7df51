"""Draws of an anchor: from how many sessions it is, and that it goes down only on evidence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import NOW, TODAY, World, make_run, redrawn, started

from pytest_fanout.errors import NotAccepted
from pytest_fanout.gate import plan_accept
from pytest_fanout.gate.plan import Plan
from pytest_fanout.gate.provisional import provisional_words
from pytest_fanout.judge.sessions import anchor_sessions, sessions_of
from pytest_fanout.records import Base, Baseline, BaselineTask, JudgeRules, Run, TrialFacts

HOUR = 3600


# --- sessions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "sessions"),
    [
        ([], 0),
        ([0, 1, 2], 1),
        ([0, HOUR - 1], 1),
        ([0, HOUR], 2),
        ([HOUR, 0, 2 * HOUR], 3),
        ([0, HOUR - 1, 2 * HOUR - 2], 2),  # the third is an hour after the first, not after a trial in between
    ],
)
def test_sessions_are_begun_an_hour_apart(begun: list[int], sessions: int) -> None:
    """As many moments as can be picked with an hour or more between each."""
    assert sessions_of(begun) == sessions


def anchor_of(begun: Mapping[str, Sequence[int | None]]) -> Baseline:
    return Baseline(
        "support",
        "digest",
        None,
        {
            task: BaselineTask("d", {}, tuple(TrialFacts(None, "ok", True, moment) for moment in moments))
            for task, moments in begun.items()
        },
    )


def test_an_anchor_has_the_sessions_of_half_its_tasks() -> None:
    """One task that was recorded again says nothing of the others; trials that do not tell when are passed over."""
    three = [0, HOUR, 2 * HOUR]

    assert anchor_sessions(anchor_of({"a": three, "b": [0, 1], "c": [0, None]})) == 1
    assert anchor_sessions(anchor_of({"a": three, "b": three, "c": [0]})) == 3
    assert anchor_sessions(anchor_of({"a": three, "b": [0]})) == 1
    assert anchor_sessions(anchor_of({"a": [None]})) is None


def test_provisional() -> None:
    """It says how many sessions there are and are wanted, and the number of trials that brings the next one."""
    two = anchor_of({"a": [0, 1, HOUR]})

    assert provisional_words(two, JudgeRules()) == (
        "the anchor is provisional: it was recorded in 2 sessions of 3 (begun an hour or more apart), and all trials "
        "of one session can be off by the same 10 %; mend: an hour later pytest --fanout-budget --fanout-mode=record "
        "--fanout-trials=5, and accept it, or sessions = 1 in [judge] for a model without such swings"
    )
    assert "--fanout-trials=6, and" in str(provisional_words(anchor_of({"a": [0] * 5}), JudgeRules()))
    assert provisional_words(two, JudgeRules(sessions=2)) is None
    assert provisional_words(anchor_of({"a": [None]}), JudgeRules()) is None


# --- an anchor that goes down ------------------------------------------------------------------------------------


def draw(seed: int, share: float = 1.0, trials: int = 5) -> dict[str, list[int]]:
    """Twenty tasks of 10 to 48 calls, each trial off by up to a fifth; ``share`` of the calls."""
    chance = random.Random(seed)
    return {
        f"t{number:02d}": [round(share * (8 + 2 * number) * chance.uniform(0.8, 1.2)) for _ in range(trials)]
        for number in range(1, 21)
    }


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project whose main branch holds a noisy anchor."""
    made = started(tmp_path / "project")
    made.anchor(make_run(draw(1)))
    made.commit("a noisy anchor")
    return made


def plan(world: World, run: Run) -> Plan:
    return plan_accept(
        world.measured(run), world.repo, world.settings, reason="The planner now verifies its citations.",
        requested_by="dana@example.com", today=TODAY, ci=False, base=Base(world.repo.resolve("HEAD"), "test"),
    )  # fmt: skip


def test_anchor_not_lower(world: World) -> None:
    """Another draw of the unchanged agent happens to be lower. It is not kept: the run is green as it is."""
    run = redrawn(make_run(draw(2)))
    assert world.judge(run, base="HEAD").verdict == "pass"

    with pytest.raises(NotAccepted) as caught:
        plan(world, run)

    assert str(caught.value) == (
        "a new draw of support is lower in fanout.p95, tokens.p95, and nothing shows that the agent is: the luckier of "
        "two draws would be kept\n  mend: leave the anchor as it is, for the class is within budget of it, and commit "
        "the recordings\n  see: docs/messages.md#anchor-not-lower"
    )


def test_an_anchor_goes_down_on_evidence(world: World) -> None:
    """An agent that makes 30 % fewer calls in every task is told from luck."""
    (planned,) = plan(world, redrawn(make_run(draw(2, share=0.7)))).classes

    assert planned.anchor is not None
    assert planned.approval is None


def test_further_trials_beside_those_of_the_anchor_are_no_other_draw(world: World) -> None:
    """The recordings that the anchor names are all kept, so that nothing is chosen."""
    low = {task: [*values, min(values)] for task, values in draw(1).items()}
    run = make_run(low)
    tasks = tuple(replace(t, new_draw=True, recording=f"{t.task} new") if t.trial == 6 else t for t in run.tasks)
    (planned,) = plan(world, replace(run, mode="record", tasks=tasks)).classes

    assert planned.anchor is not None


def test_what_accepting_says_of_a_provisional_anchor(world: World) -> None:
    """All trials were begun at once; spread over three hours, nothing is said."""
    run = redrawn(make_run(draw(2, share=0.7)))
    spread = replace(run, tasks=tuple(replace(t, begun_at=NOW - HOUR * t.trial) for t in run.tasks))

    assert (plan(world, run).classes[0].provisional or "").startswith(
        "the anchor is provisional: it was recorded in 1 "
    )
    assert plan(world, spread).classes[0].provisional is None


def test_a_new_draw_is_told_that_its_anchor_is_provisional(world: World) -> None:
    """On the same draw it does not matter."""
    new = world.judge(redrawn(make_run(draw(2))), base="HEAD").classes[0]
    same = world.judge(make_run(draw(1)), base="HEAD").classes[0]

    assert "provisional" in [notice.slug for notice in new.notices]
    assert "provisional" not in [notice.slug for notice in same.notices]


def capped(run: Run, trials: int) -> Run:
    """The run with its first trials capped, those of one task after those of the other."""
    first = {(task.task, task.trial) for task in sorted(run.tasks, key=lambda task: (task.task, task.trial))[:trials]}
    tasks = [
        replace(task, status="capped", passed=False) if (task.task, task.trial) in first else task for task in run.tasks
    ]
    return replace(run, tasks=tuple(tasks))


@pytest.mark.parametrize(("trials", "kept"), [(1, True), (60, False)])
def test_a_share_goes_down_on_evidence_as_well(world: World, trials: int, kept: bool) -> None:
    """One trial of a hundred that is capped no more is luck, sixty are not: whatever the limit on the share allows."""
    world.write(
        "baselines/budget.toml", 'schema = 1\n[default.limits]\n"capped.share" = { increase = "10%", at_least = 50 }\n'
    )
    values = {task: [10] * 5 for task in draw(1)}
    world.anchor(capped(make_run(values), trials))
    world.commit("some of it is capped")
    run = redrawn(make_run(values))
    assert world.judge(run, base="HEAD").verdict == "pass"

    if not kept:
        assert plan(world, run).classes[0].anchor is not None
        return
    with pytest.raises(NotAccepted, match=r"is lower in capped\.share, and nothing shows that the agent is"):
        plan(world, run)
