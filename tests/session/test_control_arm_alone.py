"""The control arm where it cannot begin: told once, and the run keeps its own numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gate_world import make_run, trial

from pytest_fanout.session.control.arm import ControlArm
from pytest_fanout.store.baselines import build_baseline


def test_without_a_base_commit_the_arm_says_so_once() -> None:
    """HEAD has anchors, and the commit that --fanout-base names is not there: no trial ends in an error of ours."""
    anchors = {"support": build_baseline(make_run({"a": [1], "b": [2]}), "support")}
    session: Any = SimpleNamespace(
        anchors=SimpleNamespace(compared=lambda: (anchors, None), base=lambda: None),
        evalsets={},
        config=None,
        budget=SimpleNamespace(caps_for=lambda agent: SimpleNamespace(wall_seconds=None)),
    )
    arm = ControlArm(session, 5)

    for task in ("a", "b"):
        arm.repeat(trial("support", task, 1, 1, new_draw=True))

    assert arm.trials == []
    assert [(problem.slug, problem.verdict, problem.text) for problem in arm.problems] == [
        (
            "control-not-run",
            "notice",
            "the control arm did not run as asked: no base commit was found, and so no agent of it",
        )
    ]
