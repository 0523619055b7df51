"""The parts of the verdict on one class, each by itself. TWENTY has fanout p95 19 (limit 20), tokens 1,900."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gate_world import EVALSET, NOW, TODAY, TWENTY, make_run, sha, with_trials, without
from test_one_class import GROWN, LOWER, WAIVER, anchor, approval

from pytest_fanout.gate.capacity_limits import Priced
from pytest_fanout.gate.classes import Grounds, judge_class
from pytest_fanout.gate.tree import Unreadable
from pytest_fanout.records import (
    Approval,
    Baseline,
    ClassResult,
    Comparison,
    MetricResult,
    Problem,
    Reason,
    Run,
    SessionFacts,
)
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

LOST = Unreadable(sha("unreadable"), Problem("bad-json", "it is broken", "integrity", "support"))
GONE = make_run({}, agents=(), definitions={}, evalsets={})
COVERED = approval(anchor())


def judged(
    run: Run,
    base: Baseline | None,
    head: Baseline | None,
    *new: Approval,
    spent: Sequence[Approval] = (),
    lost: Unreadable | None = None,
    budget: str = "",
    **others: Any,
) -> ClassResult:
    read = parse_budget(f"schema = 1\n{budget}".encode())
    grounds = Grounds(
        run, read, new, tuple(spent), others.pop("past", ()), others.pop("gone", ()), TODAY, NOW, lambda agent: (),
        lambda agent: lost if agent == "support" else None, **others,
    )  # fmt: skip
    return judge_class("support", base, head, grounds)


def slugs(result: ClassResult) -> list[str]:
    return [problem.slug for problem in result.problems]


def text(result: ClassResult, slug: str) -> str:
    return next((problem.text.partition("; mend: ")[0] for problem in result.problems if problem.slug == slug), "")


# --- steps of the anchor ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "run", "lost", "new", "told"),
    [
        (None, TWENTY, make_run(), None, [], "its first anchor is committed"),
        (None, TWENTY, make_run(), LOST, [], "its anchor in place of one that cannot be read is committed"),
        (TWENTY, None, GONE, None, [], "the removal of its anchor is committed"),
        (TWENTY, GROWN, make_run(GROWN), None, [], "its anchor got looser"),
        (TWENTY, GROWN, make_run(GROWN), LOST, [], "its anchor got looser"),
        (TWENTY, GROWN, make_run(GROWN), None, [COVERED], None),
        (None, TWENTY, make_run(), None, [approval(None)], None),
        (None, TWENTY, make_run(), LOST, [approval(None, from_digest=LOST.digest)], None),
        (None, TWENTY, make_run(), LOST, [approval(None)],
         "its anchor in place of one that cannot be read is committed"),
        (None, TWENTY, make_run(), None, [approval(None, from_digest=LOST.digest)], "its first anchor is committed"),
        (TWENTY, TWENTY, make_run(), None, [], None),
        (TWENTY, LOWER, make_run(LOWER), None, [], None),
    ],
)  # fmt: skip
def test_which_step_needs_which_approval(
    base: Any, head: Any, run: Run, lost: Unreadable | None, new: list[Approval], told: str | None
) -> None:
    """From the anchor that the base holds, from what stands there and cannot be read, or from nothing."""
    result = judged(run, anchor(base) if base else None, anchor(head) if head else None, *new, lost=lost)

    assert text(result, "unapproved").partition(" without")[0] == (f"support: {told}" if told else "")
    if told is None:
        assert result.verdict == ("approved" if new else "pass")
        assert result.approval == (new[0].path if new else None)


@pytest.mark.parametrize(
    ("evalsets", "given", "covers"),
    [
        ({"support": EVALSET}, EVALSET, True),
        ({"support": sha("newer")}, sha("newer"), True),
        ({"support": sha("newer")}, EVALSET, False),
        ({"support": None}, None, True),
        ({"support": None}, EVALSET, False),
        ({}, EVALSET, True),  # a run that does not know the class: the anchor says of what it is
        ({}, None, False),
    ],
)
def test_an_approval_is_of_the_eval_set_that_ran(
    evalsets: dict[str, str | None], given: str | None, covers: bool
) -> None:
    """The present one, not the one that the anchor was accepted for."""
    result = judged(make_run(GROWN, evalsets=evalsets), anchor(), anchor(GROWN), replace(COVERED, evalset=given))

    assert ("unapproved" not in slugs(result)) == covers
    assert (result.approval_why is None) == covers


def test_an_approval_has_to_reach_the_common_tasks_too() -> None:
    """Forty cheap new tasks: p95 of all is 18, of the common ones 25; a ceiling of 18 hides nothing."""
    diluted = {**GROWN, **{f"cheap{number:02d}": [1] for number in range(40)}}
    for ceiling, covered in ((24, False), (25, True)):
        given = replace(COVERED, ceilings={"fanout.p95": ceiling, "tokens.p95": 2500})
        assert ("unapproved" in slugs(judged(make_run(diluted), anchor(), anchor(diluted), given))) != covered


@pytest.mark.parametrize(
    ("run", "head", "new", "named"),
    [
        (make_run(GROWN), TWENTY, [COVERED], True),
        (make_run(GROWN), TWENTY, [], False),
        (make_run(GROWN), TWENTY, [replace(COVERED, from_digest=sha("other"))], False),
        (make_run(), TWENTY, [COVERED], False),
        (make_run({**GROWN, "t18": [40], "t19": [40], "t20": [40]}), GROWN, [COVERED], False),
        (make_run(GROWN), None, [COVERED], False),
    ],
)
def test_when_an_anchor_was_forgotten(run: Run, head: Any, new: list[Approval], named: bool) -> None:
    """The run is red, HEAD's anchor is the base's, and an approval of this very step is there."""
    result = judged(run, anchor(), anchor(head) if head else None, *new)

    assert ("anchor-not-committed" in slugs(result)) == named
    assert "anchor-not-committed" not in slugs(judged(run, None, anchor(head) if head else None, *new))


def test_a_spent_approval_forgets_no_anchor() -> None:
    """It is history: what it allowed is in the base."""
    assert "anchor-not-committed" not in slugs(judged(make_run(GROWN), anchor(), anchor(), spent=[COVERED]))


@pytest.mark.parametrize(("moved", "verdict"), [(True, "unapproved"), (False, "pass")])
def test_growth_over_time_is_held_against_a_step_that_adds_to_it(moved: bool, verdict: str) -> None:
    """15 -> 25 in sixty days; the same anchor on both sides moved nothing, and a notice tells."""
    past = (replace(COVERED, requested_on="2026-10-01", from_digest=sha("october"), nonce="1" * 16,
                    changes=(replace(COVERED.changes[0], old=15),)),)  # fmt: skip
    base = anchor() if moved else anchor(GROWN)
    new = [COVERED] if moved else []

    result = judged(make_run(GROWN), base, anchor(GROWN), *new, past=past)

    assert result.verdict == verdict
    assert judged(make_run(), anchor(), anchor(), gone=past).verdict == "unapproved"


def test_growth_over_time_is_held_against_an_anchor_in_place_of_a_broken_one() -> None:
    """A first anchor of the class has not moved; one in place of what cannot be read has."""
    past = (replace(COVERED, requested_on="2026-10-01", from_digest=sha("october"), nonce="1" * 16,
                    changes=(replace(COVERED.changes[0], old=15),)),)  # fmt: skip
    first, mended = approval(None), approval(None, from_digest=LOST.digest)

    assert "drift-unapproved" not in slugs(judged(make_run(GROWN), None, anchor(GROWN), first, past=past))
    assert "drift-unapproved" in slugs(judged(make_run(GROWN), None, anchor(GROWN), mended, past=past, lost=LOST))


# --- what the recordings give -----------------------------------------------------------------------------------------


def test_each_trial_that_its_recording_does_not_give_is_named() -> None:
    """By task and number, from one; a task that did not run is passed over, and those behind it are looked at."""
    two = {task: [value, value] for task, (value,) in LOWER.items()}
    run = make_run(two)
    wrong = {("t02", 1): 9, ("t05", 2): 9}
    tasks = tuple(
        replace(t, samples={**t.samples, "fanout": wrong.get((t.task, t.trial), t.samples["fanout"])})
        for t in run.tasks
        if t.task != "t01"
    )

    result = judged(replace(run, tasks=tasks), anchor(), anchor(two))

    assert text(result, "mismatch").endswith("or are gone: t02 (trial 1), t05 (trial 2)")


@pytest.mark.parametrize("status", ["ok", "failed", "capped", "timeout", "stale", "invalid"])
def test_only_a_trial_that_was_measured_gives_numbers(status: str) -> None:
    """A stale one has none, though another trial of its task has."""
    two = {task: [value, value] for task, (value,) in LOWER.items()}
    run = make_run(two)
    tasks = tuple(replace(t, status=status) if (t.task, t.trial) == ("t02", 2) else t for t in run.tasks)

    result = judged(replace(run, tasks=tasks), anchor(), anchor(two))

    assert ("mismatch" in slugs(result)) == (status in ("stale", "invalid"))


# --- numbers and bounds ----------------------------------------------------------------------------------------------


def bounds(result: ClassResult, name: str = "fanout.p95") -> list[tuple[str, int | None, int | None, int | None, bool]]:
    return [(m.scope, m.base, m.run, m.limit, m.over) for m in result.metrics if m.name == name]


@pytest.mark.parametrize(
    ("head", "t19", "expected"),
    [
        (TWENTY, 19, [("all", 19, 19, 20, False)]),
        (GROWN, 19, [("all", 19, 19, 20, False)]),  # a looser anchor that nobody approved bounds nothing
        ({**TWENTY, "t19": [18]}, 19, [("all", 19, 19, 19, False)]),
        ({**TWENTY, "t19": [18]}, 20, [("all", 19, 20, 19, True)]),
        ({**TWENTY, "t17": [16], "t18": [16], "t19": [16]}, 19, [("all", 19, 19, 17, True)]),
    ],
)
def test_the_tighter_of_two_anchors_bounds_the_run(head: Any, t19: int, expected: list[Any]) -> None:
    """18 x 1.1 is 19.8; of 16 it is 17.6."""
    run = make_run({**TWENTY, "t19": [t19]}, mode="record")

    assert bounds(judged(run, anchor(), anchor(head))) == expected


def test_the_tighter_anchor_bounds_the_common_tasks_as_well() -> None:
    """The run has one task more; on the common ones HEAD's p95 is 16."""
    low = {**TWENTY, "t17": [16], "t18": [16], "t19": [16]}
    run = make_run({**TWENTY, "new": [1]}, mode="record")

    assert bounds(judged(run, anchor(), anchor(low))) == [("all", 19, 19, 17, True), ("common", 19, 19, 17, True)]


