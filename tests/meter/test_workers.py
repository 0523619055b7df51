"""Workers that live longer than a task work for whoever gave them the item in hand, and never for a neighbour."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from metering import Result, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter import Meter


def ask(url: str, text: str = "hi") -> None:
    with httpx2.Client(verify=False) as client:
        client.post(url + "/v1/chat/completions", json=chat(text))


async def ask_async(url: str, text: str = "hi") -> None:
    async with httpx2.AsyncClient(verify=False) as client:
        await client.post(url + "/v1/chat/completions", json=chat(text))


class Job:
    """What a worker gets: it waits for ``go``, calls the model once, and says so."""

    def __init__(self, text: str, number: int = 0) -> None:
        self.text = text
        self.number = number
        self.taken, self.go, self.done = threading.Event(), threading.Event(), threading.Event()

    def __lt__(self, other: Job) -> bool:
        return self.number < other.number

    def do(self, url: str) -> None:
        self.taken.set()
        assert self.go.wait(5)
        ask(url, self.text)
        self.done.set()


@contextmanager
def worker(loop: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(5)


@contextmanager
def consumer(jobs: Any, url: str) -> Iterator[None]:
    """A thread that does the jobs of a queue until it gets None."""

    def consume() -> None:
        while (job := jobs.get()) is not LAST:
            job.do(url)

    with worker(consume, lambda: jobs.put(LAST)):
        yield


LAST = Job("last", 99)


def numbers(results: list[Result], meter: Meter) -> tuple[list[int | None], int, int]:
    """Fanout of each task, late calls, calls of nobody."""
    facts = meter.finish()
    return [result.fanout for result in results], facts.late, facts.unattributed


QUEUES = [queue.Queue, queue.PriorityQueue, queue.SimpleQueue]


@pytest.mark.parametrize("born", ["in set-up", "in an earlier task"])
@pytest.mark.parametrize("kind", QUEUES, ids=lambda kind: kind.__name__)
def test_item_of_a_task_that_has_ended(kind: Any, born: str, model: ModelServer) -> None:
    """A consumer still at work on items of task one while task two runs: one's calls are late, two's its own."""
    left, waiting, own = Job("left", 1), Job("waiting", 2), Job("own", 3)
    with metering() as meter:
        jobs = getattr(queue, kind.__name__)()  # as code that is imported now finds it
        started = consumer(jobs, model.base_url)

        def one() -> None:
            jobs.put(left)
            jobs.put(waiting)
            assert left.taken.wait(5)

        def two() -> None:
            jobs.put(own)
            for job in (left, waiting, own):
                job.go.set()
            assert own.done.wait(5)

        if born == "in set-up":
            with meter.setup():
                started.__enter__()
        else:
            run_task(meter, started.__enter__, task="zero")
        results = [run_task(meter, one, task="one"), run_task(meter, two, task="two")]
        found = numbers(results, meter)
        late = {problem.task for problem in meter.finish().problems}
        started.__exit__(None, None, None)

    assert found == ([0, 1], 2, 0)
    assert late == {"one"}
    assert len(model.generated) == 3


def test_consumer_that_is_older_than_the_meter(model: ModelServer) -> None:
    """A consumer made when the agent was imported, before anything was measured, is no different."""
    jobs: queue.Queue[Job] = queue.Queue()
    left, own = Job("left"), Job("own")

    def one() -> None:
        jobs.put(left)
        assert left.taken.wait(5)

    def two() -> None:
        jobs.put(own)
        left.go.set()
        own.go.set()
        assert own.done.wait(5)

    with consumer(jobs, model.base_url), metering() as meter:
        results = [run_task(meter, one, task="one"), run_task(meter, two, task="two")]
        found = numbers(results, meter)

    assert found == ([0, 1], 1, 0)


def test_item_that_nobody_owns(model: ModelServer) -> None:
    """What a fixture puts into a queue is no task's work: a consumer that comes to it later calls for nobody."""
    jobs: queue.Queue[Job] = queue.Queue()
    first, own = Job("of the fixture"), Job("own")

    def agent() -> None:
        first.go.set()
        own.go.set()
        jobs.put(own)
        assert own.done.wait(5)

    with consumer(jobs, model.base_url), metering() as meter:
        with meter.setup():
            jobs.put(first)
            assert first.taken.wait(5)
        found = numbers([run_task(meter, agent)], meter)

    assert found == ([1], 0, 1)


