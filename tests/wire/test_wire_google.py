"""Gemini's two APIs beyond the worked examples: failures, cuts, ends, and counts that are not there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_examples import EXAMPLES, JSON, SSE, facts, render

from pytest_fanout.records import Attempt, ToolCall
from pytest_fanout.wire import read_call

GENERATE = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:generateContent"
STREAM = GENERATE.replace("generateContent", "streamGenerateContent")
INTERACTIONS = "https://generativelanguage.googleapis.com/v1beta/interactions"
ERROR = {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}


def read(url: str, answer: Any, headers: dict[str, str] = JSON, status: int = 200, asked: Any = None) -> Attempt:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    attempt = read_call("POST", url, json.dumps(asked or {}).encode(), status, headers, body)
    assert attempt is not None
    return attempt


def candidate(finish: str | None = "STOP", *parts: Any) -> dict[str, Any]:
    return {"candidates": [{"index": 0, "content": {"parts": list(parts) or [{"text": "a"}]}, "finishReason": finish}]}


BAD = ("partial", ("bad_usage",))
PRETTY = json.dumps(ERROR, indent=2).encode()
BEGUN = render([[{**candidate(None), "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}}]])


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        pytest.param(GENERATE, JSON, [ERROR], id="in an array"),
        pytest.param(STREAM, JSON, [candidate(None), ERROR], id="as a later element"),
        pytest.param(STREAM + "?alt=sse", SSE, BEGUN + PRETTY, id="as bare lines"),
        pytest.param(STREAM + "?alt=sse", SSE, BEGUN + json.dumps(ERROR).encode() + b"\n", id="as one bare line"),
        pytest.param(STREAM + "?alt=sse", SSE, BEGUN + b"[" + PRETTY + b"\n]\n", id="as the bare lines of an array"),
        pytest.param(STREAM + "?alt=sse", SSE, BEGUN + PRETTY + b"\n\n" + render([[candidate()]]), id="before a chunk"),
        pytest.param(STREAM + "?alt=sse", SSE, BEGUN + b"data: " + json.dumps(ERROR).encode(), id="as an event"),
    ],
)
def test_a_failure_after_200_is_a_failure(url: str, headers: dict[str, str], body: Any) -> None:
    """Wherever the error stands, also without `data:` and on several lines, the call has failed and is named."""
    attempt = read(url, body, headers)

    assert (attempt.status, attempt.finish, attempt.error_type) == ("error", "error", "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize(
    ("details", "headers", "wait"),
    [
        ([{"@type": "x", "retryDelay": "34.5s"}], {}, 34.5),
        ([{"reason": "x"}, {"retryDelay": "7s"}], {}, 7.0),
        ([{"retryDelay": "7s"}], {"retry-after": "2"}, 2.0),
        ([{"retryDelay": "soon"}], {}, None),
        ([{"retryDelay": 7}], {}, None),
        ("x", {}, None),
    ],
)
def test_how_long_to_wait_stands_in_the_error(details: Any, headers: dict[str, str], wait: float | None) -> None:
    """Google's errors say it in their details; a header goes first."""
    body = {"error": {**ERROR["error"], "details": details}}

    for answer in (body, [body]):
        assert read(GENERATE, answer, {**JSON, **headers}, 429).retry_after_s == wait


def test_a_cut_array_keeps_what_came() -> None:
    """A stream that is one JSON array, cut after its second element: incomplete, with usage as a lower bound."""
    whole = EXAMPLES["GE7"].body
    first = whole[: whole.index(b"}, {") + 1]

    expected = {"status": "incomplete", "usage_source": "partial", "input_tokens": 8, "output_tokens": 1}
    assert facts(read(STREAM, first), *expected) == expected
    expected = {"status": "incomplete", "usage_source": "partial", "input_tokens": 8, "output_tokens": 4}
    assert facts(read(STREAM, whole[:-1]), *expected) == expected


