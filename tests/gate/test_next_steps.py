"""The next command is one that goes on: what accept would refuse, or make a noisy anchor of, is mended before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import TWENTY, World, git, make_run, redrawn, started, with_trials

from pytest_fanout.gate.few_trials import few_words, record_others
from pytest_fanout.gate.tree import to_commit
from pytest_fanout.records import Baseline, JudgeRules, Problem, Run, SessionFacts, Verdict
from pytest_fanout.store.baselines import build_baseline

RECORD = "pytest --fanout-budget --fanout-mode=record"
ACCEPT = 'fanout-baseline accept --agent support --reason "…"'
COMMIT = "git add baselines fixtures/recordings && git commit, once accepted"
BASE = {task: values * 5 for task, values in TWENTY.items()}
LOOKS = {task: [value * 3 for value in values] * 2 for task, values in TWENTY.items()}  # red after two of them
FIVE = {task: values[:1] * 5 for task, values in LOOKS.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The main branch holds an anchor of five trials a task."""
    made = started(tmp_path / "project")
    made.anchor(make_run(BASE))
    made.commit("five trials")
    git(made.root, "branch", "-f", "main")
    made.commit("feature")
    return made


def beside_another(run: Run) -> Run:
    """The run of a project that has a second class as well."""
    return replace(run, agents=("support", "triage"))


def test_trials_that_an_anchor_would_lack_are_recorded_before_it_is_accepted(world: World) -> None:
    """After the looks that a red draw takes there are two trials; with all five nothing stands before accept."""
    assert world.judge(redrawn(make_run(LOOKS))).next == (f"{RECORD} --fanout-trials=5", ACCEPT, COMMIT)
    assert world.judge(redrawn(make_run(FIVE))).next == (ACCEPT, COMMIT)
    uneven = redrawn(make_run({**LOOKS, "t01": [3] * 7}))  # below 7, a run of a fixed number would leave trials out
    assert record_others(uneven, "support", JudgeRules(), alone=False) == f"{RECORD} --fanout-trials=7"


def test_of_several_classes_only_one_is_recorded_and_all_are_replayed_before_accept(world: World) -> None:
    """What --fanout-agent leaves out makes a run partial, and accept refuses such a report."""
    assert world.judge(beside_another(redrawn(make_run(LOOKS)))).next[:2] == (
        f"{RECORD} --fanout-trials=5 --fanout-agent=support",
        "pytest --fanout-budget",
    )


def test_what_was_made_of_cassettes_has_no_further_trials(world: World) -> None:
    """Nobody who imports them is sent to a model."""
    run = with_trials(
        redrawn(make_run(LOOKS)), list(LOOKS), problems=(Problem("imported-recording", "of cassettes", "notice"),)
    )

    assert world.judge(run).next == (ACCEPT, COMMIT)


def committed(world: World, fanout: dict[str, list[int]], run: Run) -> Verdict:
    """The verdict on ``run`` after an anchor of ``fanout`` was committed with its approval."""
    old = build_baseline(make_run(BASE), "support")
    world.anchor(redrawn(make_run(fanout)))
    world.approve(old, {"fanout.p95": 99, "tokens.p95": 9900})
    world.commit()
    return world.judge(replace(run, mode="replay", tasks=tuple(replace(task, new_draw=False) for task in run.tasks)))


def test_an_anchor_that_was_accepted_with_few_trials_still_gets_the_others(world: World) -> None:
    """few-trials: first the command that records them, then accept; not in CI, which records nothing."""
    found = committed(world, LOOKS, redrawn(make_run(LOOKS)))
    few = "support: the anchor holds tasks with only 2 of 5 trials; mend: "

    assert (found.verdict, found.next) == ("approved", (f"{RECORD} --fanout-trials=5",))
    assert [notice.text for notice in found.classes[0].notices if notice.slug == "few-trials"] == [
        f"{few}record the others: {RECORD} --fanout-trials=5, then {ACCEPT}"
    ]
    more = committed(world, LOOKS, redrawn(make_run(FIVE)))
    assert (more.verdict, more.next) == ("approved", (ACCEPT,))
    assert [notice.text for notice in more.classes[0].notices if notice.slug == "few-trials"] == [few + ACCEPT]
    assert committed(world, LOOKS, replace(redrawn(make_run(LOOKS)), ci=True)).next == ()
    assert committed(world, FIVE, redrawn(make_run(FIVE))).next == ()


def anchor_of(fanout: dict[str, list[int]]) -> Baseline:
    return build_baseline(make_run(fanout), "support")


def test_how_many_trials_are_enough() -> None:
    """Five, or as many as budget.toml lets a new draw take."""
    run = make_run(LOOKS)
    assert few_words(anchor_of(FIVE), run, JudgeRules(), is_committed=False) is None
    assert few_words(anchor_of(FIVE), run, JudgeRules(trials=3), is_committed=False) is None
    assert few_words(anchor_of(LOOKS), beside_another(run), JudgeRules(trials=8), is_committed=False) == (
        "the anchor holds tasks with only 2 of 8 trials; mend: record the others first: "
        f"{RECORD} --fanout-trials=8 --fanout-agent=support, then pytest --fanout-budget, then accept"
    )


def test_a_partial_run_is_run_whole_before_it_is_accepted(world: World) -> None:
    """Accept refuses what -k, -m, node ids or --fanout-agent have made smaller: it is not named before a whole run."""
    run = redrawn(make_run(FIVE))
    part = tuple(task for task in run.tasks if task.task != "t01")
    partial = replace(run, tasks=part, session=SessionFacts(expected=20, partial=True))

    assert world.judge(partial).next == ("pytest --fanout-budget",)


def live(fanout: dict[str, list[int]]) -> Run:
    run = redrawn(make_run(fanout, mode="live"))
    return replace(run, mode="live", tasks=tuple(replace(task, recording=None) for task in run.tasks))


def test_a_red_live_run_is_recorded_before_anything_is_accepted(world: World) -> None:
    """It has written nothing: there is nothing to accept, and nothing to commit."""
    assert world.judge(live(LOOKS)).next == (
        RECORD,
        "pytest --fanout-budget --fanout-mode=rerecord, where the recordings still fit",
    )
    new = replace(live(FIVE), definitions={}, evalsets={}, agents=("triage",))
    new = replace(new, tasks=tuple(replace(task, agent="triage") for task in new.tasks), session=SessionFacts())
    assert RECORD in world.judge(new).next
    assert not any("accept" in step or "git add" in step for step in world.judge(new).next)


def test_a_live_run_that_cannot_tell_yet_goes_on_live(world: World) -> None:
    """Its recordings may fit, so that record mode would run nothing."""
    found = world.judge(live({task: values[:1] for task, values in LOOKS.items()}))
    (result,) = found.classes

    assert (found.verdict, found.next) == (
        "inconclusive",
        ("pytest --fanout-budget --fanout-mode=live --fanout-agent=support",),
    )
    assert result.problems[0].text.endswith(
        "mend: pytest --fanout-budget --fanout-mode=live, with as many trials as the evidence asks for"
    )


def test_folders_are_told_so_that_a_shell_takes_them_as_they_are(world: World) -> None:
    """A folder of any name stands in quotes in the command that is copied: it may be one of somebody else's branch."""
    settings = replace(world.settings, baselines=world.folder / "x; rm -r ~", recordings=world.folder / "my recordings")

    assert to_commit(settings) == "'x; rm -r ~' 'my recordings'"
