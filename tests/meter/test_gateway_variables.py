"""Base URLs of the SDKs lead to the gateway, and from there to where they led before."""

from __future__ import annotations

import pytest

from pytest_fanout.meter.gateway.variables import VARIABLES, Routes
from pytest_fanout.wire import hosts

URL = "http://127.0.0.1:4000"
HOME = URL + "/t-00112233445566ff"


def led_to(base: dict[str, str], name: str, path: str, routes: Routes | None = None) -> str | None:
    """Where a request goes that an SDK makes from this variable; None when the variable is left alone."""
    routes = routes or Routes()
    value = routes.variables(base, URL, HOME).get(name)
    if value is None:
        return None
    assert value.startswith(HOME + "/")
    found = routes.find(value.removeprefix(HOME) + path)
    assert found is not None
    return found[0].target(found[1])


@pytest.mark.parametrize(
    ("name", "path", "url"),
    [
        ("OPENAI_BASE_URL", "/responses?x=1", "https://api.openai.com/v1/responses?x=1"),
        ("OPENAI_API_BASE", "/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("ANTHROPIC_BASE_URL", "/v1/messages?beta=true", "https://api.anthropic.com/v1/messages?beta=true"),
        ("ANTHROPIC_BASE_URL", "/messages", "https://api.anthropic.com/v1/messages"),
        ("ANTHROPIC_API_URL", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("GOOGLE_GEMINI_BASE_URL", "/v1/models/g:countTokens", "https://generativelanguage.googleapis.com/v1/models/g:countTokens"),
        ("GEMINI_API_BASE", "/models/g:generateContent", "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent"),
        ("CO_API_URL", "/v2/chat", "https://api.cohere.com/v2/chat"),
        ("GROQ_BASE_URL", "/openai/v1/chat/completions", "https://api.groq.com/openai/v1/chat/completions"),
        ("TOGETHER_BASE_URL", "/v1/chat/completions", "https://api.together.ai/v1/chat/completions"),
        ("MISTRAL_API_BASE", "/chat/completions", "https://api.mistral.ai/v1/chat/completions"),
        ("OPENROUTER_API_BASE", "/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("OLLAMA_HOST", "/api/chat", "http://127.0.0.1:11434/api/chat"),
    ],
)  # fmt: skip
def test_where_nothing_was_set_the_provider_is_asked(name: str, path: str, url: str) -> None:
    """Without a value each variable leads to the SDK's own default."""
    assert led_to({}, name, path) == url


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_a_value_that_was_set_is_the_upstream(variable: object) -> None:
    """A local server that a variable led to is where it still leads, for every variable of the table."""
    name = variable.name  # type: ignore[attr-defined]
    assert led_to({name: "http://localhost:8000/base/"}, name, "/x?y=1") == "http://localhost:8000/base/x?y=1"


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_defaults_are_known_model_hosts(variable: object) -> None:
    """Each default is a host that the wire knows as one that serves models, or this machine."""
    default = variable.default  # type: ignore[attr-defined]
    if default is not None:
        host = default.replace("{region}", "eu-west-1").split("/")[2]
        assert hosts.is_model_host(host) or host == "127.0.0.1:11434"


def test_names_of_one_meaning_go_together() -> None:
    """Where only one of two names for the same thing was set, the other leads there too."""
    base = {"OPENAI_BASE_URL": "http://vllm:8000/v1"}

    assert led_to(base, "OPENAI_API_BASE", "/x") == "http://vllm:8000/v1/x"


def test_two_upstreams_of_one_provider_are_kept_apart() -> None:
    """Two environments with different servers share one gateway without mixing them up."""
    routes = Routes()
    first = led_to({"OPENAI_BASE_URL": "http://a:1/v1"}, "OPENAI_BASE_URL", "/x", routes)
    second = led_to({"OPENAI_BASE_URL": "http://b:2/v1"}, "OPENAI_BASE_URL", "/x", routes)
    again = led_to({"OPENAI_BASE_URL": "http://a:1/v1"}, "OPENAI_BASE_URL", "/x", routes)

    assert (first, second, again) == ("http://a:1/v1/x", "http://b:2/v1/x", "http://a:1/v1/x")


def test_an_environment_of_the_gateway_leads_where_it_led() -> None:
    """An environment made from one that leads to the gateway keeps its upstreams and takes the new token."""
    routes = Routes()
    once = routes.variables({"OPENAI_BASE_URL": "http://a:1/v1"}, URL, HOME)
    other = URL + "/t-ffeeddccbbaa9900"
    twice = routes.variables(once, URL, other)

    assert twice["OPENAI_BASE_URL"] == other + once["OPENAI_BASE_URL"].removeprefix(HOME)
    found = routes.find(twice["OPENAI_BASE_URL"].removeprefix(other) + "/x")
    assert found is not None
    assert found[0].target(found[1]) == "http://a:1/v1/x"


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/api/chat"),
        ("gpu-box:9999", "http://gpu-box:9999/api/chat"),
        ("https://ollama.example/base", "https://ollama.example/base/api/chat"),
    ],
)
def test_a_bare_host_is_a_url(value: str, url: str) -> None:
    """OLLAMA_HOST may be a host, with or without a port; where a server listens on all addresses it is found here."""
    assert led_to({"OLLAMA_HOST": value}, "OLLAMA_HOST", "/api/chat") == url


def test_the_region_comes_from_the_environment() -> None:
    """Bedrock and Vertex have a host for each region: it is known from the environment, or the route leads nowhere."""
    path = "/model/m/converse"
    base = {"AWS_REGION": "eu-west-1"}

    assert led_to(base, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", path) == (
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse"
    )
    assert Routes().find("/bedrock" + path) is None
    assert led_to({}, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", path) is None
    assert led_to({"CLOUD_ML_REGION": "global"}, "ANTHROPIC_VERTEX_BASE_URL", "/projects") == (
        "https://aiplatform.googleapis.com/v1/projects"
    )


def test_signed_requests_take_the_proxy_where_there_is_one() -> None:
    """A signature holds for one host: with a forward proxy the clients of Bedrock and Vertex keep theirs."""
    found = Routes().variables({"AWS_REGION": "eu-west-1"}, URL, HOME, proxied=True)

    assert not [name for name in found if name.startswith("AWS_") or "BEDROCK" in name or "VERTEX" in name]
    assert "OPENAI_BASE_URL" in found


def test_azure_keeps_its_own_endpoint() -> None:
    """The Azure client of Node would take OPENAI_BASE_URL before its endpoint, so it is not set beside it."""
    base = {"AZURE_OPENAI_ENDPOINT": "https://shop.openai.azure.com/"}
    found = Routes().variables(base, URL, HOME)

    assert "OPENAI_BASE_URL" not in found
    assert led_to(base, "AZURE_OPENAI_ENDPOINT", "/openai/responses") == (
        "https://shop.openai.azure.com/openai/responses"
    )
