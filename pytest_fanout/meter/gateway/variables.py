"""Base-URL variables of the SDKs, and the routes of the gateway that they point at. Pure but for the routes it keeps.

Read from the sources of the packages named (state of the table in docs/gateway.md). A variable that means one thing in
one package and another thing in the next (with or without ``/v1``) is rewritten only where it was set.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_DEFAULT_REGION: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class Variable:
    """``default``: where the SDK goes when nothing is set; ``{region}`` is filled in from the environment. None: the
    variable is left alone unless it was set. ``like``: a variable of the same meaning, whose value is the default.
    ``version``: what begins each path of the provider, put there where a client of another make leaves it out.
    ``signed``: its requests are signed for the host they go to: where there is a forward proxy they take that instead.
    """

    name: str
    label: str  # begins the route
    default: str | None = None
    like: str | None = None
    region: tuple[str, ...] = ()
    version: str = ""
    signed: bool = False


VARIABLES: Final[tuple[Variable, ...]] = (
    Variable("OPENAI_BASE_URL", "openai", "https://api.openai.com/v1"),
    Variable("OPENAI_API_BASE", "openai", "https://api.openai.com/v1", like="OPENAI_BASE_URL"),
    # the AI SDK asks for /messages under it, all others for /v1/messages
    Variable("ANTHROPIC_BASE_URL", "anthropic", "https://api.anthropic.com", version="/v1"),
    Variable("ANTHROPIC_API_URL", "anthropic", "https://api.anthropic.com", like="ANTHROPIC_BASE_URL", version="/v1"),
    Variable("ANTHROPIC_API_BASE", "anthropic"),
    Variable("GOOGLE_GEMINI_BASE_URL", "gemini", "https://generativelanguage.googleapis.com"),
    Variable("GEMINI_API_BASE", "gemini", "https://generativelanguage.googleapis.com/v1beta"),
    Variable("GOOGLE_VERTEX_BASE_URL", "vertex"),
    Variable(
        "ANTHROPIC_VERTEX_BASE_URL",
        "vertex",
        "https://{region}-aiplatform.googleapis.com/v1",
        region=("CLOUD_ML_REGION",),
        signed=True,
    ),
    Variable("CO_API_URL", "cohere", "https://api.cohere.com"),
    Variable("COHERE_API_BASE", "cohere"),
    Variable("GROQ_BASE_URL", "groq", "https://api.groq.com"),
    Variable("GROQ_API_BASE", "groq"),
    Variable("TOGETHER_BASE_URL", "together", "https://api.together.ai"),
    Variable("TOGETHER_API_BASE_URL", "together"),
    Variable("MISTRAL_BASE_URL", "mistral", "https://api.mistral.ai/v1"),
    Variable("MISTRAL_API_BASE", "mistral", "https://api.mistral.ai/v1", like="MISTRAL_BASE_URL"),
    Variable("XAI_API_BASE", "xai", "https://api.x.ai/v1"),
    Variable("OPENROUTER_API_BASE", "openrouter", "https://openrouter.ai/api/v1"),
    Variable("DEEPSEEK_API_BASE", "deepseek", "https://api.deepseek.com/v1"),
    Variable("PERPLEXITY_BASE_URL", "perplexity", "https://api.perplexity.ai"),
    Variable("PERPLEXITY_API_BASE", "perplexity", "https://api.perplexity.ai", like="PERPLEXITY_BASE_URL"),
    Variable("CEREBRAS_BASE_URL", "cerebras", "https://api.cerebras.ai"),
    Variable("FIREWORKS_BASE_URL", "fireworks", "https://api.fireworks.ai"),
    Variable("FIREWORKS_API_BASE", "fireworks"),
    Variable("SAMBA_NOVA_BASE_URL", "sambanova", "https://api.sambanova.ai/v1"),
    Variable("SAMBANOVA_API_BASE", "sambanova", "https://api.sambanova.ai/v1", like="SAMBA_NOVA_BASE_URL"),
    Variable("NVIDIA_BASE_URL", "nvidia", "https://integrate.api.nvidia.com/v1"),
    Variable("NVIDIA_NIM_API_BASE", "nvidia", "https://integrate.api.nvidia.com/v1", like="NVIDIA_BASE_URL"),
    Variable("DEEPINFRA_API_BASE", "deepinfra", "https://api.deepinfra.com/v1/openai"),
    Variable("OLLAMA_HOST", "ollama", "http://127.0.0.1:11434"),
    Variable("OLLAMA_API_BASE", "ollama", "http://127.0.0.1:11434", like="OLLAMA_HOST"),
    Variable(
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        "bedrock",
        "https://bedrock-runtime.{region}.amazonaws.com",
        like="AWS_ENDPOINT_URL",
        region=_DEFAULT_REGION,
        signed=True,
    ),
    Variable(
        "AWS_BEDROCK_RUNTIME_ENDPOINT",
        "bedrock",
        "https://bedrock-runtime.{region}.amazonaws.com",
        like="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        region=_DEFAULT_REGION,
        signed=True,
    ),
    Variable(
        "ANTHROPIC_BEDROCK_BASE_URL",
        "bedrock",
        "https://bedrock-runtime.{region}.amazonaws.com",
        like="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        region=_DEFAULT_REGION,
        signed=True,
    ),
    Variable(
        "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        "bedrock-mantle",
        "https://bedrock-mantle.{region}.api.aws/anthropic",
        region=_DEFAULT_REGION,
        signed=True,
    ),
    Variable("AWS_BEDROCK_BASE_URL", "bedrock-mantle"),
    Variable("BEDROCK_MANTLE_API_BASE", "bedrock-mantle"),
    Variable("AZURE_OPENAI_ENDPOINT", "azure"),
    Variable("AZURE_API_BASE", "azure"),
    Variable("AZURE_AI_API_BASE", "azure-ai"),
    Variable("ANTHROPIC_FOUNDRY_BASE_URL", "foundry"),
    Variable("HF_INFERENCE_ENDPOINT", "huggingface"),
    Variable("HUGGINGFACE_API_BASE", "huggingface"),
    Variable("HOSTED_VLLM_API_BASE", "vllm"),
    Variable("OPENAI_LIKE_API_BASE", "openai-like"),
    Variable("LITELLM_PROXY_API_BASE", "litellm"),
    Variable("LM_STUDIO_API_BASE", "lm-studio"),
    Variable("DASHSCOPE_API_BASE", "dashscope"),
    Variable("DATABRICKS_API_BASE", "databricks"),
)


@dataclass(frozen=True, slots=True)
class Route:
    """What stands under ``prefix`` on the gateway. ``upstream`` None: its region is not known, ``needs`` names the
    variables that would say it."""

    prefix: str
    upstream: str | None
    needs: tuple[str, ...] = ()
    version: str = ""

    def target(self, rest: str) -> str | None:
        """The upstream's URL for what follows the prefix (with the query); None where no upstream is known."""
        if self.upstream is None:
            return None
        if self.version and not re.match(rf"{self.version}(/|\?|$)", rest):
            rest = self.version + rest
        return self.upstream + rest


