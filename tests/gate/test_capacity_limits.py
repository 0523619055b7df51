"""Limits on capacity: judged on the demand of the base commit, like any other limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import TODAY, TWENTY, World, make_run, redrawn, slugs

from pytest_fanout.gate import plan_accept, read_anchors
from pytest_fanout.records import Base, Change, Head, Run, Verdict

# 100 tasks/s of 10.5 calls: 840 tokens in, 210 out, 0.0669 GPU-seconds, 9.56 GPUs at 70 %; doubled 19.1
FLEET = """schema = 1
[fleet]
gpus_reserved = {reserved}
[prices]
usd_per_gpu_hour = 4
[cliffs]
fanout_ratio = 2.0
[demand.support]
dau = {dau}
tasks_per_user_day = 1
peak_factor = 10
onboarding_dau = 86_400
"""
LOOSE = """schema = 1
[default.limits]
"fanout.p95" = {{ max = 1_000 }}
{limit}
"""
TWICE = {task: [2 * value for value in values] for task, values in TWENTY.items()}


def world_of(root: Path, limit: str, *, reserved: int = 40, dau: int = 864_000) -> World:
    """A project whose base has fanout 1 to 20, a fleet, and one limit on capacity; a feature branch is checked out."""
    world = World.make(root)
    world.write("baselines/budget.toml", LOOSE.format(limit=limit))
    world.write("baselines/fleet.toml", FLEET.format(reserved=reserved, dau=dau))
    world.anchor(make_run())
    world.commit("start")
    world.branch()
    world.commit("feature")
    return world


def metric(verdict: Verdict, name: str):
    return next(each for each in verdict.classes[0].metrics if each.name == name)


def texts(verdict: Verdict) -> list[str]:
    result = verdict.classes[0]
    return [problem.text for problem in (*result.problems, *result.notices) if problem.slug in SHOWN]


SHOWN = {"over-limit", "over-max", "over-ceiling", "too-few-cliffs", "capacity-unknown", "capacity-not-shown"}


def test_gpus_within_their_limit(tmp_path: Path) -> None:
    """The same draw takes the same GPUs: a p95 of 14 with this eval set, and the class passes."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    verdict = world.judge(make_run())

    found = metric(verdict, "capacity.gpus_p95")
    assert verdict.verdict == "pass"
    assert (found.base, found.over, found.gated) == (found.run, False, True)
    assert 10 <= found.run <= 14


def test_gpus_above_their_limit(tmp_path: Path) -> None:
    """Twice the calls on the same recordings take twice the GPUs, exactly: the class regressed."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    verdict = world.judge(make_run(TWICE))

    found = metric(verdict, "capacity.gpus_p95")
    assert verdict.verdict == "regressed"
    assert found.over
    assert abs(found.run - 2 * found.base) <= 1
    assert texts(verdict) == [f"support: capacity.gpus_p95 {found.base} -> {found.run} (limit {found.limit})"]


def test_a_maximum_of_gpus(tmp_path: Path) -> None:
    """A maximum holds whatever the anchor takes."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { max = 5 }')

    verdict = world.judge(make_run())

    run = metric(verdict, "capacity.gpus_p95").run
    assert verdict.verdict == "regressed"
    assert texts(verdict) == [
        f"support: capacity.gpus_p95 is {run}, above the maximum 5 of budget.toml, "
        "which no approval and no waiver lifts"
    ]


def test_money_of_a_month(tmp_path: Path) -> None:
    """10 GPUs at 4 dollars an hour are 28,800 in 30 days, 20 are 57,600."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { increase = "10%" }')

    verdict = world.judge(make_run(TWICE))

    found = metric(verdict, "capacity.cost_month")
    assert (found.base, found.run, found.limit, verdict.verdict) == (28_800, 57_600, 31_680, "regressed")


@pytest.mark.parametrize(
    ("reserved", "fanout", "least", "expected"),
    [
        (40, TWENTY, 2, "pass"),  # 7.9 GPUs at 85 %; x 1.1 x 2 are 17.3
        (40, TWICE, 2, "pass"),  # 34.6
        (20, TWICE, 1, "regressed"),  # 15.7; onboarding 17.3 fits, twice the fanout 31.5 does not
        (10, TWICE, 0, "regressed"),  # 15.7: not even today's peak
    ],
)
def test_cliffs(tmp_path: Path, reserved: int, fanout: dict[str, list[int]], least: int, expected: str) -> None:
    """The fleet has to survive so many cliffs at once, as the run drives it."""
    world = world_of(tmp_path / "p", f'"capacity.cliffs" = {{ min = {least} }}', reserved=reserved)

    assert world.judge(make_run(fanout)).verdict == expected


def test_words_of_cliffs(tmp_path: Path) -> None:
    """too-few-cliffs: how many the fleet survives, and how many are asked for; no waiver lifts it."""
    few = world_of(tmp_path / "few", '"capacity.cliffs" = { min = 1 }', reserved=20).judge(make_run(TWICE))
    none = world_of(tmp_path / "none", '"capacity.cliffs" = { min = 0 }', reserved=10).judge(make_run(TWICE))

    assert texts(few) == [
        "support: the fleet survives 0 cliffs at once, and capacity.cliffs asks for 1; nothing lifts it"
    ]
    assert texts(none) == [
        "support: the fleet survives not even the demand without a cliff, and capacity.cliffs asks for 0; "
        "nothing lifts it"
    ]
    found = metric(few, "capacity.cliffs")
    assert (found.base, found.run, found.limit, found.over) == (2, 0, 1, True)


def test_demand_is_that_of_the_base(tmp_path: Path) -> None:
    """A change that lowers the demand in fleet.toml makes no room for itself."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { max = 30_000 }')
    world.write("baselines/fleet.toml", FLEET.format(reserved=40, dau=1_000))
    world.commit("fewer users")

    assert metric(world.judge(make_run(TWICE)), "capacity.cost_month").run == 57_600


