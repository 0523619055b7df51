"""Replay at the recorded speed: answers and chunks come when they came, and every number stays as it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gatewaying import CHAT, behind, child_of
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

#: Four events, a tenth of a second apart after the first one; and a plain answer after 0.15 s.
SLOW = [{"text": "a b c", "chunk_delay_s": 0.1}, {"delay_s": 0.15}]
Times = list[float]


def httpx_agent(url: str) -> Times:
    came = [time.monotonic()]
    with httpx.Client() as client:
        with client.stream("POST", url, json=chat(stream=True)) as answer:
            came += [time.monotonic() for _ in answer.iter_raw()]
        client.post(url, json=chat())
    return [*came, time.monotonic()]


async def async_httpx_agent(url: str) -> Times:
    came = [time.monotonic()]
    async with httpx.AsyncClient() as client:
        async with client.stream("POST", url, json=chat(stream=True)) as answer:
            came += [time.monotonic() async for _ in answer.aiter_raw()]
        await client.post(url, json=chat())
    return [*came, time.monotonic()]


async def aiohttp_agent(url: str) -> Times:
    import aiohttp

    came = [time.monotonic()]
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=chat(stream=True)) as answer:
            came += [time.monotonic() async for _ in answer.content.iter_any()]
        async with session.post(url, json=chat()) as answer:
            await answer.read()
    return [*came, time.monotonic()]


def requests_agent(url: str) -> Times:
    import requests

    came = [time.monotonic()]
    with requests.Session() as session:
        with session.post(url, json=chat(stream=True), stream=True) as answer:
            came += [time.monotonic() for _ in answer.iter_content(None)]
        session.post(url, json=chat())
    return [*came, time.monotonic()]


@pytest.mark.parametrize("agent", [httpx_agent, async_httpx_agent, aiohttp_agent, requests_agent])
def test_chunks_and_answers_come_when_they_came(agent: Callable[[str], Any], model: ModelServer) -> None:
    """No chunk and no answer comes earlier than it did; the samples are those of the recording, at either speed."""
    url = model.base_url + "/v1/chat/completions"
    model.restart(SLOW)
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(url))
    replayed = {}
    for at_recorded_speed in (False, True):
        with metering("replay") as meter:
            meter.at_recorded_speed = at_recorded_speed
            replayed[at_recorded_speed] = run_task(meter, lambda: agent(url), source=Tape(recorded.trace.exchanges))
    stream, plain = (exchange.answer for exchange in recorded.trace.exchanges)
    timed = replayed[True].value

    assert len(timed) == len(recorded.value) == len(stream.chunks) + 2
    assert len(stream.chunks) >= 4
    assert [at - timed[0] >= ms / 1000 for at, ms in zip(timed[1:], stream.chunk_ms, strict=False)].count(False) == 0
    assert timed[-1] - timed[0] >= (stream.ended_ms + plain.ended_ms) / 1000 >= 0.45
    assert len({str(dict(r.measured.samples) | {"duration_ms": 0}) for r in (recorded, *replayed.values())}) == 1


def test_the_gateway_keeps_the_recorded_pauses(model: ModelServer) -> None:
    """A child process waits for its replayed answer as long as for the live one."""
    model.restart([{"delay_s": 0.4}])
    with behind(model, "record") as child:
        said = child.ask(CHAT)
        child.close()
    assert child.trace is not None
    with metering("replay") as meter:
        meter.at_recorded_speed = True
        replayed = child_of(meter, model, source=Tape(child.trace.exchanges))
        began = time.monotonic()
        assert replayed.ask(CHAT) == said
        took_s = time.monotonic() - began
        replayed.close()

    assert took_s >= 0.4
