"""The audit of one step after the other on trees made by hand: what each commit did, and what allowed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from gate_world import EVALSET, TODAY, TWENTY, make_run, without
from test_accept_on_trees import DIGESTS, of_budget
from test_verdict_on_trees import GROWN, HEAD, LOOSE, SETTINGS, STRICT, Files, Trees, anchored, approved

from pytest_fanout.gate import audit
from pytest_fanout.gate.audit import Step, steps
from pytest_fanout.gate.tree import read_tree
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.history import Commit

ANCHOR = build_baseline(make_run(), "support")
BROKEN: Files = {"support.json": "{"}
LOST_BUDGET = read_tree(Trees({HEAD: {"budget.toml": "x = ["}}), HEAD, SETTINGS, HEAD).budget.digest  # type: ignore[arg-type]


def audited(
    monkeypatch: pytest.MonkeyPatch, *files: Files | None, agents: Sequence[str] = (), between: Sequence[str] = (),
    more: dict[str, Files] | None = None,
) -> list[Step]:  # fmt: skip
    """The steps from tree to tree, oldest first; None: the first commit has no parent."""
    revs = [f"{number:040d}" for number in range(len(files))]
    commits = [
        Commit(rev, revs[place - 1] if place and files[place - 1] is not None else None, TODAY, rev)
        for place, rev in enumerate(revs)
        if place
    ]
    repo = Trees({rev: held or {} for rev, held in zip(revs, files, strict=True)} | (more or {}), between)
    monkeypatch.setattr(audit, "main_line", lambda repo, rev, paths, most: commits[::-1][:most])
    return steps(repo, HEAD, SETTINGS, agents)  # type: ignore[arg-type]


def told(found: Sequence[Step]) -> list[tuple[str, str]]:
    return [(step.subject, step.kind) for step in found]


GIVEN = approved(ANCHOR, requested_on=TODAY.isoformat())
WAIVER = approved(None, kind="waiver", evalset=None, ceilings={}, changes=(), expires_at=1_796_000_000,
                  requested_on=TODAY.isoformat(), nonce="7" * 16)  # fmt: skip
REMOVAL = approved(ANCHOR, ceilings={}, evalset=None, requested_on=TODAY.isoformat(), nonce="8" * 16)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (anchored(), anchored(), []),
        (anchored(), anchored(make_run({**TWENTY, "t19": [18]})), [("support", "tightening")]),
        (anchored(), anchored(make_run(GROWN)), [("support", "unapproved")]),
        (anchored(), anchored(make_run(GROWN)) | GIVEN, [("support", "approved")]),
        (anchored() | GIVEN, anchored(make_run(GROWN)) | GIVEN, [("support", "unapproved")]),  # spent
        (anchored(), {}, [("support", "unapproved")]),
        (anchored(), REMOVAL, [("support", "approved")]),
        (anchored(), GIVEN, [("support", "unapproved")]),  # one with ceilings removes nothing
        ({}, anchored(), [("support", "unapproved")]),
        (None, anchored(), [("support", "unapproved")]),
        ({}, anchored() | approved(None, requested_on=TODAY.isoformat()), [("support", "approved")]),
        (anchored(), anchored() | WAIVER, [("support", "waiver")]),
        (anchored() | WAIVER, anchored() | WAIVER, []),
        (anchored(), anchored() | GIVEN, []),
        (anchored(), BROKEN, [("support", "broken")]),
        (BROKEN, BROKEN, []),
        (BROKEN, {"support.json": "["}, [("support", "broken")]),
        ({"budget.toml": STRICT}, {"budget.toml": LOOSE}, [("budget", "unapproved")]),
        ({"budget.toml": STRICT}, {"budget.toml": LOOSE} | of_budget(DIGESTS[STRICT], DIGESTS[LOOSE]),
         [("budget", "approved")]),
        ({"budget.toml": LOOSE}, {"budget.toml": STRICT}, [("budget", "tightening")]),
        ({"budget.toml": LOOSE}, {"budget.toml": f"{LOOSE}# words\n"}, []),
        ({"budget.toml": LOOSE}, {"budget.toml": "x = ["}, [("budget", "broken")]),
        ({"budget.toml": "x = ["}, {"budget.toml": LOOSE}, [("budget", "unapproved")]),
        ({"fleet.toml": "a = 1"}, {"fleet.toml": "a = 2"}, [("fleet", "unapproved")]),
        ({"fleet.toml": "a = 2"}, {"fleet.toml": "a = 1"}, [("fleet", "unapproved")]),
        ({"fleet.toml": "a = 1"}, {"fleet.toml": "a = 1"}, []),
        ({"fleet.toml": "a = 1"}, {}, [("fleet", "unapproved")]),
        ({}, {"fleet.toml": "a = 1"}, []),
        ({"fleet.toml": "a = 1"}, {"fleet.toml": "a = ["}, [("fleet", "broken")]),
        (anchored() | {"aaa.json": "{"}, anchored(make_run(GROWN)) | {"aaa.json": "["},
         [("aaa", "broken"), ("support", "unapproved")]),
    ],
)  # fmt: skip
def test_what_one_commit_did(
    monkeypatch: pytest.MonkeyPatch, old: Files | None, new: Files, expected: list[tuple[str, str]]
) -> None:
    """To anchors, budget and fleet; with what allowed it, or that nothing did."""
    assert told(audited(monkeypatch, old, new)) == expected


def test_steps_are_told_newest_first_and_of_chosen_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one commit what is broken comes first, then the budget, then each class, and waivers."""
    both = anchored() | anchored(make_run(agent="aaa"), "aaa") | {"budget.toml": STRICT}
    grown = anchored(make_run(GROWN)) | anchored(make_run(GROWN, "aaa"), "aaa") | {"budget.toml": LOOSE, "x.json": "{"}
    files = (both, grown | WAIVER, both)

    assert told(audited(monkeypatch, *files)) == [
        ("budget", "tightening"), ("aaa", "tightening"), ("support", "tightening"),
        ("x", "broken"), ("budget", "unapproved"), ("aaa", "unapproved"), ("support", "unapproved"),
        ("support", "waiver"),
    ]  # fmt: skip
    for agent, kinds in (("aaa", ["tightening", "unapproved"]), ("fleet", [])):
        assert [kind for _, kind in told(audited(monkeypatch, *files, agents=[agent]))] == kinds


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # the file that mends a broken one first, its approval after the run
        (({"budget.toml": "x = ["}, {"budget.toml": LOOSE},
          {"budget.toml": LOOSE} | of_budget(LOST_BUDGET, DIGESTS[LOOSE])), ["approved-later"]),
        ((BROKEN, anchored(), anchored() | GIVEN), ["unapproved"]),
        ((anchored(), anchored(make_run(GROWN)), anchored(make_run(GROWN)) | GIVEN), ["approved-later"]),
        # another growth lies between: the approval is of that one
        ((anchored(), anchored(make_run(GROWN)), anchored(), anchored(make_run(GROWN)) | GIVEN),
         ["approved", "tightening", "unapproved"]),
        ((anchored() | GIVEN, anchored(make_run(GROWN)) | GIVEN, anchored(make_run(GROWN)) | GIVEN), ["unapproved"]),
    ],
)  # fmt: skip
def test_an_approval_that_comes_later(
    monkeypatch: pytest.MonkeyPatch, files: Sequence[Files], expected: list[str]
) -> None:
    """It counts, and the step says by which commit, as long as what the step committed still stands."""
    found = audited(monkeypatch, *files)

    assert [step.kind for step in found] == expected
    assert [step.later.subject if step.later else None for step in found] == [
        f"{2:040d}" if kind == "approved-later" else None for kind in expected
    ]


