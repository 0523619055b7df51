"""A class that a live run never came to, because it had reached its spend limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from gate_world import EVALSET, World, make_run, started, trial

from pytest_fanout.records import SessionFacts
from pytest_fanout.report.facts import session_texts
from pytest_fanout.session.flow.allowance import Spent
from pytest_fanout.session.flow.flow import Flow
from pytest_fanout.session.flow.forecast import Trial
from pytest_fanout.session.flow.limits import SpendLimit
from pytest_fanout.session.flow.told import stopped_problem, unbegun_problem


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def test_classes_without_any_trial_are_found_among_those_selected() -> None:
    """By the items that were selected and the trials that were measured."""
    flow = object.__new__(Flow)
    flow._session = SimpleNamespace(told=SimpleNamespace(task_runs=[trial("support", "a", 1, 2)]))  # type: ignore[assignment]
    flow._trials = [
        Trial("support", "a", 1),
        Trial("support", "b", 1),
        Trial("triage", "c", 1),
        Trial("triage", "c", 2),
    ]

    assert flow._unbegun() == {"triage": {"c"}}


def test_a_class_whose_turn_never_came_is_told(world: World) -> None:
    """It was selected: it is judged, with all its tasks missing, and the next run is of the same classes."""
    limit, only = SpendLimit(5, "calls"), ["support", "triage"]
    spent = Spent(5, 0, refused=True, cut=0, unbegun=3)
    told = (stopped_problem(limit, spent, "record", 20, 23, only), unbegun_problem("triage", 3, limit, "record", only))
    goes_on = "pytest --fanout-budget --fanout-mode=record --fanout-spend-limit={} --fanout-agent=support"
    mend = goes_on.format("5calls") + " --fanout-agent=triage goes on with what is missing"
    run = replace(
        make_run(problems=told, session=SessionFacts(expected=43, partial=True)),
        agents=("sales", "support", "triage"),
        evalsets=dict.fromkeys(("support", "triage"), EVALSET),
    )
    run = replace(run, definitions={**run.definitions, "triage": {"a": "d", "b": "d", "c": "d"}})
    found = world.judge(run)

    assert told[0].text.endswith(f"; mend: {mend}")
    assert told[1].text == (
        f"triage: none of its 3 tasks was completed before the run came to its spend limit of 5 calls; mend: {mend}"
    )
    assert [(result.agent, result.verdict, result.missing) for result in found.classes] == [
        ("support", "pass", ()),
        ("triage", "incomplete", ("a", "b", "c")),
    ]
    assert found.next == (goes_on.format("…") + " --fanout-agent=triage",)
    assert "partial 20/43: a selection and the spend limit left tasks out; nothing can be accepted from it" in (
        session_texts(run, found)
    )
