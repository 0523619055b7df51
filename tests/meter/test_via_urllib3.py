"""requests, urllib3 and all that stands on its pools: counted as the server counted, sent as without us."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
import requests
import urllib3
from byte_server import RawServer, plain
from metering import Tape, chat, metering, run_task
from model_server import ModelServer
from urllib3.util import Retry

from pytest_fanout.meter import Meter, via_urllib3
from pytest_fanout.records import Caps, MeasureRules

Agent = Callable[[str], Any]
PATH = "/v1/chat/completions"
IMPORTED = urllib3.PoolManager()  # made when the module of an agent is imported


def by_requests(url: str) -> Any:
    return requests.post(url + PATH, json=chat("one two")).json()


def by_session_stream(url: str) -> Any:
    asked = chat("one two three", stream=True, stream_options={"include_usage": True})
    with requests.Session() as session, session.post(url + PATH, json=asked, stream=True) as answer:
        return list(answer.iter_lines())


def by_pool_manager(url: str) -> Any:
    with urllib3.PoolManager() as pools:
        return pools.request("POST", url + PATH, json=chat("one two")).json()


def by_pool_stream(url: str) -> Any:
    asked = chat("one two", stream=True, stream_options={"include_usage": True})
    with urllib3.PoolManager() as pools:
        answer = pools.request("POST", url + PATH, json=asked, preload_content=False)
        said = list(answer.stream())
        answer.release_conn()
        return said


def by_a_client_of_the_module(url: str) -> Any:
    return IMPORTED.request("POST", url + PATH, json=chat("one two")).json()


def by_urlopen_of_one_pool(url: str) -> Any:
    with urllib3.connection_from_url(url) as pool:
        return [pool.urlopen("POST", PATH, body=json.dumps(chat(str(n)))).data for n in range(3)]


AGENTS = [
    by_requests,
    by_session_stream,
    by_pool_manager,
    by_pool_stream,
    by_a_client_of_the_module,
    by_urlopen_of_one_pool,
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_numbers_are_the_servers_and_replay_equals_them(agent: Agent, model: ModelServer) -> None:
    """Calls, attempts and tokens equal the server's log; a replay says the same to agent and meter, sending nothing."""
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(model.base_url))
    sent = len(model.log)
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(model.base_url), source=Tape(recorded.trace.exchanges))

    samples = recorded.measured.samples
    usage = [entry.usage or {} for entry in model.generated]
    assert (recorded.error, replayed.error, recorded.slugs, replayed.slugs) == (None, None, [], [])
    assert (samples["fanout"], samples["attempts"]) == (sent, sent) == (len(usage), len(usage))
    assert samples["input_tokens"] == sum(one["input"] for one in usage)
    assert samples["output_tokens"] == sum(one["output"] for one in usage)
    assert {exchange.layer for exchange in recorded.trace.exchanges} == {"urllib3"}
    assert {exchange.answer.outcome for exchange in recorded.trace.exchanges} == {"complete"}
    assert len(model.log) == sent
    assert replayed.value == recorded.value
    for name in ("fanout", "attempts", "input_tokens", "output_tokens", "context_max", "peak_concurrency", "rounds"):
        assert replayed.measured.samples[name] == samples[name]


def test_retries_of_urllib3_are_attempts(model: ModelServer) -> None:
    """503, 503, 200 by ``Retry(status_forcelist)`` is one call of three attempts, live and replayed without waiting."""
    model.restart([{"status": 503}, {"status": 503, "retry_after": 1}, {}])
    retry = Retry(3, status_forcelist=[503], allowed_methods=None)

    def agent() -> int:
        with urllib3.PoolManager(retries=retry) as pools:
            return pools.request("POST", model.base_url + PATH, json=chat()).status

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert len(model.log) == 3
    for result in (recorded, replayed):
        assert (result.fanout, result.measured.samples["attempts"], result.value, result.slugs) == (1, 3, 200, [])
    assert recorded.trace.duration_ms > 1000
    assert replayed.trace.duration_ms < 500


