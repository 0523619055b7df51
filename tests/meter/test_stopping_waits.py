"""A task whose time is over ends amid the call that it waits for, whatever client waits, and in whatever it waits."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import grpc
import httpx2
import pytest
import uvloop
from botocore.config import Config
from gatewaying import raw_server
from metering import Result, metering, run_task
from other_clients import BODY, OTHER_CLIENTS
from responses_socket import ResponsesSocket
from rpc_server import RpcServer
from test_via_grpc import CODED, MANY, ONE, PLAIN
from websockets.sync import client as threaded

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import Meter
from pytest_fanout.records import Caps
from pytest_fanout.wire.hosts import KEY_VARIABLES

pytestmark = pytest.mark.slow

PROMPT = 10  # seconds in which each of them must have ended, on a slow machine
LONG = 30  # seconds that a server takes for its answer if nobody stops the client
CAPS = Caps(wall_seconds=900)


class SlowServers:
    """Servers of models that never come to an answer: the task that has asked them is out of time at once."""

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self.over = threading.Event()
        self.asked = 0

    def hold(self, *_: Any) -> None:
        assert self.meter is not None
        self.asked += 1
        self.end_time()
        self.over.wait(LONG)

    def end_time(self) -> None:
        """What happens when the wall clock has come to its cap."""
        running = self.meter._ledger.running if self.meter is not None else None
        assert running is not None
        running.stop("wall_seconds")

    def run(self, agent: Callable[[], Any]) -> Result:
        begun = time.monotonic()
        with metering() as meter:
            self.meter = meter
            try:
                result = run_task(meter, agent, caps=CAPS)
            finally:
                self.over.set()
        assert time.monotonic() - begun < PROMPT
        return result


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowServers]:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    servers = SlowServers()
    yield servers
    servers.over.set()


def by_httpx2(url: str) -> None:
    with httpx2.Client(verify=False) as client:
        client.post(url, content=BODY)


def by_boto3(url: str) -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    home = url.partition("/v1/")[0]
    client = boto3.client(
        "bedrock-runtime", endpoint_url=home, config=Config(retries={"total_max_attempts": 1}), **keys
    )
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])


HTTP = {**OTHER_CLIENTS, "httpx2": by_httpx2, "boto3": by_boto3}


def is_stopped(result: Result) -> bool:
    is_told = isinstance(result.error, TaskStopped) and "reached its cap wall_seconds = 900" in str(result.error)
    return is_told and (result.trace.capped, result.slugs) == ("wall_seconds", [])


@pytest.mark.parametrize("client", HTTP)
def test_http_clients_that_wait_for_an_answer(client: str, slow: SlowServers) -> None:
    """The one call that was sent is counted, and nobody waits for its answer."""
    with raw_server(slow.hold) as url:
        result = slow.run(lambda: HTTP[client](url + "/v1/chat/completions"))

    assert is_stopped(result)
    assert (result.fanout, slow.asked) == (1, 1)


@pytest.mark.parametrize("client", [name for name in OTHER_CLIENTS if name not in ("requests", "urllib3")])
def test_http_clients_that_wait_for_the_rest_of_a_stream(client: str, slow: SlowServers) -> None:
    """The same amid a stream."""

    def begin(connection: Any, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
        slow.hold()

    with raw_server(begin) as url:
        result = slow.run(lambda: HTTP[client](url + "/v1/chat/completions"))

    assert isinstance(result.error, TaskStopped)
    assert (result.trace.capped, result.fanout, slow.asked) == ("wall_seconds", 1, 1)


def test_a_socket_of_websockets_that_waits_for_a_message(slow: SlowServers) -> None:
    """Its blocking form waits for messages in a queue."""
    with ResponsesSocket(slow.hold) as server:

        def agent() -> None:
            with threaded.connect(server.url.replace("http", "ws") + "/responses") as socket:
                socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": "hi"}))
                socket.recv()

        result = slow.run(agent)

    assert is_stopped(result)
    assert (result.fanout, len(server.creates)) == (1, 1)


@pytest.mark.parametrize("method", [ONE, MANY], ids=["whole", "streamed"])
def test_a_channel_of_grpc_that_waits_for_a_message(method: str, slow: SlowServers) -> None:
    """Its blocking form waits in C."""

    def script(*_: Any) -> Iterator[dict[str, Any]]:
        slow.hold()
        yield {}

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            if method == ONE:
                channel.unary_unary(ONE, **CODED)(PLAIN)
            else:
                list(channel.unary_stream(MANY, **CODED)(PLAIN))

    with RpcServer(script) as server:
        result = slow.run(agent)

    assert is_stopped(result)
    assert (result.fanout, slow.asked) == (1, 1)


@pytest.mark.parametrize("wait", ["a queue", "a loop of uvloop"])
def test_an_agent_that_waits_for_nothing(wait: str, slow: SlowServers) -> None:
    """A simple queue that nobody fills, and a loop in C that has nothing to do."""

    def agent() -> None:
        threading.Timer(0.02, slow.end_time).start()
        if wait == "a queue":
            queue.SimpleQueue[int]().get(timeout=LONG)
        else:
            uvloop.run(asyncio.sleep(LONG))

    result = slow.run(agent)

    assert is_stopped(result)
