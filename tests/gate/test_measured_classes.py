"""How the trials of one class are sorted, and what stands against judging them: each bound from both of its sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from gate_world import EVALSET, make_run, sha, trial, with_trials, without

from pytest_fanout.gate.completeness import Measured, measure
from pytest_fanout.records import Baseline, Limit, Problem, Run, SessionFacts, StaleNote
from pytest_fanout.store.baselines import build_baseline

THREE = {"a": [1, 1], "b": [2, 2], "c": [3, 3]}
LIMITS = (Limit("fanout", "p95"), Limit("tokens", "p95"))
ANCHOR = build_baseline(make_run(THREE), "support")
BESIDE = ("aaa", "zzz")


def anchor_of(*tasks: str) -> Baseline:
    return build_baseline(make_run({task: THREE[task] for task in tasks}), "support")


def sorted_of(run: Run, base: Baseline | None = ANCHOR, head: Baseline | None = ANCHOR) -> Measured:
    return measure(run, "support", base, head, LIMITS)


def slugs(run: Run, base: Baseline | None = ANCHOR, head: Baseline | None = ANCHOR) -> list[str]:
    return [problem.slug for problem in sorted_of(run, base, head).problems]


def text(run: Run, slug: str) -> str:
    (found,) = (problem.text for problem in sorted_of(run).problems if problem.slug == slug)
    return found


def test_the_very_run_of_the_anchor() -> None:
    """Nothing stands against it."""
    found = sorted_of(make_run(THREE))

    assert (found.problems, found.stale, found.missing, found.removed, found.new) == ((), (), (), (), ())
    assert (found.draw, found.partial, found.expected) == ("same", False, frozenset("abc"))


@pytest.mark.parametrize("agent", BESIDE)
def test_trials_and_problems_of_other_classes_are_theirs(agent: str) -> None:
    """Whatever they are called, and whatever is wrong with them."""
    run = make_run(THREE)
    wrong = [
        trial(agent, "x", 1, 0),
        trial(agent, "a", 3, 1, status="crashed"),
        trial(agent, "y", 1, 1, status="stale"),
    ]

    found = sorted_of(replace(run, tasks=(*run.tasks, *wrong), problems=(Problem("x", "y", "invalid", agent),)))

    assert (found.problems, found.stale, found.table.trials) == ((), (), 6)


@pytest.mark.parametrize(
    ("base", "head", "agents", "expected", "new"),
    [
        ("ab", "a", ("support",), "abc", "c"),  # HEAD's anchor says what is expected, the definitions do as well
        ("ab", None, ("support",), "abc", "c"),
        ("ab", None, (), "abc", ""),  # given up: there is no anchor to be new beside
        (None, None, ("support",), "abc", ""),
        (None, "ab", ("support",), "abc", "c"),
    ],
)
def test_what_is_expected_and_what_is_new(
    base: str | None, head: str | None, agents: Sequence[str], expected: str, new: str
) -> None:
    """New is what neither anchor knows."""
    anchors = [anchor_of(*tasks) if tasks else None for tasks in (base, head)]

    found = sorted_of(make_run(THREE, agents=tuple(agents)), *anchors)

    assert (found.expected, found.new) == (frozenset(expected), tuple(new))


@pytest.mark.parametrize(
    ("evalset", "definition", "where"),
    [(EVALSET, True, "removed"), (None, True, "missing"), (EVALSET, False, "missing")],
)
def test_a_line_that_was_deleted_is_told_apart_from_a_test_that_did_not_run(
    evalset: str | None, definition: bool, where: str
) -> None:
    """Only a task with a definition in the anchor, of a class with an eval set, can have left it."""
    run = without(make_run(THREE), "c", defined=False)
    run = replace(run, evalsets={"support": evalset} if evalset else {})
    anchor = ANCHOR
    if not definition:
        tasks = {**ANCHOR.tasks, "c": replace(ANCHOR.tasks["c"], definition="")}
        anchor = replace(ANCHOR, tasks=tasks)

    found = sorted_of(run, anchor, anchor)

    assert (found.removed, found.missing) == ((("c",), ()) if where == "removed" else ((), ("c",)))
    assert [problem.slug for problem in found.problems] == [f"tasks-{where}"]


@pytest.mark.parametrize(
    ("partial", "ci", "missing", "is_partial"),
    [(True, False, True, True), (True, True, True, False), (False, False, True, False), (True, False, False, False)],
)
def test_a_part_is_enough_where_it_was_chosen_and_not_in_ci(
    partial: bool, ci: bool, missing: bool, is_partial: bool
) -> None:
    """And only where something is missing."""
    run = without(make_run(THREE), "c") if missing else make_run(THREE)
    run = replace(run, ci=ci, session=SessionFacts(expected=3, partial=partial))

    assert sorted_of(run).partial == is_partial
    assert ("tasks-missing" in slugs(run)) == (missing and not is_partial)


def test_a_shard_lacks_nothing_of_the_whole() -> None:
    """What it lacks of its own tasks is said of the run."""
    assert slugs(replace(without(make_run(THREE), "c"), session=SessionFacts(expected=2, shard="1/2"))) == []


@pytest.mark.parametrize("status", ["stale", "invalid", "crashed"])
def test_a_task_that_was_tried_is_not_missing(status: str) -> None:
    """It is told as what it is, and once; one that crashed was not completed."""
    run = with_trials(make_run(THREE), "c", status=status)
    slug = {"stale": "stale", "invalid": "invalid-trial", "crashed": "trial-crashed"}[status]

    assert slugs(run) == [slug]
    assert sorted_of(run).missing == (("c",) if status == "crashed" else ())


def test_a_crash_names_its_trial_and_the_others_that_did_not_run() -> None:
    """One of two trials of c crashed; b never ran."""
    run = without(make_run(THREE), "b")
    run = replace(
        run, tasks=tuple(replace(t, status="crashed") if (t.task, t.trial) == ("c", 2) else t for t in run.tasks)
    )

    assert text(run, "trial-crashed").startswith("support: the process died in c (trial 2); mend: ")
    assert text(run, "tasks-missing").startswith("support: no completed run of b; mend: ")


@pytest.mark.parametrize(("unknown", "said"), [(0, False), (1, False), (2, True)])
def test_usage_is_unknown_above_five_percent_of_calls(unknown: int, said: bool) -> None:
    """Of twenty calls one is five percent."""
    run = with_trials(make_run({"a": [18], "b": [2]}), "a", unknown_usage=unknown)
    anchor = build_baseline(make_run({"a": [18], "b": [2]}), "support")

    found = measure(run, "support", anchor, anchor, LIMITS)

    assert ("usage-unknown" in [problem.slug for problem in found.problems]) == said
    assert measure(run, "support", anchor, anchor, LIMITS[:1]).problems == ()


def test_an_invalid_trial_that_says_why_is_not_told_once_more() -> None:
    """Another problem of a trial is not the reason."""
    run = with_trials(make_run(THREE), "c", status="invalid")

    assert slugs(with_trials(run, "c", problems=(Problem("x", "y", "invalid"),))) == ["x", "x"]
    for verdict in ("notice", "stale"):
        other = with_trials(run, "c", problems=(Problem("x", "y", verdict),))
        assert slugs(other) == ["x", "x", "invalid-trial"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"no_calls": True}, False),
        ({"status": "invalid"}, False),
        ({"problems": (Problem("missing-key", "y", "notice"),)}, False),
        ({"problems": (Problem("server-not-ready", "y", "notice"),)}, False),
        ({"problems": (Problem("no-model-answered", "y", "notice"),)}, False),
        ({"problems": (Problem("aaa", "y", "notice"),)}, True),
        ({"problems": (Problem("zzz", "y", "notice"),)}, True),
    ],
)
def test_a_trial_without_a_call(changes: Mapping[str, Any], said: bool) -> None:
    """It is none that may, that was not measured, or that has said why."""
    run = with_trials(make_run(THREE), "c", samples={"fanout": 0}, **changes)

    assert ("no-calls" in slugs(run)) == said


@pytest.mark.parametrize("definition", [None, sha("aaa"), "sha256:" + "0" * 64, "sha256:" + "f" * 64])
def test_another_definition_is_another_task(definition: str | None) -> None:
    """Whether its digest sorts before or after; a task that the anchor does not know cannot have changed."""
    assert slugs(with_trials(make_run(THREE), "c", definition=definition)) == ["tasks-redefined"]
    known = anchor_of("a", "b")
    assert slugs(with_trials(make_run(THREE), "c", definition=definition), known, known) == []
    assert slugs(with_trials(make_run(THREE), "c", definition=definition), None, None) == []


NEVER = StaleNote(1, "model", ("no recording of this trial",), 0, 1)


@pytest.mark.parametrize(
    ("unrecorded", "recorded", "said"),
    [
        ("a", "", "there is no recording of a yet"),
        ("ab", "", "there are no recordings of a, b yet"),
        ("", "a", "the requests of a differ from the recordings"),
        ("ab", "c", "the requests of a, b, c differ from the recordings (of 2 there is none yet)"),
    ],
)
def test_stale_is_told_by_whether_there_was_a_recording(unrecorded: str, recorded: str, said: str) -> None:
    """Of which there was none is counted beside the others."""
    run = with_trials(make_run(THREE), tuple(unrecorded), status="stale", recording=None, stale=NEVER)
    run = with_trials(run, tuple(recorded), status="stale", stale=replace(NEVER, recorded=3))

    assert text(run, "stale").startswith(f"support: {said}; mend: ")


def anew(run: Run, *trials: tuple[str, int]) -> Run:
    changed = {"new_draw": True, "recording": sha("anew")}
    return replace(run, tasks=tuple(replace(t, **changed) if (t.task, t.trial) in trials else t for t in run.tasks))


EVERY = [(task, number) for task in THREE for number in (1, 2)]


@pytest.mark.parametrize(
    ("run", "draw"),
    [
        (make_run(THREE), "same"),
        (anew(make_run(THREE), *EVERY), "new"),
        (anew(make_run(THREE), ("c", 2)), "mixed"),
        (with_trials(make_run(THREE), "c", new_draw=True), "mixed"),
        (with_trials(make_run(THREE), "c", recording=None), "mixed"),
        (with_trials(make_run(THREE), "c", recording=sha("another")), "mixed"),
        (with_trials(make_run(THREE), ("b", "c"), status="crashed"), "same"),
        (with_trials(make_run(THREE), ("a", "b", "c"), status="crashed"), "none"),
        (make_run({"x": [1]}), "none"),
    ],
)
def test_which_draw_ran(run: Run, draw: str) -> None:
    """The anchor's own where a recording is one that it names and nothing ran live; tasks it does not know are none."""
    assert sorted_of(run).draw == draw


