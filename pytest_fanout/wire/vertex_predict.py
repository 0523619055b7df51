"""Models of other publishers on Vertex: their own bodies, read where they are of a family that is known."""

from __future__ import annotations

from typing import Any

from pytest_fanout.wire import anthropic_messages, input_only, openai_chat
from pytest_fanout.wire.bodies import NOT_JSON
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import obj, objects, string


def read_request(body: dict[str, Any]) -> Asked:
    """Prompt, tools and tool results where the request has the shape of a known family; its model stands in the URL."""
    if "anthropic_version" in body:
        return anthropic_messages.read_request(body)
    return openai_chat.read_request(body) if "messages" in body else Asked(model=string(body.get("model")))


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx; note ``no_codec`` where its shape is not known."""
    first = obj(next((data for _, _, data in payload.events() if data is not NOT_JSON), None))
    first = first if payload.streamed else obj(payload.document())
    kind = string(first.get("type")) or ""
    if kind in ("message", "error") or kind.startswith(("message_", "content_block_")):
        anthropic_messages.read_answer(payload, reading)
    elif "choices" in first or "error" in first:
        openai_chat.read_answer(payload, reading)
    elif any("embeddings" in prediction for prediction in objects(first.get("predictions"))):
        reading.kind = "embed"
        input_only.read_answer(payload, reading)
    elif first or payload.document() is not NOT_JSON:
        reading.began = reading.ended = True
        reading.note("no_codec")
