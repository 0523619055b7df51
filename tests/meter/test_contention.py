"""Counters lose nothing and caps let nothing slip when many calls come at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.records import Caps

CALLS = 1_000
FREE = Caps(fanout=None, attempts=None, parallel_calls=None, tool_calls=None, tokens=None)
USAGE = {"input": 90, "output": 10}
LIMITS = httpx2.Limits(max_connections=32)


def ask_by_threads(url: str, calls: int) -> None:
    """That many calls from 32 threads."""
    with httpx2.Client(verify=False, limits=LIMITS, timeout=60) as client:

        def one(number: int) -> None:
            with suppress(TaskStopped):
                client.post(url + "/v1/chat/completions", json=chat(f"call {number}"))

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(one, range(calls)))


def test_a_thousand_calls_from_32_threads(model: ModelServer) -> None:
    """None of them is lost or counted twice, live and in replay, nor is a token of theirs."""

    def agent() -> None:
        ask_by_threads(model.base_url, CALLS)

    with metering() as meter:
        live = run_task(meter, agent, caps=FREE)
        tape = Tape(live.trace.exchanges)
        assert len(model.generated) == CALLS
        replay = run_task(meter, agent, caps=FREE, source=tape)
        facts = meter.finish()

    assert len(model.generated) == CALLS
    for result in (live, replay):
        samples = result.measured.samples
        # two words in and three out: "echo: call 17"
        names = ("fanout", "attempts", "input_tokens", "output_tokens")
        assert [samples[name] for name in names] == [CALLS, CALLS, 2 * CALLS, 3 * CALLS]
    assert (tape.missed, facts.late, facts.unattributed) == ([], 0, 0)


def test_a_thousand_calls_from_asyncio() -> None:
    """A thousand calls at once over a transport that counts: all are counted, and a cap is exact."""
    sent: list[int] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(1)
        await asyncio.sleep(0)
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        message = {"role": "assistant", "content": "yes"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = {"id": "c", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}
        return httpx2.Response(200, json=body)

    async def agent() -> int:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            url = "http://127.0.0.1:9/v1/chat/completions"
            jobs = (client.post(url, json=chat(f"call {number}")) for number in range(CALLS))
            answers = await asyncio.gather(*jobs, return_exceptions=True)
        return sum(isinstance(answer, httpx2.Response) for answer in answers)

    with metering() as meter:
        free = run_task(meter, agent, caps=FREE)
        assert len(sent) == CALLS
        sent.clear()
        capped = run_task(meter, agent, caps=Caps(fanout=333, parallel_calls=None))

    assert (free.value, free.fanout, free.measured.samples["input_tokens"]) == (CALLS, CALLS, 3 * CALLS)
    assert (capped.value, capped.fanout, len(sent), capped.trace.capped) == (333, 333, 333, "fanout")


class Twenty:
    """Twenty calls made at once, by each way that a client has; each returns the number that was answered."""

    def __init__(self, url: str) -> None:
        self.url = url

    def threads(self, one: Callable[[int], Any]) -> int:
        def tried(number: int) -> bool:
            with suppress(TaskStopped):
                one(number)
                return True
            return False

        with ThreadPoolExecutor(20) as pool:
            return sum(pool.map(tried, range(20)))

    async def gathered(self, one: Callable[[int], Any]) -> int:
        answers = await asyncio.gather(*(one(number) for number in range(20)), return_exceptions=True)
        return sum(not isinstance(answer, TaskStopped) for answer in answers)

    # --- ways ---

    def httpx2_in_threads(self) -> int:
        with httpx2.Client(verify=False) as client:
            return self.threads(lambda n: client.post(self.url + "/v1/chat/completions", json=chat(str(n))))

    async def httpx2_in_asyncio(self) -> int:
        async with httpx2.AsyncClient(verify=False) as client:
            return await self.gathered(lambda n: client.post(self.url + "/v1/chat/completions", json=chat(str(n))))

    def openai_in_threads(self) -> int:
        with openai.OpenAI(base_url=self.url + "/v1", api_key="k") as client:
            return self.threads(lambda n: client.chat.completions.create(**chat(str(n))))

    async def openai_in_asyncio(self) -> int:
        async with openai.AsyncOpenAI(base_url=self.url + "/v1", api_key="k") as client:
            return await self.gathered(lambda n: client.chat.completions.create(**chat(str(n))))

    def anthropic_in_threads(self) -> int:
        with anthropic.Anthropic(base_url=self.url, api_key="k") as client:
            return self.threads(lambda n: client.messages.create(max_tokens=9, **chat(str(n))))

    async def anthropic_in_asyncio(self) -> int:
        async with anthropic.AsyncAnthropic(base_url=self.url, api_key="k") as client:
            return await self.gathered(lambda n: client.messages.create(max_tokens=9, **chat(str(n))))


WAYS = [
    Twenty.httpx2_in_threads,
    Twenty.httpx2_in_asyncio,
    Twenty.openai_in_threads,
    Twenty.openai_in_asyncio,
    Twenty.anthropic_in_threads,
    Twenty.anthropic_in_asyncio,
]


@pytest.mark.parametrize("cap", ["fanout", "attempts", "parallel_calls"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_twenty_at_once_under_a_cap_of_five(way: Callable[[Twenty], Any], cap: str, model: ModelServer) -> None:
    """Of twenty calls made at once under a cap of five, exactly five are sent and answered."""
    model.restart(lambda entry: {"delay_s": 0.1})
    with metering() as meter:
        result = run_task(meter, lambda: way(Twenty(model.base_url)), caps=Caps(**{cap: 5}))

    assert (result.error, result.trace.capped) == (None, cap)
    assert result.value == len(model.generated) == result.fanout == result.measured.samples["attempts"] == 5


def test_caps_are_exact_under_contention(model: ModelServer) -> None:
    """Of 300 calls that 32 threads want, exactly the cap's number is sent; retries of failed ones are no exception."""
    with metering() as meter:
        result = run_task(meter, lambda: ask_by_threads(model.base_url, 300), caps=Caps(fanout=100))
        assert (result.fanout, len(model.generated), result.trace.capped) == (100, 100, "fanout")
        model.restart(lambda entry: {"status": 503})
        result = run_task(meter, lambda: ask_by_threads(model.base_url, 300), caps=Caps(attempts=100))

    assert (result.measured.samples["attempts"], len(model.generated), result.fanout) == (100, 100, 0)
    assert result.trace.capped == "attempts"


