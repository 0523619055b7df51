"""llama-index on OpenAI's chat: its function agent in async code, its model with tools in sync code."""

from __future__ import annotations

from functools import partial
from typing import Any

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from sdk_matrix.cells.shop import QUESTION, checked, price, stock, use

TOOLS = [FunctionTool.from_defaults(price), FunctionTool.from_defaults(stock)]


def _llm(url: str | None, **options: Any) -> OpenAI:
    return OpenAI(model="gpt-4o", api_base=url, **options)


def _streaming_llm(url: str | None) -> OpenAI:
    return _llm(url, additional_kwargs={"stream_options": {"include_usage": True}})


def _loop(llm: OpenAI, ask: Any) -> str:
    messages = [ChatMessage(role="user", content=QUESTION)]
    while True:
        response = ask(messages)
        calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        if not calls:
            return checked(response.message.content)
        messages.append(response.message)
        for call in calls:
            result = use(call.tool_name, call.tool_kwargs)
            more = {"tool_call_id": call.tool_id}
            messages.append(ChatMessage(role="tool", content=result, additional_kwargs=more))


def sync(url: str | None) -> str:
    llm = _llm(url)
    return _loop(llm, lambda m: llm.chat_with_tools(TOOLS, chat_history=m, allow_parallel_tool_calls=True))


async def async_(url: str | None) -> str:
    agent = FunctionAgent(tools=[price, stock], llm=_llm(url), streaming=False)
    return checked(str(await agent.run(QUESTION)))


def streamed(url: str | None) -> str:
    llm = _streaming_llm(url)
    ask = partial(llm.stream_chat_with_tools, TOOLS, allow_parallel_tool_calls=True)
    return _loop(llm, lambda messages: list(ask(chat_history=messages))[-1])


async def async_streamed(url: str | None) -> str:
    run = FunctionAgent(tools=[price, stock], llm=_streaming_llm(url)).run(QUESTION)
    async for _ in run.stream_events():
        pass
    return checked(str(await run))


def early(url: str | None) -> None:
    stream = _streaming_llm(url).stream_chat([ChatMessage(role="user", content=QUESTION)])
    next(stream)
    stream.close()


async def async_early(url: str | None) -> None:
    run = FunctionAgent(tools=[price, stock], llm=_streaming_llm(url)).run(QUESTION)
    async for event in run.stream_events():
        if isinstance(event, AgentStream):
            break
    await run.cancel_run()
