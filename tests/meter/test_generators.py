"""A stream belongs to the task that asked for it, wherever and whenever it is read, closed or collected."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
from metering import Result, chat, metering, run_task
from model_server import ModelServer

STREAMED = chat("hi", stream=True, stream_options={"include_usage": True})


def open_client(model: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.base_url + "/v1", api_key="k", http_client=httpx2.Client(verify=False))


def words(client: openai.OpenAI) -> Iterator[str]:
    """An agent's own generator around a streamed answer."""
    with client.chat.completions.create(**STREAMED) as stream:
        for chunk in stream:
            yield from (choice.delta.content or "" for choice in chunk.choices)


def ask(client: openai.OpenAI, text: str = "own") -> None:
    client.chat.completions.create(**chat(text))


def told(result: Result) -> tuple[int | None, int | None, int | None]:
    samples = result.measured.samples
    return samples["fanout"], samples["input_tokens"], samples["output_tokens"]


def test_answer_read_by_another_thread(model: ModelServer) -> None:
    """A stream that a thread of the task, or a worker older than it, reads to its end is counted whole, in the task."""
    chunks: queue.Queue[Any] = queue.Queue()

    def read_all() -> None:
        while (part := chunks.get()) is not None:
            part[1].extend(part[0])
            part[2].set()

    reader = threading.Thread(target=read_all)
    reader.start()

    def agent(client: openai.OpenAI) -> None:
        heard: list[str] = []
        thread = threading.Thread(target=lambda: heard.extend(words(client)))
        thread.start()
        thread.join()
        done = threading.Event()
        chunks.put((words(client), heard, done))
        assert done.wait(5)
        assert "".join(heard) == "echo: hi" * 2

    with metering() as meter, open_client(model) as client:
        results = [run_task(meter, lambda: agent(client)) for _ in range(2)]
        facts = meter.finish()
    chunks.put(None)
    reader.join()

    assert [told(result) for result in results] == [(2, 2, 4)] * 2  # a word in and two words out, twice
    assert (facts.late, facts.unattributed) == (0, 0)


def test_generator_collected_during_another_task(model: ModelServer) -> None:
    """A half-read generator that the garbage collector closes while task two runs leaves task two as it is."""
    kept: list[Any] = []

    def one(client: openai.OpenAI) -> None:
        kept.append(words(client))
        assert next(kept[0]) == ""  # the head of the stream; the rest is never read

    def two(client: openai.OpenAI) -> None:
        kept.append(kept)  # a cycle, so that only the collector finds it
        kept.clear()
        gc.collect()
        ask(client)

    with metering() as meter, open_client(model) as client:
        first = run_task(meter, lambda: one(client), task="one")
        second = run_task(meter, lambda: two(client), task="two")
        client.close()
        facts = meter.finish()

    assert (first.fanout, first.measured.unknown_usage) == (1, 1)  # its end, and with it its usage, was not seen
    assert told(second) == (1, 1, 2)
    assert (facts.late, facts.unattributed, facts.problems) == (0, 0, ())


def test_async_generator_collected_during_another_task(model: ModelServer) -> None:
    """The same for an asynchronous generator, which its event loop closes in an asyncio task of its own."""
    loop = asyncio.new_event_loop()
    kept: list[Any] = []

    async def parts(client: openai.AsyncOpenAI) -> AsyncIterator[str]:
        async with await client.chat.completions.create(**STREAMED) as stream:
            async for chunk in stream:
                yield chunk.id

    async def one(client: openai.AsyncOpenAI) -> None:
        kept.append(parts(client))
        await anext(kept[0])

    async def two(client: openai.AsyncOpenAI) -> None:
        kept.clear()
        gc.collect()
        await asyncio.sleep(0.01)
        await client.chat.completions.create(**chat("own"))

    with metering() as meter:
        client = openai.AsyncOpenAI(
            base_url=model.base_url + "/v1", api_key="k", http_client=httpx2.AsyncClient(verify=False)
        )
        first = run_task(meter, lambda: loop.run_until_complete(one(client)), task="one")
        second = run_task(meter, lambda: loop.run_until_complete(two(client)), task="two")
        loop.run_until_complete(client.close())
        facts = meter.finish()
    loop.close()

    assert (first.fanout, first.measured.unknown_usage) == (1, 1)
    assert told(second) == (1, 1, 2)
    assert (facts.late, facts.unattributed, facts.problems) == (0, 0, ())


def test_async_generator_finished_by_another_asyncio_task(model: ModelServer) -> None:
    """An asynchronous generator that calls, begun by one asyncio task and finished by another: all in the task."""

    async def steps(client: httpx2.AsyncClient) -> AsyncIterator[int]:
        for number in range(4):
            await client.post(model.base_url + "/v1/chat/completions", json=chat(str(number)))
            yield number

    async def agent() -> list[int]:
        async with httpx2.AsyncClient(verify=False) as client:
            made = steps(client)
            first = await asyncio.create_task(anext(made))  # type: ignore[arg-type]

            async def rest() -> list[int]:
                return [number async for number in made]

            return [first, *await asyncio.create_task(rest())]

    with metering() as meter:
        results = [run_task(meter, agent, task=name) for name in "ab"]
        facts = meter.finish()

    assert [(result.value, result.fanout) for result in results] == [([0, 1, 2, 3], 4)] * 2
    assert (facts.late, facts.unattributed) == (0, 0)


def test_generator_that_calls_belongs_to_who_goes_on_with_it(model: ModelServer) -> None:
    """What a plain generator calls is booked on the task that takes its next value: it runs nowhere else."""
    client = httpx2.Client(verify=False)
    kept: list[Iterator[int]] = []

    def steps() -> Iterator[int]:
        for number in range(3):
            client.post(model.base_url + "/v1/chat/completions", json=chat(str(number)))
            yield number

    def one() -> None:
        kept.append(steps())
        next(kept[0])

    with metering() as meter:
        results = [run_task(meter, one, task="one"), run_task(meter, lambda: list(kept[0]), task="two")]
        client.close()
        facts = meter.finish()

    assert ([result.fanout for result in results], facts.late) == ([1, 2], 0)
