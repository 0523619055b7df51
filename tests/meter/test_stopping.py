"""A capped task ends promptly, whatever it catches, and also when it never calls again; so do its threads."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import stopper
from pytest_fanout.records import Caps

GO_ON = 60  # seconds that an agent would take if nobody stopped it
PROMPT = 10  # seconds in which each of them must have ended, on a slow machine


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds of grace for each of these agents would be a long test."""
    monkeypatch.setattr(stopper, "_GRACE_S", 0.5)
    monkeypatch.setattr(stopper, "_AGAIN_S", 0.02)


class Sync:
    """What agents do, over one synchronous client."""

    def __init__(self, url: str, client: httpx2.Client) -> None:
        self.url = url
        self.client = client

    def ask(self, text: str = "hi") -> None:
        self.client.post(self.url + "/v1/chat/completions", json=chat(text))

    def ask_until_stopped(self) -> None:
        with suppress(TaskStopped):
            while True:
                self.ask()

    # --- agents ---

    def catches_everything(self) -> None:
        while True:
            try:
                self.ask()
            except BaseException:
                continue

    def catches_everything_twice(self) -> None:
        while True:
            with suppress(BaseException):
                self.catches_everything()

    def catches_the_stop(self) -> None:
        while True:
            with suppress(TaskStopped):
                self.ask()

    def computes_without_end(self) -> None:
        self.ask_until_stopped()
        while True:
            with suppress(BaseException):
                sum(range(100))

    def sleeps(self) -> None:
        self.ask_until_stopped()
        time.sleep(GO_ON)

    def joins_a_thread(self) -> None:
        thread = threading.Thread(target=self.catches_everything)
        thread.start()
        thread.join()

    def waits_for_an_event(self) -> None:
        self.ask_until_stopped()
        threading.Event().wait(GO_ON)


class Async:
    """The same over one asynchronous client."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def ask(self, text: str = "hi") -> None:
        async with httpx2.AsyncClient(verify=False) as client:
            await client.post(self.url + "/v1/chat/completions", json=chat(text))

    # --- agents ---

    async def catches_everything(self) -> None:
        while True:
            try:
                await self.ask()
            except BaseException:
                continue

    async def catches_everything_and_sleeps(self) -> None:
        while True:
            try:
                await self.ask()
            except BaseException:
                with suppress(BaseException):
                    await asyncio.sleep(0.001)

    async def gathers_exceptions(self) -> None:
        await asyncio.gather(*(self.ask(str(n)) for n in range(20)), return_exceptions=True)
        await asyncio.sleep(GO_ON)

    async def gathers(self) -> None:
        await asyncio.gather(*(self.ask(str(n)) for n in range(20)))

    async def groups(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(self.ask(str(number)))

    async def waits_for_a_thread(self) -> None:
        def work() -> None:
            with suppress(BaseException):
                asyncio.run(self.catches_everything())

        await asyncio.to_thread(work)


SYNC = [
    Sync.catches_everything,
    Sync.catches_everything_twice,
    Sync.catches_the_stop,
    Sync.computes_without_end,
    Sync.sleeps,
    Sync.joins_a_thread,
    Sync.waits_for_an_event,
]
ASYNC = [
    Async.catches_everything,
    Async.catches_everything_and_sleeps,
    Async.gathers_exceptions,
    Async.gathers,
    Async.groups,
    Async.waits_for_a_thread,
]


def names_the_cap(error: BaseException | None) -> bool:
    """The error of the task, or one in the group that asyncio has made of it, says which cap was reached."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(names_the_cap, error.exceptions))
    return isinstance(error, TaskStopped) and "reached its cap fanout = 3" in str(error)


@pytest.mark.parametrize("agent", SYNC, ids=lambda agent: agent.__name__)
def test_sync_agent_that_goes_on(agent: Callable[[Sync], None], model: ModelServer) -> None:
    """Three calls and not one more; then the task is stopped in its tracks, and its threads with it."""
    begun = time.monotonic()
    with metering() as meter:
        client = httpx2.Client(verify=False)
        result = run_task(meter, lambda: agent(Sync(model.base_url, client)), caps=Caps(fanout=3))
        client.close()

    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(catches_everything)")]
    assert names_the_cap(result.error)
    assert (result.trace.capped, result.fanout, len(model.generated)) == ("fanout", 3, 3)
    assert time.monotonic() - begun < PROMPT


@pytest.mark.parametrize("agent", ASYNC, ids=lambda agent: agent.__name__)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # coroutines that ignore their end
def test_async_agent_that_goes_on(agent: Callable[[Async], Any], model: ModelServer) -> None:
    """The same with asyncio: groups, gathers and threads included."""
    begun = time.monotonic()
    with metering() as meter:
        result = run_task(meter, lambda: agent(Async(model.base_url)), caps=Caps(fanout=3))

    assert names_the_cap(result.error)
    assert (result.trace.capped, result.fanout, len(model.generated)) == ("fanout", 3, 3)
    assert time.monotonic() - begun < PROMPT


