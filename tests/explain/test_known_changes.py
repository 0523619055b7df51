"""Agents with one known change, or two: the explanation names each, with its share. Shares are worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from made_agents import Made, result, side, tool

from pytest_fanout.explain.explain import explain
from pytest_fanout.records import Explanation, Finding

PLAN = "You plan the research. List what to look up, one a line."
WIDE_PLAN = "You plan the research. List six alternatives to look up, one a line, and compare them."
READ = "You read one source and note what it says on the question."
CRITIC = "You are a critic. Say what is missing in the notes."
QUESTIONS = {"a": "why is the sea salty", "b": "who built the pyramids", "c": "how do bees talk", "d": "what is ice"}


def explained(base: Callable[[Made], None], run: Callable[[Made], None], **fields: object) -> Explanation:
    matched = explain("research", side(base), side(run), **fields)  # type: ignore[arg-type]
    assert matched is not None
    return matched.explanation


def share(finding: Finding, metric: str, scope: str = "mean") -> float:
    return float(next(s.share or 0 for s in finding.shares if (s.metric, s.scope) == (metric, scope)))


def labels(explanation: Explanation, finding: Finding) -> list[str]:
    return [site.label for site in explanation.sites if site.key in finding.sites]


def observed(explanation: Explanation, metric: str) -> dict[str, float]:
    """Kind -> share of everything that carries more than 5 % of a metric's mean."""
    found = {
        finding.kind: share(finding, metric)
        for finding in explanation.findings
        if any((s.metric, s.scope) == (metric, "mean") for s in finding.shares)
    }
    return {kind: round(value, 3) for kind, value in found.items() if abs(value) > 0.05}


def planner(
    prompt: str = PLAN,
    reads: int = 2,
    *,
    model: str = "m-1",
    critic: bool = False,
    history: int = 0,
    repeats: int = 0,
    rejected: int = 0,
    cached: int = 0,
    text: str = "A note of the usual length.",
    reasoning: int = 0,
    **settings: object,
) -> Callable[[Made], None]:
    """Plans once, reads so many sources, and may do one thing more."""

    def agent(made: Made) -> None:
        question = QUESTIONS[made.task]
        made.call(prompt, [question], "one\ntwo", cached=cached, model=model, **settings)
        for number in range(reads):
            source = f"source {number} on {question}" + " as said before" * history
            turns: list[object] = [source]
            answer = made.call(READ, turns, text, model=model, cached=cached, reasoning=reasoning, **settings)
            for _ in range(rejected if number == 0 else 0):
                turns += [answer, "That is not valid JSON. Try again."]
                answer = made.call(READ, turns, text, model=model, cached=cached, **settings)
            for _ in range(repeats if number == 0 else 0):
                made.call(READ, turns, text, model=model, cached=cached, **settings)
        if critic:
            made.call(CRITIC, ["these are the notes"], "nothing is missing")

    return agent


def searcher(
    *tools: str, searches: int = 2, deep: int = 0, keep: bool = True, prompt: str = "You search and answer."
) -> Callable[[Made], None]:
    """One conversation with tools: so many searches, then so many by the tool ``deep``."""

    def agent(made: Made) -> None:
        turns: list[object] = [QUESTIONS[made.task]]
        offered = [tool(name) for name in tools]
        for name in ["search"] * searches + ["deep"] * deep:
            said = made.call(prompt, turns, "looking", tools=offered, uses=[name])
            turns = [*turns, said, result(said, "a page of text" if keep else "a page of text " * 8)]
        made.call(prompt, turns, "the answer", tools=offered)

    return agent


def test_a_reworded_prompt_that_leads_to_more_calls() -> None:
    """The planner's prompt asks for six: four more reads a task, all of the growth of calls, and named as the cause."""
    explanation = explained(planner(), planner(WIDE_PLAN, reads=6))

    assert explanation.totals[0].delta == 4
    assert observed(explanation, "fanout") == {"prompt": 1.0}
    assert explanation.findings[0].label == "observed"
    assert explanation.findings[0].detail == (f"-{PLAN}", f"+{WIDE_PLAN}")
    assert [site.state for site in explanation.sites] == ["changed", "same"]


def test_a_tool_that_was_added_and_is_used() -> None:
    """Two calls a task carry results of the new tool: they are the tool's, 2 of 2; so are its tokens."""
    explanation = explained(searcher("search"), searcher("search", "deep", deep=2))

    assert observed(explanation, "fanout") == {"tools": 1.0}
    assert observed(explanation, "tokens") == {"tools": 1.0}
    assert explanation.findings[0].text == "tools: added deep"


def test_another_model() -> None:
    """The model is another one at both sites, told once, and its longer answers are its own."""
    explanation = explained(planner(), planner(model="m-2", text="A note that is twice as long as it was. " * 2))

    assert observed(explanation, "tokens") == {"model": 1.0}
    (finding,) = explanation.findings
    assert finding.text == "model: m-1 -> m-2"
    assert labels(explanation, finding) == [PLAN, READ]


def test_another_model_under_the_same_name() -> None:
    """What answers as m-1 is another model than before, and its longer answers are its own."""
    long = "A note that is twice as long as it was. " * 2
    explanation = explained(planner(served="m-1-may"), planner(served="m-1-june", text=long))

    assert observed(explanation, "tokens") == {"model": 1.0}
    (finding,) = explanation.findings
    assert (finding.label, finding.text) == ("observed", "model served as m-1: m-1-may -> m-1-june")
    assert labels(explanation, finding) == [PLAN, READ]


