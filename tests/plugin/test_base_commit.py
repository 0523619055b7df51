"""Which commit a change is compared with, and that the report names it."""

from __future__ import annotations

import json

import pytest
from project import Project, Result


@pytest.fixture
def moved(granted: Project) -> Project:
    """Main went on after `feature` forked: its agent takes three steps an item, recorded, accepted and committed."""
    granted.commit("three steps an item, accepted")
    granted.git("branch", "-q", "feature", "main")
    granted.git("branch", "-q", "-f", "main", "work")
    granted.git("switch", "-q", "feature")
    granted.write("notes.txt", "nothing that an agent would notice")
    granted.commit("notes")
    granted.git("switch", "-q", "main")
    return granted


def base_of(result: Result) -> tuple[str, int | None]:
    """The commit that was compared with, and the p95 fanout that it held."""
    assert result.report is not None, result.text
    p95 = next(metric for metric in result.agent["metrics"] if metric["name"] == "fanout.p95")
    return result.report["base"]["rev"], p95["base"]


def test_a_pull_request_is_compared_with_the_target_as_it_is_now(moved: Project) -> None:
    """A16: the tree of a pull request, merged with main, is compared with main's anchor, not with that of the fork."""
    main, feature = moved.git("rev-parse", "main"), moved.git("rev-parse", "feature")
    moved.git("switch", "-q", "--detach", "main")
    moved.git("merge", "-q", "--no-ff", "-m", "merge of the pull request", "feature")
    event = moved.root.parent / "event.json"
    event.write_text(json.dumps({"pull_request": {"base": {"sha": main}, "head": {"sha": feature}}}), encoding="utf-8")
    result = moved.pytest(CI="true", GITHUB_EVENT_NAME="pull_request", GITHUB_EVENT_PATH=str(event))

    # task-3 makes 1 + 3 x 3 = 10 calls on main, and made 1 + 3 = 4 when feature forked
    assert base_of(result) == (main, 10)
    assert (result.verdict, result.exit) == ("pass", 0)
    assert main[:7] in result.out


def test_a_branch_alone_is_compared_with_its_fork(moved: Project) -> None:
    """A16: on the feature's own head the anchor is that of the merge base, and the report says so."""
    moved.git("switch", "-q", "feature")
    fork = moved.git("merge-base", "main", "feature")
    result = moved.pytest()

    assert base_of(result) == (fork, 4)
    assert (result.verdict, result.exit) == ("pass", 0)
    assert result.report is not None
    assert "merge-base" in result.report["base"]["source"]
    assert fork[:7] in result.out
