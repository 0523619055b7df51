"""Hosts that run models for others, and the environment variables that hold their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

#: Label -> host patterns; ``*`` stands for one or more characters, dots included.
_HOSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("api.openai.com", "*.api.openai.com"),
    # before azure: one of its names fits a pattern there
    "github": ("models.inference.ai.azure.com", "models.github.ai"),
    "azure": (
        "*.openai.azure.com",
        "*.openai.azure.us",
        "*.openai.azure.cn",
        "*.services.ai.azure.com",
        "*.cognitiveservices.azure.com",
        "*.inference.ai.azure.com",
        "*.models.ai.azure.com",
    ),
    "anthropic": ("api.anthropic.com", "*.api.anthropic.com"),
    "gemini": ("generativelanguage.googleapis.com", "generativelanguage.mtls.googleapis.com"),
    "vertex": (
        "aiplatform.googleapis.com",
        "*-aiplatform.googleapis.com",
        "aiplatform.mtls.googleapis.com",
        "*-aiplatform.mtls.googleapis.com",
        "aiplatform.*.rep.googleapis.com",
        "aiplatform.*.rep.mtls.googleapis.com",
    ),
    "bedrock": (
        "bedrock-runtime.*.amazonaws.com",
        "bedrock-runtime.*.amazonaws.com.cn",
        "bedrock-runtime-fips.*.amazonaws.com",
        "bedrock-runtime.*.api.aws",
        "bedrock-runtime-fips.*.api.aws",
        "bedrock-mantle.*.api.aws",
        "bedrock-agent-runtime.*.amazonaws.com",
        "*.bedrock-runtime.*.vpce.amazonaws.com",
    ),
    "mistral": ("api.mistral.ai", "api.*.mistral.ai", "codestral.mistral.ai"),
    "cohere": ("api.cohere.com", "api.cohere.ai"),
    "groq": ("api.groq.com",),
    "together": ("api.together.ai", "api.together.xyz"),
    "xai": ("api.x.ai", "*.api.x.ai"),
    "openrouter": ("openrouter.ai", "*.openrouter.ai"),
    "huggingface": ("router.huggingface.co", "api-inference.huggingface.co", "*.endpoints.huggingface.cloud"),
    "deepseek": ("api.deepseek.com",),
    "fireworks": ("api.fireworks.ai",),
    "perplexity": ("api.perplexity.ai",),
    "cerebras": ("api.cerebras.ai",),
    "sambanova": ("api.sambanova.ai",),
    "nvidia": ("integrate.api.nvidia.com", "ai.api.nvidia.com"),
    "replicate": ("api.replicate.com",),
    "ollama": ("ollama.com", "api.ollama.com"),
    "moonshot": ("api.moonshot.ai", "api.moonshot.cn"),
    "zhipu": ("api.z.ai", "open.bigmodel.cn"),
    "dashscope": ("dashscope.aliyuncs.com", "dashscope-*.aliyuncs.com"),
    "ai21": ("api.ai21.com",),
    "deepinfra": ("api.deepinfra.com",),
    "novita": ("api.novita.ai",),
    "nebius": ("api.studio.nebius.ai", "api.studio.nebius.com", "api.tokenfactory.nebius.com"),
    "hyperbolic": ("api.hyperbolic.xyz",),
    "baseten": ("inference.baseten.co",),
    "voyage": ("api.voyageai.com",),
    "jina": ("api.jina.ai",),
    "minimax": ("api.minimax.io", "api.minimaxi.com"),
    "watsonx": ("*.ml.cloud.ibm.com",),
    "cloudflare": ("gateway.ai.cloudflare.com",),
    "vercel": ("ai-gateway.vercel.sh",),
    "portkey": ("api.portkey.ai",),
    "helicone": ("*.helicone.ai",),
}

_BEARER = ("authorization",)
#: Environment variable -> the places in a request that its key is sent in: names of headers (``authorization`` holds
#: it after "Bearer "), and ``query:NAME`` for a parameter of the URL. AWS access keys sign requests and are not here.
KEY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "AI21_API_KEY": _BEARER,
        "ANTHROPIC_API_KEY": ("x-api-key", "authorization"),
        "ANTHROPIC_AUTH_TOKEN": _BEARER,
        "ANTHROPIC_FOUNDRY_API_KEY": ("x-api-key", "api-key", "authorization"),
        "AWS_BEARER_TOKEN_BEDROCK": ("authorization", "x-api-key"),
        "AZURE_API_KEY": ("api-key", "authorization"),
        "AZURE_INFERENCE_CREDENTIAL": ("api-key", "authorization"),
        "AZURE_OPENAI_AD_TOKEN": _BEARER,
        "AZURE_OPENAI_API_KEY": ("api-key", "authorization"),
        "CEREBRAS_API_KEY": _BEARER,
        "COHERE_API_KEY": _BEARER,
        "CO_API_KEY": _BEARER,
        "DASHSCOPE_API_KEY": _BEARER,
        "DEEPINFRA_API_KEY": _BEARER,
        "DEEPINFRA_TOKEN": _BEARER,
        "DEEPSEEK_API_KEY": _BEARER,
        "FIREWORKS_API_KEY": _BEARER,
        "GEMINI_API_KEY": ("x-goog-api-key", "query:key", "authorization"),
        "GOOGLE_API_KEY": ("x-goog-api-key", "query:key", "authorization"),
        "GROQ_API_KEY": _BEARER,
        "HF_TOKEN": _BEARER,
        "HUGGINGFACEHUB_API_TOKEN": _BEARER,
        "HUGGING_FACE_HUB_TOKEN": _BEARER,
        "JINA_API_KEY": _BEARER,
        "LITELLM_API_KEY": ("authorization", "x-api-key", "api-key"),
        "MINIMAX_API_KEY": _BEARER,
        "MISTRAL_API_KEY": _BEARER,
        "MOONSHOT_API_KEY": _BEARER,
        "NVIDIA_API_KEY": _BEARER,
        "OLLAMA_API_KEY": _BEARER,
        "OPENAI_ADMIN_KEY": _BEARER,
        "OPENAI_API_KEY": _BEARER,
        "OPENROUTER_API_KEY": _BEARER,
        "PERPLEXITY_API_KEY": _BEARER,
        "PORTKEY_API_KEY": ("x-portkey-api-key",),
        "REPLICATE_API_TOKEN": _BEARER,
        "SAMBANOVA_API_KEY": _BEARER,
        "TOGETHER_API_KEY": _BEARER,
        "VOYAGE_API_KEY": _BEARER,
        "XAI_API_KEY": _BEARER,
        "ZAI_API_KEY": _BEARER,
    }
)


def is_model_host(host: str, extra: Iterable[str] = ()) -> bool:
    """Whether a host serves models: a known one, or one of ``extra``.

    Args:
        host: a name or address, with or without ``:port``, any case.
        extra: patterns of the user's own: a host, ``host:port`` (that port only), or ``*`` for any characters.
    """
    if provider_label(host) is not None:
        return True
    name, port = _name_and_port(host)
    for pattern in extra:
        wanted, wanted_port = _name_and_port(pattern)
        if wanted_port in (None, port) and _matches(wanted, name):
            return True
    return False


def provider_label(host: str) -> str | None:
    """A short name for who runs a known model host; None for any other."""
    found = _known().fullmatch(_name_and_port(host)[0])
    return found.lastgroup if found else None


@cache
def _known() -> re.Pattern[str]:
    groups = (f"(?P<{label}>{'|'.join(map(_as_regex, patterns))})" for label, patterns in _HOSTS.items())
    return re.compile("|".join(groups))


def _as_regex(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", "[a-z0-9._-]+")


def _matches(pattern: str, name: str) -> bool:
    return bool(pattern) and re.fullmatch(_as_regex(pattern), name) is not None


def _name_and_port(host: str) -> tuple[str, str | None]:
    text = host.strip().lower()[:300]
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, rest.removeprefix(":") or None
    name, colon, port = text.partition(":")
    if colon and ":" not in port:
        return name.removesuffix("."), port or None
    return text.removesuffix("."), None
