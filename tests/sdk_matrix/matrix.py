"""The table: which SDKs and frameworks stand in the matrix, in which forms, and what of it is not covered, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

FORMS = ("sync", "async", "streamed", "async streamed")
STREAMED = frozenset({"streamed", "async streamed"})


@dataclass(frozen=True)
class Cell:
    """One SDK or framework with one API; its agents stand in ``cells/<module>.py``."""

    name: str
    dialect: str
    environment: str  # of environments.toml
    distributions: tuple[str, ...]  # whose versions are told, the SDK itself first
    key: str  # variable of its key
    variable: str | None = None  # variable that its base URL can stand in
    path: str = ""  # what a base URL has behind the host
    variable_path: str | None = None  # the same in the variable, where it differs
    reads_variable_at_import: bool = False
    is_core: bool = False  # its SDK is in the extra `test`
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Pair:
    """One run of a cell: a form of its agent in a story."""

    form: str
    story: str


_OPENAI: dict[str, Any] = {"key": "OPENAI_API_KEY", "variable": "OPENAI_BASE_URL", "path": "/v1"}
_ANTHROPIC: dict[str, Any] = {"key": "ANTHROPIC_API_KEY", "variable": "ANTHROPIC_BASE_URL"}
_GEMINI: dict[str, Any] = {"key": "GEMINI_API_KEY", "variable": "GOOGLE_GEMINI_BASE_URL"}
_AWS: dict[str, Any] = {
    "key": "AWS_ACCESS_KEY_ID",
    "variable": "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    "environ": {"AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"},
}

_COHERE: dict[str, Any] = {"key": "CO_API_KEY", "variable": "CO_API_URL", "reads_variable_at_import": True}
_HUGGINGFACE: dict[str, Any] = {"key": "HF_TOKEN", "path": "/v1"}
_LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
_CREWAI = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
_LANGCHAIN_ANTHROPIC = ("langchain", "langgraph", "langchain-anthropic")
_LLAMA_INDEX = ("llama-index-core", "llama-index-llms-openai", "openai")

CELLS = (
    Cell("openai-chat", "openai_chat", "openai", ("openai",), **_OPENAI, is_core=True),
    Cell("openai-responses", "openai_responses", "openai", ("openai",), **_OPENAI, is_core=True),
    Cell("openai-websocket", "openai_responses", "openai", ("openai", "websockets"), **_OPENAI),
    Cell("openai-aiohttp", "openai_chat", "openai", ("openai", "aiohttp"), **_OPENAI),
    Cell("anthropic-messages", "anthropic_messages", "anthropic", ("anthropic",), **_ANTHROPIC, is_core=True),
    Cell("google-genai", "gemini", "google-genai", ("google-genai",), **_GEMINI, is_core=True),
    Cell("google-genai-aiohttp", "gemini", "google-genai-aiohttp", ("google-genai", "aiohttp"), **_GEMINI),
    Cell("mistral", "mistral", "mistral", ("mistralai",), "MISTRAL_API_KEY"),
    Cell("cohere", "cohere", "cohere", ("cohere",), **_COHERE),
    Cell("cohere-aiohttp", "cohere", "cohere-aiohttp", ("cohere", "aiohttp"), **_COHERE),
    Cell("groq", "groq", "groq", ("groq",), "GROQ_API_KEY", "GROQ_BASE_URL", is_core=True),
    Cell("together", "together", "together", ("together",), "TOGETHER_API_KEY", "TOGETHER_BASE_URL"),
    Cell("ollama", "ollama", "ollama", ("ollama",), "OLLAMA_API_KEY", "OLLAMA_HOST", is_core=True),
    Cell("huggingface", "huggingface", "huggingface", ("huggingface-hub",), **_HUGGINGFACE),
    Cell("bedrock-converse", "bedrock", "boto3", ("boto3",), **_AWS, is_core=True),
    Cell("bedrock-invoke", "bedrock", "boto3", ("boto3",), **_AWS),
    Cell("litellm", "openai_chat", "litellm", ("litellm", "openai"), **_OPENAI, environ=_LITELLM),
    Cell("litellm-anthropic", "anthropic_messages", "litellm", ("litellm",), **_ANTHROPIC, environ=_LITELLM),
    Cell("litellm-gemini", "gemini", "litellm", ("litellm",), "GEMINI_API_KEY", "GEMINI_API_BASE", environ=_LITELLM),
    Cell("openai-agents", "openai_responses", "openai-agents", ("openai-agents", "openai"), **_OPENAI),
    Cell("pydantic-ai", "openai_chat", "pydantic-ai", ("pydantic-ai-slim", "openai"), **_OPENAI),
    Cell("pydantic-ai-anthropic", "anthropic_messages", "pydantic-ai", ("pydantic-ai-slim", "anthropic"), **_ANTHROPIC),
    Cell("pydantic-ai-google", "gemini", "pydantic-ai", ("pydantic-ai-slim", "google-genai"), **_GEMINI),
    Cell("langchain", "openai_chat", "langchain", ("langchain", "langgraph", "langchain-openai"), **_OPENAI),
    Cell("langchain-anthropic", "anthropic_messages", "langchain", _LANGCHAIN_ANTHROPIC, **_ANTHROPIC),
    Cell("smolagents", "openai_chat", "smolagents", ("smolagents", "openai"), **_OPENAI),
    Cell("smolagents-huggingface", "huggingface", "smolagents", ("smolagents", "huggingface-hub"), **_HUGGINGFACE),
    Cell("crewai", "openai_chat", "crewai", ("crewai", "openai"), **_OPENAI, environ=_CREWAI),
    Cell("google-adk", "gemini", "google-adk", ("google-adk", "google-genai"), **_GEMINI),
    Cell("dspy", "openai_chat", "dspy", ("dspy",), **_OPENAI, environ=_LITELLM),
    Cell("dspy-litellm", "openai_chat", "dspy", ("dspy", "litellm"), **_OPENAI, environ=_LITELLM),
    Cell("llama-index", "openai_chat", "llama-index", _LLAMA_INDEX, "OPENAI_API_KEY", "OPENAI_API_BASE", path="/v1"),
    Cell("strands", "openai_chat", "strands", ("strands-agents", "openai"), **_OPENAI),
    Cell("strands-bedrock", "bedrock", "strands", ("strands-agents", "boto3"), **_AWS),
)

#: ``cell/form/story`` (patterns) -> why it is not in the matrix. What is neither here nor run is a failure.
UNCOVERED = {
    "openai-websocket/sync/*": "a WebSocket always streams",
    "openai-websocket/async/*": "a WebSocket always streams",
    "openai-websocket/*/retry": "a response that is refused on a WebSocket is not sent again",
    "*-aiohttp/sync/*": "aiohttp is for async clients only",
    "*-aiohttp/streamed/*": "aiohttp is for async clients only",
    "cohere*/*streamed/retry": "the SDK does not retry a stream",
    "ollama/*/retry": "the SDK does not retry",
    "huggingface/*/retry": "the SDK does not retry a model call",
    "bedrock-*/async*/*": "boto3 has no async form",
    "litellm-gemini/*streamed/retry": "litellm opens a stream of Gemini only when it is read, past its retries",
    "openai-agents/streamed/*": "its runner streams in async code only",
    "smolagents*/async*/*": "its agents have no async form",
    "crewai/*/early": "closing its stream does not close the model's: a thread of it reads on to the end",
    "google-adk/streamed/early": "its sync runner is a thread that reads on to the end",
    "dspy*/streamed/early": "its sync stream is a thread that reads on to the end",
    "strands-bedrock/*/early": "a thread of it reads on until the next chunk, whenever that comes",
    "strands*/streamed/*": "it has no sync stream; its sync form streams on the wire",
}


def pairs_of(cell: Cell) -> Iterator[tuple[Pair, str | None]]:
    """Each pair that a cell could have, and why it is not covered (None: it is run).

    Stories: plain, tools, retry; early for streams; variable (the base URL from the environment) for the first form.
    """
    told = False
    for form in FORMS:
        for story in ("plain", "tools", "retry", *(("early",) if form in STREAMED else ())):
            yield Pair(form, story), why_not(cell, form, story)
        if cell.variable is not None and not told and why_not(cell, form, "plain") is None:
            told = True
            yield Pair(form, "variable"), why_not(cell, form, "variable")


def why_not(cell: Cell, form: str, story: str) -> str | None:
    name = f"{cell.name}/{form}/{story}"
    return next((why for pattern, why in UNCOVERED.items() if fnmatchcase(name, pattern)), None)
