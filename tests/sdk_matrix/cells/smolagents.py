"""smolagents: its tool-calling agent on OpenAI's chat, whose answer is a tool call as well."""

from __future__ import annotations

import os
from typing import Any

from sdk_matrix.cells.shop import QUESTION, checked
from sdk_matrix.cells.shop import price as _price
from sdk_matrix.cells.shop import stock as _stock
from smolagents import OpenAIModel, ToolCallingAgent, tool

price, stock = tool(_price), tool(_stock)


def _agent(url: str | None, **options: Any) -> ToolCallingAgent:
    model = OpenAIModel("gpt-x", api_base=url, api_key=os.environ["OPENAI_API_KEY"])
    return ToolCallingAgent([price, stock], model, verbosity_level=0, **options)


def sync(url: str | None) -> str:
    return checked(_agent(url).run(QUESTION))


def streamed(url: str | None) -> str:
    steps = list(_agent(url, stream_outputs=True).run(QUESTION, stream=True))
    return checked(steps[-1].output)


def early(url: str | None) -> None:
    model = OpenAIModel("gpt-x", api_base=url, api_key=os.environ["OPENAI_API_KEY"])
    stream = model.generate_stream([{"role": "user", "content": QUESTION}])
    next(stream)
    stream.close()
