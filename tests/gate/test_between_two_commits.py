"""What holds between two commits: which budget, which anchor, and what is said where they are one and the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import NOW, TODAY, TWENTY, World, git, make_run, sha, slugs, started, trial

from pytest_fanout.config import Settings
from pytest_fanout.gate import committed_budget, evaluate
from pytest_fanout.gate.classes import nearest_anchor
from pytest_fanout.gate.completeness import measure
from pytest_fanout.gate.judgement import effective
from pytest_fanout.gate.tree import Tree
from pytest_fanout.records import Approval, Base, Baseline, Budget, Head, SessionFacts
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

LOW, HIGH = "sha256:" + "0" * 64, "sha256:" + "f" * 64


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def tree(budget: str = "", fleet: str | None = None, *approvals: Approval) -> Tree:
    return Tree({}, parse_budget(f"schema = 1\n{budget}".encode()), fleet, approvals)


def approval(subject: str, origin: str | None, goal: str | None) -> Approval:
    return Approval(
        path="baselines/approvals/one.json",
        kind="budget",
        subject=subject,
        from_digest=origin,
        to_digest=goal,
        evalset=None,
        ceilings={},
        changes=(),
        reason="The planner now verifies its citations.",
        requested_by="dana@example.com",
        requested_on=TODAY.isoformat(),
        nonce="5b1f0c9e7d3a2468",
    )


def held(base: Tree, head: Tree) -> tuple[Budget, list[str]]:
    budget, problems = effective(base, head, TODAY)
    return budget, [problem.slug for problem in problems]


def test_without_a_change_nothing_is_said() -> None:
    """The budget is that of both."""
    assert held(tree(), tree()) == (tree().budget, [])


STRICT, LOOSE = ('[default.limits]\n"fanout.p95" = { increase = "' + share + '%" }\n' for share in ("5", "50"))


def test_a_looser_budget_holds_by_an_approval_alone() -> None:
    """Without one the base's holds, and it is said; a stricter one holds as it is."""
    strict, loose = tree(STRICT), tree(LOOSE)
    allowed = approval("budget", strict.budget.digest, loose.budget.digest)

    assert held(strict, replace(loose, approvals=(allowed,))) == (loose.budget, ["budget-approved"])
    for other in (approval("fleet", allowed.from_digest, allowed.to_digest), replace(allowed, to_digest=LOW)):
        budget, said = held(strict, replace(loose, approvals=(other,)))
        assert (budget.limits_for("support"), said) == (strict.budget.limits_for("support"), ["budget-loosened"])
    budget, said = held(loose, strict)
    assert (budget.limits_for("support"), said) == (strict.budget.limits_for("support"), [])


@pytest.mark.parametrize("after", [LOW, HIGH, None])
def test_each_change_of_the_fleet_needs_an_approval(after: str | None) -> None:
    """Whichever digest sorts first, and where the file is taken away."""
    before = sha("fleet")

    assert held(tree("", before), tree("", after))[1] == ["fleet-changed"]
    assert held(tree("", before), tree("", after, approval("fleet", before, after)))[1] == []
    assert held(tree("", before), tree("", after, approval("budget", before, after)))[1] == ["fleet-changed"]


def test_the_first_fleet_needs_none() -> None:
    """There was no demand to be held to; and the same one is no change."""
    assert held(tree(), tree("", sha("fleet")))[1] == []
    assert held(tree("", sha("fleet")), tree("", sha("fleet")))[1] == []


# --- the nearest anchor --------------------------------------------------------------------------------------------


def anchor_of(*tasks: str) -> Baseline:
    return build_baseline(make_run({task: [1] for task in tasks}), "support")


@pytest.mark.parametrize(
    ("base", "head", "ran", "partial", "nearest"),
    [
        ("ab", "a", "a", False, "base"),
        ("ab", "a", "a", True, "base"),
        ("b", "a", "a", False, "base"),
        ("b", "a", "a", True, "head"),
        ("b", "ab", "ab", True, "base"),
        ("b", "c", "a", True, None),
        ("b", None, "a", True, None),
        ("b", None, "a", False, "base"),
        (None, "b", "a", True, "head"),
        (None, None, "a", False, None),
    ],
)
def test_which_anchor_is_the_nearest(
    base: str | None, head: str | None, ran: str, partial: bool, nearest: str | None
) -> None:
    """The base's, HEAD's where it has none; for a part of the tasks the first that knows any of them."""
    anchors = {name: anchor_of(*tasks) if tasks else None for name, tasks in (("base", base), ("head", head))}
    measured = measure(make_run({task: [1] for task in ran}), "support", anchors["base"], anchors["head"], ())
    measured = replace(measured, partial=partial)

    found = nearest_anchor(anchors["base"], anchors["head"], measured)

    assert found == (anchors[nearest] if nearest else None)


# --- a verdict -----------------------------------------------------------------------------------------------------


