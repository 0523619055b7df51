"""Usage as the providers count it, turned into ours: input and output hold everything, the rest are parts of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pytest_fanout.records import SideCall
from pytest_fanout.wire.reading import Reading
from pytest_fanout.wire.shapes import obj, objects


def read_openai_usage(reading: Reading, usage: dict[str, Any], *, prompt: str, completion: str) -> None:
    """Usage of the OpenAI family. ``prompt`` and ``completion`` are the stems of its keys ("prompt", "input", …).

    Cached and cache-written tokens are parts of the prompt. Reasoning is a part of the completion, except at hosts
    that put it beside; there the provider's own total tells, or reasoning being larger than the whole.
    """
    if not usage:
        return
    details = obj(usage.get(f"{prompt}_tokens_details"))
    out_details = obj(usage.get(f"{completion}_tokens_details"))
    given = reading.count(usage.get(f"{prompt}_tokens"))
    cached = reading.count(details.get("cached_tokens"))
    if cached is None and "prompt_cache_hit_tokens" in usage:
        cached = reading.count(usage["prompt_cache_hit_tokens"])
        missed = reading.count(usage.get("prompt_cache_miss_tokens"))
        if usage.get(f"{prompt}_tokens") is None and cached is not None and missed is not None:
            given = cached + missed
    made = reading.count(usage.get(f"{completion}_tokens"))
    reasoning = reading.count(out_details.get("reasoning_tokens"))
    total = reading.count(usage.get("total_tokens"))
    reading.input_tokens = given
    reading.cached_input_tokens = cached
    reading.cache_write_tokens = reading.count(details.get("cache_write_tokens"))
    reading.reasoning_tokens = reasoning
    reading.total_reported = total
    reading.output_tokens = made
    if made is None:
        return
    if reasoning and (reasoning > made or (given is not None and total == given + made + reasoning)):
        reading.output_tokens = made + reasoning
        reading.note("reasoning_additive")
    elif given is not None and total is not None and total > given + made:
        reading.output_tokens = total - given
        reading.note("total_exceeds_parts")


def read_anthropic_usage(reading: Reading, usage: dict[str, Any]) -> None:
    """Usage of Anthropic Messages, where ``input_tokens`` leaves out what was read from and written to the cache."""
    if not usage:
        return
    reading.cached_input_tokens = reading.count(usage.get("cache_read_input_tokens"))
    reading.cache_write_tokens = reading.count(usage.get("cache_creation_input_tokens"))
    reading.input_tokens = _whole_input(reading, usage)
    reading.output_tokens = reading.count(usage.get("output_tokens"))
    reading.reasoning_tokens = reading.count(obj(usage.get("output_tokens_details")).get("thinking_tokens"))
    iterations = objects(usage.get("iterations"))
    for step in iterations:
        if step.get("type") in ("compaction", "advisor_message"):
            side = SideCall(step["type"], _whole_input(reading, step), reading.count(step.get("output_tokens")))
            reading.side_calls.append(side)
    if iterations:
        reading.inner_iterations = sum(step.get("type") in ("message", "fallback_message") for step in iterations)
    for key, value in obj(usage.get("server_tool_use")).items():
        requests = reading.count(value)
        if requests and key.endswith("_requests"):
            name = key.removesuffix("_requests")
            reading.server_tool_calls[name] = max(requests, reading.server_tool_calls.get(name, 0))


class GoogleKeys(NamedTuple):
    """How one of Google's APIs names its counts, and the note for thoughts that stand inside the answer's count."""

    prompt: str
    tool_prompt: str
    cached: str
    made: str
    thoughts: str
    total: str
    inside: str


GENERATE_KEYS = GoogleKeys(
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
    "thoughts_inside_candidates",
)
INTERACTION_KEYS = GoogleKeys(
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_cached_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_tokens",
    "thoughts_inside_output",
)


def read_google_usage(reading: Reading, usage: dict[str, Any], keys: GoogleKeys) -> None:
    """Usage of Gemini, where thoughts stand beside the answer's tokens, and prompts of hosted tools beside the prompt.

    Where the total says that thoughts are inside the answer's count, they are not added. An absent count of the answer
    is zero as long as the prompt is counted: this JSON leaves zeros out.
    """
    given = _sum_of(reading, usage, keys.prompt, keys.tool_prompt)
    thoughts = reading.count(usage.get(keys.thoughts))
    total = reading.count(usage.get(keys.total))
    made = reading.count(usage.get(keys.made))
    if usage.get(keys.made) is None and given is not None:
        made = 0
    reading.input_tokens = given
    reading.cached_input_tokens = reading.count(usage.get(keys.cached))
    reading.reasoning_tokens = thoughts
    reading.total_reported = total
    reading.output_tokens = made
    if made is None or usage.get(keys.thoughts) is None:
        return
    if thoughts and given is not None and total == given + made:
        reading.note(keys.inside)
    else:
        reading.output_tokens = None if thoughts is None else made + thoughts


def read_conversation_usage(reading: Reading, usage: dict[str, Any]) -> None:
    """Usage of Mistral's conversations, where what hosted tools put into the prompt stands beside the prompt.

    It is inside only where the total says so.
    """
    read_openai_usage(reading, {**usage, "total_tokens": None}, prompt="prompt", completion="completion")
    reading.total_reported = total = reading.count(usage.get("total_tokens"))
    given, made = reading.input_tokens, reading.output_tokens
    if usage.get("connector_tokens") is None or (given is not None and made is not None and total == given + made):
        return
    reading.input_tokens = _sum_of(reading, usage, "prompt_tokens", "connector_tokens")


def _sum_of(reading: Reading, usage: dict[str, Any], whole: str, *others: str) -> int | None:
    """Counts added up; None when the first, or one of the others that is given, is unknown."""
    return reading.whole(usage.get(whole), *(usage.get(key) for key in others))


def _whole_input(reading: Reading, usage: dict[str, Any]) -> int | None:
    """Fresh, cached and cache-written input together; None when the fresh part or a part that is given is unknown."""
    return _sum_of(reading, usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
