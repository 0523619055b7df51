"""An agent behind an in-process application (ASGI, WSGI, a test client) is measured like any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest
from metering import Tape, chat, metering, raw_post, run_task
from model_server import ModelServer


def asgi_app(work: Callable[[bytes], Any]) -> Any:
    """An ASGI application that calls ``work`` with the body of each request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        said = await work(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": str(said).encode()})

    return app


def wsgi_app(work: Callable[[], Any]) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("content-type", "text/plain")])
        return [str(work()).encode()]

    return app


def ask_sync(url: str, text: str) -> str:
    with httpx2.Client() as client:
        return str(
            client.post(url + "/v1/chat/completions", json=chat(text)).json()["choices"][0]["message"]["content"]
        )


async def ask_async(url: str, text: str) -> str:
    return await asyncio.to_thread(ask_sync, url, text)


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_calls_of_an_application_below_a_client(kind: str, library: Any, model: ModelServer) -> None:
    """Two model calls of an application that a client calls in-process are counted, and replay runs it again."""

    async def work(_: bytes) -> str:
        return await ask_async(model.base_url, "one") + await ask_async(model.base_url, "two")

    async def through_asgi() -> str:
        transport = library.ASGITransport(asgi_app(work))
        async with library.AsyncClient(transport=transport) as client:
            return str((await client.post("http://app.local/answer", content=b"x")).text)

    def through_wsgi() -> str:
        app = wsgi_app(lambda: ask_sync(model.base_url, "one") + ask_sync(model.base_url, "two"))
        with library.Client(transport=library.WSGITransport(app)) as client:
            return str(client.post("http://app.local/answer", content=b"x").text)

    agent: Any = through_asgi if kind == "asgi" else through_wsgi
    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == "echo: oneecho: two"
    assert (recorded.fanout, replayed.fanout, len(model.generated)) == (2, 2, 2)
    assert (replayed.trace.misses, replayed.slugs) == (0, [])


def test_application_that_forwards_the_body(model: ModelServer) -> None:
    """A4: a body forwarded unchanged counts at the model's own path; behind a model path it is the same one call."""

    async def forward(body: bytes) -> int:
        async with httpx2.AsyncClient() as client:
            return (await client.post(model.base_url + "/v1/chat/completions", content=body)).status_code

    def through(path: str) -> Any:
        async def agent() -> str:
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(asgi_app(forward))) as client:
                return str((await client.post("http://app.local" + path, content=json.dumps(chat()).encode())).text)

        return agent

    with metering() as meter:
        results = [run_task(meter, through(path)) for path in ("/proxy", "/v1/chat/completions")]

    assert [(result.value, result.fanout) for result in results] == [("200", 1), ("200", 1)]
    assert len(model.generated) == 2


def test_bypass_below_a_hook(model: ModelServer) -> None:
    """An application below a hooked client that calls a model by a socket is noticed all the same."""

    def raw() -> int:
        return raw_post(model.base_url + "/v1/chat/completions")

    def agent() -> None:
        with httpx2.Client(transport=httpx2.WSGITransport(wsgi_app(raw))) as client:
            client.post("http://app.local/answer")

    with metering(hosts=[f"127.0.0.1:{model.port}"]) as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.slugs) == (0, ["unhooked-model-traffic"])