MAXIMUM = '[default.limits]\n"fanout.p95" = {{ {} }}\n"tokens.p95" = "none"\n'.format


@pytest.mark.parametrize(
    ("limit", "ceiling", "said"),
    [
        ('increase = "100%", max = 25', None, []),
        ('increase = "100%", max = 24', None, ["over-max"]),
        ('increase = "100%", max = 24', 99, ["over-max"]),
        ('increase = "10%"', None, ["unapproved", "over-limit"]),
        ('increase = "10%"', 25, []),
        ('increase = "10%"', 24, ["unapproved", "over-limit"]),
    ],
)
def test_the_last_call_that_is_within(limit: str, ceiling: int | None, said: list[str]) -> None:
    """A run of 25 beside HEAD's anchor of 25: a maximum, a limit, a ceiling of that very number."""
    new = [] if ceiling is None else [replace(COVERED, ceilings={"fanout.p95": ceiling})]
    result = judged(make_run(GROWN), anchor(), anchor(GROWN), *new, budget=MAXIMUM(limit))

    assert [slug for slug in slugs(result) if slug != "unapproved" or slug in said] == said


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("fanout.p90", "let the client ask for usage"),
        ("output_tokens.p90", "let the client ask for usage"),
        ("tool_ms[search].p95", "record anew what was imported: pytest --fanout-budget --fanout-mode=rerecord"),
        ("duration_ms.p95", "record anew what was imported: pytest --fanout-budget --fanout-mode=rerecord"),
        ("spawn_depth.max", "run the agent, or those that it starts, through the gateway, which alone sees it"),
    ],
)
def test_how_a_number_becomes_known(name: str, mend: str) -> None:
    """By what usually keeps it from being known."""
    run = with_trials(make_run(), list(TWENTY), samples={name.split(".")[0]: None})
    limits = f'[default.limits]\n"fanout.p95" = "none"\n"tokens.p95" = "none"\n"{name}" = {{ increase = "10%" }}\n'

    result = judged(run, anchor(), anchor(), budget=limits)

    assert f"support: {name} of this run is not known; mend: {mend}" in [p.text for p in result.problems]


