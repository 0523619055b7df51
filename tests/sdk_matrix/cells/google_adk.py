"""google-adk: its runner on Gemini. It retries only when told to."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import Agent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types
from sdk_matrix.cells.shop import QUESTION, checked, price, stock

ASKED = types.UserContent(QUESTION)


def _runner(url: str | None) -> InMemoryRunner:
    retries = types.HttpRetryOptions(attempts=3, initial_delay=0.01, jitter=0.01)
    model = Gemini(model="gemini-x", base_url=url, retry_options=retries)
    return InMemoryRunner(Agent(name="shop", model=model, tools=[price, stock]), app_name="shop")


async def _run(runner: InMemoryRunner, mode: StreamingMode) -> dict[str, Any]:
    session = await runner.session_service.create_session(app_name="shop", user_id="u")
    config = RunConfig(streaming_mode=mode)
    return {"user_id": "u", "session_id": session.id, "new_message": ASKED, "run_config": config}


def _text(events: list[Any]) -> str:
    last = [event for event in events if event.is_final_response()][-1]
    return checked("".join(part.text or "" for part in last.content.parts))


def sync(url: str | None, mode: StreamingMode = StreamingMode.NONE) -> str:
    runner = _runner(url)
    return _text(list(runner.run(**asyncio.run(_run(runner, mode)))))


async def async_(url: str | None, mode: StreamingMode = StreamingMode.NONE) -> str:
    runner = _runner(url)
    return _text([event async for event in runner.run_async(**await _run(runner, mode))])


def streamed(url: str | None) -> str:
    return sync(url, StreamingMode.SSE)


async def async_streamed(url: str | None) -> str:
    return await async_(url, StreamingMode.SSE)


async def async_early(url: str | None) -> None:
    runner = _runner(url)
    events = runner.run_async(**await _run(runner, StreamingMode.SSE))
    await anext(events)
    await events.aclose()
