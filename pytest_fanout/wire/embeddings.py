"""Embeddings: input only, counted beside the fanout and never in it."""

from __future__ import annotations

from typing import Any

from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import obj, objects, string


def read_request(body: dict[str, Any]) -> Asked:
    """The model of a request."""
    return Asked(model=string(body.get("model")), stream=False)


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    document = payload.document()
    body = obj(document)
    if not body:
        return
    reading.ended = True
    if body.get("error"):
        reading.fail(error_type(document, {}))
        return
    reading.began = True
    reading.choices = 1
    reading.model_served = string(body.get("model"))
    reading.response_id = string(body.get("id"))
    usage = obj(body.get("usage"))
    given = (
        usage.get("prompt_tokens"),
        usage.get("input_tokens"),
        usage.get("total_tokens"),
        body.get("prompt_eval_count"),
        obj(body.get("usageMetadata")).get("promptTokenCount"),
        _predicted(body),
    )
    reading.input_tokens = reading.count(next((value for value in given if value is not None), None))
    reading.total_reported = reading.count(usage.get("total_tokens"))
    if reading.input_tokens is not None:
        reading.output_tokens = 0


def _predicted(body: dict[str, Any]) -> Any:
    """Tokens of the texts that Vertex's ``:predict`` embedded, which it counts one by one; None where it does not."""
    told = [obj(obj(one.get("embeddings")).get("statistics")) for one in objects(body.get("predictions"))]
    counts = [statistics.get("token_count") for statistics in told]
    return sum(counts) if counts and all(type(count) in (int, float) for count in counts) else None
