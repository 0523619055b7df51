"""Decisions of OpenAI and Gemini: questions about one input, answered by scores instead of text."""

from __future__ import annotations

from typing import Any

from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import obj, objects, string
from pytest_fanout.wire.usage import INTERACTION_KEYS, read_google_usage, read_openai_usage


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt and tool results of a request; it has no tools of its own."""
    given = objects(body.get("input"))
    results = [item.get("call_id") for item in given if str(item.get("type", "")).endswith("_output")]
    return Asked(
        model=string(body.get("model")),
        stream=False,
        system=leading_system(given),
        tool_results_in=tuple(string(result) or "" for result in results),
    )


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    document = payload.document()
    body = obj(document)
    answers = body.get("answers")
    told = objects(list(answers.values()) if isinstance(answers, dict) else answers)
    usage = obj(body.get("usage"))
    blocked = string(obj(body.get("prompt_feedback")).get("block_reason"))
    if body.get("error"):
        reading.fail(error_type(document, {}))
    elif not told and not usage and not blocked:
        return
    reading.began = reading.ended = True
    reading.choices = 1
    reading.model_served = string(body.get("model"))
    if "total_input_tokens" in usage:
        read_google_usage(reading, usage, INTERACTION_KEYS)
    else:
        read_openai_usage(reading, usage, prompt="input", completion="output")
    if reading.status == "error":
        return
    reading.finish_raw = blocked
    if blocked:
        reading.finish = "content_filter"
    elif told:
        reading.finish = "refusal" if all(answer.get("type") == "refusal" for answer in told) else "stop"
