"""The JUnit file of ``--junitxml``: each class's gate as a test case, and the figures of each trial as properties."""

from __future__ import annotations

import pytest

from pytest_fanout.config import Settings
from pytest_fanout.records import ClassResult, Run, TaskRun, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.printable import escape

SUITE = "fanout-gate"


def properties_of(trial: TaskRun) -> list[tuple[str, object]]:
    """``fanout`` and ``tokens`` of a trial, as ``record_property`` would; what is not known is left out."""
    given, answered = trial.samples.get("input_tokens"), trial.samples.get("output_tokens")
    tokens = None if given is None or answered is None else given + answered
    figures = {"fanout": trial.samples.get("fanout"), "tokens": tokens}
    return [(name, value) for name, value in figures.items() if value is not None]


def tell_gate(config: pytest.Config, run: Run, verdict: Verdict, settings: Settings) -> None:
    """Add a test case for each class, and one for the run where what decided is of no class.

    The file is written by pytest itself when the session has ended; without ``--junitxml`` nothing happens. The case of
    a class names its anchor as its file.
    """
    junit = next((p for p in config.pluginmanager.get_plugins() if type(p).__name__ == "LogXML"), None)
    if junit is None:
        return
    folder, root = settings.baselines, settings.root
    baselines = (folder.relative_to(root) if folder.is_relative_to(root) else folder).as_posix()
    cases = [_of_class(run, verdict, result, baselines) for result in summary.ordered_classes(verdict)]
    if verdict.verdict not in {result.verdict for result in verdict.classes}:
        cases.append(_case("run", verdict.outcome, verdict.verdict, summary.headline(run, verdict), baselines))
    for case in cases:
        for when in ("call", "teardown"):  # the latter closes the case
            case.when = when
            if when == "teardown":
                case.outcome, case.longrepr = "passed", None
            junit.pytest_runtest_logreport(case)


def _of_class(run: Run, verdict: Verdict, result: ClassResult, baselines: str) -> pytest.TestReport:
    lines = [summary.class_reason(run, verdict, result)]
    lines += [problem.text for problem in result.problems if problem.text not in lines]
    case = _case(result.agent, result.outcome, result.verdict, "\n".join(lines), f"{baselines}/{result.agent}.json")
    case.user_properties = [("verdict", result.verdict)]
    case.user_properties += [
        (metric.name, metric.run)
        for metric in result.metrics
        if metric.gated and metric.scope == "all" and metric.run is not None
    ]
    return case


def _case(name: str, outcome: str, verdict: str, text: str, file: str) -> pytest.TestReport:
    """Passed within budget and under a waiver; a shard, which nobody judges alone, is skipped; all else failed."""
    said = "\n".join(escape(line) for line in text.splitlines())
    location = (file, 0, f"{SUITE}::{name}")
    if verdict == "shard":
        return pytest.TestReport(f"{SUITE}::{name}", location, {}, "skipped", (file, 0, said), "call")
    is_green = outcome in ("within", "waived")
    return pytest.TestReport(
        f"{SUITE}::{name}",
        location,
        {},
        "passed" if is_green else "failed",
        None if is_green else f"{summary.OUTCOME_WORDS[outcome]} ({verdict}): {said}",
        "call",
    )