def test_each_gated_number_is_looked_at() -> None:
    """One that is not known, or is within, stops none behind it; a number that has no limit is none."""
    limits = '[default.limits]\n"tokens.p95" = { max = 9_999 }\n"spawn_depth.max" = { max = 1 }\n'
    limits += '"fanout.p95" = { increase = "10%" }\n'
    run = with_trials(make_run(GROWN), list(TWENTY), samples={"spawn_depth": None, "tool_calls": 99})

    assert slugs(judged(run, anchor(), anchor(), budget=limits)) == ["value-unknown", "over-limit"]


# --- evidence --------------------------------------------------------------------------------------------------------

REGRESSED = Comparison("regressed", (), n=20)


@pytest.mark.parametrize(
    ("draw", "new", "head", "kept"),
    [
        ("new", [], TWENTY, True),
        ("same", [], TWENTY, False),
        ("new", [COVERED], GROWN, False),  # an approval holds the run to its ceilings, by raw numbers
        ("new", [replace(COVERED, ceilings={"fanout.p95": 1})], GROWN, True),
    ],
)
def test_which_class_is_judged_by_evidence(draw: str, new: list[Approval], head: Any, kept: bool) -> None:
    """One on another draw, whose step no approval covers."""
    run = make_run(head, mode="record")
    if draw == "new":
        run = with_trials(run, list(TWENTY), new_draw=True, recording=sha("anew"))

    result = judged(run, anchor(), anchor(head), *new, evidence={"support": REGRESSED, "aaa": REGRESSED})

    assert result.evidence == (REGRESSED if kept else None)
    assert judged(run, anchor(), anchor(head), *new, evidence={"aaa": REGRESSED}).evidence is None


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        *((word, True) for word in ("notice", "incomplete", "stale", "unapproved", "mismatch", "integrity")),
        ("invalid", False),
    ],
)
def test_of_what_is_invalid_no_evidence_is_told(verdict: str, told: bool) -> None:
    """Nor how dear a new task is; whatever else stands against the class, both are."""
    found = Comparison("regressed", (), reasons=(Reason("growth-found", "it grew", "regressed"),))
    run = make_run({**TWENTY, "new": [90]}, problems=(Problem("x", "y", verdict, "support"),))
    run = with_trials(run, list(TWENTY), new_draw=True, recording=sha("anew"))

    said = slugs(judged(replace(run, mode="record"), anchor(), anchor(), evidence={"support": found}))

    assert ("growth-found" in said, "new-task-over" in said) == (told, told)


