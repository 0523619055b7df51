"""``fanout-baseline``: command, exit code and the lines that are seen."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gate_world import TWENTY, World, git, make_run, started, with_trials, without

from pytest_fanout.cli.baseline import main
from pytest_fanout.cli.console import metric_rows
from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import Base, ClassResult, Head, MetricResult, Run

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
REASON = "The planner now verifies its citations."


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project, the current folder in it, no CI, and reports that hold a run as it is."""

    def read_report(path: Path) -> Run:
        if not path.is_file():
            raise IntegrityError("no-report", "is not there", where=str(path), mend="pytest --fanout-budget")
        run: Run = pickle.loads(path.read_bytes())
        return run

    reports = types.ModuleType("pytest_fanout.store.reports")
    reports.read_report = read_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytest_fanout.store.reports", reports)
    for name in ("CI", "GITHUB_EVENT_PATH", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    world = started(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    return world


def report(world: World, run: Run, name: str = "fanout-report.json") -> None:
    base, head = world.repo.resolve("main"), world.repo.resolve("HEAD")
    run = replace(world.measured(run), base=Base(base, "merge-base main"), head=Head(head))
    world.write(name, pickle.dumps(run))


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def test_accept_shows_the_table_first_and_needs_a_yes(world: World) -> None:
    """Without a terminal nothing is written until --yes says so."""
    report(world, make_run(GROWN))

    asked = call("accept", "--reason", REASON)

    assert asked.exit_code == 2
    lines = asked.output.splitlines()
    assert lines[0].split() == ["class", "metric", "anchor", "run", "limit", "state"]
    assert lines[2].split() == ["support", "fanout.p95", "19", "25", "20", "OVER"]
    assert "support: its anchor gets looser, and a reviewer has to approve that" in lines
    assert "  20 of 20 trials passed; 0 capped, 0 failed" in lines
    assert (
        "  the anchor holds tasks with only 1 of 5 trials; mend: record the others first: pytest --fanout-budget "
        "--fanout-mode=record --fanout-trials=5, then accept [few-trials]"
    ) in lines
    assert "  metric fanout.p95: 19 -> 25" in lines
    assert "  covered up to: fanout.p95 27" in lines
    assert asked.output.endswith(
        "error: there is no terminal to ask on, and nothing was written\n"
        "  mend: add --yes to write it\n  see: docs/messages.md#needs-yes\n"
    )
    assert not (world.folder / "baselines/approvals").exists()

    done = call("accept", "--reason", REASON, "--yes")

    assert done.exit_code == 0
    assert "wrote baselines/support.json" in done.output
    assert done.output.endswith(
        "next:\n  record the trials that support lacks, as said above, and accept again\n"
        "  git add baselines fixtures/recordings && git commit\n"
        "  have baselines/ reviewed: there is no CODEOWNERS file, so that anybody's\n"
        "    review counts (fanout-baseline init)\n"
    )


def test_accept_says_of_a_class_within_its_budget_that_it_need_not(world: World) -> None:
    """within-already: 19 -> 20 is within the limit of 20; accepted, the next growth would be measured from 20."""
    report(world, make_run({**TWENTY, "t19": [20]}))
    said = (
        "it is within its budget, and passes without this: accepting raises the anchor, so that the next growth is "
        "measured from there (many small steps add up: fanout-baseline log) [within-already]"
    )

    assert f"  {said}" in call("accept", "--reason", REASON).output.splitlines()
    assert f"- {said}" in call("accept", "--reason", REASON, "--format", "md").output.splitlines()


def test_the_interval_of_a_new_draw_stands_beside_its_figure() -> None:
    """90 % of its p95; what has none is a dash, and an end that is not known is one too."""

    def metric(name: str, **facts: Any) -> MetricResult:
        return MetricResult(name, base=8, run=9, limit=10, over=False, gated=True, n=20, trials=100, **facts)

    results = [
        ClassResult(
            "a",
            "inconclusive",
            "new",
            (metric("x.p95", interval=(7, None), evidence="low"), metric("y.p95", evidence="high")),
            (),
            tasks_expected=20,
            tasks_ran=20,
            trials=100,
        )
    ]

    assert metric_rows(results) == (
        ("class", "metric", "anchor", "run", "90 % of the run", "limit", "state"),
        [["a", "x.p95", "8", "9", "7 to -", "10", "within"], ["a", "y.p95", "8", "9", "-", "10", "high"]],
    )


def test_from_red_to_approved(world: World) -> None:
    """The reviewer's whole path, by exit codes: over, accepted, committed, within."""
    world.write(".gitignore", "fanout-report.json\n")
    world.commit()
    report(world, make_run(GROWN))
    assert call("verify").exit_code == 1

    assert call("accept", "--reason", REASON, "--yes").exit_code == 0
    world.commit()
    report(world, make_run(GROWN))

    done = call("verify", "--reports-expected", "1")
    assert (done.exit_code, done.output.splitlines()[1]) == (0, "within budget: approved")


def test_accept_names_who_asks(world: World) -> None:
    """requested_by is what git is told; it claims no review."""
    git(world.root, "config", "user.email", "dana@example.com")
    report(world, make_run(GROWN))
    call("accept", "--reason", REASON, "--yes")

    (path,) = (world.folder / "baselines/approvals").iterdir()
    assert ' "requested_by": "dana@example.com",' in path.read_text().splitlines()


def test_nothing_to_accept(world: World) -> None:
    """The committed anchor is the run already."""
    report(world, make_run())

    done = call("accept", "--reason", REASON)

    assert (done.exit_code, done.output) == (
        0,
        "support: its committed anchor is this run already\nnothing to accept\n",
    )


def test_accept_refuses_in_ci(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3, one message."""
    report(world, make_run(GROWN))
    monkeypatch.setenv("CI", "true")

    done = call("accept", "--reason", REASON, "--yes")

    assert done.exit_code == 3
    assert done.output.startswith("error: a run is not accepted in CI: a build must not approve itself\n  mend: ")


def test_accept_refuses_a_short_reason(world: World) -> None:
    """Exit 2, like any usage error."""
    report(world, make_run(GROWN))

    assert call("accept", "--reason", "because", "--yes").exit_code == 2
    assert call("accept", "--yes").exit_code == 2


def test_verify_says_what_is_wrong(world: World) -> None:
    """Outcome first, the deciding number, the next command."""
    report(world, make_run(GROWN))

    done = call("verify")

    lines = done.output.splitlines()
    assert done.exit_code == 1
    assert lines[:2] == ["fanout-report.json:", "over budget: regressed"]
    assert "    regressed: support: fanout.p95 19 -> 25 (limit 20)" in lines
    assert '  fanout-baseline accept --agent support --reason "…"' in lines


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ((make_run(), make_run()), 0),
        ((make_run(), make_run(GROWN)), 1),
        ((make_run(GROWN), without(make_run(), "t03")), 3),
        ((with_trials(make_run(), "t03", status="stale"), make_run()), 3),
    ],
)
def test_the_worst_report_decides(world: World, runs: tuple[Run, ...], code: int) -> None:
    """One report for each Python version, all of them judged."""
    world.write(".gitignore", "reports/\n")
    world.commit()
    for number, run in enumerate(runs):
        report(world, replace(run, run_id=f"py{number}"), f"reports/py{number}/fanout-report.json")

    assert call("verify", "--report", "reports/*/fanout-report.json", "--reports-expected", "2").exit_code == code


def test_a_report_that_is_missing_fails_the_check(world: World) -> None:
    """A job that did not run, or ran without the gate, left no report."""
    report(world, make_run())

    done = call("verify", "--reports-expected", "2")

    assert (done.exit_code, done.output) == (
        4,
        "error: 1 report matches 'fanout-report.json', and 2 should\n"
        "  mend: see that every job ran `pytest --fanout-budget` and kept its report; what `fanout-baseline combine` "
        "made of all shards is one: --reports-expected 1\n"
        "  see: docs/messages.md#reports-missing\n",
    )
    assert call("verify", "--report", "nowhere/*.json").exit_code == 4


def test_one_unreadable_report_does_not_hide_the_others(world: World) -> None:
    """Each is named; the worst code is the exit."""
    world.write(".gitignore", "*.json\n!baselines/*.json\n")
    world.commit()
    report(world, make_run(), "a.json")
    report(world, replace(make_run(), run_id="another"), "b.json")
    world.commit()

    done = call("verify", "--report", "[ab].json")

    assert done.exit_code == 4
    assert done.output.count("error: the report is of commit") == 2


def test_show_prints_the_committed_anchor(world: World) -> None:
    """Its figures, tasks, trials, digest, and the models that served it."""
    done = call("show", "support")

    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert lines[0].startswith("support: 20 tasks, 20 trials, sha256:")
    assert lines[1] == "models served: small-1"
    assert lines[4].split() == ["support", "fanout", "10.50", "10", "18", "19", "20", "20"]


def test_show_of_an_unknown_class(world: World) -> None:
    """It names those that are there."""
    done = call("show", "triage")

    assert (done.exit_code, done.output) == (
        2,
        "error: HEAD holds no readable anchor of 'triage'; it holds: support\n"
        "  mend: run `pytest --fanout-budget`, then `fanout-baseline accept`\n  see: docs/messages.md#unknown-agent\n",
    )


def test_diff_prints_every_metric_and_the_tasks_that_moved(world: World) -> None:
    """It exits by the verdict."""
    report(world, make_run(GROWN))

    done = call("diff")

    assert done.exit_code == 1
    assert "moved: support t19 fanout 19 -> 25, tokens 1,900 -> 2,500" in done.output
    assert "fanout.max" in done.output


def test_names_from_outside_do_no_harm(world: World) -> None:
    """A task id with a line break and an escape sequence cannot forge a line of output."""
    evil = "t\n::error::x\x1b[2J"
    report(world, make_run({**TWENTY, evil: [90], "u": [90]}))

    done = call("diff")

    assert "\n::error" not in done.output
    assert "\x1b" not in done.output
    assert "moved: support t?::error::x?[2J fanout - -> 90" in done.output


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 4 and how to begin."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    monkeypatch.chdir(folder)

    done = call("show")

    assert (done.exit_code, done.output) == (
        4,
        f"error: {folder}: the project is in no git repository\n"
        "  mend: git init, and commit the project\n  see: docs/messages.md#no-git-repository\n",
    )


def test_a_broken_setting_is_a_message_and_exit_2(world: World) -> None:
    """As a real process: stderr holds the message, no traceback, stdout nothing."""
    world.write("pyproject.toml", "[tool.fanout]\nbaseline = 'x'\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest_fanout.cli.baseline", "show"],
        cwd=world.folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )

    path = world.folder / "pyproject.toml"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {path}: [tool.fanout]: unknown key baseline; known: agents, baselines, recordings\n"
        "  mend: remove or rename 'baseline'\n  see: docs/messages.md#unknown-key\n"
    )
