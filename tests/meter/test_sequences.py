"""Sequences that no single answer can show: retries, hops, polls, counts, cuts and pauses, from exchanges alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fanout.meter import Measured, measure_trial
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest

CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:generateContent"
INTERACTIONS = "https://generativelanguage.googleapis.com/v1beta/interactions"


def sent(
    seq: int,
    start: int,
    end: int,
    url: str,
    asked: Any = None,
    answer: Any = None,
    *,
    status: int = 200,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    outcome: str = "complete",
) -> Exchange:
    """One exchange from ``start`` to ``end`` ms. ``answer``: a document, or the bytes of a stream."""
    streamed = isinstance(answer, bytes)
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    kind = {"content-type": "text/event-stream" if streamed else "application/json", **(headers or {})}
    request = HttpRequest(method, url, (), json.dumps(asked).encode() if asked is not None else b"")
    heard = HttpAnswer(status, tuple(kind.items()), (body,), (0,), end - start, outcome)
    return Exchange(seq, "httpx2", "model", "agent", request, heard, start)


def measured(*exchanges: Exchange) -> Measured:
    return measure_trial(exchanges, 1000)


def told(got: Measured, *names: str) -> list[tuple[Any, ...]]:
    """The named facts of each call's last attempt."""
    return [tuple(getattr(call.last, name) for name in names) for call in got.calls]


@pytest.mark.parametrize(
    ("url", "status", "good"),
    [
        (CHAT, 429, {"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}],
                     "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}),
        (MESSAGES, 529, {"type": "message", "content": [], "stop_reason": "end_turn",
                         "usage": {"input_tokens": 9, "output_tokens": 2}}),
        (GEMINI, 503, {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}],
                       "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}}),
        ("http://localhost:11434/api/chat", 429, {"message": {"content": "a"}, "done": True, "done_reason": "stop",
                                                  "prompt_eval_count": 9, "eval_count": 2}),
    ],
)  # fmt: skip
def test_a_rejected_request_and_its_retry_are_one_call(url: str, status: int, good: Any) -> None:
    """S1: two attempts, one call; the rejected one has used nothing and says how long to wait."""
    body = {"model": "m", "messages": []}
    got = measured(
        sent(0, 0, 5, url, body, {"error": {"message": "no"}}, status=status, headers={"retry-after": "0"}),
        sent(1, 6, 30, url, body, good),
    )
    (call,) = got.calls

    assert [(a.status, a.usage_source, a.retry_after_s) for a in call.attempts] == [
        ("error", "none", 0.0),
        ("ok", "final", None),
    ]
    assert (got.samples["fanout"], got.samples["attempts"], got.samples["tool_calls"]) == (1, 2, 0)
    assert (got.samples["input_tokens"], got.samples["output_tokens"]) == (9, 2)


def part(**call: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]}


def usage(given: int, made: int) -> dict[str, Any]:
    counts = {"promptTokenCount": given, "candidatesTokenCount": made, "totalTokenCount": given + made}
    return {"usageMetadata": counts}


def test_functions_that_the_sdk_calls_by_itself_are_calls_of_their_own() -> None:
    """S2: a question, two functions that the SDK runs one after the other: three calls, two tool calls, all usage.

    The calls have no ids; each result is found by name and order, so that the second wait for the same function does
    not end with the first one's result.
    """
    asks = part(functionCall={"name": "price", "args": {"sku": 7}})
    again = part(functionCall={"name": "price", "args": {"sku": 8}})
    question = {"role": "user", "parts": [{"text": "hi"}]}
    result = {"role": "user", "parts": [{"functionResponse": {"name": "price", "response": {"result": 1}}}]}
    got = measured(
        sent(0, 0, 100, GEMINI, {"contents": [question]}, {**asks, **usage(10, 3)}),
        sent(1, 130, 200, GEMINI, {"contents": [question, {}, result]}, {**again, **usage(20, 3)}),
        sent(2, 250, 300, GEMINI, {"contents": [question, {}, result, {}, result]}, {**part(text="7"), **usage(30, 1)}),
    )

    assert told(got, "finish", "tool_results_in") == [
        ("tool_calls", ()),
        ("tool_calls", ("price",)),
        ("stop", ("price", "price")),
    ]
    assert {name: got.samples[name] for name in ("fanout", "tool_calls[price]", "tool_ms[price]", "tool_ms")} == {
        "fanout": 3,
        "tool_calls[price]": 2,
        "tool_ms[price]": 30 + 50,
        "tool_ms": 80,
    }
    assert (got.samples["input_tokens"], got.samples["output_tokens"]) == (60, 7)


def test_parallel_calls_without_ids_wait_for_their_own_result() -> None:
    """Two calls of one function in one answer: the first result ends one wait, both together end the other."""
    call = {"functionCall": {"name": "f", "args": {}}}
    asks = {"candidates": [{"content": {"parts": [call, call]}, "finishReason": "STOP"}], **usage(1, 1)}
    result = {"functionResponse": {"name": "f", "response": {}}}
    got = measured(
        sent(0, 0, 10, GEMINI, {"contents": []}, asks),
        sent(1, 20, 30, GEMINI, {"contents": [{"parts": [result]}]}, {**part(text="a"), **usage(1, 1)}),
        sent(2, 50, 60, GEMINI, {"contents": [{"parts": [result, result]}]}, {**part(text="a"), **usage(1, 1)}),
    )

    assert got.samples["tool_ms[f]"] == 10 + 40


def test_hops_of_one_long_answer_are_calls() -> None:
    """S3: an answer that stops at a request's token limit goes on in a second call, which is marked; usage adds up."""
    first = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "CONTINUATION",
                             "continuationToken": "dA=="}], **usage(10, 5)}  # fmt: skip
    got = measured(
        sent(0, 0, 10, GEMINI, {"contents": []}, first),
        sent(1, 10, 20, GEMINI, {"contents": [], "continuationToken": "dA=="}, {**part(text="b"), **usage(1, 1)}),
    )

    assert told(got, "finish", "notes", "parent_id") == [("continue", (), None), ("stop", ("continuation",), "dA==")]
    assert [got.samples[name] for name in ("fanout", "input_tokens", "output_tokens")] == [2, 11, 6]


