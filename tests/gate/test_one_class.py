"""The verdict on one class from its anchors, approvals and run alone: no repository. TWENTY has p95 19 (limit 20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from gate_world import EVALSET, NOW, TODAY, TWENTY, make_run, sha, with_trials

from pytest_fanout.gate.classes import Grounds, judge_class, worst
from pytest_fanout.records import Approval, Baseline, Budget, Change, ClassResult, Problem, Run, SessionFacts
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
LOWER = {**TWENTY, "t19": [18]}


def anchor(fanout: dict[str, list[int]] = TWENTY) -> Baseline:
    return build_baseline(make_run(fanout), "support")


def approval(origin: Baseline | None, **changes: Any) -> Approval:
    made = Approval(
        path="baselines/approvals/2026-11-29-support.json",
        kind="baseline",
        subject="support",
        from_digest=origin.digest if origin else None,
        to_digest=None,
        evalset=EVALSET,
        ceilings={"fanout.p95": 27, "tokens.p95": 3000},
        changes=(Change("metric", "fanout.p95", "all", 19, 25),),
        reason="The planner now verifies its citations.",
        requested_by="dana@example.com",
        requested_on=TODAY.isoformat(),
        nonce="5b1f0c9e7d3a2468",
    )
    return replace(made, **changes)


WAIVER = approval(None, kind="waiver", ceilings={}, expires_at=NOW + 3600, evalset=None)


def judged(
    run: Run,
    base: Baseline | None,
    head: Baseline | None,
    *new: Approval,
    past: Sequence[Approval] = (),
    budget: str = "",
    between: Sequence[Baseline] = (),
) -> ClassResult:
    read: Budget = parse_budget(f"schema = 1\n{budget}".encode())
    grounds = Grounds(run, read, new, (), tuple(past), (), TODAY, NOW, lambda agent: between)
    return judge_class("support", base, head, grounds)


def slugs(result: ClassResult) -> list[str]:
    return [problem.slug for problem in result.problems]


def test_the_anchors_own_run_passes() -> None:
    """Nothing is said, and nothing was needed."""
    result = judged(make_run(), anchor(), anchor())

    assert (result.verdict, result.problems, result.approval, result.approval_why) == ("pass", (), None, None)
    assert (result.baseline_base, result.baseline_head) == (anchor().digest, anchor().digest)
    assert (result.tasks_expected, result.tasks_ran, result.trials) == (20, 20, 20)


@pytest.mark.parametrize(
    ("t19", "verdict", "said"),
    [(20, "pass", []), (21, "regressed", ["support: fanout.p95 19 -> 21 (limit 20)"])],
)
def test_growth_without_a_word_is_red_from_beyond_the_limit(t19: int, verdict: str, said: list[str]) -> None:
    """19 x 1.1 is 20.9; tokens may grow by 500 at least."""
    result = judged(make_run({**TWENTY, "t19": [t19], "t20": [t19]}), anchor(), anchor())

    assert (result.verdict, [problem.text for problem in result.problems]) == (verdict, said)


@pytest.mark.parametrize(
    ("ceilings", "run", "verdict", "said"),
    [
        ({"fanout.p95": 27, "tokens.p95": 3000}, GROWN, "approved", []),
        ({"fanout.p95": 25, "tokens.p95": 2500}, GROWN, "approved", []),
        ({"fanout.p95": 24, "tokens.p95": 3000}, GROWN, "unapproved", ["unapproved", "over-limit"]),
        ({"fanout.p95": 25, "tokens.p95": 2500}, {**GROWN, "t19": [26], "t20": [26]}, "mismatch", ["mismatch"]),
    ],
)
def test_an_approval_covers_up_to_its_ceilings(
    ceilings: dict[str, int], run: dict[str, list[int]], verdict: str, said: list[str]
) -> None:
    """The anchor of the step has to be within them, and then the run."""
    base, head = anchor(), anchor(GROWN)
    result = judged(make_run(run), base, head, approval(base, ceilings=ceilings))

    assert result.verdict == verdict
    assert set(said) <= set(slugs(result))
    assert (result.approval is not None) == (verdict != "unapproved")


def test_above_the_ceiling_an_approval_makes_nothing_green() -> None:
    """A run of 26 where 25 was approved: it is red by the ceiling, on a new draw, and its approval is still named."""
    base, head = anchor(), anchor(GROWN)
    run = make_run({**GROWN, "t19": [26], "t20": [26]}, mode="live")
    run = replace(run, tasks=tuple(replace(t, new_draw=True, recording=sha(f"{t.task} anew")) for t in run.tasks))

    result = judged(run, base, head, approval(base, ceilings={"fanout.p95": 25, "tokens.p95": 2600}))

    assert (result.verdict, slugs(result)) == ("regressed", ["over-ceiling"])
    assert result.problems[0].text == (
        "support: fanout.p95 is 26, above the ceiling 25 of baselines/approvals/2026-11-29-support.json"
    )


@pytest.mark.parametrize(
    ("base", "head", "text"),
    [
        (None, TWENTY, "its first anchor is committed"),
        (TWENTY, None, "the removal of its anchor is committed"),
        (TWENTY, GROWN, "its anchor got looser"),
    ],
)
def test_each_looser_step_needs_an_approval(
    base: dict[str, list[int]] | None, head: dict[str, list[int]] | None, text: str
) -> None:
    """A first anchor, a class that is given up, an anchor that grew."""
    run = make_run(head) if head else make_run({}, agents=(), definitions={}, evalsets={})

    result = judged(run, anchor(base) if base else None, anchor(head) if head else None)

    assert f"support: {text} without an approval that covers it (HEAD holds no approval for it)" in "\n".join(
        problem.text for problem in result.problems
    )


def test_a_removed_anchor_of_a_class_that_still_runs_is_brought_back() -> None:
    """And without an anchor anywhere there is nothing to compare with."""
    assert slugs(judged(make_run(), anchor(), None)) == ["anchor-removed"]
    assert slugs(judged(make_run(), None, None)) == ["no-baseline"]


@pytest.mark.parametrize("ceilings", [{}, {"fanout.p95": 99, "tokens.p95": 9999}])
def test_a_class_is_given_up_by_an_approval_without_ceilings(ceilings: dict[str, int]) -> None:
    """One that allows numbers allows no removal."""
    gone = make_run({}, agents=(), definitions={}, evalsets={})

    result = judged(gone, anchor(), None, approval(anchor(), ceilings=ceilings, evalset=None))

    assert ("unapproved" in slugs(result)) == bool(ceilings)


def test_a_lower_anchor_needs_no_approval_and_holds() -> None:
    """p95 18 at HEAD."""
    result = judged(make_run(LOWER), anchor(), anchor(LOWER))

    assert (result.verdict, result.approval, result.approval_why) == ("pass", None, None)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "waived"),
        ({"expires_at": NOW + 1}, "waived"),
        ({"expires_at": NOW}, "regressed"),
        ({"subject": "aaa"}, "regressed"),
        ({"subject": "zzz"}, "regressed"),
    ],
)
def test_a_waiver_lifts_a_red(changes: dict[str, Any], verdict: str) -> None:
    """Of the class, until it ends."""
    result = judged(make_run(GROWN), anchor(), anchor(), replace(WAIVER, **changes))

    assert result.verdict == verdict
    assert (result.approval == WAIVER.path) == (verdict == "waived")


@pytest.mark.parametrize(
    ("run", "budget", "verdict"),
    [
        (make_run(), "", "pass"),
        (with_trials(make_run(GROWN), "t20", status="capped"), "", "regressed"),
        (with_trials(make_run(GROWN), "t20", status="timeout"), "", "regressed"),
        (with_trials(make_run(GROWN), "t20", status="failed"), "", "waived"),
        (make_run(GROWN), '[default.limits]\n"fanout.p95" = { max = 24 }\n', "regressed"),
        (make_run(GROWN), '[default.limits]\n"fanout.p95" = { increase = "10%", max = 25 }\n', "waived"),
        (with_trials(make_run(), "t20", status="stale"), "", "waived"),
        (with_trials(make_run(), "t20", status="crashed"), "", "incomplete"),
        (with_trials(make_run(), "t20", status="invalid"), "", "invalid"),
    ],
    ids=["green", "capped", "timed out", "failed", "over max", "at max", "stale", "crashed", "invalid"],
)
def test_what_a_waiver_does_not_lift(run: Run, budget: str, verdict: str) -> None:
    """A cap, a maximum, and what was not measured for another reason."""
    result = judged(run, anchor(), anchor(), WAIVER, budget=budget)

    assert result.verdict == verdict
    if verdict == "regressed":
        assert result.approval_why == f"{WAIVER.path} is a waiver, and a cap or a maximum still holds"


@pytest.mark.parametrize("agent", ["aaa", "zzz"])
def test_a_cap_of_another_class_is_no_cap_of_this_one(agent: str) -> None:
    """The waiver holds all the same."""
    run = make_run(GROWN)
    capped = with_trials(make_run({"x": [1]}, agent), "x", status="capped")

    assert judged(replace(run, tasks=(*run.tasks, *capped.tasks)), anchor(), anchor(), WAIVER).verdict == "waived"


@pytest.mark.parametrize(
    ("fanout", "changes", "verdict"),
    [
        (TWENTY, {}, "shard"),
        (GROWN, {}, "shard"),
        (TWENTY, {"status": "stale"}, "stale"),
        (TWENTY, {"status": "invalid"}, "invalid"),
    ],
)
def test_a_shard_is_no_verdict_on_the_class(
    fanout: dict[str, list[int]], changes: dict[str, str], verdict: str
) -> None:
    """What one shard alone makes worse is worse all the same."""
    run = replace(with_trials(make_run(fanout), "t20", **changes), session=SessionFacts(expected=20, shard="1/2"))

    assert judged(run, anchor(), anchor()).verdict == verdict


@pytest.mark.parametrize(
    ("line", "verdict"),
    [((), "unapproved"), ((Change("drift", "fanout.p95", "all", 15, 25),), "approved")],
)
def test_growth_of_many_steps_is_told_with_the_step_that_adds_to_it(line: tuple[Change, ...], verdict: str) -> None:
    """15 -> 19 in October, 19 -> 25 now: its approval has to say so."""
    base, head = anchor(), anchor(GROWN)
    october = approval(
        None, requested_on="2026-10-01", nonce="1" * 16, changes=(Change("metric", "fanout.p95", "all", 15, 19),)
    )
    now = approval(base, changes=(Change("metric", "fanout.p95", "all", 19, 25), *line))

    result = judged(make_run(GROWN), base, head, now, past=[october])

    assert result.verdict == verdict
    assert ("drift-unapproved" in slugs(result)) == (verdict == "unapproved")
    settled = judged(
        make_run(), base, base, past=[replace(october, changes=(Change("metric", "fanout.p95", "all", 9, 19),))]
    )
    assert (settled.verdict, [notice.slug for notice in settled.notices if notice.slug == "drift"]) == (
        "pass",
        ["drift"],
    )


def test_an_approval_whose_anchor_was_forgotten_is_named() -> None:
    """It covers what ran, and the anchor at HEAD is still the base's."""
    base = anchor()

    for other, named in (
        (approval(base), True),
        (approval(base, ceilings={"fanout.p95": 24, "tokens.p95": 9999}), False),
    ):
        assert ("anchor-not-committed" in slugs(judged(make_run(GROWN), base, base, other))) == named


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"recording": sha("gone")}, ["mismatch"]),
        ({"samples": {"fanout": 5}}, ["mismatch"]),
        ({"samples": {"tool_calls[search]": 1}}, ["mismatch"]),
        ({"samples": {"tool_calls[search]": 0}}, []),
        ({"status": "crashed"}, ["trial-crashed", "tasks-missing"]),
    ],
)
def test_a_new_anchor_is_what_its_recordings_give(changes: dict[str, Any], said: list[str]) -> None:
    """Every number of every trial; a tool that nobody called is a zero. What is not new was proved when it was."""
    run = with_trials(make_run(LOWER), "t02", **changes)

    assert [slug for slug in slugs(judged(run, anchor(), anchor(LOWER))) if slug in said or slug == "mismatch"] == [
        slug for slug in said if slug != "tasks-missing"
    ]
    assert "mismatch" not in slugs(judged(run, anchor(LOWER), anchor(LOWER)))
    # where the mode records, a recording that is gone was recorded anew; what still replays gives its numbers
    recorded = slugs(judged(replace(run, mode="record"), anchor(), anchor(LOWER)))
    assert ("mismatch" in recorded) == ("mismatch" in said and "recording" not in changes)


