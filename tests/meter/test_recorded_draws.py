"""What a draw holds comes back as it was, by the real store: failures with their retries, many calls at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from metering import Result, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Recording
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource


def stored(folder: Path, result: Result) -> Recording:
    """The trial as the store gives it back."""
    store = RecordingStore(folder, {})
    store.save(Recording("shop", "t", 1, None, 0, result.trace.duration_ms, "ok", True, result.trace.exchanges))
    return store.load("shop", "t", 1)


def replayed(recording: Recording, agent: Callable[[], Any]) -> tuple[Result, ReplaySource]:
    source = ReplaySource(recording)
    with metering("replay") as meter:
        return run_task(meter, agent, source=source), source  # type: ignore[arg-type]


def openai_sync(url: str) -> Any:
    with openai.OpenAI(base_url=url + "/v1") as client:
        return client.chat.completions.create(**chat("a b")).choices[0].message.content


async def openai_async(url: str) -> Any:
    async with openai.AsyncOpenAI(base_url=url + "/v1") as client:
        return (await client.chat.completions.create(**chat("a b"))).choices[0].message.content


def anthropic_sync(url: str) -> Any:
    with anthropic.Anthropic(base_url=url) as client:
        return client.messages.create(max_tokens=9, **chat("a b")).content[0].text  # type: ignore[union-attr]


async def anthropic_async(url: str) -> Any:
    async with anthropic.AsyncAnthropic(base_url=url) as client:
        return (await client.messages.create(max_tokens=9, **chat("a b"))).content[0].text  # type: ignore[union-attr]


def openai_stream(url: str, heard: list[str]) -> None:
    with openai.OpenAI(base_url=url + "/v1") as client:
        for chunk in client.chat.completions.create(**chat("a b", stream=True)):
            heard += [chunk.choices[0].delta.content or ""]


async def openai_async_stream(url: str, heard: list[str]) -> None:
    async with openai.AsyncOpenAI(base_url=url + "/v1") as client:
        async for chunk in await client.chat.completions.create(**chat("a b", stream=True)):
            heard += [chunk.choices[0].delta.content or ""]


def anthropic_stream(url: str, heard: list[str]) -> None:
    with anthropic.Anthropic(base_url=url) as client, client.messages.stream(max_tokens=9, **chat("a b")) as talk:
        heard.extend(talk.text_stream)


async def anthropic_async_stream(url: str, heard: list[str]) -> None:
    async with anthropic.AsyncAnthropic(base_url=url) as client:
        async with client.messages.stream(max_tokens=9, **chat("a b")) as talk:
            async for text in talk.text_stream:
                heard.append(text)


@pytest.mark.parametrize(
    "agent", [openai_sync, openai_async, anthropic_sync, anthropic_async], ids=lambda a: a.__name__
)
def test_failures_and_the_retries_of_a_client_come_back(agent: Any, model: ModelServer, tmp_path: Path) -> None:
    """A 429 and a 500 before an answer are attempts of one call, in replay too, and the trial says what they were."""
    model.restart(
        [{"status": 429, "retry_after": 0}, {"status": 500, "headers": {"retry-after-ms": "1"}}, {"text": "yes"}]
    )
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(model.base_url))
    recording, sent = stored(tmp_path, recorded), len(model.log)

    again, source = replayed(recording, lambda: agent(model.base_url))

    assert (again.value, again.error) == ("yes", None)
    assert (len(model.log), source.note(), source.leftover) == (sent, None, 0)
    assert (again.measured.samples["fanout"], again.measured.samples["attempts"]) == (1, 3)
    assert again.measured.failures == recorded.measured.failures == {"HTTP 429": 1, "HTTP 500": 1}
    assert again.measured.samples | {"duration_ms": 0} == recorded.measured.samples | {"duration_ms": 0}


@pytest.mark.parametrize(
    "agent", [openai_stream, openai_async_stream, anthropic_stream, anthropic_async_stream], ids=lambda a: a.__name__
)
def test_a_stream_that_broke_breaks_again_in_the_same_place(agent: Any, model: ModelServer, tmp_path: Path) -> None:
    """After as many pieces, by the same exception of the SDK."""
    model.restart([{"text": "one two three four five", "break_after": 4}])
    first: list[str] = []
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(model.base_url, first))
    recording, sent = stored(tmp_path, recorded), len(model.log)

    heard: list[str] = []
    again, source = replayed(recording, lambda: agent(model.base_url, heard))

    assert recorded.error is not None
    assert type(again.error) is type(recorded.error)
    assert heard == first != []
    assert (len(model.log), source.note(), source.leftover) == (sent, None, 0)
    assert again.measured.failures == {"broken off": 1}


def test_an_error_that_no_client_retries_comes_back(model: ModelServer, tmp_path: Path) -> None:
    """A 400 raises the same error, and is no fanout either time."""
    model.restart([{"status": 400}])
    with metering("record") as meter:
        recorded = run_task(meter, lambda: openai_sync(model.base_url))

    again, _ = replayed(stored(tmp_path, recorded), lambda: openai_sync(model.base_url))

    assert type(again.error) is type(recorded.error) is openai.BadRequestError
    assert str(again.error) == str(recorded.error)
    assert again.fanout == recorded.fanout == 0
    assert again.measured.failures == {"HTTP 400": 1}


def test_two_hundred_calls_of_sixteen_threads_come_back_in_any_order(model: ModelServer, tmp_path: Path) -> None:
    """Fifty questions are asked four times each, and each time answered otherwise: each keeps its four answers."""
    numbers, lock = iter(range(10_000)), threading.Lock()

    def rule(_: Any) -> dict[str, str]:
        with lock:
            return {"text": f"answer {next(numbers)} {'word ' * (len(model.log) % 7)}"}

    model.restart(rule)

    def agent(questions: list[int]) -> Counter[tuple[int, str]]:
        with openai.OpenAI(base_url=model.base_url + "/v1") as client, ThreadPoolExecutor(16) as pool:

            def ask(question: int) -> tuple[int, str]:
                said = client.chat.completions.create(**chat(f"question {question}"))
                return question, str(said.choices[0].message.content)

            return Counter(pool.map(ask, questions))

    questions = [number % 50 for number in range(200)]
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(questions))
    recording, sent = stored(tmp_path, recorded), len(model.log)
    assert (sent, len(recorded.value)) == (200, 200)

    for order in (questions[::-1], sorted(questions)):
        again, source = replayed(recording, lambda order=order: agent(order))
        assert (len(model.log), source.note(), source.leftover) == (sent, None, 0)
        assert again.value == recorded.value
        same = replace(again.measured, calls=(), samples={**again.measured.samples, "duration_ms": 0})
        assert same == replace(recorded.measured, calls=(), samples={**recorded.measured.samples, "duration_ms": 0})