def test_retries_for_the_sake_of_retry_after(model: ModelServer) -> None:
    """urllib3 retries a 429 only because it carries ``retry-after``: replayed it still does."""
    model.restart([{"status": 429, "retry_after": 0}, {}])

    def agent() -> int:
        with urllib3.PoolManager(retries=Retry(3, allowed_methods=None)) as pools:
            return pools.request("POST", model.base_url + PATH, json=chat()).status

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.value, replayed.value, len(model.log)) == (200, 200, 2)
    assert replayed.measured.samples["attempts"] == 2


@pytest.mark.parametrize("library", ["requests", "urllib3"])
def test_redirect_is_no_call(library: str, model: ModelServer) -> None:
    """A4: a 307 and the answer behind it are one call and one attempt, whoever follows the redirect."""
    url = model.base_url + "/redirect" + PATH

    def agent() -> Any:
        if library == "requests":
            return requests.post(url, json=chat()).status_code
        return IMPORTED.request("POST", url, json=chat()).status

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert [entry.path for entry in model.log] == ["/redirect" + PATH, PATH]
    for result in (recorded, replayed):
        assert (result.fanout, result.measured.samples["attempts"], result.value, result.slugs) == (1, 1, 200, [])


def test_calls_of_many_threads(model: ModelServer) -> None:
    """200 calls of one session on 16 threads are 200 calls, and each thread hears its own answer, replayed as well."""
    with requests.Session() as session:

        def ask(number: int) -> str:
            answer = session.post(model.base_url + PATH, json=chat(f"number {number}")).json()
            return str(answer["choices"][0]["message"]["content"])

        def agent() -> list[str]:
            with ThreadPoolExecutor(16) as pool:
                return list(pool.map(ask, range(200)))

        with metering("record") as meter:
            recorded = run_task(meter, agent)
            facts = meter.finish()
        with metering("replay") as meter:
            replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.fanout, len(model.generated), facts.unattributed, facts.late) == (200, 200, 0, 0)
    assert recorded.value == replayed.value == [f"echo: number {number}" for number in range(200)]
    assert (replayed.fanout, len(model.generated)) == (200, 200)


def test_clients_of_fixtures_and_calls_of_neighbours(model: ModelServer) -> None:
    """A session that a fixture made serves two tasks: each call is its task's, those of the fixture are set-up."""
    with metering() as meter, requests.Session() as session:
        with meter.setup():
            session.post(model.base_url + PATH, json=chat("warm up"))
        ask = lambda: session.post(model.base_url + PATH, json=chat("hi"))  # noqa: E731
        first = run_task(meter, ask, task="first")
        second = run_task(meter, lambda: (ask(), ask()), task="second")
        facts = meter.finish()

    assert (first.fanout, second.fanout, facts.setup, facts.unattributed) == (1, 2, 1, 0)


def test_a_cap_sends_no_more(model: ModelServer) -> None:
    """A18: an agent that catches every exception and goes on sends exactly what its cap allows."""

    def agent() -> None:
        for number in range(9):
            try:
                requests.post(model.base_url + PATH, json=chat(str(number)))
            except Exception:
                continue

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=4))

    assert (len(model.log), result.trace.capped, result.fanout) == (4, "fanout", 4)


@pytest.mark.parametrize("place", ["header", "query"])
def test_the_real_key_goes_out_and_only_there(place: str, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent holds a dummy; the server gets the key; neither recording nor the agent's own objects hold it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real/+")
    monkeypatch.setenv("GEMINI_API_KEY", "g-real/+")

    def agent() -> requests.Response:
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]} if place == "header" else {}
        params = {"key": os.environ["GEMINI_API_KEY"], "n": "1"} if place == "query" else {}
        return requests.post(model.base_url + PATH, params=params, json=chat(), headers=headers)

    with metering("record") as meter:
        result = run_task(meter, agent)

    if place == "header":
        assert model.log[0].headers["authorization"] == "Bearer sk-real/+"
    else:
        assert model.log[0].query == "key=g-real%2F%2B&n=1"
    answer = result.value
    held = repr([answer.request.headers, answer.url, answer.raw.geturl(), vars(answer.raw)])
    assert "real" not in held + repr(result.trace.exchanges)
    assert (result.fanout, result.slugs) == (1, [])


