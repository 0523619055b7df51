"""Clients that hear the recording first and the server then: on one connection pool, session or socket of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import openai
import pytest
import requests
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import Meter, Trace
from pytest_fanout.records import Caps

PATH = "/v1/chat/completions"


def by_httpx(url: str, texts: list[str]) -> None:
    with httpx.Client(verify=False) as client:
        for text in texts:
            client.post(url + PATH, json=chat(text)).raise_for_status()


def by_openai(url: str, texts: list[str]) -> None:
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        for text in texts:
            client.chat.completions.create(**chat(text))


def by_requests(url: str, texts: list[str]) -> None:
    with requests.Session() as session:
        for text in texts:
            session.post(url + PATH, json=chat(text)).raise_for_status()


def by_http_client(url: str, texts: list[str]) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.connect()  # before anything is known: replay opens nothing here
    for text in texts:
        connection.request("POST", PATH, json.dumps(chat(text)), {"content-type": "application/json"})
        assert connection.getresponse().read()
    connection.close()


async def by_aiohttp(url: str, texts: list[str]) -> None:
    async with aiohttp.ClientSession() as session:
        for text in texts:
            async with session.post(url + PATH, json=chat(text)) as answer:
                await answer.read()


def gone_on(
    meter: Meter, tape: Tape, agent: Callable[[], Any], resumes_ms: Callable[[int], int] = lambda idle_ms: 5000
) -> Trace:
    """A trial that goes on live when its recorded clock stands at five seconds."""
    scope = meter.open_task("shop", "t", 1, Caps(), tape, resumes_ms=resumes_ms)
    with contextlib.suppress(TaskStopped):
        value = agent()
        if asyncio.iscoroutine(value):
            asyncio.run(value)
    return meter.close_task(scope)


@pytest.mark.parametrize(
    "client", [by_httpx, by_openai, by_requests, by_http_client, by_aiohttp], ids=lambda client: client.__name__
)
def test_one_client_goes_on_live(model: ModelServer, client: Callable[[str, list[str]], Any]) -> None:
    """Two answers come from the recording; what follows reaches the server, the last request too, although the
    recording holds it; each is counted once, and nothing is told against the trial."""
    with metering("record") as meter:
        recorded = run_task(meter, lambda: client(model.base_url, ["a", "b", "c", "d"]))
    model.restart()
    with metering("record") as meter:
        trace = gone_on(meter, Tape(recorded.trace.exchanges), lambda: client(model.base_url, ["a", "b", "x", "d"]))

    assert [entry.json["messages"][0]["content"] for entry in model.generated] == ["x", "d"]
    assert [exchange.replayed for exchange in trace.exchanges] == [True, True, False, False]
    assert (trace.spent_calls, trace.replayed_calls, trace.misses, trace.problems) == (2, 2, 0, ())
    assert [exchange.started_ms >= 5000 for exchange in trace.exchanges] == [False, False, True, True]
    assert trace.duration_ms >= 5000


def test_calls_that_miss_together_move_the_clock_once(model: ModelServer) -> None:
    """Four threads ask, none of it recorded: the first of them moves the task's clock, and who watches that is woken to
    look at it again; the others do not."""
    moved: list[str] = []

    def resumes_ms(idle_ms: int) -> int:
        place = meter._ledger.place()
        assert place is not None
        place.scope.on_stop = lambda: moved.append("woken")
        moved.append("moved")
        return 5000

    def agent() -> None:
        by_httpx(model.base_url, ["a"])
        threads = [threading.Thread(target=by_httpx, args=(model.base_url, [f"x{n}"])) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with metering("record") as meter:
        recorded = run_task(meter, lambda: by_httpx(model.base_url, ["a"]))
    with metering("record") as meter:
        trace = gone_on(meter, Tape(recorded.trace.exchanges), agent, resumes_ms)

    assert moved == ["moved", "woken"]
    assert trace.spent_calls == 4
    assert all(5000 <= exchange.started_ms < 9000 for exchange in trace.exchanges[1:])


def test_the_wall_clock_holds_the_recorded_part(model: ModelServer) -> None:
    """A beginning of 899 seconds leaves one to the cap of 900: a call that takes longer is stopped."""
    model.restart({"rules": [{"when": {"contains": "x"}, "delay_s": 20}]})
    with metering("record") as meter:
        recorded = run_task(meter, lambda: by_httpx(model.base_url, ["a"]))
    with metering("record") as meter:
        trace = gone_on(
            meter, Tape(recorded.trace.exchanges), lambda: by_httpx(model.base_url, ["a", "x"]), lambda _: 899_000
        )

    assert trace.capped == "wall_seconds"
    assert 900_000 <= trace.duration_ms < 910_000
