"""One class judged from its samples alone, for whoever has numbers and no run of pytest: ``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Integral

from pytest_fanout.errors import UsageError
from pytest_fanout.judge.comparison import TrialTable, Values
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.judge.replayed import judge_replayed
from pytest_fanout.records import Comparison, JudgeRules, Limit, Needs, Reason

#: task -> metric -> one whole number a trial, all metrics of a task in the same order of trials.
SamplesByTask = Mapping[str, Mapping[str, Sequence[int]]]

#: Of the anchor's tasks, and of its trials' tasks, so many have to be there.
FEWEST_COVERED = Fraction(90, 100)
#: Floats hold every whole number up to here.
_LARGEST = 2**53


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
            different numbers of trials; ``bad-comparison`` for options that cannot be acted on.
    """
    if mode not in ("live", "replay"):
        raise _refused(f"mode is {mode!r}", 'mode="live" or mode="replay"')
    if not 0 < alpha <= Fraction(1, 2):  # NaN is not either
        raise _refused(f"alpha is {alpha}, and has to lie above 0 and at most at 0.5", "alpha=0.05")
    if not 0 <= tolerance < 1000:
        raise _refused(f"tolerance is {tolerance}, and has to be a part of 1, at least 0", "tolerance=0.10")
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise _refused(f"trials is {trials!r}, and has to be a whole number of at least 1", "trials=5")
    before, after = _table(baseline, "baseline"), _table(measured, "measured")
    metrics = _metrics(before, after)
    if limits is None:
        limits = tuple(Limit(metric, "p95", _exactly(tolerance)) for metric in metrics)
    for limit in limits:
        if limit.metric not in metrics and limit.metric not in ("capped", "failed"):
            raise _refused(f"the limit {limit.name} is on a metric that no task has", f"one of {', '.join(metrics)}")
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
    rules = JudgeRules(trials=trials, alpha=_exactly(alpha))
    draw = Draw(before, after, tuple(limits), rules)
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


def _table(samples: SamplesByTask, where: str) -> TrialTable:
    rows = samples.items() if isinstance(samples, Mapping) else [(None, None)]
    if not all(isinstance(task, str) and isinstance(row, Mapping) for task, row in rows):
        raise _bad(where, "is not of the form {task: {metric: [numbers]}}", "give the samples by task and metric")
    if not samples:
        raise _bad(where, "holds no task", "give at least one task with its samples")
    out: dict[str, dict[str, Values]] = {}
    counts: dict[str, int] = {}
    for task in sorted(samples):
        row: dict[str, Values] = {}
        for metric, values in samples[task].items():
            row[metric] = _whole(values, f"{where}: task {task!r}, {metric}")
        lengths = {metric: len(values) for metric, values in row.items()}
        if not lengths or 0 in lengths.values():
            raise _bad(f"{where}: task {task!r}", "holds no trials", "leave the task out, or give its samples")
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{metric} {count}" for metric, count in sorted(lengths.items()))
            raise _bad(f"{where}: task {task!r}", f"its metrics have different numbers of trials: {said}", _EACH)
        counts[task] = next(iter(lengths.values()))
        out[task] = row
    return TrialTable(out, {task: ("ok",) * count for task, count in counts.items()})


_EACH = "give one whole number for each trial, in the same order for every metric"


def _whole(values: Sequence[int], where: str) -> Values:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise _bad(where, f"{values!r} is no list of numbers", _EACH)
    out = []
    for index, value in enumerate(values, start=1):
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise _bad(f"{where}, trial {index}", f"{value!r} is no whole number", _EACH)
        if not 0 <= value <= _LARGEST:
            raise _bad(f"{where}, trial {index}", f"{value} is below 0 or above 2**53", _EACH)
        out.append(int(value))
    return tuple(out)


def _metrics(before: TrialTable, after: TrialTable) -> tuple[str, ...]:
    """The metrics, which every task on both sides has to have."""
    names = sorted({metric for row in (*before.samples.values(), *after.samples.values()) for metric in row})
    for where, table in (("baseline", before), ("measured", after)):
        for task, row in table.samples.items():
            for metric in names:
                if metric not in row:
                    raise _bad(f"{where}: task {task!r}", f"has no {metric}, and other tasks have", _EACH)
    return tuple(names)


def _silent(before: TrialTable, after: TrialTable) -> list[str]:
    """Tasks with a new trial without any call, though every trial of the anchor has some."""
    return [
        task
        for task in sorted(after.samples)
        if task in before.samples
        and 0 in after.samples[task].get("fanout", ())
        and 0 not in before.samples[task].get("fanout", (0,))
    ]


def _exactly(share: float | Fraction) -> Fraction:
    return Fraction(str(share)) if isinstance(share, float) else Fraction(share)


def _bad(where: str, what: str, mend: str) -> UsageError:
    return UsageError("bad-samples", what, where=where, mend=mend)


def _refused(what: str, mend: str) -> UsageError:
    return UsageError("bad-comparison", what, where="compare()", mend=mend)