def tokens_used(model: ModelServer, meter: Any, cap: int, at_once: int, rule: Any = None) -> int:
    """Tokens of a task that makes calls of 100 tokens each, so many at once, until its cap stops it."""
    model.restart(rule or (lambda entry: {"usage": USAGE}))

    def agent() -> None:
        with httpx2.Client(verify=False) as client:

            def work(_: int) -> None:
                with suppress(TaskStopped):
                    while True:
                        client.post(model.base_url + "/v1/chat/completions", json=chat())

            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(work, range(at_once)))

    result = run_task(meter, agent, caps=Caps(tokens=cap, parallel_calls=None))
    assert result.trace.capped == "tokens"
    used = (result.measured.samples["input_tokens"] or 0) + (result.measured.samples["output_tokens"] or 0)
    assert used == 100 * len(model.generated)
    return used


def test_overshoot_of_the_token_cap(model: ModelServer) -> None:
    """What a call costs is known when it has ended: the cap is passed by what was in flight then, and by no more.

    One at a time: by less than one call. So many at once: by less than that many calls.
    """
    together = threading.Barrier(16)

    class AllInFlight(dict[str, Any]):
        """A rule of the server that answers nobody before 16 have asked."""

        def get(self, key: str, default: Any = None) -> Any:
            if key == "delay_s":
                together.wait(10)
            return super().get(key, default)

    with metering() as meter:
        assert [tokens_used(model, meter, cap, 1) for cap in (250, 300, 301)] == [300, 300, 400]
        for at_once in (4, 16):
            assert 1000 <= tokens_used(model, meter, 1000, at_once) < 1000 + at_once * 100
        # the worst that can be: every call in flight before the first has ended
        assert tokens_used(model, meter, 1, 16, lambda entry: AllInFlight(usage=USAGE)) == 1600
