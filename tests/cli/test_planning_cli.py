"""``fanout-baseline power`` and ``selfcheck``: what they print, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from drawn_agents import calls
from gate_world import World, make_run, started

from pytest_fanout.cli import planning
from pytest_fanout.cli.baseline import main
from pytest_fanout.records import Power


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A project whose HEAD holds an anchor of 20 tasks with 5 trials each."""
    world = World.make(tmp_path_factory.mktemp("planning") / "project")
    world.anchor(make_run(calls(20, 5, seed=4)))
    world.commit("start")
    return world


def test_power_has_a_row_for_each_gated_metric(noisy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks, trials, noise, the growth that is found after the first trial and after the last, and what 25 % takes."""
    monkeypatch.chdir(noisy.folder)

    result = call("power")

    assert result.exit_code == 0
    rows = [line for line in result.output.splitlines() if line.startswith("support")]
    assert [line.split()[1] for line in rows] == ["fanout", "tokens"]
    assert " after 1, " in rows[0]
    assert rows[0].rstrip().endswith("10 tasks")
    assert result.output.endswith(
        "for 25 %: tasks that it takes,\n"
        "at least the 10 below which no new draw passes. All by the noise of the anchor's own trials.\n"
    )


def test_power_says_how_many_tasks_are_to_be_added() -> None:
    """84 tasks find growth of a quarter, and there are 20; with 20 of 15 nothing is to be added."""
    assert planning._cells(Power("fanout", 20, 5, 0.3, 1.1, ((1, 1.4), (5, 1.3)), 0.05, 84))[-1] == "84 tasks, 64 more"
    assert planning._cells(Power("fanout", 20, 5, 0.3, 1.1, ((1, 1.2), (5, 1.1)), 0.05, 15))[-1] == "15 tasks"


def test_power_never_advises_what_cannot_pass() -> None:
    """Six tasks, a limit that allows a quarter: a new draw passes from ten on."""
    cells = planning._cells(Power("fanout", 6, 5, 0.3, 1.25, ((1, 1.4), (5, 1.3)), 0.05, None))

    assert cells[-1] == "the limit allows it; to pass 10 tasks, 4 more"
    cells = planning._cells(Power("fanout", 12, 5, 0.3, 1.25, ((1, 1.4), (5, 1.3)), 0.05, None))
    assert cells[-1] == "the limit allows it"


def test_selfcheck_says_how_often_an_unchanged_class_is_red(noisy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its draws are the anchor's own trials, so that each red one is a false alarm."""
    monkeypatch.chdir(noisy.folder)

    result = call("selfcheck", "--agent", "support", "--draws", "2")

    assert result.exit_code == 0
    assert result.output.startswith("support: of 2 draws of its own trials ")


def test_without_an_anchor_there_is_nothing_to_plan(noisy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """no-anchor: the class is named, and how to get one."""
    monkeypatch.chdir(noisy.folder)

    result = call("power", "--agent", "research")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: HEAD holds no anchor of research\n"
        '  mend: fanout-baseline accept --reason "…", then commit baselines/\n'
        "  see: docs/messages.md#no-anchor\n"
    )


def test_a_selfcheck_needs_two_trials_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """selfcheck-one-trial: one trial drawn again and again would say that there is no noise."""
    monkeypatch.chdir(started(tmp_path / "project").folder)

    result = call("selfcheck")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: the anchor of support holds tasks with one trial only: nothing can be drawn from it\n"
        "  mend: record it anew with more trials: pytest --fanout-budget --fanout-mode=rerecord "
        "--fanout-agent=support\n"
        "  see: docs/messages.md#selfcheck-one-trial\n"
    )
