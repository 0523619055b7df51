"""smolagents: its tool-calling agent, whose answer is a tool call as well, on OpenAI's chat; or another model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sdk_matrix.cells.shop import QUESTION, checked
from sdk_matrix.cells.shop import price as _price
from sdk_matrix.cells.shop import stock as _stock
from smolagents import OpenAIModel, ToolCallingAgent, tool

price, stock = tool(_price), tool(_stock)


def _openai(url: str | None) -> Any:
    return OpenAIModel("gpt-x", api_base=url, api_key=os.environ["OPENAI_API_KEY"])


MODEL: Callable[[str | None], Any] = _openai


def _agent(url: str | None, **options: Any) -> ToolCallingAgent:
    return ToolCallingAgent([price, stock], MODEL(url), verbosity_level=0, **options)


def sync(url: str | None) -> str:
    return checked(_agent(url).run(QUESTION))


def streamed(url: str | None) -> str:
    steps = list(_agent(url, stream_outputs=True).run(QUESTION, stream=True))
    return checked(steps[-1].output)


def early(url: str | None) -> None:
    stream = MODEL(url).generate_stream([{"role": "user", "content": QUESTION}])
    next(stream)
    stream.close()
