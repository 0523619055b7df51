"""How much of an explanation each report shows, and in which words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from report_cases import cases

from pytest_fanout.explain.redaction import redacted
from pytest_fanout.records import ClassTotal, ExplainedSite, Explanation, Finding, Run, Share, Verdict
from pytest_fanout.report import markdown, terminal
from pytest_fanout.report.why import figure, finding_text, headline, percent, short_lines

ZERO = Fraction(0)
SITE = ExplainedSite(
    "00aa", "You plan `it`", "changed", "openai.chat", ("m",), ("m",), Fraction(1), Fraction(1), None, None
)


def finding(kind: str, calls: int, label: str = "observed", text: str = "", **fields: object) -> Finding:
    share = Share("fanout", "mean", Fraction(calls), Fraction(calls, 14))
    return Finding(kind, label, text or f"{kind} changed", ("00aa",), shares=(share,), **fields)  # type: ignore[arg-type]


FINDINGS = (
    finding("prompt", 7, text="system prompt changed", places=("shop/agents.py:12",)),
    finding("new", 3, text="new call site"),
    finding("reasked", 2, text="rejects answers and asks again"),
    finding("repeated", 1, text="repeats identical calls"),
    finding("again", 1, text="makes calls again that it has made before"),
    finding("turn", 1, text="longer conversations"),
    finding("model", 0, "also changed", text="model: m -> n"),
)
WHY = Explanation(
    "research",
    "a rule",
    (ClassTotal("fanout", "mean", Fraction(8), Fraction(22), ("a",)),),
    (),
    (SITE,),
    FINDINGS,
)


def explained() -> tuple[Run, Verdict]:
    run, verdict = cases()["regressed"]
    return run, replace(verdict, explanations=(WHY,))


def test_the_terminal_shows_the_two_largest() -> None:
    """Class with calls and tokens, two findings with share and place, and the command that shows all of it."""
    shown = terminal.render(*explained(), width=110).split("\n")
    at = next(number for number, line in enumerate(shown) if line.startswith("why "))

    assert shown[at : at + 5] == [
        "why       research: 8 -> 22 calls a task",
        '            50 % of the growth in calls: "You plan `it`": system prompt changed (shop/agents.py:12)',
        '            21 % of the growth in calls: "You plan `it`": new call site',
        "            all of it: fanout-baseline why --agent research",
        "capacity  research 12 -> 19 GPUs at peak",
    ]


def test_the_summary_shows_five() -> None:
    """In a section of its own, inert; what only changed beside them is not among them."""
    text = markdown.render(*explained())
    section = text.split("<summary>Why it moved</summary>\n\n")[1].split("\n\n</details>")[0].split("\n")

    assert len(section) == 5
    assert section[0].startswith("- `research` <code>50 &#37; of the growth in calls&#58; ")
    assert "longer conversations" not in "".join(section)


def test_a_class_that_is_explained_lists_its_sites_no_second_time() -> None:
    """The sites of `research` are part of the explanation; those of others would still be told."""
    assert not any(line.startswith("sites ") for line in terminal.render(*explained()).split("\n"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(14), "14"),
        (Fraction(1, 3), "0.33"),
        (Fraction(-5, 2), "-2.5"),
        (Fraction(12345), "12,345"),
        (Fraction(-1, 1000), "0"),
    ],
)
def test_figures_have_at_most_two_decimals(value: Fraction, text: str) -> None:
    """Rounded half up, and never a minus before nothing."""
    assert figure(value) == text


def test_shares_are_whole_percents_or_none() -> None:
    """13.5 of 14 are 96 %; of a delta that is none there is no share."""
    assert (percent(Fraction(27, 28)), percent(None)) == ("96 %", "no share")


def test_a_finding_whose_share_is_split_says_with_what() -> None:
    """Two changes at one site that nothing tells apart."""
    text = finding_text(WHY, finding("prompt", 7, text="system prompt changed", beside=("tools",)))

    assert text == '50 % of the growth in calls: "You plan `it`": system prompt changed, together with: tools'


def test_what_only_changed_is_no_short_line() -> None:
    """Seven findings, six of them observed."""
    assert len(short_lines(WHY, 99)) == 6
    assert headline(WHY) == "research: 8 -> 22 calls a task"


def test_redacted_settings_keep_their_name() -> None:
    """The value of a setting may be a text; tools and models keep theirs."""
    told = redacted(
        replace(
            WHY,
            findings=(
                finding("settings", 1, text='stop: "secret word" -> "other word"'),
                finding("tools", 1, text="tools: added deep"),
            ),
        )
    )

    assert [one.text for one in told.findings] == ["stop changed", "tools: added deep"]
    assert told.sites[0].label == "site 00aa"


def test_what_went_the_other_way_is_no_short_line() -> None:
    """Fewer retries beside a growth: a finding of the whole text, and no reason for a reviewer to read first."""
    better = finding("retries", -2)
    assert better.label == "observed"
    assert short_lines(replace(WHY, findings=(*WHY.findings, better)), 99) == short_lines(WHY, 99)
