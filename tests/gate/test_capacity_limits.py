"""Limits on capacity: judged on the demand of the base commit, like any other limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import TODAY, TWENTY, World, make_run, redrawn, slugs, with_trials

from pytest_fanout.config import Settings
from pytest_fanout.gate import plan_accept, read_anchors
from pytest_fanout.gate.capacity_limits import CapacityLimits, Priced
from pytest_fanout.gate.completeness import measure
from pytest_fanout.records import Base, Change, Head, MetricResult, Run
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.looser import looser, stricter

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


class Files:
    """Stands for a repository: one commit with a fleet.toml, or none."""

    def __init__(self, fleet: str | None) -> None:
        self._fleet = fleet

    def read(self, rev: str, where: str) -> bytes | None:
        return self._fleet.encode() if self._fleet is not None and where.endswith("fleet.toml") else None


def judged(
    run: Run, limit: str, *, reserved: int = 40, fleet: str | None = FLEET, base: Run | None = None, first: bool = False
) -> Priced:
    """The run beside the anchor of fanout 1 to 20, under one limit."""
    budget = parse_budget(LOOSE.format(limit=limit).encode())
    anchor = build_baseline(base or make_run(), "support")
    text = None if fleet is None else fleet.format(reserved=reserved, dau=864_000)
    limits = CapacityLimits(budget, run, {"support": anchor}, Files(text), ["rev"], SETTINGS)
    if first:
        return limits.judge("support", None, measure(run, "support", None, None, ()), None)
    return limits.judge("support", anchor, measure(run, "support", anchor, anchor, ()), None)


SETTINGS = Settings(
    root=Path("/p"), source="pyproject.toml", baselines=Path("/p/baselines"), recordings=Path("/p/r"), agents={}
)


def metric(priced: Priced, name: str) -> MetricResult:
    return next(each for each in priced.metrics if each.name == name)


def told(priced: Priced) -> list[tuple[str, str, str]]:
    return [(problem.slug, problem.verdict, problem.text) for problem in priced.problems]


def test_gpus_within_their_limit() -> None:
    """The same draw takes the same GPUs: a p95 of 10 to 14 with this eval set, and nothing to say."""
    priced = judged(make_run(), '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    found = metric(priced, "capacity.gpus_p95")
    assert told(priced) == []
    assert (found.base, found.over, found.gated, found.n) == (found.run, False, True, 20)
    assert 10 <= found.run <= 14


def test_gpus_above_their_limit(tmp_path: Path) -> None:
    """Twice the calls on the same recordings take twice the GPUs: the class regressed, and its line says so."""
    world = world_of(tmp_path / "p", '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    verdict = world.judge(make_run(TWICE))

    (result,) = verdict.classes
    found = next(each for each in result.metrics if each.name == "capacity.gpus_p95")
    assert (verdict.verdict, found.over) == ("regressed", True)
    assert abs(found.run - 2 * found.base) <= 1
    assert [problem.text for problem in result.problems] == [
        f"support: capacity.gpus_p95 {found.base} -> {found.run} (limit {found.limit})"
    ]


def test_a_maximum_of_gpus() -> None:
    """A maximum holds whatever the anchor takes."""
    priced = judged(make_run(), '"capacity.gpus_p95" = { max = 5 }')

    run = metric(priced, "capacity.gpus_p95").run
    text = (
        f"support: capacity.gpus_p95 is {run}, above the maximum 5 of budget.toml, "
        "which no approval and no waiver lifts"
    )
    assert told(priced) == [("over-max", "regressed", text)]


def test_money_of_a_month() -> None:
    """10 GPUs at 4 dollars an hour are 28,800 in 30 days, 20 are 57,600."""
    priced = judged(make_run(TWICE), '"capacity.cost_month" = { increase = "10%" }')

    found = metric(priced, "capacity.cost_month")
    assert (found.base, found.run, found.limit, found.over) == (28_800, 57_600, 31_680, True)


@pytest.mark.parametrize(
    ("reserved", "fanout", "least", "run", "over"),
    [
        (40, TWENTY, 2, 2, False),  # 7.9 GPUs at 85 %; x 1.1 x 2 are 17.3
        (40, TWICE, 2, 2, False),  # 34.6
        (20, TWICE, 1, 0, True),  # 15.7; onboarding 17.3 fits, twice the fanout 31.5 does not
        (10, TWICE, 0, None, True),  # 15.7: not even today's peak
    ],
)
def test_cliffs(reserved: int, fanout: dict[str, list[int]], least: int, run: int | None, over: bool) -> None:
    """The fleet has to survive so many cliffs at once, as the run drives it."""
    found = metric(
        judged(make_run(fanout), f'"capacity.cliffs" = {{ min = {least} }}', reserved=reserved), "capacity.cliffs"
    )

    assert (found.run, found.limit, found.over) == (run, least, over)


def test_words_of_cliffs() -> None:
    """too-few-cliffs: how many the fleet survives, and how many are asked for."""
    few = judged(make_run(TWICE), '"capacity.cliffs" = { min = 1 }', reserved=20)
    none = judged(make_run(TWICE), '"capacity.cliffs" = { min = 0 }', reserved=10)

    text = "support: the fleet survives 0 cliffs at once, and capacity.cliffs asks for 1; nothing lifts it"
    assert told(few) == [("too-few-cliffs", "regressed", text)]
    assert told(none)[0][2] == (
        "support: the fleet survives not even the demand without a cliff, and capacity.cliffs asks for 0; "
        "nothing lifts it"
    )


def test_demand_is_that_of_the_base(tmp_path: Path) -> None:
    """A change that lowers the demand in fleet.toml makes no room for itself."""
    world = world_of(tmp_path / "p", '"capacity.cost_month" = { max = 30_000 }')
    world.write("baselines/fleet.toml", FLEET.format(reserved=40, dau=1_000))
    world.commit("fewer users")

    (result,) = world.judge(make_run(TWICE)).classes

    assert next(each.run for each in result.metrics if each.name == "capacity.cost_month") == 57_600


def test_what_is_not_known_is_not_within() -> None:
    """capacity-unknown: where tokens are not known, or nothing says what they cost, the class is invalid."""
    run = make_run()
    dark = replace(run, tasks=tuple(
        replace(task, samples={**task.samples, "input_tokens": None}) for task in run.tasks
    ))  # fmt: skip
    text = (
        "support: {0} of this run is not known; mend: give demand, prices and GPUs in fleet.toml, as {0} needs"
    ).format

    assert told(judged(dark, '"capacity.gpus_p95" = { increase = "10%" }')) == [
        ("capacity-unknown", "invalid", text("capacity.gpus_p95"))
    ]
    assert told(judged(run, '"capacity.cost_month" = { max = 1 }', fleet=None)) == [
        ("capacity-unknown", "invalid", text("capacity.cost_month"))
    ]
    assert told(judged(run, '"capacity.cliffs" = { min = 0 }', fleet="schema = 1\n")) == [
        ("capacity-unknown", "invalid", text("capacity.cliffs"))
    ]
    assert told(judged(run, '"capacity.gpus_p95" = { increase = "10%" }', base=dark)) == [
        ("capacity-unknown", "invalid",
         "support: capacity.gpus_p95 of the anchor is not known; mend: record the class anew and accept it")
    ]  # fmt: skip


def test_a_fleet_that_cannot_be_used() -> None:
    """A profile that nobody knows: invalid, with the words of the fleet file."""
    priced = judged(make_run(), '"capacity.gpus_p95" = { max = 99 }', fleet='schema = 1\n[fleet]\nprofile = "mine"\n')

    assert [(slug, verdict) for slug, verdict, _ in told(priced)] == [("unknown-profile", "invalid")]


def test_a_first_anchor_is_held_to_the_maximum_alone() -> None:
    """Without an anchor there is nothing to grow from; a maximum holds all the same."""
    assert told(judged(make_run(), '"capacity.gpus_p95" = { increase = "10%" }', first=True)) == []
    assert [slug for slug, _, _ in told(judged(make_run(), '"capacity.gpus_p95" = { max = 5 }', first=True))] == [
        "over-max"
    ]


def test_looser_limits_on_capacity_are_seen() -> None:
    """Fewer cliffs, more GPUs, or a limit that is gone: each is a loosening; the stricter of both holds."""
    old, new = (
        parse_budget(LOOSE.format(limit=limit).encode())
        for limit in (
            '"capacity.cliffs" = {{ min = 2 }}\n"capacity.gpus_p95" = {{ max = 5 }}'.format(),
            '"capacity.cliffs" = {{ min = 1 }}\n"capacity.cost_month" = {{ max = 5 }}'.format(),
        )
    )

    assert [(change.name, change.old, change.new) for change in looser(old, new)] == [
        ("default.limits.capacity.cliffs.min", 2, 1),
        ("default.limits.capacity.gpus_p95", "limited", "none"),
    ]
    held = {limit.name: (limit.min, limit.max) for limit in stricter(old, new).capacity_for("support")}
    assert held == {
        "capacity.cliffs": (2, None), "capacity.gpus_p95": (None, 5), "capacity.cost_month": (None, 5)
    }  # fmt: skip


def test_without_such_a_limit_nothing_is_read() -> None:
    """A broken fleet.toml is no matter of a class that limits no capacity."""
    assert judged(make_run(), "", fleet="broken") == Priced()


# --- new draws -----------------------------------------------------------------------------------------------------


def test_a_new_draw_that_grew_a_lot() -> None:
    """Another draw with twice the calls in every task: whatever the eval set, it is above."""
    priced = judged(redrawn(make_run(TWICE)), '"capacity.gpus_p95" = { increase = "10%", at_least = 1 }')

    assert [(slug, verdict) for slug, verdict, _ in told(priced)] == [("over-limit", "regressed")]


def test_which_tasks_the_eval_set_holds_is_no_doubt_about_growth() -> None:
    """30 % more in each of 20 uneven tasks: other eval sets take more or fewer GPUs, and grow by 30 % all the same."""
    tens = {task: [10 * value for value in values] for task, values in TWENTY.items()}
    grown = {task: [13 * value for value in values] for task, values in TWENTY.items()}

    priced = judged(redrawn(make_run(grown)), '"capacity.gpus_p95" = { increase = "10%" }', base=make_run(tens))

    assert [(slug, verdict) for slug, verdict, _ in told(priced)] == [("over-limit", "regressed")]


def test_a_new_draw_that_may_be_luck() -> None:
    """capacity-not-shown: one task in twenty drew a long trial; other eval sets would not show that growth."""
    lucky = redrawn(make_run({**TWENTY, "t20": [60]}))

    (found,) = told(judged(lucky, '"capacity.cost_month" = { increase = "5%" }'))
    (warned,) = told(
        judged(lucky, '"capacity.cost_month" = { increase = "5%" }\n[default.judge]\ninconclusive = "warn"')
    )

    assert found[:2] == ("capacity-not-shown", "inconclusive")
    assert found[2].startswith("support: capacity.cost_month 28,800 -> 34,560 (limit 30,240), and in ")
    assert found[2].endswith("% of eval sets like this one it is above: not enough to tell from luck")
    assert warned[1] == "notice"


def test_spare_replicas_stand_on_both_sides() -> None:
    """The more of them, the smaller a part the same growth is: fewer eval sets show it, and never more."""
    shares = []
    for spare in (0, 10, 20):
        fleet = FLEET.replace("gpus_reserved", f"spare_replicas = {spare}\ngpus_reserved")
        lucky = redrawn(make_run({**TWENTY, "t20": [60]}))
        ((slug, _, text),) = told(judged(lucky, '"capacity.cost_month" = { increase = "5%" }', fleet=fleet))
        assert slug == "capacity-not-shown"
        shares.append(int(text.partition(" %")[0].rpartition(" ")[2]))

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[2] > 0


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


# --- what cannot be priced -------------------------------------------------------------------------------------------


def impossible(run: Run) -> Run:
    """More cached input than input: no run can have made that."""
    return with_trials(run, "t03", samples={"cached_input_tokens": 10**6})


def test_samples_that_no_run_can_have_made_are_invalid() -> None:
    """With the words of the projection; a report whose numbers were changed is not priced as if they were right."""
    priced = judged(impossible(make_run()), '"capacity.cost_month" = { max = 10_000_000 }')

    assert priced.metrics == ()
    assert told(priced) == [
        (
            "impossible-samples",
            "invalid",
            "support::t03::t1: 1000000 cached tokens are more than its 240 input tokens: no run can have made that; "
            "mend: record the task again",
        )
    ]


@pytest.mark.parametrize(
    ("limit", "head", "fleet", "grew"),
    [
        ('"capacity.cost_month" = { increase = "10%" }', make_run(), FLEET, False),
        ('"capacity.cost_month" = { increase = "10%" }', make_run({**TWENTY, "t20": [41]}), FLEET, True),
        ('"capacity.cost_month" = { increase = "10%" }', make_run({**TWENTY, "t20": [5]}), FLEET, False),
        ('"capacity.cliffs" = { min = 2 }', make_run(TWICE), FLEET, False),
        ("", make_run(TWICE), FLEET, False),
        ('"capacity.cost_month" = { increase = "10%" }', make_run(TWICE), "broken", False),
        ('"capacity.cost_month" = { increase = "10%" }', impossible(make_run(TWICE)), FLEET, False),
        ('"capacity.cost_month" = { increase = "10%" }', make_run(TWICE), "schema = 1\n", False),
    ],
    ids=["the same", "one GPU more", "one GPU less", "cliffs", "no limit", "broken", "impossible", "no demand"],
)
def test_whether_an_anchor_takes_more_of_what_is_limited(limit: str, head: Run, fleet: str, grew: bool) -> None:
    """210 calls take 9.56 GPUs, 231 take 10.5 and 195 take 8.9, bought whole. What cannot be priced did not grow."""
    text = fleet.format(reserved=40, dau=864_000)
    limits = CapacityLimits(parse_budget(LOOSE.format(limit=limit).encode()), head, {}, Files(text), ["rev"], SETTINGS)

    for _ in range(2):  # a fleet that cannot be read is remembered as such
        anchors = (build_baseline(run, "support") for run in (make_run(), head))
        assert limits.grew("support", *anchors) == grew


@pytest.mark.parametrize(
    ("ran", "anchored", "base", "run"),
    [
        (("support",), ("support",), 2, 2),  # 7.9 GPUs at 85 %, x 1.1 x 2 are 17.3: fits 20
        (("support",), ("support", "triage"), 0, 0),  # twice that: not run, and as its anchor says
        (("support", "triage"), ("support",), None, 0),  # a new class, which no anchor knows
        (("support", "triage"), ("support", "triage"), 0, 0),
    ],
)
def test_cliffs_are_those_of_the_whole_fleet(
    ran: tuple[str, ...], anchored: tuple[str, ...], base: int | None, run: int
) -> None:
    """A class that did not run drives it all the same; of one that is new nothing is known before."""
    fleet = FLEET.format(reserved=20, dau=864_000)
    fleet += fleet[fleet.index("[demand.support]") :].replace("support", "triage")
    made = replace(make_run(), tasks=tuple(task for agent in ran for task in make_run(agent=agent).tasks))
    anchors = {agent: build_baseline(make_run(agent=agent), agent) for agent in anchored}
    limits = CapacityLimits(
        parse_budget(LOOSE.format(limit='"capacity.cliffs" = { min = 0 }').encode()),
        made,
        anchors,
        Files(fleet),
        ["rev"],
        SETTINGS,
    )
    support = anchors["support"]

    priced = limits.judge("support", support, measure(made, "support", support, support, ()), None)

    found = metric(priced, "capacity.cliffs")
    assert (found.base, found.run) == (base, run)
