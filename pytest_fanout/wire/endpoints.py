"""Which URL asks for what: one table, the first rule that fits wins.

A call is known by method and path, not by host: the same wire format is served by regional hosts, clouds,
gateways and localhost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

from pytest_fanout.records import Endpoint
from pytest_fanout.wire.hosts import is_model_host
from pytest_fanout.wire.rpcs import classify_rpc, is_known_other_rpc

#: Of a longer path only the end is looked at, so that no URL costs time.
_LOOK_AT: Final = 4096
_OTHER: Final = Endpoint(None, "other")

_TABLE: Final[tuple[tuple[str, str | None, str], ...]] = (
    (r"/model/(arn:[^/]+/)?[^/]+/converse(-stream)?", "bedrock.converse", "generate"),
    (r"/model/(arn:[^/]+/)?[^/]+/invoke(-with-response-stream)?", "bedrock.invoke", "generate"),
    (r"/model/(arn:[^/]+/)?[^/]+/count-tokens", None, "count"),
    (r"/async-invoke(/[^/]+)?|/guardrail(/[^/]+)*(/apply)?", None, "other"),
    (r"models/count-tokens:rawPredict", None, "count"),
    (r":(rawPredict|streamRawPredict)", "vertex.predict", "generate"),
    (r":(generateContent|streamGenerateContent)", "gemini.generate", "generate"),
    (r":(countTokens|computeTokens)", None, "count"),
    (r":(embedContent|batchEmbedContents|predict)", "embeddings", "embed"),
    (r":(batchGenerateContent|asyncBatchEmbedContent|predictLongRunning)", None, "batch"),
    (r"/interactions", "gemini.interactions", "generate"),
    (r"/messages/count_tokens", None, "count"),
    (r"/messages/batches(/[^/]+)*", None, "batch"),
    (r"/v1/messages", "anthropic.messages", "generate"),
    (r"/responses/input_tokens", None, "count"),
    (r"/responses/[^/]+/cancel", None, "other"),
    (r"/responses/compact", "openai.responses", "compact"),
    (r"/responses", "openai.responses", "generate"),
    (r"/(chat|agents|fim)/completions", "openai.chat", "generate"),
    (r"/completions", "openai.completions", "generate"),
    (r"/decisions", "openai.decisions", "generate"),
    (r"/v[12]/chat", "cohere.chat", "generate"),
    (r"/api/chat", "ollama.chat", "generate"),
    (r"/api/generate", "ollama.generate", "generate"),
    (r"/v1/conversations(/[^/]+(/restart)?)?", "mistral.conversations", "generate"),
    (r"/embeddings|/v[12]/embed|/api/embed(dings)?", "embeddings", "embed"),
    (r"/rerank", "rerank", "rerank"),
    (r"/moderations|/classifications|/v1/classify", "moderation", "moderate"),
    (r"/sessions/[^/]+(/threads/[^/]+)?/events", None, "agent_run"),
)
_RULES: Final = tuple((re.compile(f"(?:{path})\\Z"), Endpoint(api, kind)) for path, api, kind in _TABLE)

#: What a path holds that can be spelt in another way.
_ODD: Final = re.compile(r"%|//|/\.")
_SLASH: Final = re.compile("%2f", re.IGNORECASE)

#: Where a path names the model: Azure deployments; Bedrock, whose ARNs some clients send with the slash as it is;
#: Vertex and Gemini.
_MODEL: Final = re.compile(r"/deployments/([^/]+)/|/model/(arn:[^/]+/[^/]+|[^/]+)/|/(?:models|tunedModels)/([^/:]+):")
#: How paths end that ask for a stream.
_STREAMS: Final = (":streamGenerateContent", ":streamRawPredict", "/converse-stream", "/invoke-with-response-stream")
#: Models behind Bedrock's Invoke that do not generate, by their names.
_NO_GENERATION: Final = ((re.compile(r"\bembed(ding)?s?\b"), "embed"), (re.compile(r"\brerank\b"), "rerank"))

#: Paths at model hosts that are known not to be chat: storage, settings, sign-in, telemetry, tokenizers, media. Short
#: on purpose: a path that is missing here makes a run invalid, one too many would let model calls go uncounted.
_KNOWN_OTHER: Final = re.compile(
    r"(?:/(?:api|openai|compatibility|upload))*(?:/v\d[a-z0-9]*)?"
    r"(?:/(?:projects/[^/:]+/locations/[^/:]+/)?"
    r"(?:files|uploads|batches|vector_stores|containers|cachedContents|conversations|fine_tuning|responses|chat/completions"
    r"|async-invoke|guardrail(?:-checks)?|fileSearchStores)(?:/[^:]*)?"
    r"|/interactions/[^/:]+/cancel|/knowledgebases/[^/]+/retrieve"
    r"|/agents|/images/(?:generations|edits|variations)|/audio/(?:speech|transcriptions|translations)|/videos"
    r"|/(?:oauth2?/)?token|/tokenize|/detokenize|/event_logging/batch|/(?:show|pull|push|create|copy))"
)


def classify(method: str, url: str) -> Endpoint:
    """What a request asks for. Only POST and gRPC can be a model call; a WebSocket to ``/responses`` is a channel of
    calls.

    ``method`` may be "WS" for a WebSocket upgrade; a ``ws:`` or ``wss:`` URL says the same. "GRPC" stands for gRPC,
    with a URL ``grpc://host:port/package.Service/Method``. Never raises.
    """
    scheme, host, path = _split(url)
    verb = method.upper()
    if verb == "GRPC":
        return classify_rpc(path)
    if verb == "WS" or scheme in ("ws", "wss"):
        return Endpoint("openai.responses", "channel") if path.endswith("/responses") else _OTHER
    return _by_rule(host, path) if verb == "POST" else _OTHER


def is_unclassified(method: str, url: str, model_hosts: Iterable[str] = ()) -> bool:
    """Whether a request goes to a model host and no rule says what it is: it may run a model that nobody counts.

    ``model_hosts``: hosts of the user's own, as for ``is_model_host``.
    """
    scheme, host, path = _split(url)
    verb = method.upper()
    is_socket = verb == "WS" or scheme in ("ws", "wss")
    if classify(method, url).kind != "other" or not (is_socket or verb in ("POST", "GRPC")):
        return False
    if is_known_other_rpc(path) if verb == "GRPC" else (not is_socket and _KNOWN_OTHER.fullmatch(_plain(path))):
        return False
    return is_model_host(_host_and_port(url) or host, model_hosts)


def model_in_url(url: str) -> str | None:
    """The model that a path names (Azure deployments, Vertex, Gemini, Bedrock), decoded; None where it names none."""
    return _model_in(_split(url)[2])


def without_model(path: str) -> str:
    """A path with ``*`` for the model that it names: what two requests share that differ in the model alone."""
    found = _MODEL.search(path)
    if not found:
        return path
    start, end = found.span(found.lastindex or 0)
    return f"{path[:start]}*{path[end:]}"


def _model_in(path: str) -> str | None:
    found = _MODEL.search(path) or (_MODEL.search(_plain(path)) if _ODD.search(path) else None)
    return unquote(found.group(found.lastindex or 0)) if found else None


def is_stream_url(url: str) -> bool:
    """Whether the path itself asks for a stream (Gemini, Vertex, Bedrock)."""
    path = _split(url)[2]
    return path.endswith(_STREAMS) or ("%" in path and _plain(path).endswith(_STREAMS))


def host_of(url: str) -> str:
    """Host of a URL in lower case, without port; "" where there is none."""
    return _split(url)[1]


@lru_cache(maxsize=256)  # an agent asks few places, on a path where each microsecond is the agent's
def _by_rule(host: str, path: str) -> Endpoint:
    return _as_spelt(host, _plain(path) if _ODD.search(path) else path)


def _plain(path: str) -> str:
    """A path as most servers read it: characters decoded that need no coding, no empty steps, no ``.`` and ``..``.

    A coded slash stays: it is part of a name.
    """
    steps: list[str] = []
    for step in path.split("/"):
        text = "%2F".join(map(unquote, _SLASH.split(step)))
        if text == "..":
            steps = steps[:-1]
        elif text not in ("", "."):
            steps.append(text)
    return "/" + "/".join(steps)


def _as_spelt(host: str, path: str) -> Endpoint:
    for rule, endpoint in _RULES:
        if not rule.search(path):
            continue
        if endpoint.api == "vertex.predict":
            return _by_publisher(path)
        if endpoint.api == "embeddings" and path.endswith(":predict") and "/endpoints/" in path:
            return Endpoint("vertex.predict", "generate")  # a model of the user's own: it may well generate
        if endpoint.api == "bedrock.invoke":
            model = (_model_in(path) or "").lower()
            kinds = (kind for name, kind in _NO_GENERATION if name.search(model))
            return Endpoint(endpoint.api, next(kinds, endpoint.kind))
        if endpoint.api == "mistral.conversations" and not (host == "mistral.ai" or host.endswith(".mistral.ai")):
            return _OTHER  # elsewhere conversations are storage
        return endpoint
    return _OTHER


def _by_publisher(path: str) -> Endpoint:
    publisher = re.search(r"/publishers/([^/]+)/", path)
    name = publisher.group(1) if publisher else ""
    if name == "anthropic":
        return Endpoint("anthropic.messages", "generate")
    if name == "mistralai":
        return Endpoint("openai.chat", "generate")
    return Endpoint("vertex.predict", "generate")


@lru_cache(maxsize=256)
def _split(url: str) -> tuple[str, str, str]:
    """Scheme, host, path without its closing slash; empty parts for what is no URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "", "", ""
    return parts.scheme, host, parts.path[-_LOOK_AT:].rstrip("/")


def _host_and_port(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""
