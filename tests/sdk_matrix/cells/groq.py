"""groq."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from groq import AsyncGroq, Groq
from sdk_matrix.cells import chat_agent as agent

ASK: dict[str, Any] = {"model": "llama-x", "tools": agent.TOOLS}


def sync(url: str | None) -> str:
    with Groq(base_url=url) as client:
        return agent.answer(lambda m: client.chat.completions.create(messages=m, **ASK).choices[0].message)


async def async_(url: str | None) -> str:
    async with AsyncGroq(base_url=url) as client:

        async def ask(messages: agent.Messages) -> Any:
            return (await client.chat.completions.create(messages=messages, **ASK)).choices[0].message

        return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    with Groq(base_url=url) as client:

        def stream(messages: agent.Messages) -> Iterator[Any]:
            for chunk in client.chat.completions.create(messages=messages, stream=True, **ASK):
                yield from (choice.delta for choice in chunk.choices)

        return agent.answer_streamed(stream)


async def async_streamed(url: str | None) -> str:
    async with AsyncGroq(base_url=url) as client:

        async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
            async for chunk in await client.chat.completions.create(messages=messages, stream=True, **ASK):
                for choice in chunk.choices:
                    yield choice.delta

        return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    with Groq(base_url=url) as client:
        with client.chat.completions.create(messages=agent.start(), stream=True, **ASK) as stream:
            next(iter(stream))


async def async_early(url: str | None) -> None:
    async with AsyncGroq(base_url=url) as client:
        async with await client.chat.completions.create(messages=agent.start(), stream=True, **ASK) as stream:
            await anext(aiter(stream))
