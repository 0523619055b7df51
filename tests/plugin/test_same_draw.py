"""The same recordings always give the same verdict."""

from __future__ import annotations

from project import Project


def test_replaying_the_same_recordings_is_never_red(gated: Project) -> None:
    """A14: the same draw is compared exactly: replayed three times on a branch it is `pass`, with equal numbers."""
    results = [gated.pytest() for _ in range(3)]

    assert [(result.verdict, result.exit) for result in results] == [("pass", 0)] * 3
    assert results[0].agent["metrics"] == results[1].agent["metrics"] == results[2].agent["metrics"]


def test_four_more_calls_in_every_task_are_red(gated: Project) -> None:
    """A14: an agent that makes four more calls in every task is `regressed`."""
    gated.edit("shop.py", 'range(task["items"] * STEPS_PER_ITEM)', 'range(task["items"] * STEPS_PER_ITEM + 4)')
    gated.commit("four more")
    result = gated.pytest("--fanout-mode=record")

    assert (result.verdict, result.exit) == ("regressed", 1)
