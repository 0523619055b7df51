"""openai over aiohttp: the client that ``DefaultAioHttpClient`` makes."""

from __future__ import annotations

from openai import DefaultAioHttpClient
from sdk_matrix.cells import openai_chat


async def async_(url: str | None) -> str:
    return await openai_chat.async_(url, http_client=DefaultAioHttpClient())


async def async_streamed(url: str | None) -> str:
    return await openai_chat.async_streamed(url, http_client=DefaultAioHttpClient())


async def async_early(url: str | None) -> None:
    await openai_chat.async_early(url, http_client=DefaultAioHttpClient())
