"""The base commit's agent beside the head's: what it runs, where its numbers go, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from model_server import ModelServer
from project import Project, Result

KEY = "sk-live-0123456789abcdef"


@pytest.fixture
def changed(accepted: Project) -> Project:
    """A branch whose agent takes two steps an item instead of one: 1 + 2 x items calls, and 1 + items at the base."""
    accepted.git("switch", "-q", "-c", "feature")
    accepted.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 2")
    accepted.commit("two steps an item")
    return accepted


def fanouts(result: Result, which: str) -> dict[str, int]:
    return {trial["task"]: trial["samples"]["fanout"] for trial in result.agent[which]}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_the_base_agent_runs_on_the_same_tasks(changed: Project, model: ModelServer, workers: Any) -> None:
    """Each new trial is repeated once by the code of the base commit; both reach the model with the real key."""
    result = changed.pytest(
        "--fanout-mode=live", "--fanout-trials=1", "--fanout-control=9", *workers, OPENAI_API_KEY=KEY
    )

    assert fanouts(result, "tasks") == {"task-1": 3, "task-2": 5, "task-3": 7}, result.text
    assert fanouts(result, "control") == {"task-1": 2, "task-2": 3, "task-3": 4}
    assert len(model.log) == 3 + 5 + 7 + 2 + 3 + 4
    assert {request.headers["authorization"] for request in model.log} == {f"Bearer {KEY}"}
    # the run's own totals are the head's
    assert result.report is not None
    assert result.report["totals"]["calls"] == 15
    assert len(changed.git("worktree", "list").splitlines()) == 1
    assert changed.git("status", "--porcelain") == ""
