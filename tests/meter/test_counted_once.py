"""One request is counted once, however many layers see it, and a hook that sees nothing is named."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import httpx
import httpx2
import openai
import pytest
import respx
import vcr
from metering import chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter import Meter, via_httpx
from pytest_fanout.records import MeasureRules


class Wrapping(httpx2.BaseTransport):
    """A transport that sends by a client of its own, which carries the hook again."""

    def __init__(self) -> None:
        self.client = httpx2.Client()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self.client.request(request.method, request.url, content=request.read(), headers=request.headers)
        return httpx2.Response(
            response.status_code, headers={"content-type": "application/json"}, content=response.content
        )

    def close(self) -> None:
        self.client.close()


def test_layers_of_hooks_count_once(model: ModelServer) -> None:
    """A4: a transport that itself sends through a hooked client makes one call of one request."""

    def agent() -> None:
        with httpx2.Client(transport=Wrapping()) as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.fanout == len(model.generated) == 1


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_redirect_is_no_call(library, model: ModelServer) -> None:  # type: ignore[no-untyped-def]
    """A4: a 307 and the answer behind it are one call and one attempt."""

    def agent() -> None:
        with library.Client(follow_redirects=True) as client:
            client.post(model.base_url + "/redirect/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert [entry.path for entry in model.log] == ["/redirect/v1/chat/completions", "/v1/chat/completions"]
    assert (result.fanout, result.measured.samples["attempts"]) == (1, 1)


def test_mock_transport_counts() -> None:
    """A4: an answer of a mock transport is a call; its usage is read although nothing is streamed."""
    body = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, "model": "x"}
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=body))

    def agent() -> None:
        with httpx2.Client(transport=transport) as client:
            client.post("http://localhost:9/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.measured.samples["input_tokens"]) == (1, 7)


def test_respx_counts() -> None:
    """A4: a route of respx is counted once."""

    def agent() -> None:
        with respx.mock, httpx.Client() as client:
            respx.post("http://localhost:9/v1/chat/completions").respond(json={"choices": []})
            client.post("http://localhost:9/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.fanout == 1


@pytest.mark.parametrize("enter_first", [True, False], ids=["cassette-around-task", "cassette-in-task"])
def test_cassettes_of_the_user(enter_first: bool, model: ModelServer, tmp_path: Path) -> None:
    """Under a user's own vcrpy cassette recording and replaying both count what the agent did."""
    path = str(tmp_path / "tape.yaml")

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            for number in range(2):
                asked = chat(f"q {number}", stream=True, stream_options={"include_usage": True})
                for _ in client.chat.completions.create(**asked):
                    pass

    def inside() -> None:
        with vcr.use_cassette(path, match_on=["method", "path", "body"]):
            agent()

    with metering() as meter:
        results = []
        for _ in range(2):
            if enter_first:
                with vcr.use_cassette(path, match_on=["method", "path", "body"]):
                    results.append(run_task(meter, agent))
            else:
                results.append(run_task(meter, inside))

    assert len(model.generated) == 2  # the second run came from the cassette
    assert [result.fanout for result in results] == [2, 2]
    assert results[0].measured.samples["input_tokens"] == results[1].measured.samples["input_tokens"] == 4


