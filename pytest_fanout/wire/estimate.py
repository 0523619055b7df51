"""Tokens of a call whose usage never came, counted offline from its text. Needs the extra ``tokenizer``.

The vocabulary is o200k, whatever the model: an approximation for other models, and without what no text shows:
images, the provider's own framing of a prompt, reasoning that is not told, and what hosted tools read and wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.eventstream import looks_like_frames
from pytest_fanout.wire.reading import Payload
from pytest_fanout.wire.text import clean

#: Characters that are tokenized; of a longer text an even part stands for the rest.
MAX_CHARACTERS: Final = 1_000_000
#: Bytes of a stream that are read again; its beginning stands for the rest.
_MAX_STREAM: Final = 2_000_000
#: JSON values that are looked at, and how deep; an answer or request that holds more is not estimated.
_MAX_VALUES: Final = 500_000
_MAX_DEPTH: Final = 24
#: Where requests keep their prompt, and where their tools.
_PROMPT = (
    *("messages", "input", "inputs", "contents", "prompt", "suffix", "questions", "message", "chat_history"),
    *("system", "instructions", "systemInstruction", "system_instruction", "preamble"),
)
_TOOLS = ("tools", "functions", "toolConfig")
#: Where answers, and the events of a stream, keep what was generated.
_GENERATED: Final[dict[str, tuple[str, ...]]] = {
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
_JSON = frozenset({"args", "arguments", "input", "json", "parameters", "response", "result"})
#: Keys beside the text: marks, ids, media, and what is said about an answer rather than in it.
_BESIDE = frozenset(
    {
        *("id", "index", "type", "role", "object", "status", "model", "cache_control", "obfuscation"),
        *("call_id", "tool_call_id", "tool_use_id", "toolUseId", "citations", "bytes", "redactedContent"),
        *("finish_reason", "finishReason", "stop_reason", "logprobs"),
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "continuationToken"),
        *("annotations", "citationMetadata", "groundingMetadata", "safetyRatings", "urlContextMetadata"),
        *("data", "inlineData", "inline_data", "fileData", "file_data", "source", "file", "image", "images"),
        *("image_url", "input_audio", "url", "uri", "mime_type", "mimeType", "media_type", "executed_tools"),
    }
)


def estimate_tokens(api: str, request: dict[str, Any], payload: Payload) -> tuple[int, int] | None:
    """Input and output tokens of one call, by its text; None without the tokenizer, without text, or with too much.

    Args:
        request: the body as JSON; it must show the whole prompt.
        payload: the answer, which began.
    """
    count = tokenizer()
    roots = _GENERATED.get(api)
    if count is None or roots is None:
        return None
    asked = _texts(request.get(key) for key in _PROMPT)
    tools = [_dumped(request[key]) for key in _TOOLS if request.get(key)]
    document = NOT_JSON if payload.streamed else payload.document()
    beginning = payload if document is not NOT_JSON else replace(payload, data=payload.data[:_MAX_STREAM])
    made = _texts(part.get(key) for part in _parts(document, beginning) for key in roots)
    if asked is None or not any(asked) or not made or not any(made):
        return None  # token numbers instead of words, or an image, are no zero
    output = _counted(made, count) * len(payload.data) // len(beginning.data)
    return _counted([*asked, *tools], count), output


@cache
def tokenizer() -> Callable[[str], int] | None:
    """Counts the tokens of a text; None when the extra is not installed, or cannot work here."""
    try:
        import quicktok  # type: ignore[import-not-found, import-untyped, unused-ignore]

        count: Callable[[str], int] = quicktok.get_encoding("o200k_base").count
        count("")
    except Exception:  # it is compiled code with data files of its own: whatever fails, an estimate is not worth a call
        return None
    return count


def _parts(document: Any, payload: Payload) -> Iterator[dict[str, Any]]:
    """The document, or each event, line or element of the answer, that is an object."""
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


def _texts(roots: Iterable[Any]) -> list[str] | None:
    """The texts below some values, pieces of one place joined; None when there are too many values."""
    joined: dict[tuple[Any, ...], list[str]] = {}
    budget = _MAX_VALUES
    for root in roots:
        below: list[tuple[tuple[Any, ...], Any]] = [((), root)]
        while below:
            place, value = below.pop()
            if isinstance(value, str):
                joined.setdefault(place, []).append(value)
                continue
            if not isinstance(value, dict | list):
                continue
            budget -= 1 + len(value)
            if budget < 0 or len(place) > _MAX_DEPTH:
                return None
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                if key in _JSON and isinstance(part, dict | list):
                    joined.setdefault((*place, key), []).append(_dumped(part))
                elif key not in _BESIDE and isinstance(part, str | dict | list):
                    below.append(((*place, key), part))
    return ["".join(pieces) for pieces in joined.values()]


def _dumped(value: Any) -> str:
    """JSON as it would be written into a prompt; sorted, so that the order of keys does not matter."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""


def _counted(texts: list[str], count: Callable[[str], int]) -> int:
    size = sum(map(len, texts))
    if size <= MAX_CHARACTERS:
        return sum(count(clean(text)) for text in texts)
    parts = [text[: len(text) * MAX_CHARACTERS // size] for text in texts]
    tokens = sum(count(clean(part)) for part in parts)
    return tokens * size // max(sum(map(len, parts)), 1)
