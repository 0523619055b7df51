"""`--redacted` shows shapes only: no word that was said, in any report, whatever place it stood in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from made_agents import Made, result, side, tool
from report_cases import cases

from pytest_fanout.explain.examples import example, typical
from pytest_fanout.explain.explain import explain
from pytest_fanout.explain.redaction import redacted
from pytest_fanout.records import Explanation, Past
from pytest_fanout.report import markdown, terminal
from pytest_fanout.report.comment import comment
from pytest_fanout.report.json import document
from pytest_fanout.report.page.render import render
from pytest_fanout.report.why import all_lines, task_lines

#: Where a word may stand -> that word, on each side.
PLACES = (
    "system", "new system", "question", "worked example", "description", "schema", "argument", "tool result", "answer",
    "rejection", "setting", "stop", "user",
)  # fmt: skip


def said(place: str, number: int) -> str:
    """A word that nobody else uses."""
    return f"qx{PLACES.index(place)}zw{'ab'[number]}vk"


def agent(number: int) -> Callable[[Made], None]:
    """Everything that it says differs on the two sides; the second one does more."""

    def word(place: str) -> str:
        return said(place, number)

    def made_by(made: Made) -> None:
        offered = [tool("search", f"Finds {word('description')}.")]
        offered[0]["function"]["parameters"]["properties"][word("schema")] = {"type": "string"}
        settings = {"stop": [word("stop")], "user": word("user"), "metadata": {"plan": word("setting")}}
        turns: list[object] = [f"{word('question')} of {made.task}"]
        asked = made.call(f"You look up {word('system')}.", turns, "", tools=offered, uses=["search"], **settings)  # type: ignore[arg-type]
        asked["tool_calls"][0]["function"]["arguments"] = json.dumps({"q": word("argument")})
        turns += [asked, result(asked, word("tool result") * (1 + number))]
        answer = made.call(f"You look up {word('system')}.", turns, word("answer"), tools=offered, **settings)  # type: ignore[arg-type]
        for _ in range(number):
            turns += [answer, f"That is not valid: {word('rejection')}. Try again."]
            made.call(f"You look up {word('system')}.", turns, word("answer"), tools=offered, **settings)  # type: ignore[arg-type]
            shown = {"role": "assistant", "content": word("worked example")}
            made.call(f"You judge {word('new system')}.", ["a case", shown, "another"], word("answer"))

    return made_by


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    """The explanation with an example, as `why` makes it."""
    base, run = side(agent(0)), side(agent(1))
    found = explain("research", base, run)
    assert found is not None
    requests = []
    for number in (0, 1):
        made = Made("a")
        agent(number)(made)
        requests.append([exchange.request for exchange in made.exchanges])
    keys = tuple(each["a", 1] for each in found.keys)
    shown = example(
        typical(base.trials, "a"),
        typical(run.trials, "a"),
        (keys[0], keys[1]),
        found.labels,
        (requests[0], requests[1]),
    )
    return replace(found.explanation, examples=(shown,))


def every_text(explanation: Explanation, *, is_redacted: bool) -> dict[str, str]:
    """All that can tell an explanation."""
    run, verdict = cases()["regressed"]
    told = replace(verdict, explanations=(explanation,))
    return {
        "why": "\n".join(all_lines(explanation, redacted=is_redacted)),
        "why --task": "\n".join(task_lines(explanation, "a", redacted=is_redacted)),
        "markdown": markdown.explained(explanation, all_lines, redacted=is_redacted),
        "json": json.dumps(document(run, told)),
        "terminal": terminal.render(run, told, width=200),
        "summary": markdown.render(run, told),
        "comment": comment(run, told),
        "page": render(run, told, Past({}, ())),
    }


def test_no_word_that_was_said_is_left(explanation: Explanation) -> None:
    """Prompts, questions, examples, definitions, arguments, results, answers, values of settings: not one of them."""
    words = [said(place, number) for place in PLACES for number in (0, 1)]
    plain = every_text(explanation, is_redacted=False)
    texts = every_text(redacted(explanation), is_redacted=True)

    assert said("system", 1) in plain["why"]  # what is looked for would be found
    assert said("system", 1) in plain["page"]
    assert {(name, word) for name, text in texts.items() for word in words if word in text} == set()


def test_shapes_names_and_numbers_are_left(explanation: Explanation) -> None:
    """Findings with their shares, parts, sites by key, tools by name."""
    text = "\n".join(all_lines(redacted(explanation), redacted=True))

    assert "system prompt changed" in text
    assert "tools: schema changed search" in text
    assert "rejects answers and asks again" in text
    assert [part.value for part in redacted(explanation).parts] == [part.value for part in explanation.parts]
