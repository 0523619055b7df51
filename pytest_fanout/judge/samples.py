"""One class judged from its samples alone, for whoever has numbers and no run of pytest: ``compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_fanout.errors import UsageError
from pytest_fanout.judge.comparison import TrialTable
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.judge.given import SamplesByTask, limits_of, metrics_of, rules_of, table_of
from pytest_fanout.judge.replayed import judge_replayed
from pytest_fanout.records import Comparison, Limit, Needs, Reason

#: Of the anchor's tasks, and of its trials' tasks, so many have to be there.
FEWEST_COVERED = Fraction(90, 100)


def compare(
    baseline: SamplesByTask,
    measured: SamplesByTask,
    *,
    mode: str = "live",
    tolerance: float | Fraction = Fraction(1, 10),
    alpha: float | Fraction = Fraction(1, 20),
    limits: Sequence[Limit] | None = None,
    trials: int = 5,
) -> Comparison:
    """Judge one class from its samples: anchor beside new trials. Pure: the same input gives the same bytes.

    Args:
        baseline: the anchor's samples, ``{task: {metric: [one whole number a trial]}}``.
        measured: the new ones, trials in the order in which they ran; looks are taken after each whole trial.
        mode: ``live``: a new draw, judged by evidence; ``replay``: the same draw, whose numbers have no noise.
        tolerance: growth that is allowed, as a part of 1; used where ``limits`` is None.
        alpha: chance that an unchanged agent is called ``regressed`` by evidence, one-sided.
        limits: as in budget.toml; None: the p95 of every metric given, at ``tolerance``. ``max`` and
            ``evidence=False`` are judged on raw numbers in either mode.
        trials: the most new trials of a task, spread over at most five looks.

    Returns:
        The verdict (``pass``, ``regressed``, ``inconclusive`` or ``invalid``), its evidence and what to run next.

    Raises:
        UsageError: ``bad-samples`` for samples that are no whole numbers of at least 0, or whose metrics have
            different numbers of trials; ``bad-comparison`` for options that cannot be acted on, and for limits of which
            none is on a metric given.
    """
    if mode not in ("live", "replay"):
        raise UsageError("bad-comparison", f"mode is {mode!r}", where="compare()", mend='mode="live" or mode="replay"')
    rules = rules_of(alpha, trials)
    before, after = table_of(baseline, "baseline"), table_of(measured, "measured")
    gated = limits_of(limits, tolerance, metrics_of(before, after))
    shared = [task for task in before.statuses if task in after.statuses]
    if len(shared) < FEWEST_COVERED * len(before.statuses):
        text = (
            f"only {len(shared)} of {len(before.statuses)} tasks of the anchor were measured, and 90 % are needed: "
            "what is left out may be what grew; mend: run the whole class"
        )
        missing = tuple(sorted(set(before.statuses) - set(after.statuses)))
        return Comparison(
            "invalid", (), reasons=(Reason("coverage-short", text, "invalid"),), n=len(shared), missing=missing
        )
    draw = Draw(before, after, gated, rules)
    found = judge_replayed(draw) if mode == "replay" else _with_raw(judge_draws({"": draw})[""], draw)
    against = []
    short = [task for task in shared if len(after.statuses[task]) < len(before.statuses[task])]
    if short and mode == "replay":
        text = (
            f"a replay of fewer trials than the anchor has of {', '.join(short[:5])}: "
            "what is left out may be what grew; mend: run all that are recorded"
        )
        against.append(Reason("coverage-short", text, "invalid"))
    if silent := _silent(before, after):
        text = (
            f"no model call was counted in a trial of {', '.join(silent[:5])}, whose anchor has some: "
            "that is no fanout of 0; mend: find out why, and run again"
        )
        against.append(Reason("no-calls", text, "invalid"))
    return replace(found, verdict="invalid", reasons=(*against, *found.reasons)) if against else found


def _with_raw(found: Comparison, draw: Draw) -> Comparison:
    """The evidence, and what no evidence decides: maxima, and limits with ``evidence = "off"``, on raw numbers."""
    limits = (replace(limit, increase=None) if limit.evidence else limit for limit in draw.limits)
    bounded = tuple(limit for limit in limits if limit.max is not None or limit.increase is not None)
    raw = judge_replayed(replace(draw, limits=bounded))
    over = tuple(reason for reason in raw.reasons if reason.verdict == "regressed")
    found = replace(found, metrics=(*found.metrics, *raw.metrics), reasons=(*over, *found.reasons))
    if over and found.verdict != "invalid":
        found = replace(found, verdict="regressed", needs=Needs())
    return found


def _silent(before: TrialTable, after: TrialTable) -> list[str]:
    """Tasks with a new trial without any call, though every trial of the anchor has some."""
    return [
        task
        for task in sorted(after.samples)
        if task in before.samples
        and 0 in after.samples[task].get("fanout", ())
        and 0 not in before.samples[task].get("fanout", (0,))
    ]
