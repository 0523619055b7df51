"""crewai: one agent, one task, on OpenAI's chat."""

from __future__ import annotations

from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from sdk_matrix.cells.shop import QUESTION, checked
from sdk_matrix.cells.shop import price as _price
from sdk_matrix.cells.shop import stock as _stock

price, stock = tool("price")(_price), tool("stock")(_stock)


def _crew(url: str | None, **options: Any) -> Crew:
    llm = LLM(model="openai/gpt-4o", base_url=url)
    agent = Agent(role="clerk", goal="answer", backstory="a shop", llm=llm, tools=[price, stock])
    task = Task(description=QUESTION, expected_output="text", agent=agent)
    return Crew(agents=[agent], tasks=[task], **options)


def sync(url: str | None) -> str:
    return checked(_crew(url).kickoff().raw)


async def async_(url: str | None) -> str:
    return checked((await _crew(url).akickoff()).raw)


def streamed(url: str | None) -> str:
    output = _crew(url, stream=True).kickoff()
    for _ in output:
        pass
    return checked(output.result.raw)


async def async_streamed(url: str | None) -> str:
    output = await _crew(url, stream=True).akickoff()
    async for _ in output:
        pass
    return checked(output.result.raw)


def early(url: str | None) -> None:
    output = _crew(url, stream=True).kickoff()
    next(iter(output))
    output.close()


async def async_early(url: str | None) -> None:
    output = await _crew(url, stream=True).akickoff()
    await anext(aiter(output))
    await output.aclose()
