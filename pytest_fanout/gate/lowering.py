"""The anchor goes down only on evidence: else the luckier of two draws is kept, and the next one looks like growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_fanout.gate.loosening import lowered
from pytest_fanout.judge import Draw, judge_draws, table_of_baseline
from pytest_fanout.records import Baseline, ClassResult, JudgeRules, Limit

#: Verdicts of a test that found the older anchor above the newer draw.
_SHOWN = frozenset({"regressed", "unconfirmed"})


def lowered_by_luck(
    origin: Baseline, anchor: Baseline, result: ClassResult, limits: Sequence[Limit], rules: JudgeRules
) -> tuple[str, ...]:
    """Names of gated metrics that are lower in a new draw of the same tasks, where no evidence shows that any is.

    Empty where the run is not within budget (then it is accepted for other reasons), where the eval set differs, and
    where all recordings of ``origin`` are kept, so that the anchor only grows by trials.
    """
    names = lowered(origin, anchor, limits)
    if not names or result.verdict != "pass" or result.draw not in ("new", "mixed"):
        return ()
    if _definitions(origin) != _definitions(anchor) or _recordings(origin) <= _recordings(anchor):
        return ()
    any_growth = tuple(
        replace(limit, increase=Fraction(0), at_least=0, max=None, evidence=True)
        for limit in limits
        if limit.name in names
    )
    # the question turned round: has the agent grown from the new draw to the old one?
    draw = Draw(table_of_baseline(anchor), table_of_baseline(origin), any_growth, rules)
    comparison = judge_draws({origin.agent: draw})[origin.agent]
    return () if any(entry.verdict in _SHOWN for entry in comparison.metrics) else names


def _definitions(anchor: Baseline) -> dict[str, str]:
    return {task: entry.definition for task, entry in anchor.tasks.items()}


def _recordings(anchor: Baseline) -> set[tuple[str, str | None]]:
    return {(task, fact.recording) for task, entry in anchor.tasks.items() for fact in entry.trials}
