"""Calls that an agent sends and does not wait for."""

from __future__ import annotations

import asyncio
import contextlib

import httpx2
import openai
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Caps


def test_calls_that_are_given_up_are_said() -> None:
    """Of a race of requests the losers were sent: they are fanout of unknown usage, and a notice says how many."""

    async def agent(url: str) -> None:
        async with httpx2.AsyncClient() as client:
            racing = [asyncio.ensure_future(client.post(url, json=chat(str(number)))) for number in range(3)]
            done, losers = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            for task in losers:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            with contextlib.suppress(httpx2.ReadTimeout):
                await client.post(url, json=chat("slow"), timeout=0.05)

    with ModelServer([{"delay_s": 0.3}, {"delay_s": 0.3}, {}, {"delay_s": 0.3}]) as server:
        with metering() as meter:
            result = run_task(meter, lambda: agent(server.base_url + "/v1/chat/completions"))

    samples = result.measured.samples
    assert (result.error, result.fanout, samples["attempts"], samples["input_tokens"]) == (None, 4, 4, None)
    assert result.measured.unknown_usage == 3
    (problem,) = result.trace.problems
    assert (problem.slug, problem.verdict) == ("calls-given-up", "notice")
    assert problem.text == (
        "3 model calls of 't' of shop given up by the agent before an answer came: "
        "they were sent and are counted; what they cost is not known"
    )


def test_a_timeout_and_its_retry_are_one_call() -> None:
    """The SDK's retry after its own timeout continues the call, also under a cap that leaves no place for another."""

    def agent(url: str) -> str:
        with openai.OpenAI(base_url=url, api_key="x", timeout=0.2, max_retries=1) as client:
            return str(client.chat.completions.create(**chat()).choices[0].message.content)

    with ModelServer([{"delay_s": 0.6}, {}]) as server:
        with metering("record") as meter:
            result = run_task(meter, lambda: agent(server.base_url + "/v1"), caps=Caps(fanout=1))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url + "/v1"), source=Tape(result.trace.exchanges))

    for one in (result, replayed):
        assert (one.error, one.fanout, one.measured.samples["attempts"]) == (None, 1, 2)
        assert (one.measured.samples["input_tokens"], one.measured.unknown_usage) == (None, 1)


def test_a_server_that_is_not_there_was_given_nothing() -> None:
    """Where no connection came about nothing was sent, so that nothing was given up."""

    def agent() -> None:
        with contextlib.suppress(httpx2.ConnectError):
            httpx2.post("http://127.0.0.1:1/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.measured.samples["attempts"], result.trace.problems) == (0, 1, ())
