"""openai, Responses over a WebSocket: one connection, a response for each ``response.create``."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, OpenAI
from sdk_matrix.cells.openai_responses import TOOLS
from sdk_matrix.cells.shop import QUESTION, checked, use

FIRST: dict[str, Any] = {"input": [{"role": "user", "content": QUESTION}]}


def _next(response: Any) -> dict[str, Any] | None:
    """The input that follows a response; None when it is the answer."""
    calls = [item for item in response.output if item.type == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": use(call.name, call.arguments)}
        for call in calls
    ]
    return {"input": results, "previous_response_id": response.id} if results else None


def streamed(url: str | None) -> str:
    asked: dict[str, Any] | None = FIRST
    with OpenAI(base_url=url) as client, client.responses.connect() as connection:
        while asked is not None:
            connection.response.create(model="gpt-x", tools=TOOLS, **asked)
            response = next(event.response for event in connection if event.type == "response.completed")
            asked = _next(response)
    return checked(response.output_text)


async def async_streamed(url: str | None) -> str:
    asked: dict[str, Any] | None = FIRST
    async with AsyncOpenAI(base_url=url) as client, client.responses.connect() as connection:
        while asked is not None:
            await connection.response.create(model="gpt-x", tools=TOOLS, **asked)
            async for event in connection:
                if event.type == "response.completed":
                    break
            asked = _next(event.response)
    return checked(event.response.output_text)


def early(url: str | None) -> None:
    with OpenAI(base_url=url) as client, client.responses.connect() as connection:
        connection.response.create(model="gpt-x", tools=TOOLS, **FIRST)
        connection.recv()


async def async_early(url: str | None) -> None:
    async with AsyncOpenAI(base_url=url) as client, client.responses.connect() as connection:
        await connection.response.create(model="gpt-x", tools=TOOLS, **FIRST)
        await connection.recv()
