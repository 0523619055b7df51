"""The JUnit file: what a merge request shows of the gate, written by pytest's own writer."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.junitxml import LogXML
from gate_world import World, make_run, started, trial, with_trials
from project import Project

from pytest_fanout.records import Problem, Run, Verdict
from pytest_fanout.session.junit import properties_of, tell_gate

GROWN = {**{f"t{number:02d}": [number] for number in range(1, 21)}, "t19": [25], "t20": [25]}


def junit(world: World, run: Run, verdict: Verdict) -> list[ET.Element]:
    """The test cases of the file that pytest writes when the gate has spoken."""
    path = world.root / "junit.xml"
    plugin = LogXML(str(path), None)
    plugin.pytest_sessionstart()
    config = cast("pytest.Config", SimpleNamespace(pluginmanager=SimpleNamespace(get_plugins=lambda: [plugin])))
    tell_gate(config, run, verdict, world.settings)
    plugin.pytest_sessionfinish()
    suite = ET.parse(path).getroot()[0]
    assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
    return suite.findall("testcase")


def judged(world: World, run: Run, **changes: Any) -> tuple[Run, Verdict]:
    return run, world.judge(run, **changes)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def test_a_class_within_budget_is_a_passed_case_with_its_figures(world: World) -> None:
    """One case, named by its class, with the verdict and each gated number."""
    (case,) = junit(world, *judged(world, make_run()))

    assert (case.get("classname"), case.get("name"), case.get("file")) == (
        "fanout-gate",
        "support",
        "baselines/support.json",
    )
    assert [child.tag for child in case] == ["properties"]
    assert {p.get("name"): p.get("value") for p in case.iter("property")} == {
        "verdict": "pass",
        "fanout.p95": "19",
        "tokens.p95": "1900",
    }


def test_a_class_over_budget_is_a_failure_that_says_why(world: World) -> None:
    """The deciding number first, then the other problems."""
    (case,) = junit(world, *judged(world, make_run(GROWN)))

    (failure,) = case.findall("failure")
    assert failure.get("message", "").startswith("over budget (regressed): support fanout.p95 19 -> 25")
    assert "support: tokens.p95 1,900 -> 2,500 (limit 2,399)" in str(failure.text)


def test_what_was_not_measured_is_a_failure(world: World) -> None:
    """Stale is no pass."""
    (case,) = junit(world, *judged(world, with_trials(make_run(), "t01", status="stale")))

    assert case.find("failure") is not None


def test_what_is_of_no_class_is_a_case_of_its_own(world: World) -> None:
    """A worker that was lost decides, and no class has that verdict."""
    run = make_run(problems=(Problem("worker-lost", "the worker gw0 ended\x1b[31m", "incomplete"),))
    cases = junit(world, *judged(world, run))

    assert [case.get("name") for case in cases] == ["support", "run"]
    failure = cases[1].find("failure")
    assert failure is not None
    assert "the worker gw0 ended\\x1b[31m" in failure.get("message", "")


def test_a_waiver_passes_and_a_shard_is_skipped(world: World) -> None:
    """Nobody judges a shard alone."""
    run = make_run()
    shard = make_run(session=type(run.session)(expected=20, ran=20, shard="1/2"))
    (case,) = junit(world, *judged(world, shard))
    assert [child.tag for child in case if child.tag != "properties"] == ["skipped"]

    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_000_000)
    world.commit()
    (case,) = junit(world, *judged(world, make_run(GROWN)))
    assert [child.tag for child in case] == ["properties"]


def test_without_junitxml_nothing_happens(world: World) -> None:
    """No plugin that writes JUnit, no case: the others are left as they are."""
    other = SimpleNamespace()
    config = cast("pytest.Config", SimpleNamespace(pluginmanager=SimpleNamespace(get_plugins=lambda: [other])))
    tell_gate(config, *judged(world, make_run()), world.settings)

    assert vars(other) == {}


def test_figures_of_a_trial() -> None:
    """Tokens are input and output together; what is not known is left out, and never 0."""
    known = trial("support", "t1", 1, 3)
    unknown = trial("support", "t1", 1, 3, samples={"fanout": 0, "input_tokens": None, "output_tokens": 7})

    assert properties_of(known) == [("fanout", 3), ("tokens", 300)]
    assert properties_of(unknown) == [("fanout", 0)]


def test_a_real_run_writes_both(project: Project) -> None:
    """task-1 makes two calls; the class has no anchor yet. With two workers of xdist it is the same."""
    done = project.pytest("--fanout-mode=record", "--fanout-trials=1", "--junitxml=junit.xml", "-n", "2")

    cases = list(ET.parse(project.root / "junit.xml").getroot().iter("testcase"))
    first = next(case for case in cases if "task-1" in f"{case.get('classname')}::{case.get('name')}")
    assert {p.get("name"): p.get("value") for p in first.iter("property")}["fanout"] == "2"
    gate = next(case for case in cases if case.get("classname") == "fanout-gate")
    failure = gate.find("failure")
    assert failure is not None, done.text
    assert failure.get("message", "").startswith("not measured (no-baseline): support has no accepted baseline")