def test_work_that_a_consumer_finds_on_its_way(model: ModelServer) -> None:
    """A consumer that puts follow-up work, or a job that has to be tried again, works on for the same task."""
    jobs: queue.Queue[Job] = queue.Queue()
    root, follow_up = Job("root"), Job("follow-up")
    tried: list[Job] = []

    def consume() -> None:
        while (job := jobs.get()) is not LAST:
            if job is root and not tried:
                tried.append(job)
                jobs.put(job)
                continue
            if job is root:
                jobs.put(follow_up)
            job.do(model.base_url)

    def one() -> None:
        jobs.put(root)
        assert root.taken.wait(5)

    def two() -> None:
        root.go.set()
        follow_up.go.set()
        assert follow_up.done.wait(5)
        ask(model.base_url, "own")

    with worker(consume, lambda: jobs.put(LAST)), metering() as meter:
        results = [run_task(meter, one, task="one"), run_task(meter, two, task="two")]
        found = numbers(results, meter)

    assert found == ([0, 1], 2, 0)


@pytest.mark.parametrize("kind", [queue.Queue, queue.LifoQueue], ids=lambda kind: kind.__name__)
def test_pool_of_clients_hands_nothing_over(kind: Any, model: ModelServer) -> None:
    """Clients that tasks take out of a queue and put back belong to nobody: whoever takes one stays who it is."""
    clients: Any = kind()
    jobs: queue.Queue[Job] = queue.Queue()

    def use(text: str) -> None:
        client = clients.get()
        try:
            client.post(model.base_url + "/v1/chat/completions", json=chat(text))
        finally:
            clients.put(client)

    def consume() -> None:
        while (job := jobs.get()) is not LAST:
            use(job.text)
            job.done.set()

    def agent() -> None:
        use("main")
        tool = threading.Thread(target=use, args=("tool",))
        tool.start()
        tool.join()
        job = Job("consumer")
        jobs.put(job)
        assert job.done.wait(5)

    with worker(consume, lambda: jobs.put(LAST)), metering() as meter:
        client = httpx2.Client(verify=False)
        clients.put(client)
        results = [run_task(meter, agent, task=name) for name in "abc"]
        client.close()
        found = numbers(results, meter)

    assert found == ([3, 3, 3], 0, 0)


class Mailbox:
    """A hand-made channel, in which ownership cannot be seen."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.ready = threading.Condition()

    def put(self, job: Job) -> None:
        with self.ready:
            self.jobs.append(job)
            self.ready.notify()

    def get(self) -> Job:
        with self.ready:
            while not self.jobs:
                self.ready.wait()
            return self.jobs.popleft()


def test_hand_made_channel_at_rest(model: ModelServer) -> None:
    """Through a channel of the agent's own a worker serves the running task, as long as tasks wait for their work."""
    box = Mailbox()

    def agent() -> None:
        job = Job("work")
        job.go.set()
        box.put(job)
        assert job.done.wait(5)

    with consumer(box, model.base_url), metering() as meter:
        results = [run_task(meter, agent, task=name) for name in "abc"]
        found = numbers(results, meter)

    assert found == ([1, 1, 1], 0, 0)


def test_hand_made_channel_at_work(model: ModelServer) -> None:
    """A worker that has called for a task and is at work when the task ends calls late from then on."""
    box = Mailbox()
    first = Job("first")
    go = threading.Event()
    gone, gone_on = threading.Event(), threading.Event()

    def work() -> None:
        while (job := box.get()) is not LAST:
            job.do(model.base_url)
            gone.set()
            while not go.is_set():  # at work, by what can be seen of a thread
                sum(range(100))
            ask(model.base_url, "left")
            gone_on.set()

    def one() -> None:
        first.go.set()
        box.put(first)
        assert gone.wait(5)

    def two() -> None:
        go.set()
        assert gone_on.wait(5)
        ask(model.base_url, "own")

    with worker(work, lambda: box.put(LAST)), metering() as meter:
        results = [run_task(meter, one, task="one"), run_task(meter, two, task="two")]
        found = numbers(results, meter)

    assert found == ([1, 1], 1, 0)


# --- asyncio ---------------------------------------------------------------------------------------------------------