def test_a_model_that_still_answers_is_not_told_as_swapped() -> None:
    """Where the old one serves some calls of both sides, it may be chance which of the two answers."""

    def either(made: Made) -> None:
        planner(served="m-1-may" if made.task in "ab" else "m-1-june")(made)

    explanation = explained(planner(served="m-1-may"), either)

    assert [finding.text for finding in explanation.findings if finding.kind == "model"] == []


def test_versions_are_told_and_never_blamed() -> None:
    """Those of SDK and plugin, where both sides name theirs: also changed, with no share."""
    sides = [
        side(planner(sdk="OpenAI/Python 2.8.0"), version="0.1.0"),
        side(planner(sdk="OpenAI/Python 2.9.1", reads=4), version="0.2.0"),
    ]
    matched = explain("research", *sides)
    unknown = explain("research", side(planner()), sides[1])
    assert matched is not None
    assert unknown is not None

    found = [finding for finding in matched.explanation.findings if finding.kind in ("sdk", "plugin")]
    assert [(finding.label, finding.text, finding.shares) for finding in found] == [
        ("also changed", "pytest-fanout: 0.1.0 -> 0.2.0", ()),
        ("also changed", "SDK: OpenAI/Python 2.8.0 -> OpenAI/Python 2.9.1", ()),
    ]
    assert not {finding.kind for finding in unknown.explanation.findings} & {"sdk", "plugin"}


def test_a_setting_that_makes_answers_dearer() -> None:
    """Reasoning effort went up: what is thought more is the setting's."""
    base, run = planner(reasoning_effort="low"), planner(reasoning=500, reasoning_effort="high")

    explanation = explained(base, run)

    assert observed(explanation, "tokens") == {"settings": 1.0}
    assert 'reasoning_effort: "low" -> "high"' in explanation.findings[0].text


def test_context_that_grows() -> None:
    """The code puts more into each read. Nothing that is sent explains it, so it is told as what it is."""
    explanation = explained(planner(), planner(history=20))

    assert observed(explanation, "fanout") == {}
    assert observed(explanation, "tokens") == {"asked": 1.0}
    assert explanation.findings[0].text == "more input in each call"
    assert labels(explanation, explanation.findings[0]) == [READ]


def test_calls_that_are_made_again() -> None:
    """Three identical calls a task more, and nothing else."""
    explanation = explained(planner(), planner(repeats=3))

    assert observed(explanation, "fanout") == {"repeated": 1.0}
    assert observed(explanation, "tokens") == {"repeated": 1.0}


def test_answers_that_are_rejected() -> None:
    """Two answers a task are sent back with the words that they are no JSON."""
    explanation = explained(planner(), planner(rejected=2))

    assert observed(explanation, "fanout") == {"reasked": 1.0}
    assert observed(explanation, "tokens") == {"reasked": 1.0}


def test_a_sub_agent_that_was_added() -> None:
    """One call a task at a site that the base does not have: one of one call more."""
    explanation = explained(planner(), planner(critic=True))

    assert observed(explanation, "fanout") == {"new": 1.0}
    assert explanation.findings[0].detail == (f"+{CRITIC}",)
    assert [site.state for site in explanation.sites] == ["same", "same", "new"]


def test_a_cache_that_is_no_longer_hit() -> None:
    """Tokens are the same; of them 40 in each of three calls are no longer served by the cache."""
    explanation = explained(planner(cached=40), planner(cached=0))

    totals = {(total.metric, total.scope): total.delta for total in explanation.totals}
    assert (totals["tokens", "mean"], totals["uncached_tokens", "mean"]) == (0, 120)
    lost = [
        (labels(explanation, finding), finding.text, finding.shares[0].value, finding.shares[0].share)
        for finding in explanation.findings
    ]
    assert lost == [
        ([READ], "cache hits lost", 80, Fraction(2, 3)),
        ([PLAN], "cache hits lost", 40, Fraction(1, 3)),
    ]


PAIRS = {
    "prompt and sub-agent: 4 and 1 of 5 calls": (
        planner(), planner(WIDE_PLAN, reads=6, critic=True), {"prompt": 0.8, "new": 0.2},
    ),
    "prompt and repeats: 4 and 1 of 5 calls": (
        planner(), planner(WIDE_PLAN, reads=6, repeats=1), {"prompt": 0.8, "repeated": 0.2},
    ),
    "rejected answers and sub-agent: 3 and 1 of 4 calls": (
        planner(), planner(rejected=3, critic=True), {"reasked": 0.75, "new": 0.25},
    ),
    "tool added and prompt changed at one site: its 3 calls, and 1 more search": (
        searcher("search"),
        searcher("search", "deep", searches=3, deep=3, prompt="You search and answer well."),
        # the search more goes to both evenly: 3.5 and 0.5 of 4
        {"tools": 0.875, "prompt": 0.125},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("base", "run", "expected"), PAIRS.values(), ids=PAIRS)
def test_two_changes(base: Callable[[Made], None], run: Callable[[Made], None], expected: dict[str, float]) -> None:
    """Both are named, each with its own share, and nothing else above 5 %."""
    explanation = explained(base, run)

    found = observed(explanation, "fanout")
    assert found == pytest.approx(expected, abs=0.02)
    assert all(f.label == "observed" for f in explanation.findings if f.kind in expected)


def test_nothing_changed() -> None:
    """The same calls on both sides: nothing is found, and every delta is 0."""
    explanation = explained(planner(), planner())

    assert explanation.findings == ()
    assert {total.delta for total in explanation.totals} == {0}
