"""aiohttp: every hop is counted once, as the server counted it, whoever sits above."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import openai
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer
from yarl import URL

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import Meter, via_aiohttp
from pytest_fanout.records import Caps, MeasureRules

CHAT = "/v1/chat/completions"
Agent = Callable[[str], Any]


async def plain(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url + CHAT, json=chat("one two")) as answer:
        await answer.json()


async def streamed(url: str) -> None:
    asked = chat("one two three", stream=True, stream_options={"include_usage": True})
    async with aiohttp.ClientSession(url) as session, session.post(CHAT, json=asked) as answer:
        async for _ in answer.content:
            pass


async def without_a_session(url: str) -> None:
    async with aiohttp.request("POST", url + "/v1/messages", json=chat("a b c")) as answer:
        await answer.read()


async def by_request(url: str) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        answer = await session.request(method="post", url=URL(url + "/v1/responses"), json={"model": "m", "input": "a"})
        await answer.text()


async def gathered(url: str) -> None:
    connector = aiohttp.TCPConnector(limit=3)  # two of them wait for a connection of another one

    async def ask(number: int) -> None:
        async with session.post(url + CHAT, json=chat(f"q {number}")) as answer:
            await answer.json()

    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*map(ask, range(5)))


async def redirected(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/redirect{CHAT}", json=chat("a")) as answer:
        await answer.json()
        assert [hop.status for hop in answer.history] == [307]


class OverAiohttp(httpx2.AsyncBaseTransport):
    """A transport of httpx2 on aiohttp, as several SDKs bring one: the body as bytes, or as the stream it was."""

    def __init__(self, *, as_stream: bool, times: int = 1) -> None:
        self.as_stream = as_stream
        self.times = times
        self.session: Any = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.session = self.session or aiohttp.ClientSession(auto_decompress=False)
        for _ in range(self.times):
            answer = await self.session.request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=request.headers,
                data=request.stream if self.as_stream else await request.aread(),
                allow_redirects=False,
                skip_auto_headers=["User-Agent"],
            ).__aenter__()
        return httpx2.Response(answer.status, headers=answer.headers.items(), stream=Chunks(answer))

    async def aclose(self) -> None:
        if self.session is not None:
            await self.session.close()


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.answer.content.iter_chunked(65536):
            yield chunk

    async def aclose(self) -> None:
        await self.answer.release()


async def below_httpx2_as_bytes(url: str) -> None:
    async with httpx2.AsyncClient(transport=OverAiohttp(as_stream=False)) as client:
        await client.post(url + CHAT, json=chat("one two"))


async def below_httpx2_as_stream(url: str) -> None:
    async with httpx2.AsyncClient(transport=OverAiohttp(as_stream=True)) as client:
        await client.post(url + CHAT, json=chat("one two"))


async def below_the_openai_sdk(url: str) -> None:
    http_client = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="k", http_client=http_client) as client:
        asked = chat("one two", stream=True, stream_options={"include_usage": True})
        async for _ in await client.chat.completions.create(**asked):
            pass


def google_genai(url: str) -> Coroutine[Any, Any, None]:
    genai = pytest.importorskip("google.genai")

    async def agent() -> None:
        client = genai.Client(api_key="k", http_options={"base_url": url})
        await client.aio.models.generate_content(model="m", contents="one two")
        await client.aio.aclose()

    return agent()


AGENTS: list[Agent] = [
    plain,
    streamed,
    without_a_session,
    by_request,
    gathered,
    redirected,
    below_httpx2_as_bytes,
    below_httpx2_as_stream,
    below_the_openai_sdk,
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_numbers_are_the_servers_with_aiohttp(agent: Agent, model: ModelServer) -> None:
    """Calls, attempts and tokens of each way to use aiohttp equal what the server's own log says."""
    with metering() as meter:
        result = run_task(meter, lambda: agent(model.base_url))

    samples = result.measured.samples
    sent = [entry.usage for entry in model.generated if entry.usage]
    assert result.error is None
    assert (samples["fanout"], samples["attempts"]) == (len(model.generated), len(model.generated))
    assert samples["input_tokens"] == sum(usage["input"] for usage in sent)
    assert samples["output_tokens"] == sum(usage["output"] for usage in sent)
    assert len(result.trace.exchanges) == len(model.log) > 0
    assert {exchange.answer.outcome for exchange in result.trace.exchanges} == {"complete"}
    assert (result.trace.problems, result.slugs) == ((), [])


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_aiohttp_replays_without_a_network(agent: Agent, model: ModelServer) -> None:
    """Each of these agents runs again from its recording: same samples, nothing sent, nothing missed."""
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(model.base_url))
    sent = len(model.log)
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(model.base_url), source=Tape(recorded.trace.exchanges))

    assert (recorded.error, replayed.error) == (None, None)
    assert (len(model.log), replayed.trace.misses, replayed.trace.problems) == (sent, 0, ())
    samples = [dict(result.measured.samples, duration_ms=0) for result in (recorded, replayed)]
    assert samples[0] == samples[1]