def test_what_is_not_known_is_not_within(tmp_path: Path) -> None:
    """capacity-unknown: without demand, or where tokens are not known, the class is not measured."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%" }')
    run = make_run()
    dark = replace(run, tasks=tuple(
        replace(task, samples={**task.samples, "input_tokens": None}) for task in run.tasks
    ))  # fmt: skip

    verdict = world.judge(dark)

    assert verdict.verdict == "invalid"
    assert (
        "support: capacity.gpus_p95 of this run is not known; mend: give demand, prices and GPUs in fleet.toml, "
        "as capacity.gpus_p95 needs"
    ) in texts(verdict)


def test_without_fleet_toml_a_limit_is_not_within(tmp_path: Path) -> None:
    """A limit on money and no prices: invalid, never a pass."""
    world = World.make(tmp_path / "p")
    world.write("baselines/budget.toml", LOOSE.format(limit='"capacity.cost_month" = { max = 1 }'))
    world.anchor(make_run())
    world.commit("start")
    world.branch()
    world.commit("feature")

    verdict = world.judge(make_run())

    assert (verdict.verdict, "capacity-unknown" in slugs(verdict)) == ("invalid", True)


def test_a_fleet_that_cannot_be_read(tmp_path: Path) -> None:
    """A profile that nobody knows: invalid, with the words of the fleet file."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%" }')
    world.write("baselines/fleet.toml", 'schema = 1\n[fleet]\nprofile = "mine"\n')
    world.commit("other fleet")

    verdict = world.judge(make_run(), base="HEAD")

    assert verdict.verdict == "invalid"
    assert "unknown-profile" in slugs(verdict)


# --- new draws -----------------------------------------------------------------------------------------------------


def test_a_new_draw_that_grew_a_lot(tmp_path: Path) -> None:
    """Another draw with twice the calls in every task: whatever the eval set, it is above."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    verdict = world.judge(redrawn(make_run(TWICE)))

    assert "over-limit" in slugs(verdict)


def test_a_new_draw_that_may_be_luck(tmp_path: Path) -> None:
    """capacity-not-shown: one task in twenty drew a long trial; other eval sets would not show that growth."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { increase = "5%" }')
    lucky = redrawn(make_run({**TWENTY, "t20": [60]}))

    verdict = world.judge(lucky)

    (text,) = texts(verdict)
    assert text.startswith("support: capacity.cost_month 28800 -> 34560 (limit 30240), and in ")
    assert text.endswith("% of eval sets like this one it is above: not enough to tell from luck")


# --- approvals -----------------------------------------------------------------------------------------------------


def test_an_approval_has_a_ceiling_for_it(tmp_path: Path) -> None:
    """`accept` writes a ceiling for each limit on capacity: the run may grow up to it, and not beyond."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { increase = "10%" }')
    run = accepted(world, make_run(TWICE))

    assert run.ceilings["capacity.cost_month"] == 63_360  # 57,600 and a tenth
    assert Change("metric", "capacity.cost_month", "all", 28_800, 57_600) in run.changes
    world.approve(read_main(world), run.ceilings)
    world.anchor(make_run(TWICE))
    world.commit("accepted")
    assert world.judge(make_run(TWICE)).verdict == "approved"
    more = world.judge(make_run({task: [3 * v for v in values] for task, values in TWENTY.items()}))
    assert "over-ceiling" in slugs(more)


def accepted(world: World, run: Run):
    """The approval that `accept` would write."""
    repo = world.repo
    base = Base(repo.resolve("main"), "test")
    run = world.measured(replace(run, base=base, head=Head(repo.resolve("HEAD"))))
    plan = plan_accept(
        run, repo, world.settings, reason="The planner now verifies its citations.", requested_by="dana@example.com",
        today=TODAY, ci=False, base=base,
    )  # fmt: skip
    return plan.classes[0].approval


def test_growth_in_capacity_alone_needs_an_approval(tmp_path: Path) -> None:
    """Where only tokens grew, which have no limit of their own, a dearer anchor is a loosening that is to be seen."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { increase = "10%" }')
    run = make_run()
    dearer = replace(run, tasks=tuple(
        replace(task, samples={**task.samples, "input_tokens": 5 * (task.samples["input_tokens"] or 0)})
        for task in run.tasks
    ))  # fmt: skip

    approval = accepted(world, dearer)
    world.anchor(dearer)
    world.commit("moved in silence")

    assert "unapproved" in slugs(world.judge(dearer))
    assert [change.name for change in approval.changes] == ["capacity.cost_month"]
    world.approve(read_main(world), approval.ceilings)
    world.commit("approved")
    assert world.judge(dearer).verdict == "approved"


def read_main(world: World):
    return read_anchors(world.repo, world.repo.resolve("main"), world.settings)["support"]
