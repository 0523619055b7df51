"""What is exact beside evidence, and what is priced: each condition and each bound by itself.

The anchor has ten tasks of 10 calls; fleet and prices are those of ``test_capacity_limits``: 28,800 dollars a month
for fanout 1 to 20, and 57,600 for twice that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import test_capacity_limits as priced
from gate_world import EVALSET, TODAY, TWENTY, make_run, redrawn, sha, trial, with_trials

from pytest_fanout.gate.capacity_limits import CapacityLimits, Priced, changes_of
from pytest_fanout.gate.completeness import measure
from pytest_fanout.gate.draws import draw_of, fresh_tasks, of_evidence, with_evidence
from pytest_fanout.gate.exactly import of_exact_trials
from pytest_fanout.judge import table_of_runs
from pytest_fanout.records import (
    Approval,
    Baseline,
    Change,
    Comparison,
    JudgeRules,
    Limit,
    MetricEvidence,
    MetricResult,
    Problem,
    Reason,
    Run,
    SessionFacts,
)
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

TEN = {f"t{number:02d}": [10] for number in range(10)}
NAMES = list(TEN)
TENTH = Fraction(1, 10)
MAX = Limit("fanout", "max", TENTH, 1)
RECORD = "pytest --fanout-budget --fanout-mode=record"


def anew(run: Run, *tasks: str) -> Run:
    return with_trials(run, tasks, new_draw=True, recording=sha("anew"))


def exact(run: Run, *limits: Limit, base: Run | None = None, by_evidence: bool = True) -> list[Problem]:
    anchor = build_baseline(base or make_run(TEN), "support")
    measured = measure(run, "support", anchor, anchor, limits)
    return list(of_exact_trials(run, measured, anchor, limits, by_evidence=by_evidence))


def found(problems: Sequence[Problem]) -> list[tuple[str, str]]:
    """Slug, and what is named before the mend."""
    return [(each.slug, each.text.partition("; ")[0].rpartition(": ")[2]) for each in problems]


# --- growth beside evidence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "grown", "fresh", "told"),
    [
        (MAX, {"t03": [12], "t01": [12]}, ["t09"], [("same-tasks-over", "t01, t03")]),
        (MAX, {"t03": [11]}, ["t09"], []),
        (MAX, {"t09": [12]}, ["t09"], []),  # where chance plays a part, evidence decides
        (MAX, {"t03": [12]}, NAMES, []),
        (replace(MAX, evidence=False), {"t03": [12]}, ["t09"], []),
        (replace(MAX, max=5), {}, ["t09"], []),  # a maximum is told by itself
        (replace(MAX, max=11), {"t03": [12]}, ["t09"], [("same-tasks-over", "t03")]),
        (MAX, {"t03": [12], "t04": [9]}, ["t09"], [("same-tasks-over", "t03, t04")]),
        (replace(MAX, statistic="p50"), {"new": [99]}, ["t09"], []),
        *((replace(MAX, statistic=name), {f"n{number}": [99] for number in range(12)}, ["t09"],
           [("new-tasks-over", "n0, n1, n10, n11, n2 and 7 more")]) for name in ("mean", "p50", "p90")),
        *((replace(MAX, statistic=name), {"new": [99]}, ["t09"], []) for name in ("p95", "p99", "p99.9", "max")),
    ],
)  # fmt: skip
def test_growth_that_no_chance_explains(
    limit: Limit, grown: dict[str, list[int]], fresh: list[str], told: list[tuple[str, str]]
) -> None:
    """By the tasks on the anchor's own recordings, and by new tasks where the limit is on the middle of all."""
    run = anew(make_run(TEN | grown), *fresh)

    assert found(exact(run, limit)) == told
    assert exact(run, limit, by_evidence=False) == []


CAPPED: dict[str, Any] = {"status": "capped"}
TIMEOUT: dict[str, Any] = {"status": "timeout"}