@pytest.mark.filterwarnings("ignore:Inheritance class .* from ClientSession is discouraged:DeprecationWarning")
def test_google_genai_async(model: ModelServer) -> None:
    """The async client of google-genai stands on aiohttp: its request is counted."""
    model.restart({"default": {"json": {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}}})
    with metering() as meter:
        result = run_task(meter, lambda: google_genai(model.base_url))

    assert result.error is None
    assert [exchange.layer for exchange in result.trace.exchanges] == ["aiohttp"]
    assert result.fanout == len(model.log) == 1


def test_what_goes_out_is_booked(model: ModelServer) -> None:
    """The booked URL and headers are those that the server saw: base URL, query, cookies, auth and defaults joined."""

    async def agent() -> None:
        session = aiohttp.ClientSession(
            model.base_url,
            headers={"x-own": "1"},
            cookies={"b": "2"},
            cookie_jar=aiohttp.CookieJar(unsafe=True),
        )
        async with session:
            more = {"params": {"q": "a b"}, "cookies": {"c": "3"}, "headers": {"Authorization": "Basic YTpi"}}
            async with session.post(CHAT + "?x=1", json=chat(), **more) as answer:
                await answer.read()
            async with session.post("/tool/empty") as answer:  # gets a content type at the last moment
                await answer.read()

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.error is None
    for exchange, entry in zip(result.trace.exchanges, model.log, strict=True):
        assert exchange.request.url == f"{model.base_url}{entry.path}" + ("?" + entry.query if entry.query else "")
        assert dict(exchange.request.headers) == entry.headers
        assert exchange.request.body == entry.body
    assert model.log[0].query == "x=1&q=a+b"
    assert (model.log[0].headers["cookie"], model.log[1].headers["content-type"]) == (
        "b=2; c=3",
        "application/octet-stream",
    )


def test_failed_attempts_are_attempts(model: ModelServer) -> None:
    """Two 503s, one of them raised by the session, and an answer are three attempts of one call."""
    model.restart([{"status": 503}, {"status": 503}, {}])

    async def agent() -> list[int]:
        seen = []
        async with aiohttp.ClientSession() as session:
            for strict in (False, True, True):
                try:
                    async with session.post(model.base_url + CHAT, json=chat(), raise_for_status=strict) as answer:
                        seen.append(answer.status)
                except aiohttp.ClientResponseError as error:
                    seen.append(-error.status)
        return seen

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.value == [503, -503, 200]
    assert (result.fanout, result.measured.samples["attempts"], result.slugs) == (1, 3, [])


def test_a_cap_stops_an_aiohttp_agent(model: ModelServer) -> None:
    """The call beyond the cap is not sent, and the agent is stopped with its session closed."""

    async def agent() -> None:
        async with aiohttp.ClientSession() as session:
            for number in range(5):
                async with session.post(model.base_url + CHAT, json=chat(str(number))) as answer:
                    await answer.read()

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=2))

    assert isinstance(result.error, TaskStopped)
    assert (result.trace.capped, result.fanout, len(model.log)) == ("fanout", 2, 2)


@pytest.mark.parametrize(
    ("script", "slug"), [([{}, {}], "resent-by-transport"), ([{"status": 503}, {}], "retried-by-transport")]
)
def test_a_transport_on_aiohttp_that_repeats(script: list[Any], slug: str, model: ModelServer) -> None:
    """What a transport over aiohttp sends again is noticed, and it matters whether the first had failed."""
    model.restart(script)

    async def agent() -> None:
        async with httpx2.AsyncClient(transport=OverAiohttp(as_stream=False, times=2)) as client:
            await client.post(model.base_url + CHAT, json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (len(model.generated), result.fanout) == (2, 1)
    assert [problem.slug for problem in result.trace.problems] == [slug]


def test_a_connector_of_the_users_own(model: ModelServer) -> None:
    """A connector that connects without asking aiohttp's own method is counted, and replayed, all the same."""

    class Own(aiohttp.TCPConnector):
        async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
            protocol = await self._create_connection(req, traces, timeout)
            return aiohttp.connector.Connection(self, req.connection_key, protocol, asyncio.get_running_loop())

    async def agent() -> str:
        async with aiohttp.ClientSession(connector=Own()) as session:
            async with session.post(model.base_url + CHAT, json=chat()) as answer:
                return str((await answer.json())["choices"][0]["message"]["content"])

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.fanout, len(model.log)) == (1, 1)
    assert (replayed.value, recorded.value) == ("echo: hi", "echo: hi")