class Routes:
    """The routes of one gateway. They come from environments, never from a request; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._routes: dict[str, Route] = {}

    def variables(self, base: Mapping[str, str], url: str, home: str, *, proxied: bool = False) -> dict[str, str]:
        """What to set in the environment ``base`` so that the SDKs come to the gateway.

        Args:
            url: of the gateway; a value that begins with it is one of ours already, and keeps its route.
            home: what the values begin with.
            proxied: a forward proxy sees what does not come by a base URL.
        """
        found: dict[str, str] = {}
        for variable in VARIABLES:
            if proxied and variable.signed and not base.get(variable.name):
                continue
            route = self._route(variable, base, url)
            if route is not None:
                found[variable.name] = home + route.prefix
        if "AZURE_OPENAI_ENDPOINT" in found and not base.get("OPENAI_BASE_URL"):
            # The Azure client of Node takes OPENAI_BASE_URL before the endpoint: it would leave its own deployment.
            del found["OPENAI_BASE_URL"]
            if not base.get("OPENAI_API_BASE"):
                del found["OPENAI_API_BASE"]
        return found

    def find(self, target: str) -> tuple[Route, str] | None:
        """The route of a request target (path and query), and what follows its prefix."""
        path = target.partition("?")[0]
        for prefix, route in list(self._routes.items()):
            if path == prefix or path.startswith(prefix + "/"):
                return route, target[len(prefix) :]
        return None

    def _route(self, variable: Variable, base: Mapping[str, str], url: str) -> Route | None:
        value = base.get(variable.name) or (base.get(variable.like) if variable.like else None)
        own = _own_route(value, url)
        if own is not None:
            known = self.find(own)
            return known[0] if known is not None else None
        upstream = _as_url(value) if value else None
        if upstream is not None:
            return self._keep(variable.label, upstream, (), "")
        if variable.default is None:
            return None
        region = next((base[name] for name in variable.region if base.get(name)), None)
        if variable.region and region is None:
            return self._keep(variable.label, None, variable.region, "")
        return self._keep(variable.label, _in_region(variable.default, region), (), variable.version)

    def _keep(self, label: str, upstream: str | None, needs: tuple[str, ...], version: str) -> Route:
        """The route of this upstream; a second upstream of one label gets a number."""
        path = urlsplit(upstream).path if upstream else ""
        with self._lock:
            number = 1
            while True:
                name = label if number == 1 else f"{label}-{number}"
                made = Route(f"/{name}{path}", upstream, needs, version)
                # A prefix must not begin another one of a different upstream: the longer path would be taken for it.
                taken = [r for p, r in self._routes.items() if p.split("/")[1] == name]
                if made in taken:
                    return made
                if not taken:
                    self._routes[made.prefix] = made
                    return made
                number += 1


def _own_route(value: str | None, url: str) -> str | None:
    """The route that a value of ours points at: without the gateway's URL and the token."""
    if not value or not value.startswith(url + "/"):
        return None
    return re.sub(r"^/t-[0-9a-f]{16}(?=/|$)", "", value[len(url) :])


def _as_url(value: str) -> str | None:
    """A value as an http(s) URL without its closing slash; a bare ``host:port`` (OLLAMA_HOST) is one of http."""
    text = value.strip()
    if "://" not in text:
        text = f"http://{text}" if re.match(r"[\w.\-\[\]:]+(/|$)", text) else ""
        if text and urlsplit(text).port is None:
            text = text.replace(urlsplit(text).netloc, urlsplit(text).netloc + ":11434", 1)
    try:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        netloc = parts.netloc.replace("0.0.0.0", "127.0.0.1")  # where a server listens, not where it is found
    except ValueError:
        return None
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def _in_region(default: str, region: str | None) -> str:
    if region == "global":
        return default.replace("{region}-", "")
    return default.replace("{region}", region or "")
