"""Each call belongs to the task that made it, whatever thread or asyncio task it came by."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import anyio
import httpx2
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Caps

OLD_POOL = ThreadPoolExecutor(2)
list(OLD_POOL.map(lambda _: threading.Event().wait(0.05), range(2)))  # its threads live before any task


def ask(url: str, text: str = "hi") -> httpx2.Response:
    with httpx2.Client(verify=False) as client:
        return client.post(url + "/v1/chat/completions", json=chat(text))


async def ask_async(url: str, text: str = "hi") -> None:
    async with httpx2.AsyncClient(verify=False) as client:
        await client.post(url + "/v1/chat/completions", json=chat(text))


def by_executor(tool: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(tool, range(3)))


def by_old_pool(tool: Callable[[int], None]) -> None:
    list(OLD_POOL.map(tool, range(3)))


def by_threads(tool: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=tool, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_thread_pool(tool: Callable[[int], None]) -> None:
    with ThreadPool(3) as pool:
        for job in [pool.apply_async(tool, (number,)) for number in range(3)]:
            job.get()


def by_to_thread(tool: Callable[[int], None]) -> None:
    async def work() -> None:
        await asyncio.gather(*(asyncio.to_thread(tool, number) for number in range(3)))

    asyncio.run(work())


def by_run_in_executor(tool: Callable[[int], None]) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, tool, number) for number in range(3)))

    asyncio.run(work())


def by_anyio_threads(tool: Callable[[int], None]) -> None:
    async def work() -> None:
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(anyio.to_thread.run_sync, tool, number)

    anyio.run(work)


def by_loop_in_a_thread(tool: Callable[[int], None]) -> None:
    async def one(number: int) -> None:
        await asyncio.to_thread(tool, number)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    for job in [asyncio.run_coroutine_threadsafe(one(number), loop) for number in range(3)]:
        job.result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


WAYS = [
    by_executor,
    by_old_pool,
    by_threads,
    by_thread_pool,
    by_to_thread,
    by_run_in_executor,
    by_anyio_threads,
    by_loop_in_a_thread,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_parallel_tools_keep_their_task(way: Callable[[Any], None], model: ModelServer) -> None:
    """A10: planner, three tools with a model call each, final call: five, none unattributed; in two tasks alike."""

    def agent() -> None:
        ask(model.base_url, "plan")
        way(lambda number: ask(model.base_url, f"tool {number}"))
        ask(model.base_url, "finish")

    with metering() as meter:
        results = [run_task(meter, agent, task=name) for name in ("first", "second")]
        facts = meter.finish()

    assert [result.fanout for result in results] == [5, 5]
    assert len(model.generated) == 10
    assert (facts.unattributed, facts.late, facts.problems) == (0, 0, ())
    assert [result.error for result in results] == [None, None]


def test_late_thread_is_not_booked_on_the_next_task(model: ModelServer) -> None:
    """A call of a task that has ended is late: named, and never another task's."""
    go, threads = threading.Event(), []

    def first() -> None:
        def later() -> None:
            go.wait(5)
            ask(model.base_url, "late")

        threads.append(threading.Thread(target=later))
        threads[0].start()

    def second() -> None:
        go.set()
        threads[0].join()
        ask(model.base_url, "own")

    with metering() as meter:
        one, two = run_task(meter, first, task="one"), run_task(meter, second, task="two")
        facts = meter.finish()

    wanted = f"POST 127.0.0.1:{model.port} was called for task 'one' of shop after it had ended"
    assert (one.fanout, two.fanout, facts.late, facts.unattributed) == (0, 1, 1, 0)
    assert [(p.slug, p.text, p.verdict, p.task) for p in facts.problems] == [("late-call", wanted, "invalid", "one")]


