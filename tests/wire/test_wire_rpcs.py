"""Which gRPC method asks for what, and what an answer of xAI says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.records import Attempt, ToolCall
from pytest_fanout.wire import classify, is_readable, is_unclassified, read_call

XAI = "grpc://api.x.ai:443"
VERTEX = "grpc://us-east5-aiplatform.googleapis.com:443/google.cloud.aiplatform.v1.PredictionService"
STUDIO = "grpc://generativelanguage.googleapis.com:443/google.ai.generativelanguage.v1beta.GenerativeService"
URL = XAI + "/xai_api.Chat/GetCompletion"
ONE = (("content-type", "application/json"),)
LINES = (("content-type", "application/x-ndjson"),)

VECTORS = [
    (XAI + "/xai_api.Chat/GetCompletion", "xai.chat", "generate"),
    (XAI + "/xai_api.Chat/GetCompletionChunk", "xai.chat", "generate"),
    (XAI + "/xai_api.Chat/CompactContext", "xai.chat", "compact"),
    (XAI + "/xai_api.Chat/StartDeferredCompletion", None, "batch"),
    (XAI + "/xai_api.Chat/GetDeferredCompletion", None, "other"),
    (XAI + "/xai_api.BatchMgmt/CreateBatch", None, "batch"),
    (XAI + "/xai_api.Sample/SampleTextStreaming", "xai.sample", "generate"),
    (XAI + "/xai_api.Embedder/Embed", "embeddings", "embed"),
    (XAI + "/xai_api.Tokenize/TokenizeText", None, "count"),
    (XAI + "/xai_api.Models/ListLanguageModels", None, "other"),
    (VERTEX + "/GenerateContent", "gemini.generate", "generate"),
    (VERTEX + "/StreamGenerateContent", "gemini.generate", "generate"),
    (VERTEX + "/StreamRawPredict", "vertex.predict", "generate"),
    (VERTEX.replace("v1.", "v1beta1.") + "/GenerateContent", "gemini.generate", "generate"),
    (VERTEX.replace("Prediction", "LlmUtility") + "/CountTokens", None, "count"),
    (STUDIO + "/StreamGenerateContent", "gemini.generate", "generate"),
    (STUDIO + "/BatchEmbedContents", "embeddings", "embed"),
    ("grpc://localhost:50051/xai_api.Chat/GetCompletion", "xai.chat", "generate"),
    ("grpc://localhost:19530/milvus.proto.milvus.MilvusService/Search", None, "other"),
]


@pytest.mark.parametrize(("url", "api", "kind"), VECTORS, ids=[vector[0].split("/", 3)[3] for vector in VECTORS])
def test_methods(url: str, api: str | None, kind: str) -> None:
    """A gRPC method is known by its name, on any host; over HTTP the same path says nothing."""
    endpoint = classify("GRPC", url)

    assert (endpoint.api, endpoint.kind) == (api, kind)
    assert classify("POST", url.replace("grpc:", "https:")).kind == "other"


@pytest.mark.parametrize(
    ("url", "unclassified"),
    [
        (XAI + "/xai_api.Chat/Brandnew", True),
        (XAI + "/xai_api.Swarm/Run", True),
        (VERTEX + "/DirectPredict", True),
        (XAI + "/xai_api.Chat/GetCompletion", False),  # it has a rule
        (XAI + "/xai_api.Chat/GetStoredCompletion", False),
        (XAI + "/xai_api.Auth/get_api_key_info", False),
        (XAI + "/grpc.health.v1.Health/Check", False),
        ("grpc://vectors.example:443/xai_api.Swarm/Run", False),  # no model host
    ],
)
def test_unknown_methods_of_a_model_host(url: str, unclassified: bool) -> None:
    """A method that no rule names is unclassified at a model host, unless it is known to run no language model."""
    assert is_unclassified("GRPC", url) is unclassified


def read(answer: Any, *, request: Any = None, status: int = 200, url: str = URL) -> Attempt:
    """``answer``: one message, or a list of them as a stream."""
    lines = (
        [json.dumps(part).encode() for part in answer] if isinstance(answer, list) else [json.dumps(answer).encode()]
    )
    asked = json.dumps(request or {"model": "grok-x"}).encode()
    attempt = read_call("GRPC", url, asked, status, LINES if isinstance(answer, list) else ONE, b"\n".join(lines))
    assert attempt is not None
    return attempt


def usage(prompt: int = 0, made: int = 0, reasoning: int = 0, total: int = 0, cached: int = 0) -> dict[str, int]:
    """As protobuf's JSON has it: zeros are left out."""
    given = {"promptTokens": prompt, "completionTokens": made, "reasoningTokens": reasoning, "totalTokens": total,
             "cachedPromptTextTokens": cached}  # fmt: skip
    return {name: value for name, value in given.items() if value}


