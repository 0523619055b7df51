"""mistralai. It has no variable for its base URL, and retries only when told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from mistralai.client import Mistral
from mistralai.client.utils.retries import BackoffStrategy, RetryConfig
from sdk_matrix.cells import chat_agent as agent

ASK: dict[str, Any] = {"model": "mistral-x", "tools": agent.TOOLS}


def _client(url: str | None) -> Mistral:
    import os

    retries = RetryConfig("backoff", BackoffStrategy(1, 5, 1.0, 5000, jitter_ms=0), retry_connection_errors=True)
    return Mistral(api_key=os.environ["MISTRAL_API_KEY"], server_url=url, retry_config=retries)


def sync(url: str | None) -> str:
    with _client(url) as client:
        return agent.answer(lambda m: client.chat.complete(messages=m, **ASK).choices[0].message)


async def async_(url: str | None) -> str:
    async with _client(url) as client:

        async def ask(messages: agent.Messages) -> Any:
            return (await client.chat.complete_async(messages=messages, **ASK)).choices[0].message

        return await agent.answer_async(ask)


def streamed(url: str | None) -> str:
    with _client(url) as client:

        def stream(messages: agent.Messages) -> Iterator[Any]:
            for event in client.chat.stream(messages=messages, **ASK):
                yield from (choice.delta for choice in event.data.choices)

        return agent.answer_streamed(stream)


async def async_streamed(url: str | None) -> str:
    async with _client(url) as client:

        async def stream(messages: agent.Messages) -> AsyncIterator[Any]:
            async for event in await client.chat.stream_async(messages=messages, **ASK):
                for choice in event.data.choices:
                    yield choice.delta

        return await agent.answer_async_streamed(stream)


def early(url: str | None) -> None:
    with _client(url) as client, client.chat.stream(messages=agent.start(), **ASK) as stream:
        next(stream)


async def async_early(url: str | None) -> None:
    async with _client(url) as client:
        async with await client.chat.stream_async(messages=agent.start(), **ASK) as stream:
            await anext(stream)