def bodies() -> dict[str, Callable[[], dict[str, Any]]]:
    text = json.dumps(chat("ö")).encode()
    return {
        "bytes": lambda: {"data": text},
        "text": lambda: {"data": text.decode()},
        "bytearray": lambda: {"data": bytearray(text)},
        "file": lambda: {"data": io.BytesIO(text)},
        "file-read-on": lambda: {"data": _after(io.BytesIO(b"skip" + text), 4)},
        "generator": lambda: {"data": (text[at : at + 9] for at in range(0, len(text), 9))},
        "multipart": lambda: {"files": {"f": ("n.json", io.BytesIO(text))}},
        "form": lambda: {"data": {"a": "1", "b": "ö"}},
        "none": dict,
    }


def _after(file: io.BytesIO, at: int) -> io.BytesIO:
    file.seek(at)
    return file


@pytest.mark.parametrize("kind", bodies())
def test_bodies_go_out_as_without_us(kind: str) -> None:
    """Whatever a body is made of, the server gets the bytes and framing that it gets without us, and we keep them."""
    with RawServer(lambda asked: plain(b"{}")) as server:

        def agent() -> None:
            requests.post(server.base_url + PATH, **bodies()[kind]())

        agent()
        with metering() as meter:
            result = run_task(meter, agent)
    bare, counted = server.log

    boundary = bare.headers.get("content-type", "").rpartition("boundary=")[2].encode()
    other = counted.headers.get("content-type", "").rpartition("boundary=")[2].encode()
    assert (counted.method, counted.chunked) == (bare.method, bare.chunked)
    assert counted.body == (bare.body.replace(boundary, other) if kind == "multipart" else bare.body)
    assert {n: v for n, v in counted.headers.items() if n != "content-type"} == {
        n: v for n, v in bare.headers.items() if n != "content-type"
    }
    assert result.trace.exchanges[0].request.body == counted.body


def test_a_file_is_sent_again_after_a_failure() -> None:
    """urllib3 rewinds a file before its own retry: each attempt carries the whole of it."""
    statuses = iter([503, 200])
    with RawServer(lambda asked: plain(b"{}", next(statuses))) as server, urllib3.PoolManager() as pools:

        def agent() -> int:
            retry = Retry(2, status_forcelist=[503], allowed_methods=None)
            return pools.request("POST", server.base_url + PATH, body=io.BytesIO(b"{} " * 9), retries=retry).status

        with metering() as meter:
            result = run_task(meter, agent)

    assert [asked.body for asked in server.log] == [b"{} " * 9] * 2
    assert (result.value, result.measured.samples["attempts"]) == (200, 2)


def test_the_agent_sees_its_own_objects() -> None:
    """Types, attributes and headers of an answer are those of the library, live and replayed."""
    packed = gzip.compress(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}).encode())
    answer = plain(packed, content_encoding="gzip", x_request_id="r-1", set_cookie="a=b")

    def agent(url: str) -> Any:
        with requests.Session() as session:
            got = session.post(url + PATH, json=chat(), hooks={"response": lambda r, **_: seen.append(r.status_code)})
            assert isinstance(got.raw, urllib3.HTTPResponse)
            assert type(got.raw).__name__ == "HTTPResponse"
            assert got.elapsed.total_seconds() >= 0
            headers = {name: got.headers[name] for name in ("content-type", "x-request-id", "content-encoding")}
            return got.json(), headers, session.cookies.get_dict(), got.reason, got.ok, got.raw.version

    seen: list[int] = []
    with RawServer(lambda asked: answer) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert recorded.error is None
    assert (
        recorded.value[:3] == replayed.value[:3] == (json.loads(gzip.decompress(packed)), recorded.value[1], {"a": "b"})
    )
    assert (recorded.value[3], replayed.value[3:]) == ("Said", ("OK", True, 11))
    assert recorded.trace.exchanges[0].answer.body == packed
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7
    assert (seen, len(server.log)) == ([200, 200], 1)


def test_a_miss_is_answered_once(model: ModelServer) -> None:
    """A request that is not on the recording hears one 400, also where urllib3 is told to retry failures."""

    def agent() -> tuple[int, str]:
        retry = Retry(3, status_forcelist=[429, 500, 503], allowed_methods=None)
        with urllib3.PoolManager(retries=retry) as pools:
            got = pools.request("POST", model.base_url + PATH, json=chat())
            return got.status, got.json()["error"]["code"]

    with metering("replay") as meter:
        result = run_task(meter, agent, source=Tape(()))

    assert (result.value, result.error) == ((400, "request-not-recorded"), None)
    assert (result.trace.misses, len(model.log)) == (1, 0)