def test_late_asyncio_task(model: ModelServer) -> None:
    """An asyncio task that outlives its task, on a loop that is kept, is late as well."""
    loop = asyncio.new_event_loop()
    kept: list[asyncio.Task[None]] = []

    async def start() -> None:
        async def later() -> None:
            await asyncio.sleep(0.01)
            await ask_async(model.base_url, "late")

        kept.append(asyncio.create_task(later()))

    async def second() -> None:
        await kept[0]
        await ask_async(model.base_url, "own")

    with metering() as meter:
        one = run_task(meter, lambda: loop.run_until_complete(start()), task="one")
        two = run_task(meter, lambda: loop.run_until_complete(second()), task="two")
        facts = meter.finish()
    loop.close()

    assert (one.fanout, two.fanout, facts.late) == (0, 1, 1)


def test_nobodys_call(model: ModelServer) -> None:
    """A model call between the tasks makes the run invalid; a tool's does not."""
    with metering() as meter:
        ask(model.base_url)
        with httpx2.Client(verify=False) as client:
            client.get(model.base_url + "/tool/ping")
        facts = meter.finish()

    wanted = f"POST 127.0.0.1:{model.port} was called while no task was running, or by a thread of none"
    assert facts.unattributed == 1
    assert [(p.slug, p.text, p.verdict) for p in facts.problems] == [("unattributed-call", wanted, "invalid")]


def test_long_lived_consumer_serves_the_running_task(model: ModelServer) -> None:
    """A worker thread that is older than the task works for the task that runs."""
    import queue

    jobs: queue.Queue[tuple[str, threading.Event] | None] = queue.Queue()

    def consume() -> None:
        while (job := jobs.get()) is not None:
            ask(model.base_url, job[0])
            job[1].set()

    with metering() as meter:
        with meter.setup():
            worker = threading.Thread(target=consume)
            worker.start()

        def agent() -> None:
            done = threading.Event()
            jobs.put(("hi", done))
            done.wait(5)

        results = [run_task(meter, agent), run_task(meter, agent)]
        facts = meter.finish()
        jobs.put(None)
        worker.join()

    assert ([result.fanout for result in results], facts.unattributed, facts.late) == ([1, 1], 0, 0)


def test_judges_are_counted_apart(model: ModelServer) -> None:
    """A20: four calls of the agent and three of a judge, threads and asyncio included, are 4 and 3."""

    def agent() -> None:
        for number in range(4):
            ask(model.base_url, f"work {number}")
        with meter.aside("judge"):
            ask(model.base_url, "grade")
            by_executor(lambda number: ask(model.base_url, "grade too") if number == 0 else None)
            asyncio.run(ask_async(model.base_url, "grade more"))

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, dict(result.measured.aside)) == (4, {"judge": 3})
    assert result.measured.samples["attempts"] == 4
    assert len(model.generated) == 7


def test_calls_carry_the_name_of_their_site(model: ModelServer) -> None:
    """Named calls stay the agent's; pools and asyncio carry the name, and the inner one holds."""

    def agent() -> None:
        ask(model.base_url, "before")
        with meter.call_site("planner"):
            by_executor(lambda number: ask(model.base_url, "plan") if number == 0 else None)
            with meter.call_site("critic"):
                asyncio.run(ask_async(model.base_url, "criticise"))
            with meter.aside("judge"):
                ask(model.base_url, "grade")
        ask(model.base_url, "after")

    with metering() as meter:
        result = run_task(meter, agent)

    found = [(one.site, one.bucket) for one in result.trace.exchanges]
    assert found == [
        (None, "agent"),
        ("planner", "agent"),
        ("critic", "agent"),
        ("planner", "judge"),
        (None, "agent"),
    ]
    assert result.fanout == 4


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("live", None),
        ("record", "it went out and is no task's, it is not recorded, and replay will refuse it with 400"),
        ("rerecord", "it went out and is no task's, it is not recorded, and replay will refuse it with 400"),
        ("replay", "set-up is not recorded, so replay refused it with 400"),
    ],
)
def test_calls_of_fixtures(mode: str, what: str | None, model: ModelServer) -> None:
    """A13: what a fixture calls is set-up and no task's; recording tells it already, for replay will refuse it."""
    with metering(mode) as meter:
        with meter.setup():
            answer = ask(model.base_url, "warm up")
        result = run_task(meter, lambda: None, source=Tape(()))
        facts = meter.finish()

    assert (facts.setup, facts.unattributed, result.fanout) == (1, 0, 0)
    assert len(model.generated) == (0 if mode == "replay" else 1)
    text = (
        f"a fixture called POST 127.0.0.1:{model.port}: {what}; mend: make the call in the task itself, inside of "
        'pytest_fanout.aside("set-up") where it is not the agent\'s, or keep what it answers in a file'
    )
    assert [(p.slug, p.text, p.verdict) for p in facts.problems] == ([("setup-call", text, "notice")] if what else [])
    if mode == "replay":
        assert answer.json()["error"]["message"] == (
            "pytest-fanout: a fixture's call is not recorded: replay has no answer; see docs/messages.md#setup-call"
        )


