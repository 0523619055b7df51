"""litellm, a model with the prefix of OpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
from sdk_matrix.cells import chat_agent as agent

ASK: dict[str, Any] = {"model": "openai/gpt-x", "tools": agent.TOOLS, "num_retries": 2}
STREAM: dict[str, Any] = {**ASK, "stream": True, "stream_options": {"include_usage": True}}


def sync(url: str | None) -> str:
    return agent.answer(lambda m: litellm.completion(messages=m, base_url=url, **ASK).choices[0].message)


async def async_(url: str | None) -> str:
    async def ask(messages: agent.Messages) -> Any:
        return (await litellm.acompletion(messages=messages, base_url=url, **ASK)).choices[0].message

    return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    def stream(messages: agent.Messages) -> Iterator[Any]:
        for chunk in litellm.completion(messages=messages, base_url=url, **STREAM):
            yield from (choice.delta for choice in chunk.choices)

    return agent.answer_streamed(stream)


async def async_streamed(url: str | None) -> str:
    async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
        async for chunk in await litellm.acompletion(messages=messages, base_url=url, **STREAM):
            for choice in chunk.choices:
                yield choice.delta

    return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    stream = litellm.completion(messages=agent.start(), base_url=url, **STREAM)
    next(stream)
    stream.completion_stream.close()


async def async_early(url: str | None) -> None:
    stream = await litellm.acompletion(messages=agent.start(), base_url=url, **STREAM)
    await anext(stream)
    await stream.aclose()
