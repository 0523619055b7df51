"""What an answer cost, fast: for the caps, which ask after every call while the agent waits.

It reads the plain, complete shapes of the APIs that have a codec, and gives None for everything else: then
``read_call`` decides. Where it answers, it says what ``read_call`` says; a test holds both together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.scanner import make_scanner
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """Of an answer that a model gave in full: ``tokens`` = input + output; client tool calls that it asks for."""

    tokens: int
    tool_calls: int


_scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]  # typeshed takes a scanner for its own settings
#: Output items of the Responses API that are neither tool calls nor anything to look at twice.
_PLAIN_ITEMS = frozenset({"message", "reasoning"})
_TOOL_ITEMS = frozenset({"function_call", "custom_tool_call"})


def quick_cost(api: str | None, body: bytes) -> Cost | None:
    """The cost of a 200 answer with no content coding; None when it takes a closer look."""
    reader = _READERS.get(api or "")
    if reader is None:
        return None
    try:
        return reader(body)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError, StopIteration):
        return None


def _load(body: bytes) -> Any:
    """One JSON document; half the time of ``json.loads``, which asks for the encoding and for blanks first."""
    text = body.decode("utf-8")
    document, end = _scan(text, 0)
    if end != len(text) and text[end:].strip():
        raise ValueError("more than one document")
    return document


def _chat(body: bytes) -> Cost | None:
    if body[:1] != b"{":
        return _chat_stream(body)
    document = _load(body)
    if "error" in document:
        return None
    tools = 0
    for choice in document["choices"]:
        message = choice["message"]
        if not choice["finish_reason"] or "function_call" in message:
            return None
        tools += _calls(message)
    return _openai(document["usage"], tools) if document["choices"] else None


def _calls(message: dict[str, Any]) -> int:
    return sum(type(call) is dict for call in message.get("tool_calls") or ())


def _chat_stream(body: bytes) -> Cost | None:
    if body[:6] != b"data: " or not body.rstrip().endswith(b"data: [DONE]") or body.count(b"[DONE]") != 1:
        return None
    # inside a JSON text these quotes are escaped, so what is found is a key
    if any(word in body for word in (b'"tool_calls"', b'"function_call"', b'"error"', b'"x_groq"')):
        return None
    at = body.rfind(b'"usage"')
    begin, end = body.rfind(b"\n", 0, at) + 1, body.find(b"\n", at)
    # blank lines on both sides: the line is a whole event
    if body.rfind(b'_details"', 0, begin) >= 0:  # an earlier snapshot of the usage holds what this one may leave out
        return None
    if b'"finish_reason"' not in body or body[begin - 2 : begin] != b"\n\n" or body[end : end + 2] != b"\n\n":
        return None
    return _openai(json.loads(body[begin:end].removeprefix(b"data: "))["usage"], 0)


def _openai(usage: dict[str, Any], tools: int) -> Cost | None:
    """Only where the total is the plain sum: then no dialect is at work."""
    given, made, total = usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]
    details = usage.get("completion_tokens_details") or {}
    return _sum(given, made, total, details.get("reasoning_tokens"), tools)


def _sum(given: Any, made: Any, total: Any, reasoning: Any, tools: int) -> Cost | None:
    if not (type(given) is type(made) is type(total) is int) or min(given, made) < 0 or given + made != total:
        return None
    if reasoning is not None and not (type(reasoning) is int and 0 <= reasoning <= made):
        return None
    return Cost(total, tools) if total < 1 << 40 else None


def _responses(body: bytes) -> Cost | None:
    if body[:1] != b"{":
        mark = b"\n\nevent: response.completed\ndata: "
        at = body.rfind(mark)
        event = json.loads(body[at + len(mark) :]) if at >= 0 else {}
        if event["type"] != "response.completed":
            return None
        document = event["response"]
    else:
        document = _load(body)
    if document["status"] != "completed" or document.get("error"):
        return None
    kinds = [item["type"] for item in document["output"]]
    if not kinds or any(kind not in _PLAIN_ITEMS and kind not in _TOOL_ITEMS for kind in kinds):
        return None
    usage = document["usage"]
    details = usage.get("output_tokens_details") or {}
    tools = sum(kind in _TOOL_ITEMS for kind in kinds)
    return _sum(
        usage["input_tokens"], usage["output_tokens"], usage["total_tokens"], details.get("reasoning_tokens"), tools
    )


def _messages(body: bytes) -> Cost | None:
    if body[:1] != b"{":
        return None
    document = _load(body)
    if document["type"] != "message" or not document["stop_reason"]:
        return None
    usage = document["usage"]
    parts = [
        usage["input_tokens"],
        _or_zero(usage.get("cache_creation_input_tokens")),
        _or_zero(usage.get("cache_read_input_tokens")),
        usage["output_tokens"],
    ]
    if any(type(part) is not int or not 0 <= part < 1 << 40 for part in parts):
        return None
    return Cost(sum(parts), sum(block["type"] == "tool_use" for block in document["content"]))


def _generate(body: bytes) -> Cost | None:
    if body[:1] != b"{":
        return None
    document = json.loads(body)
    if "error" in document:
        return None
    tools = 0
    for candidate in document["candidates"]:
        if not candidate["finishReason"]:
            return None
        for part in candidate["content"]["parts"]:
            if "functionCall" in part:
                tools += 1
                if not part["functionCall"]["name"]:
                    return None
    usage = document["usageMetadata"]
    keys = ("toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    parts = [usage["promptTokenCount"], *(_or_zero(usage.get(key)) for key in keys)]
    total = usage["totalTokenCount"]
    # where the total is not the plain sum, thoughts may be inside the candidates
    if any(type(part) is not int or not 0 <= part < 1 << 40 for part in parts) or total != sum(parts):
        return None
    return Cost(sum(parts), tools) if document["candidates"] else None


def _ollama(body: bytes) -> Cost | None:
    # a stream with tool calls or failures says so on other lines than the last
    if body[:1] != b"{" or b"\r" in body or b'"error"' in body:
        return None
    at = body.rstrip(b"\n").rfind(b"\n") + 1
    document = json.loads(body[at:])
    tools = _calls(document["message"])
    if document["done"] is not True or (at and b'"tool_calls"' in body):
        return None
    parts = [document["prompt_eval_count"], document["eval_count"]]
    if any(type(part) is not int or not 0 <= part < 1 << 40 for part in parts):
        return None
    return Cost(sum(parts), tools)


def _converse(body: bytes) -> Cost | None:
    document = json.loads(body)
    if not document["stopReason"]:
        return None
    usage = document["usage"]
    parts = [
        usage["inputTokens"],
        _or_zero(usage.get("cacheReadInputTokens"), usage.get("cacheReadInputTokenCount")),
        _or_zero(usage.get("cacheWriteInputTokens"), usage.get("cacheWriteInputTokenCount")),
        usage["outputTokens"],
    ]
    if any(type(part) is not int or not 0 <= part < 1 << 40 for part in parts):
        return None
    content = document["output"]["message"]["content"]
    tools = [block["toolUse"] for block in content if "toolUse" in block]
    if any("type" in tool for tool in tools):
        return None
    return Cost(sum(parts), len(tools))


def _cohere(body: bytes) -> Cost | None:
    document = json.loads(body)
    if document["finish_reason"] not in ("COMPLETE", "TOOL_CALL", "MAX_TOKENS") or "type" in document:
        return None
    tokens = document["usage"]["tokens"]
    counts = [tokens["input_tokens"], tokens["output_tokens"]]
    if any(type(count) not in (int, float) or not 0 <= count < 1 << 40 or count != int(count) for count in counts):
        return None
    return Cost(int(sum(counts)), _calls(document["message"]))


def _or_zero(*values: Any) -> Any:
    """The first that is given, or zero."""
    return next((value for value in values if value is not None), 0)


_READERS: dict[str, Callable[[bytes], Cost | None]] = {
    "openai.chat": _chat,
    "openai.responses": _responses,
    "anthropic.messages": _messages,
    "gemini.generate": _generate,
    "ollama.chat": _ollama,
    "bedrock.converse": _converse,
    "bedrock.invoke": _messages,
    "cohere.chat": _cohere,
}
