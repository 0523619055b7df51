"""The eight kinds of change that an agent's author makes, alone and in every pair, on one agent with three call sites.

The agent plans once, reads two sources, and searches in a conversation of two calls. A character is a token. Each
change alone is worth, a task: prompt 4 reads; tool 2 calls; model 46 tokens in each read's answer; context 300 tokens
in each read; repeats 2 calls; rejected answers 2 calls; a sub-agent 1 call; the cache 20 tokens in each of 5 calls; and
retries 1 attempt. Sizes: a read has 125 or 124.5 tokens, told below where they matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from made_agents import Made, result, side, tool

from pytest_fanout.explain.explain import explain
from pytest_fanout.records import Explanation

PLAN = "You plan the research. List what to look up, one a line."
WIDE_PLAN = "You plan the research. List six alternatives to look up, one a line, and compare them."
READ = "You read one source and note what it says on the question."
SEARCH = "You search and answer."
CRITIC = "You are a critic. Say what is missing in the notes."
QUESTIONS = {"a": "why is the sea salty", "b": "who built the pyramids", "c": "how do bees talk", "d": "what is ice"}
MORE = " And more of it, twice." * 2

#: Change -> the kind under which it is told.
KINDS = {
    "prompt": "prompt", "tool": "tools", "model": "model", "context": "asked", "repeats": "repeated",
    "rejected": "reasked", "sub-agent": "new", "cache": "cache", "retries": "retries",
}  # fmt: skip
METRICS = ("fanout", "attempts", "tokens", "uncached_tokens")
#: Calls and attempts a task that each change adds.
CALLS = {"prompt": 4, "tool": 2, "repeats": 2, "rejected": 2, "sub-agent": 1}
ATTEMPTS = CALLS | {"retries": 1}


def agent(*on: str) -> Callable[[Made], None]:
    """The agent with these changes."""

    def made_by(made: Made) -> None:
        question = QUESTIONS[made.task]
        cached = 0 if "cache" in on else 20
        model = "m-2" if "model" in on else "m-1"
        note = "A note of the usual length." + (MORE if "model" in on else "")
        made.call(WIDE_PLAN if "prompt" in on else PLAN, [question], "one\ntwo", cached=cached)
        for number in range(6 if "prompt" in on else 2):
            turns: list[object] = [
                f"source {number} on {question}" + (" as said before" * 20 if "context" in on else "")
            ]
            if number == 0 and "retries" in on:
                made.call(READ, turns, status=503, model=model)  # type: ignore[arg-type]
            answer = made.call(READ, turns, note, model=model, cached=cached)  # type: ignore[arg-type]
            for _ in range(2 if number == 0 and "rejected" in on else 0):
                turns = [*turns, answer, "That is not valid JSON. Try again."]
                answer = made.call(READ, turns, note, model=model, cached=cached)  # type: ignore[arg-type]
            for _ in range(2 if number == 0 and "repeats" in on else 0):
                made.call(READ, turns, note, model=model, cached=cached)  # type: ignore[arg-type]
        offered = [tool(name) for name in (("search", "deep") if "tool" in on else ("search",))]
        turns = [question]
        for name in ["search", *(["deep"] * 2 if "tool" in on else [])]:
            said = made.call(SEARCH, turns, "looking", tools=offered, uses=[name], cached=cached)  # type: ignore[arg-type]
            turns = [*turns, said, result(said, "a page of text")]
        made.call(SEARCH, turns, "the answer", tools=offered, cached=cached)  # type: ignore[arg-type]
        if "sub-agent" in on:
            made.call(CRITIC, ["these are the notes"], "nothing is missing", cached=cached)

    return made_by


def explained(*on: str) -> Explanation:
    found = explain("research", side(agent()), side(agent(*on)))
    assert found is not None
    return found.explanation


def shares(explanation: Explanation, metric: str, scope: str = "mean") -> dict[str, float]:
    """Kind -> what it carries of the growth, of all that is told."""
    found: dict[str, float] = {}
    for finding in explanation.findings:
        for share in finding.shares:
            if (share.metric, share.scope) == (metric, scope) and share.share is not None:
                found[finding.kind] = found.get(finding.kind, 0.0) + float(share.share)
                assert finding.label == "observed"
    return found


def expected(worth: dict[str, int], *on: str) -> dict[str, float]:
    """By hand: each change's own worth of the sum."""
    whole = sum(worth.get(change, 0) for change in on)
    return {KINDS[change]: worth[change] / whole for change in on if change in worth}


