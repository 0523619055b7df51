"""What the gate adds of capacity to a verdict, and what the reports say of it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from gate_world import TWENTY, World, make_run, slugs, trial, with_trials, without

from pytest_fanout.gate.costs import with_costs
from pytest_fanout.records import Base, Caps, Head, Run, Verdict
from pytest_fanout.report import capacity
from pytest_fanout.report.json import document
from pytest_fanout.report.markdown import render as as_markdown
from pytest_fanout.report.terminal import render as as_terminal

FLEET = """schema = 1
[fleet]
gpus_reserved = 20
[prices]
usd_per_gpu_hour = 4
[cliffs]
fanout_ratio = 2.0
[demand.support]
dau = 864_000
tasks_per_user_day = 1
peak_factor = 10
onboarding_dau = 86_400
"""
TWICE = {task: [2 * value for value in values] for task, values in TWENTY.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A project with an anchor of fanout 1 to 20 and a fleet that holds twice that, but no cliff on top."""
    world = World.make(tmp_path_factory.mktemp("costs") / "project")
    world.anchor(make_run())
    world.write("baselines/fleet.toml", FLEET)
    world.commit("start")
    world.branch()
    world.commit("feature")
    return world


def costed(world: World, run: Run) -> tuple[Run, Verdict]:
    repo = world.repo
    run = replace(run, base=Base(repo.resolve("main"), "test"), head=Head(repo.resolve("HEAD")))
    return run, with_costs(world.judge(run), run, repo, world.settings, caps={"support": Caps()})


def test_the_fleet_stands_in_the_verdict(world: World) -> None:
    """Anchor beside run: GPUs double, one cliff less is survived, and the growth has an interval."""
    _, verdict = costed(world, make_run(TWICE))

    plan = verdict.fleet
    assert plan is not None
    assert (plan.base.gpus, plan.run.gpus) == (10, 20)
    assert (plan.base.cliffs.survivable, plan.run.cliffs.survivable) == (2, 0)
    assert plan.growth.ratio == pytest.approx(2.0, rel=0.01)
    (projection,) = verdict.projections
    assert projection.gpus_spread_run.p95 == pytest.approx(plan.run.gpus_spread.p95)
    assert plan.worst_case[0].tokens_per_task == Caps().tokens


def test_the_words_of_a_regression(world: World) -> None:
    """Ratio first, then percentiles with their interval, the other fit, cliffs and money, in each report."""
    run, verdict = costed(world, make_run(TWICE))

    lines = capacity.details(verdict)
    assert lines[0] == "support GPU time x2.00, calls x2.00 of the anchor"
    assert " GPUs in 95 % of minutes at peak, +" in lines[1]
    assert lines[2] == "support mean by the other fit of the same published rows: 3.95 -> 7.90 GPUs"
    assert "all classes: cliffs survivable 2 -> 0 of 2, on 20 GPUs driven to 85 %" in lines
    assert "all classes: 28,800 -> 57,600 USD in 30 days" in lines
    assert "cliffs survivable 2 -> 0 of 2" in as_terminal(run, verdict, width=120)
    assert "Capacity: ratio, percentiles, cliffs, money" in as_markdown(run, verdict)


def test_an_unchanged_class_says_little(world: World) -> None:
    """No ratio of 1.00, no arrow; the percentiles of the run with their interval."""
    _, verdict = costed(world, make_run())

    lines = capacity.details(verdict)
    assert not any(" -> " in line or "x1.00" in line for line in lines)
    assert "with 90 % of eval sets)" in lines[0]


def test_the_json_report_holds_all_of_it(world: World) -> None:
    """`capacity.fleet` and the spreads of each class fit the schema of the report."""
    run, verdict = costed(world, make_run(TWICE))
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/report.schema.json").read_bytes())

    said = json.loads(json.dumps(document(run, verdict)))

    of_capacity = {"$defs": schema["$defs"], **schema["properties"]["capacity"]}
    assert list(jsonschema.Draft202012Validator(of_capacity).iter_errors(said["capacity"])) == []
    assert said["capacity"]["fleet"]["run"]["cliffs"]["survivable"] == 0
    assert "all classes: 28,800 -> 57,600 USD in 30 days" in said["capacity"]["lines"]


def test_a_part_of_the_tasks_is_no_fleet(world: World) -> None:
    """Of a partial run the tasks are compared, and nothing is said of the fleet."""
    run = make_run()
    part = without(run, "t20")
    part = replace(part, session=replace(part.session, partial=True))

    _, verdict = costed(world, part)

    assert verdict.fleet is None
    (projection,) = verdict.projections
    assert projection.base is not None
    assert (projection.base.calls_per_s, projection.run.calls_per_s) == (1000, 1000)  # 100 tasks/s of 1 to 19