def test_hops_of_an_interaction_are_calls() -> None:
    """S3 for interactions: the hop names the interaction before it and the token; it too is marked."""
    counts = {"total_input_tokens": 10, "total_output_tokens": 5, "total_tokens": 15}
    ended = {"id": "i2", "status": "completed", "steps": [], "usage": counts}
    hop = {"model": "m", "continuation_token": "t", "previous_interaction_id": "i1"}
    got = measured(
        sent(0, 0, 10, INTERACTIONS, {"model": "m", "input": "a"},
             {**ended, "id": "i1", "status": "requires_continuation", "continuation_token": "t"}),
        sent(1, 10, 20, INTERACTIONS, hop, ended),
    )  # fmt: skip

    assert told(got, "finish", "notes", "parent_id") == [("continue", (), None), ("stop", ("continuation",), "i1")]
    assert got.samples["output_tokens"] == 10


RUN = {"id": "resp_1", "object": "response", "model": "gpt-x", "output": [], "usage": None}
ANSWERED = {
    **RUN,
    "status": "completed",
    "output": [{"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}],
    "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15},
}


def test_polls_of_a_background_run_are_no_calls_and_tell_its_cost() -> None:
    """S5: one call; of three polls the last one's usage, status and tool calls are the call's.

    The run lasted until the first poll that saw it ended, and the tool that it asked for waited from then on.
    """
    result = {"input": [{"type": "function_call_output", "call_id": "c1", "output": "1"}], "background": False}
    polls = [
        sent(n, 100 * n, 100 * n + 10, RESPONSES + "/resp_1", answer=answer, method="GET")
        for n, answer in enumerate(
            [{**RUN, "status": "queued"}, {**RUN, "status": "in_progress"}, ANSWERED, ANSWERED], 1
        )
    ]
    got = measured(
        sent(0, 0, 20, RESPONSES, {"model": "gpt-x", "background": True}, {**RUN, "status": "queued"}),
        *polls,
        sent(9, 500, 510, RESPONSES, result, {**ANSWERED, "id": "resp_2", "output": []}),
    )

    assert told(got, "response_id", "status", "finish", "usage_source", "input_tokens", "ended_ms") == [
        ("resp_1", "ok", "tool_calls", "final", 12, 310),
        ("resp_2", "ok", "stop", "final", 12, 510),
    ]
    assert [got.samples[name] for name in ("fanout", "attempts", "tool_calls", "output_tokens")] == [2, 2, 1, 6]
    assert (got.samples["tool_ms[find]"], got.samples["rounds"]) == (500 - 310, 2)
    assert (got.other, got.unclassified, got.unknown_usage, got.problems) == (4, 0, 0, ())


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        ([], ("pending", None, "missing")),
        ([("GET", "", 200, {"status": "in_progress"})], ("pending", None, "missing")),
        ([("GET", "", 500, {"status": "completed"})], ("pending", None, "missing")),
        ([("GET", "", 200, {"status": "failed", "error": {"code": "e"}})], ("error", "error", "missing")),
        ([("POST", "/cancel", 200, {"status": "cancelled"})], ("incomplete", "cancelled", "missing")),
        ([("GET", "/input_items", 200, {"status": "completed"})], ("pending", None, "missing")),
    ],
)
def test_what_no_poll_tells_stays_unknown(polls: list[Any], expected: tuple[Any, ...]) -> None:
    """A run that nobody saw end is a call with unknown usage, and so is one that failed or was cancelled."""
    got = measured(
        sent(0, 0, 10, RESPONSES, {"background": True}, {**RUN, "status": "queued"}),
        *(
            sent(
                n, 20 * n, 20 * n + 5, f"{RESPONSES}/resp_1{path}", answer={**RUN, **body}, method=method, status=status
            )
            for n, (method, path, status, body) in enumerate(polls, 1)
        ),
    )

    assert told(got, "status", "finish", "usage_source") == [expected]
    assert (got.samples["fanout"], got.unknown_usage, got.unclassified) == (1, 1, 0)


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b'data: {"type": "response.created", "response": {"status": "x"}}\n\n']
)
def test_a_poll_that_broke_off_tells_nothing(answer: bytes) -> None:
    """An empty, foreign or cut answer to a poll leaves the run pending."""
    got = measured(
        sent(0, 0, 10, RESPONSES, {"background": True}, {**RUN, "status": "queued"}),
        sent(1, 20, 30, RESPONSES + "/resp_1", answer=answer, method="GET"),
    )

    assert told(got, "status", "usage_source", "ended_ms", "notes") == [("pending", "missing", 10, ())]


