"""Keys, connections, proxies and sockets of aiohttp: what goes out, and what goes round the hook."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Caps, MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEY_VARIABLES, "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def tracing(heard: list[Any]) -> aiohttp.TraceConfig:
    """Notes everything that aiohttp tells of a request."""
    config = aiohttp.TraceConfig()

    async def note(session: Any, context: Any, params: Any) -> None:
        heard.append(repr(params))
        heard.append(repr(dict(getattr(params, "headers", None) or {})))

    for signal in (
        config.on_request_start,
        config.on_request_headers_sent,
        config.on_request_chunk_sent,
        config.on_request_end,
        config.on_response_chunk_received,
    ):
        signal.append(note)
    return config


def test_real_keys_go_out_and_are_nowhere_else(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets the real keys in header and query; response, traces and the record hold none of them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-openai")
    monkeypatch.setenv("GEMINI_API_KEY", "real/gemini+key")
    told: list[str] = []
    path = "/v1beta/models/m:generateContent"
    model.restart({"default": {"json": {"candidates": []}}})

    async def agent() -> list[str]:
        seen = []
        async with aiohttp.ClientSession(trace_configs=[tracing(told)]) as session:
            headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
            params = {"key": os.environ["GEMINI_API_KEY"]}
            async with session.post(model.base_url + path, json={"contents": []}, headers=headers, params=params) as a:
                await a.read()
                seen += [repr(a), repr(a.request_info), str(a.url), str(a.real_url)]
                seen.append(a.request_info.headers["Authorization"])
        return seen

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.error is None
    assert model.log[0].headers["authorization"] == "Bearer sk-real-openai"
    assert model.log[0].query == "key=real%2Fgemini%2Bkey"
    everything = repr((result.value, told, result.trace.exchanges))
    assert "sk-real" not in everything
    assert "gemini+key" not in everything
    assert "gemini%2Bkey" not in everything
    assert result.value[-1].startswith("Bearer fanout-sealed-OPENAI_API_KEY-")
    assert any("TraceRequestHeadersSentParams" in text for text in told)
    assert ("authorization", "Bearer fanout-sealed-OPENAI_API_KEY") in result.trace.exchanges[0].request.headers


def test_keys_survive_a_redirect_and_a_refusal(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hop gets the real key, and the error of a session that raises holds the dummy."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-openai")
    model.restart([{"status": 401}])

    async def agent() -> str:
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        async with aiohttp.ClientSession(raise_for_status=True, headers=headers) as session:
            try:
                await session.post(f"{model.base_url}/redirect{CHAT}", json=chat())
            except aiohttp.ClientResponseError as error:
                return repr(error.request_info) + repr(error.history)
        return ""

    with metering() as meter:
        result = run_task(meter, agent)

    assert [entry.headers["authorization"] for entry in model.log] == ["Bearer sk-real-openai"] * 2
    assert "fanout-sealed-OPENAI_API_KEY" in result.value
    assert "sk-real" not in result.value


def test_a_key_that_is_not_there_is_named_for_aiohttp() -> None:
    """A provider call without a key is not sent: the agent gets 401, and the problem names the variable."""

    async def agent() -> int:
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        async with aiohttp.ClientSession() as session:
            async with session.post("https://api.openai.com" + CHAT, json=chat(), headers=headers) as answer:
                return answer.status

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.value, result.fanout, result.trace.spent_calls) == (401, 0, 0)
    assert result.slugs == ["missing-key"]


@pytest.mark.parametrize("strict", [False, True])
def test_look_ups_and_connections_are_the_hooks_own(strict: bool, model: ModelServer) -> None:
    """Names resolved in threads, connections raced or waited for, and kept ones used again: none is a bypass."""

    async def agent() -> None:
        resolver = aiohttp.ThreadedResolver()
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, limit_per_host=2)
        url = f"http://localhost:{model.port}{CHAT}"

        async def ask(number: int) -> None:
            async with session.post(url, json=chat(str(number))) as answer:
                await answer.read()

        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*map(ask, range(5)))
            await asyncio.create_task(ask(6))

    with metering(measure=MeasureRules(strict_egress=strict)) as meter:
        result = run_task(meter, agent)

    assert (result.error, result.fanout, result.trace.problems) == (None, 6, ())


def test_a_raw_connection_beside_aiohttp(model: ModelServer) -> None:
    """A connection of asyncio's own to the same server, in the same task, still makes it invalid."""

    async def agent() -> None:
        async with aiohttp.ClientSession() as session, session.post(model.base_url + CHAT, json=chat()) as answer:
            await answer.read()
            _, writer = await asyncio.open_connection("127.0.0.1", model.port)
            writer.close()
            await writer.wait_closed()

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.slugs) == (1, ["unhooked-model-traffic"])