class LoopThread:
    """A loop on a thread of its own with a session in it, as a library keeps one for good."""

    def __enter__(self) -> LoopThread:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.session = self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.session.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    async def ask(self, url: str, text: str, **headers: str) -> None:
        async with self.session.post(url + CHAT, json=chat(text), headers=headers) as answer:
            await answer.read()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)


def test_a_session_older_than_the_tasks(model: ModelServer) -> None:
    """A session made before everything, on one kept connection, books each call on the task that asked for it."""
    with LoopThread() as kept, metering() as meter:
        kept.run(kept.ask(model.base_url, "nobody's"))
        first = run_task(meter, lambda: kept.run(kept.ask(model.base_url, "a")), task="first")
        second = run_task(meter, lambda: [kept.run(kept.ask(model.base_url, t)) for t in "bc"] and None, task="second")
        facts = meter.finish()

    assert (first.fanout, second.fanout, len(model.log)) == (1, 2, 4)
    assert (first.slugs, second.slugs) == ([], [])
    assert (facts.unattributed, facts.late) == (1, 0)


def test_an_aiohttp_call_after_its_task(model: ModelServer) -> None:
    """What a task leaves running in a kept loop is late when it calls, and the next task does not get it."""
    go = threading.Event()
    with LoopThread() as kept, metering() as meter:
        left: list[Any] = []

        async def later() -> None:
            await asyncio.get_running_loop().run_in_executor(None, go.wait)
            await kept.ask(model.base_url, "late", connection="close")

        def agent() -> None:
            left.append(asyncio.run_coroutine_threadsafe(later(), kept.loop))

        first = run_task(meter, agent, task="first")

        def next_agent() -> None:
            go.set()
            left[0].result(30)

        second = run_task(meter, next_agent, task="second")
        facts = meter.finish()

    assert (first.fanout, second.fanout, facts.late, len(model.log)) == (0, 0, 1, 1)


def test_sabotaged_aiohttp_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that does not see the way of a request, or a version that has no such way, is a problem of the run."""

    def problems() -> list[tuple[str, str]]:
        meter = Meter(mode="live", measure=MeasureRules(), environ={})
        found = meter.start()
        meter.stop()
        return [(problem.slug, problem.text) for problem in found]

    text = "the hook aiohttp.{} did not see a request that was sent through it exactly once"
    live, replayed = (
        ("hook-failed", text.format("BaseConnector.connect")),
        ("hook-failed", text.format("ClientResponse.start")),
    )
    with monkeypatch.context() as broken:
        broken.setattr(via_aiohttp._Hooks, "_start", lambda hooks, original: original)
        blind = problems()
    with monkeypatch.context() as broken:
        broken.delattr(aiohttp.client_proto.ResponseHandler, "set_response_params")
        changed = problems()

    assert (blind, changed, problems()) == ([live], [live, replayed], [])


def test_aiohttp_imported_by_a_running_loop(model: ModelServer) -> None:
    """An agent that imports aiohttp in the middle of its work, on a running loop, is counted from its first call on."""
    code = """
        import sys
        from metering import metering, run_task, chat
        async def agent():
            import aiohttp
            async with aiohttp.ClientSession() as session:
                async with session.post(sys.argv[1] + "/v1/chat/completions", json=chat()) as answer:
                    return answer.status
        assert "aiohttp" not in sys.modules
        with metering() as meter:
            result = run_task(meter, agent)
            print(result.value, result.fanout, meter.finish().problems, result.slugs)
    """
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), model.base_url],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{root}:{root / 'tests' / 'meter'}", "PATH": "/usr/bin:/bin"},
    )

    assert (done.stdout.strip(), done.stderr) == ("200 1 () []", "")
    assert len(model.log) == 1


def test_aiohttp_is_put_back() -> None:
    """After stop() no patch is left on aiohttp."""
    verbs = ("request", "get", "options", "head", "post", "put", "patch", "delete")

    def patched() -> list[object]:
        return [
            aiohttp.BaseConnector.connect,
            aiohttp.client_proto.ResponseHandler.set_response_params,
            aiohttp.ClientRequest.send,
            aiohttp.ClientResponse.start,
            *(getattr(aiohttp.ClientSession, verb) for verb in verbs),
            aiohttp.request,
        ]

    before = patched()
    with metering():
        during = patched()

    assert patched() == before
    assert all(one != two for one, two in zip(before, during, strict=True))


def test_the_self_check_on_a_machine_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds that pass between two turns of its loop, as on a machine with too much to do, fail no hook."""
    looks = itertools.count()
    now = asyncio.SelectorEventLoop.time
    monkeypatch.setattr(asyncio.SelectorEventLoop, "time", lambda loop: now(loop) + 3 * (next(looks) > 5))

    with metering() as meter:
        assert meter.finish().problems == ()

    assert next(looks) > 10
