"""Embeddings, reranking and moderation: input only, counted beside the fanout and never in it."""

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
    reading.total_reported = reading.count(usage.get("total_tokens"))
    reading.input_tokens = reading.count(_given(body, usage))
    if reading.input_tokens is None and (instances := objects(body.get("predictions"))):
        reading.input_tokens = _of_all(instances, reading)
    if reading.input_tokens is not None:
        reading.output_tokens = 0


def _given(body: dict[str, Any], usage: dict[str, Any]) -> Any:
    """The count of the input in the words of OpenAI and its kin, Ollama, Gemini, Cohere; None where none is said."""
    meta = obj(body.get("meta"))
    said = (
        usage.get("prompt_tokens"),
        usage.get("input_tokens"),
        usage.get("total_tokens"),
        body.get("prompt_eval_count"),
        obj(body.get("usageMetadata")).get("promptTokenCount"),
        obj(meta.get("tokens")).get("input_tokens"),
        obj(meta.get("billed_units")).get("input_tokens"),  # of an embedding Cohere says nothing else
    )
    return next((value for value in said if value is not None), None)


def _of_all(instances: list[dict[str, Any]], reading: Reading) -> int | None:
    """Vertex counts each text of a request for itself; None unless all are known."""
    counts = [_statistic(instance, reading) for instance in instances]
    return None if None in counts else sum(count for count in counts if count is not None)


def _statistic(instance: dict[str, Any], reading: Reading) -> int | None:
    told = obj(instance.get("embeddings"))
    return reading.count(obj(told.get("statistics")).get("token_count"))
