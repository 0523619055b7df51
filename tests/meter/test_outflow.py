"""Before a live model call goes out it is asked for, and waits for its turn outside the time of its task."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from gatewaying import behind
from metering import Result, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.outflow import SPEND_LIMIT, request_tokens
from pytest_fanout.records import Caps


@dataclass
class Held:
    """An outflow that holds each call back for so many looks, of a hundredth of a second each."""

    looks: Callable[[int], int] = lambda number: 0
    most: int = 1000
    given: int = 0
    asked: list[tuple[str | None, int]] = field(default_factory=list)
    ended: list[tuple[int | None, bool, int | None, float | None]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    added: int = 0

    def ask(self, agent: str | None, tokens: int) -> Any:
        self.asked.append((agent, tokens))
        if self.given == self.most:
            return None
        self.given += 1
        return Place(self, self.given, self.looks(self.given))

    def add(self, tokens: int) -> None:
        self.added += tokens


@dataclass
class Place:
    held: Held
    number: int
    left: int

    def wait_s(self) -> float:
        if self.left == 0:
            self.held.events.append(f"{self.number} goes")
            return 0.0
        self.left -= 1
        return 0.01

    def over(self, tokens: int | None, *, reached: bool, status: int | None, retry_after_s: float | None) -> None:
        self.held.events.append(f"{self.number} over")
        self.held.ended.append((tokens, reached, status, retry_after_s))


def measured(held: Held, agent: Callable[[], Any], caps: Caps | None = None) -> Result:
    with metering() as meter:
        meter.ask_first(held)
        return run_task(meter, agent, caps=caps)


def post(model: ModelServer, **more: Any) -> httpx.Response:
    return httpx.post(f"{model.base_url}/v1/chat/completions", json=chat(**more))


def aiohttp_twice(model: ModelServer) -> Callable[[], Any]:
    aiohttp = pytest.importorskip("aiohttp")

    async def agent() -> None:
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.post(f"{model.base_url}/v1/chat/completions", json=chat()) as answer:
                    await answer.read()

    return agent


def httpx_twice(model: ModelServer) -> Callable[[], Any]:
    async def agent() -> None:
        async with httpx.AsyncClient() as client:
            for _ in range(2):
                await client.post(f"{model.base_url}/v1/chat/completions", json=chat())

    return agent


def blocking_twice(model: ModelServer) -> Callable[[], Any]:
    return lambda: [post(model) for _ in range(2)]


def urllib_twice(model: ModelServer) -> Callable[[], Any]:
    requests = pytest.importorskip("requests")
    return lambda: [requests.post(f"{model.base_url}/v1/chat/completions", json=chat()) for _ in range(2)]


@pytest.mark.parametrize("client", [blocking_twice, httpx_twice, aiohttp_twice, urllib_twice])
def test_each_stack_asks_and_tells(client: Any, model: ModelServer) -> None:
    """Every call is asked for with the size of its request, waits, and tells its 1 + 2 tokens ("hi", "echo: hi")."""
    held = Held(looks=lambda number: 2)
    result = measured(held, client(model))

    assert (result.error, result.fanout) == (None, 2)
    assert [agent for agent, _ in held.asked] == ["shop", "shop"]
    assert all(10 < tokens < 40 for _, tokens in held.asked)
    assert held.events == ["1 goes", "1 over", "2 goes", "2 over"]
    assert held.ended == [(3, True, 200, None)] * 2


def test_a_429_tells_the_pause_it_asks_for(model: ModelServer) -> None:
    """A refusal reached no model; its retry-after is told in seconds."""
    model.restart([{"status": 429, "retry_after": 7}])
    held = Held()
    measured(held, lambda: post(model))

    assert held.ended == [(None, False, 429, 7.0)]


@pytest.mark.parametrize(("is_up", "spent"), [(True, True), (False, False)])
def test_a_call_that_was_sent_is_spent(is_up: bool, spent: bool, model: ModelServer) -> None:
    """A client that gives up on an answer may have to pay for it; where nobody listened nothing was made."""
    model.restart([{"delay_s": 0.5}])
    url = model.base_url if is_up else "http://127.0.0.1:9"
    held = Held()
    measured(held, lambda: httpx.post(f"{url}/v1/chat/completions", json=chat(), timeout=httpx.Timeout(5, read=0.1)))

    assert held.ended == [(None, spent, None, None)]


def test_waiting_is_no_time_of_the_task(model: ModelServer) -> None:
    """A second of waiting before each of two calls stands in no duration, start or wall clock; sleep of the agent
    between them does."""

    def agent() -> None:
        post(model)
        time.sleep(0.1)
        post(model)

    began = time.monotonic()
    result = measured(Held(looks=lambda number: 100), agent, Caps(wall_seconds=2))
    took_ms = (time.monotonic() - began) * 1000
    first, second = (call.last for call in result.measured.calls)

    assert result.trace.capped is None
    assert took_ms >= 2100
    assert 100 <= result.trace.duration_ms <= took_ms - 2000
    assert (first.started_ms or 0) <= result.trace.duration_ms - 100
    assert 100 <= (second.started_ms or 0) - (first.ended_ms or 0) <= took_ms - 1000


def test_waiting_beside_a_call_in_flight_is_time_of_the_task(model: ModelServer) -> None:
    """While the first of two parallel calls is answered the second waits for 400 ms: nothing stood still."""
    held = Held(looks=lambda number: 0 if number == 1 else 40)

    def answer(request: Any) -> None:
        while "2 goes" not in held.events:
            time.sleep(0.001)
        time.sleep(0.05)

    model.restart(answer)

    async def agent() -> None:
        async with httpx.AsyncClient() as client:
            url = f"{model.base_url}/v1/chat/completions"
            await asyncio.gather(*(client.post(url, json=chat()) for _ in range(2)))

    result = measured(held, agent)

    assert result.measured.samples["peak_concurrency"] == 2
    assert result.trace.duration_ms >= 400


def test_waiting_counts_until_the_other_call_has_ended(model: ModelServer) -> None:
    """The first of two parallel calls is answered at once; of the second's wait of a second, what comes after is none
    of the task's time."""
    held = Held(looks=lambda number: 0 if number == 1 else 100)

    async def agent() -> None:
        async with httpx.AsyncClient() as client:
            url = f"{model.base_url}/v1/chat/completions"
            await asyncio.gather(*(client.post(url, json=chat()) for _ in range(2)))

    began = time.monotonic()
    result = measured(held, agent)
    took_ms = (time.monotonic() - began) * 1000

    assert result.trace.duration_ms <= took_ms - 500