class Sending(httpx2.BaseTransport):
    """A transport of httpx that sends by urllib3, as often as it is told."""

    def __init__(self, times: int) -> None:
        self.times = times

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(self.times):
            got = IMPORTED.request(request.method, str(request.url), body=request.read(), headers=dict(request.headers))
        return httpx2.Response(got.status, content=got.data)


def test_below_another_client(model: ModelServer) -> None:
    """A4: what a client above has booked is counted once; a transport that sends it twice is told."""

    def agent(times: int) -> None:
        with httpx2.Client(transport=Sending(times)) as client:
            client.post(model.base_url + PATH, json=chat())

    with metering() as meter:
        once, twice = run_task(meter, lambda: agent(1)), run_task(meter, lambda: agent(2))

    assert (once.fanout, once.slugs, once.trace.exchanges[0].layer) == (1, [], "httpx2")
    assert (twice.fanout, twice.slugs) == (1, ["resent-by-transport"])


def test_application_below_a_client(model: ModelServer) -> None:
    """An application that httpx calls in-process, and that asks its model by requests, has made that call."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("content-type", "text/plain")])
        return [requests.post(model.base_url + PATH, json=chat()).content]

    def agent() -> None:
        with httpx2.Client(transport=httpx2.WSGITransport(app)) as client:
            client.post("http://app.local/answer", content=b"x")

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, len(model.generated), result.slugs) == (1, 1, [])


def test_everything_is_put_back() -> None:
    """After stop() no patch is left on the pools."""
    cls, secure = urllib3.HTTPConnectionPool, urllib3.HTTPSConnectionPool
    before = cls._make_request, secure._prepare_proxy
    with metering():
        during = cls._make_request, secure._prepare_proxy

    assert (cls._make_request, secure._prepare_proxy) == before
    assert during[0] is not before[0]
    assert during[1] is not before[1]


def test_a_blind_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its point, or with a hook that sees nothing, urllib3 2 is a problem of the run, by name."""
    meters = [Meter(mode="live", measure=MeasureRules(), environ={}) for _ in range(2)]
    monkeypatch.setattr(via_urllib3, "_request_hook", lambda module, seam, original: lambda *a, **k: original(*a, **k))
    problems = meters[0].start()
    meters[0].stop()
    monkeypatch.setattr(via_urllib3, "_POINT", "_make_another")
    problems += meters[1].start()
    meters[1].stop()

    assert [(p.slug, p.verdict) for p in problems] == [("hook-failed", "invalid")] * 2
    assert [p.text for p in problems] == [
        f"the hook urllib3.HTTPConnectionPool.{name} did not see a request that was sent through it exactly once"
        for name in ("_make_request", "_make_another")
    ]


def test_ignored_and_passed_hosts() -> None:
    """An ignored host hears nothing and answers 204; a host that is let by is asked in replay too, and not kept."""
    with RawServer(lambda asked: plain(b'{"live": 1}')) as server:
        peer = f"localhost:{server.port}"

        def agent() -> Any:
            return requests.get(f"http://{peer}/prompt").json(), requests.post("http://traces.example/x").status_code

        with metering("replay", measure=MeasureRules(passthrough=(peer,), ignore=("traces.example",))) as meter:
            result = run_task(meter, agent, source=Tape(()))

    assert (result.value, result.trace.exchanges) == (({"live": 1}, 204), ())


def test_a_tool_is_replayed_with_its_head(model: ModelServer) -> None:
    """A tool's HEAD, 204 and error answers come back as they came."""
    answers = {"/gone": plain(b'{"no": 1}', 404), "/done": [b"HTTP/1.1 204 Done\r\n\r\n"], "/size": plain(b"")}

    def agent(url: str) -> Any:
        got = [requests.get(url + "/gone"), requests.delete(url + "/done"), requests.head(url + "/size")]
        return [(one.status_code, one.content) for one in got]

    with RawServer(lambda asked: answers[asked.target]) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == [(404, b'{"no": 1}'), (204, b""), (200, b"")]
    assert len(server.log) == 3
