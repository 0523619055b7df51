"""Text models behind Bedrock's Invoke that answer in shapes of their own: Titan, Llama, Mistral, older ones."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.reading import Reading
from pytest_fanout.wire.shapes import arguments, obj, objects, string

#: Keys that hold what a model said, each of one family: Llama, Titan (plain, chunk), Mistral, Cohere Command, Claude
#: before Messages, Jurassic.
_SAID = ("generation", "outputText", "outputs", "generations", "completion", "completions")
_FINISH = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "FINISH": "stop",
    "FINISHED": "stop",
    "STOP_CRITERIA_MET": "stop",
    "COMPLETE": "stop",
    "endoftext": "stop",
    "length": "length",
    "LENGTH": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "tool_calls": "tool_calls",
    "CONTENT_FILTERED": "content_filter",
    "ERROR_TOXIC": "content_filter",
}


def is_text_answer(body: dict[str, Any]) -> bool:
    """Whether a document or chunk has a shape that is read here."""
    if any(key in body for key in _SAID) or _is_titan(body):
        return True
    # Mistral and DeepSeek say why they stopped in their own word; Chat Completions says finish_reason.
    choices = objects(body.get("choices"))
    return bool(choices) and all("stop_reason" in choice and "finish_reason" not in choice for choice in choices)


def read_text_model(answers: list[dict[str, Any]], reading: Reading, *, whole: bool) -> None:
    """Fill ``reading`` from one document or the chunks of a stream; the last value of each count holds."""
    prompt: Any = None
    made: Any = None
    choices = 1
    for answer in answers:
        reading.began = reading.began or bool(answer)
        prompt = _last(prompt, answer.get("prompt_token_count"), answer.get("inputTextTokenCount"))
        made = _last(made, answer.get("generation_token_count"), answer.get("totalOutputTextTokenCount"))
        results = objects(answer.get("results"))
        parts = results or next((found for key in _SAID if (found := objects(answer.get(key)))), [])
        parts = parts or objects(answer.get("choices"))
        choices = max(choices, len(parts))
        counts = [result.get("tokenCount") for result in results]
        if counts and all(type(count) is int for count in counts):
            made = sum(counts)
        for part in [answer, *parts]:
            reading.finish_raw = _reason(part) or reading.finish_raw
            for call in objects(obj(part.get("message")).get("tool_calls")):
                function = obj(call.get("function"))
                name = string(function.get("name")) or ""
                reading.tool_calls.append(ToolCall(string(call.get("id")), name, arguments(function.get("arguments"))))
        reading.response_id = string(answer.get("id")) or reading.response_id
    if not reading.began:
        return
    reading.ended = whole
    reading.choices = choices
    reading.input_tokens = reading.count(prompt)
    reading.output_tokens = reading.count(made)
    reading.finish = "tool_calls" if reading.tool_calls else _FINISH.get(reading.finish_raw or "")


def _is_titan(body: dict[str, Any]) -> bool:
    results = objects(body.get("results"))
    return bool(results) and all("outputText" in result or "completionReason" in result for result in results)


def _reason(part: dict[str, Any]) -> str | None:
    """Why a model stopped, in whichever word it says that."""
    for key in ("stop_reason", "completionReason", "finish_reason"):
        if reason := string(part.get(key)):
            return reason
    return string(obj(part.get("finishReason")).get("reason"))


def _last(known: Any, *newer: Any) -> Any:
    return next((value for value in newer if value is not None), known)