def said(text: str = "ok", finish: str | None = "REASON_STOP", **message: Any) -> list[dict[str, Any]]:
    output = {"message": {"role": "ROLE_ASSISTANT", "content": text, **message}}
    return [{**output, "finishReason": finish} if finish else output]


def tokens(attempt: Attempt) -> tuple[Any, ...]:
    return (attempt.input_tokens, attempt.cached_input_tokens, attempt.output_tokens, attempt.reasoning_tokens)


def test_whole_answer() -> None:
    """Model, end and tokens of one message; cached tokens are a part of the prompt."""
    attempt = read({"id": "r1", "model": "grok-x-1", "outputs": said(), "usage": usage(120, 30, total=150, cached=100)})

    assert (attempt.status, attempt.finish, attempt.finish_raw) == ("ok", "stop", "REASON_STOP")
    assert (attempt.model_requested, attempt.model_served, attempt.response_id) == ("grok-x", "grok-x-1", "r1")
    assert (tokens(attempt), attempt.usage_source, attempt.provider) == ((120, 100, 30, 0), "final", "xai")
    assert (attempt.stream, attempt.choices, attempt.notes) == (False, 1, ())


@pytest.mark.parametrize(
    ("given", "output", "notes"),
    [
        (usage(10, 20, 30, 60), 50, ("reasoning_additive",)),  # 60 = 10 + 20 + 30: beside the completion
        (usage(10, 50, 30, 60), 50, ()),  # 60 = 10 + 50: inside it
        (usage(10, 20, 30), 50, ("reasoning_additive",)),  # no total, but a part cannot be more than the whole
    ],
)
def test_reasoning_inside_or_beside(given: dict[str, int], output: int, notes: tuple[str, ...]) -> None:
    """The provider's own total tells whether reasoning stands beside the completion."""
    attempt = read({"outputs": said(), "usage": given})

    assert (attempt.output_tokens, attempt.reasoning_tokens, attempt.notes) == (output, 30, notes)


def test_zero_is_not_missing() -> None:
    """A usage that is there and names no completion says 0; without a usage nothing is known."""
    assert tokens(read({"outputs": said(), "usage": usage(7, total=7)})) == (7, 0, 0, 0)
    assert read({"outputs": said()}).usage_source == "missing"


def test_stream() -> None:
    """The last usage wins, and a reason to finish ends the stream."""
    chunks = [
        {"id": "r", "model": "g", "outputs": [{"delta": {"content": "o"}}], "usage": usage(5, 1, total=6)},
        {"id": "r", "model": "g", "outputs": [{"delta": {"content": "k"}, "finishReason": "REASON_MAX_LEN"}]},
        {"id": "r", "model": "g", "usage": usage(5, 2, total=7)},
    ]
    attempt = read(chunks)

    assert (attempt.stream, attempt.status, attempt.finish) == (True, "ok", "length")
    assert (tokens(attempt), attempt.usage_source) == ((5, 0, 2, 0), "final")


def test_stream_cut_off() -> None:
    """Without a reason to finish the answer is incomplete, and what usage came is a lower bound."""
    attempt = read([{"outputs": [{"delta": {"content": "o"}}], "usage": usage(5, 1, total=6)}])

    assert (attempt.status, attempt.usage_source, tokens(attempt)[2]) == ("incomplete", "partial", 1)


def test_error_in_a_stream() -> None:
    """A status that comes after the first messages makes it an error, which keeps what was told."""
    attempt = read([{"outputs": [{"delta": {}}], "usage": usage(5, 1)}, {"error": {"status": "INTERNAL"}}])

    assert (attempt.status, attempt.error_type, attempt.input_tokens) == ("error", "INTERNAL", 5)


def test_refused_call() -> None:
    """A gRPC status arrives as the HTTP status that says the same, with its name as the error."""
    attempt = read({"error": {"status": "RESOURCE_EXHAUSTED", "message": "slow down"}}, status=429)

    assert (attempt.status, attempt.error_type, attempt.usage_source) == ("error", "RESOURCE_EXHAUSTED", "none")