def test_an_event_loop_goes_on_while_a_call_waits(model: ModelServer) -> None:
    """Other coroutines of the agent run meanwhile."""
    ticks = itertools.count()
    seen: list[int] = []

    async def agent() -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0.01)
                next(ticks)

        ticking = asyncio.create_task(tick())
        async with httpx.AsyncClient() as client:
            await client.post(f"{model.base_url}/v1/chat/completions", json=chat())
        seen.append(next(ticks))
        ticking.cancel()

    measured(Held(looks=lambda number: 30), agent)

    assert seen[0] >= 5


def test_a_call_that_gives_up_waiting_was_never_made(model: ModelServer) -> None:
    """A timeout of the agent's own while a call waits: nothing went out, and its place is given back."""
    held = Held(looks=lambda number: 1000)

    async def agent() -> None:
        async with httpx.AsyncClient() as client:
            await asyncio.wait_for(client.post(f"{model.base_url}/v1/chat/completions", json=chat()), 0.1)

    result = measured(held, agent)

    assert isinstance(result.error, TimeoutError)
    assert (result.fanout, model.log) == (0, [])
    assert held.ended == [(None, False, None, None)]


def test_a_call_beyond_the_limit_is_not_sent(model: ModelServer) -> None:
    """The second call stops the task, whatever catches its error; a third is refused without being asked for."""
    held = Held(most=1)

    def agent() -> None:
        post(model)
        for _ in range(2):
            try:
                post(model)
            except TaskStopped:
                continue

    result = measured(held, agent)

    assert result.trace.capped == SPEND_LIMIT
    assert len(model.generated) == 1
    assert len(held.asked) == 2
    assert held.events == ["1 goes", "1 over"]


def test_stopped_by_the_run(model: ModelServer) -> None:
    """What is raised into the agent says that the run, not its task, may spend no more."""
    result = measured(Held(most=0), lambda: post(model))

    assert str(result.error) == "pytest-fanout: 't' of shop was stopped: the run may spend no more"


def test_what_comes_through_the_gateway_asks_and_waits(model: ModelServer) -> None:
    """A child process waits for its turn like an agent in Python; beyond the limit it gets a 400 and is stopped."""
    held = Held(looks=lambda number: 20, most=1)
    with behind(model) as child:
        child.meter.ask_first(held)
        answers = [child.ask(), child.ask()]
        child.close()

    assert answers[0]["choices"][0]["message"]["content"] == "echo: hi"
    assert answers[1]["error"]["message"].startswith(
        "pytest-fanout: 't' of shop was stopped: the run may spend no more"
    )
    assert held.events == ["1 goes", "1 over"]
    assert child.trace is not None
    assert (child.trace.capped, len(model.generated)) == (SPEND_LIMIT, 1)


def test_a_stream_left_unread_gives_its_place_back(model: ModelServer) -> None:
    """A client that stops reading has ended its call."""
    held = Held()

    def agent() -> None:
        with httpx.Client() as client:
            body = chat(stream=True)
            with client.stream("POST", f"{model.base_url}/v1/chat/completions", json=body) as answer:
                next(answer.iter_raw())

    measured(held, agent)

    assert held.events == ["1 goes", "1 over"]


def test_a_late_call_is_spent_too(model: ModelServer) -> None:
    """A thread that calls after its task's end is asked for its call and books it."""
    held, go = Held(), threading.Event()
    with metering() as meter:
        meter.ask_first(held)

        def agent() -> threading.Thread:
            thread = threading.Thread(target=lambda: (go.wait(10), post(model)))
            thread.start()
            return thread

        thread = run_task(meter, agent).value
        go.set()
        thread.join()

    assert held.ended == [(3, True, 200, None)]


def test_the_size_of_a_request_without_its_media() -> None:
    """A token for four bytes; an image of 40,000 characters is left out."""
    assert request_tokens(b"") == 0
    assert request_tokens(b"x " * 10) == 5
    assert request_tokens(b"x " * 100 + b"A" * 40_000 + b"==") == 50