def fewer(run: Run, *trials: tuple[str, int]) -> Run:
    return replace(run, tasks=tuple(t for t in run.tasks if (t.task, t.trial) not in trials))


@pytest.mark.parametrize(
    ("run", "short"),
    [
        (fewer(make_run(THREE), ("c", 2)), ["trials-missing"]),
        (fewer(make_run(THREE), ("c", 2), ("a", 1)), ["trials-missing"]),
        (fewer(anew(make_run(THREE), *EVERY), ("c", 2)), []),
        (make_run({**THREE, "c": [3, 3, 3]}), []),
    ],
)
def test_fewer_trials_on_the_anchors_own_recordings(run: Run, short: list[str]) -> None:
    """A new draw may have as many as it likes."""
    assert slugs(run) == short


@pytest.mark.parametrize("t01", range(4))
def test_trials_may_be_fewer_where_the_step_of_the_anchor_is_judged(t01: int) -> None:
    """Whichever of the two digests sorts first; and where one of the commits has no anchor."""
    run = fewer(make_run(THREE), ("c", 2))
    other = build_baseline(make_run({**THREE, "d": [t01, t01]}), "support")
    run = replace(run, session=SessionFacts(partial=True))

    for base, head in ((other, ANCHOR), (ANCHOR, other), (None, ANCHOR), (ANCHOR, None)):
        assert "trials-missing" not in slugs(run, base, head)


