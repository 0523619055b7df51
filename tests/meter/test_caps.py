"""Caps stop a task from outside, exactly, in the transport."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import anthropic
import httpx2
import openai
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.records import Caps


def ask(url: str, text: str = "hi") -> httpx2.Response:
    with httpx2.Client(verify=False) as client:
        return client.post(url + "/v1/chat/completions", json=chat(text))


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_endless_agent_is_stopped_at_its_cap(sdk: str, model: ModelServer) -> None:
    """A18: an endless agent with cap 50 reaches the model 50 times with both SDK styles; no SDK swallows the end."""

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as one:
            with anthropic.Anthropic(base_url=model.base_url, api_key="k") as other:
                while True:
                    try:
                        if sdk == "openai":
                            one.chat.completions.create(**chat())
                        else:
                            other.messages.create(max_tokens=9, **chat())
                    except Exception:  # the agent goes on whatever happens
                        continue

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=50))

    assert isinstance(result.error, TaskStopped)
    assert str(result.error) == (
        "pytest-fanout: 't' of shop reached its cap fanout = 50: it was stopped and every further call of it is refused"
    )
    assert len(model.generated) == 50
    assert (result.fanout, result.trace.capped) == (50, "fanout")
    assert [exchange.role for exchange in result.trace.exchanges].count("refused") == 1


def test_swallowing_the_stop_does_not_help(model: ModelServer) -> None:
    """A18: an agent that catches even the stop is refused again and again, tools included; nothing more goes out."""

    def agent() -> int:
        refused = 0
        for number in range(20):
            try:
                ask(model.base_url, str(number))
            except BaseException:
                refused += 1
        with suppress(TaskStopped), httpx2.Client(verify=False) as client:
            client.get(model.base_url + "/tool/x")
        return refused

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=5))

    assert (result.value, len(model.log), result.trace.capped) == (15, 5, "fanout")


def test_cap_is_exact_under_concurrency(model: ModelServer) -> None:
    """Of twenty calls made at once under a cap of five, five reach the model."""
    model.restart(lambda entry: {"delay_s": 0.05})
    gate = threading.Barrier(20)

    def one(number: int) -> bool:
        gate.wait(10)
        try:
            return ask(model.base_url, str(number)).status_code == 200
        except TaskStopped:
            return False

    def agent() -> list[bool]:
        with ThreadPoolExecutor(20) as pool:
            return list(pool.map(one, range(20)))

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=5))

    assert sum(result.value) == len(model.generated) == 5
    assert (result.fanout, result.trace.capped) == (5, "fanout")


def test_children_share_one_allowance(model: ModelServer) -> None:
    """A19: a parent's call and three children that each want six are ten upstream under a cap of ten."""

    def child(number: int) -> None:
        for call in range(6):
            with suppress(TaskStopped):
                ask(model.base_url, f"{number} {call}")

    def agent() -> None:
        ask(model.base_url, "plan")
        children = [threading.Thread(target=child, args=(number,)) for number in range(3)]
        for thread in children:
            thread.start()
        for thread in children:
            thread.join()

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=10))

    assert len(model.generated) == result.fanout == 10
    assert result.trace.capped == "fanout"


def test_retry_gives_its_place_back(model: ModelServer) -> None:
    """Failed attempts that are tried again take no place of the fanout cap, and each counts for the attempts cap."""
    failing = {"status": 503, "headers": {"retry-after-ms": "1"}}

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            for number in range(2):
                client.chat.completions.create(**chat(str(number)))

    with metering() as meter:
        model.restart([failing, failing, {}, failing, failing, {}])
        enough = run_task(meter, agent, caps=Caps(fanout=2))
        model.restart([failing, failing, {}, failing, failing, {}])
        short = run_task(meter, agent, caps=Caps(attempts=4))

    assert (enough.error, enough.fanout, enough.measured.samples["attempts"]) == (None, 2, 6)
    assert (short.trace.capped, short.fanout, short.measured.samples["attempts"]) == ("attempts", 1, 4)


def test_retry_of_a_broken_stream_takes_no_second_place(model: ModelServer) -> None:
    """An answer that breaks off and the same request again are one call for the cap, as in the samples."""
    model.restart([{"text": "one two three", "break_after": 3}, {}, {}])

    def agent() -> None:
        with httpx2.Client(verify=False) as client:
            for body in (chat("a", stream=True), chat("a", stream=True), chat("b", stream=True)):
                with suppress(httpx2.TransportError):
                    client.post(model.base_url + "/v1/chat/completions", json=body)

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=2))

    assert (len(model.generated), result.fanout, result.trace.capped) == (3, 2, None)


def test_token_and_tool_call_caps(model: ModelServer) -> None:
    """A task that has used its tokens, or asked for more tools than it may, makes no further call."""

    def agent() -> None:
        for number in range(9):
            ask(model.base_url, str(number))

    with metering() as meter:
        model.restart(lambda entry: {"usage": {"input": 90, "output": 10}})
        tokens = run_task(meter, agent, caps=Caps(tokens=250))
        model.restart(lambda entry: {"tool_calls": [{"name": "a"}, {"name": "b"}]})
        tools = run_task(meter, agent, caps=Caps(tool_calls=4))

    assert (tokens.trace.capped, tokens.fanout) == ("tokens", 3)
    assert (tools.trace.capped, tools.fanout) == ("tool_calls", 3)


