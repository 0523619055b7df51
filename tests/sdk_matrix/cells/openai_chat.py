"""openai, Chat Completions."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, OpenAI
from sdk_matrix.cells.shop import CHAT_TOOLS, QUESTION, Pieces, asking_message, calls_of, checked, result_message


def _start() -> list[Any]:
    return [{"role": "user", "content": QUESTION}]


def _ask(messages: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt-x", "messages": messages, "tools": CHAT_TOOLS, **more}


def _stream(messages: list[Any]) -> dict[str, Any]:
    return _ask(messages, stream=True, stream_options={"include_usage": True})


def _carry_on(messages: list[Any], message: Any) -> bool:
    """Append what the tools say; False when the message is the answer."""
    calls = calls_of(message)
    if calls:
        messages += [asking_message(calls), *map(result_message, calls)]
    return bool(calls)


def sync(url: str | None) -> str:
    messages = _start()
    with OpenAI(base_url=url) as client:
        while True:
            message = client.chat.completions.create(**_ask(messages)).choices[0].message
            if not _carry_on(messages, message):
                return checked(message.content)


async def async_(url: str | None, **options: Any) -> str:
    messages = _start()
    async with AsyncOpenAI(base_url=url, **options) as client:
        while True:
            message = (await client.chat.completions.create(**_ask(messages))).choices[0].message
            if not _carry_on(messages, message):
                return checked(message.content)


def streamed(url: str | None) -> str:
    messages = _start()
    with OpenAI(base_url=url) as client:
        while True:
            pieces = Pieces()
            for chunk in client.chat.completions.create(**_stream(messages)):
                for choice in chunk.choices:
                    pieces.add(choice.delta)
            if not pieces.calls:
                return checked(pieces.text)
            messages += [pieces.message(), *pieces.results()]


async def async_streamed(url: str | None, **options: Any) -> str:
    messages = _start()
    async with AsyncOpenAI(base_url=url, **options) as client:
        while True:
            pieces = Pieces()
            async for chunk in await client.chat.completions.create(**_stream(messages)):
                for choice in chunk.choices:
                    pieces.add(choice.delta)
            if not pieces.calls:
                return checked(pieces.text)
            messages += [pieces.message(), *pieces.results()]


def early(url: str | None) -> None:
    with OpenAI(base_url=url) as client, client.chat.completions.create(**_stream(_start())) as stream:
        next(iter(stream))


async def async_early(url: str | None, **options: Any) -> None:
    async with AsyncOpenAI(base_url=url, **options) as client:
        async with await client.chat.completions.create(**_stream(_start())) as stream:
            await anext(aiter(stream))
