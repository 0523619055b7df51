"""What accepting a run would write, decided on two trees of files without git: each condition by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import TODAY, TWENTY, make_run, with_trials, without
from test_verdict_on_trees import BASE, GROWN, HEAD, LOOSE, STRICT, Files, Trees, anchored, approved

from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate import plan_accept
from pytest_fanout.gate.inputs import inputs_now
from pytest_fanout.gate.plan import Plan, PlannedClass
from pytest_fanout.records import Approval, Base, Change, Problem, Run, SessionFacts
from pytest_fanout.store.approvals import parse_approval
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

LOWER = {**TWENTY, "t19": [18]}
ANCHOR = build_baseline(make_run(), "support")


def planned(
    root: Path,
    run: Run,
    base: Files | None = None,
    head: Files | None = None,
    work: Files | None = None,
    agents: Sequence[str] = (),
    removals: Sequence[str] = (),
) -> Plan:
    """The base holds the anchor of TWENTY, HEAD what the base holds, and the work tree what HEAD holds."""
    base = anchored() if base is None else base
    head = base if head is None else head
    settings = Settings(root / "p", "pyproject.toml", root / "p/baselines", root / "recordings", {})
    for name, data in (head if work is None else work).items():
        path = settings.baselines / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    repo = Trees({BASE: base, HEAD: head})
    run = replace(run, inputs=inputs_now(run, settings))
    return plan_accept(
        run, repo, settings, agents=agents, reason="The planner now verifies its citations.", requested_by="dana",
        today=TODAY, ci=False, base=Base(BASE, "test"), removals=removals,
    )  # type: ignore[arg-type]  # fmt: skip


def refused(*words: Any, **more: Any) -> str:
    with pytest.raises(FanoutError) as caught:
        planned(*words, **more)
    return f"{caught.value.slug}: {str(caught.value).splitlines()[0]}"


def lines(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    return [(change.what, change.name, change.old, change.new) for change in changes]


def only(plan: Plan) -> PlannedClass:
    (found,) = plan.classes
    return found


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "taken"),
    [
        ("notice", True),
        *(
            (word, True)
            for word in ("pass", "approved", "waived", "regressed", "inconclusive", "unapproved", "mismatch")
        ),
        *((word, False) for word in ("no-baseline", "stale", "incomplete", "invalid", "no-base", "integrity", "shard")),
        *((word, False) for word in ("aaa", "zzz")),
    ],
)
def test_what_stands_against_the_run_stands_against_accepting_it(tmp_path: Path, verdict: str, taken: bool) -> None:
    """Whatever says that it was not measured, and what nobody knows; behind a notice as well."""
    run = make_run(problems=(Problem("n", "…", "notice"), Problem("x", "it is so", verdict)))

    if taken:
        assert planned(tmp_path, run).verdict.classes[0].agent == "support"
    else:
        assert refused(tmp_path, run) == f"not-measured: the run cannot be accepted, its verdict is {verdict}: it is so"


@pytest.mark.parametrize(
    ("verdict", "slug", "taken"),
    [
        ("no-baseline", "x", True),
        ("regressed", "x", True),
        ("stale", "x", False),
        ("invalid", "tasks-removed", True),  # what is accepted by its slug, whatever else it may be called
        ("incomplete", "tasks-missing", False),
        ("regressed", "over-max", False),
        ("regressed", "aaa", True),
        ("regressed", "zzz", True),
    ],
)
def test_what_stands_against_a_class_stands_against_accepting_it(
    tmp_path: Path, verdict: str, slug: str, taken: bool
) -> None:
    """A removal is accepted, a first anchor is; a value above its maximum never."""
    run = make_run(GROWN, problems=(Problem(slug, "it is so", verdict, "support"),))

    if taken:
        assert only(planned(tmp_path, run)).agent == "support"
    else:
        assert refused(tmp_path, run).startswith(("not-measured: support cannot", "accept-over-max: it is so"))


@pytest.mark.parametrize(
    ("missing", "removals", "taken"),
    [
        (("t19",), ["t19"], True),
        (("t19",), ["t19", "t20"], True),
        (("t19", "t20"), ["t19"], False),
        (("t19",), [], False),
        (("t19",), ["t1"], False),
    ],
)
def test_every_task_that_is_let_go_is_named(
    tmp_path: Path, missing: tuple[str, ...], removals: list[str], taken: bool
) -> None:
    """Of marked tests, which no eval set tells to be gone."""
    marked = make_run(definitions={}, evalsets={"support": None})
    marked = replace(marked, tasks=tuple(replace(task, definition=None) for task in marked.tasks))
    base = anchored(marked)

    if taken:
        found = only(planned(tmp_path, without(marked, *missing), base, removals=removals))
        gone = [change.name for change in found.changes if change.what == "task_removed"]
        assert gone == list(missing)
    else:
        assert refused(tmp_path, without(marked, *missing), base, removals=removals).startswith("not-measured: support")


@pytest.mark.parametrize(
    ("run", "base", "slug"),
    [
        (with_trials(make_run(LOWER), "t01", passed=False), make_run(), "pass-share-fell"),
        (with_trials(make_run(), "t01", passed=False), make_run(), None),
        (make_run(LOWER), make_run(), None),
        (with_trials(make_run(LOWER), "t01", passed=False), with_trials(make_run(), "t01", passed=False), None),
    ],
)
def test_an_anchor_is_not_lowered_by_work_left_undone(tmp_path: Path, run: Run, base: Run, slug: str | None) -> None:
    """Lower and fewer that pass; either of the two alone is taken."""
    if slug is None:
        assert only(planned(tmp_path, run, anchored(base))).agent == "support"
    else:
        assert refused(tmp_path, run, anchored(base)).startswith(f"{slug}: the anchor of support would be lowered")


# --- which classes ---------------------------------------------------------------------------------------------------


def two() -> Run:
    one, other = make_run(GROWN), make_run(GROWN, "triage")
    return replace(
        one, agents=("triage", "support"), tasks=one.tasks + other.tasks,
        definitions={**one.definitions, **other.definitions}, evalsets={**one.evalsets, **other.evalsets},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("agents", "chosen"),
    [
        ((), ["support", "triage"]),
        (("triage",), ["triage"]),
        (("triage", "support"), ["triage", "support"]),
        (("support", "triage", "support"), ["support", "triage"]),
    ],
)
def test_classes_are_taken_as_they_are_named(tmp_path: Path, agents: tuple[str, ...], chosen: list[str]) -> None:
    """Each once; all that ran where none is named."""
    files = anchored() | anchored(make_run(agent="triage"), "triage")

    assert [each.agent for each in planned(tmp_path, two(), files, agents=agents).classes] == chosen


@pytest.mark.parametrize("where", ["base", "head"])
def test_a_class_that_only_a_commit_knows_is_given_up(tmp_path: Path, where: str) -> None:
    """By an approval where the base has its anchor; one that only HEAD has is taken back without."""
    gone = anchored(make_run(agent="triage"), "triage")
    base = anchored() | (gone if where == "base" else {})

    found = only(planned(tmp_path, make_run(), base, anchored() | gone, agents=["triage"]))

    assert (found.agent, found.result, found.anchor, found.draw) == ("triage", None, None, 1)
    assert lines(found.changes) == [("class_removed", "triage", None, None)]
    assert (found.approval is not None) == (where == "base")
    if found.approval is not None:
        assert found.approval.from_digest == build_baseline(make_run(agent="triage"), "triage").digest
    assert refused(tmp_path, make_run(), agents=["zzz"]).startswith(
        "unknown-agent: 'zzz' is no agent class of this report or of the baselines; known: support"
    )


def test_classes_behind_one_that_is_given_up_are_planned(tmp_path: Path) -> None:
    """Whatever the order."""
    files = anchored() | anchored(make_run(agent="aaa"), "aaa")

    found = planned(tmp_path, make_run(GROWN), files, agents=["aaa", "support"])

    assert [each.agent for each in found.classes] == ["aaa", "support"]


GROWN_HEAD = anchored(make_run(GROWN)) | approved(ANCHOR)


@pytest.mark.parametrize(
    ("run", "head", "work", "unchanged"),
    [
        (make_run(), anchored(), None, True),
        (make_run(), anchored(), {}, False),  # its file is gone from the work tree
        (make_run(), anchored(), {"support.json": b"{}"}, False),
        (make_run(GROWN), anchored(), anchored(make_run(GROWN)), False),  # written, and not committed
        (make_run(GROWN), GROWN_HEAD, None, True),
        (make_run(GROWN), anchored(make_run(GROWN)), None, False),  # committed, and not approved
        (make_run(LOWER), anchored(), None, False),
        (make_run(LOWER), anchored(make_run(LOWER)), None, True),
    ],
)
def test_what_is_committed_and_covered_already_is_left_alone(
    tmp_path: Path, run: Run, head: Files, work: Files | None, unchanged: bool
) -> None:
    """The file, the commit and the verdict have to say so, each of them."""
    plan = planned(tmp_path, run, None, head, work)

    assert (plan.unchanged, [each.agent for each in plan.classes]) == (
        (("support",), []) if unchanged else ((), ["support"])
    )


# --- what a class becomes --------------------------------------------------------------------------------------------

METRICS = [("metric", "fanout.p95", None, 19), ("metric", "tokens.p95", None, 1900)]


@pytest.mark.parametrize(
    ("base", "run", "expected"),
    [
        ({}, make_run(), [("class_added", "support", None, None), *METRICS]),
        ({"support.json": "{"}, make_run(), METRICS),  # it stands in place of one that cannot be read
        (anchored(), make_run({**TWENTY, "t19": [18]}), []),
        (anchored(), make_run({**TWENTY, "new": [18]}), []),
        (anchored(), make_run({**GROWN, "b": [1], "a": [1]}),
         [("metric", "fanout.p95", 19, 25), ("metric", "tokens.p95", 1900, 2500),
          ("metric", "fanout.p95", 19, 25), ("metric", "tokens.p95", 1900, 2500),
          ("task_added", "a", None, None), ("task_added", "b", None, None)]),
        (anchored(), with_trials(make_run(), "t01", passed=False, status="failed"),
         [("metric", "pass.share", "20/20", "19/20"), ("metric", "failed.trials", 0, 1)]),
    ],
)  # fmt: skip
def test_the_lines_for_the_reviewer(tmp_path: Path, base: Files, run: Run, expected: list[tuple[Any, ...]]) -> None:
    """What is new, what grew, which tasks came in beside that, and what did not pass."""
    head = anchored() if base.get("support.json") == "{" else base
    found = only(planned(tmp_path, run, base, head))

    assert lines(found.changes) == expected
    assert (found.approval is not None) == bool(expected)
    if found.approval is not None:
        assert found.approval.changes == found.changes


def test_an_approval_departs_from_the_anchor_and_covers_what_its_limits_name(tmp_path: Path) -> None:
    """25 x 1.1 and 2,500 + 500; the name, eval set and digest are those of the anchors on both sides."""
    found = only(planned(tmp_path, make_run(GROWN)))
    assert found.approval is not None
    assert found.anchor is not None

    assert found.approval.ceilings == {"fanout.p95": 27, "tokens.p95": 3000}
    assert found.approval.from_digest == ANCHOR.digest
    assert found.approval.evalset == found.anchor.evalset
    assert found.anchor.digest == build_baseline(make_run(GROWN), "support").digest
    unknown = make_run(GROWN)
    unknown = with_trials(unknown, list(GROWN), samples={"tool_calls": None})
    budget = 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "10%" }\n"tool_calls[x].p95" = { max = 9 }\n'
    (approval,) = [each.approval for each in planned(tmp_path, unknown, anchored() | {"budget.toml": budget}).classes]
    assert approval is not None
    assert approval.ceilings == {"fanout.p95": 27, "tool_calls[x].p95": 9}


@pytest.mark.parametrize(("draws", "highest"), [({}, 1), ({"t01": 2}, 2), ({"t01": 4, "t02": 3}, 4)])
def test_the_most_often_drawn_trial_is_told(tmp_path: Path, draws: Mapping[str, int], highest: int) -> None:
    """Of the class; that of another does not count."""
    run = two()
    for task, number in draws.items():
        run = replace(run, tasks=tuple(
            replace(t, draw=number) if (t.agent, t.task) == ("support", task) else
            replace(t, draw=9) if t.agent == "triage" else t for t in run.tasks
        ))  # fmt: skip
    files = anchored() | anchored(make_run(agent="triage"), "triage")

    assert only(planned(tmp_path, run, files, agents=["support"])).draw == highest


def test_growth_beyond_the_drift_budget_has_a_line(tmp_path: Path) -> None:
    """15 -> 19 in October by an approval that the base holds, 25 now."""
    october = approved(None, requested_on="2026-10-01", changes=(Change("metric", "fanout.p95", "all", 15, 19),))

    found = only(planned(tmp_path, make_run(GROWN), anchored() | october))

    assert ("drift", "fanout.p95", 15, 25) in lines(found.changes)
    assert ("drift", "fanout.p95", 15, 25) not in lines(only(planned(tmp_path, make_run(GROWN))).changes)


def test_an_older_approval_of_this_branch_is_replaced(tmp_path: Path) -> None:
    """Not the one that is written now, nor those of the base."""
    older, newest = (approved(ANCHOR, requested_on=day, nonce=digit * 16) for day, digit in
                     (("2026-11-27", "1"), ("2026-11-29", "2")))  # fmt: skip
    held = approved(ANCHOR, requested_on="2026-11-01", nonce="3" * 16)

    found = only(planned(tmp_path, make_run(GROWN), anchored() | held, anchored() | held | older | newest))

    assert found.superseded == tuple(name.removeprefix("approvals/") for name in older)
    assert found.approval is not None
    assert found.approval.path == f"baselines/{next(iter(newest))}"


# --- budget and fleet ------------------------------------------------------------------------------------------------

DIGESTS = {text: parse_budget(text.encode()).digest for text in (STRICT, LOOSE)}


def of_budget(origin: str, goal: str, subject: str = "budget") -> Files:
    return approved(
        None, kind="budget", subject=subject, from_digest=origin, to_digest=goal, evalset=None, ceilings={},
        changes=(Change("budget", "x", None, 1, 2),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("base", "work", "head", "needs"),
    [
        (STRICT, STRICT, {}, False),
        (STRICT, LOOSE, {}, True),
        (LOOSE, STRICT, {}, False),
        (STRICT, LOOSE, of_budget(DIGESTS[STRICT], DIGESTS[LOOSE]), False),
        (STRICT, LOOSE, of_budget(DIGESTS[LOOSE], DIGESTS[STRICT]), True),
        ("x = [", LOOSE, {}, True),
        ("x = [", STRICT, {}, True),
    ],
)
def test_a_looser_budget_of_the_work_tree_gets_its_approval(
    tmp_path: Path, base: str, work: str, head: Files, needs: bool
) -> None:
    """From the base's to the very one that stands there, once; in place of one that cannot be read whatever it says."""
    readable = work if base == "x = [" else base
    plan = planned(
        tmp_path, make_run(), anchored() | {"budget.toml": base}, anchored() | {"budget.toml": readable} | head,
        anchored() | {"budget.toml": work},
    )  # fmt: skip

    assert bool(plan.budget) == needs
    for approval in plan.budget:
        assert (approval.kind, approval.subject, approval.to_digest) == ("budget", "budget", DIGESTS[work])
        assert (approval.changes[0].old == "cannot be read") == (base == "x = [")