def test_a_proxy_of_the_environment(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a proxy the call is booked as the server's it is meant for, and the proxy is no bypass."""
    monkeypatch.setenv("http_proxy", model.base_url)
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    model.restart(lambda entry: {"json": {"choices": [{"message": {"content": entry.path}}], "usage": usage}})

    async def agent() -> str:
        async with aiohttp.ClientSession(trust_env=True) as session:
            async with session.post("http://model.example" + CHAT, json=chat()) as answer:
                return str((await answer.json())["choices"][0]["message"]["content"])

    with metering("record", measure=MeasureRules(strict_egress=True)) as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == "http://model.example" + CHAT  # what a proxy is asked for
    assert recorded.trace.exchanges[0].request.url == "http://model.example" + CHAT
    assert (recorded.fanout, recorded.measured.samples["input_tokens"], len(model.log)) == (1, 7, 1)
    assert (recorded.trace.problems, replayed.trace.problems) == ((), ())


class SocketServer:
    """A server of WebSockets at /v1/responses and /tool; anything else is 404."""

    async def __aenter__(self) -> str:
        async def echo(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                await socket.send_str(message.data)
            return socket

        application = web.Application()
        application.add_routes([web.get("/v1/responses", echo), web.get("/tool", echo)])
        self.runner = web.AppRunner(application)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return f"127.0.0.1:{self.runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_a_socket_to_a_model_is_never_green(scheme: str) -> None:
    """Calls inside a WebSocket of aiohttp are not counted: the task is invalid, and in replay there is no socket."""

    async def agent() -> str:
        async with SocketServer() as host, aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(f"{scheme}://{host}/v1/responses") as socket:
                    await socket.send_str("response.create")
                    return str((await socket.receive()).data)
            except aiohttp.WSServerHandshakeError as error:
                return f"refused with {error.status}"

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.value, recorded.slugs) == ("response.create", ["fanout-unobservable"])
    assert (replayed.value, replayed.slugs) == ("refused with 400", ["stack-not-replayed"])


def test_other_sockets(model: ModelServer) -> None:
    """A WebSocket of a tool is left alone; a handshake that fails has opened no channel of calls."""

    async def agent() -> list[Any]:
        heard: list[Any] = []
        async with SocketServer() as host, aiohttp.ClientSession() as session:
            async with session.ws_connect(f"ws://{host}/tool") as socket:
                await socket.send_str("hello")
                heard.append((await socket.receive()).data)
            for url in (f"ws://{host}/missing/v1/responses", "ws://127.0.0.1:1/v1/responses"):
                try:
                    await session.ws_connect(url)
                except aiohttp.ClientError as error:
                    heard.append(type(error).__name__)
        return heard

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.value == ["hello", "WSServerHandshakeError", "ClientConnectorError"]
    assert (result.slugs, result.measured.other) == ([], 3)


def test_recorded_failures_of_connecting(model: ModelServer) -> None:
    """A connection that was refused, one that took too long and an answer that is no HTTP fail alike in replay."""
    model.restart([{"status": 503, "retry_after": 7}, {"delay_s": 0.5}])

    async def agent() -> list[Any]:
        heard: list[Any] = []
        limits = aiohttp.ClientTimeout(sock_read=0.1)
        async with aiohttp.ClientSession(timeout=limits) as session:
            for url in ("http://127.0.0.1:1" + CHAT, model.base_url + CHAT, model.base_url + CHAT):
                try:
                    async with session.post(url, json=chat()) as answer:
                        heard.append(answer.status)
                        heard.append(answer.headers.get("retry-after"))
                except aiohttp.ClientError as error:
                    heard += [type(error).__name__, isinstance(error, aiohttp.ClientConnectorError)]
        return heard

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == ["ClientConnectorError", True, 503, "7", "SocketTimeoutError", False]
    assert replayed.value == ["ClientConnectorError", True, 503, "0", "SocketTimeoutError", False]
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] == 3


def test_a_call_given_up_before_its_answer(model: ModelServer) -> None:
    """A call that the agent, or its session's own limit, stopped waiting for is given up in replay as well."""
    model.restart([{"delay_s": 0.5}, {"delay_s": 0.5}])

    async def agent() -> list[str]:
        heard = []
        async with aiohttp.ClientSession() as session:
            for limit in (0.1, None):
                total = aiohttp.ClientTimeout(total=0.1 if limit is None else None)
                try:
                    await asyncio.wait_for(session.post(model.base_url + CHAT, json=chat(), timeout=total), limit)
                except TimeoutError as error:
                    heard.append(type(error).__name__)
        return heard

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == ["TimeoutError", "TimeoutError"]
    assert [e.answer.error for e in recorded.trace.exchanges] == ["CancelledError", "TimeoutError"]
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] == 2


def test_a_connection_that_takes_too_long() -> None:
    """A connection that is not made in time fails by the same exception in replay, where none is tried."""

    class Never(aiohttp.TCPConnector):
        async def _create_connection(self, *_: Any) -> Any:
            tried.append(1)
            await asyncio.sleep(60)

    async def agent() -> list[Any]:
        limits = aiohttp.ClientTimeout(connect=0.05)
        async with aiohttp.ClientSession(connector=Never(), timeout=limits) as session:
            try:
                await session.post("http://model.example" + CHAT, json=chat())
            except aiohttp.ServerTimeoutError as error:
                return [type(error).__name__, str(error)]
        return []

    tried: list[int] = []
    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value
    assert (recorded.value[0], len(tried)) == ("ConnectionTimeoutError", 1)


def test_parallel_calls_of_aiohttp_stay_parallel(model: ModelServer) -> None:
    """Calls made at once are in flight at once in replay: the cap on them holds there. A miss is one refusal."""

    async def ask(session: Any, text: str) -> int:
        async with session.post(model.base_url + CHAT, json=chat(text)) as answer:
            await answer.read()
            return int(answer.status)

    async def agent() -> list[int]:
        async with aiohttp.ClientSession() as session:
            return list(await asyncio.gather(*(ask(session, text) for text in "abc")))

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges[:2]))
        source = Tape(recorded.trace.exchanges)
        capped = run_task(meter, agent, source=source, caps=Caps(parallel_calls=2))

    assert sorted(replayed.value) == [200, 200, 400]
    assert (replayed.trace.misses, replayed.fanout) == (1, 2)
    assert capped.trace.capped == "parallel_calls"
