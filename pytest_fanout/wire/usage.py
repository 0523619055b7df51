"""Usage as the providers count it, turned into ours: input and output hold everything, the rest are parts of them."""

from __future__ import annotations

from typing import Any

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


def _whole_input(reading: Reading, usage: dict[str, Any]) -> int | None:
    """Fresh, cached and cache-written input together."""
    return reading.whole(
        usage.get("input_tokens"), usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    )
