"""In which ways one anchor is looser or lower than another: each condition by itself, from both of its sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from gate_world import EVALSET, TODAY, make_run, redrawn, sha, trial, with_trials

from pytest_fanout.gate import lowering
from pytest_fanout.gate.loosening import (
    endings,
    endings_changes,
    gated_values,
    loosening,
    lowered,
    metric_changes,
    pass_share_fell,
    target_of,
)
from pytest_fanout.gate.lowering import lowered_by_luck
from pytest_fanout.gate.permits import Target, find_budget_permit, find_permit
from pytest_fanout.judge import table_of_baseline, table_of_runs
from pytest_fanout.records import (
    Approval,
    Baseline,
    BaselineTask,
    Change,
    ClassResult,
    Comparison,
    JudgeRules,
    Limit,
    MetricEvidence,
    Run,
    TrialFacts,
)
from pytest_fanout.store.baselines import build_baseline

MAX = (Limit("fanout", "max"),)
BOTH = (Limit("fanout", "max"), Limit("tokens", "max"))


def anchor(fanout: Mapping[str, Sequence[int]], **changes: Any) -> Baseline:
    """Of these calls; the changes are those of the trials of task ``a``."""
    return build_baseline(with_trials(make_run(fanout), "a", **changes), "support")


def told(base: Baseline, head: Baseline, limits: Sequence[Limit] = MAX) -> list[tuple[Any, ...]]:
    return [
        (change.what, change.name, *((change.scope, change.old, change.new) if change.scope else ()))
        for change in loosening(base, head, limits)
    ]


# --- looser ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "changes"),
    [
        ({"a": [5]}, {"a": [5]}, []),
        ({"a": [5]}, {"a": [4]}, []),
        ({"a": [5]}, {"a": [6]}, [("metric", "fanout.max", "all", 5, 6)]),
        # of all tasks the dearest is still 9; of the common one it grew
        ({"a": [5], "b": [9]}, {"a": [6], "c": [9]},
         [("metric", "fanout.max", "common", 5, 6), ("task_removed", "b")]),
        ({"a": [5]}, {"a": [5], "c": [5]}, []),
        ({"a": [5]}, {"a": [6], "c": [7]},
         [("metric", "fanout.max", "all", 5, 7), ("metric", "fanout.max", "common", 5, 6)]),
        ({"a": [5], "c": [1], "b": [1]}, {"a": [5]}, [("task_removed", "b"), ("task_removed", "c")]),
    ],
)  # fmt: skip
def test_numbers_that_grew_and_tasks_that_left(
    base: dict[str, list[int]], head: dict[str, list[int]], changes: list[tuple[Any, ...]]
) -> None:
    """On all tasks, and on the common ones where the two hold others."""
    assert told(anchor(base), anchor(head)) == changes


@pytest.mark.parametrize("digest", ["0" * 64, "f" * 64])
def test_another_definition_is_told_whatever_its_digest(digest: str) -> None:
    """Lower or higher than it was, for each common task."""
    base, head = anchor({"a": [5], "b": [5]}), anchor({"a": [5], "b": [5]}, definition=f"sha256:{digest}")

    assert told(base, head) == [("task_redefined", "a")]


@pytest.mark.parametrize(
    ("base", "head", "changes"),
    [
        ((5, 5), (None, 5), [("fanout.max", 5, None)]),
        ((5, None), (5, 5), []),
        ((5, 5), (5, None), [("fanout.max", 5, None)]),
        ((5, 6), (5, 7), [("fanout.max", 6, 7)]),
    ],
)
def test_a_number_that_is_no_longer_known_got_looser(
    base: tuple[int | None, ...], head: tuple[int | None, ...], changes: list[tuple[Any, ...]]
) -> None:
    """Of what was not known before nothing can be told; of the two limits each speaks for itself."""
    tables = [
        table_of_runs(
            [trial("support", task, 1, 1, samples={"fanout": value}) for task, value in zip("ab", row, strict=True)]
        )
        for row in (base, head)
    ]

    found = metric_changes(*tables, MAX, "all")

    assert [(change.name, change.old, change.new) for change in found] == changes


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [
        ([True, True], [True, True], []),
        ([True, True], [True, False], [("metric", "pass.share", "all", "2/2", "1/2")]),
        ([True, False], [True, True], []),
        ([True, False], [True, True, False, False], []),  # the same share of more trials
        ([True, True, False], [True, False], [("metric", "pass.share", "all", "2/3", "1/2")]),
    ],
)
def test_a_smaller_share_that_passes_is_looser_by_itself(
    base: list[bool], head: list[bool], found: list[tuple[Any, ...]]
) -> None:
    """Not where something else is to be approved anyway."""
    one, two = passing(base), passing(head)

    assert told(one, two) == found
    changed = told(one, replace(two, tasks={"a": replace(two.tasks["a"], definition="sha256:" + "0" * 64)}))
    assert changed == [("task_redefined", "a")]


def passing(passed: Sequence[bool], statuses: Sequence[str] = ()) -> Baseline:
    run = make_run({"a": [5] * len(passed)})
    kinds = statuses or ["ok"] * len(passed)
    made = (replace(t, passed=p, status=s) for t, p, s in zip(run.tasks, passed, kinds, strict=True))
    return build_baseline(replace(run, tasks=tuple(made)), "support")


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [
        (["ok", "ok"], ["ok", "ok"], []),
        (["ok", "ok"], ["ok", "capped"], [("metric", "capped.trials", "all", 0, 1)]),
        (["ok", "ok"], ["timeout", "ok"], [("metric", "capped.trials", "all", 0, 1)]),
        (["ok", "ok"], ["failed", "ok"], []),
        (["ok", "capped"], ["ok", "capped"], []),
        (["ok", "capped"], ["ok", "ok", "capped", "timeout"], []),  # the same share of more trials
        (["ok", "capped"], ["ok", "ok", "ok", "capped"], []),  # a smaller one
        (["ok", "ok", "capped"], ["ok", "capped"], [("metric", "capped.trials", "all", 1, 1)]),
        (["ok", "ok", "ok", "capped"], ["capped", "capped", "ok"], [("metric", "capped.trials", "all", 1, 2)]),
    ],
)
def test_a_larger_share_that_a_cap_has_stopped_is_looser(
    base: list[str], head: list[str], found: list[tuple[Any, ...]]
) -> None:
    """Shares, not counts: an anchor may have more trials than the one before."""
    assert told(passing([True] * len(base), base), passing([True] * len(head), head)) == found


ENDS = [("ok", True), ("ok", False), ("capped", False), ("timeout", False), ("timeout", True), ("failed", False)]


def test_how_trials_ended_is_counted() -> None:
    """Six trials, two of which passed; of no anchor there is none."""
    made = passing([passed for _, passed in ENDS], [status for status, _ in ENDS])

    assert endings(made) == {"trials": 6, "passed": 2, "capped": 3, "failed": 1}
    assert endings(None) == {"trials": 0, "passed": 0, "capped": 0, "failed": 0}


@pytest.mark.parametrize(
    ("base", "head", "lines"),
    [
        (["ok"], ["ok"], []),
        (["failed"], ["ok"], []),
        (None, ["ok", "failed"], [("pass.share", None, "1/2"), ("failed.trials", None, 1)]),
        (["ok"], ["capped"], [("pass.share", "1/1", "0/1"), ("capped.trials", 0, 1)]),
        (["capped"], ["failed"], [("pass.share", "0/1", "0/1"), ("capped.trials", 1, 0), ("failed.trials", 0, 1)]),
        (["failed"], ["capped"], [("pass.share", "0/1", "0/1"), ("capped.trials", 0, 1), ("failed.trials", 1, 0)]),
    ],
)
def test_the_reviewer_is_shown_what_did_not_pass(
    base: list[str] | None, head: list[str], lines: list[tuple[Any, ...]]
) -> None:
    """Where all passes nothing is shown; of each end that either side has, both counts are."""
    one, two = (None if row is None else passing([each == "ok" for each in row], row) for row in (base, head))
    assert two is not None

    assert [(change.name, change.old, change.new) for change in endings_changes(one, two)] == lines


@pytest.mark.parametrize(
    ("base", "head", "fell"),
    [
        ((), (True,), False), ((True,), (), False), ((), (), False), ((True,), (False,), True),
        ((False,), (False,), False), ((True, False), (False, True), False),
    ],
)  # fmt: skip
def test_of_no_trials_none_failed(base: Sequence[bool], head: Sequence[bool], fell: bool) -> None:
    """Neither share can be told then."""
    tables = [
        table_of_runs([trial("support", "a", n, 1, passed=passed) for n, passed in enumerate(row)])
        for row in (base, head)
    ]

    assert pass_share_fell(*tables) == fell


# --- values that an approval has to reach -----------------------------------------------------------------------------


def test_the_larger_value_of_all_and_of_the_common_tasks_has_to_be_reached() -> None:
    """Of 9 and 5 it is 9, whichever is which; without common tasks all of them count."""
    made = anchor({"a": [5], "b": [9]})
    tables = [table_of_baseline(made), table_of_baseline(made).only({"a"})]

    assert gated_values(tables, BOTH) == gated_values(tables[::-1], BOTH) == {"fanout.max": 9, "tokens.max": 900}
    assert gated_values(tables[1:], MAX) == {"fanout.max": 5}
    for common in (None, set(), {"a"}, {"a", "b"}):
        assert target_of(made, MAX, common) == Target(EVALSET, {"fanout.max": 9})
    mean = (Limit("fanout", "mean"),)
    assert target_of(made, mean, {"b"}).values == {"fanout.mean": 9}
    assert target_of(made, mean, {"a"}).values == {"fanout.mean": 7}


def test_what_is_not_known_has_no_value_to_reach() -> None:
    """The other limits have."""
    made = anchor({"a": [5]}, samples={"fanout": None})

    assert gated_values([table_of_baseline(made)], BOTH) == {"tokens.max": 500}


# --- lower ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "names"),
    [
        ({"fanout": 5}, {"fanout": 5}, ()),
        ({"fanout": 5}, {"fanout": 6}, ()),
        ({"fanout": 5}, {"fanout": 4}, ("fanout.max",)),
        ({"fanout": None}, {"fanout": 4}, ()),
        ({"fanout": 5}, {"fanout": None}, ()),
        ({"fanout": 5, "input_tokens": 9}, {"fanout": 4, "input_tokens": 8}, ("fanout.max", "tokens.max")),
        ({"fanout": 5, "input_tokens": 9}, {"fanout": 6, "input_tokens": 8}, ("tokens.max",)),
    ],
)
def test_which_numbers_are_lower(
    base: dict[str, int | None], head: dict[str, int | None], names: tuple[str, ...]
) -> None:
    """Known on both sides, and smaller."""
    one, two = (anchor({"a": [5]}, samples=samples) for samples in (base, head))

    assert lowered(one, two, BOTH) == names


ORIGIN = anchor({"a": [5, 5], "b": [5, 5]})
LOWER = redrawn(make_run({"a": [4, 4], "b": [4, 4]}))


def entry(verdict: str) -> MetricEvidence:
    return MetricEvidence("fanout", "body", verdict, 1.0, (None, None), None, None, None, 2, 2, 2)


@pytest.mark.parametrize(
    ("run", "changes", "evidence", "lucky"),
    [
        (LOWER, {}, ["open"], True),
        (LOWER, {"draw": "mixed"}, ["open"], True),
        (LOWER, {"draw": "same"}, ["open"], False),
        (LOWER, {"draw": "none"}, ["open"], False),
        *((LOWER, {"verdict": word}, ["open"], False) for word in ("approved", "regressed", "unapproved")),
        (LOWER, {}, [], True),
        (LOWER, {}, ["open", "pass"], True),
        (LOWER, {}, ["regressed"], False),
        (LOWER, {}, ["unconfirmed"], False),
        (LOWER, {}, ["pass", "regressed"], False),
        (LOWER, {}, ["regressed", "pass"], False),
        (redrawn(make_run({"a": [5, 5], "b": [5, 5]})), {}, ["open"], False),  # not lower
        (with_trials(LOWER, "a", definition=sha("another")), {}, ["open"], False),
        (with_trials(LOWER, "a", definition="sha256:" + "0" * 64), {}, ["open"], False),
        (make_run({"a": [4, 4], "b": [4, 4]}), {}, ["open"], False),  # the very recordings
        (make_run({"a": [4, 4, 4], "b": [4, 4]}), {}, ["open"], False),  # and one more
        (make_run({"a": [4], "b": [4, 4]}), {}, ["open"], True),  # one is gone
    ],
)
def test_when_a_lower_draw_is_luck(
    monkeypatch: pytest.MonkeyPatch, run: Run, changes: dict[str, str], evidence: list[str], lucky: bool
) -> None:
    """A green run on another draw of the same tasks, of which no test shows that the older one was higher."""
    asked = []

    def judge(draws: Mapping[str, Any]) -> dict[str, Comparison]:
        (draw,) = draws.values()
        asked.append(draw)
        return {agent: Comparison("pass", tuple(map(entry, evidence))) for agent in draws}

    monkeypatch.setattr(lowering, "judge_draws", judge)
    made, limits = build_baseline(run, "support"), (*MAX, Limit("attempts", "max", max=99, evidence=False))
    result = replace(ClassResult("support", "pass", "new", (), (), 2, 2, 4), **changes)  # type: ignore[arg-type]

    found = lowered_by_luck(ORIGIN, made, result, limits, JudgeRules())

    assert found == (("fanout.max", "attempts.max") if lucky and lowered(ORIGIN, made, limits)[1:] else
                     ("fanout.max",) if lucky else ())  # fmt: skip
    for draw in asked:  # the question turned round: any growth at all, from the new draw to the old one
        assert draw.anchor == table_of_baseline(made)
        assert draw.run == table_of_baseline(ORIGIN)
        assert {(each.increase, each.at_least, each.max, each.evidence) for each in draw.limits} == {(0, 0, None, True)}
        assert {each.name for each in draw.limits} == set(found or lowered(ORIGIN, made, limits))


# --- chains of approvals ---------------------------------------------------------------------------------------------


def link(number: int, origin: str | None, value: int, **changes: Any) -> Approval:
    made = Approval(f"a/{number}.json", "baseline", "support", origin, None, EVALSET, {"fanout.max": value}, (),
                    "a reason", "dana", TODAY.isoformat(), f"{number}")  # fmt: skip
    return replace(made, **changes)


def between(number: int) -> tuple[Baseline, Target]:
    made = Baseline("support", sha(f"anchor {number}"), EVALSET, {"a": BaselineTask("", {}, ())})
    return made, Target(EVALSET, {"fanout.max": number})


CHAIN = [
    link(1, sha("origin"), 1),
    link(2, sha("anchor 1"), 2),
    link(3, sha("anchor 2"), 3),
    link(4, sha("anchor 3"), 9),
]


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
def test_a_chain_of_three_is_followed_in_any_order(order: tuple[int, ...]) -> None:
    """One that has been reached stops nothing; without one of the links the last is not reached."""
    target = Target(EVALSET, {"fanout.max": 9})

    def find(links: Sequence[Approval]) -> Approval | None:
        anchors = [between(number) for number in order]
        return find_permit("support", links, (), sha("origin"), target, TODAY, lambda: anchors).approval

    for links in (CHAIN, CHAIN[::-1]):
        assert find(links) == CHAIN[3]
    for missing in range(4):
        assert find([each for place, each in enumerate(CHAIN) if place != missing]) is None


def test_an_approval_that_leads_from_elsewhere_stops_none_behind_it() -> None:
    """Told, and the next one holds; an anchor that was given up and approved again is no way of its own."""
    stray, good = link(1, sha("elsewhere"), 9), link(2, sha("anchor 1"), 9)
    first = link(0, sha("origin"), 1)

    permit = find_permit("support", [first, stray, good], (), sha("origin"), Target(EVALSET, {"fanout.max": 9}), TODAY,
                         lambda: [between(1)])  # fmt: skip

    assert permit.approval == good


def test_a_budget_that_did_not_change_needs_no_approval_and_gets_none() -> None:
    """From a content to itself leads no link."""
    held = link(1, sha("b"), 1, kind="budget", subject="budget", to_digest=sha("c"))

    permit = find_budget_permit("budget", [held], sha("b"), sha("b"), TODAY)

    assert (permit.approval, permit.why) == (None, "1.json: it leads from or to another content")


def test_growth_of_a_step_is_not_told_as_a_fact_of_trials() -> None:
    """Trials of a recording that is not known are still trials: what an anchor keeps of each is counted by itself."""
    fact = TrialFacts(None, "capped", False, None)
    made = Baseline("support", sha("x"), None, {"a": BaselineTask("", {"fanout": (1, 2)}, (fact, fact))})

    assert endings(made) == {"trials": 2, "passed": 0, "capped": 2, "failed": 0}
    assert endings_changes(None, made)[0] == Change("metric", "pass.share", "all", None, "0/2")
