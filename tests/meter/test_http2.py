"""HTTP/2: many calls on one connection are counted one by one."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import hypercorn.asyncio
import hypercorn.config
import pytest
from metering import Tape, chat, metering, run_task

EVENTS = [
    {"id": "c", "model": "m-x", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
    {"id": "c", "model": "m-x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "c", "model": "m-x", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
]


class Served:
    """A chat model that streams over HTTP/2; ``versions`` says what each request came by."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.clients: set[Any] = set()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.versions.append(scope["http_version"])
        self.clients.add(tuple(scope["client"]))
        while (await receive()).get("more_body"):
            continue
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for event in EVENTS:
            data = b"data: " + json.dumps(event).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


@pytest.fixture
def served() -> Iterator[tuple[Served, str]]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    made, stop, up = Served(), threading.Event(), threading.Event()
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.detach()}"]  # the server closes it
    config.errorlog = None

    async def until_stopped() -> None:
        up.set()
        await asyncio.to_thread(stop.wait)

    async def serve() -> None:
        await hypercorn.asyncio.serve(made.app, config, shutdown_trigger=until_stopped)  # type: ignore[arg-type]

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    up.wait()
    try:
        yield made, f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("module", [httpx, httpx2])
def test_ten_calls_on_one_connection_are_ten(served: tuple[Served, str], module: Any) -> None:
    """Ten streams at once over one HTTP/2 connection: ten calls, 70 tokens in, 20 out; and the same in replay."""
    server, url = served

    async def agent() -> None:
        async with module.AsyncClient(http1=False, http2=True) as client:
            first = await client.post(url, json=chat("0"))
            assert first.http_version in ("HTTP/2", "HTTP/1.1")
            await asyncio.gather(*(client.post(url, json=chat(str(number))) for number in range(1, 10)))

    with metering("record") as meter:
        live = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(live.trace.exchanges))

    assert (server.versions, len(server.clients)) == (["2"] * 10, 1)
    for result in (live, replayed):
        assert result.error is None
        assert result.slugs == []
        samples = result.measured.samples
        assert (samples["fanout"], samples["input_tokens"], samples["output_tokens"]) == (10, 70, 20)