@pytest.mark.parametrize(("base", "work"), [(STRICT, LOOSE), (LOOSE, STRICT), (STRICT, STRICT)])
def test_ceilings_are_those_of_the_budget_that_will_hold(tmp_path: Path, base: str, work: str) -> None:
    """25 by 10 % is 27, by 90 % it is 47: the looser one only with its approval, which this writes."""
    plan = planned(tmp_path, make_run(GROWN), anchored() | {"budget.toml": base}, None,
                   anchored() | {"budget.toml": work})  # fmt: skip
    approval: Approval | None = only(plan).approval
    assert approval is not None

    assert approval.ceilings == {"fanout.p95": 47 if work == LOOSE else 27}


FLEETS = ["[fleet]\ngpus_reserved = 1\n", "[fleet]\ngpus_reserved = 2\n"]


@pytest.mark.parametrize(
    ("base", "work", "needs"),
    [
        (FLEETS[0], FLEETS[0], False),
        (FLEETS[0], FLEETS[1], True),
        (FLEETS[1], FLEETS[0], True),
        (None, FLEETS[0], False),
        (FLEETS[0], None, True),
    ],
)
def test_each_change_of_the_fleet_gets_its_approval(
    tmp_path: Path, base: str | None, work: str | None, needs: bool
) -> None:
    """More or less; the first one needs none."""
    files = [anchored() | ({"fleet.toml": text} if text else {}) for text in (base, work)]

    plan = planned(tmp_path, make_run(), files[0], None, files[1])
    assert [approval.subject for approval in plan.budget] == ["fleet"] * needs
    if needs:
        (given,) = plan.budget
        assert (given.from_digest, given.to_digest) == (given.changes[0].old, given.changes[0].new)
        held = anchored() | of_budget(str(given.from_digest), str(given.to_digest), "fleet") if work else {}
        if work:
            assert planned(tmp_path, make_run(), files[0], files[0] | held, files[1]).budget == ()


@pytest.mark.parametrize("session", [SessionFacts(expected=20), SessionFacts(shard="1/2"), SessionFacts(partial=True)])
def test_only_a_whole_run_is_taken(tmp_path: Path, session: SessionFacts) -> None:
    """A shard and a part are refused before anything is judged."""
    run = make_run(GROWN, session=session)

    if session.shard or session.partial:
        assert refused(tmp_path, run).startswith(("accept-shard:", "accept-partial:"))
    else:
        assert only(planned(tmp_path, run)).approval is not None


def test_approvals_that_are_planned_can_be_read_again(tmp_path: Path) -> None:
    """As the file that will be written."""
    from pytest_fanout.store.approvals import write_approval

    found = only(planned(tmp_path, make_run(GROWN))).approval
    assert found is not None
    assert parse_approval(write_approval(found), found.path) == found