def test_tools_of_client_and_server() -> None:
    """Client tools are what the agent has to run; the provider's own are counted apart, each once, whatever it says."""
    calls = [
        {"id": "c1", "type": "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL", "function": {"name": "find", "arguments": '{"q":1}'}},
        {"id": "w1", "type": "TOOL_CALL_TYPE_WEB_SEARCH_TOOL", "status": "TOOL_CALL_STATUS_IN_PROGRESS"},
        {"id": "w1", "type": "TOOL_CALL_TYPE_WEB_SEARCH_TOOL", "status": "TOOL_CALL_STATUS_COMPLETED"},
        {"id": "c2", "function": {"name": "price", "arguments": "{}"}},
    ]
    used = {**usage(9, 9, total=18), "serverSideToolsUsed": ["SERVER_SIDE_TOOL_WEB_SEARCH", "SERVER_SIDE_TOOL_MCP"]}
    attempt = read({"outputs": said(finish="REASON_TOOL_CALLS", toolCalls=calls), "usage": used})

    assert attempt.tool_calls == (ToolCall("c1", "find", '{"q":1}'), ToolCall("c2", "price", "{}"))
    assert (attempt.server_tool_calls, attempt.finish) == ({"web_search": 1, "mcp": 1}, "tool_calls")


def test_request() -> None:
    """System prompt, tools and tool results of a request make its call site."""
    request = {
        "model": "grok-x",
        "previousResponseId": "r0",
        "messages": [
            {"role": "ROLE_SYSTEM", "content": [{"text": "Be kind."}]},
            {"role": "ROLE_USER", "content": [{"text": "hi"}]},
            {"role": "ROLE_TOOL", "content": [{"text": "42"}], "toolCallId": "c1"},
        ],
        "tools": [{"function": {"name": "find"}}, {"webSearch": {}}, {"mcp": {"serverLabel": "docs"}}],
    }
    attempt = read({"outputs": said()}, request=request)

    assert attempt.site is not None
    assert (attempt.site.label, attempt.site.tools) == ("Be kind.", ("find", "mcp:docs", "webSearch"))
    assert (attempt.tool_results_in, attempt.parent_id) == (("c1",), "r0")


def test_sampling_and_compaction() -> None:
    """The older sampling call and the compaction pass are read alike."""
    sampled = read({"choices": [{"text": "ok", "finishReason": "REASON_STOP"}], "usage": usage(3, 1, total=4)},
                   url=XAI + "/xai_api.Sample/SampleText")  # fmt: skip
    packed = read({"encryptedContent": "…", "usage": usage(50, 5, total=55)}, url=XAI + "/xai_api.Chat/CompactContext")

    assert (sampled.kind, sampled.status, tokens(sampled)) == ("generate", "ok", (3, 0, 1, 0))
    assert (packed.kind, packed.status, tokens(packed)) == ("compact", "ok", (50, 0, 5, 0))


CREATE = b'{"type": "response.create", "model": "m", "instructions": "Be kind.", "input": "hi"}'
EVENTS = b"""{"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
{"type": "response.output_text.delta", "delta": "ok"}
{"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 5, "output_tokens": 2}}}
"""


def test_response_on_a_channel() -> None:
    """Of a channel one response is read: the message that asked for it, and those that answered, one a line."""
    url = "wss://api.openai.com/v1/responses"
    attempt = read_call("WS", url, CREATE, 200, LINES, EVENTS)

    assert attempt is not None
    assert (attempt.api, attempt.kind, attempt.status) == ("openai.responses", "generate", "ok")
    assert (tokens(attempt)[0], tokens(attempt)[2], attempt.stream) == (5, 2, True)
    assert attempt.site is not None
    assert attempt.site.label == "Be kind."
    assert read_call("WS", url, b"", 101, (), b"") is None  # a channel, and nothing is known of it
    assert read_call("GET", url, b"", 101, (), b"") is None
    assert read_call("WS", "wss://api.openai.com/v1/realtime", CREATE, 200, LINES, EVENTS) is None


@given(st.sampled_from([("WS", "wss://h/v1/responses"), ("GRPC", URL)]), st.binary(), st.integers(0, 600), st.binary())
def test_any_bytes(way: tuple[str, str], request: bytes, status: int, body: bytes) -> None:
    """Whatever arrives, the reading ends with a record or with None."""
    for headers in (ONE, LINES, ()):
        attempt = read_call(*way, request, status, headers, body)
        assert attempt is None or "codec_error" not in attempt.notes


def test_readable() -> None:
    """xAI has a codec."""
    assert is_readable(classify("GRPC", URL))