def test_next_task_is_not_stopped(model: ModelServer) -> None:
    """A stop that a task has earned never reaches the next one, on a pool that both of them use."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool, metering() as meter, httpx2.Client(verify=False) as client:
        agent = Sync(model.base_url, client)

        def capped() -> None:
            list(pool.map(lambda _: agent.catches_everything(), range(2)))

        def good() -> list[int]:
            def work(number: int) -> int:
                agent.ask(str(number))
                return number

            return list(pool.map(work, range(6)))

        first = run_task(meter, capped, caps=Caps(fanout=3), task="capped")
        second = run_task(meter, good, task="good")
        client.close()

    assert (first.trace.capped, first.fanout) == ("fanout", 3)
    assert (second.error, second.value, second.fanout) == (None, [0, 1, 2, 3, 4, 5], 6)


def test_calls_in_flight_end_before_the_stop(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that a gather has in flight when its sixth is refused are answered: what they cost is known."""
    monkeypatch.setattr(stopper, "_GRACE_S", 9)
    monkeypatch.setattr("pytest_fanout.meter.task.FINISH_S", 8)
    model.restart(lambda entry: {"delay_s": 0.1})

    async def agent() -> None:
        await asyncio.gather(*(Async(model.base_url).ask(str(n)) for n in range(20)))

    with metering() as meter:
        live = run_task(meter, agent, caps=Caps(fanout=5))
        replay = run_task(meter, agent, caps=Caps(fanout=5), source=Tape(live.trace.exchanges))

    assert len(model.generated) == 5
    for result in (live, replay):
        samples = result.measured.samples
        assert (result.trace.capped, samples["fanout"], samples["input_tokens"]) == ("fanout", 5, 5)
        assert names_the_cap_of_five(result.error)


def names_the_cap_of_five(error: BaseException | None) -> bool:
    return isinstance(error, TaskStopped) and "cap fanout = 5" in str(error)


def test_calls_that_the_stop_cuts_off(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that the stop cuts off were sent and are fanout, with unknown usage; a replay gives the same numbers."""
    monkeypatch.setattr(stopper, "_GRACE_S", 9)
    monkeypatch.setattr("pytest_fanout.meter.task.FINISH_S", 0.8)
    monkeypatch.setattr("pytest_fanout.meter.replies.FINISH_S", 0.1)
    hold = threading.Event()
    model.restart(lambda entry: {"delay_s": 0 * hold.wait(9)})

    async def agent() -> None:
        await asyncio.gather(*(Async(model.base_url).ask(str(n)) for n in range(20)))

    with metering() as meter:
        live = run_task(meter, agent, caps=Caps(fanout=5))
        tape = Tape(live.trace.exchanges)
        replay = run_task(meter, agent, caps=Caps(fanout=5), source=tape)
        looser = run_task(meter, agent, caps=Caps(fanout=6), source=Tape(live.trace.exchanges))
        hold.set()

    assert len(model.generated) == 5
    for result in (live, replay):
        samples = result.measured.samples
        assert (samples["fanout"], samples["attempts"], samples["input_tokens"]) == (5, 5, None)
        assert result.measured.unknown_usage == 5
        assert [(problem.slug, problem.text, problem.verdict) for problem in result.trace.problems] == [
            (
                "calls-cut-off",
                "5 model calls were under way when 't' of shop was stopped by its cap fanout = 5: "
                "what they cost is not known",
                "notice",
            )
        ]
    assert looser.trace.misses == 15
    slugs = {problem.slug: problem.verdict for problem in looser.trace.problems}
    assert slugs == {"recording-prefix": "stale"}


def test_wall_clock_that_cut_a_call_off(model: ModelServer) -> None:
    """A call that the wall clock cut off stops the replay at once, at the same place; under a later one it is stale."""
    model.restart([{}, {"delay_s": 1.2}])

    def agent() -> None:
        with httpx2.Client(verify=False) as client:
            for number in range(3):
                client.post(model.base_url + "/v1/chat/completions", json=chat(str(number)))

    with metering() as meter:
        live = run_task(meter, agent, caps=Caps(wall_seconds=1))
        replay = run_task(meter, agent, caps=Caps(wall_seconds=1), source=Tape(live.trace.exchanges))
        assert replay.trace.duration_ms < 900  # it does not wait for the clock
        later = run_task(meter, agent, caps=Caps(wall_seconds=900), source=Tape(live.trace.exchanges))

    for result in (live, replay):
        assert isinstance(result.error, TaskStopped)
        assert (result.trace.capped, result.fanout) == ("wall_seconds", 2)
    assert [(p.slug, p.text) for p in later.trace.problems if p.verdict == "stale"] == [
        (
            "recording-prefix",
            "task 't' goes on where the recorded run was stopped by a cap (request 2): only the first part of that "
            "answer is known\n  mend: record the task anew",
        )
    ]


def test_finalizers_are_not_torn(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python calls amid other code, and swallows the errors of, is let finish; the code around it is stopped."""
    begun, ended = [0, 0, 0, 0], [0, 0, 0, 0]

    def work(index: int) -> None:
        begun[index] += 1
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        ended[index] += 1

    class Finalized:
        def __del__(self) -> None:
            work(0)

    class Failing:
        def __del__(self) -> None:
            raise ValueError

    def callback(phase: str, info: dict[str, int]) -> None:
        work(1)

    def agent() -> None:
        Sync(model.base_url, client).ask_until_stopped()
        while True:
            with suppress(BaseException):
                Finalized()
                for _ in range(4):
                    Failing()
                watched = Finalized()
                weakref.finalize(watched, work, 2)
                gc.collect(0)
                del watched
                sum(range(50_000))

    def told(unraisable: Any, index: int) -> None:
        work(index)

    gc.callbacks.append(callback)
    monkeypatch.setattr(sys, "unraisablehook", functools.partial(told, index=3))
    try:
        with metering() as meter, httpx2.Client(verify=False) as client:
            result = run_task(meter, agent, caps=Caps(fanout=3))
    finally:
        gc.callbacks.remove(callback)

    assert names_the_cap(result.error)
    assert begun == ended
    assert min(begun) > 0
