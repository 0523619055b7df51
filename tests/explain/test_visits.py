"""What each call of a trial is: a conversation begun or gone on with, a repeat, a rejected answer."""

from __future__ import annotations

import json

import pytest
from made_agents import JSON, Made, result, side, tool

from pytest_fanout.explain.visits import visited_trial
from pytest_fanout.meter.samples import turns_of
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest, Visit


def visits(made: Made) -> tuple[Visit, ...]:
    return visited_trial(made.task, 1, turns_of(made.exchanges)).visits


def test_a_tool_loop_is_one_conversation() -> None:
    """The first call begins it, the others go on with it and carry the results of the tools that were asked for."""
    made = Made("a")
    first = made.call("S", ["q"], "let me look", tools=[tool("search")], uses=["search"])
    turns = ["q", first, result(first, "found")]
    second = made.call("S", turns, "again", tools=[tool("search")], uses=["search", "fetch"])
    made.call("S", [*turns, second, result(second, "x"), result(second, "y", 1)], tools=[tool("search")])

    assert [(v.kind, v.follows, v.after) for v in visits(made)] == [
        ("begun", None, ()),
        ("turn", 0, ("search",)),
        ("turn", 1, ("fetch", "search")),
    ]


def test_a_context_that_is_cut_at_its_start_is_still_the_same_conversation() -> None:
    """The question is left out, the answer that is sent back tells whose conversation it is."""
    made = Made("a")
    answer = made.call("S", ["q"], "an answer that is long enough to be told")
    made.call("S", [answer, "and then?"])

    assert [(v.kind, v.follows) for v in visits(made)] == [("begun", None), ("turn", 0)]


def test_a_worked_example_is_no_conversation() -> None:
    """An assistant's turn that no call of the trial has said does not make a call go on with another one."""
    made = Made("a")
    shown = {"role": "assistant", "content": "yes"}
    made.call("S", ["is it so?", shown, "first"], "yes")
    made.call("S", ["is it so?", shown, "second"], "yes")

    assert [v.kind for v in visits(made)] == ["begun", "begun"]


@pytest.mark.parametrize(
    ("added", "kind"),
    [
        ("That is not a list. Write a numbered list.", "reasked"),
        ("1 validation error for Plan: field required. Try again.", "reasked"),
        ("Thank you. And what about salt?", "turn"),
    ],
)
def test_an_answer_that_is_rejected(added: str, kind: str) -> None:
    """It is sent back with words that say so; any other question is a turn of the conversation."""
    made = Made("a")
    answer = made.call("S", ["q"], "an answer")
    made.call("S", ["q", answer, added])

    assert visits(made)[1].kind == kind


def test_the_same_request_again_is_a_repeat() -> None:
    """The same URL and body: directly after its twin, or with other calls between them."""
    made = Made("a")
    made.call("S", ["q"])
    made.call("S", ["q"])
    made.call("S", ["other"])
    made.call("S", ["q"])

    assert [v.kind for v in visits(made)] == ["begun", "repeated", "begun", "again"]


def test_retries_are_attempts_of_one_call() -> None:
    """A call that is answered 503 and then 200 is one visit of two attempts; one that never was is none."""
    made = Made("a")
    made.call("S", ["q"], status=503)
    made.call("S", ["q"])
    made.call("S", ["never"], status=400)
    trial = visited_trial("a", 1, turns_of(made.exchanges))

    assert [(v.kind, v.attempts, v.retry_tokens) for v in trial.visits] == [("begun", 2, 0)]
    assert trial.refused_attempts == 1


def test_calls_of_a_grader_are_not_the_agents() -> None:
    """Another bucket is left out."""
    made = Made("a")
    made.call("S", ["q"])
    (exchange,) = made.exchanges
    aside = Exchange(1, "httpx", "model", "judge", exchange.request, exchange.answer, 200)

    assert len(visited_trial("a", 1, turns_of([exchange, aside])).visits) == 1


def test_anthropic_in_a_stream_is_read_alike() -> None:
    """System prompt, tools, results of tools and usage of a streamed answer stand where those of OpenAI do."""
    url = "https://api.anthropic.com/v1/messages"
    used = {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "salt"}}
    asked = {
        "model": "claude",
        "max_tokens": 50,
        "temperature": 0.5,
        "system": [{"type": "text", "text": "You search."}],
        "tools": [{"name": "search", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "q"}],
    }
    back = [
        *asked["messages"],  # type: ignore[misc]
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found it"}]},
    ]

    def stream(block: dict[str, object], delta: dict[str, object]) -> bytes:
        usage = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
        events = [
            {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()

    answers = [
        stream({**used, "input": {}}, {"type": "input_json_delta", "partial_json": '{"q": "salt"}'}),
        stream({"type": "text", "text": ""}, {"type": "text_delta", "text": "it is"}),
    ]
    exchanges = [
        Exchange(
            at,
            "httpx",
            "model",
            "agent",
            HttpRequest("POST", url, JSON, json.dumps({**asked, "messages": messages, "stream": True}).encode()),
            HttpAnswer(200, (("content-type", "text/event-stream"),), (answers[at],), (1,), 2),
            at * 10,
        )
        for at, messages in enumerate((asked["messages"], back))
    ]

    first, second = visited_trial("a", 1, turns_of(exchanges)).visits

    assert (first.system, first.settings) == ("You search.", (("max_tokens", "50"), ("temperature", "0.5")))
    assert [name for name, _ in first.tools] == ["search"]
    assert (first.input_tokens, first.cached_input_tokens, first.output_tokens) == (10, 3, 5)
    assert (second.kind, second.after, second.follows) == ("turn", ("search",), 0)
    assert [role for role, _ in second.turns] == ["user", "assistant", "result"]


def test_an_answer_that_is_rejected_after_tools_were_used() -> None:
    """The results are sent again with it: it goes on with the answer, and not with the call that asked for the tool."""

    def agent(made: Made) -> None:
        turns: list[object] = ["how salty is the sea?"]
        offered = [tool("search")]
        asked = made.call("You answer in JSON.", turns, "", tools=offered, uses=["search"])  # type: ignore[arg-type]
        turns += [asked, result(asked, "a page of text")]
        answer = made.call("You answer in JSON.", turns, "very salty indeed, I say", tools=offered)  # type: ignore[arg-type]
        turns += [answer, "That is not valid JSON. Try again."]
        made.call("You answer in JSON.", turns, '{"salt": "3.5 %"}', tools=offered)  # type: ignore[arg-type]

    (trial,) = side(agent, ("a",)).trials

    assert [(visit.kind, visit.follows, visit.after) for visit in trial.visits] == [
        ("begun", None, ()), ("turn", 0, ("search",)), ("reasked", 1, ()),
    ]  # fmt: skip
