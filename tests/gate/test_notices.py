"""What the reader of a class is told although it decides nothing: when, and when not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from gate_world import NOW, TWENTY, make_run, redrawn, trial, with_trials

from pytest_fanout.gate.completeness import Measured, measure
from pytest_fanout.gate.notices import notices_of
from pytest_fanout.judge import TrialTable, table_of_runs
from pytest_fanout.records import Baseline, JudgeRules, MetricResult, Run
from pytest_fanout.store.baselines import build_baseline

GATED = MetricResult("fanout.p95", 19, 19, 20, False, True, 20, 20)
#: Of five trials and three sessions, so that nothing is said of either.
RULES = JudgeRules(trials=5, sessions=1)
SETTLED = {task: values * 5 for task, values in TWENTY.items()}
ANCHOR = build_baseline(make_run(SETTLED), "support")
#: One trial of each task has a call more than the others.
WAVERING = build_baseline(make_run({task: [*values * 4, values[0] + 1] for task, values in TWENTY.items()}), "support")


def told(
    run: Run | None = None,
    *metrics: MetricResult,
    anchor: Baseline | None = ANCHOR,
    base: TrialTable | None = None,
    rules: JudgeRules = RULES,
    now: int = NOW,
    **changes: Any,
) -> dict[str, str]:
    """slug -> text of the notices of ``support``."""
    run = make_run(SETTLED) if run is None else run
    measured: Measured = replace(measure(run, "support", anchor, anchor, ()), **changes)
    found = list(notices_of(run, "support", measured, base, anchor, metrics, rules, now))
    assert {(problem.verdict, problem.agent) for problem in found} <= {("notice", "support")}
    return {problem.slug: problem.text.removeprefix("support: ") for problem in found}


def test_a_settled_class_is_told_nothing() -> None:
    """Many tasks, five trials of each, on the anchor's own draw."""
    assert told(None, GATED) == {}


@pytest.mark.parametrize(
    ("draw", "changes", "bare"),
    [
        ("new", {}, True),
        ("mixed", {}, True),
        ("same", {}, False),
        ("none", {}, False),
        ("new", {"evidence": "low"}, False),
        ("new", {"gated": False}, False),
        ("new", {"scope": "common"}, False),
        ("new", {"scope": "aaa"}, False),
    ],
)
def test_raw_numbers_of_a_new_draw_are_told(draw: str, changes: Mapping[str, Any], bare: bool) -> None:
    """A limit on all tasks that no evidence was sought for."""
    found = told(None, replace(GATED, **changes), anchor=WAVERING, draw=draw)

    words = (
        "fanout.p95 of a new draw stood against raw numbers, which an unchanged agent alone moves by 20 to 40 %: that "
        "is wrong in 20 to 50 % of identical agents"
    )
    assert found == ({"noise-not-considered": words} if bare else {})


def test_raw_numbers_that_repeat_to_the_call_have_no_noise() -> None:
    """All five trials of each task are alike: whoever judges them raw is not wrong. One trial alone tells nothing."""
    one_each = build_baseline(make_run(TWENTY), "support")

    assert "noise-not-considered" not in told(None, GATED, draw="new")
    assert "noise-not-considered" in told(None, GATED, draw="new", anchor=one_each)


@pytest.mark.parametrize(("trials", "said"), [([2, 2], False), ([2, 3], True)])
def test_the_noise_of_a_tool_is_its_own(trials: Sequence[int], said: bool) -> None:
    """Its name may hold a point."""
    run = make_run({"a": [5, 5], "b": [5, 5]})
    tasks = tuple(
        replace(task, samples={**task.samples, "tool_calls[web.search]": trials[task.trial - 1]}) for task in run.tasks
    )
    metric = replace(GATED, name="tool_calls[web.search].p99.9")

    found = told(None, metric, draw="new", anchor=build_baseline(replace(run, tasks=tasks), "support"))

    assert ("noise-not-considered" in found) == said


def test_without_an_anchor_no_draw_is_a_new_one() -> None:
    """There is nothing to compare with."""
    assert told(None, GATED, anchor=None, draw="new") == {}


@pytest.mark.parametrize(
    ("tasks", "statistic", "words"),
    [
        (19, "p95", "with 19 tasks fanout.p95 is simply the largest value, not a percentile"),
        (20, "p95", None),
        (1, "p95", "with 1 task fanout.p95 is simply the largest value, not a percentile"),
        (9, "p90", "with 9 tasks fanout.p90 is simply the largest value, not a percentile"),
        (10, "p90", None),
        (20, "p99", "with 20 tasks fanout.p99 is simply the largest value, not a percentile"),
        (20, "p99.9", "with 20 tasks fanout.p99.9 is simply the largest value, not a percentile"),
        (1, "mean", None),
        (0, "p95", None),
    ],
)
def test_too_few_tasks_for_a_percentile(tasks: int, statistic: str, words: str | None) -> None:
    """The twentieth task makes p95 a percentile; of no task at all something else is said."""
    run = make_run({task: SETTLED[task] for task in list(SETTLED)[:tasks]})

    assert told(run, replace(GATED, name=f"fanout.{statistic}")).get("few-tasks") == words