# --- capacity --------------------------------------------------------------------------------------------------------

SHORT = Problem("too-few-cliffs", "support: too few", "regressed", "support")
DEAR = MetricResult("capacity.cost_month", 1, 2, 3, True, True, 20, 20)


def priced(grew: bool, *problems: Problem) -> Any:
    return SimpleNamespace(grew=lambda *_: grew, judge=lambda *_: Priced((DEAR,), problems))


def test_what_is_priced_stands_with_the_class() -> None:
    """Its number beside the others, and its problem; growth of it alone needs an approval."""
    result = judged(make_run(), anchor(), anchor(), capacity=priced(False, SHORT))
    assert (result.verdict, slugs(result), result.metrics[-1]) == ("regressed", ["too-few-cliffs"], DEAR)

    for grew in (True, False):
        step = judged(make_run(LOWER), anchor(), anchor(LOWER), capacity=priced(grew))
        assert ("unapproved" in slugs(step)) == grew
        same = judged(make_run(), anchor(), anchor(), capacity=priced(grew))
        assert same.verdict == "pass"


@pytest.mark.parametrize(
    ("problem", "waived"),
    [
        (SHORT, False),
        (replace(SHORT, slug="over-max"), False),
        *((replace(SHORT, slug=slug), True) for slug in ("aaa", "over-limit", "zzz")),
    ],
)
def test_a_waiver_lifts_no_hard_bound_on_capacity(problem: Problem, waived: bool) -> None:
    """A maximum, and cliffs that the fleet has to survive."""
    result = judged(make_run(), anchor(), anchor(), WAIVER, capacity=priced(False, problem))

    assert (result.verdict == "waived") == waived


