"""Which raw number gives way to the evidence of a new draw, and which decides by itself."""

from __future__ import annotations

from fractions import Fraction

import pytest
from gate_world import make_run

from pytest_fanout.gate.draws import draw_of, with_evidence
from pytest_fanout.judge import table_of_runs
from pytest_fanout.records import Comparison, Limit, MetricEvidence, MetricResult
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

TENTH = Fraction(1, 10)


def evidence(name: str, *verdicts: str) -> list[MetricEvidence]:
    return [
        MetricEvidence(name, statistic, verdict, 1.0, (None, None), 1.1, None, None, 20, 1, 1)
        for statistic, verdict in zip(("body", "heavy"), verdicts, strict=False)
    ]


def said(limit: Limit | None, *found: MetricEvidence, run: int = 25, over: bool = True) -> tuple[str | None, bool]:
    """Evidence and ``over`` of fanout.p95, which raw numbers have over its limit."""
    metric = MetricResult("fanout.p95", 19, run, 20, over, True, 20, 20)
    limits = () if limit is None else (limit,)

    compared = Comparison("inconclusive", found)
    (told,) = with_evidence([metric], compared, limits, table_of_runs(make_run().tasks))

    return told.evidence, told.over


@pytest.mark.parametrize(
    ("limit", "words", "told"),
    [
        (Limit("fanout", "p95", TENTH), evidence("fanout", "shown"), ("shown", False)),
        (Limit("fanout", "p95", TENTH), evidence("fanout", "regressed"), ("regressed", True)),
        (Limit("fanout", "p95", TENTH), evidence("fanout", "shown", "regressed"), ("regressed", True)),
        (Limit("fanout", "p95", TENTH), evidence("fanout", "open", "high"), ("high", False)),
        (Limit("fanout", "p95", TENTH), evidence("aaa", "shown"), (None, True)),
        (Limit("fanout", "p95", TENTH), evidence("tokens", "shown"), (None, True)),
        (Limit("fanout", "p95", TENTH, evidence=False), evidence("fanout", "shown"), (None, True)),
        (Limit("fanout", "p95", None, max=24), evidence("fanout", "shown"), (None, True)),
        (None, evidence("fanout", "shown"), (None, True)),
        (Limit("fanout", "p95", TENTH, max=24), evidence("fanout", "shown"), ("shown", True)),
        (Limit("fanout", "p95", TENTH, max=25), evidence("fanout", "shown"), ("shown", False)),
    ],
)
def test_evidence_speaks_for_a_limit_on_growth(
    limit: Limit | None, words: list[MetricEvidence], told: tuple[str | None, bool]
) -> None:
    """By the worst of a metric's tests; not where it is turned off. A maximum holds whatever it says."""
    assert said(limit, *words) == told


@pytest.mark.parametrize("agent", ["aaa", "zzz"])
def test_a_draw_is_that_of_its_class(agent: str) -> None:
    """Trials of others are on draws of their own; where all ran on the anchor's recordings there is none."""
    anchor = build_baseline(make_run(), "support")
    other = make_run(agent=agent).tasks

    assert draw_of("support", anchor, (*make_run().tasks, *other), parse_budget(None)) is None