def test_parallel_cap(model: ModelServer) -> None:
    """A fourth call while three are in flight is refused; one after the other they pass."""
    model.restart(lambda entry: {"delay_s": 0.2})

    async def at_once() -> None:
        async with httpx2.AsyncClient(verify=False) as client:
            jobs = [client.post(model.base_url + "/v1/chat/completions", json=chat(str(n))) for n in range(4)]
            await asyncio.gather(*jobs, return_exceptions=False)

    def in_turn() -> None:
        for number in range(5):
            ask(model.base_url, str(number))

    with metering() as meter:
        many = run_task(meter, at_once, caps=Caps(parallel_calls=3))
        model.restart()
        few = run_task(meter, in_turn, caps=Caps(parallel_calls=1))

    assert many.trace.capped == "parallel_calls"
    assert isinstance(many.error, TaskStopped)
    assert (few.trace.capped, few.fanout, few.measured.samples["peak_concurrency"]) == (None, 5, 1)


def test_identical_errors_cap(model: ModelServer) -> None:
    """The same failing request is sent five times and not a sixth; another request in between starts anew."""
    model.restart(lambda entry: {"status": 400})

    def stubborn() -> None:
        while True:
            ask(model.base_url, "same")

    def varied() -> None:
        for number in range(12):
            ask(model.base_url, str(number % 2))

    with metering() as meter:
        first, second = run_task(meter, stubborn), run_task(meter, varied)

    assert (first.trace.capped, first.measured.samples["attempts"], first.fanout) == ("identical_errors", 5, 0)
    assert (second.trace.capped, second.measured.samples["attempts"]) == (None, 12)


def test_warning_at_four_fifths(model: ModelServer) -> None:
    """At 80 % of a cap the hook is told once, while the task still runs."""
    told: list[tuple[str, str, float, int]] = []

    def agent() -> None:
        for number in range(10):
            ask(model.base_url, str(number))

    def warning(task: str, cap: str, share: float) -> None:
        told.append((task, cap, share, len(model.generated)))

    with metering(cap_warning=warning) as meter:
        run_task(meter, agent, caps=Caps(fanout=10, attempts=None))

    assert told == [("t", "fanout", 0.8, 7)]  # before the eighth request was sent


def test_80_000_of_100_000_tokens_are_a_warning() -> None:
    """Calls of 10,000 tokens under a cap of 100,000: told once, when the eighth has come back and 20 % remain."""
    told: list[tuple[str, float, int]] = []

    with ModelServer({"default": {"usage": {"input": 9_500, "output": 500}}}) as server:

        def agent() -> None:
            for number in range(9):
                ask(server.base_url, str(number))

        def warning(task: str, cap: str, share: float) -> None:
            told.append((cap, share, len(server.generated)))

        with metering(cap_warning=warning) as meter:
            result = run_task(meter, agent, caps=Caps(tokens=100_000, attempts=None))

    assert (result.error, told) == (None, [("tokens", 0.8, 8)])


def test_hook_that_raises_does_not_reach_the_agent(model: ModelServer) -> None:
    """A warning hook that raises is a notice; the agent goes on."""

    def warning(task: str, cap: str, share: float) -> None:
        raise ValueError("oh")

    with metering(cap_warning=warning) as meter:
        result = run_task(meter, lambda: ask(model.base_url).status_code, caps=Caps(fanout=1))

    problems = [(p.slug, p.text, p.verdict) for p in result.trace.problems]
    assert result.value == 200
    assert problems == [("hook-raised", "pytest_fanout_cap_warning raised ValueError: oh", "notice")]


def sleepy() -> None:
    time.sleep(30)


def busy() -> None:
    while True:
        with suppress(Exception):
            time.sleep(0.001)


async def sleepy_async() -> None:
    await asyncio.sleep(30)


@pytest.mark.parametrize("agent", [sleepy, busy, sleepy_async], ids=lambda agent: agent.__name__)
@pytest.mark.parametrize("mode", ["live", "replay"])
def test_wall_clock(agent, mode: str) -> None:  # type: ignore[no-untyped-def]
    """A task that outlives its wall clock is stopped, asleep or busy, by real time, in replay too."""
    begun = time.monotonic()
    with metering(mode) as meter:
        result = run_task(meter, agent, caps=Caps(wall_seconds=1), source=Tape(()))

    assert isinstance(result.error, TaskStopped)
    assert result.trace.capped == "wall_seconds"
    assert 1 <= time.monotonic() - begun < 8


def test_wall_clock_off_the_main_thread() -> None:
    """A task on another thread is stopped as well, even when it catches the first stop."""
    results = []

    def stubborn() -> None:
        with suppress(BaseException):
            busy()
        busy()

    with metering() as meter:
        work = threading.Thread(target=lambda: results.append(run_task(meter, stubborn, caps=Caps(wall_seconds=1))))
        work.start()
        work.join(15)

    assert [(type(r.error), r.trace.capped) for r in results] == [(TaskStopped, "wall_seconds")]