# --- what is told beside it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spent", [False, True])
def test_a_waiver_holds_after_it_was_merged(spent: bool) -> None:
    """Until its end, whichever commit holds it."""
    result = judged(make_run(GROWN), anchor(), anchor(), *([] if spent else [WAIVER]), spent=[WAIVER] if spent else [])

    assert (result.verdict, result.approval, result.approval_why) == ("waived", WAIVER.path, None)


@pytest.mark.parametrize(
    ("base", "head", "ran", "removed", "expected"),
    [
        ("ab", "ab", "ab", (), 2),
        ("ab", "a", "a", ("b",), 1),  # HEAD's anchor let it go
        ("ab", "a", "ab", (), 2),
        ("ab", None, "a", ("b",), 2),  # it left the eval set, and the base still asks for it
        ("a", "ab", "ab", (), 2),
        (None, "ab", "ab", (), 2),
        ("ab", "ab", "abc", (), 3),
        ("abc", "a", "a", ("b", "c"), 1),
    ],
)
def test_which_tasks_were_removed_and_how_many_are_expected(
    base: str | None, head: str | None, ran: str, removed: tuple[str, ...], expected: int
) -> None:
    """Those of the base that nobody names any more, and that did not run."""
    anchors = [None if tasks is None else anchor({task: [5] for task in tasks}) for tasks in (base, head)]
    run = make_run({task: [5] for task in ran})

    result = judged(run, *anchors)

    assert (result.removed, result.tasks_expected, result.tasks_ran) == (removed, expected, len(ran))
    lacking = without(make_run({**TWENTY}), "t20", defined=False)
    assert judged(lacking, anchor(), anchor()).removed == ("t20",)


def test_shares_and_movers_are_those_beside_the_base() -> None:
    """HEAD's anchor where the base has none; without any nothing moved."""
    failed = with_trials(make_run(GROWN), "t01", passed=False)
    old = build_baseline(with_trials(make_run(), ("t01", "t02"), passed=False), "support")

    result = judged(failed, old, anchor())
    assert (result.pass_share, result.pass_share_base) == ((19, 20), (18, 20))
    assert [delta.task for delta in result.top] == ["t19", "t20"]
    first = judged(failed, None, anchor())
    assert (first.pass_share_base, len(first.top)) == ((20, 20), 2)
    none = judged(failed, None, None)
    assert (none.pass_share_base, none.top, none.baseline_base, none.baseline_head) == ((0, 0), (), None, None)


def test_a_shard_keeps_what_it_alone_can_tell() -> None:
    """Growth, steps and doubt are of the whole; what was measured badly, or cannot be read, is told by each."""
    run = replace(make_run(GROWN), session=SessionFacts(expected=20, shard="1/2"))
    told = [Problem(verdict, "…", verdict, "support") for verdict in
            ("regressed", "inconclusive", "unapproved", "mismatch", "no-baseline", "stale", "incomplete", "invalid",
             "integrity", "notice")]  # fmt: skip

    result = judged(replace(run, problems=tuple(told)), anchor(), anchor())

    assert slugs(result) == ["stale", "incomplete", "invalid", "integrity"]
    assert "notice" in [notice.slug for notice in result.notices]
    kinds = {notice.slug for notice in result.notices} & {"few-tasks", "few-trials", "provisional"}
    assert kinds == set()
    assert "few-trials" in {notice.slug for notice in judged(make_run(), anchor(), anchor()).notices}