@pytest.mark.parametrize(("held", "verdict"), [(0, []), (1, ["mismatch"])])
def test_a_tool_that_the_anchor_names_and_the_run_does_not_was_not_called(held: int, verdict: list[str]) -> None:
    """What a trial leaves out is none of these calls, on whichever side."""
    head = build_baseline(with_trials(make_run(LOWER), "t02", samples={"tool_calls[search]": held}), "support")

    assert [slug for slug in slugs(judged(make_run(LOWER), anchor(), head)) if slug == "mismatch"] == verdict


@pytest.mark.parametrize(
    ("verdicts", "found"),
    [((), "pass"), (("pass", "regressed", "approved"), "regressed"), (("pass", "no such word"), "invalid")],
)
def test_the_worst_of_some_verdicts(verdicts: tuple[str, ...], found: str) -> None:
    """A word that nobody knows is no reason to pass."""
    assert worst(verdicts) == found


def test_a_notice_is_no_problem() -> None:
    """It stands apart, whatever else is told."""
    run = make_run(problems=(Problem("x", "y", "notice", "support"), Problem("z", "y", "stale", "support")))

    result = judged(run, anchor(), anchor())

    assert (result.verdict, slugs(result)) == ("stale", ["z"])
    assert "x" in [notice.slug for notice in result.notices]


@pytest.mark.parametrize(
    ("limits", "unknown"),
    [
        ('"fanout.p95" = { max = 100 }\n"tokens.p95" = { increase = "10%" }', False),
        ('"fanout.p95" = { max = 100 }\n"attempts.p95" = { increase = "10%" }', False),
        ('"fanout.p95" = { max = 100, increase = "10%" }', True),
        ('"fanout.p95" = { increase = "10%" }', True),
    ],
)
def test_a_maximum_needs_no_number_of_the_anchor(limits: str, unknown: bool) -> None:
    """Whatever other limits allow; growth of what the anchor does not know cannot be told."""
    base = build_baseline(with_trials(make_run(), list(TWENTY), samples={"fanout": None}), "support")

    result = judged(make_run(), base, base, budget=f"[default.limits]\n{limits}\n")

    assert ("value-unknown" in slugs(result)) == unknown
