"""fanout-baseline on the reports and files of real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from project import Project


def test_init_writes_what_is_missing_and_nothing_twice(project: Project) -> None:
    """`init` lays out budget.toml and .gitignore; what is there already is left as it is."""
    first = project.baseline("init")
    written = (project.root / "baselines/budget.toml").read_text()
    project.write("baselines/budget.toml", "schema = 1\n")
    second = project.baseline("init")

    assert (first.exit, second.exit) == (0, 0)
    assert "schema = 1" in written
    assert (project.root / "baselines/budget.toml").read_text() == "schema = 1\n"
    assert (project.root / ".gitignore").read_text().count("fanout-report.json") == 1
    assert project.pytest("--fanout-mode=record", "--fanout-trials=1").verdict == "no-baseline"


def test_the_budget_of_init_is_the_default(accepted: Project) -> None:
    """Adding the file that `init` writes loosens nothing."""
    accepted.baseline("init")
    accepted.git("switch", "-q", "-c", "work")
    accepted.commit()

    assert accepted.pytest().verdict == "pass"


def test_show_and_diff(grown: Project) -> None:
    """`show` prints the anchor's figures, `diff` base beside run."""
    show, diff = grown.baseline("show", "support"), grown.baseline("diff")

    assert (show.exit, diff.exit) == (0, 1), show.text + diff.text  # diff exits by the verdict
    assert "fanout" in show.out
    row = next(line for line in diff.out.splitlines() if "fanout.p95" in line)
    assert "4" in row
    assert "10" in row


def test_accept_writes_an_anchor_whose_numbers_are_the_runs(accepted: Project) -> None:
    """The anchor holds the samples of the run, one integer a trial, and its approval the ceilings."""
    anchor = json.loads((accepted.root / "baselines/support.json").read_text())
    (path,) = (accepted.root / "baselines/approvals").glob("*.json")
    approval = json.loads(path.read_text())

    assert anchor["tasks"]["task-3"]["samples"]["fanout"] == [4, 4, 4, 4, 4]
    assert (anchor["tasks"].keys()) == {"task-1", "task-2", "task-3"}
    # 4 + 10 % is 4.4, 4 + at_least 1 is 5: the larger holds
    assert approval["ceilings"]["fanout.p95"] == 5
    assert approval["from"] is None
    assert path.name.endswith("-support-first.json")


def test_accept_refuses_in_ci_and_without_a_reason(gated: Project) -> None:
    """A bot accepts nothing, and a reviewer needs a reason."""
    gated.pytest()
    in_ci = gated.baseline("accept", "--reason", "a reason that is long enough", "--yes", CI="true")
    short = gated.baseline("accept", "--reason", "because", "--yes")

    assert (in_ci.exit, short.exit) == (3, 2)
    assert "CI" in in_ci.text
    assert "20" in short.text
    assert "Traceback" not in in_ci.text + short.text


def test_verify_refuses_another_commits_report(gated: Project) -> None:
    """A report of an earlier run is not taken for this commit's."""
    gated.pytest()
    gated.write("notes.txt", "one more change")
    gated.commit()
    verify = gated.baseline("verify", "--report", "fanout-report.json")

    assert verify.exit == 4
    assert "the report is of commit" in verify.text


def test_verify_without_a_report(gated: Project) -> None:
    """A job that left no report does not pass."""
    verify = gated.baseline("verify", "--report", "reports/*/fanout-report.json", "--reports-expected", "2")

    assert verify.exit not in (0, 1)
    assert "Traceback" not in verify.text


@pytest.mark.parametrize("delay", [0.0, 0.5])
@pytest.mark.slow
def test_kill_9_while_accepting(grown: Project, delay: float) -> None:
    """Killed at any moment `accept` leaves whole files, and what is committed of them is never a silent pass."""
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest_fanout.cli.baseline", "accept", "--reason", "three steps are worth it", "--yes"],
        cwd=grown.root, env=grown.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=-3,
    )  # fmt: skip
    time.sleep(delay)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    grown.commit("whatever was written")
    result = grown.pytest()

    assert result.verdict in ("regressed", "approved")
    for path in grown.root.glob("baselines/**/*.json"):
        json.loads(path.read_text())
    again = grown.baseline("accept", "--reason", "three steps are worth it", "--yes")
    assert again.exit == 0, again.text
    grown.commit("accepted")
    assert grown.pytest().verdict == "approved"


def test_what_is_not_committed_gives_no_verdict_to_a_clone(grown: Project) -> None:
    """not-committed: verify refuses an anchor that is committed without its recordings; the gate says what to add."""
    accepted = grown.baseline("accept", "--reason", "three steps an item are worth it", "--yes")
    assert "git add baselines fixtures/recordings && git commit" in accepted.out
    grown.git("add", "baselines")
    grown.git("commit", "-qm", "without its recordings")
    result = grown.pytest()
    verify = grown.baseline("verify", "--report", "fanout-report.json")

    assert verify.exit == 4
    assert (
        "fixtures/recordings differs from HEAD: a clone of this commit would not give this verdict\n"
        "  mend: git add fixtures/recordings && git commit, then run `pytest --fanout-budget` again"
    ) in verify.text
    assert "git add fixtures/recordings && git commit" in result.out