@pytest.mark.parametrize("scope", ["mean", "p95"])
@pytest.mark.parametrize("change", KINDS)
def test_one_change_carries_all_and_nothing_else_is_told(change: str, scope: str) -> None:
    """Of every metric that moved, calls, attempts, tokens and tokens that no cache served, in both scopes."""
    explanation = explained(change)
    moved = {total.metric for total in explanation.totals if total.scope == scope and total.delta}

    assert moved
    for metric in moved:
        assert shares(explanation, metric, scope) == {KINDS[change]: pytest.approx(1)}
    assert {finding.kind for finding in explanation.findings} == {KINDS[change]}


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(KINDS, 2)])
def test_two_changes_share_calls_and_attempts_by_what_each_adds(one: str, other: str) -> None:
    """Within 2 %, nothing else above 5 %, and both are told as observed in some metric."""
    explanation = explained(one, other)

    assert shares(explanation, "fanout") == pytest.approx(expected(CALLS, one, other), abs=0.02)
    if not (one == "prompt" and other == "retries"):  # worked below: a mean of both sides
        assert shares(explanation, "attempts") == pytest.approx(expected(ATTEMPTS, one, other), abs=0.02)
    told = {kind for metric in METRICS for kind, share in shares(explanation, metric).items() if share > 0.05}
    assert told == {KINDS[one], KINDS[other]}


def test_tokens_of_two_changes_by_hand() -> None:
    """A context of 300 tokens and an answer of 46 more in each of 2 reads: 600 and 92 of 692. A sub-agent's call of 51
    + 19 + 18 = 88 beside either: 88 of 688, and of 180. Lost hits, 20 in each of 5 calls, beside a longer answer: 100
    of 192. Their calls are as many on both sides, so that nothing is shared."""
    assert shares(explained("model", "context"), "tokens") == pytest.approx({"model": 92 / 692, "asked": 600 / 692})
    assert shares(explained("context", "sub-agent"), "tokens") == pytest.approx({"asked": 600 / 688, "new": 88 / 688})
    assert shares(explained("model", "sub-agent"), "tokens") == pytest.approx({"model": 92 / 180, "new": 88 / 180})
    lost = shares(explained("model", "cache"), "uncached_tokens")
    assert lost == pytest.approx({"model": 92 / 192, "cache": 100 / 192})


def test_what_both_make_together_is_halved() -> None:
    """Six reads with one retry instead of two with none: attempts grow by 5. By the rule the reads get
    4 x (1 + 7/6) / 2 = 4.33, the retries (2 + 6) / 2 x 1/6 = 0.67. Six reads with 300 tokens more instead of two: the
    context gets (2 + 6) / 2 x 300 = 1,200, the rest is that of the prompt."""
    assert shares(explained("prompt", "retries"), "attempts") == pytest.approx({"prompt": 13 / 15, "retries": 2 / 15})
    together = explained("prompt", "context")
    (grown,) = [one.delta for one in together.totals if (one.metric, one.scope) == ("tokens", "mean")]
    assert shares(together, "tokens") == pytest.approx(
        {"prompt": float(1 - 1200 / grown), "asked": float(1200 / grown)}
    )


def test_what_is_small_at_each_site_is_told_together() -> None:
    """The cache is off at three sites, below 5 % of the growth at each, above it in all."""
    explanation = explained("tool", "cache")
    (finding,) = [one for one in explanation.findings if one.kind == "cache"]

    assert len(finding.sites) == 3
    assert shares(explanation, "uncached_tokens")["cache"] > 0.05
    assert finding.label == "observed"


@pytest.mark.parametrize(
    ("plan", "more", "told"),
    [
        (0, 300, {"prompt": 0, "asked": 600 / 600}),
        (100, 0, {"prompt": 300 / 300}),
        (100, 300, {"prompt": 300 / 900, "asked": 600 / 900}),
    ],
    ids=["by the code", "by the plan", "by both"],
)
def test_input_goes_to_a_change_before_it_as_far_as_that_one_says_more(
    plan: int, more: int, told: dict[str, float]
) -> None:
    """A reworded planner, as long as before, whose two readers carry its plan: a plan of 100 tokens more makes 100 in
    its answer and 200 in what they are sent; 300 tokens that the code puts into each of them stay their own."""

    def reader(prompt: str, plan: int, more: int) -> Callable[[Made], None]:
        def made_by(made: Made) -> None:
            made.call(prompt, [QUESTIONS[made.task]], "p" * (10 + plan))
            for number in range(2):
                made.call(READ, [f"{number} " + "p" * (10 + plan) + "c" * more], "a note")

        return made_by

    found = explain("a", side(reader("You plan it all.", 0, 0)), side(reader("You plan it now.", plan, more)))
    assert found is not None

    wanted = {kind: share for kind, share in told.items() if share}
    assert shares(found.explanation, "tokens") == pytest.approx(wanted)
