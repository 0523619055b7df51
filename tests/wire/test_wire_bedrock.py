"""What Bedrock's requests ask, what other models behind Invoke answer, and which of its URLs ask for what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_frames import CONTENT_TYPE, chunks, frame, frames
from wire_examples import EXAMPLES, facts

from pytest_fanout.records import Attempt, Endpoint
from pytest_fanout.wire import classify, is_unclassified, read_call
from pytest_fanout.wire.endpoints import model_in_url

HOST = "https://bedrock-runtime.us-east-1.amazonaws.com"
CONVERSE = f"{HOST}/model/m/converse"
INVOKE = f"{HOST}/model/m/invoke"
METRICS = "amazon-bedrock-invocationMetrics"


def ask(url: str, request: Any) -> Attempt:
    attempt = read_call("POST", url, json.dumps(request).encode(), 200, {}, b"{}")
    assert attempt is not None
    return attempt


def invoke(body: Any, **headers: str) -> Attempt:
    counts = {f"x-amzn-bedrock-{name.replace('_', '-')}-token-count": value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    attempt = read_call("POST", INVOKE, b"{}", 200, counts, data)
    assert attempt is not None
    return attempt


def stream(*events: Any) -> Attempt:
    attempt = read_call("POST", INVOKE + "-with-response-stream", b"{}", 200, CONTENT_TYPE, chunks(list(events)))
    assert attempt is not None
    return attempt


RESULT = {"toolResult": {"toolUseId": "tu_1", "content": [{"text": "r"}]}}
SERVER_RESULT = {"toolResult": {"toolUseId": "st_1", "type": "nova_grounding_result", "content": []}}
CONVERSE_REQUEST = {
    "system": [{"text": "You plan."}, {"cachePoint": {"type": "default"}}, {"text": "Be short."}],
    "messages": [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [SERVER_RESULT]},
        {"role": "user", "content": [RESULT, {"toolResult": {}}]},
    ],
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "find", "inputSchema": {"json": {}}}},
            {"systemTool": {"name": "nova_grounding"}},
            {"cachePoint": {"type": "default"}},
        ]
    },
    "additionalModelRequestFields": {"tools": [{"type": "computer_x", "name": "computer"}]},
}


def test_what_a_converse_request_asks() -> None:
    """The prompt, all tools, the results of the client's own tools, and the model that only the URL names."""
    attempt = ask(f"{HOST}/model/us.anthropic.claude-x-v1%3A0/converse", CONVERSE_REQUEST)

    assert attempt.site is not None
    assert attempt.site.model == attempt.model_requested == "us.anthropic.claude-x-v1:0"
    assert attempt.site.tools == ("computer", "find", "nova_grounding")
    assert attempt.site.label == "You plan. Be short."
    assert attempt.tool_results_in == ("tu_1", "")
    assert attempt.provider == "bedrock"


def test_the_path_says_whether_a_stream_was_asked_for() -> None:
    """Also of a request that was refused with a plain body."""
    for path, stream in [("converse", False), ("converse-stream", True), ("invoke-with-response-stream", True)]:
        attempt = read_call("POST", f"{HOST}/model/m/{path}", b"{}", 429, {}, b'{"message":"m"}')

        assert facts(attempt, "stream") == {"stream": stream}


def test_a_system_message_is_a_prompt_as_well() -> None:
    """Converse takes the prompt among the messages too."""
    attempt = ask(CONVERSE, {"messages": [{"role": "system", "content": [{"text": "You plan."}]}]})

    assert attempt.site is not None
    assert attempt.site.label == "You plan."


@pytest.mark.parametrize(
    ("request_body", "label", "tools", "results"),
    [
        (
            {
                "anthropic_version": "bedrock-2023-05-31",
                "system": "You plan.",
                "tools": [{"name": "find"}, {"type": "bash_x", "name": "bash"}],
                "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}],
            },
            "You plan.",
            ("bash", "find"),
            ("t",),
        ),
        (CONVERSE_REQUEST, "You plan. Be short.", ("computer", "find", "nova_grounding"), ("tu_1", "")),
        (
            {
                "messages": [{"role": "system", "content": "You plan."}, {"role": "tool", "tool_call_id": "t"}],
                "tools": [{"type": "function", "function": {"name": "find"}}],
            },
            "You plan.",
            ("find",),
            ("t",),
        ),
        (
            {
                "message": "Hi",
                "preamble": "You plan.",
                "tools": [{"name": "find"}],
                "tool_results": [{"call": {"name": "find"}, "outputs": []}],
            },
            "You plan.",
            ("find",),
            ("find",),
        ),
        ({"prompt": "Hi"}, "(no system prompt)", (), ()),
    ],
    ids=["anthropic", "nova", "chat", "cohere", "prompt"],
)
def test_what_an_invoke_request_asks(request_body: Any, label: str, tools: Any, results: Any) -> None:
    """The request is the model's own; its family is known by its shape."""
    attempt = ask(INVOKE, request_body)

    assert attempt.site is not None
    assert (attempt.site.label, attempt.site.tools, attempt.tool_results_in) == (label, tools, results)


