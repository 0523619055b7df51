"""cohere, its second API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cohere import AsyncClientV2, ClientV2
from sdk_matrix.cells import chat_agent as agent
from sdk_matrix.cells.shop import checked

ASK: dict[str, Any] = {"model": "command-x", "tools": agent.TOOLS}


def _at(url: str | None) -> dict[str, Any]:
    return {} if url is None else {"base_url": url}


def _text(message: Any) -> str:
    return "".join(part.text for part in message.content or ())


class _Whole:
    """A streamed answer, put together from its events."""

    def __init__(self, events: Iterable[Any] = ()) -> None:
        self.text = ""
        self.calls: list[dict[str, str]] = []
        for event in events:
            self.add(event)

    def add(self, event: Any) -> None:
        if event.type == "content-delta":
            self.text += event.delta.message.content.text
        elif event.type == "tool-call-start":
            call = event.delta.message.tool_calls
            self.calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
        elif event.type == "tool-call-delta":
            self.calls[-1]["arguments"] += event.delta.message.tool_calls.function.arguments


def _carry_on(messages: agent.Messages, calls: list[dict[str, str]]) -> bool:
    if calls:
        agent.carry_on(messages, calls)
        for message in messages:
            if message["role"] == "tool":
                message.pop("name", None)
            if message["role"] == "assistant":
                message.pop("content", None)
    return bool(calls)


def sync(url: str | None) -> str:
    messages = agent.start()
    with ClientV2(**_at(url)) as client:
        while True:
            message = client.chat(messages=messages, **ASK).message
            if not _carry_on(messages, agent.calls_of(message)):
                return checked(_text(message))


async def async_(url: str | None) -> str:
    messages = agent.start()
    async with AsyncClientV2(**_at(url)) as client:
        while True:
            message = (await client.chat(messages=messages, **ASK)).message
            if not _carry_on(messages, agent.calls_of(message)):
                return checked(_text(message))


def streamed(url: str | None) -> str:
    messages = agent.start()
    with ClientV2(**_at(url)) as client:
        while True:
            whole = _Whole(client.chat_stream(messages=messages, **ASK))
            if not _carry_on(messages, whole.calls):
                return checked(whole.text)


async def async_streamed(url: str | None) -> str:
    messages = agent.start()
    async with AsyncClientV2(**_at(url)) as client:
        while True:
            whole = _Whole()
            async for event in client.chat_stream(messages=messages, **ASK):
                whole.add(event)
            if not _carry_on(messages, whole.calls):
                return checked(whole.text)


def early(url: str | None) -> None:
    with ClientV2(**_at(url)) as client:
        stream = client.chat_stream(messages=agent.start(), **ASK)
        next(stream)
        stream.close()


async def async_early(url: str | None) -> None:
    async with AsyncClientV2(**_at(url)) as client:
        stream = client.chat_stream(messages=agent.start(), **ASK)
        await anext(stream)
        await stream.aclose()