def test_a_poll_tells_only_of_its_own_run() -> None:
    """Two interactions run in the background: each takes the usage of the poll with its id, in whatever order."""
    counts = {"total_input_tokens": 10, "total_output_tokens": 5, "total_tokens": 15}
    more = {**counts, "total_output_tokens": 7, "total_tokens": 17}
    run = {"model": "m", "status": "in_progress"}
    got = measured(
        sent(0, 0, 5, INTERACTIONS, {"model": "m", "input": "a", "background": True}, {**run, "id": "i 1"}),
        sent(1, 5, 9, INTERACTIONS, {"model": "m", "input": "b", "background": True}, {**run, "id": "i2"}),
        sent(2, 10, 20, INTERACTIONS + "/i2", answer={"status": "incomplete", "usage": counts}, method="GET"),
        sent(3, 20, 30, INTERACTIONS + "/i%201?x=1", answer={"status": "completed", "usage": more}, method="GET"),
    )

    assert told(got, "response_id", "finish", "output_tokens", "model_served") == [
        ("i 1", "stop", 7, "m"),
        ("i2", "length", 5, "m"),
    ]


def test_a_background_stream_that_was_cut_is_asked_for_again() -> None:
    """The stream of a background run broke off: the poll knows what the stream did not tell."""
    begun = b'data: {"type": "response.created", "response": {"id": "resp_1", "status": "queued", "usage": null}}\n\n'
    got = measured(
        sent(0, 0, 10, RESPONSES, {"background": True, "stream": True}, begun, outcome="error"),
        sent(1, 20, 30, RESPONSES + "/resp_1", answer=ANSWERED, method="GET"),
    )

    assert told(got, "status", "usage_source", "stream") == [("ok", "final", True)]
    assert got.samples["fanout"] == 1


def test_counting_tokens_is_no_call() -> None:
    """S6: each provider's way to count tokens before a call adds nothing to the fanout."""
    google = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
    urls = [
        MESSAGES + "/count_tokens",
        RESPONSES + "/input_tokens",
        GEMINI.replace("generateContent", "countTokens"),
        f"{google}/publishers/anthropic/models/count-tokens:rawPredict",
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/count-tokens",
    ]
    got = measured(*(sent(n, n, n + 1, url, {}, {"input_tokens": 3}) for n, url in enumerate(urls)))

    assert (got.samples["fanout"], got.samples["attempts"], got.other, got.unclassified) == (0, 0, len(urls), 0)
    assert [(problem.slug, problem.verdict) for problem in got.problems] == [("only-other-requests", "notice")]


