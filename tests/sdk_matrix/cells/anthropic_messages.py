"""anthropic, Messages."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

TOOLS = [{"name": name, "description": about, "input_schema": SCHEMA} for name, about in ABOUT.items()]


def _start() -> list[Any]:
    return [{"role": "user", "content": QUESTION}]


def _ask(messages: list[Any]) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 500, "messages": messages, "tools": TOOLS}


def _carry_on(messages: list[Any], message: Any) -> bool:
    """Append what the tools say; False when the message is the answer."""
    calls = [block for block in message.content if block.type == "tool_use"]
    if calls:
        asked = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input} for call in calls]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": use(call.name, call.input)} for call in calls
        ]
        messages += [{"role": "assistant", "content": asked}, {"role": "user", "content": results}]
    return bool(calls)


def sync(url: str | None) -> str:
    messages = _start()
    with Anthropic(base_url=url) as client:
        while True:
            message = client.messages.create(**_ask(messages))
            if not _carry_on(messages, message):
                return checked(message.content[0].text)


async def async_(url: str | None) -> str:
    messages = _start()
    async with AsyncAnthropic(base_url=url) as client:
        while True:
            message = await client.messages.create(**_ask(messages))
            if not _carry_on(messages, message):
                return checked(message.content[0].text)


def streamed(url: str | None) -> str:
    messages = _start()
    with Anthropic(base_url=url) as client:
        while True:
            with client.messages.stream(**_ask(messages)) as stream:
                message = stream.get_final_message()
            if not _carry_on(messages, message):
                return checked(message.content[0].text)


async def async_streamed(url: str | None) -> str:
    messages = _start()
    async with AsyncAnthropic(base_url=url) as client:
        while True:
            async with client.messages.stream(**_ask(messages)) as stream:
                message = await stream.get_final_message()
            if not _carry_on(messages, message):
                return checked(message.content[0].text)


def early(url: str | None) -> None:
    with Anthropic(base_url=url) as client, client.messages.stream(**_ask(_start())) as stream:
        next(iter(stream.text_stream))


async def async_early(url: str | None) -> None:
    async with AsyncAnthropic(base_url=url) as client:
        async with client.messages.stream(**_ask(_start())) as stream:
            await anext(aiter(stream.text_stream))
