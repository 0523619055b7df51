"""Calls that an agent sends and does not wait for."""

from __future__ import annotations

import asyncio
import contextlib

import httpx2
from metering import chat, metering, run_task
from model_server import ModelServer


def test_calls_that_are_given_up_are_said() -> None:
    """Of a race of requests the losers are attempts and no fanout, and a notice says how many there were."""

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

    assert (result.error, result.fanout, result.measured.samples["attempts"]) == (None, 1, 4)
    (problem,) = result.trace.problems
    assert (problem.slug, problem.verdict) == ("calls-given-up", "notice")
    assert problem.text == (
        "3 model calls of 't' of shop given up by the agent before an answer came: "
        "attempts counts them, fanout and tokens do not"
    )


def test_a_server_that_is_not_there_was_given_nothing() -> None:
    """Where no connection came about nothing was sent, so that nothing was given up."""

    def agent() -> None:
        with contextlib.suppress(httpx2.ConnectError):
            httpx2.post("http://127.0.0.1:1/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.measured.samples["attempts"], result.trace.problems) == (1, ())
