"""A task that is stopped amid a run of trio or anyio leaves the thread free for the runs of the tasks after it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
import trio
from metering import chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import stopper
from pytest_fanout.records import Caps

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
RUNS: dict[str, Run] = {
    "trio": trio.run,
    "anyio on trio": partial(anyio.run, backend="trio"),
    "anyio on asyncio": partial(anyio.run, backend="asyncio"),
}
WAYS = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopper, "_GRACE_S", 0.3)
    monkeypatch.setattr(stopper, "_AGAIN_S", 0.01)


async def ask(url: str, text: str = "hi") -> None:
    async with httpx.AsyncClient(verify=False) as client:
        await client.post(url + "/v1/chat/completions", json=chat(text))


@WAYS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_waits(run: Run, model: ModelServer) -> None:
    """The stop ends it where it waits; the next task runs while what the first one ended with is still held."""
    with metering() as meter:
        scope = meter.open_task("shop", "stopped", 1, Caps(wall_seconds=900))
        threading.Timer(0.02, scope.stop, ["wall_seconds"]).start()
        with pytest.raises(TaskStopped) as held:
            run(partial(anyio.sleep, 60))
        trace = meter.close_task(scope)
        following = [run_task(meter, partial(one, partial(ask, model.base_url)), task="next") for one in RUNS.values()]

    assert held.value.__traceback__ is not None
    assert trace.capped == "wall_seconds"
    assert [(result.error, result.fanout) for result in following] == [(None, 1)] * 3
    assert len(model.generated) == 3


@WAYS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_catches_every_stop(run: Run, model: ModelServer) -> None:
    """However often it is stopped, and wherever, three calls are sent, and the next task has its own."""

    async def catches_everything() -> None:
        while True:
            with suppress(BaseException):
                await ask(model.base_url)

    def agent() -> None:
        while True:
            with suppress(BaseException):
                run(catches_everything)

    with metering() as meter:
        stopped = run_task(meter, agent, caps=Caps(fanout=3))
        sent = len(model.generated)
        following = run_task(meter, lambda: run(partial(ask, model.base_url)), task="next")

    assert (stopped.trace.capped, stopped.fanout, sent) == ("fanout", 3, 3)
    assert isinstance(stopped.error, TaskStopped)
    assert (following.error, following.fanout, len(model.generated)) == (None, 1, 4)