def test_a_context_that_no_replica_holds(world: World) -> None:
    """No number, and why, where the GPUs would stand."""
    run = make_run()
    long = replace(run, tasks=tuple(
        replace(task, samples={**task.samples, "context_max": 2_000_000}) for task in run.tasks
    ))  # fmt: skip

    _, verdict = costed(world, long)

    (projection,) = verdict.projections
    assert (projection.gpus_run, verdict.fleet.run.gpus_spread) == (None, None)
    assert capacity.details(verdict)[0].startswith(
        "support GPUs unknown: a context of 2,000,000 tokens (support) does not fit one replica of 1 GPU, "
    )


def test_a_calibration_that_cannot_be_read(world: World, tmp_path: Path) -> None:
    """A fleet.toml that names a file which is not there makes the run invalid; the defaults stand in meanwhile."""
    path = world.folder / "baselines/fleet.toml"
    path.write_text(FLEET.replace("gpus_reserved = 20", 'calibration = "c/none.json"'))
    try:
        _, verdict = costed(world, make_run())
    finally:
        path.write_text(FLEET)

    assert verdict.verdict == "invalid"
    assert "no-calibration" in slugs(verdict)


def test_a_provider_has_no_gpus(world: World) -> None:
    """Quotas and token prices: no GPU is counted, and the day is that of tokens."""
    path = world.folder / "baselines/fleet.toml"
    prices = "usd_per_million_{0}_tokens = 1\n".format
    path.write_text(
        'schema = 1\n[fleet]\nserves = "provider"\n[quota]\nrequests_per_minute = 100_000\n[prices]\n'
        + "".join(map(prices, ("new_input", "cached_input", "output")))
        + FLEET[FLEET.index("[demand") :]
    )
    try:
        run, verdict = costed(world, make_run(TWICE))
    finally:
        path.write_text(FLEET)

    lines = document(run, verdict)["capacity"]["lines"]
    # 864,000 tasks a day of 1,050 tokens, and of 2,100
    assert lines[0] == (
        "support no GPUs of our own: a provider serves the model; 907 -> 1,814 USD a day; "
        "1.05 -> 2.10 USD per 1,000 tasks"
    )
    assert lines[1] == "all classes: no GPUs of our own: a provider serves the model"
    assert any(line.endswith("% of requests_per_second in 99 % of minutes: over quota") for line in lines)
    assert "all classes: 27,216 -> 54,432 USD in 30 days" in lines


@pytest.mark.parametrize("agent", ["aaa", "zzz"])
def test_another_class_costs_this_one_nothing(world: World, agent: str) -> None:
    """Its trials are its own, whether it sorts before or after."""
    run = make_run()
    both = replace(run, tasks=(*run.tasks, trial(agent, "t01", 1, 900)))

    (alone,) = costed(world, run)[1].projections
    of_both = {projection.agent: projection for projection in costed(world, both)[1].projections}

    assert (of_both["support"].run, of_both["support"].tasks_shared) == (alone.run, 20)


def test_samples_that_no_run_can_have_made_are_not_priced(world: World) -> None:
    """They are told with the class, and make the verdict invalid."""
    _, verdict = costed(world, with_trials(make_run(), "t03", samples={"cached_input_tokens": 10**6}))

    assert (verdict.verdict, verdict.projections, verdict.fleet) == ("invalid", (), None)
    assert [(p.slug, p.verdict, p.agent) for p in verdict.problems] == [("impossible-samples", "invalid", "support")]


@pytest.mark.parametrize(
    ("weights", "calls"),
    [
        (None, 10.5),  # the mean of 1 to 20
        ({"support": {}}, 10.5),
        ({"aaa": {"t20": 9.0}}, 10.5),
        ({"support": {task: 0.0 for task in TWENTY if task not in ("t01", "t02")}}, 1.5),
    ],
)
def test_tasks_count_by_their_weights(world: World, weights: dict[str, dict[str, float]] | None, calls: float) -> None:
    """A task without one counts once; those of other classes count for them."""
    repo = world.repo
    run = replace(make_run(), base=Base(repo.resolve("main"), "test"), head=Head(repo.resolve("HEAD")))

    (projection,) = with_costs(world.judge(run), run, repo, world.settings, weights=weights).projections

    assert projection.run.calls_per_s == pytest.approx(100 * calls)  # 100 tasks a second at peak


def test_call_sites_that_cannot_be_read_are_an_integrity_fault(tmp_path: Path) -> None:
    """A broken file beside the anchor: the class is priced all the same, and the verdict says what is broken."""
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.write("baselines/fleet.toml", FLEET)
    world.write("baselines/support.sites.json", "{")
    world.commit("start")
    world.branch()
    world.commit("feature")

    _, verdict = costed(world, make_run())

    assert (verdict.verdict, len(verdict.projections), verdict.sites) == ("integrity", 1, ())
    assert [(p.verdict, p.agent, p.text.split()[0]) for p in verdict.problems if p.agent] == [
        ("integrity", "support", "baselines/support.sites.json:1:")
    ]


def test_without_one_of_its_classes_it_is_no_fleet(world: World) -> None:
    """The other one is priced by itself."""
    run = make_run(agents=("support", "triage"))

    _, verdict = costed(world, run)

    assert ([result.agent for result in verdict.classes], len(verdict.projections)) == (["support", "triage"], 1)
    assert verdict.fleet is None