class Async:
    """A loop that is kept over several tasks, with a worker on it that takes its jobs from an asyncio queue."""

    def __init__(self, url: str, kind: Any = asyncio.Queue) -> None:
        self.url = url
        self.kind = kind
        self.loop = asyncio.new_event_loop()
        self.worker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.jobs = self.kind()
        self.worker = asyncio.create_task(self.work())
        await asyncio.sleep(0)

    async def work(self) -> None:
        while (job := await self.jobs.get()) is not LAST:
            job.taken.set()
            while not job.go.is_set():
                await asyncio.sleep(0)
            await ask_async(self.url, job.text)
            await asyncio.gather(ask_async(self.url, job.text), asyncio.to_thread(ask, self.url, job.text))
            job.done.set()

    async def finish(self, job: Job) -> None:
        while not job.done.is_set():
            await asyncio.sleep(0.001)

    def run(self, coroutine: Any) -> None:
        self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        self.jobs.put_nowait(LAST)
        self.run(self.worker)
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.mark.parametrize("born", ["in set-up", "in an earlier task"])
@pytest.mark.parametrize("kind", [asyncio.Queue, asyncio.PriorityQueue], ids=lambda kind: kind.__name__)
def test_asyncio_worker(kind: Any, born: str, model: ModelServer) -> None:
    """A worker of a fixture or an earlier task calls, also by children and threads, for who put the item in."""
    left, own = Job("left", 1), Job("own", 2)
    kept = Async(model.base_url, kind)

    async def one() -> None:
        kept.jobs.put_nowait(left)
        while not left.taken.is_set():
            await asyncio.sleep(0)

    async def two() -> None:
        await kept.jobs.put(own)
        left.go.set()
        own.go.set()
        await kept.finish(own)

    with metering() as meter:
        if born == "in set-up":
            with meter.setup():
                kept.run(kept.start())
        else:
            run_task(meter, lambda: kept.run(kept.start()), task="zero")
        results = [run_task(meter, lambda: kept.run(one()), task="one")]
        results.append(run_task(meter, lambda: kept.run(two()), task="two"))
        found = numbers(results, meter)
        kept.close()

    assert found == ([0, 3], 3, 0)
    assert len(model.generated) == 6


def test_asyncio_worker_that_takes_its_work_from_elsewhere(model: ModelServer) -> None:
    """Without a queue, an asyncio worker that was at work when its task ended calls late until it has been at rest."""
    loop = asyncio.new_event_loop()
    bell, gate, rest = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await bell.wait()
        await ask_async(model.base_url, "first")
        gate.set()
        for _ in range(3):
            await asyncio.sleep(0)  # at work
        await asyncio.sleep(0.05)
        await ask_async(model.base_url, "left")
        rest.set()
        bell.clear()
        await bell.wait()
        await ask_async(model.base_url, "for three")

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(work())

    async def one() -> None:
        bell.set()
        await gate.wait()

    async def two() -> None:
        await rest.wait()
        await ask_async(model.base_url, "own")

    async def three(worker: asyncio.Task[None]) -> None:
        bell.set()
        await worker

    with metering() as meter:
        with meter.setup():
            worker = loop.run_until_complete(begin())
        results = [
            run_task(meter, lambda step=step: loop.run_until_complete(step), task=name)
            for name, step in (("one", one()), ("two", two()), ("three", three(worker)))
        ]
        found = numbers(results, meter)
    loop.close()

    assert found == ([1, 1, 1], 1, 0)


def test_timer_of_a_kept_loop(model: ModelServer) -> None:
    """A timer that a task has set on a loop and that strikes in the next task is late."""
    loop = asyncio.new_event_loop()
    struck: asyncio.Future[None] = loop.create_future()

    def strike() -> None:
        ask(model.base_url, "late")
        struck.set_result(None)

    async def one() -> None:
        asyncio.get_running_loop().call_later(0.01, strike)

    async def two() -> None:
        await struck
        ask(model.base_url, "own")

    with metering() as meter:
        results = [run_task(meter, lambda: loop.run_until_complete(one()), task="one")]
        results.append(run_task(meter, lambda: loop.run_until_complete(two()), task="two"))
        found = numbers(results, meter)
    loop.close()

    assert found == ([0, 1], 1, 0)


def test_child_in_a_context_of_its_own(model: ModelServer) -> None:
    """An asyncio task in a context of the agent's choice is the task's all the same, and late after it."""
    import contextvars

    loop = asyncio.new_event_loop()
    kept: list[asyncio.Task[None]] = []
    empty = contextvars.Context()

    async def later() -> None:
        await asyncio.sleep(0.01)
        await ask_async(model.base_url, "late")

    async def one() -> None:
        kept.append(asyncio.create_task(later(), context=empty))

    async def two() -> None:
        await kept[0]
        await ask_async(model.base_url, "own")

    with metering() as meter:
        results = [run_task(meter, lambda: loop.run_until_complete(one()), task="one")]
        results.append(run_task(meter, lambda: loop.run_until_complete(two()), task="two"))
        found = numbers(results, meter)
    loop.close()

    assert found == ([0, 1], 1, 0)