@pytest.mark.parametrize(
    ("tasks", "stopped", "fresh", "limits", "told"),
    [
        (20, 1, False, (), True),
        (20, 1, True, (), False),  # 5 of 100 may be stopped on another draw
        (20, 2, True, (), True),
        (19, 1, True, (), True),
        (20, 2, True, (Limit("capped", "share", max=50),), False),
        (20, 2, False, (Limit("capped", "share", max=50),), False),
        (20, 2, True, (Limit("failed", "share", max=50),), True),
        (20, 2, True, (Limit("aaa", "share", max=50), Limit("zzz", "share", max=50)), True),
    ],
)
def test_how_many_trials_may_be_stopped(
    tasks: int, stopped: int, fresh: bool, limits: tuple[Limit, ...], told: bool
) -> None:
    """None where nothing is chance; beyond five points where it is; a limit on the share says it itself."""
    fanout = {f"t{number:02d}": [10] for number in range(tasks)}
    names = list(fanout)
    run = with_trials(anew(make_run(fanout), *names) if fresh else make_run(fanout), names[:stopped], **CAPPED)

    assert (
        found(exact(run, *limits, base=make_run(fanout), by_evidence=False))
        == [("stopped-by-caps", ", ".join(names[:stopped]))] * told
    )


def test_both_ways_of_being_stopped_are_told() -> None:
    """A limit on the one says nothing of the other; of each the trials are counted, and the tasks where it is more."""
    run = with_trials(with_trials(make_run(TEN), "t00", **CAPPED), ["t02", "t01"], **TIMEOUT)
    base = with_trials(make_run(TEN), "t01", **TIMEOUT)

    assert found(exact(run, base=base, by_evidence=False)) == [("stopped-by-caps", "t00"), ("stopped-by-caps", "t02")]
    limited = exact(run, Limit("capped", "share", max=50), base=base, by_evidence=False)
    assert [each.text.partition(": t")[0] for each in limited] == [
        "support: 2 trials of 10 were stopped by the cap on wall_seconds, and 1 of 10 in the anchor"
    ]
    assert found(exact(run, Limit("failed", "share", max=50), base=base, by_evidence=False)) == [
        ("stopped-by-caps", "t00")
    ]


def test_each_task_counts_once_in_a_share() -> None:
    """One stopped trial of four is a quarter of its task; the anchor has one of one in another: no larger share."""
    base = with_trials(make_run({"a": [1, 1, 1, 1], "b": [1]}), "b", **CAPPED)
    run = make_run({"a": [1, 1, 1, 1], "b": [1]})
    quarter = replace(run, tasks=(replace(run.tasks[0], status="capped"), *run.tasks[1:]))

    assert exact(quarter, base=base, by_evidence=False) == []
    assert len(exact(quarter, base=run, by_evidence=False)) == 1
    both = replace(quarter, tasks=(*quarter.tasks[:4], replace(quarter.tasks[4], status="capped")))
    assert found(exact(both, base=base, by_evidence=False)) == [("stopped-by-caps", "a")]


# --- new draws -------------------------------------------------------------------------------------------------------

ANCHOR = build_baseline(make_run({"a": [1, 1], "b": [1, 1]}), "support")


@pytest.mark.parametrize(
    ("changes", "fresh"),
    [
        ({}, False),
        ({"new_draw": True}, True),
        ({"recording": None}, True),
        ({"recording": sha("another")}, True),
        ({"recording": sha("another"), "status": "crashed"}, False),
        ({"recording": sha("another"), "task": "new"}, False),
        ({"recording": sha("another"), "agent": "aaa"}, False),
        ({"recording": sha("another"), "agent": "zzz"}, False),
    ],
)
def test_one_trial_makes_its_task_a_new_draw(changes: dict[str, Any], fresh: bool) -> None:
    """Another recording than the anchor names, or none; not trials that were not measured, or of no known task."""
    run = make_run({"a": [1, 1], "b": [1, 1]})
    tasks = (*run.tasks[:3], replace(run.tasks[3], **changes))

    assert fresh_tasks("support", ANCHOR, tasks) == ({"b"} if fresh else set())
    draw = draw_of("support", ANCHOR, tasks, parse_budget(None))
    assert (draw is not None) == fresh
    if draw is not None:
        assert draw.same == {"a"}