@pytest.mark.parametrize("base", [None, build_baseline(make_run({**THREE, "d": [1, 1]}), "support")])
def test_where_the_mode_records_a_step_of_the_anchor_lacks_no_trial_either(base: Baseline | None) -> None:
    """In replay that is a mismatch; a run that records tells nobody that a recording of HEAD's anchor is gone."""
    run = replace(fewer(make_run(THREE), ("c", 2)), mode="record")

    found = measure(run, "support", base, ANCHOR, LIMITS)

    assert "trials-missing" in [problem.slug for problem in found.problems]
    assert measure(replace(make_run(THREE), mode="record"), "support", base, ANCHOR, LIMITS).problems == ()


def ended(first: dict[str, Any], second: dict[str, Any]) -> Run:
    """The two trials of task ``a``, each with an end of its own."""
    run = make_run(THREE)
    return replace(run, tasks=(replace(run.tasks[0], **first), replace(run.tasks[1], **second), *run.tasks[2:]))


NONE_YET: dict[str, Any] = {"status": "stale", "recording": None, "stale": NEVER}
DIFFERS: dict[str, Any] = {"status": "stale", "stale": replace(NEVER, recorded=3)}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (NONE_YET, NONE_YET, "there is no recording of a yet"),
        ({}, NONE_YET, "there is no recording of a yet"),  # of a trial that is new
        (NONE_YET, {}, "there is no recording of a yet"),
        (NONE_YET, {"status": "crashed"}, "there is no recording of a yet"),
        (NONE_YET, {"status": "timeout"}, "there is no recording of a yet"),
        (DIFFERS, NONE_YET, "the requests of a differ from the recordings"),
        (NONE_YET, DIFFERS, "the requests of a differ from the recordings"),
        (DIFFERS, {}, "the requests of a differ from the recordings"),
    ],
)
def test_one_trial_speaks_for_its_stale_task(first: dict[str, Any], second: dict[str, Any], said: str) -> None:
    """A recording that differs does; a trial that is not stale says nothing of it."""
    assert text(ended(first, second), "stale").startswith(f"support: {said}; mend: ")