@pytest.mark.parametrize(("tasks", "few"), [(99, ["p99", "p99.9"]), (150, ["p99.9"]), (1000, [])])
def test_far_percentiles_need_many_tasks(tasks: int, few: list[str]) -> None:
    """A hundred for p99, a thousand for p99.9: the point in its name is a part of it."""
    run = make_run({f"t{number}": [1] for number in range(tasks)})
    metrics = [replace(GATED, name=f"fanout.{statistic}") for statistic in ("p95", "p99", "p99.9")]

    said = told(run, *metrics, anchor=None).get("few-tasks")
    names = ", ".join(f"fanout.{statistic}" for statistic in few)
    assert said == (f"with {tasks} tasks {names} is simply the largest value, not a percentile" if few else None)


@pytest.mark.parametrize("changes", [{"gated": False}, {"scope": "common"}, {"scope": "aaa"}])
def test_few_tasks_are_told_of_limits_on_all_tasks(changes: Mapping[str, Any]) -> None:
    """Of what limits nothing, or is said once more of the common tasks, nothing is said."""
    run = make_run({"t01": SETTLED["t01"]})

    assert "few-tasks" not in told(run, replace(GATED, **changes))


@pytest.mark.parametrize(("days", "words"), [(30, None), (31, "the anchor was recorded 31 days ago, more than 30")])
def test_the_age_of_an_anchor(days: int, words: str | None) -> None:
    """Whole days since its oldest trial, which began an hour before NOW."""
    now = NOW - 3600 + days * 86_400

    assert told(rules=replace(RULES, max_age_days=30), now=now).get("anchor-old") == words
    assert told(now=now).get("anchor-old") is None


def test_trials_of_an_unknown_day_have_no_age() -> None:
    """Imported recordings know none."""
    run = make_run(SETTLED)
    anchor = build_baseline(replace(run, tasks=tuple(replace(task, begun_at=None) for task in run.tasks)), "support")

    assert told(anchor=anchor, rules=replace(RULES, max_age_days=0), now=NOW + 86_400 * 400) == {}


@pytest.mark.parametrize("draw", ["new", "mixed", "same", "none"])
def test_a_provisional_anchor_matters_to_new_draws(draw: str) -> None:
    """Recorded in one session of three."""
    found = told(rules=replace(RULES, sessions=3), draw=draw)

    assert ("provisional" in found) == (draw in ("new", "mixed"))


@pytest.mark.parametrize(("fanout", "said"), [(80, False), (79, True), (81, False), (100, False), (150, False)])
def test_a_fall_of_more_than_a_fifth_with_fewer_passing_is_suspicious(fanout: int, said: bool) -> None:
    """100 -> 80 is a fifth."""
    before = table_of_runs([trial("support", "a", 1, 100), trial("support", "b", 1, 100)])
    run = with_trials(make_run({"a": [fanout], "b": [fanout]}), "b", passed=False)

    assert ("suspicious-drop" in told(run, anchor=None, base=before)) == said
    assert "suspicious-drop" not in told(with_trials(run, "b", passed=True), anchor=None, base=before)


@pytest.mark.parametrize(("before", "after"), [(None, 10), (100, None), (None, None)])
def test_of_calls_that_are_not_known_none_is_suspicious(before: int | None, after: int | None) -> None:
    """Fewer trials pass, and whether the agent does less nobody can say."""
    base, run = (
        with_trials(make_run({"a": [1], "b": [1]}), ("a", "b"), samples={"fanout": fanout})
        for fanout in (before, after)
    )

    found = told(with_trials(run, "b", passed=False), anchor=None, base=table_of_runs(base.tasks))

    assert "suspicious-drop" not in found


@pytest.mark.parametrize(
    ("draw", "redraws", "words"),
    [
        ("new", 1, None),
        ("new", 2, 3),
        ("mixed", 2, 3),
        ("mixed", 3, 4),
        ("same", 2, None),
    ],
)
def test_from_the_third_draw_of_the_same_requests_it_is_told(draw: str, redraws: int, words: int | None) -> None:
    """The most often drawn trial is named; on the anchor's own draw nobody was lucky."""
    found = told(with_trials(make_run(SETTLED), "t03", redraws=redraws), draw=draw)

    assert found.get("redrawn") == (
        None
        if words is None
        else f"some trials are on draw {words} of the very same requests: recording until green is not evidence"
    )


