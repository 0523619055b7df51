"""huggingface-hub: InferenceClient against a URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from huggingface_hub import AsyncInferenceClient, InferenceClient
from sdk_matrix.cells import chat_agent as agent

ASK: dict[str, Any] = {"model": "m-x", "tools": agent.TOOLS}
STREAM: dict[str, Any] = {**ASK, "stream": True, "stream_options": {"include_usage": True}}


def sync(url: str | None) -> str:
    with InferenceClient(base_url=url) as client:
        return agent.answer(lambda m: client.chat_completion(m, **ASK).choices[0].message)


async def async_(url: str | None) -> str:
    async with AsyncInferenceClient(base_url=url) as client:

        async def ask(messages: agent.Messages) -> Any:
            return (await client.chat_completion(messages, **ASK)).choices[0].message

        return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    with InferenceClient(base_url=url) as client:

        def stream(messages: agent.Messages) -> Iterator[Any]:
            for chunk in client.chat_completion(messages, **STREAM):
                yield from (choice.delta for choice in chunk.choices)

        return agent.answer_streamed(stream)


async def async_streamed(url: str | None) -> str:
    async with AsyncInferenceClient(base_url=url) as client:

        async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
            async for chunk in await client.chat_completion(messages, **STREAM):
                for choice in chunk.choices:
                    yield choice.delta

        return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    with InferenceClient(base_url=url) as client:
        next(iter(client.chat_completion(agent.start(), **STREAM)))


async def async_early(url: str | None) -> None:
    async with AsyncInferenceClient(base_url=url) as client:
        await anext(aiter(await client.chat_completion(agent.start(), **STREAM)))
