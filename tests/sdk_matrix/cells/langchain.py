"""langchain's agent (a langgraph graph) on OpenAI's chat; another cell gives it another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from sdk_matrix.cells.shop import QUESTION, checked, price, stock

ASKED = {"messages": [{"role": "user", "content": QUESTION}]}


def _openai(url: str | None) -> Any:
    return ChatOpenAI(model="gpt-x", base_url=url, stream_usage=True)


MODEL: Callable[[str | None], Any] = _openai


def _agent(url: str | None) -> Any:
    return create_agent(MODEL(url), [price, stock])


def _last(state: dict[str, Any]) -> str:
    return checked(state["messages"][-1].text)


def sync(url: str | None) -> str:
    return _last(_agent(url).invoke(ASKED))


async def async_(url: str | None) -> str:
    return _last(await _agent(url).ainvoke(ASKED))


def streamed(url: str | None) -> str:
    parts = list(_agent(url).stream(ASKED, stream_mode="messages"))
    return checked("".join(message.text for message, _ in parts if message.type == "AIMessageChunk"))


async def async_streamed(url: str | None) -> str:
    parts = [part async for part in _agent(url).astream(ASKED, stream_mode="messages")]
    return checked("".join(message.text for message, _ in parts if message.type == "AIMessageChunk"))


def early(url: str | None) -> None:
    stream = MODEL(url).stream(QUESTION)
    next(stream)
    stream.close()


async def async_early(url: str | None) -> None:
    stream = MODEL(url).astream(QUESTION)
    await anext(stream)
    await stream.aclose()
