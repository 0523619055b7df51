"""Branched trials in the gate: what is told of them, what the anchor keeps, and what they are compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gate_world import git, make_run, redrawn, sha, started

from pytest_fanout.judge import stats_of, table_of_baseline, table_of_runs
from pytest_fanout.records import Run
from pytest_fanout.store.baselines import build_baseline, parse_baseline, write_baseline

#: Trials that differ by a factor of eight, in each of twenty tasks.
NOISY = {f"t{number:02d}": [6, 12, 24, 48] for number in range(1, 21)}


def branched(run: Run) -> Run:
    """Every trial keeps the beginning of the anchor's trial of its number, made one call and saved three."""
    tasks = tuple(
        replace(task, shared_prefix=sha(f"{task.agent} {task.task} {task.trial}"), spent_calls=1, saved_calls=3)
        for task in redrawn(run).tasks
    )
    return replace(run, mode="record", tasks=tasks)


def test_an_innocent_edit_of_a_noisy_class_passes_by_its_pairs(tmp_path: Path) -> None:
    """Two trials a task, which go on from the two dearest of the anchor and make as many calls as those: beside all
    four they look twice as dear, and beside their like unchanged. The notice says what was saved."""
    world = started(tmp_path / "project")
    world.anchor(make_run(NOISY))
    world.commit("another anchor")
    git(world.root, "branch", "-f", "main")
    run = branched(make_run({task: values[2:] for task, values in NOISY.items()}))
    run = replace(run, tasks=tuple(replace(t, shared_prefix=sha(f"support {t.task} {t.trial + 2}")) for t in run.tasks))
    found = world.judge(run)
    whole = world.judge(replace(run, tasks=tuple(replace(t, shared_prefix=None, saved_calls=0) for t in run.tasks)))
    evidence, other = found.classes[0].evidence, whole.classes[0].evidence

    assert found.verdict == "pass", found
    assert evidence is not None
    assert other is not None
    assert [entry.effect for entry in evidence.metrics] == [1.0] * len(evidence.metrics)
    assert (whole.verdict, other.metrics[0].effect) == ("inconclusive", 2.0)
    assert [notice.text for notice in found.classes[0].notices if notice.slug == "branched"] == [
        "support: 40 of 40 trials keep the beginning of an earlier recording and went on live from their first changed "
        "request (40 live calls made, 120 saved); beside the anchor each is compared with the trial that it shares it "
        "with"
    ]


def test_a_replay_of_branched_trials_saves_nothing_and_says_what_they_are(tmp_path: Path) -> None:
    """The same trials, from their recordings."""
    world = started(tmp_path / "project")
    run = branched(make_run())
    run = replace(run, tasks=tuple(replace(t, new_draw=False, spent_calls=0, saved_calls=0) for t in run.tasks))

    assert [notice.text for notice in world.judge(run).classes[0].notices if notice.slug == "branched"] == [
        "support: 20 of 20 trials keep the beginning of an earlier recording and went on live from their first changed "
        "request; beside the anchor each is compared with the trial that it shares it with"
    ]


def test_the_anchor_keeps_what_its_trials_share() -> None:
    """So that trials which are branched from it again are compared with the right ones."""
    run = branched(make_run({"t01": [3, 4]}))
    anchor = build_baseline(run, "support")
    read = parse_baseline(write_baseline(anchor, stats_of(anchor)), "support", "support.json", stats_of)

    roots = (sha("support t01 1"), sha("support t01 2"))
    assert tuple(fact.shared_prefix for fact in read.tasks["t01"].trials) == roots
    assert table_of_baseline(read).beginnings == {"t01": roots} == table_of_runs(run.tasks).beginnings
    plain = build_baseline(make_run({"t01": [3]}), "support")
    assert table_of_baseline(plain).beginnings == {"t01": (sha("support t01 1"),)}
