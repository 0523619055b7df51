"""pydantic-ai on OpenAI's chat; other cells give it another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from sdk_matrix.cells.shop import QUESTION, checked, price, stock


def _openai(url: str | None) -> Any:
    return OpenAIChatModel("gpt-x", provider=OpenAIProvider(base_url=url))


MODEL: Callable[[str | None], Any] = _openai


def _agent(url: str | None) -> Agent:
    return Agent(MODEL(url), tools=[price, stock])


def sync(url: str | None) -> str:
    return checked(_agent(url).run_sync(QUESTION).output)


async def async_(url: str | None) -> str:
    return checked((await _agent(url).run(QUESTION)).output)


def streamed(url: str | None) -> str:
    with _agent(url).run_stream_sync(QUESTION) as run:
        return checked(run.get_output())


async def async_streamed(url: str | None) -> str:
    async with _agent(url).run_stream(QUESTION) as run:
        return checked(await run.get_output())


def early(url: str | None) -> None:
    with _agent(url).run_stream_sync(QUESTION) as run:
        next(run.stream_text(debounce_by=None))


async def async_early(url: str | None) -> None:
    async with _agent(url).run_stream(QUESTION) as run:
        await anext(aiter(run.stream_text(debounce_by=None)))
