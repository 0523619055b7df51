"""The demo of this repository is real: two agents, each task drawn five times from a real model, fanout that varies."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fanout.config import find_settings
from pytest_fanout.judge import stats_of
from pytest_fanout.store.baselines import parse_baseline
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.recordings import RecordingStore

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = find_settings(ROOT)
CLASSES = sorted(SETTINGS.agents)


def test_the_demo_has_two_classes() -> None:
    """One agent on the SDK of each large dialect."""
    assert CLASSES == ["research", "support"]


@pytest.mark.parametrize("agent", CLASSES)
def test_each_task_is_recorded_five_times_from_the_model(agent: str) -> None:
    """At least twenty tasks, five trials each, every answer served by the model that the page names."""
    evalset = read_evalset(SETTINGS.agents[agent].evalset, agent)
    store = RecordingStore(SETTINGS.recordings, {})

    assert len(evalset.tasks) >= 20
    for task in evalset.tasks:
        assert store.trials(agent, task.id) == (1, 2, 3, 4, 5)
        recording = store.load(agent, task.id, 1)
        assert recording.models_served == ("smollm2-135m-instruct",)
        assert recording.definition == task.definition


@pytest.mark.parametrize("agent", CLASSES)
def test_the_anchor_is_of_these_recordings_and_has_a_tail(agent: str) -> None:
    """The anchor names the committed recordings, and its fanout differs from task to task and trial to trial."""
    data = (SETTINGS.baselines / f"{agent}.json").read_bytes()
    anchor = parse_baseline(data, agent, f"baselines/{agent}.json", stats_of)
    store = RecordingStore(SETTINGS.recordings, {})
    fanout = {task: entry.samples["fanout"] for task, entry in anchor.tasks.items()}

    for task, entry in anchor.tasks.items():
        assert [trial.recording for trial in entry.trials] == [store.digest(agent, task, n) for n in range(1, 6)]
    means = sorted(sum(value or 0 for value in values) / 5 for values in fanout.values())
    assert means[-1] >= 1.5 * means[0]
    assert max(max(value or 0 for value in values) for values in fanout.values()) >= 2 * means[len(means) // 2] * 0.75
    assert any(len(set(values)) > 2 for values in fanout.values())


def test_the_recordings_are_a_few_megabytes() -> None:
    """They are read by reviewers and cloned by everybody."""
    assert sum(path.stat().st_size for path in SETTINGS.recordings.rglob("*.jsonl")) < 8_000_000