def test_a_switch_of_models_is_another_call_site() -> None:
    """The model stands in the URL only, and is part of what a call site is."""
    sites = {ask(f"{HOST}/model/{model}/converse", CONVERSE_REQUEST).site for model in ("a", "b", "a")}

    assert len(sites) == 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"generation": "Hi", "prompt_token_count": 9, "generation_token_count": 2, "stop_reason": "length"},
            {"input_tokens": 9, "output_tokens": 2, "finish": "length", "choices": 1},
        ),
        (
            {
                "inputTextTokenCount": 6,
                "results": [
                    {"tokenCount": 3, "outputText": "a", "completionReason": "CONTENT_FILTERED"},
                    {"tokenCount": 4, "outputText": "b", "completionReason": "CONTENT_FILTERED"},
                ],
            },
            {"input_tokens": 6, "output_tokens": 7, "finish": "content_filter", "choices": 2},
        ),
        (
            {"completion": " Hi", "stop_reason": "stop_sequence", "stop": "\n\nHuman:"},
            {"input_tokens": 40, "output_tokens": 9, "finish": "stop"},
        ),
        (
            {"id": "g", "generations": [{"id": "i", "text": "Hi", "finish_reason": "MAX_TOKENS"}]},
            {"input_tokens": 40, "output_tokens": 9, "finish": "length", "response_id": "g"},
        ),
        (
            {"id": 1, "completions": [{"data": {"text": "Hi"}, "finishReason": {"reason": "endoftext"}}]},
            {"input_tokens": 40, "output_tokens": 9, "finish": "stop"},
        ),
        (
            {"choices": [{"text": "Hi", "stop_reason": "stop"}]},
            {"input_tokens": 40, "output_tokens": 9, "finish": "stop"},
        ),
        (
            {
                "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
            },
            {"input_tokens": 3, "output_tokens": 1, "finish": "stop"},
        ),
        (
            {
                "id": "c",
                "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
                "finish_reason": "COMPLETE",
                "usage": {"tokens": {"input_tokens": 5.0, "output_tokens": 1.0}},
            },
            {"input_tokens": 5, "output_tokens": 1, "finish": "stop"},
        ),
        ({"pictures": ["…"]}, {"input_tokens": 40, "output_tokens": 9, "kind": "generate", "status": "ok"}),
        (
            {"results": [{"index": 0, "relevance_score": 0.5}]},
            {"input_tokens": 40, "output_tokens": 0, "kind": "rerank"},
        ),
        (b"\x89PNG\r\n", {"input_tokens": 40, "output_tokens": 9, "status": "incomplete", "usage_source": "final"}),
        ({"error": {"type": "overloaded"}}, {"status": "error", "error_type": "overloaded"}),
    ],
)
def test_what_other_models_behind_invoke_answer(body: Any, expected: dict[str, Any]) -> None:
    """Each family's own counts, and Bedrock's headers where it has none."""
    assert facts(invoke(body, input="40", output="9"), *expected) == expected


def test_only_what_the_body_leaves_out_comes_from_the_headers() -> None:
    """A body that counts its input only keeps that count."""
    attempt = invoke({"generation": "Hi", "prompt_token_count": 9}, input="40", output="9")

    assert (attempt.input_tokens, attempt.output_tokens) == (9, 9)


