"""dspy: a program that calls tools natively, on dspy's own HTTP client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dspy
from sdk_matrix.cells.shop import QUESTION, checked, price, stock, use

TOOLS = [dspy.Tool(price), dspy.Tool(stock)]


class Shop(dspy.Signature):
    """Answer the question; call tools where you need them."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    results: list[str] = dspy.InputField()
    answer: str = dspy.OutputField()
    calls: dspy.ToolCalls = dspy.OutputField()


ENGINE = "auto"  # the own client, unless a base URL stands in the environment


def _settings(url: str | None) -> dict[str, Any]:
    lm = dspy.LM("openai/gpt-4o", api_base=url, cache=False, engine=ENGINE)
    return {"lm": lm, "adapter": dspy.ChatAdapter(use_native_function_calling=True)}


def _asked(results: list[str]) -> dict[str, Any]:
    return {"question": QUESTION, "tools": TOOLS, "results": results}


def _carry_on(results: list[str], said: dspy.Prediction) -> bool:
    calls = said.calls.tool_calls if said.calls else []
    results += [f"{call.name}: {use(call.name, call.args)}" for call in calls]
    return bool(calls)


def sync(url: str | None) -> str:
    results: list[str] = []
    with dspy.context(**_settings(url)):
        while True:
            said = dspy.Predict(Shop)(**_asked(results))
            if not _carry_on(results, said):
                return checked(said.answer)


async def async_(url: str | None) -> str:
    results: list[str] = []
    with dspy.context(**_settings(url)):
        while True:
            said = await dspy.Predict(Shop).acall(**_asked(results))
            if not _carry_on(results, said):
                return checked(said.answer)


def _streaming(**options: Any) -> Callable[..., Any]:
    listeners = [dspy.streaming.StreamListener("answer", allow_reuse=True)]
    return dspy.streamify(dspy.Predict(Shop), stream_listeners=listeners, **options)


def streamed(url: str | None) -> str:
    results: list[str] = []
    with dspy.context(**_settings(url)):
        while True:
            said = list(_streaming(async_streaming=False)(**_asked(results)))[-1]
            if not _carry_on(results, said):
                return checked(said.answer)


async def async_streamed(url: str | None) -> str:
    results: list[str] = []
    with dspy.context(**_settings(url)):
        while True:
            said = [part async for part in _streaming()(**_asked(results))][-1]
            if not _carry_on(results, said):
                return checked(said.answer)


async def async_early(url: str | None) -> None:
    with dspy.context(**_settings(url)):
        stream = _streaming()(**_asked([]))
        await anext(stream)
        await stream.aclose()
