"""What a whole is made of, number by number, and which gaps and differences of its shards are named."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any

import pytest
from gate_world import make_run, trial

from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate import combine
from pytest_fanout.records import Base, ControlTrial, Head, Problem, Run, SessionFacts, Totals


def shard(number: int, count: int = 2, **changes: Any) -> Run:
    """A shard with one task of its own."""
    facts = changes.pop("facts", {})
    made = make_run(
        {f"t{number}": [1]},
        run_id=f"run-{number}",
        session=SessionFacts(shard=f"{number}/{count}", **facts),
        definitions={},
    )
    return replace(made, **changes)


def refused(*runs: Run) -> str:
    with pytest.raises(IntegrityError) as caught:
        combine({f"{place}.json": run for place, run in enumerate(runs, 1)})
    return str(caught.value).partition("\n  see: ")[0]


@pytest.mark.parametrize("name", ["expected", "collected", "ran", "deselected", "skipped", "withheld"])
def test_counts_of_items_add_up(name: str) -> None:
    """Three of the one and four of the other; whatever is not counted stays none."""
    whole = combine({"1": shard(1, facts={name: 3}), "2": shard(2, facts={name: 4})})

    assert whole.session == SessionFacts(**{name: 7})


@pytest.mark.parametrize("name", [each.name for each in fields(Totals)])
def test_totals_add_up(name: str) -> None:
    """Each by itself."""
    whole = combine({"1": shard(1, totals=Totals(**{name: 3})), "2": shard(2, totals=Totals(**{name: 4}))})

    assert whole.totals == Totals(**{name: 7})


@pytest.mark.parametrize(("exits", "worst"), [((0, 0), 0), ((1, 0), 1), ((0, 1), 1), ((5, 1), 5), ((1, 5), 5)])
def test_the_worst_end_of_pytest_is_that_of_the_whole(exits: tuple[int, int], worst: int) -> None:
    """Whichever shard it was."""
    one, two = (shard(number, facts={"pytest_exit": code}) for number, code in enumerate(exits, 1))

    assert combine({"1": one, "2": two}).session.pytest_exit == worst


@pytest.mark.parametrize("number", [1, 2])
def test_one_shard_is_enough_to_spoil_the_whole(number: int) -> None:
    """A part of the tasks, an early end, a dirty tree, CI: whichever shard says so."""
    runs = {
        str(each): shard(
            each,
            facts={"partial": each == number, "stopped": "-x" if each == number else None},
            head=Head("h" * 40, dirty=each == number),
            ci=each == number,
        )
        for each in (1, 2)
    }

    whole = combine(runs)

    assert (whole.session.partial, whole.session.stopped) == (True, f"shard {number}/2: -x")
    assert (whole.head, whole.ci) == (Head("h" * 40, dirty=True), True)


def test_two_that_ended_early_are_both_told() -> None:
    """And where none did, nothing is."""
    early = {str(each): shard(each, facts={"stopped": f"stop {each}"}) for each in (1, 2)}

    assert combine(early).session.stopped == "shard 1/2: stop 1; shard 2/2: stop 2"
    whole = combine({"1": shard(1), "2": shard(2)})
    assert (whole.session.stopped, whole.session.partial, whole.ci, whole.head) == (None, False, False, None)


def test_what_the_shards_hold_is_put_together_in_one_order() -> None:
    """By class, task and trial, whatever the reports are called; the same problem is told once; the earliest begins."""
    same, own = Problem("x", "both", "notice"), Problem("y", "one", "notice")
    control = [ControlTrial("support", task, 1, "ok", True, {}) for task in ("a", "b")]
    one = shard(
        1,
        tasks=(trial("zzz", "a", 1, 1), trial("support", "b", 2, 1), trial("support", "b", 1, 1)),
        agents=("zzz", "support"),
        begun_at=9,
        problems=(same, own),
        control=(control[0],),
    )
    two = shard(2, tasks=(trial("support", "a", 1, 1),), agents=("support",), begun_at=7, problems=(same,),
                control=(control[1],))  # fmt: skip

    whole = combine({"second": one, "first": two})

    assert [(t.agent, t.task, t.trial) for t in whole.tasks] == [
        ("support", "a", 1), ("support", "b", 1), ("support", "b", 2), ("zzz", "a", 1)
    ]  # fmt: skip
    assert (whole.agents, whole.begun_at, whole.problems) == (("support", "zzz"), 7, (same, own))
    assert whole.control == tuple(control)
    # a copy of the same whole is recognised by its number, which is that of its shards in their order
    assert whole.run_id == hashlib.sha256(b"run-1\0run-2").hexdigest()[:32]


@pytest.mark.parametrize(
    ("there", "count", "missing"),
    [
        ([1], 2, "1 of 2 shards left a report; missing: 2/2"),
        ([2], 2, "1 of 2 shards left a report; missing: 1/2"),
        ([1], 6, "1 of 6 shards left a report; missing: 2/6, 3/6, 4/6, 5/6, 6/6"),
        ([6], 6, "1 of 6 shards left a report; missing: 1/6, 2/6, 3/6, 4/6, 5/6"),
        ([1], 7, "1 of 7 shards left a report; missing: 2/7, 3/7, 4/7, 5/7, 6/7 and 1 more"),
        ([1, 3, 5], 9, "3 of 9 shards left a report; missing: 2/9, 4/9, 6/9, 7/9, 8/9 and 1 more"),
        ([1, 2, 3, 4], 9, "4 of 9 shards left a report; missing: 5/9, 6/9, 7/9, 8/9, 9/9"),
    ],
)
def test_missing_shards_are_named_up_to_five(there: list[int], count: int, missing: str) -> None:
    """The first five, and how many there are beside them."""
    assert refused(*(shard(number, count) for number in there)).splitlines()[0] == missing


def test_two_wholes_are_told_by_the_first_report_of_each() -> None:
    """Also where both have a shard of the same number: that is no shard that is there twice."""
    assert refused(shard(1), shard(1, 3), shard(2, 3)).splitlines()[0] == (
        "the shards are parts of different wholes: 1.json is one of 2, 2.json is one of 3"
    )


AGAIN = "let every job check out the same commit and run `pytest --fanout-budget --fanout-shard=I/N`, then combine"
OWN = "each shard recorded its own part: commit the recordings of all of them, then let the shards replay"


@pytest.mark.parametrize(
    ("mode", "changes", "words", "mend"),
    [
        ("replay", {"inputs": {"recordings:a": "2"}}, "the recordings of a", AGAIN),
        ("record", {"inputs": {"recordings:a": "2"}}, "the recordings of a", OWN),
        ("rerecord", {"inputs": {"recordings:a": "2"}}, "the recordings of a", OWN),
        ("live", {"inputs": {"recordings:a": "2"}}, "the recordings of a", AGAIN),
        ("record", {"inputs": {"recordings:a": "2", "budget": "2"}}, "budget.toml, the recordings of a", AGAIN),
        ("record", {"inputs": {"evalset:a": "2"}}, "the eval set of a, the recordings of a", AGAIN),
        ("record", {"inputs": {}}, "the recordings of a", OWN),
        ("replay", {"tool": "other", "sealed": False}, "the version of pytest-fanout, seal_keys", AGAIN),
        ("replay", {"tool": "other"}, "the version of pytest-fanout",
         "install one version in all jobs (None and other ran), then let them run again"),
        ("replay", {"head": Head("0" * 40)}, "the commit", AGAIN),
        ("replay", {"head": Head("f" * 40)}, "the commit", AGAIN),
        ("replay", {"head": None}, "the commit", AGAIN),
        ("replay", {"base": Base("0" * 40, "test")}, "the base", AGAIN),
        ("replay", {"base": Base("f" * 40, "test")}, "the base", AGAIN),
        ("replay", {"base": None}, "the base", AGAIN),
        ("replay", {"head": None, "base": None, "sealed": False}, "the commit, seal_keys, the base", AGAIN),
    ],
)  # fmt: skip
def test_what_two_shards_do_not_share(mode: str, changes: dict[str, Any], words: str, mend: str) -> None:
    """Every difference is named, and the mend fits where all of them have one reason."""
    shared = {"mode": mode, "inputs": {"recordings:a": "1"}, "head": Head("a" * 40), "base": Base("a" * 40, "test")}
    one, two = shard(1, **shared), shard(2, **(shared | changes))

    assert refused(one, two) == f"1.json and 2.json are not of one run; what differs: {words}\n  mend: {mend}"


def test_every_shard_is_compared_with_the_first() -> None:
    """The third as well as the second; that one tree was dirty, or how the base was found, makes no difference."""
    assert refused(shard(1, 3), shard(2, 3), shard(3, 3, mode="live")).startswith(
        "1.json and 3.json are not of one run; what differs: the mode\n"
    )
    same = shard(1, head=Head("a", dirty=True), base=Base("b", "one")), shard(2, head=Head("a"), base=Base("b", "two"))
    assert combine(dict(zip("12", same, strict=True))).base == Base("b", "one")


def test_the_same_task_of_two_classes_is_two_tasks() -> None:
    """And trials of one task in one shard are no overlap."""
    one = shard(1, tasks=(trial("support", "a", 1, 1), trial("support", "a", 2, 1)))
    two = shard(2, tasks=(trial("triage", "a", 1, 1),))

    assert len(combine({"1": one, "2": two}).tasks) == 3
    assert refused(shard(1, 3), shard(2, 3), shard(3, 3, tasks=shard(2).tasks)).startswith(
        "support::t2 ran in two shards, 2.json and 3.json\n"
    )