def test_every_candidate_has_to_end() -> None:
    """Of two candidates one has not ended: the stream was cut, whatever the other says."""
    ended = {"index": 0, "content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}
    running = {**ended, "index": 1, "finishReason": None}
    first, last = [{"candidates": [ended, running]}], [{"candidates": [{**running, "finishReason": "STOP"}]}]

    assert read(STREAM, render([first]), SSE).status == "incomplete"
    assert facts(read(STREAM, render([first, last]), SSE), "status", "choices") == {"status": "ok", "choices": 2}


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("CONTINUATION", "continue"),
        ("OTHER", None),
        ("BRAND_NEW", None),
    ],
)
def test_why_an_answer_ended(raw: str, finish: str | None) -> None:
    """Gemini's reasons in our words; one that is not known stays as it was said. An answer came: the status is ok."""
    attempt = read(GENERATE, candidate(raw))

    assert (attempt.status, attempt.finish, attempt.finish_raw) == ("ok", finish, raw)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # zeros are left out of this JSON
        ({"promptTokenCount": 9, "totalTokenCount": 9}, (9, 0, None, "final", ())),
        # but nothing is known where no prompt was counted
        ({"trafficType": "ON_DEMAND"}, (None, None, None, "missing", ())),
        ({"totalTokenCount": 9}, (None, None, None, "missing", ())),
        ({"candidatesTokenCount": 3}, (None, 3, None, "partial", ())),
        # thoughts beside the candidates, also without a total
        ({"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}, (9, 7, 4, "final", ())),
        # a total that fits neither
        (
            {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "totalTokenCount": 20},
            (9, 7, 4, "final", ("total_mismatch",)),
        ),
        # a count that is none makes its sum unknown
        ({"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": "x"}, (9, None, None, *BAD)),
        ({"promptTokenCount": 9, "toolUsePromptTokenCount": -1, "candidatesTokenCount": 3}, (None, 3, None, *BAD)),
        ({"promptTokenCount": 9, "candidatesTokenCount": True}, (9, None, None, *BAD)),
    ],
)  # fmt: skip
def test_counts_that_are_not_there(usage: Any, expected: tuple[Any, ...]) -> None:
    """A3: what is left out is zero only beside a counted prompt; what cannot be read is unknown, never zero."""
    attempt = read(GENERATE, {**candidate(), "usageMetadata": usage})

    names = ("input_tokens", "output_tokens", "reasoning_tokens", "usage_source", "notes")
    assert tuple(getattr(attempt, name) for name in names) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([["error", {"event_type": "error", "error": {"code": "quota", "message": "m"}}]], ("error", "error", "quota")),
        ([["error", "{"]], ("error", "error", None)),
        ([["interaction.created", {"event_type": "interaction.created", "interaction": {"status": "in_progress"}}]],
         ("incomplete", None, None)),
        ([["interaction.status_update", {"event_type": "interaction.status_update", "status": "failed"}]],
         ("error", "error", None)),
        ([["interaction.complete", {"event_type": "interaction.complete", "interaction": {"status": "completed"}}]],
         ("ok", "stop", None)),
    ],
)  # fmt: skip
def test_how_a_stream_of_an_interaction_ended(events: Any, expected: tuple[Any, ...]) -> None:
    """Failed, cut, or told by the older name of the last event."""
    attempt = read(INTERACTIONS, render(events), SSE)

    assert (attempt.status, attempt.finish, attempt.error_type) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": "completed", "steps": []}, ("ok", "stop", None)),
        ({"status": "in_progress"}, ("pending", None, None)),
        ({"status": "queued"}, ("pending", None, None)),
        ({"status": "incomplete"}, ("ok", "length", None)),
        ({"status": "cancelled"}, ("incomplete", "cancelled", None)),
        ({"status": "failed", "errors": [{"code": "internal"}]}, ("error", "error", "internal")),
        ({"status": "brand_new"}, ("ok", None, None)),
        ({"error": {"code": "bad_request", "message": "m"}}, ("error", "error", "bad_request")),
    ],
)
def test_the_status_of_an_interaction(answer: Any, expected: tuple[Any, ...]) -> None:
    """An interaction says itself how it ended; a background run is pending until it is asked for again."""
    attempt = read(INTERACTIONS, answer)

    assert (attempt.status, attempt.finish, attempt.error_type) == expected


def test_steps_by_their_older_names() -> None:
    """The first version called steps outputs, and streamed a function call as one delta."""
    call = {"type": "function_call", "id": "f1", "name": "find", "arguments": {"q": "x"}}
    usage = {"total_input_tokens": 5, "total_output_tokens": 2, "total_tokens": 7}
    whole = read(INTERACTIONS, {"status": "requires_action", "outputs": [call], "usage": usage})
    last = {"event_type": "interaction.complete", "interaction": {"status": "requires_action", "usage": usage}}
    streamed = read(
        INTERACTIONS,
        render(
            [
                [{"event_type": "content.start", "index": 0, "content": {"type": "function_call"}}],
                [{"event_type": "content.delta", "index": 0, "delta": call}],
                [last],
            ]
        ),
        SSE,
    )

    expected = {"tool_calls": (ToolCall("f1", "find", '{"q":"x"}'),), "finish": "tool_calls", "output_tokens": 2}
    assert facts(whole, *expected) == facts(streamed, *expected) == expected


@pytest.mark.parametrize(
    ("path", "answer", "tokens"),
    [
        ("models/e:embedContent", {"embedding": {"values": [1]}, "usageMetadata": {"promptTokenCount": 5}}, 5),
        (
            "models/e:predict",
            {"predictions": [{"embeddings": {"statistics": {"token_count": n}}} for n in (3, 4.0)]},
            7,
        ),
        ("models/e:predict", {"predictions": [{"bytesBase64Encoded": "x"}]}, None),
    ],
)
def test_embeddings_of_google_are_counted_beside_the_fanout(path: str, answer: Any, tokens: int | None) -> None:
    """Input where it is told: in the usage, or text by text."""
    attempt = read("https://aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/" + path, answer)

    assert (attempt.kind, attempt.input_tokens, attempt.model_requested) == ("embed", tokens, "e")
