"""The Markdown report: verdict before evidence, nothing from outside pings, links or breaks out, never too long."""

from __future__ import annotations

import re

import pytest
from report_cases import BASE, HEAD, cases, metric, result, run, trial

from pytest_fanout.records import Problem, StaleNote, TaskDelta, Verdict
from pytest_fanout.report import markdown

HOSTILE = (
    "|<img>@org",
    "`</code>`@org",
    "a\n\n# forged",
    "</details>",
    "[x](http://evil)",
    "<!-- -->",
    "\x1b[2J",
    "``@o``",
)


def test_the_marker_comes_first_then_the_verdict() -> None:
    """A comment is found by its marker; the headline has outcome, verdict and GPUs, then the deciding number."""
    first = markdown.render(*cases()["regressed"]).split("\n")[:4]

    assert first == [
        "<!-- pytest-fanout -->",
        "### ❌ fanout over budget (regressed): `research` 12 → 19 GPUs at peak",
        "",
        "**research fanout.p95 7 → 11, limit 8; 1 more limit exceeded**",
    ]


def test_over_budget_shows_both_ways_out() -> None:
    """Bring it back, or accept it with the command and a review."""
    text = markdown.render(*cases()["regressed"])

    assert (
        "**Either** bring it back under its limit, **or** accept the growth: `fanout-baseline accept --agent research"
        in text
    )
    assert "commit `baselines/`, and have it reviewed." in text


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_verdict_has_a_gpu_line_and_balanced_details(name: str) -> None:
    """Capacity is always spoken of, and each folded section is closed."""
    text = markdown.render(*cases()[name])

    assert re.search(r"^- all classes: .*GPU", text, re.M)
    assert text.count("<details>") == text.count("</details>")


def hostile_case(hostile: str) -> str:
    bad = result(
        "support", "stale", metric(f"tool_calls[{hostile}].p95", 1, 2, 3, max=2, max_task=hostile),
        stale=(hostile,), missing=(hostile,), problems=(Problem("s", hostile, "stale", "support", hostile),),
        top=(TaskDelta(hostile, (1,), (2,), (1,), (2,)),), approval_why=hostile,
    )  # fmt: skip
    verdict = Verdict("stale", (bad,), (Problem("s", hostile, "stale"),), BASE, HEAD, next=(hostile,))
    return markdown.render(run(trial("support", hostile, stale=StaleNote(1, "model", (hostile,), 1, 1))), verdict)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_outside_text_stays_inside_its_code_span(hostile: str) -> None:
    """With all code spans taken out, the report on a hostile id equals the one on a harmless id."""

    def skeleton(text: str) -> str:
        return re.sub(r"`[^`\n|]*`|<code>[^<\n|@`]*</code>", "§", text)

    assert skeleton(hostile_case(hostile)) == skeleton(hostile_case("harmless_id"))
    assert "<img" not in hostile_case(hostile)


def test_a_table_row_keeps_its_seven_cells() -> None:
    """A bar in a tool's name does not open another cell."""
    row = next(line for line in hostile_case("a|b").split("\n") if "tool" in line and line.startswith("| "))

    assert row.count("|") == 8
    assert "a&#124;b" in row


def test_a_code_span_shows_the_text_as_it_is() -> None:
    """Plain ids in backticks; what backticks cannot hold as character references."""
    assert markdown.code("invoice-017") == "`invoice-017`"
    assert markdown.code("a`b@c") == "<code>a&#96;b&#64;c</code>"
    assert markdown.code("") == "<code></code>"
    assert markdown.code("a\nb\x1b") == "`a\\nb\\x1b`"


def many(count: int, **options: int) -> str:
    problems = tuple(Problem("s", f"problem {number} " + "x" * 200, "stale") for number in range(count))
    classes = tuple(result(f"c{number}", "stale", metric("fanout.p95", 1, 2, 3)) for number in range(count))
    return markdown.render(run(), Verdict("stale", classes, problems, BASE, HEAD), **options)


def test_long_lists_end_in_a_count() -> None:
    """50 of 120 problems and 50 of 120 rows are shown, the others counted."""
    text = many(120)

    assert "\n- 70 more in fanout-report.json\n" in text
    assert "\n70 more rows in fanout-report.json.\n" in text


@pytest.mark.parametrize("most", [12_000, 14_321, 20_000])
def test_what_is_too_long_loses_the_end_of_its_details_never_the_verdict(most: int) -> None:
    """Cut to size in whole lines, sections closed, the footer kept, and the cut is said."""
    text = many(120, most_bytes=most)

    assert len(text.encode()) <= most < len(many(120).encode())
    assert text.startswith("<!-- pytest-fanout -->\n### ⚠️ fanout not measured (stale)")
    assert "The rest is in fanout-report.json." in text
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("</sub>\n")


def test_even_the_largest_report_fits_a_step_summary() -> None:
    """A thousand classes with ids of a megabyte stay under 900 KiB."""
    huge = "é|" * 500_000
    classes = tuple(
        result(f"c{n}", "stale", metric(f"{huge}{n}", 1, 2, 3), stale=(huge,), missing=(huge,)) for n in range(60)
    )
    problems = tuple(Problem(f"s{n}", huge, "stale", task=huge) for n in range(60))
    text = markdown.render(run(), Verdict("stale", classes, problems, BASE, HEAD, next=(huge,)))

    assert len(text.encode()) <= 900 * 1024
