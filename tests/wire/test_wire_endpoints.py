"""Which URL asks for what."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.records import Endpoint
from pytest_fanout.wire import classify, is_readable, is_unclassified
from pytest_fanout.wire.endpoints import is_stream_url, model_in_url

GOOGLE = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
VECTORS = [
    ("POST", "https://api.openai.com/v1/chat/completions", "openai.chat", "generate"),
    ("GET", "https://api.openai.com/v1/chat/completions", None, "other"),
    ("POST", "https://eu.api.openai.com/v1/responses", "openai.responses", "generate"),
    ("POST", "https://api.openai.com/v1/responses?beta=true", "openai.responses", "generate"),
    ("POST", "https://api.openai.com/v1/responses/compact", "openai.responses", "compact"),
    ("POST", "https://api.openai.com/v1/responses/input_tokens", None, "count"),
    ("POST", "https://api.openai.com/v1/responses/resp_1/cancel", None, "other"),
    ("GET", "https://api.openai.com/v1/responses/resp_1", None, "other"),
    ("WS", "wss://api.openai.com/v1/responses", "openai.responses", "channel"),
    (
        "POST",
        "https://a.openai.azure.com/openai/deployments/d/chat/completions?api-version=x",
        "openai.chat",
        "generate",
    ),
    ("POST", "https://a.openai.azure.com/openai/responses?api-version=x", "openai.responses", "generate"),
    ("POST", "https://a.openai.azure.com/openai/v1/responses", "openai.responses", "generate"),
    ("POST", "https://a.openai.azure.com/openai/deployments/d/embeddings?api-version=x", "embeddings", "embed"),
    ("POST", "https://api.openai.com/v1/conversations", None, "other"),
    ("POST", "https://api.mistral.ai/v1/conversations", "mistral.conversations", "generate"),
    ("POST", "https://api.mistral.ai/v1/agents/completions", "openai.chat", "generate"),
    ("POST", "https://api.openai.com/v1/moderations", "moderation", "moderate"),
    ("POST", "https://api.mistral.ai/v1/chat/moderations", "moderation", "moderate"),
    ("POST", "https://api.openai.com/v1/files", None, "other"),
    ("POST", "https://api.anthropic.com/v1/messages", "anthropic.messages", "generate"),
    ("POST", "https://api.anthropic.com/v1/messages?beta=true", "anthropic.messages", "generate"),
    ("POST", "https://api.anthropic.com/v1/messages/count_tokens", None, "count"),
    ("POST", "https://api.anthropic.com/v1/messages/batches", None, "batch"),
    ("POST", "https://r.services.ai.azure.com/anthropic/v1/messages", "anthropic.messages", "generate"),
    (
        "POST",
        f"{GOOGLE}/publishers/anthropic/models/claude-x@20260101:streamRawPredict",
        "anthropic.messages",
        "generate",
    ),
    ("POST", f"{GOOGLE}/publishers/anthropic/models/count-tokens:rawPredict", None, "count"),
    (
        "POST",
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        "gemini.generate",
        "generate",
    ),
    ("POST", "https://generativelanguage.googleapis.com/v1/models/gemini-x:countTokens", None, "count"),
    ("POST", "https://generativelanguage.googleapis.com/v1/models/m:batchEmbedContents", "embeddings", "embed"),
    ("POST", "https://generativelanguage.googleapis.com/v1beta/interactions", "gemini.interactions", "generate"),
    (
        "POST",
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/openai/v1/responses",
        "openai.responses",
        "generate",
    ),
    ("POST", "https://bedrock-mantle.us-east-1.api.aws/openai/v1/chat/completions", "openai.chat", "generate"),
    (
        "POST",
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse-stream",
        "bedrock.converse",
        "generate",
    ),
    ("POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/count-tokens", None, "count"),
    ("POST", "https://api.cohere.com/v2/chat", "cohere.chat", "generate"),
    ("POST", "https://api.cohere.com/v2/rerank", "rerank", "rerank"),
    ("POST", "http://localhost:11434/api/chat", "ollama.chat", "generate"),
    ("POST", "http://localhost:11434/api/show", None, "other"),
    ("POST", "http://localhost:11434/v1/chat/completions", "openai.chat", "generate"),
    ("POST", "https://oauth2.googleapis.com/token", None, "other"),
    ("POST", "https://api.openai.com/v1/agents/sessions/s1/events", None, "agent_run"),
    ("POST", "https://api.anthropic.com/v1/sessions/s1/events", None, "agent_run"),
    ("POST", "http://proxy:4000/chat/completions", "openai.chat", "generate"),
    ("POST", "https://api.groq.com/openai/v1/chat/completions", "openai.chat", "generate"),
]


@pytest.mark.parametrize(("method", "url", "api", "kind"), VECTORS)
def test_each_known_url_has_its_api_and_kind(method: str, url: str, api: str | None, kind: str) -> None:
    """A5: generation endpoints are told from counting, storage, batches and embeddings by method and path."""
    assert classify(method, url) == Endpoint(api, kind)


def test_there_are_44_vectors() -> None:
    """The table above is whole."""
    assert len(VECTORS) == 44


@pytest.mark.parametrize(
    ("url", "api", "kind"),
    [
        ("http://h/v1/chat/completions/", "openai.chat", "generate"),
        ("http://h/v1/completions", "openai.completions", "generate"),
        ("http://h/v1/fim/completions", "openai.chat", "generate"),
        ("http://h/v1/decisions", "openai.decisions", "generate"),
        ("http://h/api/generate", "ollama.generate", "generate"),
        ("https://api.eu.mistral.ai/v1/conversations/c1/restart", "mistral.conversations", "generate"),
        (f"{GOOGLE}/publishers/mistralai/models/m:rawPredict", "openai.chat", "generate"),
        (f"{GOOGLE}/publishers/other/models/m:rawPredict", "vertex.predict", "generate"),
        (f"{GOOGLE}/publishers/google/models/m:predict", "embeddings", "embed"),
        (f"{GOOGLE}/publishers/google/models/m:predictLongRunning", None, "batch"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/invoke", "bedrock.invoke", "generate"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/titan-embed-x/invoke", "bedrock.invoke", "embed"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/async-invoke", None, "other"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/guardrail/g/version/1/apply", None, "other"),
        ("https://api.anthropic.com/v1/messages/batches/b1/cancel", None, "batch"),
        ("https://api.anthropic.com/v1/sessions/s/threads/t/events", None, "agent_run"),
        ("https://api.cohere.com/v2/embed", "embeddings", "embed"),
        ("https://api.mistral.ai/v1/classifications", "moderation", "moderate"),
        ("wss://api.openai.com/v1/realtime", None, "other"),
    ],
)
def test_rules_beyond_the_vectors(url: str, api: str | None, kind: str) -> None:
    """Every rule of the table answers for a URL of its own."""
    assert classify("POST", url) == Endpoint(api, kind)


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS", ""])
def test_only_post_is_a_call(method: str) -> None:
    """Polling and deleting are no model calls, whatever the path."""
    assert classify(method, "https://api.openai.com/v1/responses") == Endpoint(None, "other")


def test_a_socket_is_known_by_its_scheme_too() -> None:
    """An upgrade is a GET to a ws: URL; it opens a channel of calls."""
    assert classify("get", "wss://api.openai.com/v1/responses?x=1") == Endpoint("openai.responses", "channel")


@pytest.mark.parametrize(
    ("api", "readable"),
    [
        ("openai.chat", True),
        ("openai.completions", True),
        ("openai.responses", True),
        ("anthropic.messages", True),
        ("embeddings", True),
        ("openai.decisions", True),
        ("gemini.generate", True),
        ("gemini.interactions", True),
        ("mistral.conversations", True),
        ("ollama.chat", True),
        ("ollama.generate", True),
        ("bedrock.converse", True),
        ("bedrock.invoke", True),
        ("cohere.chat", True),
        ("vertex.predict", True),
        ("rerank", True),
        ("moderation", True),
        ("brand.new", False),
        (None, False),
    ],
)
def test_is_readable_names_the_codecs(api: str | None, readable: bool) -> None:
    """An endpoint is readable when a codec for its API exists."""
    assert is_readable(Endpoint(api, "generate")) is readable


@pytest.mark.parametrize(
    ("method", "url", "unclassified"),
    [
        ("POST", "https://api.openai.com/v1/brand-new", True),
        ("POST", "https://api.openai.com/v1/threads/t/runs", True),
        ("POST", f"{GOOGLE}/endpoints/1:serverStreamingPredict", True),
        ("POST", "https://api-inference.huggingface.co/models/gpt2", True),
        ("WS", "wss://api.openai.com/v1/realtime", True),
        ("POST", "http://gpu-box:8000/v1/brand-new", True),
        ("POST", "https://api.openai.com/v1/messages/count_tokens", False),
        ("GET", "https://api.anthropic.com/v1/models", False),
        ("POST", "https://api.openai.com/v1/files", False),
        ("POST", "https://api.openai.com/v1/vector_stores/vs/files", False),
        ("POST", "https://api.openai.com/v1/images/generations", False),
        ("POST", "https://api.openai.com/v1/embeddings", False),
        ("POST", "https://api.openai.com/v1/chat/completions", False),
        ("POST", "http://gpu-box:9000/v1/brand-new", False),
        ("POST", "https://example.org/v1/brand-new", False),
    ],
)
def test_an_unknown_post_to_a_model_host_is_unclassified(method: str, url: str, unclassified: bool) -> None:
    """A5: a POST that no rule names, at a host that runs models, is reported and not guessed."""
    assert is_unclassified(method, url, ("gpu-box:8000",)) is unclassified


@pytest.mark.parametrize(
    ("url", "model"),
    [
        ("https://a.openai.azure.com/openai/deployments/prod-gpt/chat/completions?api-version=x", "prod-gpt"),
        (f"{GOOGLE}/publishers/anthropic/models/claude-x@20260101:rawPredict", "claude-x@20260101"),
        (
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-x%3A0/converse",
            "anthropic.claude-x:0",
        ),
        ("https://api.openai.com/v1/responses", None),
    ],
)
def test_a_model_that_only_the_url_names_is_read_there(url: str, model: str | None) -> None:
    """Azure deployments, Vertex and Bedrock put the model into the path, percent-encoded."""
    assert model_in_url(url) == model


@given(st.text(), st.text())
def test_no_text_breaks_classify(method: str, url: str) -> None:
    """Whatever stands for a URL, the answer is an Endpoint."""
    assert classify(method, url).kind
    assert is_unclassified(method, url) in (True, False)


def test_a_huge_url_costs_no_time() -> None:
    """Rules look at the end of a path, so a URL of a million segments is answered at once."""
    url = "https://h" + "/model/sessions" * 300_000 + "/v1/messages"
    begun = time.process_time()

    assert classify("POST", url) == Endpoint("anthropic.messages", "generate")
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("path", "api", "model", "streams"),
    [
        ("/v1//messages", "anthropic.messages", None, False),
        ("/api//chat", "ollama.chat", None, False),
        ("/v1/chat//completions", "openai.chat", None, False),
        ("/v1/chat/./completions", "openai.chat", None, False),
        ("/v1/other/../messages", "anthropic.messages", None, False),
        ("/v1/chat/%63ompletions", "openai.chat", None, False),
        ("/v1/%6D%65ssages", "anthropic.messages", None, False),
        ("/v1beta/models/m%3AgenerateContent", "gemini.generate", "m", False),
        ("/v1beta/models/m%3astreamGenerateContent", "gemini.generate", "m", True),
        ("/model/a%2Fb%3A0/converse%2Dstream", "bedrock.converse", "a/b:0", True),
        ("/tool/chat%2Fnotes//", None, None, False),
    ],
)
def test_spellings_of_a_path(path: str, api: str | None, model: str | None, streams: bool) -> None:
    """A path is read as servers read it, whatever slashes, dots and coded characters it is spelt with."""
    url = "https://llm.example" + path
    assert classify("POST", url).api == api
    assert model_in_url(url) == model
    assert is_stream_url(url) == streams


def test_spellings_of_what_is_no_call() -> None:
    """Storage at a model host is known by any spelling; one that hides a path nobody knows is not."""
    assert not is_unclassified("POST", "https://api.openai.com//v1/./files")
    assert is_unclassified("POST", "https://api.openai.com/v1/files/../unheard-of")