@pytest.mark.parametrize(
    ("slug", "text", "rules", "mode", "partial", "said", "verdict"),
    [
        ("x", "grew", "fail", "record", False, "grew", "inconclusive"),
        ("x", "grew", "warn", "record", False, "grew", "inconclusive"),
        ("growth-not-shown", "grew", "warn", "record", False, "grew", "notice"),
        ("growth-not-shown", "grew", "fail", "record", False, "grew", "inconclusive"),
        ("x", f"grew; mend: {RECORD}", "fail", "record", False, f"grew; mend: {RECORD}", "inconclusive"),
        ("x", f"grew; mend: {RECORD}", "fail", "rerecord", False, f"grew; mend: {RECORD}", "inconclusive"),
        ("x", f"grew; mend: {RECORD}", "fail", "live", False,
         "grew; mend: pytest --fanout-budget --fanout-mode=live, with as many trials as the evidence asks for",
         "inconclusive"),
        ("x", "grew; mend: bring it back", "fail", "live", False, "grew; mend: bring it back", "inconclusive"),
        ("few-tasks-new-draw", "nine; mend: add tasks", "fail", "record", True,
         "nine; mend: run the whole class: pytest --fanout-budget", "inconclusive"),
        ("few-tasks-new-draw", "nine; mend: add", "fail", "record", False, "nine; mend: add", "inconclusive"),
        ("aaa", "nine; mend: add tasks", "fail", "record", True, "nine; mend: add tasks", "inconclusive"),
        ("zzz", "nine; mend: add tasks", "fail", "record", True, "nine; mend: add tasks", "inconclusive"),
    ],
)  # fmt: skip
def test_reasons_with_the_mend_of_such_a_run(
    slug: str, text: str, rules: str, mode: str, partial: bool, said: str, verdict: str
) -> None:
    """A live run goes on live, a part is run whole, and what budget.toml calls a warning is one."""
    comparison = Comparison("inconclusive", (), reasons=(Reason(slug, text, "inconclusive"),))

    (problem,) = of_evidence("support", comparison, JudgeRules(inconclusive=rules), mode=mode, partial=partial)

    assert (problem.slug, problem.text, problem.verdict, problem.agent) == (
        slug,
        f"support: {said}",
        verdict,
        "support",
    )


def test_each_number_has_its_own_evidence_and_interval() -> None:
    """A mean has no order statistics; a number without a test of its own stays as it is, and so do those after it."""
    words = [
        MetricEvidence(name, "body", verdict, 1.0, (None, None), 1.1, None, None, 20, 1, 1)
        for name, verdict in (("tokens", "open"), ("fanout", "low"))
    ]
    names = ("fanout.mean", "attempts.p95", "tokens.p95", "fanout.p50")
    metrics = [MetricResult(name, 9, 99, 10, True, True, 20, 20) for name in names]
    limits = [Limit(*name.split("."), TENTH) for name in names]

    told = with_evidence(metrics, Comparison("inconclusive", tuple(words)), limits, table_of_runs(make_run().tasks))

    assert [(each.evidence, each.over) for each in told] == [
        ("low", False), (None, True), ("open", False), ("low", False)
    ]  # fmt: skip
    assert [each.interval is None for each in told] == [True, False, False, False]
    unknown = [replace(metrics[0], run=None)]
    (told_of_it,) = with_evidence(unknown, Comparison("x", tuple(words)), [replace(limits[0], max=5)],
                                  table_of_runs(make_run().tasks))  # fmt: skip
    assert told_of_it.over is False


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ("regressed", "unconfirmed", "regressed"), ("unconfirmed", "high", "unconfirmed"), ("high", "open", "high"),
        ("open", "low", "open"), ("low", "shown", "low"),
    ],
)  # fmt: skip
def test_the_worse_of_two_tests_speaks(one: str, other: str, word: str) -> None:
    """In whatever order they come; only a finding is over."""
    for pair in ((one, other), (other, one)):
        words = tuple(
            MetricEvidence("fanout", "body", verdict, 1.0, (None, None), 1.1, None, None, 20, 1, 1) for verdict in pair
        )
        metric = MetricResult("fanout.p95", 9, 99, 10, False, True, 20, 20)
        (told,) = with_evidence([metric], Comparison("x", words), [Limit("fanout", "p95", TENTH)],
                                table_of_runs(make_run().tasks))  # fmt: skip
        assert (told.evidence, told.over) == (word, word == "regressed")


