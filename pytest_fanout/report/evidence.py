"""What the evidence of a new draw shows and rules out, in the words that every report uses."""

from __future__ import annotations

from pytest_fanout.capacity.figures import counted
from pytest_fanout.judge.reasons import percent
from pytest_fanout.records import ClassResult, Comparison, MetricEvidence
from pytest_fanout.report.summary import number

#: Verdicts of a test that say that there is no evidence either way.
UNDECIDED = frozenset({"unconfirmed", "high", "open", "low"})
_WHY = {
    "unconfirmed": "found, and not confirmed by later trials yet",
    "high": "above the limit, and it may be chance",
}


def evidence_texts(result: ClassResult) -> list[str]:
    """One line a test, one a metric with its p95, and what the number of tests costs; nothing on the same draw."""
    comparison = result.evidence
    if comparison is None or not comparison.metrics or result.outcome == "not_measured":
        return []
    texts = [_test(entry) for entry in comparison.metrics]
    for entry in comparison.metrics:
        if entry.statistic == "body":
            texts.append(_percentile(entry))
    return [*texts, _cost(comparison)]


def _test(entry: MetricEvidence) -> str:
    name = {"heavy": f"{entry.name} of the dearest tasks", "share": f"share of {entry.name} trials"}.get(
        entry.statistic, f"{entry.name} of a typical task"
    )
    low, high = (None if end is None else _size(end, entry) for end in entry.interval)
    text = f"{'~ ' if entry.verdict in UNDECIDED else ''}{name} {_size(entry.effect or 0.0, entry)}"
    if low is not None and high is not None:
        text += f" (90 %: {low} to {high})"
    if entry.verdict == "regressed":
        return f"{text}, exactly" if entry.p is None else f"{text}, p {entry.p:.2g} where {entry.level:.2g} is asked"
    if entry.verdict in _WHY:
        return f"{text}: {_WHY[entry.verdict]}"
    more = ", more trials are needed to tell" if entry.verdict == "open" else ""
    return f"{text}{more}" if high is None else f"{text}: growth above {high.lstrip('+')} ruled out (95 %){more}"


def _size(effect: float, entry: MetricEvidence) -> str:
    return f"{effect * 100:+.0f} points" if entry.statistic == "share" else percent(effect)


def _percentile(entry: MetricEvidence) -> str:
    sides = []
    for value, interval in ((entry.p95_base, entry.p95_base_interval), (entry.p95_run, entry.p95_run_interval)):
        low, high = interval or (None, None)
        if low is None and high is None:
            sides.append(f"{number(value)} (not estimable)")
        elif low is None or high is None:
            sides.append(
                f"{number(value)} (at {'most' if low is None else 'least'} {number(high if low is None else low)})"
            )
        else:
            sides.append(f"{number(value)} ({number(low)} to {number(high)})")
    noise = "" if entry.noise is None else f", a rerun of a task moves it by {percent(1 + entry.noise).lstrip('+')}"
    trials = f"{entry.trials_base} and {counted(entry.trials_run, 'trial')}"
    return f"{entry.name}.p95 {sides[0]} -> {sides[1]}, {counted(entry.n, 'task')}, {trials}{noise}"


def _cost(comparison: Comparison) -> str:
    text = f"{counted(comparison.tests, 'test')} in this run"
    if comparison.level is None or comparison.level_one_less is None:
        return text
    text += f", one chance of a false alarm for all: growth needs p {comparison.level:.2g}"
    less = f"{comparison.level_one_less:.2g}"
    if comparison.finds is not None:
        found, with_less = percent(comparison.finds), percent(comparison.finds_one_less or comparison.finds)
        text += f", and {found} of {comparison.finds_of} is found in four of five draws"
        if comparison.finds_trials is not None:
            text += f" of {counted(comparison.finds_trials, 'trial')}"
        if with_less == found:  # it hides nothing that is told
            return text
        less += f" and {with_less}"
    # with a single limit there is none to leave out
    return text if comparison.tests < 3 else f"{text} ({less} with one limit less)"
