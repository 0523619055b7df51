"""For code that nobody trusts: a key goes to its own provider, or to the server that its base-URL variable names."""

from __future__ import annotations

import json

import pytest
from gatewaying import CHAT, behind
from model_server import ModelServer

from pytest_fanout.meter.gateway.destinations import Destinations

REAL = "sk-real-0123456789abcdef"


def dummy(name: str) -> str:
    return f"fanout-sealed-{name}-0123456789abcd00"


def test_a_key_reaches_the_server_that_is_named_and_no_other(model: ModelServer) -> None:
    """The agent's own listener, asked through the proxy or by another route, never sees the key."""
    with ModelServer() as thief, behind(model, OPENAI_API_KEY=REAL, OLLAMA_HOST=thief.base_url, proxy=True) as child:
        child.gateway.bind_keys({"OPENAI_BASE_URL": model.base_url + "/v1", "OLLAMA_HOST": thief.base_url})
        proxied = thief.base_url + "/v1/chat/completions"
        routed = child.env["OLLAMA_HOST"] + "/v1/chat/completions"
        answers = [
            json.loads(child.curl("-H", f"Authorization: Bearer {child.key}", url, body=CHAT).stdout)
            for url in (child.chat, proxied, routed, f"{proxied}?key={child.key}")
        ]
        problems = child.scope.problems

    assert [entry.headers["authorization"] for entry in model.log] == [f"Bearer {REAL}"]
    assert thief.log == []
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, *["key-misled"] * 3]
    text = (
        f"POST {proxied} would have carried OPENAI_API_KEY to a server that it is not for: nothing was sent\n"
        "  mend: where that server is yours, name it in its base-URL variable around the gateway"
    )
    assert ("key-misled", text, "invalid") in [(found.slug, found.text, found.verdict) for found in problems]


@pytest.mark.parametrize(
    ("name", "url", "may_go"),
    [
        ("OPENAI_API_KEY", "https://api.openai.com/v1/responses", True),
        ("OPENAI_API_KEY", "https://eu.api.openai.com/v1/responses", True),
        ("OPENAI_API_KEY", "wss://api.openai.com/v1/responses", True),
        ("OPENAI_API_KEY", "http://api.openai.com/v1/responses", False),
        ("OPENAI_API_KEY", "https://api.openai.com:8443/v1/responses", False),
        ("OPENAI_API_KEY", "https://api.openai.com.evil.example/v1", False),
        ("OPENAI_API_KEY", "https://api.openai.com@evil.example/v1", False),
        ("OPENAI_API_KEY", "https://api.anthropic.com/v1/messages", False),
        ("ANTHROPIC_AUTH_TOKEN", "https://api.anthropic.com/v1/messages", True),
        ("GOOGLE_API_KEY", "https://generativelanguage.googleapis.com/v1beta/models", True),
        ("HF_TOKEN", "https://router.huggingface.co/v1/chat/completions", True),
        ("HF_TOKEN", "https://mine.endpoints.huggingface.cloud/v1/chat/completions", False),
        ("AZURE_OPENAI_API_KEY", "https://ours.openai.azure.com/openai/v1/responses", True),
        ("AZURE_OPENAI_API_KEY", "https://theirs.openai.azure.com/openai/v1/responses", False),
        ("LITELLM_API_KEY", "https://api.openai.com/v1/responses", False),
    ],
)
def test_where_each_key_may_go(name: str, url: str, may_go: bool) -> None:
    """By TLS to the provider itself; hosts that anybody can rent only where the environment names them."""
    bound = Destinations({"AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com"})
    header = [(b"authorization", b"Bearer " + dummy(name).encode())]

    assert bound.misled(header, url) == (None if may_go else name)


def test_each_key_of_a_request_is_looked_at() -> None:
    """A second key beside the right one, in a header or percent-encoded in the URL."""
    bound, url = Destinations({}), "https://api.openai.com/v1/responses"
    both = f"Bearer {dummy('OPENAI_API_KEY')}, {dummy('GROQ_API_KEY')}".encode()

    assert bound.misled([(b"authorization", both)], url) == "GROQ_API_KEY"
    assert bound.misled([], url + "?key=fanout%2Dsealed-GROQ_API_KEY-0123456789abcd00") == "GROQ_API_KEY"
    assert bound.misled([(b"authorization", b"Bearer of-its-own")], "https://evil.example/") is None
