"""openai, Chat Completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from openai import AsyncOpenAI, OpenAI
from sdk_matrix.cells import chat_agent as agent

ASK: dict[str, Any] = {"model": "gpt-x", "tools": agent.TOOLS}
STREAM: dict[str, Any] = {**ASK, "stream": True, "stream_options": {"include_usage": True}}


def sync(url: str | None) -> str:
    with OpenAI(base_url=url) as client:
        return agent.answer(lambda m: client.chat.completions.create(messages=m, **ASK).choices[0].message)


async def async_(url: str | None, **options: Any) -> str:
    async with AsyncOpenAI(base_url=url, **options) as client:

        async def ask(messages: agent.Messages) -> Any:
            return (await client.chat.completions.create(messages=messages, **ASK)).choices[0].message

        return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    with OpenAI(base_url=url) as client:

        def stream(messages: agent.Messages) -> Iterator[Any]:
            for chunk in client.chat.completions.create(messages=messages, **STREAM):
                yield from (choice.delta for choice in chunk.choices)

        return agent.answer_streamed(stream)


async def async_streamed(url: str | None, **options: Any) -> str:
    async with AsyncOpenAI(base_url=url, **options) as client:

        async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
            async for chunk in await client.chat.completions.create(messages=messages, **STREAM):
                for choice in chunk.choices:
                    yield choice.delta

        return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    with OpenAI(base_url=url) as client, client.chat.completions.create(messages=agent.start(), **STREAM) as stream:
        next(iter(stream))


async def async_early(url: str | None, **options: Any) -> None:
    async with AsyncOpenAI(base_url=url, **options) as client:
        async with await client.chat.completions.create(messages=agent.start(), **STREAM) as stream:
            await anext(aiter(stream))
