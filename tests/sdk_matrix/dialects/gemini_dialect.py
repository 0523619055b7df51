"""Gemini. The prompt holds what is cached; thoughts stand beside the candidates, so all output is the sum of the two.
A stream repeats its usage on every chunk, cumulative: the last one holds. Function calls have no id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, sse

STREAM_TYPE = "text/event-stream"


def _usage(prompt: int, cached: int, candidates: int, thoughts: int) -> dict[str, Any]:
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": candidates,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }


TURNS = Turns(
    text=Turn(_usage(220, 128, 198, 405), Tokens(220, 128, None, 198 + 405, 405)),
    asking=Turn(_usage(301, 192, 17, 30), Tokens(301, 192, None, 17 + 30, 30)),
    after=Turn(_usage(388, 256, 26, 9), Tokens(388, 256, None, 26 + 9, 9)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    return headers.get("x-goog-api-key") or next(iter(parse_qs(query).get("key", ())), None) or bearer(headers)


def asked(path: str, query: str, body: Any) -> Asked | None:
    model, _, verb = path.rpartition("/")[2].partition(":")
    if verb not in ("generateContent", "streamGenerateContent"):
        return None
    # Its parser takes the names of the protobuf fields as well, and litellm sends those.
    declared = [tool.get("functionDeclarations") or tool.get("function_declarations") for tool in body.get("tools", ())]
    offered = tuple(function["name"] for some in declared for function in some or ())
    return Asked(model, verb.startswith("stream"), offered)


def other(method: str, path: str) -> Reply | None:
    if path.endswith(":countTokens"):
        return Reply.json({"totalTokens": 12})
    return None


def refusal(status: int) -> Reply:
    state, text = {
        401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
        429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    }[status]
    return Reply.json({"error": {"code": status, "message": text, "status": state}}, status)


def _parts(said: Said) -> list[dict[str, Any]]:
    calls = [{"functionCall": {"name": ask.name, "args": dict(ask.arguments)}} for ask in said.asks]
    return calls or [{"text": said.text}]


def _answer(said: Said, parts: list[dict[str, Any]], usage: Mapping[str, Any], is_last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if is_last:
        candidate["finishReason"] = "STOP"
    head = {"modelVersion": said.model, "responseId": f"r{said.number}"}
    return {"candidates": [candidate], "usageMetadata": dict(usage), **head}


def plain(path: str, said: Said) -> Reply:
    return Reply.json(_answer(said, _parts(said), said.usage or {}, True))


def streamed(path: str, said: Said) -> Iterator[bytes]:
    usage = said.usage or {}
    parts = [{"text": piece} for piece in said.pieces()] or _parts(said)
    for index, part in enumerate(parts):
        # So far: the prompt is known, the candidates grow, and the total grows with them.
        so_far = {**usage, "candidatesTokenCount": index + 1}
        so_far["totalTokenCount"] = so_far["promptTokenCount"] + index + 1 + so_far["thoughtsTokenCount"]
        is_last = index == len(parts) - 1
        yield sse(_answer(said, [part], usage if is_last else so_far, is_last))
