"""The same agent by the SDKs of OpenAI and Anthropic, streaming or not: the same call sites, learned and matched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from model_server import ModelServer

from pytest_fanout.explain.explain import Side, explain
from pytest_fanout.explain.learning import learn
from pytest_fanout.explain.visits import visited_trial
from pytest_fanout.meter.samples import turns_of

sys.path.append(str(Path(__file__).parents[1] / "meter"))
from metering import metering, run_task

PLAN = "You plan for {name} what there is to look up, one a line."
READ = "You read one source and note what it says."
NAMES = {"a": "Ada Lovelace", "b": "Blaise Pascal", "c": "Carl Gauss"}

#: One call: base URL, system prompt and question.
Ask = Callable[[str, str, str], None]


def chat(url: str, system: str, question: str) -> None:
    import openai

    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]


def chat_streamed(url: str, system: str, question: str) -> None:
    import openai

    messages = [{"role": "developer", "content": system}, {"role": "user", "content": question}]
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        list(
            client.chat.completions.create(
                model="m",
                messages=messages,  # type: ignore[arg-type]
                stream=True,
                stream_options={"include_usage": True},
            )
        )


def responses(url: str, system: str, question: str) -> None:
    import openai

    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        client.responses.create(model="m", instructions=system, input=question)


def responses_streamed(url: str, system: str, question: str) -> None:
    import openai

    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        list(client.responses.create(model="m", instructions=system, input=question, stream=True))


def messages(url: str, system: str, question: str) -> None:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k") as client:
        client.messages.create(
            model="m", max_tokens=90, system=system, messages=[{"role": "user", "content": question}]
        )


def messages_streamed(url: str, system: str, question: str) -> None:
    import anthropic

    with (
        anthropic.Anthropic(base_url=url, api_key="k") as client,
        client.messages.stream(
            model="m",
            max_tokens=90,
            system=[{"type": "text", "text": system}],
            messages=[{"role": "user", "content": question}],
        ) as stream,
    ):
        stream.until_done()


SDKS: Mapping[str, Ask] = {
    "chat": chat, "chat, streamed": chat_streamed, "responses": responses, "responses, streamed": responses_streamed,
    "messages": messages, "messages, streamed": messages_streamed,
}  # fmt: skip


@pytest.fixture(scope="module")
def sides() -> dict[str, Side]:
    """One plan and two reads a task, three tasks, by each SDK."""
    found = {}
    with ModelServer() as server, metering() as meter:
        for name, ask in SDKS.items():
            samples, visited = {}, []
            for task, person in NAMES.items():

                def agent(ask: Ask = ask, task: str = task, person: str = person) -> None:
                    ask(server.base_url, PLAN.format(name=person), f"question {task}")
                    for number in range(2):
                        ask(server.base_url, READ, f"source {number} of {task}")

                done = run_task(meter, agent, task=task)
                assert done.error is None
                samples[task] = [done.measured.samples]
                visited.append(visited_trial(task, 1, turns_of(done.trace.exchanges)))
            found[name] = Side(samples, visited, dict.fromkeys(NAMES))
    return found


@pytest.mark.parametrize("name", SDKS)
def test_every_sdk_gives_the_same_sites(sides: dict[str, Side], name: str) -> None:
    """Two sites, the planner's with a gap where the person's name stood, visited in the same calls of each task."""
    told = [(site.prompt, site.tools, site.has_system, site.visits) for site in learn(sides[name].trials)]

    assert told == [
        (PLAN.format(name="…"), (), True, [(task, 0) for task in range(3)]),
        (READ, (), True, [(task, number) for task in range(3) for number in (1, 2)]),
    ]


@pytest.mark.parametrize(("base", "run"), [(one, other) for one in SDKS for other in SDKS if one != other])
def test_from_one_sdk_to_another_no_site_is_lost(sides: dict[str, Side], base: str, run: str) -> None:
    """Each keeps its predecessor, and no call is put down to a new site; streaming changes no site at all."""
    found = explain("a", sides[base], sides[run])
    assert found is not None
    explanation = found.explanation
    is_same_api = base.partition(",")[0] == run.partition(",")[0]

    assert [site.label for site in explanation.sites] == [
        PLAN.format(name="…"), READ,
    ]  # fmt: skip
    assert {site.state for site in explanation.sites} == ({"same"} if is_same_api else {"changed"})
    assert {finding.kind for finding in explanation.findings} & {"new", "gone", "prompt", "tools"} == set()
    assert {total.delta for total in explanation.totals if total.metric == "fanout"} == {0}
