"""Where requests and answers of each API keep their texts: for estimates of tokens, and for people who read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pytest_fanout.wire.bodies import load_json
from pytest_fanout.wire.eventstream import looks_like_frames
from pytest_fanout.wire.reading import Payload
from pytest_fanout.wire.shapes import index

Place = tuple[Any, ...]  # the keys that lead to a text
#: JSON values that are looked at, and how deep; what holds more is not read.
_MAX_VALUES: Final = 500_000
_MAX_DEPTH: Final = 24
#: Where requests keep their prompt, earlier turns first, ...
PROMPT: Final = (
    *("chat_history", "messages", "input", "inputs", "contents"),
    *("prompt", "suffix", "questions", "message"),
)
#: ... what stands before it, and their tools.
SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction", "preamble")
TOOLS: Final = ("tools", "functions", "toolConfig")
#: Where answers, and the events of a stream, keep what was generated.
GENERATED: Final[dict[str, tuple[str, ...]]] = {
    "openai.chat": ("choices",),
    "openai.completions": ("choices",),
    "openai.responses": ("output", "delta"),
    "anthropic.messages": ("content", "delta"),
    "gemini.generate": ("candidates",),
    "gemini.interactions": ("steps", "delta"),
    "mistral.conversations": ("outputs", "content", "arguments"),
    "ollama.chat": ("message",),
    "ollama.generate": ("response", "thinking"),
    "bedrock.converse": ("output", "delta"),
    "cohere.chat": ("message", "delta", "text"),
}
#: Keys whose value is any JSON, which goes into the prompt as such.
JSON: Final = frozenset({"args", "arguments", "input", "json", "parameters", "response", "result"})
#: Keys of media, which no text shows.
MEDIA: Final = frozenset(
    {
        *("data", "inlineData", "inline_data", "fileData", "file_data", "source", "file", "image", "images"),
        *("image_url", "input_audio"),
    }
)
#: Keys beside the text: marks, ids, media, and what is said about an answer rather than in it.
BESIDE: Final = MEDIA | {
    *("id", "index", "type", "role", "object", "status", "model", "cache_control", "obfuscation"),
    *("call_id", "tool_call_id", "tool_use_id", "toolUseId", "citations", "bytes", "redactedContent"),
    *("finish_reason", "finishReason", "stop_reason", "logprobs"),
    *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "continuationToken"),
    *("annotations", "citationMetadata", "groundingMetadata", "safetyRatings", "urlContextMetadata"),
    *("url", "uri", "mime_type", "mimeType", "media_type", "executed_tools"),
}


def texts_at(roots: Iterable[tuple[Place, Any]], media: set[str] | None = None) -> dict[Place, str] | None:
    """The texts below some values by their places, in order, pieces of one place joined.

    Args:
        roots: values, each with the place that it stands at.
        media: filled with the keys of what is no text.

    Returns:
        None when there are too many values.
    """
    joined: dict[Place, list[str]] = {}
    budget = _MAX_VALUES
    for start, root in roots:
        below: list[tuple[Place, Any]] = [(start, root)]
        while below:
            place, value = below.pop()
            if isinstance(value, str):
                joined.setdefault(place, []).append(value)
                continue
            if place and place[-1] in JSON and len(place) > len(start) and isinstance(value, dict | list):
                joined.setdefault(place, []).append(as_text(value))
                continue
            if not isinstance(value, dict | list):
                continue
            budget -= 1 + len(value)
            if budget < 0 or len(place) - len(start) > _MAX_DEPTH:
                return None
            inner: list[tuple[Place, Any]] = []
            for key, part in value.items() if isinstance(value, dict) else _numbered(value):
                if key in BESIDE:
                    if media is not None and key in MEDIA and part:
                        media.add(key)
                elif isinstance(part, str | dict | list):
                    inner.append(((*place, key), part))
            below.extend(reversed(inner))
    return {place: "".join(pieces) for place, pieces in joined.items()}


def _numbered(values: list[Any]) -> Iterator[tuple[int, Any]]:
    """Elements by the index that they name (each event of a stream holds one choice alone), or by where they are."""
    for at, value in enumerate(values):
        named = index(value.get("index")) if isinstance(value, dict) else None
        yield at if named is None else named, value


def parts_of(document: Any, payload: Payload) -> Iterator[dict[str, Any]]:
    """The document of an answer, or each event, line or element of it, that is an object."""
    if isinstance(document, dict):
        found: Iterable[Any] = (document,)
    elif isinstance(document, list):
        found = document
    elif looks_like_frames(payload.data):
        found = (load_json(frame.payload) for frame in payload.frames())
    elif payload.streamed:
        found = (data for _, _, data in payload.events())
    else:
        found = payload.lines()
    return (part for part in found if isinstance(part, dict))


def as_text(value: Any) -> str:
    """JSON as it would be written into a prompt; sorted, so that the order of keys does not matter."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""