# --- capacity --------------------------------------------------------------------------------------------------------

MONTH = '"capacity.cost_month" = {{ {} }}'.format
GIVEN = Approval("baselines/approvals/a.json", "baseline", "support", None, None, EVALSET, {}, (), "a reason", "dana",
                 TODAY.isoformat(), "n")  # fmt: skip


class Tree:
    """Stands for a repository: what each commit holds."""

    def __init__(self, files: dict[tuple[str, str], str]) -> None:
        self._files = files

    def read(self, rev: str, where: str) -> bytes | None:
        text = self._files.get((rev, where.rpartition("/")[2]))
        return None if text is None else text.encode()


FLEET = priced.FLEET.format(reserved=40, dau=864_000)


def judged(
    run: Run,
    limit: str,
    covering: Approval | None = None,
    anchor: Baseline | None = None,
    files: dict[tuple[str, str], str] | None = None,
    **measured: Any,
) -> Priced:
    budget = parse_budget(priced.LOOSE.format(limit=limit).encode())
    anchor = anchor or build_baseline(make_run(), "support")
    tree = Tree({("head", "fleet.toml"): FLEET} if files is None else files)
    limits = CapacityLimits(budget, run, {"support": anchor}, tree, ["base", "head"], priced.SETTINGS)  # type: ignore[arg-type]
    return limits.judge("support", anchor, replace(measure(run, "support", anchor, anchor, ()), **measured), covering)


def slugs(found: Priced) -> list[str]:
    return [problem.slug for problem in found.problems]


@pytest.mark.parametrize(
    ("limit", "ceiling", "said"),
    [
        ("max = 57_600", None, []),
        ("max = 57_599", None, ["over-max"]),
        ('increase = "100%"', None, []),
        ('increase = "99%"', None, ["over-limit"]),
        ('increase = "99%"', 57_600, []),
        ('increase = "99%"', 57_599, ["over-ceiling"]),
        ('increase = "100%"', 57_599, ["over-ceiling"]),
        ('increase = "100%", max = 57_599', 99_999, ["over-max"]),
    ],
)
def test_the_last_dollar_that_is_within(limit: str, ceiling: int | None, said: list[str]) -> None:
    """57,600 in 30 days: a maximum, a limit and a ceiling of that very number hold it."""
    covering = None if ceiling is None else replace(GIVEN, ceilings={"capacity.cost_month": ceiling})

    found = judged(make_run(priced.TWICE), MONTH(limit), covering)

    assert slugs(found) == said
    (metric,) = found.metrics
    assert (metric.base, metric.run, metric.ceiling, metric.over) == (28_800, 57_600, ceiling, bool(said))
    assert (metric.n, metric.trials, metric.gated) == (20, 20, True)


def test_an_approval_that_does_not_name_the_limit_covers_none_of_it() -> None:
    """Whatever else it names; below its limit as well, for it was never looked at."""
    covering = replace(GIVEN, ceilings={"fanout.p95": 999})
    (problem,) = judged(make_run(), MONTH('increase = "99%"'), covering).problems

    assert problem.text == (
        "support: capacity.cost_month is 28,800, above the ceiling unknown of baselines/approvals/a.json"
    )


@pytest.mark.parametrize("rows", [("t01",), ("t20",)])
def test_a_part_is_priced_beside_the_same_part(rows: tuple[str, ...]) -> None:
    """Neither dearer nor cheaper than its anchor; tasks that the anchor does not know are left out."""
    run = make_run({**{task: TWENTY[task] for task in rows}, "new": [900]}, session=SessionFacts(partial=True))

    (metric,) = judged(run, MONTH('increase = "10%"'), partial=True).metrics
    assert metric.base == metric.run
    (whole,) = judged(run, MONTH('increase = "10%"'), partial=False).metrics
    assert whole.base != whole.run


