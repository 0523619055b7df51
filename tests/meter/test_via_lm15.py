"""dspy's own client on raw sockets is counted, blocking and asyncio.

The tests run on the package lm15, whose code dspy carries inside itself; dspy is heavy and has its own environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter import via_lm15
from pytest_fanout.records import Caps
from pytest_fanout.wire.hosts import KEY_VARIABLES

transports = pytest.importorskip("lm15.transports")
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")


def request(url: str, **more: Any) -> Any:
    headers = [("content-type", "application/json"), ("authorization", f"Bearer {os.environ['OPENAI_API_KEY']}")]
    return transports.TransportRequest(
        "POST", url + "/v1/chat/completions", headers, json.dumps(chat("a b c", **more)).encode()
    )


def blocking(url: str, *bodies: dict[str, Any]) -> list[tuple[int, bytes]]:
    got = []
    with transports.StdlibTransport() as transport:
        for body in bodies:
            with transport.stream(request(url, **body)) as response:
                got.append((response.status, response.read()))
    return got


def asynchronous(url: str, *bodies: dict[str, Any]) -> list[tuple[int, bytes]]:
    async def talk() -> list[tuple[int, bytes]]:
        got = []
        transport = transports.StdlibAsyncTransport()
        for body in bodies:
            async with transport.stream(request(url, **body)) as response:
                got.append((response.status, await response.read()))
        await transport.aclose()
        return got

    return asyncio.run(talk())


FORMS = pytest.mark.parametrize("talk", [blocking, asynchronous], ids=["blocking", "asyncio"])


@FORMS
def test_calls(talk: Callable[..., Any], model: ModelServer) -> None:
    """Whole and streamed calls on one connection are two calls, token for token what the server counted; the server
    gets the real key, and the agent the bytes that it would have got."""
    with metering() as meter:
        result = run_task(meter, lambda: talk(model.base_url, {}, STREAM))

    assert (result.error, [status for status, _ in result.value]) == (None, [200, 200])
    assert [exchange.answer.body for exchange in result.trace.exchanges] == [body for _, body in result.value]
    assert [e.layer for e in result.trace.exchanges] == ["lm15", "lm15"]
    usages = [entry.usage for entry in model.generated]
    assert [{"input": c.last.input_tokens, "output": c.last.output_tokens} for c in result.measured.calls] == [
        {"input": usage["input"], "output": usage["output"]} for usage in usages if usage
    ]
    assert {entry.headers["authorization"] for entry in model.log} == {"Bearer sk-real"}
    assert "sk-real" not in repr(result.trace.exchanges)
    assert (result.fanout, result.slugs, result.trace.problems) == (2, [], ())


@FORMS
def test_recordings_give_the_same(talk: Callable[..., Any]) -> None:
    """Replayed, the agent reads the same bytes, the numbers are the same, and nothing is opened; more is not there."""
    with ModelServer([{}, {"status": 503}, {}]) as model:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: talk(model.base_url, STREAM, {}, {}))
        asked = len(model.log)
        with metering("replay") as meter:
            tape = Tape(recorded.trace.exchanges)
            replayed = run_task(meter, lambda: talk(model.base_url, STREAM, {}, {}, {"seed": 1}), source=tape)

    assert (asked, len(model.log)) == (3, 3)
    assert [status for status, _ in recorded.value] == [200, 503, 200]
    assert replayed.value[:3] == recorded.value
    assert json.loads(replayed.value[3][1])["error"]["code"] == "request-not-recorded"
    numbers = [
        {name: count for name, count in result.measured.samples.items() if name != "duration_ms"}
        for result in (recorded, replayed)
    ]
    assert numbers[0] == numbers[1]
    assert (replayed.measured.samples["attempts"], replayed.trace.misses) == (3, 1)


@FORMS
def test_a_broken_connection_breaks_again(talk: Callable[..., Any]) -> None:
    """A stream that broke off raises the same error after the same bytes, and so does a server that was not there."""
    with ModelServer([{"break_after": 2}]) as model:
        url = model.base_url
        with metering("record") as meter:
            broken = run_task(meter, lambda: talk(url, STREAM))
    with metering("record") as meter:
        refused = run_task(meter, lambda: talk(url, STREAM))
    with metering("replay") as meter:
        again = [run_task(meter, lambda: talk(url, STREAM), source=Tape(r.trace.exchanges)) for r in (broken, refused)]

    assert type(refused.error).__name__ == "ConnectError"
    assert [type(r.error) for r in again] == [type(broken.error), type(refused.error)]
    assert [(r.fanout, r.measured.samples["attempts"]) for r in again] == [(1, 1), (0, 1)]


@FORMS
def test_errors_and_caps(talk: Callable[..., Any]) -> None:
    """A 503 and the same request again are one call; a request beyond a cap is not sent."""
    with ModelServer([{"status": 503}]) as model, metering() as meter:
        result = run_task(meter, lambda: talk(model.base_url, {}, {}, {}, {}), caps=Caps(fanout=2))

    assert (type(result.error).__name__, result.trace.capped) == ("TaskStopped", "fanout")
    assert (len(model.log), result.fanout, result.measured.samples["attempts"]) == (3, 2, 3)


def test_stream_that_is_closed_early() -> None:
    """An agent that stops reading leaves an incomplete call of unknown usage."""

    def agent(url: str) -> None:
        with transports.StdlibTransport() as transport:
            with transport.stream(request(url, **STREAM)) as response:
                next(iter(response))

    with ModelServer([{"text": "many " * 9000}]) as model, metering() as meter:
        result = run_task(meter, lambda: agent(model.base_url))

    (exchange,) = result.trace.exchanges
    assert (exchange.answer.outcome, result.fanout, result.measured.unknown_usage) == ("closed_early", 1, 1)


@FORMS
def test_server_that_hangs_up(talk: Callable[..., Any]) -> None:
    """A connection that breaks amid a stream raises the client's own error, and is an incomplete call."""
    with ModelServer([{"break_after": 2}]) as model, metering() as meter:
        result = run_task(meter, lambda: talk(model.base_url, STREAM))

    (exchange,) = result.trace.exchanges
    assert type(result.error).__module__ == "lm15.transports._exceptions"
    assert (exchange.answer.outcome, exchange.answer.error) == ("error", type(result.error).__name__)
    assert (result.fanout, result.measured.samples["input_tokens"]) == (1, None)


def test_prove_finds_a_patch_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check names each hook that no longer sees what passes."""
    modules = [sys.modules[f"lm15.transports.{form}"] for form in ("_sync", "_async")]
    with metering() as meter:
        assert [via_lm15.prove(module, meter._seam) for module in modules] == [[], []]
        with monkeypatch.context() as patch:
            patch.setattr(modules[0].StdlibTransport, "stream", lambda *_: None)
            assert via_lm15.prove(modules[0], meter._seam) == ["lm15.transports._sync.StdlibTransport.stream"]


def test_unhooked_client_is_noticed(monkeypatch: pytest.MonkeyPatch, model: ModelServer) -> None:
    """With the patch taken off, the connection of the client is a bypass that the tripwire names."""
    original = transports.StdlibTransport.stream

    with metering(hosts=[f"127.0.0.1:{model.port}"]) as meter, monkeypatch.context() as patch:
        patch.setattr(transports.StdlibTransport, "stream", original)
        result = run_task(meter, lambda: blocking(model.base_url, {}))

    assert (len(model.generated), result.fanout, result.slugs) == (1, 0, ["unhooked-model-traffic"])
