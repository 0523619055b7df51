"""What a task leaves behind, or shares with the next one, on ways that Python's own pools and threads do not take."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import importlib
import pickle
import sys
import threading
import time
from _thread import start_new_thread  # as it is without the meter: like a thread that a library of C starts
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
import trio
import uvloop
from metering import chat, metering, run_task
from model_server import ModelServer

PATIENCE_S = 5.0


def ask(url: str) -> int:
    with httpx2.Client() as client:
        client.post(url + "/v1/chat/completions", json=chat())
    return threading.get_ident()


class Flag:
    """An event that its waiter does not rest in."""

    def __init__(self) -> None:
        self.up = False

    def set(self) -> None:
        self.up = True

    def wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.up and time.monotonic() < until:
            time.sleep(0.001)


@pytest.mark.parametrize(
    ("start", "flag"),
    [
        (lambda work: _thread.start_new_thread(work, ()), threading.Event),
        (lambda work: start_new_thread(work, ()), Flag),
    ],
    ids=["by function", "unseen"],
)
def test_threads_of_no_class(start: Callable[[Any], Any], flag: Callable[[], Any], model: ModelServer) -> None:
    """A thread without an object of ``threading`` that outlives its task is late, and not the next task's."""
    begun, go, done = threading.Event(), flag(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait()
        ask(model.base_url)
        done.set()

    def leave() -> None:
        start(work)
        assert begun.wait(PATIENCE_S)

    def meet() -> None:
        go.set()
        assert done.wait(PATIENCE_S)

    with metering() as meter:
        first, second = run_task(meter, leave, task="a"), run_task(meter, meet, task="b")
        facts = meter.finish()

    assert (first.error, second.error, len(model.generated)) == (None, None, 1)
    assert (first.fanout, second.fanout, facts.late) == (0, 0, 1)
    assert [(problem.slug, problem.task) for problem in facts.problems] == [("late-call", "a")]


def test_a_thread_of_no_class_belongs_to_its_task(model: ModelServer) -> None:
    """What a thread started by function calls while its task runs is the task's; its arguments arrive."""
    heard: list[Any] = []

    def agent() -> None:
        done = threading.Event()

        def work(*args: Any, **named: Any) -> None:
            heard.append((args, named, ask(model.base_url)))
            done.set()

        heard.append(_thread.start_new_thread(work, (1, 2), {"three": 3}))
        assert done.wait(PATIENCE_S)
        with pytest.raises(TypeError, match="first arg must be callable"):
            _thread.start_new_thread(None, ())  # type: ignore[arg-type]

    with metering() as meter:
        result = run_task(meter, agent)

    ident = next(entry for entry in heard if isinstance(entry, int))
    assert ((1, 2), {"three": 3}, ident) in heard
    assert (result.fanout, result.slugs, result.error) == (1, [], None)


@pytest.mark.parametrize("timer", ["call_later", "call_at"])
def test_timers_of_uvloop(timer: str, model: ModelServer) -> None:
    """A timer that a task leaves on a kept loop of uvloop is late, and not the next task's."""
    loop = uvloop.new_event_loop()
    fired: list[asyncio.Task[None]] = []

    async def later() -> None:
        async with httpx2.AsyncClient() as client:
            await client.post(model.base_url + "/v1/chat/completions", json=chat())

    async def leave() -> None:
        when = 0.01 if timer == "call_later" else loop.time() + 0.01
        getattr(loop, timer)(when, lambda: fired.append(loop.create_task(later())))

    async def meet() -> None:
        while not fired:
            await asyncio.sleep(0.001)
        await fired[0]

    with metering() as meter:
        first = run_task(meter, lambda: loop.run_until_complete(leave()), task="a")
        second = run_task(meter, lambda: loop.run_until_complete(meet()), task="b")
        facts = meter.finish()
    loop.close()

    assert (first.fanout, second.fanout, facts.late, len(model.generated)) == (0, 0, 1, 1)


def test_threads_of_trio(model: ModelServer) -> None:
    """The threads that trio keeps from one task to the next work for the task that hands them their job."""

    def agent() -> int:
        return trio.run(trio.to_thread.run_sync, ask, model.base_url)

    with metering() as meter:
        results = [run_task(meter, agent, task=task) for task in ("a", "b")]
        begun = time.monotonic()
        facts = meter.finish()
        waited = time.monotonic() - begun

    assert results[0].value == results[1].value, "both jobs on one thread"
    assert ([result.fanout for result in results], facts.late, facts.problems) == ([1, 1], 0, ())
    assert waited < 1, "a thread that waits for its next job is not at work"


def test_jobs_of_other_interpreters_are_handed_on_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pool of interpreters is given goes to them pickled, so that nothing may be wrapped around it."""

    class Interpreters(ThreadPoolExecutor):
        """As from Python 3.14 on."""

    monkeypatch.setattr(concurrent.futures, "InterpreterPoolExecutor", Interpreters, raising=False)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", pickling(ThreadPoolExecutor.submit))

    def agent() -> int:
        with Interpreters(1) as pool:
            return ThreadPoolExecutor.submit(pool, abs, -3).result()

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.value, result.error) == (3, None)


def pickling(submit: Any) -> Any:
    def submitted(executor: Any, fn: Any, /, *args: Any) -> Any:
        return submit(executor, pickle.loads(pickle.dumps(fn)), *args)

    return submitted


def test_an_interpreter_of_its_own_is_noticed(model: ModelServer) -> None:
    """A subinterpreter has modules and sockets of its own, that no hook sees: that one was started is said."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    interpreters: Any = importlib.import_module(name)

    def agent() -> None:
        ask(model.base_url)
        interpreters.destroy(interpreters.create())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.slugs) == (1, [])
    (problem,) = result.trace.problems
    assert (problem.slug, problem.verdict) == ("child-process", "notice")
    assert problem.text.split(" ", 1)[1] == "started another interpreter in this process: what it calls is not counted"