def both_sides(run: Run, **changes: Any) -> Run:
    """The run with trials of classes that sort before and after, and a crashed one of its own: with these changes."""
    others = tuple(replace(trial(agent, "x", 1, 5), **changes) for agent in ("aaa", "zzz"))
    return replace(
        run, tasks=(*run.tasks, *others, replace(trial("support", "t20", 9, 5), status="crashed", **changes))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"redraws": 7},
        {"failures": {"HTTP 429": 2}},
        {"shared_prefix": "sha256:1", "saved_calls": 3, "spent_calls": 2},
    ],
)
def test_trials_of_other_classes_and_those_that_crashed_tell_nothing(changes: Mapping[str, Any]) -> None:
    """Each class speaks of its own, and of what was measured."""
    assert told(both_sides(make_run(SETTLED), **changes), draw="new") == {}


def test_a_model_of_another_class_is_no_other_model() -> None:
    """It may be served by whatever it likes."""
    run = make_run(SETTLED)
    others = both_sides(run, models_served=("small-2",)).tasks[: len(run.tasks) + 2]

    assert "model-changed" not in told(replace(run, tasks=others))


@pytest.mark.parametrize(
    ("requested", "served", "words"),
    [
        (("small",), ("small-2",), "small was served by small-1 when the anchor was recorded, and now by small-2"),
        (
            ("small",),
            ("small-1", "small-2"),
            "small was served by small-1 when the anchor was recorded, and now by small-2",
        ),
        (("small",), (), None),
        (("other",), ("small-2",), None),
        (("small", "other"), ("small-2",), None),
        ((), ("small-2",), None),
    ],
)
def test_a_model_that_is_served_anew(requested: Sequence[str], served: Sequence[str], words: str | None) -> None:
    """Only where one model was asked for is it certain which one answered."""
    run = with_trials(make_run(SETTLED), "t03", models_requested=requested, models_served=served)

    assert told(run).get("model-changed") == words


def test_failures_of_a_draw_are_summed_up() -> None:
    """Two kinds, in two trials of the hundred; both of one task, which is named once."""
    run = make_run(SETTLED)
    held = {1: {"HTTP 429": 2}, 2: {"HTTP 429": 1, "broken off": 1}}
    run = replace(
        run,
        tasks=tuple(replace(t, failures=held.get(t.trial, {}) if t.task == "t07" else {}) for t in run.tasks),
    )

    assert told(both_sides(run))["draw-holds-failures"].startswith(
        "the draw holds attempts that failed (3 x HTTP 429, 1 x broken off), in 2 of 100 trials: t07; retries count"
    )


@pytest.mark.parametrize(("saved", "cost"), [(3, " (2 live calls made, 3 saved)"), (0, "")])
def test_branches_are_counted(saved: int, cost: str) -> None:
    """What the kept beginning has saved, where it saved anything."""
    run = with_trials(make_run(TWENTY), "t03", shared_prefix="sha256:1", saved_calls=saved, spent_calls=2)

    assert told(both_sides(run))["branched"] == (
        "1 of 20 trials keeps the beginning of an earlier recording and went on live from their first changed "
        f"request{cost}; beside the anchor each is compared with the trial that it shares it with"
    )


@pytest.mark.parametrize(
    ("tasks", "words"), [(("t03",), "1 of 20 trials keeps"), (("t03", "t04"), "2 of 20 trials keep")]
)
def test_one_branch_keeps_and_several_keep(tasks: tuple[str, ...], words: str) -> None:
    """With what each of them has spent and saved."""
    run = with_trials(make_run(TWENTY), tasks, shared_prefix="sha256:1", saved_calls=3, spent_calls=2)
    number = len(tasks)

    assert told(run)["branched"].startswith(f"{words} the beginning of an earlier recording")
    assert f" ({2 * number} live calls made, {3 * number} saved);" in told(run)["branched"]


def test_a_part_of_the_tasks_says_how_many() -> None:
    """Two of twenty."""
    run = redrawn(make_run({task: SETTLED[task] for task in ("t01", "t02")}))

    assert told(run, partial=True)["partial-run"] == "partial 2/20: only the tasks that ran were judged"
    assert "partial-run" not in told(run)


def test_few_trials_are_told_of_the_anchor() -> None:
    """One trial of each task where five are enough."""
    assert "few-trials" in told(make_run(TWENTY), anchor=build_baseline(make_run(TWENTY), "support"))
    assert "few-trials" not in told(make_run(TWENTY), rules=replace(RULES, alpha=Fraction(1, 10)))