@pytest.mark.parametrize("text", ["", "-1", "1e3", "٣", "9" * 17, "a", "40, 40"])
def test_a_header_that_is_no_count_is_none(text: str) -> None:
    """Only digits are a count."""
    expected = {"input_tokens": None, "output_tokens": None, "usage_source": "missing", "status": "ok"}

    assert facts(invoke({"completion": "Hi"}, input=text), *expected) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [
                {
                    "outputText": "a",
                    "totalOutputTextTokenCount": None,
                    "inputTextTokenCount": 6,
                    "completionReason": None,
                }
            ],
            {"status": "incomplete", "input_tokens": 6, "output_tokens": None, "usage_source": "partial"},
        ),
        (
            [
                {"outputText": "a", "totalOutputTextTokenCount": None, "inputTextTokenCount": 6},
                {"outputText": "", "totalOutputTextTokenCount": 8, "completionReason": "LENGTH"},
            ],
            {"status": "ok", "input_tokens": 6, "output_tokens": 8, "usage_source": "final", "finish": "length"},
        ),
        (
            [{"generation": "a", "prompt_token_count": 15, "generation_token_count": 1, "stop_reason": None}],
            {"status": "incomplete", "input_tokens": 15, "output_tokens": 1, "usage_source": "partial"},
        ),
        (
            [{"something": "new"}, {"something": "else", METRICS: {"inputTokenCount": 3, "outputTokenCount": 1}}],
            {"status": "ok", "input_tokens": 3, "output_tokens": 1, "usage_source": "final"},
        ),
        (
            [
                {"event_type": "stream-start"},
                {
                    "event_type": "stream-end",
                    "finish_reason": "COMPLETE",
                    "response": {"text": "Hi", "generation_id": "g"},
                    METRICS: {"inputTokenCount": 3, "outputTokenCount": 1},
                },
            ],
            {"status": "ok", "input_tokens": 3, "output_tokens": 1, "usage_source": "final", "finish": "stop"},
        ),
        (
            [
                {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
                {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}},
            ],
            {"status": "incomplete", "input_tokens": 3, "output_tokens": 1, "usage_source": "partial"},
        ),
    ],
)
def test_streams_of_other_models_behind_invoke(events: list[Any], expected: dict[str, Any]) -> None:
    """A stream is whole with Bedrock's metrics or the model's reason to stop; before that its counts are a bound."""
    assert facts(stream(*events), *expected) == expected


def test_metrics_count_the_cache_beside_the_input() -> None:
    """As everywhere at Bedrock."""
    counts = {"inputTokenCount": 7, "outputTokenCount": 126, "cacheReadInputTokenCount": 14486}
    attempt = stream({"outputs": [{"text": "a", "stop_reason": "stop"}], METRICS: counts})

    assert (attempt.input_tokens, attempt.cached_input_tokens, attempt.output_tokens) == (14493, 14486, 126)


def test_unknown_frames_are_passed_over() -> None:
    """A new kind of event between the known ones takes nothing away."""
    example = EXAMPLES["BR2"]
    body = frame("messageStart", {}) + frames([["somethingNew", {"x": 1}]]) + example.body

    expected = {"status": "ok", "input_tokens": 30, "output_tokens": 60}
    assert facts(read_call("POST", example.url, b"{}", 200, CONTENT_TYPE, body), *expected) == expected


def test_a_total_that_leaves_the_cache_out_is_flagged() -> None:
    """The parts are kept as Converse defines them, and the contradiction is said."""
    usage = {"inputTokens": 30, "outputTokens": 60, "totalTokens": 90, "cacheReadInputTokens": 1000}
    body = {"output": {"message": {"content": []}}, "stopReason": "end_turn", "usage": usage}
    attempt = read_call("POST", CONVERSE, b"{}", 200, {}, json.dumps(body).encode())

    assert facts(attempt, "input_tokens", "notes") == {"input_tokens": 1030, "notes": ("total_mismatch",)}


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("amazon.titan-embed-text-v2%3A0", "embed"),
        ("cohere.embed-x-v3", "embed"),
        ("us.twelvelabs.marengo-embed-2-7-v1%3A0", "embed"),
        ("amazon.nova-2-multimodal-embeddings-v1%3A0", "embed"),
        ("cohere.rerank-v3-5%3A0", "rerank"),
        ("amazon.rerank-v1%3A0", "rerank"),
        ("anthropic.claude-x-v1%3A0", "generate"),
        ("acme.embedded-x-v1", "generate"),
        ("arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aimported-model%2Fabc", "generate"),
    ],
)
def test_invoke_generates_unless_its_model_says_otherwise(model: str, kind: str) -> None:
    """Embedding and ranking models are known by their names."""
    assert classify("POST", f"{HOST}/model/{model}/invoke") == Endpoint("bedrock.invoke", kind)
    assert classify("POST", f"http://gw/embed/model/{model}/invoke").kind == kind


def test_an_arn_may_come_with_its_slash() -> None:
    """Some clients do not escape it; the model is the same."""
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.claude-x"
    for name in (arn, arn.replace(":", "%3A").replace("/", "%2F")):
        assert classify("POST", f"{HOST}/model/{name}/converse-stream") == Endpoint("bedrock.converse", "generate")
        assert model_in_url(f"{HOST}/model/{name}/converse-stream") == arn


@pytest.mark.parametrize(
    ("path", "unclassified"),
    [
        ("/guardrail-checks/invoke", False),
        ("/knowledgebases/KB1/retrieve", False),
        ("/retrieveAndGenerate", True),
        ("/model/m/invoke-with-bidirectional-stream", True),
        ("/agents/A/agentAliases/B/sessions/C/text", True),
    ],
)
def test_what_else_bedrock_offers(path: str, unclassified: bool) -> None:
    """Checks and look-ups are no generation; what may run a model unseen is reported."""
    assert is_unclassified("POST", HOST + path) is unclassified
