"""Call sites are learned across tasks, survive values and rewording, and are matched from base to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from made_agents import Made, side, tool

from pytest_fanout.explain import learning
from pytest_fanout.explain.learning import Site, learn
from pytest_fanout.explain.matching import match
from pytest_fanout.explain.templates import without_values

NAMES = {"a": "Ada Lovelace", "b": "Blaise Pascal", "c": "Carl Gauss", "d": "Dana"}


def calls(*prompts: str, **fields: object) -> Callable[[Made], None]:
    """One call a prompt; what differs by task is written as {name} and {task}."""

    def agent(made: Made) -> None:
        for prompt in prompts:
            filled = prompt.format(name=NAMES[made.task], task=made.task)
            made.call(filled, [f"question {made.task}"], **fields)  # type: ignore[arg-type]

    return agent


def labels(*prompts: str) -> list[str]:
    return [site.prompt for site in learn(side(calls(*prompts)).trials)]


def states(base: Callable[[Made], None], run: Callable[[Made], None]) -> list[tuple[str, str]]:
    """What became of each site: its words on both sides."""
    return [
        (pair.base.label if pair.base else "-", pair.run.label if pair.run else "-")
        for pair in match(learn(side(base).trials), learn(side(run).trials))
    ]


def test_what_differs_by_task_is_no_part_of_a_prompt() -> None:
    """Four tasks with four names are one site, with a gap where the name stood."""
    assert labels("You help the customer {name} with all that concerns order {task} of the shop.") == [
        "You help the customer … with all that concerns order … of the shop."
    ]


def test_two_prompts_that_are_nearly_alike_stay_two_sites() -> None:
    """Each task has both, so that the word they differ in is no value."""
    assert labels("You summarise the document for the user.", "You summarise the email for the user.") == [
        "You summarise the document for the user.",
        "You summarise the email for the user.",
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Today is 2026-11-29.", "Today is …."),
        ("It is 14:05 on Monday, March 3, 2026", "It is … on …, …"),
        ("Run 3f2b8c1e-9d4a-4c55-8a11-0123456789ab", "Run …"),
        ("List at most 6 words", "List at most 6 words"),
    ],
)
def test_dates_and_ids_are_values_and_small_numbers_are_not(text: str, left: str) -> None:
    """A recording of another day has the same prompt; a bound that was raised is a change."""
    assert without_values(text) == left


def test_an_agent_without_system_prompt_is_known_by_how_it_asks() -> None:
    """The words that all its questions begin with name the site."""

    def agent(made: Made) -> None:
        made.call("", [f"Answer in one word, and only with what you know for sure: {NAMES[made.task]}?"])

    (site,) = learn(side(agent).trials)

    assert site.prompt == "Answer in one word, and only with what you know for sure: …"


def test_inputs_that_have_nothing_in_common_are_one_site_without_a_prompt() -> None:
    """Four questions of users, word for word, are no four sites."""

    def agent(made: Made) -> None:
        made.call("", [{"a": "why is it so", "b": "tell me more", "c": "build a wall", "d": "the end"}[made.task]])

    (site,) = learn(side(agent).trials)

    assert (site.prompt, site.label, len(site.visits)) == ("", "(no stable prompt)", 4)


def test_worked_examples_belong_to_the_prompt() -> None:
    """Turns before the question that all tasks share are told the same each time."""

    def agent(made: Made) -> None:
        shown = {"role": "assistant", "content": "1. sea"}
        made.call("List words.", ["why is it salty?", shown, NAMES[made.task]])

    (site,) = learn(side(agent).trials)

    assert site.text == "List words.\nuser: why is it salty?\nassistant: 1. sea"


def test_a_reworded_prompt_is_the_same_site() -> None:
    """It is matched by words, place and tools, and is not one gone and one new."""
    base = calls("You plan the research for a question.", "You read a source.")
    run = calls("You plan the research for a question, and list six alternatives to it.", "You read a source.")

    assert states(base, run) == [
        ("You plan the research for a question.", "You plan the research for a question, and list six"),
        ("You read a source.", "You read a source."),
    ]


def test_a_prompt_that_has_nothing_of_the_old_one_is_new() -> None:
    """Another place in the flow and other words: one is gone, one is new, and the one between stays."""
    base = calls("Translate all of it into French please.", "You read a source.")
    run = calls("You read a source.", "Criticise each claim without mercy.")

    assert states(base, run) == [
        ("You read a source.", "You read a source."),
        ("-", "Criticise each claim without mercy."),
        ("Translate all of it into French please.", "-"),
    ]


def test_a_rewording_beside_a_new_site() -> None:
    """The rewording keeps its predecessor; what has none is new."""
    base = calls("You plan the research for a question.", "You read a source.")
    run = calls("You plan all research for the question.", "You read a source.", "You check each claim of the notes.")

    assert states(base, run)[2] == ("-", "You check each claim of the notes.")
    assert states(base, run)[0][0] == "You plan the research for a question."


def test_another_model_is_the_same_site() -> None:
    """The model stands apart: it is a cause, and no other place in the code."""
    assert len(states(calls("You plan."), calls("You plan.", model="m-2"))) == 1


def test_other_tools_are_the_same_site() -> None:
    """A tool that was added changes the site and makes no new one."""
    base, run = calls("You plan.", tools=[tool("a")]), calls("You plan.", tools=[tool("a"), tool("b")])

    assert states(base, run) == [("You plan.", "You plan.")]


def test_a_call_without_tools_is_another_site_than_the_same_prompt_with_them() -> None:
    """The last call of a loop, which may call no tool, stands beside the others."""

    def agent(made: Made) -> None:
        made.call("You plan.", [NAMES[made.task]], tools=[tool("a")])
        made.call("You plan.", [NAMES[made.task]])

    assert [site.tools for site in learn(side(agent).trials)] == [("a",), ()]


def test_order_of_trials_does_not_matter() -> None:
    """The same sites come out of the same trials in any order."""
    trials = side(calls("You help {name} with the order of the day.", "You read.")).trials

    one, other = learn(trials), learn(list(trials)[::-1])

    assert [(site.prompt, site.tools) for site in one] == [(site.prompt, site.tools) for site in other]


def test_a_name_that_the_code_gives_decides() -> None:
    """Two sites of one name are the same however they read; a name that was added makes no new site."""

    def named(name: str | None, prompt: str) -> list[Site]:
        found = learn(side(calls(prompt)).trials)
        return [replace(site, name=name) for site in found]

    plan, other = "You plan the research.", "Entirely different words stand here."

    for base, run in ((named("p", plan), named("p", other)), (named(None, plan), named("p", plan))):
        (pair,) = match(base, run)
        assert pair.base is base[0]
        assert pair.run is run[0]


def test_prompts_without_common_words_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand calls that each begin with another text cost no comparison word by word, and are one site at last.

    A hundred templates are kept; what is like none of them is input.
    """
    compared = []
    monkeypatch.setattr(learning, "alikeness", lambda *texts: compared.append(texts) or 0.0)

    def agent(made: Made) -> None:
        for number in range(250):
            made.call("", [" ".join(f"{made.task}{chr(97 + number // 26)}{chr(97 + number % 26)}{c}" for c in "xyz")])

    (site,) = learn(side(agent).trials)

    assert (site.prompt, len(site.visits), compared) == ("", 1000, [])


def test_more_than_a_hundred_prompts_are_input() -> None:
    """Two hundred system prompts with nothing in common: a hundred sites, and one of all the others."""

    def agent(made: Made) -> None:
        for number in range(200):
            made.call(" ".join(f"{chr(97 + number // 26)}{chr(97 + number % 26)}{c}" for c in "xyz"), ["go on"])

    found = learn(side(agent).trials)

    assert (len(found), len([site for site in found if site.prompt == ""])) == (101, 1)
