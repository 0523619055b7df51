"""The OpenMetrics text: figures by class, none where nothing was measured, and labels that break no line."""

from __future__ import annotations

from dataclasses import replace

from report_cases import BASE, HEAD, cases, metric, result

from pytest_fanout.records import Verdict
from pytest_fanout.report.openmetrics import render


def test_the_figures_of_a_regression() -> None:
    """Run, base and limit of each gated figure; a figure without a limit has no sample of it."""
    support = result("support", "pass", metric("fanout.p95", 4, 5, None))
    research = result("research", "regressed", metric("fanout.p95", 7, 11, 8, over=True))
    verdict = Verdict("regressed", (support, research), (), BASE, HEAD)

    text = render(verdict)

    lines = [line for line in text.splitlines() if line.startswith(("fanout_run", "fanout_base", "fanout_limit"))]
    assert lines == [
        'fanout_run{agent="research",metric="fanout.p95",scope="all"} 11',
        'fanout_run{agent="support",metric="fanout.p95",scope="all"} 5',
        'fanout_base{agent="research",metric="fanout.p95",scope="all"} 7',
        'fanout_base{agent="support",metric="fanout.p95",scope="all"} 4',
        'fanout_limit{agent="research",metric="fanout.p95",scope="all"} 8',
    ]
    assert 'fanout_within_budget{agent="research"} 0\nfanout_within_budget{agent="support"} 1\n' in text
    assert text.endswith("# EOF\n")


def test_what_was_not_measured_has_no_figure() -> None:
    """A stale class beside a good one: its figures would be those of what happened to run, and neither is within."""
    stale = result("research", "stale", metric("fanout.p95", 7, 3, 8))
    good = result("support", "pass", metric("fanout.p95", 4, 4, 5))

    text = render(Verdict("stale", (stale, good), (), BASE, HEAD))

    assert 'fanout_run{agent="research"' not in text
    assert text.count("fanout_within_budget{") == 2
    assert '"} 1\n' not in text.partition("# TYPE fanout_within_budget")[2]


def test_no_label_ends_its_line() -> None:
    """Quotes, backslashes and line breaks in a metric's name stay inside it."""
    hostile = metric('tool_calls[a"\\\n# EOF].p95', 1, 2, 3)
    text = render(Verdict("pass", (result("support", "pass", hostile),), (), BASE, HEAD))

    assert 'metric="tool_calls[a\\"\\\\\\\\n# EOF].p95"' in text
    assert text.count("\n# EOF") == 1


def test_every_case_of_a_report_gives_one_text() -> None:
    """Whatever the verdict: every line is a comment or a sample of a known family with a whole number."""
    for run, verdict in cases().values():
        for line in render(replace(verdict, base=run.base or verdict.base)).splitlines():
            assert line.startswith("# ") or line.rpartition(" ")[2].isdigit(), line
