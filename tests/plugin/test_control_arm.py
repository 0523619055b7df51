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
@pytest.mark.slow
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


def control_of(result: Result) -> str:
    """The notice on why the arm did not run."""
    return next(notice["text"] for notice in result.agent["notices"] if notice["slug"] == "control-not-run")


def test_code_and_environment_are_told_apart(changed: Project) -> None:
    """The agent has no noise, as two trials show: 2, 3, 4 calls at the base, then and now, and 3, 5, 7 by the head."""
    result = changed.pytest("--fanout-mode=live", "--fanout-trials=2", "--fanout-control=3")

    causes = {cause["metric"]: cause for cause in result.agent["causes"]}
    assert causes["fanout"]["label"] == "code", result.text
    assert causes["fanout"]["environment"]["effect"] == 1
    # the geometric mean of 3/2, 5/3 and 7/4
    assert causes["fanout"]["code"]["effect"] == pytest.approx((3 / 2 * 5 / 3 * 7 / 4) ** (1 / 3), rel=1e-4)
    text = next(notice["text"] for notice in result.agent["notices"] if notice["slug"] == "cause")
    assert text == (
        "support: the growth of fanout is the code's: the base commit's agent of today beside the anchor "
        "+0 % (+0 % to +0 %), this one beside it +64 % (+43 % to +87 %) (control arm: 3 tasks, 6 trials)"
    )


def test_a_base_that_does_not_run_is_told_and_changes_no_verdict(accepted: Project, model: ModelServer) -> None:
    """The base commit's agent cannot be imported any more; the head's has its own numbers."""
    accepted.write("shop.py", "import gone\n")
    accepted.commit("broken")
    accepted.git("switch", "-q", "-c", "feature")
    accepted.git("checkout", "-q", "HEAD~1", "--", "shop.py")
    accepted.commit("mended")

    result = accepted.pytest("--fanout-mode=live", "--fanout-trials=1", "--fanout-control=3")

    assert result.agent["control"] == []
    told = control_of(result)
    assert told.startswith(
        "the control arm did not run as asked: the base commit's process did not collect this task; "
        "its collection failed: "
    )
    assert "'shop:answer' cannot be imported: ModuleNotFoundError: No module named 'gone'" in told
    assert len(model.log) == 2 + 3 + 4
    assert len(accepted.git("worktree", "list").splitlines()) == 1


def test_an_agent_that_leads_back_to_the_work_tree_is_no_control(accepted: Project) -> None:
    """An installed project may be imported from where it was installed from: those would be the head's numbers."""
    accepted.write("conftest.py", f"import sys\nsys.path.insert(0, {str(accepted.root)!r})\n")
    accepted.commit("a path of its own")
    accepted.git("switch", "-q", "-c", "feature")

    result = accepted.pytest("--fanout-mode=live", "--fanout-trials=1", "--fanout-control=1")

    assert result.agent["control"] == []
    assert control_of(result) == (
        "the control arm did not run as asked: the base commit's process imported "
        f"{accepted.root}/shop.py from the work tree"
    )


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        (("--fanout-control=3",), "control-in-replay"),
        (("--fanout-mode=live", "--fanout-control=0"), "bad-control"),
    ],
)
def test_what_cannot_be_asked_for(accepted: Project, model: ModelServer, options: tuple[str, ...], slug: str) -> None:
    """It is a usage error, before any call."""
    result = accepted.pytest(*options)

    assert result.exit == 4
    assert f"docs/messages.md#{slug}" in result.text
    assert model.log == []
