"""The gated figures as OpenMetrics text, for dashboards and for the metrics report of a GitLab merge request."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_fanout.records import Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.printable import escape

_FAMILIES = (
    ("fanout_run", "A gated figure of this run."),
    ("fanout_base", "The same figure of the anchor that it is compared with."),
    ("fanout_limit", "What the figure may be at most."),
    ("fanout_tasks", "Tasks of a class that have a completed run."),
    ("fanout_tasks_expected", "Tasks of a class that should have one."),
    ("fanout_within_budget", "1 where the class is within its budget or has an approval, else 0."),
)


def render(verdict: Verdict) -> str:
    """One family of gauges after the other, the classes by name. What is not known has no sample: it is not 0.

    A run that was not measured has no figures, only its 0 in ``fanout_within_budget``.
    """
    samples: dict[str, list[str]] = {name: [] for name, _ in _FAMILIES}
    for family, labels, value in _samples(verdict):
        shown = ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())
        samples[family].append(f"{family}{{{shown}}} {value}")
    lines = []
    for name, text in _FAMILIES:
        if samples[name]:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {text}", *samples[name]]
    return "\n".join([*lines, "# EOF", ""])


def _samples(verdict: Verdict) -> Iterator[tuple[str, dict[str, str], int]]:
    is_whole = verdict.outcome != "not_measured"
    for result in sorted(summary.ordered_classes(verdict), key=lambda result: result.agent):
        mine = {"agent": result.agent}
        yield "fanout_tasks", mine, result.tasks_ran
        yield "fanout_tasks_expected", mine, result.tasks_expected
        yield "fanout_within_budget", mine, int(is_whole and result.outcome == "within")
        if result.outcome == "not_measured":
            continue
        for metric in result.metrics:
            if not metric.gated:
                continue
            labels = {**mine, "metric": metric.name, "scope": metric.scope}
            for family, value in (
                ("fanout_run", metric.run),
                ("fanout_base", metric.base),
                ("fanout_limit", metric.limit),
            ):
                if value is not None:
                    yield family, labels, value


def _label(text: str) -> str:
    return escape(text).replace("\\", "\\\\").replace('"', '\\"')
