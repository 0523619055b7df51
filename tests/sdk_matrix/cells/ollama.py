"""ollama, its own API."""

from __future__ import annotations

from typing import Any

from ollama import AsyncClient, Client
from sdk_matrix.cells import chat_agent as agent
from sdk_matrix.cells.shop import checked, use

ASK: dict[str, Any] = {"model": "qwen-x", "tools": agent.TOOLS}


def _carry_on(messages: agent.Messages, message: Any) -> bool:
    """Append what the tools say; False when the message is the answer."""
    if not message.tool_calls:
        return False
    messages.append(message)
    for call in message.tool_calls:
        result = use(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
    return True


class _Whole:
    """A streamed message, put together."""

    def __init__(self) -> None:
        self.content = ""
        self.tool_calls: list[Any] = []

    def add(self, message: Any) -> None:
        self.content += message.content or ""
        self.tool_calls += message.tool_calls or ()

    def message(self) -> dict[str, Any]:
        return {"role": "assistant", "content": self.content, "tool_calls": self.tool_calls}


def sync(url: str | None) -> str:
    messages = agent.start()
    with Client(host=url) as client:
        while True:
            message = client.chat(messages=messages, **ASK).message
            if not _carry_on(messages, message):
                return checked(message.content)


async def async_(url: str | None) -> str:
    messages = agent.start()
    async with AsyncClient(host=url) as client:
        while True:
            message = (await client.chat(messages=messages, **ASK)).message
            if not _carry_on(messages, message):
                return checked(message.content)


def streamed(url: str | None) -> str:
    messages = agent.start()
    with Client(host=url) as client:
        while True:
            whole = _Whole()
            for part in client.chat(messages=messages, stream=True, **ASK):
                whole.add(part.message)
            if not _follow(messages, whole):
                return checked(whole.content)


async def async_streamed(url: str | None) -> str:
    messages = agent.start()
    async with AsyncClient(host=url) as client:
        while True:
            whole = _Whole()
            async for part in await client.chat(messages=messages, stream=True, **ASK):
                whole.add(part.message)
            if not _follow(messages, whole):
                return checked(whole.content)


def _follow(messages: agent.Messages, whole: _Whole) -> bool:
    if not _carry_on(messages, whole):
        return False
    messages[-1 - len(whole.tool_calls)] = whole.message()
    return True


def early(url: str | None) -> None:
    with Client(host=url) as client:
        stream = client.chat(messages=agent.start(), stream=True, **ASK)
        next(stream)
        stream.close()


async def async_early(url: str | None) -> None:
    async with AsyncClient(host=url) as client:
        stream = await client.chat(messages=agent.start(), stream=True, **ASK)
        await anext(stream)
        await stream.aclose()