def test_a_step_says_what_changed_and_why_nothing_allowed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first anchor by its values, in order; a removal; a growth; a budget in place of one that cannot be read."""

    def changes(old: Files, new: Files) -> list[tuple[Any, ...]]:
        (step,) = audited(monkeypatch, old, new)
        assert (step.approval, step.why is None) == (None, False)
        return [(change.what, change.name, change.old, change.new) for change in step.changes]

    assert changes({}, anchored()) == [
        ("class_added", "support", None, None),
        ("metric", "fanout.p95", None, 19),
        ("metric", "tokens.p95", None, 1900),
    ]
    assert changes(anchored(), {}) == [("class_removed", "support", None, None)]
    assert changes(anchored(), anchored(make_run(GROWN)))[0] == ("metric", "fanout.p95", 19, 25)
    first, *_ = changes({"budget.toml": "x = ["}, {"budget.toml": LOOSE})
    assert first == ("budget", "budget.toml", "cannot be read", DIGESTS[LOOSE])
    assert changes({"fleet.toml": "a = 1"}, {})[0][:2] == ("budget", "fleet.toml")


@pytest.mark.parametrize(("ceiling", "kind"), [(24, "unapproved"), (25, "approved")])
def test_a_step_is_covered_on_the_common_tasks_as_well(
    monkeypatch: pytest.MonkeyPatch, ceiling: int, kind: str
) -> None:
    """Forty cheap new tasks hide nothing; a task of the base that is gone is none of the common ones."""
    diluted = make_run({**GROWN, **{f"cheap{number:02d}": [1] for number in range(40)}})
    given = approved(ANCHOR, ceilings={"fanout.p95": ceiling, "tokens.p95": 2500}, requested_on=TODAY.isoformat())

    assert told(audited(monkeypatch, anchored(), anchored(without(diluted, "t01")) | given)) == [("support", kind)]


def test_a_step_may_lead_over_an_anchor_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge of two approved growths, each departing from the other's anchor."""
    larger = make_run({**TWENTY, "t19": [40], "t20": [40]})
    second = approved(build_baseline(make_run(GROWN), "support"), ceilings={"fanout.p95": 44, "tokens.p95": 4500},
                      requested_on=TODAY.isoformat(), nonce="0" * 16)  # fmt: skip
    head = anchored(larger) | GIVEN | second
    on_the_way = {"way": anchored(make_run(GROWN))}

    for between, kind in ((["way"], "approved"), ([], "unapproved")):
        found = audited(monkeypatch, anchored(), head, between=between, more=on_the_way)
        assert told(found) == [("support", kind)]
        assert (found[0].approval is not None) == (kind == "approved")


def test_the_age_of_an_approval_counts_on_the_day_of_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty days and thirty-one."""
    for day, kind in (("2026-10-30", "approved"), ("2026-10-29", "unapproved")):
        given = approved(ANCHOR, requested_on=day)
        assert told(audited(monkeypatch, anchored(), anchored(make_run(GROWN)) | given)) == [("support", kind)]


@pytest.mark.parametrize("evalset", [EVALSET, None])
def test_a_step_is_of_the_eval_set_that_its_anchor_names(monkeypatch: pytest.MonkeyPatch, evalset: str | None) -> None:
    """The audit has no run."""
    given = approved(ANCHOR, evalset=evalset, requested_on=TODAY.isoformat())
    head = anchored(replace(make_run(GROWN), evalsets={"support": EVALSET}))

    assert told(audited(monkeypatch, anchored(), head | given)) == [
        ("support", "approved" if evalset else "unapproved")
    ]


def test_no_commit_did_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty history."""
    assert audited(monkeypatch, {}) == []