def run_python(code: str, *arguments: str) -> str:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{root}:{root / 'tests' / 'meter'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_library_imported_inside_the_task(model: ModelServer) -> None:
    """A library that the agent imports in the middle of its task, in a thread, is hooked in time."""
    code = """
        import sys, threading
        from metering import metering, run_task, chat
        def agent():
            def work():
                import httpx, httpx2
                for library in (httpx, httpx2):
                    with library.Client() as client:
                        client.post(sys.argv[1] + "/v1/chat/completions", json=chat())
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert "httpx" not in sys.modules and "httpx2" not in sys.modules
        with metering() as meter:
            result = run_task(meter, agent)
            print(result.fanout, meter.finish().unattributed, result.slugs)
    """

    assert run_python(code, model.base_url) == "2 0 []"
    assert len(model.generated) == 2


def test_one_class_by_two_names(model: ModelServer) -> None:
    """`httpx2.alias_httpx()` makes two names for one class: its request is counted once."""
    code = """
        import sys
        import httpx2
        httpx2.alias_httpx()
        import httpx
        from metering import metering, run_task, chat
        def agent():
            with httpx.Client() as client:
                client.post(sys.argv[1] + "/v1/chat/completions", json=chat())
        assert httpx.Client is httpx2.Client
        with metering() as meter:
            print(run_task(meter, agent).measured.samples["attempts"])
    """

    assert run_python(code, model.base_url) == "1"
    assert len(model.generated) == 1


def test_sabotaged_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that does not see what passes through it is a problem of the run, by name."""

    def blind(module, seam, original):  # type: ignore[no-untyped-def]
        async def send(client, request):  # type: ignore[no-untyped-def]
            return await original(client, request)

        return send

    monkeypatch.setattr(via_httpx, "_async_hook", blind)
    meter = Meter(mode="live", measure=MeasureRules(), environ={})
    problems = meter.start()
    facts = meter.finish()
    meter.stop()

    wanted = [
        f"the hook {library}.AsyncClient._send_single_request did not see a request that was sent through it"
        " exactly once"
        for library in ("httpx", "httpx2")
    ]
    assert [problem.text for problem in problems] == wanted
    assert {(problem.slug, problem.verdict) for problem in problems} == {("hook-failed", "invalid")}
    assert facts.problems == ()


def test_everything_is_put_back() -> None:
    """After stop() no patch is left."""
    import asyncio
    import os
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool

    def patched() -> list[object]:
        return [
            httpx.Client._send_single_request,
            httpx.AsyncClient._send_single_request,
            httpx2.Client._send_single_request,
            httpx2.AsyncClient._send_single_request,
            threading.Thread.start,
            ThreadPoolExecutor.submit,
            ThreadPool.apply_async,
            asyncio.BaseEventLoop.create_task,
            asyncio.BaseEventLoop.call_soon_threadsafe,
            os._exit,
            list(sys.meta_path),
        ]

    before = patched()
    with metering():
        during = patched()

    assert patched() == before
    assert all(one != two for one, two in zip(before, during, strict=True))


class Repeating(httpx2.BaseTransport):
    """A transport that sends a request as often as it likes, over the library's own."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(self.times - 1):
            self.inner.handle_request(request).read()
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.inner.close()


class RepeatingAsync(httpx2.AsyncBaseTransport):
    """The same for asynchronous clients, side by side: the answer that comes first is taken."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        sendings = [self.inner.handle_async_request(request) for _ in range(self.times)]
        return (await asyncio.gather(*sendings))[0]

    async def aclose(self) -> None:
        await self.inner.aclose()


def ask_through(times: int, url: str) -> None:
    with httpx2.Client(transport=Repeating(times)) as client:
        client.post(url + "/v1/chat/completions", json=chat())


async def ask_through_async(times: int, url: str) -> None:
    async with httpx2.AsyncClient(transport=RepeatingAsync(times)) as client:
        await client.post(url + "/v1/chat/completions", json=chat())


@pytest.mark.parametrize("ask", [ask_through, ask_through_async], ids=["sync", "async"])
def test_a_transport_that_repeats_an_answered_call(ask, model: ModelServer) -> None:  # type: ignore[no-untyped-def]
    """What is sent again below the counting point, though nothing had failed, makes the task invalid, and is named."""
    with metering() as meter:
        once = run_task(meter, lambda: ask(1, model.base_url))
        twice = run_task(meter, lambda: ask(2, model.base_url))

    assert len(model.generated) == 3
    assert (once.slugs, twice.slugs) == ([], ["resent-by-transport"])
    assert twice.trace.problems[0].text == (
        f"the client's transport sent POST 127.0.0.1:{model.port} again although it had not failed: "
        "calls are not counted\n  mend: repeat it above the client"
    )


class Elsewhere(httpx2.BaseTransport):
    """Hands a request on, and then asks another provider by the same body: with a transport, or a client of its own."""

    def __init__(self, ask: Callable[[httpx2.Request], httpx2.Response], path: str) -> None:
        self.inner = httpx2.HTTPTransport()
        self.ask, self.path = ask, path

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.inner.handle_request(request).read()
        return self.ask(httpx2.Request("POST", request.url.copy_with(path=self.path), content=request.read()))

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("by", ["transport", "client"])
def test_a_transport_that_asks_a_second_provider(by: str, model: ModelServer) -> None:
    """A second model below the counting point is noticed by whatever path it is asked; what is no model is let be."""
    clients = {"transport": httpx2.HTTPTransport(), "client": httpx2.Client()}

    def ask(request: httpx2.Request) -> httpx2.Response:
        if by == "transport":
            return clients[by].handle_request(request)
        return clients[by].send(request)

    def agent(path: str) -> None:
        with httpx2.Client(transport=Elsewhere(ask, path)) as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat())

    with metering() as meter:
        other = run_task(meter, lambda: agent("/openai/v1/chat/completions"))
        none = run_task(meter, lambda: agent("/tool/log"))
    clients[by].close()

    assert len(model.log) == 4
    assert "resent-by-transport" in other.slugs
    assert "resent-by-transport" not in none.slugs


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_transport_without_a_client(library, model: ModelServer) -> None:  # type: ignore[no-untyped-def]
    """A model that is asked by a transport alone, which no counting point sees, makes the task invalid."""

    def agent(path: str) -> None:
        with library.HTTPTransport() as transport:
            transport.handle_request(library.Request("POST", model.base_url + path, json=chat())).read()

    async def in_async(path: str) -> None:
        async with library.AsyncHTTPTransport() as transport:
            await (await transport.handle_async_request(library.Request("GET", model.base_url + path))).aread()
            await (
                await transport.handle_async_request(library.Request("POST", model.base_url + path, json=chat()))
            ).aread()

    with metering() as meter:
        results = [run_task(meter, lambda: agent("/v1/messages")), run_task(meter, lambda: in_async("/v1/messages"))]
        tool = run_task(meter, lambda: agent("/tool/log"))

    assert [result.slugs for result in results] == [["unbooked-request"], ["unbooked-request"]]
    assert tool.slugs == []
    assert results[0].trace.problems[0].text == (
        f"a transport of {library.__name__} was used without a client: 127.0.0.1:{model.port} was called uncounted\n"
        "  mend: send requests by a client"
    )


def test_a_transport_that_retries_failures(model: ModelServer) -> None:
    """Retries of failed sendings inside a transport leave fanout right; that attempts do not show them is a notice."""
    model.restart([{"status": 503}, {"status": 503}, {}])
    with metering() as meter:
        result = run_task(meter, lambda: ask_through(3, model.base_url))

    assert (result.fanout, len(model.generated)) == (1, 3)
    assert [(p.slug, p.verdict, p.text) for p in result.trace.problems] == [
        (
            "retried-by-transport",
            "notice",
            f"the client's transport retries POST 127.0.0.1:{model.port} by itself: attempts holds one for all of them",
        )
    ]