@pytest.mark.parametrize(
    ("status", "other", "missing"),
    [
        ("ok", "crashed", ()),
        ("crashed", "crashed", ("a",)),
        ("crashed", "stale", ()),
        ("stale", "stale", ()),
        ("invalid", "crashed", ()),
        ("invalid", "invalid", ()),
        ("timeout", "crashed", ()),
        ("failed", "invalid", ()),
    ],
)
def test_a_task_is_missing_when_none_of_its_trials_came_to_anything(
    status: str, other: str, missing: tuple[str, ...]
) -> None:
    """One that was measured, is stale or is invalid is told as that; of those that crashed their trials are named."""
    run = ended({"status": status}, {"status": other})

    assert sorted_of(run).missing == missing
    assert ("tasks-missing" in slugs(run)) is False  # a crash is told by itself
    named = [f"a (trial {number})" for number, each in ((1, status), (2, other)) if each == "crashed"]
    assert [f"the process died in {', '.join(named)};" in problem.text for problem in sorted_of(run).problems
            if problem.slug == "trial-crashed"] == [True] * bool(named)  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"samples": {"fanout": 0}}, {"samples": {"fanout": 1}}, True),
        ({"samples": {"fanout": 0}, "status": "stale"}, {}, False),
        ({"samples": {"fanout": 0}, "status": "crashed"}, {}, False),
        ({"samples": {"fanout": 0}, "no_calls": True}, {"samples": {"fanout": 0}}, True),
        ({"samples": {"fanout": 0}, "no_calls": True}, {"samples": {"fanout": 0}, "no_calls": True}, False),
    ],
)
def test_each_trial_has_to_make_a_call(first: dict[str, Any], second: dict[str, Any], said: bool) -> None:
    """That another one of its task did is not enough."""
    assert ("no-calls" in slugs(ended(first, second))) == said
