"""openai, Responses."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, OpenAI
from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

TOOLS = [
    {"type": "function", "name": name, "description": about, "parameters": SCHEMA, "strict": False}
    for name, about in ABOUT.items()
]


def _start() -> list[Any]:
    return [{"role": "user", "content": QUESTION}]


def _ask(items: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-x", "input": items, "tools": TOOLS}


def _carry_on(items: list[Any], response: Any) -> bool:
    """Append what the tools say; False when the response is the answer."""
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        same = {"call_id": call.call_id}
        items.append({"type": "function_call", **same, "name": call.name, "arguments": call.arguments})
        items.append({"type": "function_call_output", **same, "output": use(call.name, call.arguments)})
    return bool(calls)


def sync(url: str | None) -> str:
    items = _start()
    with OpenAI(base_url=url) as client:
        while True:
            response = client.responses.create(**_ask(items))
            if not _carry_on(items, response):
                return checked(response.output_text)


async def async_(url: str | None) -> str:
    items = _start()
    async with AsyncOpenAI(base_url=url) as client:
        while True:
            response = await client.responses.create(**_ask(items))
            if not _carry_on(items, response):
                return checked(response.output_text)


def streamed(url: str | None) -> str:
    items = _start()
    with OpenAI(base_url=url) as client:
        while True:
            with client.responses.stream(**_ask(items)) as stream:
                stream.until_done()
                response = stream.get_final_response()
            if not _carry_on(items, response):
                return checked(response.output_text)


async def async_streamed(url: str | None) -> str:
    items = _start()
    async with AsyncOpenAI(base_url=url) as client:
        while True:
            async with client.responses.stream(**_ask(items)) as stream:
                response = await stream.get_final_response()
            if not _carry_on(items, response):
                return checked(response.output_text)


def early(url: str | None) -> None:
    with OpenAI(base_url=url) as client, client.responses.create(**_ask(_start()), stream=True) as stream:
        next(iter(stream))


async def async_early(url: str | None) -> None:
    async with AsyncOpenAI(base_url=url) as client:
        async with await client.responses.create(**_ask(_start()), stream=True) as stream:
            await anext(aiter(stream))
