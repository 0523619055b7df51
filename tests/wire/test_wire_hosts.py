"""Hosts that run models, and where their keys are sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fanout.wire.hosts import KEY_VARIABLES, is_model_host, provider_label


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("api.openai.com", "openai"),
        ("EU.api.openai.com:443", "openai"),
        ("api.openai.com.", "openai"),
        ("acme.openai.azure.com", "azure"),
        ("r.services.ai.azure.com", "azure"),
        ("models.inference.ai.azure.com", "github"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("us-east5-aiplatform.googleapis.com", "vertex"),
        ("aiplatform.googleapis.com", "vertex"),
        ("aiplatform.us.rep.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("bedrock-mantle.us-east-1.api.aws", "bedrock"),
        ("api.eu.mistral.ai", "mistral"),
        ("api.cohere.com", "cohere"),
        ("api.groq.com", "groq"),
        ("api.together.xyz", "together"),
        ("api.x.ai", "xai"),
        ("openrouter.ai", "openrouter"),
        ("router.huggingface.co", "huggingface"),
        ("api.deepseek.com", "deepseek"),
        ("s3.us-east-1.amazonaws.com", None),
        ("oauth2.googleapis.com", None),
        ("myapi.openai.com.evil.example", None),
        ("openai.com", None),
        ("evilapi.openai.com", None),
        ("localhost:8000", None),
        ("[::1]:8000", None),
        ("", None),
    ],
)
def test_known_hosts_have_a_label(host: str, label: str | None) -> None:
    """A model host is known by name, in any case, with or without a port; nothing else is."""
    assert provider_label(host) == label
    assert is_model_host(host) is (label is not None)


@pytest.mark.parametrize(
    ("pattern", "host", "fits"),
    [
        ("gpu-box", "gpu-box:8000", True),
        ("gpu-box:8000", "gpu-box:8000", True),
        ("gpu-box:8000", "gpu-box:9000", False),
        ("gpu-box:8000", "gpu-box", False),
        ("*.llm.example", "a.b.llm.example", True),
        ("*.llm.example", "llm.example", False),
        ("[::1]:8000", "[::1]:8000", True),
        ("10.0.0.1", "10.0.0.12", False),
        ("gpu.box", "gpuxbox", False),
        ("", "", False),
    ],
)
def test_hosts_of_the_user_are_patterns(pattern: str, host: str, fits: bool) -> None:
    """A pattern with a port wants that port; a star stands for any characters; a dot is a dot."""
    assert is_model_host(host, [pattern]) is fits


@given(st.text(), st.lists(st.text(), max_size=3))
def test_no_text_breaks_the_host_rules(host: str, extra: list[str]) -> None:
    """Whatever stands for a host or a pattern, the answer is yes or no."""
    assert is_model_host(host, extra) in (True, False)


@pytest.mark.parametrize(
    ("variable", "places"),
    [
        ("OPENAI_API_KEY", ("authorization",)),
        ("AZURE_OPENAI_API_KEY", ("api-key", "authorization")),
        ("ANTHROPIC_API_KEY", ("x-api-key", "authorization")),
        ("GEMINI_API_KEY", ("x-goog-api-key", "query:key", "authorization")),
        ("HF_TOKEN", ("authorization",)),
    ],
)
def test_each_key_variable_says_where_its_key_is_sent(variable: str, places: tuple[str, ...]) -> None:
    """Places are header names in lower case, or a query parameter."""
    assert KEY_VARIABLES[variable] == places
