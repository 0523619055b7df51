"""A project in git whose planner got wider: what a red page is made of, from real recordings, capacity and causes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gate_world import EVALSET, NOW, World, make_run, sha
from lxml import html
from made_agents import Made, tool

from pytest_fanout.gate.costs import with_costs
from pytest_fanout.gate.explaining import with_explanations
from pytest_fanout.gate.past import past_of
from pytest_fanout.meter.samples import measure_trial, turns_of
from pytest_fanout.records import Change, Past, Recording, Run, SessionFacts, TaskRun, Totals, Verdict
from pytest_fanout.store.recordings import RecordingStore

PLAN = "You plan the research. List what to look up, one a line."
WIDE = "You plan the research. List six alternatives to look up, one a line."
READ = "You read a source and note what it says."
TASKS = tuple(f"question-{number:02d}" for number in range(1, 21))
FLEET = """schema = 1
[fleet]
profile = "gpt-oss-120b-h200-tp1"
gpus_reserved = 100
gpus_burst = 20
[demand.support]
dau = 4_000_000
tasks_per_user_day = 6.0
peak_factor = 3.0
onboarding_dau = 1_000_000
[cliffs]
fanout_ratio = 1.5
tasks_per_user_ratio = 1.3
"""


@dataclass(frozen=True)
class Told:
    """What the page is given."""

    run: Run
    verdict: Verdict
    past: Past


def researcher(prompt: str, extra: int) -> Callable[[Made], None]:
    def agent(made: Made) -> None:
        made.call(prompt, [f"the question of {made.task}"], "one\ntwo", tools=[tool("search")])
        for number in range(int(made.task[-2:]) % 5 + 2 + extra):
            made.call(READ, [f"source {number} of {made.task}: " + "salt " * (number + 3)], "a note on what it says")

    return agent


def recorded(world: World, agent: Callable[[Made], None]) -> tuple[TaskRun, ...]:
    """One trial of each task, measured and stored in the work tree."""
    store, runs = RecordingStore(world.settings.recordings, {}), []
    for task in TASKS:
        made = Made(task)
        agent(made)
        measured = measure_trial(made.exchanges, made.clock)
        definition = sha(f"definition of {task}")
        kept = store.save(
            Recording(
                "support", task, 1, definition, NOW, made.clock, "ok", True, tuple(made.exchanges), ("m-1",), ("m-1",)
            )
        )
        runs.append(
            TaskRun(
                "support", task, 1, "ok", True, dict(measured.samples), definition=definition, recording=kept.digest,
                begun_at=NOW, models_requested=("m-1",), models_served=("m-1",),
            )
        )  # fmt: skip
    return tuple(runs)


def run_of(tasks: tuple[TaskRun, ...]) -> Run:
    calls = sum(task.samples["fanout"] or 0 for task in tasks)
    session = SessionFacts(expected=len(tasks), collected=len(tasks), ran=len(tasks))
    made = make_run({task: [1] for task in TASKS})
    return replace(made, tasks=tasks, session=session, totals=Totals(calls=calls, attempts=calls, tokens=calls * 80))


def made_red(root: Path) -> Told:
    """On main the anchor of a narrow planner, approved in two steps; on a branch a wide one, and its run."""
    world = World.make(root)
    world.write("shop/agents.py", f'MODEL = "m-1"\nPLANNER = "{PLAN}"\n')
    world.write("baselines/fleet.toml", FLEET)
    before = run_of(recorded(world, researcher(PLAN, 0)))
    anchor = world.anchor(before)
    for day, old, new in (("2026-09-01", None, 5), ("2026-10-15", 5, 7)):
        changes = tuple(
            Change("metric", name, "all", None if old is None else old * size, new * size)
            for name, size in (("fanout.p95", 1), ("tokens.p95", 230))
        )
        reason = "The first anchor of this class." if old is None else "Sources are now checked twice."
        world.approve(
            None if old is None else anchor, {"fanout.p95": new + 1, "tokens.p95": (new + 1) * 230}, changes=changes,
            requested_on=day, reason=reason, evalset=EVALSET, nonce=sha(day)[7:23],
        )  # fmt: skip
    world.commit("start")
    world.branch()
    world.write("shop/agents.py", f'MODEL = "m-1"\nPLANNER = "{WIDE}"\n')
    run = run_of(recorded(world, researcher(WIDE, 5)))
    world.commit("wider")
    verdict = world.judge(run)
    run = replace(run, base=verdict.base, head=verdict.head)
    verdict = with_costs(verdict, run, world.repo, world.settings)
    verdict = with_explanations(verdict, run, world.repo, world.settings, lambda: partial(turns_of, codecs=()))
    return Told(run, verdict, past_of(verdict, world.repo, world.settings))


def tree(text: str) -> Any:
    return html.document_fromstring(text)


def words(element: Any) -> str:
    return " ".join(element.text_content().split())


def data(text: str) -> dict[str, Any]:
    (element,) = tree(text).xpath("//script")
    assert element.get("type") == "application/json"
    found: dict[str, Any] = json.loads(element.text)
    return found
