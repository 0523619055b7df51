"""strands on OpenAI's chat; another cell gives it another model. It streams on the wire in every form."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sdk_matrix.cells.shop import QUESTION, checked
from sdk_matrix.cells.shop import price as _price
from sdk_matrix.cells.shop import stock as _stock
from strands import Agent, tool
from strands.models.openai import OpenAIModel

price, stock = tool(_price), tool(_stock)


def _openai(url: str | None) -> Any:
    client: dict[str, Any] = {"api_key": os.environ["OPENAI_API_KEY"]}
    if url is not None:
        client["base_url"] = url
    return OpenAIModel(client_args=client, model_id="gpt-x")


MODEL: Callable[[str | None], Any] = _openai


def _agent(url: str | None) -> Agent:
    return Agent(model=MODEL(url), tools=[price, stock], callback_handler=None)


def sync(url: str | None) -> str:
    return checked(str(_agent(url)(QUESTION)))


async def async_(url: str | None) -> str:
    return checked(str(await _agent(url).invoke_async(QUESTION)))


async def async_streamed(url: str | None) -> str:
    last = None
    async for event in _agent(url).stream_async(QUESTION):
        last = event.get("result", last)
    return checked(str(last))


async def async_early(url: str | None) -> None:
    agent = _agent(url)
    async for event in agent.stream_async(QUESTION):
        if "data" in event:
            agent.cancel()
