"""The loop of an agent on a chat API, for the SDKs that speak that shape: ask, run the tools, ask again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": about, "parameters": SCHEMA}}
    for name, about in ABOUT.items()
]
Messages = list[Any]


def start() -> Messages:
    return [{"role": "user", "content": QUESTION}]


def answer(ask: Callable[[Messages], Any]) -> str:
    """``ask`` gives the message of a whole answer."""
    messages = start()
    while True:
        message = ask(messages)
        calls = calls_of(message)
        if not calls:
            return checked(message.content)
        carry_on(messages, calls)


async def answer_async(ask: Callable[[Messages], Awaitable[Any]]) -> str:
    messages = start()
    while True:
        message = await ask(messages)
        calls = calls_of(message)
        if not calls:
            return checked(message.content)
        carry_on(messages, calls)


def answer_streamed(stream: Callable[[Messages], Iterator[Any]]) -> str:
    """``stream`` gives the deltas of a streamed answer."""
    messages = start()
    while True:
        pieces = Pieces()
        for delta in stream(messages):
            pieces.add(delta)
        if not pieces.calls:
            return checked(pieces.text)
        carry_on(messages, list(pieces.calls.values()))


async def answer_async_streamed(stream: Callable[[Messages], AsyncIterator[Any]]) -> str:
    messages = start()
    while True:
        pieces = Pieces()
        async for delta in stream(messages):
            pieces.add(delta)
        if not pieces.calls:
            return checked(pieces.text)
        carry_on(messages, list(pieces.calls.values()))


class Pieces:
    """Joins the fragments of a streamed answer: its text, and its tool calls by index."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[int, dict[str, str]] = {}

    def add(self, delta: Any) -> None:
        self.text += delta.content or ""
        for part in delta.tool_calls or ():
            call = self.calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] = part.id or call["id"]
            call["name"] = part.function.name or call["name"]
            call["arguments"] += part.function.arguments or ""


def calls_of(message: Any) -> list[dict[str, str]]:
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or ()
    ]


def carry_on(messages: Messages, calls: list[dict[str, str]]) -> None:
    """Append what the model asked for, and what the tools say."""
    asked = []
    for call in calls:
        arguments = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
        asked.append({"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}})
    messages.append({"role": "assistant", "content": "", "tool_calls": asked})
    for call in calls:
        result = use(call["name"], call["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": result})
