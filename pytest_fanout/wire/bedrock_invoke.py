"""Bedrock Invoke: the model's own body, plain or in chunks, and the counts that Bedrock puts beside it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_fanout.wire import anthropic_messages, bedrock_converse, cohere_chat, openai_chat
from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.eventstream import Frame
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import merge, obj, objects, string
from pytest_fanout.wire.text_models import is_text_answer, read_text_model

_METRICS = "amazon-bedrock-invocationMetrics"
#: Bedrock's counts: in the last chunk of a stream, and in the headers of a plain answer.
_COUNTS = {
    "inputTokenCount": "x-amzn-bedrock-input-token-count",
    "outputTokenCount": "x-amzn-bedrock-output-token-count",
    "cacheReadInputTokenCount": "x-amzn-bedrock-cache-read-input-token-count",
    "cacheWriteInputTokenCount": "x-amzn-bedrock-cache-write-input-token-count",
}
_ANTHROPIC_EVENT = re.compile(r"(message|content_block)_|ping\Z|error\Z")
_EMBEDDINGS = ("embedding", "embeddings", "embeddingsByType")


@dataclass(frozen=True, slots=True)
class _Chunks(Payload):
    """What the chunks of a stream hold, as if it had been sent without Bedrock."""

    told: tuple[dict[str, Any], ...] = ()

    def events(self) -> Iterator[tuple[str, str, Any]]:
        for event in self.told:
            yield "", "", event


def read_request(body: dict[str, Any]) -> Asked:
    """Prompt, tools and tool results, by the shape of the request; its model stands in the URL."""
    if "anthropic_version" in body:
        return anthropic_messages.read_request(body)
    if any(key in body for key in ("system", "toolConfig", "inferenceConfig", "schemaVersion")):
        return bedrock_converse.read_request(body)
    if "messages" in body:
        return openai_chat.read_request(body)
    return cohere_chat.read_request(body)


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if payload.streamed:
        _read_stream(payload, reading)
        return
    counts = {name: _number(payload.headers.get(header)) for name, header in _COUNTS.items()}
    document = payload.document()
    body = obj(document)
    if body.get("type") == "message" or (body.get("type") == "error" and body.get("error")):
        anthropic_messages.read_answer(payload, reading)
    elif isinstance(obj(body.get("output")).get("message"), dict):
        bedrock_converse.read_document(body, reading)
    elif cohere_chat.is_v1(body) or isinstance(body.get("message"), dict):
        cohere_chat.read_answer(payload, reading)
    elif is_text_answer(body):
        read_text_model([body], reading, whole=True)
    elif "choices" in body:
        openai_chat.read_answer(payload, reading)
    elif body.get("error"):
        reading.ended = True
        reading.fail(error_type(body, {}))
    elif body or any(value is not None for value in counts.values()):
        _read_unknown(body, reading)
        reading.ended = document is not NOT_JSON
    _add_counts(counts, reading)


def _read_stream(payload: Payload, reading: Reading) -> None:
    events: list[dict[str, Any]] = []
    metrics: dict[str, Any] = {}
    end: Frame | None = None
    for frame in payload.frames():
        if frame.kind == "event" and frame.name != "chunk":
            continue
        event = _event(frame) if frame.kind == "event" else None
        if event is None:
            end = frame if frame.kind != "event" else Frame("broken", "bad_frame")
            break
        merge(metrics, event.get(_METRICS))
        events.append(event)
    if events:
        _read_events(_Chunks(b"", True, told=tuple(events)), events, bool(metrics), reading)
    _add_counts(metrics, reading)
    if end is not None:
        bedrock_converse.end_at(end, reading)


def _event(frame: Frame) -> dict[str, Any] | None:
    """The model's own event in a chunk; None where there is none, although the frame holds."""
    told = obj(load_json(frame.payload)).get("bytes")
    try:
        event = load_json(base64.b64decode(told)) if isinstance(told, str) else None
    except (binascii.Error, ValueError):
        return None
    return event if isinstance(event, dict) else None


def _read_events(payload: _Chunks, events: list[dict[str, Any]], is_last_seen: bool, reading: Reading) -> None:
    first = events[0]
    if _ANTHROPIC_EVENT.match(string(first.get("type")) or ""):
        anthropic_messages.read_answer(payload, reading)
        return
    if bedrock_converse.EVENTS & first.keys():
        named = [(name, obj(event[name])) for event in events for name in event if name in bedrock_converse.EVENTS]
        bedrock_converse.read_events(named, reading)
        return
    if "event_type" in first or first.get("type") == "message-start":
        cohere_chat.read_events(events, reading)
    elif any("choices" in event and not is_text_answer(event) for event in events):
        openai_chat.read_answer(payload, reading)
    else:
        read_text_model(events, reading, whole=False)
    # Here no event of the model's own is the last; the metrics are, and so is a reason for having stopped.
    reading.ended = reading.ended or is_last_seen or reading.finish_raw is not None
    reading.usage_is_bound = not reading.ended


def _read_unknown(body: dict[str, Any], reading: Reading) -> None:
    """An answer in a shape of its own, an embedding, a ranking or a picture among them."""
    reading.began = True
    reading.choices = 1
    if any(key in body for key in _EMBEDDINGS):
        reading.kind = "embed"
        reading.input_tokens = reading.count(body.get("inputTextTokenCount"))
    elif objects(body.get("results")) and all("relevance_score" in result for result in objects(body["results"])):
        reading.kind = "rerank"


def _add_counts(counts: dict[str, Any], reading: Reading) -> None:
    """Bedrock's counts, where the model's own body does not say them."""
    if not reading.began:
        return
    read, written = counts.get("cacheReadInputTokenCount"), counts.get("cacheWriteInputTokenCount")
    if reading.input_tokens is None and counts.get("inputTokenCount") is not None:
        reading.input_tokens = reading.whole(counts["inputTokenCount"], read, written)
        reading.cached_input_tokens = reading.count(read)
        reading.cache_write_tokens = reading.count(written)
    if reading.output_tokens is None:
        reading.output_tokens = reading.count(counts.get("outputTokenCount"))
    if reading.kind:
        reading.output_tokens = None if reading.input_tokens is None else 0


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) <= 16 and text.isascii() and text.isdigit() else None
