"""What call sites are called: each side after its own prompt, and no two sites alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_agents import Made, side, tool

from pytest_fanout.explain.examples import example
from pytest_fanout.explain.explain import Matched, explain

LONG = "You answer the customers of the shop politely and in full, whatever it is that they may ask of you. "
RETURNS = LONG + "Say how returns work."
PRICES = LONG + "Say what the prices are."


def calls(*prompts: str, tools: tuple[str, ...] = ()) -> Callable[[Made], None]:
    """One call a prompt, with those tools at the last of them alone."""

    def agent(made: Made) -> None:
        for number, prompt in enumerate(prompts, 1):
            offered = [tool(one) for one in tools] if number == len(prompts) else []
            made.call(prompt, [f"question {made.task}"], "an answer", tools=offered)

    return agent


def matched(base: Callable[[Made], None], run: Callable[[Made], None]) -> Matched:
    found = explain("a", side(base), side(run))
    assert found is not None
    return found


def labels(base: Callable[[Made], None], run: Callable[[Made], None]) -> list[tuple[str, str]]:
    return [(site.state, site.label) for site in matched(base, run).explanation.sites]


def test_sites_that_begin_alike_are_called_by_what_tells_them_apart() -> None:
    """Both prompts have the same first 60 characters; the labels say where they differ."""
    assert labels(calls(RETURNS), calls(RETURNS, PRICES)) == [
        ("same", "You answer the… Say how returns work."),
        ("new", "You answer the… Say what the prices are."),
    ]


def test_a_site_that_is_gone_and_one_that_is_new_never_sound_the_same() -> None:
    """They begin alike, and are no pair: another task, other tools, another place in the flow."""
    other = LONG + "Translate every word into old Norse. " * 9
    found = labels(calls(PRICES, "Short."), calls("Short.", other, tools=("dictionary",)))

    assert sorted(state for state, _ in found) == ["gone", "new", "same"]
    assert len({label for _, label in found}) == 3


def test_the_same_words_with_other_tools_are_told_apart_by_those() -> None:
    """One prompt, called without tools and with one."""
    assert labels(calls(RETURNS, RETURNS, tools=("search",)), calls(RETURNS, RETURNS, tools=("search",))) == [
        ("same", "You answer the customers of the shop politely and in full, (openai.chat, no tools)"),
        ("same", "You answer the customers of the shop politely and in full, (openai.chat, tools search)"),
    ]


def test_a_label_that_is_its_own_stays_as_it_is() -> None:
    """The first whole words, at most 60 characters of them."""
    assert labels(calls("Plan it."), calls("Plan it.", "Check it.")) == [("same", "Plan it."), ("new", "Check it.")]


@pytest.mark.parametrize(("at", "label"), [(0, "Plan the work."), (1, "Plan all the work.")])
def test_each_side_of_an_example_is_called_after_its_own_prompt(at: int, label: str) -> None:
    """A reworded prompt: the base's call stands there with the base's words."""
    base, run = side(calls("Plan the work.")), side(calls("Plan all the work."))
    found = explain("a", base, run)
    assert found is not None
    trials = base.trials[0], run.trials[0]
    keys = tuple(each["a", 1] for each in found.keys)
    made = Made("a")
    calls("Plan the work.")(made)
    requests = [made.exchanges[0].request]

    shown = example(*trials, (keys[0], keys[1]), found.labels, (requests, requests))

    assert [site.state for site in found.explanation.sites] == ["changed"]
    assert (shown.base, shown.run)[at][0].label == label
