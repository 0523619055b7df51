"""What ``compare`` is given: samples and options, checked and brought into the judge's own form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real

from pytest_fanout.errors import UsageError
from pytest_fanout.judge.comparison import TrialTable, Values
from pytest_fanout.records import STATISTICS, JudgeRules, Limit

#: task -> metric -> one whole number a trial, all metrics of a task in the same order of trials.
SamplesByTask = Mapping[str, Mapping[str, Sequence[int]]]

#: Floats hold every whole number up to here.
_LARGEST = 2**53
#: What the judge counts from how trials ended, never from samples.
_OF_STATUSES = ("capped", "failed")
_EACH = "give one whole number for each trial, in the same order for every metric"
_LIMIT = 'limits=[Limit("fanout", "p95", Fraction(1, 10))]'


def rules_of(alpha: object, trials: object) -> JudgeRules:
    """The options that say how strictly a class is judged."""
    share = _fraction(alpha)
    if share is None or not 0 < share <= Fraction(1, 2):
        raise _refused(f"alpha is {alpha!r}, and has to lie above 0 and at most at 0.5", "alpha=0.05")
    if not _is_whole(trials) or trials < 1:  # type: ignore[operator]
        raise _refused(f"trials is {trials!r}, and has to be a whole number of at least 1", "trials=5")
    return JudgeRules(trials=int(trials), alpha=share)  # type: ignore[call-overload]


def limits_of(limits: Iterable[Limit] | None, tolerance: object, metrics: Sequence[str]) -> tuple[Limit, ...]:
    """The limits, each of which limits something that was measured; None: the p95 of every metric at ``tolerance``."""
    allowed = _fraction(tolerance)
    if allowed is None or not 0 <= allowed < 1000:
        raise _refused(f"tolerance is {tolerance!r}, and has to be a part of 1, at least 0", "tolerance=0.10")
    if limits is None:
        return tuple(Limit(metric, "p95", allowed) for metric in metrics)
    given = list(limits) if isinstance(limits, Iterable) and not isinstance(limits, Mapping) else [None]
    if not all(isinstance(limit, Limit) for limit in given):
        raise _refused("limits is no list of Limit", _LIMIT)
    checked = tuple(_limit(limit, metrics) for limit in given if limit is not None)
    if not any(limit.metric in metrics for limit in checked):
        raise _refused(
            "limits holds none on a metric that was measured: nothing would be judged",
            "limits=None gates every metric",
        )
    return checked


def _limit(limit: Limit, metrics: Sequence[str]) -> Limit:
    if limit.metric not in metrics and limit.metric not in _OF_STATUSES:
        raise _refused(f"the limit {limit.name} is on a metric that no task has", f"one of {', '.join(metrics)}")
    known = ("share",) if limit.metric in _OF_STATUSES else STATISTICS
    if limit.statistic not in known:
        raise _refused(f"the limit {limit.name} is on a statistic that there is not", f"one of {', '.join(known)}")
    if limit.increase is None and limit.max is None:
        raise _refused(f"the limit {limit.name} limits nothing", "give it increase or max")
    increase = None if limit.increase is None else _fraction(limit.increase)
    if limit.increase is not None and (increase is None or increase < 0):
        raise _refused(f"the increase of {limit.name} is {limit.increase!r}, and has to be at least 0", _LIMIT)
    for name in ("at_least", "max"):
        value = getattr(limit, name)
        if (value is not None or name == "at_least") and (not _is_whole(value) or not 0 <= value <= _LARGEST):
            raise _refused(f"{name} of {limit.name} is {value!r}, and has to be a whole number, at least 0", _LIMIT)
    return replace(limit, increase=increase)


def table_of(samples: SamplesByTask, where: str) -> TrialTable:
    """The samples of one side; ``where``: its name in errors."""
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
            if not isinstance(metric, str) or not metric or metric in _OF_STATUSES:
                raise _bad(
                    f"{where}: task {task!r}",
                    f"{metric!r} is no metric that can be given",
                    "call each by its name, like fanout; how trials ended is no sample",
                )
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


def _whole(values: Sequence[int], where: str) -> Values:
    try:
        # neither of the two holds one entry a trial, in the order of trials
        given = None if isinstance(values, str | bytes | Mapping | Set) else list(values)
    except TypeError:
        given = None
    if given is None:
        raise _bad(where, f"{values!r} is no list of numbers", _EACH)
    for index, value in enumerate(given, start=1):
        if type(value) is not int and not _is_whole(value):
            raise _bad(f"{where}, trial {index}", f"{value!r} is no whole number", _EACH)
        if not 0 <= value <= _LARGEST:
            raise _bad(f"{where}, trial {index}", f"{value} is below 0 or above 2**53", _EACH)
    return tuple(map(int, given))


def metrics_of(before: TrialTable, after: TrialTable) -> tuple[str, ...]:
    """The metrics, which every task on both sides has to have."""
    names = sorted({metric for row in (*before.samples.values(), *after.samples.values()) for metric in row})
    for where, table in (("baseline", before), ("measured", after)):
        for task, row in table.samples.items():
            for metric in names:
                if metric not in row:
                    raise _bad(f"{where}: task {task!r}", f"has no {metric}, and other tasks have", _EACH)
    return tuple(names)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _fraction(value: object) -> Fraction | None:
    """Exactly; a float as it is written, not as it is held: 0.1 is a tenth. None: no finite number."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return None
    try:
        if isinstance(value, Integral):
            return Fraction(int(value))
        return Fraction(value) if isinstance(value, Rational) else Fraction(str(float(str(value))))
    except (ValueError, OverflowError):
        return None


def _bad(where: str, what: str, mend: str) -> UsageError:
    return UsageError("bad-samples", what, where=where, mend=mend)


def _refused(what: str, mend: str) -> UsageError:
    return UsageError("bad-comparison", what, where="compare()", mend=mend)
