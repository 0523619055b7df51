"""langchain's agent (a langgraph graph) on OpenAI's chat."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from sdk_matrix.cells.shop import QUESTION, checked, price, stock

ASKED = {"messages": [{"role": "user", "content": QUESTION}]}


def _agent(url: str | None, **options: Any) -> Any:
    return create_agent(ChatOpenAI(model="gpt-x", base_url=url, **options), [price, stock])


def _last(state: dict[str, Any]) -> str:
    return checked(state["messages"][-1].content)


def sync(url: str | None) -> str:
    return _last(_agent(url).invoke(ASKED))


async def async_(url: str | None) -> str:
    return _last(await _agent(url).ainvoke(ASKED))


def streamed(url: str | None) -> str:
    agent = _agent(url, stream_usage=True)
    parts = list(agent.stream(ASKED, stream_mode="messages"))
    return checked("".join(message.content for message, _ in parts if message.type == "AIMessageChunk"))


async def async_streamed(url: str | None) -> str:
    agent = _agent(url, stream_usage=True)
    parts = [part async for part in agent.astream(ASKED, stream_mode="messages")]
    return checked("".join(message.content for message, _ in parts if message.type == "AIMessageChunk"))


def early(url: str | None) -> None:
    stream = ChatOpenAI(model="gpt-x", base_url=url, stream_usage=True).stream(QUESTION)
    next(stream)
    stream.close()


async def async_early(url: str | None) -> None:
    stream = ChatOpenAI(model="gpt-x", base_url=url, stream_usage=True).astream(QUESTION)
    await anext(stream)
    await stream.aclose()
