"""litellm, a model of OpenAI's; other cells set ``MODEL`` to one of another provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
from sdk_matrix.cells import chat_agent as agent

MODEL = "openai/gpt-x"


def _ask(url: str | None) -> dict[str, Any]:
    return {"model": MODEL, "base_url": url, "tools": agent.TOOLS, "num_retries": 2}


def _stream(url: str | None) -> dict[str, Any]:
    return {**_ask(url), "stream": True, "stream_options": {"include_usage": True}}


def sync(url: str | None) -> str:
    return agent.answer(lambda m: litellm.completion(messages=m, **_ask(url)).choices[0].message)


async def async_(url: str | None) -> str:
    async def ask(messages: agent.Messages) -> Any:
        return (await litellm.acompletion(messages=messages, **_ask(url))).choices[0].message

    return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    def stream(messages: agent.Messages) -> Iterator[Any]:
        for chunk in litellm.completion(messages=messages, **_stream(url)):
            yield from (choice.delta for choice in chunk.choices)

    return agent.answer_streamed(stream)


async def async_streamed(url: str | None) -> str:
    async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
        async for chunk in await litellm.acompletion(messages=messages, **_stream(url)):
            for choice in chunk.choices:
                yield choice.delta

    return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    stream = litellm.completion(messages=agent.start(), **_stream(url))
    next(stream)
    stream.completion_stream.close()


async def async_early(url: str | None) -> None:
    stream = await litellm.acompletion(messages=agent.start(), **_stream(url))
    await anext(stream)
    await stream.aclose()