@pytest.mark.parametrize("session", [SessionFacts(shard="1/2"), SessionFacts()])
def test_what_is_no_whole_class_is_not_priced(session: SessionFacts) -> None:
    """A shard is none; nor is a class of which nothing was measured."""
    run = make_run(priced.TWICE, session=session)
    lost = with_trials(run, list(TWENTY), status="crashed")

    assert (judged(run, MONTH('increase = "10%"')) == Priced()) == (session.shard is not None)
    assert judged(lost, MONTH('increase = "10%"')) == Priced()


def test_the_fleet_is_that_of_the_first_commit_that_has_one() -> None:
    """The base's; HEAD's where the base has none; defaults without any, which price no month."""
    half = FLEET.replace("usd_per_gpu_hour = 4", "usd_per_gpu_hour = 2")
    cases = [
        ({("base", "fleet.toml"): half, ("head", "fleet.toml"): FLEET}, 14_400),
        ({("head", "fleet.toml"): half}, 14_400),
        ({("base", "fleet.toml"): FLEET}, 28_800),
        ({}, None),
    ]

    for files, month in cases:
        (metric,) = judged(make_run(), MONTH("max = 99_999"), files=files).metrics
        assert metric.run == month


@pytest.mark.parametrize("rev", ["base", "head"])
def test_a_calibration_is_read_from_the_same_commit(rev: str) -> None:
    """One that another commit holds is not there."""
    text = FLEET.replace("gpus_reserved", 'calibration = "calibrations/c.json"\ngpus_reserved')
    files = {("base", "fleet.toml"): text, (rev, "c.json"): "{}"}

    (problem,) = judged(make_run(), MONTH("max = 99_999"), files=files).problems

    assert (problem.slug == "no-calibration") == (rev == "head")


@pytest.mark.parametrize(
    ("base", "run", "min_of", "changes", "ceilings"),
    [
        (10, 11, None, [(10, 11)], {"capacity.cost_month": 12}),
        (10, 10, None, [], {"capacity.cost_month": 11}),
        (10, 9, None, [], {"capacity.cost_month": 9}),
        (None, 10, None, [(None, 10)], {"capacity.cost_month": 11}),
        (10, None, None, [], {}),
        (10, 11, 1, [], {}),
    ],
)
def test_what_an_approval_says_of_capacity(
    base: int | None, run: int | None, min_of: int | None, changes: list[Any], ceilings: dict[str, int]
) -> None:
    """What grew is a line; whatever is known has a ceiling of a tenth more; cliffs are approved by nobody."""
    metrics = [
        MetricResult("fanout.p95", 1, 9, 1, True, True, 1, 1),
        MetricResult("capacity.cost_month", base, run, 9, True, True, 1, 1),
    ]
    limit = Limit("capacity", "cost_month", TENTH, min=min_of)

    told, given = changes_of(metrics, [limit])

    assert [(change.name, change.old, change.new) for change in told] == [
        ("capacity.cost_month", *pair) for pair in changes
    ]
    assert all(change == Change("metric", change.name, "all", change.old, change.new) for change in told)
    assert given == ceilings


def test_on_another_draw_growth_of_capacity_is_over_where_evidence_is_off() -> None:
    """And on the same draw, whatever the evidence would say."""
    lucky = make_run({**TWENTY, "t20": [60]})
    off = MONTH('increase = "5%", evidence = "off"')

    assert slugs(judged(lucky, MONTH('increase = "5%"'))) == ["over-limit"]
    assert slugs(judged(redrawn(lucky), MONTH('increase = "5%"'))) == ["capacity-not-shown"]
    assert slugs(judged(redrawn(lucky), off)) == ["over-limit"]
    assert slugs(judged(lucky, MONTH('increase = "5%"'), draw="mixed")) == ["capacity-not-shown"]


def test_trials_of_other_classes_are_not_priced_with_this_one() -> None:
    """Nor those that crashed."""
    run = make_run()
    others = tuple(trial(agent, "t20", 1, 900) for agent in ("aaa", "zzz"))
    crashed = trial("support", "t20", 2, 900, status="crashed")

    (metric,) = judged(replace(run, tasks=(*run.tasks, *others, crashed)), MONTH("max = 99_999")).metrics

    assert metric.run == 28_800