@pytest.mark.parametrize(
    ("url", "begun", "expected"),
    [
        (
            MESSAGES,
            b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "content": [],'
            b' "usage": {"input_tokens": 25, "output_tokens": 1}}}\n\n',
            ("incomplete", "partial", 25, 1),
        ),
        (
            RESPONSES,
            b'event: response.created\ndata: {"type": "response.created", "response": {"id": "r", "status":'
            b' "in_progress", "usage": null}}\n\n',
            ("incomplete", "missing", None, None),
        ),
        (
            GEMINI.replace("generateContent", "streamGenerateContent?alt=sse"),
            b'data: {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {"promptTokenCount": 25,'
            b' "candidatesTokenCount": 1, "totalTokenCount": 26}}\n\n',
            ("incomplete", "partial", 25, 1),
        ),
        (
            INTERACTIONS,
            b'event: interaction.created\ndata: {"event_type": "interaction.created", "interaction": {"id": "i",'
            b' "status": "in_progress"}}\n\n',
            ("incomplete", "missing", None, None),
        ),
        (
            "http://localhost:11434/api/chat",
            b'{"model": "m", "message": {"role": "assistant", "content": "a"}, "done": false}\n',
            ("incomplete", "missing", None, None),
        ),
        (
            "https://api.mistral.ai/v1/conversations",
            b'event: message.output.delta\ndata: {"type": "message.output.delta", "id": "m", "content": "a"}\n\n',
            ("incomplete", "missing", None, None),
        ),
    ],
)
def test_a_stream_that_ends_before_its_end_mark_is_seen(url: str, begun: bytes, expected: tuple[Any, ...]) -> None:
    """S7: closed cleanly after the first event: incomplete, although no client raises; usage is a bound at best."""
    got = measured(sent(0, 0, 10, url, {"model": "m", "stream": True}, begun))

    assert told(got, "status", "usage_source", "input_tokens", "output_tokens") == [expected]
    assert (got.samples["fanout"], got.samples["input_tokens"], got.unknown_usage) == (1, None, 1)


def test_a_paused_turn_and_its_continuation_are_two_calls() -> None:
    """S8: the provider paused; the client sends the content back, and that is another call."""
    paused = {"type": "message", "content": [{"type": "text", "text": "…"}], "stop_reason": "pause_turn",
              "usage": {"input_tokens": 10, "output_tokens": 5}}  # fmt: skip
    question = {"role": "user", "content": "hi"}
    got = measured(
        sent(0, 0, 10, MESSAGES, {"messages": [question]}, paused),
        sent(1, 10, 20, MESSAGES, {"messages": [question, {"role": "assistant", "content": paused["content"]}]},
             {**paused, "stop_reason": "end_turn"}),
    )  # fmt: skip

    assert told(got, "finish") == [("pause",), ("stop",)]
    assert [got.samples[name] for name in ("fanout", "input_tokens", "output_tokens")] == [2, 20, 10]


def test_an_agent_at_the_provider_is_not_one_call() -> None:
    """An interaction that starts an agent runs calls that nobody sees: it is no fanout of one, and it is named."""
    got = measured(sent(0, 0, 10, INTERACTIONS, {"agent": "deep", "input": "hi"}, {"id": "i", "status": "completed"}))

    assert got.samples["fanout"] == 0
    assert [(problem.slug, problem.text) for problem in got.problems] == [
        (
            "fanout-unobservable",
            f"POST {INTERACTIONS} (agent_run): the provider runs model calls of its own there, out of sight",
        )
    ]


def test_loading_a_model_is_no_call() -> None:
    """Ollama is asked to load a model by a request without a message: nothing is generated."""
    loaded = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"}
    got = measured(sent(0, 0, 10, "http://localhost:11434/api/chat", {"model": "m", "messages": []}, loaded))

    assert (got.samples["fanout"], got.other, got.unclassified) == (0, 1, 0)
    assert [(problem.slug, problem.verdict) for problem in got.problems] == [("only-other-requests", "notice")]
