"""Bedrock: Converse, and InvokeModel with a model of Anthropic's. ``inputTokens`` leaves the cache out, as Anthropic
does: all input is the sum of three. Streams are binary AWS event streams; usage comes after messageStop."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from sdk_matrix.dialects import anthropic_messages_dialect as anthropic_messages
from sdk_matrix.dialects.turns import Asked, Reply, Said, Tokens, Turn, Turns, bearer, names

STREAM_TYPE = "application/vnd.amazon.eventstream"


def _usage(fresh: int, read: int, written: int, made: int) -> dict[str, Any]:
    return {
        "inputTokens": fresh,
        "outputTokens": made,
        "totalTokens": fresh + read + written + made,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": written,
    }


TURNS = Turns(
    text=Turn(_usage(30, 1000, 100, 60), Tokens(30 + 1000 + 100, 1000, 100, 60, None)),
    asking=Turn(_usage(44, 1100, 0, 83), Tokens(44 + 1100 + 0, 1100, 0, 83, None)),
    after=Turn(_usage(12, 1144, 87, 19), Tokens(12 + 1144 + 87, 1144, 87, 19, None)),
)


def key_in(headers: Mapping[str, str], query: str) -> str | None:
    """The id of the access key that has signed. Signatures are not checked."""
    head, _, rest = headers.get("authorization", "").partition("Credential=")
    return rest.partition("/")[0] if head.startswith("AWS4-HMAC-SHA256") else bearer(headers)


def _verb(path: str) -> str:
    return path.rpartition("/")[2]


def asked(path: str, query: str, body: Any) -> Asked | None:
    model, verb = unquote(path.split("/")[-2]), _verb(path)
    if verb in ("invoke", "invoke-with-response-stream"):
        return Asked(model, verb != "invoke", names(body.get("tools"), "name"))
    if verb not in ("converse", "converse-stream"):
        return None
    offered = names((body.get("toolConfig") or {}).get("tools"), "toolSpec", "name")
    return Asked(model, verb != "converse", offered)


def other(method: str, path: str) -> Reply | None:
    return None


def refusal(status: int) -> Reply:
    kind, text = {
        401: ("UnrecognizedClientException", "The security token included in the request is invalid."),
        429: ("ThrottlingException", "Too many requests, please wait before trying again."),
    }[status]
    return Reply.json({"message": text}, status, **{"x-amzn-ErrorType": kind})


def _as_anthropic(said: Said) -> Said:
    """The same answer with its usage in the words of Anthropic's models."""
    u = said.usage or {}
    usage = {
        "input_tokens": u["inputTokens"],
        "cache_read_input_tokens": u["cacheReadInputTokens"],
        "cache_creation_input_tokens": u["cacheWriteInputTokens"],
        "output_tokens": u["outputTokens"],
    }
    return Said(said.number, said.model, said.text, said.asks, usage)


def plain(path: str, said: Said) -> Reply:
    usage = said.usage or {}
    if _verb(path) == "invoke":
        counts = {
            "x-amzn-bedrock-input-token-count": str(usage["inputTokens"]),
            "x-amzn-bedrock-output-token-count": str(usage["outputTokens"]),
            "x-amzn-bedrock-cache-read-input-token-count": str(usage["cacheReadInputTokens"]),
            "x-amzn-bedrock-cache-write-input-token-count": str(usage["cacheWriteInputTokens"]),
        }
        return Reply.json(anthropic_messages.message(_as_anthropic(said)), **counts)
    content: list[dict[str, Any]] = [{"text": said.text}] if said.text else []
    for ask in said.asks:
        content.append({"toolUse": {"toolUseId": ask.id, "name": ask.name, "input": dict(ask.arguments)}})
    return Reply.json(
        {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use" if said.asks else "end_turn",
            "usage": usage,
            "metrics": {"latencyMs": 5},
        }
    )


def streamed(path: str, said: Said) -> Iterator[bytes]:
    if _verb(path) == "converse-stream":
        yield from (frame(kind, fields) for kind, fields in _converse_events(said))
        return
    usage = said.usage or {}
    for event in anthropic_messages.events(_as_anthropic(said)):
        if event["type"] == "message_stop":
            metrics = {
                "inputTokenCount": usage["inputTokens"],
                "outputTokenCount": usage["outputTokens"],
                "cacheReadInputTokenCount": usage["cacheReadInputTokens"],
                "cacheWriteInputTokenCount": usage["cacheWriteInputTokens"],
                "invocationLatency": 5,
                "firstByteLatency": 1,
            }
            event = {**event, "amazon-bedrock-invocationMetrics": metrics}
        yield frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdefg"})


def _converse_events(said: Said) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for piece in said.pieces():
        yield "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}}
    if said.text:
        yield "contentBlockStop", {"contentBlockIndex": 0}
    for index, ask in enumerate(said.asks):
        start = {"toolUse": {"toolUseId": ask.id, "name": ask.name}}
        yield "contentBlockStart", {"contentBlockIndex": index, "start": start}
        for part in (ask.text[:4], ask.text[4:]):
            yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": part}}}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": "tool_use" if said.asks else "end_turn"}
    yield "metadata", {"usage": said.usage, "metrics": {"latencyMs": 5}}


def frame(kind: str, fields: Mapping[str, Any]) -> bytes:
    """One message of an AWS event stream: lengths, their CRC, headers, payload, the CRC of all of it."""
    payload = json.dumps(fields).encode()
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += struct.pack(f"!B{len(name)}sBH", len(name), name.encode(), 7, len(value)) + value.encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))
