"""openai-agents: its runner, on Responses."""

from __future__ import annotations

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled
from sdk_matrix.cells.shop import QUESTION, checked, price, stock

set_tracing_disabled(True)
AGENT = Agent(name="shop", instructions="Answer.", model="gpt-x", tools=[function_tool(price), function_tool(stock)])


def _at(url: str | None) -> RunConfig:
    return RunConfig(model_provider=OpenAIProvider(base_url=url, use_responses=True))


def sync(url: str | None) -> str:
    return checked(Runner.run_sync(AGENT, QUESTION, run_config=_at(url)).final_output)


async def async_(url: str | None) -> str:
    return checked((await Runner.run(AGENT, QUESTION, run_config=_at(url))).final_output)


async def async_streamed(url: str | None) -> str:
    result = Runner.run_streamed(AGENT, QUESTION, run_config=_at(url))
    async for _ in result.stream_events():
        pass
    return checked(result.final_output)


async def async_early(url: str | None) -> None:
    result = Runner.run_streamed(AGENT, QUESTION, run_config=_at(url))
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            break
    result.cancel()
    async for _ in result.stream_events():
        pass