def test_client_of_a_long_lived_loop(model: ModelServer) -> None:
    """A13: with one event loop, client and context kept over several tasks, each task has its own calls."""
    loop = asyncio.new_event_loop()
    context = contextvars.copy_context()

    with metering() as meter:
        client = httpx2.AsyncClient(verify=False)

        async def agent() -> None:
            await client.post(model.base_url + "/v1/chat/completions", json=chat())
            jobs = (client.post(model.base_url + "/v1/chat/completions", json=chat(str(n))) for n in range(2))
            await asyncio.gather(*jobs)

        def run() -> None:
            task = context.run(loop.create_task, agent())
            loop.run_until_complete(task)

        results = [run_task(meter, run, task=name) for name in "abc"]
        loop.run_until_complete(client.aclose())
        facts = meter.finish()
    loop.close()

    assert ([result.fanout for result in results], facts.late, facts.unattributed) == ([3, 3, 3], 0, 0)


def test_runner_that_lives_in_one_asyncio_task(model: ModelServer) -> None:
    """A13: a runner (anyio's is one) that awaits every test inside one long asyncio task gives each its own calls."""
    loop = asyncio.new_event_loop()
    jobs: asyncio.Queue[tuple[Any, asyncio.Future[None]] | None] = asyncio.Queue()
    runner: list[asyncio.Task[None]] = []

    async def serve() -> None:
        while (job := await jobs.get()) is not None:
            await job[0]
            job[1].set_result(None)

    async def agent() -> None:
        await ask_async(model.base_url)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_async(model.base_url, "child"))
        await asyncio.to_thread(ask, model.base_url, "thread")

    def run() -> None:
        if not runner:
            runner.append(loop.create_task(serve()))  # made during the first task
        done = loop.create_future()
        jobs.put_nowait((agent(), done))
        loop.run_until_complete(done)

    with metering() as meter:
        results = [run_task(meter, run, task=name) for name in "abc"]
        facts = meter.finish()
    jobs.put_nowait(None)
    loop.run_until_complete(runner[0])
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()

    assert ([result.fanout for result in results], facts.late, facts.unattributed) == ([3, 3, 3], 0, 0)


def test_one_task_at_a_time() -> None:
    """A second task cannot open while one runs; the message names both."""
    from pytest_fanout.errors import UsageError

    with metering() as meter:
        scope = meter.open_task("shop", "one", 1, Caps())
        with pytest.raises(UsageError) as refused:
            meter.open_task("shop", "two", 1, Caps())
        meter.close_task(scope)

    assert str(refused.value) == (
        "task 'two' of shop cannot begin while 'one' of shop runs in this process\n"
        "  mend: measure one task after the other, or in parallel processes (pytest -n auto)\n"
        "  see: docs/messages.md#task-running"
    )


def test_one_meter_at_a_time() -> None:
    """A second meter cannot start while one runs."""
    from pytest_fanout.errors import UsageError

    with metering():
        with pytest.raises(UsageError) as refused, metering():
            pass

    assert str(refused.value) == (
        "a measurement is running already in this process: one counts at a time\n"
        "  mend: end the outer measurement first, or measure in another process\n"
        "  see: docs/messages.md#meter-running"
    )
