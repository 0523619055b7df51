"""Shards for real: each job runs its part, and only `combine` judges."""

from __future__ import annotations

import pytest
from project import Project

pytestmark = pytest.mark.slow


def test_shards_one_of_them_empty_are_combined_to_a_pass(project: Project) -> None:
    """Two shards make the three tasks; shard 1 of 1000 has no task at all, which is no failure of it."""
    project.record_and_accept()

    empty = project.pytest("--fanout-shard=1/1000")
    assert (empty.exit, empty.verdict) == (0, "shard"), empty.text

    for number in (1, 2):
        done = project.pytest(f"--fanout-shard={number}/2", f"--fanout-report=shard-{number}.json")
        assert done.exit == 0, done.text
    combined = project.baseline("combine", "--report", "shard-?.json")

    assert combined.exit == 0, combined.text
    assert combined.out.startswith("combined 2 shards into fanout-report.json\nwithin budget: ")
