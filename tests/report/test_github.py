"""Annotations and stop-commands: what a build log executes is only what we wrote."""

from __future__ import annotations

import re

import pytest
from report_cases import BASE, HEAD, cases, metric, result, run

from pytest_fanout.records import Problem, Verdict
from pytest_fanout.report import github

TOKEN = "0123456789abcdef0123456789abcdef"


def test_a_regressed_class_is_an_error_at_its_anchor() -> None:
    """File, line and the deciding number; the class that passes is not annotated."""
    assert github.annotations(*cases()["regressed"]) == (
        "::error file=baselines/research.json,line=1,title=fanout budget::over budget (regressed): research fanout.p95 "
        "7 -> 11, limit 8; 1 more limit exceeded; 12 -> 19 GPUs at peak",
    )


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("stale", "::error file=baselines/research.json,line=1,"),
        ("waived", "::warning file=baselines/research.json,line=1,"),
        ("approved", "::notice file=baselines/research.json,line=1,"),
        ("integrity", "::error title=fanout budget::not measured (integrity): "),
    ],
)
def test_the_level_follows_the_outcome(name: str, start: str) -> None:
    """Errors for what fails, a warning for a waiver, a notice for an approval; run-wide problems point at no file."""
    assert github.annotations(*cases()[name])[0].startswith(start)


@pytest.mark.parametrize("name", ["pass", "shard"])
def test_a_run_within_budget_or_a_shard_has_no_annotation(name: str) -> None:
    """Quiet when all is well, and where nothing is judged yet."""
    assert github.annotations(*cases()[name]) == ()


def test_at_most_ten_worst_first() -> None:
    """Fifteen regressed classes and one run-wide integrity problem: the problem leads, nine classes follow."""
    classes = tuple(result(f"c{n:02}", "regressed", metric("fanout.p95", 1, 3, 2, True)) for n in range(15))
    verdict = Verdict("integrity", classes, (Problem("bad-json", "altered", "integrity"),), BASE, HEAD)
    found = github.annotations(run(), verdict)

    assert len(found) == 10
    assert found[0] == "::error title=fanout budget::not measured (integrity): altered"
    assert [re.search(r"c\d\d", text)[0] for text in found[1:]] == [f"c{n:02}" for n in range(9)]  # type: ignore[index]


def test_hostile_text_stays_in_its_place() -> None:
    """Percent signs, line ends, colons and commas are escaped as workflow commands require, controls made visible."""
    problems = (Problem("s", "100 %\n::error::x\r\x1b[2J", "invalid"),)
    bad = result("a:b,c", "invalid", problems=(Problem("s", "no", "invalid"),))
    found = github.annotations(run(), Verdict("invalid", (bad,), problems, BASE, HEAD), baselines="base%lines")

    assert found == (
        "::error file=base%25lines/a%3Ab%2Cc.json,line=1,title=fanout budget::not measured (invalid): a:b,c: no",
        "::error title=fanout budget::not measured (invalid): 100 %25%0A::error::x%0A\\x1b[2J",
    )


def test_stop_commands_wraps_text_so_that_commands_inside_are_inert() -> None:
    """The mark that ends it stands once, on a line of its own, after the text."""
    assert github.stop_commands("::error::x", TOKEN) == f"::stop-commands::{TOKEN}\n::error::x\n::{TOKEN}::\n"


@pytest.mark.parametrize("token", ["", "short", "with space 0123456789", "warning::0123456789"])
def test_a_token_that_protects_nothing_is_refused(token: str) -> None:
    """Too short, or with characters that end a command."""
    with pytest.raises(ValueError, match="16 or more random letters and digits"):
        github.stop_commands("text", token)


def test_text_that_holds_the_token_is_refused() -> None:
    """Otherwise the text could switch commands on again."""
    with pytest.raises(ValueError, match="does not hold"):
        github.stop_commands(f"::{TOKEN}::\n::error::x", TOKEN)