def test_without_a_commit_nothing_was_measured() -> None:
    """Each class of the run is named, with the number of its tasks and nothing else."""
    run = make_run(agents=("support", "triage"))

    found = evaluate(replace(run, base=Base(None, "none"), head=Head(None)), None, settings(), today=TODAY, now=NOW)

    assert [
        (c.agent, c.verdict, c.draw, c.tasks_expected, c.tasks_ran, c.trials, c.metrics, c.problems)
        for c in found.classes
    ] == [("support", "no-base", "none", 20, 0, 0, (), ()), ("triage", "no-base", "none", 0, 0, 0, (), ())]


def settings() -> Settings:
    root = Path("/p")
    return Settings(root, "pyproject.toml", root / "baselines", root / "recordings", {})


@pytest.mark.parametrize("is_lower", [True, False])
def test_a_base_is_no_gate_where_it_is_head_itself(world: World, is_lower: bool) -> None:
    """Another commit is one, whether its number is lower or higher; HEAD is none, whatever the base says of itself."""
    repo = world.repo
    head = world.commit_between("4", "c")
    git(world.root, "switch", "-q", "main")
    other = world.commit_between("", head) if is_lower else world.commit_between(head, "g")

    def said(rev: str, is_gate: bool) -> bool:
        run = replace(make_run(), base=Base(rev, "test", is_gate), head=Head(head))
        return "not-a-gate" in slugs(evaluate(run, repo, world.settings, today=TODAY, now=NOW))

    assert [said(other, True), said(head, True), said(other, False)] == [False, True, True]


def test_a_class_without_an_anchor_at_the_base_has_no_share_beside_it(world: World) -> None:
    """Its own share stands alone, and nothing moved."""
    (result,) = (each for each in world.judge(make_run(agent="triage")).classes if each.agent == "triage")

    assert (result.pass_share, result.pass_share_base, result.top) == ((20, 20), (0, 0), ())


@pytest.mark.parametrize("agent", ["aaa", "zzz"])
def test_a_recording_of_another_class_reproduces_nothing(world: World, agent: str) -> None:
    """The task has the same name and the recording the same content; its numbers are that class's own."""
    run = make_run({**TWENTY, "t19": [18]})
    world.anchor(run)
    world.commit()
    other = replace(trial(agent, "t01", 1, 7), recording=run.tasks[0].recording)

    for tasks in ((*run.tasks, other), (other, *run.tasks)):
        (result,) = (each for each in world.judge(replace(run, tasks=tasks)).classes if each.agent == "support")
        assert (result.verdict, result.problems) == ("pass", ())


@pytest.mark.parametrize(
    ("facts", "agents", "judged"),
    [
        ({}, ("support",), ["support"]),
        ({"partial": True}, ("support",), []),
        ({"shard": "1/2"}, ("support",), []),
    ],
)
@pytest.mark.parametrize("other", ["aaa", "zzz"])
def test_a_class_that_a_part_left_out_is_not_judged(
    world: World, facts: dict[str, object], agents: tuple[str, ...], judged: list[str], other: str
) -> None:
    """Trials of another class are no trials of it; a whole run has to answer for it."""
    run = make_run(agent=other, agents=(*agents, other))
    run = replace(run, session=SessionFacts(expected=20, **facts))  # type: ignore[arg-type]

    assert [each.agent for each in world.judge(run).classes if each.agent == "support"] == judged
    assert [each.agent for each in world.judge(replace(run, ci=True)).classes if each.agent == "support"] == (
        [] if "shard" in facts else ["support"]
    )


def test_a_broken_approval_of_the_past_is_no_problem_of_the_budget(world: World) -> None:
    """Approvals of the base bind nothing any more; of HEAD each has to be readable."""
    base = world.repo.resolve("main") or ""
    world.write("baselines/approvals/x.json", "{")
    broken = world.commit()

    def said(older: str, newer: str) -> list[str]:
        _, problems = committed_budget(world.repo, world.settings, Base(older, "x"), Head(newer), today=TODAY)
        return [problem.verdict for problem in problems]

    assert (said(base, broken), said(broken, base), said(base, base)) == (["integrity"], [], [])
    assert committed_budget(world.repo, world.settings, None, Head(broken), today=TODAY)[1] != ()
    assert committed_budget(world.repo, world.settings, Base(base, "x"), None, today=TODAY) == (parse_budget(None), ())


@pytest.mark.parametrize(
    ("tasks", "partial", "scopes"),
    [
        (TWENTY, False, {"all"}),
        ({"t01": [1], "t02": [2]}, False, {"all", "common"}),
        ({**TWENTY, "new": [1]}, False, {"all", "common"}),
        ({"t01": [1], "new": [1]}, False, {"all", "common"}),
        ({"new": [1]}, False, {"all"}),
        ({"t01": [1], "t02": [2]}, True, {"common"}),
        ({"new": [1]}, True, {"all"}),
    ],
    ids=["the same", "fewer", "more", "others", "none of them", "a part", "a part of none"],
)
def test_which_tasks_stand_beside_the_anchors(
    world: World, tasks: dict[str, list[int]], partial: bool, scopes: set[str]
) -> None:
    """All of both, and the common ones where those are not the same; of a part the common ones alone."""
    run = replace(make_run(tasks), session=SessionFacts(expected=20, partial=partial))

    (result,) = world.judge(run).classes

    assert {metric.scope for metric in result.metrics} == scopes
