"""urllib.request and http.client by hand: counted, sent as without us, replayed."""

from __future__ import annotations

import http.client
import io
import json
import os
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from byte_server import plain
from metering import Tape, chat, metering, run_task
from model_server import ModelServer
from stdlib_agents import BODY, PATH, by_urlopen, connection, three

from pytest_fanout.meter import Meter, via_http_client
from pytest_fanout.records import MeasureRules


def by_opener_stream(url: str) -> Any:
    asked = json.dumps(chat("a b", stream=True, stream_options={"include_usage": True})).encode()
    with urllib.request.build_opener().open(urllib.request.Request(url + PATH, data=asked)) as answer:
        return list(answer)


def by_request(url: str) -> Any:
    with connection(url) as conn:
        said = []
        for number in range(3):  # one connection, kept alive
            conn.request("POST", PATH, json.dumps(chat(str(number))), {"content-type": "application/json"})
            answer = conn.getresponse()
            said.append((answer.status, answer.getheader("content-type"), answer.read()))
        return said


def by_hand(url: str) -> Any:
    with connection(url) as conn:
        conn.putrequest("POST", PATH)
        conn.putheader("content-length", str(len(BODY)))
        conn.endheaders()
        for at in range(0, len(BODY), 20):
            conn.send(BODY[at : at + 20])
        return conn.getresponse().read()


def by_chunks_of_its_own(url: str) -> Any:
    with connection(url) as conn:
        conn.putrequest("POST", PATH)
        conn.putheader("transfer-encoding", "chunked")
        conn.endheaders()
        for piece in (BODY[:20], BODY[20:], b""):
            conn.send(b"%x\r\n" % len(piece))
            conn.send(piece + b"\r\n")
        return conn.getresponse().read()


def by_endheaders(url: str) -> Any:
    with connection(url) as conn:
        conn.putrequest("POST", PATH)
        conn.putheader("content-length", str(len(BODY)))
        conn.endheaders(BODY)
        return conn.getresponse().read()


AGENTS = [by_urlopen, by_opener_stream, by_request, by_hand, by_chunks_of_its_own, by_endheaders]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_numbers_are_the_servers_and_replay_equals_them(agent: Any, model: ModelServer) -> None:
    """Calls and tokens equal the server's log; a replay says the same to agent and meter, and sends nothing."""
    with metering("record") as meter:
        recorded = run_task(meter, lambda: agent(model.base_url))
    sent = len(model.log)
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(model.base_url), source=Tape(recorded.trace.exchanges))

    samples = recorded.measured.samples
    usage = [entry.usage or {} for entry in model.generated]
    assert (recorded.error, replayed.error, recorded.slugs, replayed.slugs) == (None, None, [], [])
    assert (samples["fanout"], samples["attempts"], len(usage)) == (sent, sent, sent)
    assert samples["input_tokens"] == sum(one["input"] for one in usage)
    assert {exchange.layer for exchange in recorded.trace.exchanges} == {"http.client"}
    assert {exchange.answer.outcome for exchange in recorded.trace.exchanges} == {"complete"}
    assert [exchange.request.body for exchange in recorded.trace.exchanges] == [entry.body for entry in model.log]
    assert len(model.log) == sent
    assert replayed.value == recorded.value
    for name in ("fanout", "attempts", "input_tokens", "output_tokens", "peak_concurrency", "rounds"):
        assert replayed.measured.samples[name] == samples[name]


def request_with(body: Any, **headers: str) -> Callable[[str], Any]:
    def agent(url: str) -> Any:
        made = body() if callable(body) else body
        with connection(url) as conn:
            conn.request("POST", PATH, made, headers)
            return conn.getresponse().read()

    return agent


BODIES = {
    "bytes": request_with(BODY),
    "text": request_with("é"),
    "bytearray": request_with(bytearray(BODY)),
    "file": request_with(lambda: io.BytesIO(BODY)),
    "text-file": request_with(lambda: io.StringIO("é")),
    "file-with-length": request_with(lambda: io.BytesIO(BODY), **{"Content-Length": str(len(BODY))}),
    "generator": request_with(lambda: iter([BODY[:9], b"", BODY[9:]])),
    "list": request_with([BODY[:9], BODY[9:]]),
    "none": request_with(None),
    "opener-file": lambda url: urllib.request.urlopen(urllib.request.Request(url + PATH, data=io.BytesIO(BODY))).read(),
}


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_go_out_as_without_us(kind: str) -> None:
    """Whatever a body is made of, the server gets the bytes and framing that it gets without us, and we keep them."""
    bare, recorded, replayed = three(BODIES[kind], plain(b"{}"))

    assert bare == recorded.value == replayed.value == b"{}"
    assert recorded.trace.exchanges[0].request.body == {"text": b"\xe9", "text-file": b"\xe9", "none": b""}.get(
        kind, BODY
    )


def test_redirect_is_no_call(model: ModelServer) -> None:
    """A4: a 307 that urllib.request follows, and the answer behind it, are one call and one attempt."""

    def agent() -> Any:
        return urllib.request.urlopen(model.base_url + "/redirect" + "/tool/x").read()

    def post() -> Any:
        class Follow(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
                return urllib.request.Request(newurl, data=req.data)

        opener = urllib.request.build_opener(Follow)
        return opener.open(model.base_url + "/redirect" + PATH, data=BODY).status

    with metering("record") as meter:
        tool, recorded = run_task(meter, agent), run_task(meter, post)
    with metering("replay") as meter:
        replayed = run_task(meter, post, source=Tape(recorded.trace.exchanges))

    assert len(model.log) == 4
    assert (tool.fanout, len(tool.trace.exchanges)) == (0, 2)
    for result in (recorded, replayed):
        assert (result.fanout, result.measured.samples["attempts"], result.value, result.error) == (1, 1, 200, None)


def test_remote_procedures(model: ModelServer) -> None:
    """What stands on http.client, like xmlrpc.client, is recorded and replayed with it."""
    reply = xmlrpc.client.dumps((5,), methodresponse=True).encode()

    def agent(url: str) -> Any:
        with xmlrpc.client.ServerProxy(url) as server:
            return server.add(2, 3)

    bare, recorded, replayed = three(agent, plain(reply, content_type="text/xml"))

    assert bare == recorded.value == replayed.value == 5
    assert [exchange.role for exchange in recorded.trace.exchanges] == ["tool"]


def test_below_another_client(model: ModelServer) -> None:
    """A4: what a client above has booked is counted once; an application below it has its own calls counted."""

    class Sending(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            with connection(model.base_url) as conn:
                for _ in range(self.times):
                    conn.request(request.method, request.url.path, request.read())
                    got = conn.getresponse()
                    content = got.read()
                return httpx2.Response(got.status, content=content)

        def __init__(self, times: int) -> None:
            self.times = times

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("content-type", "text/plain")])
        return [by_urlopen(model.base_url)[3]]

    def agent(transport: Any) -> None:
        with httpx2.Client(transport=transport) as client:
            client.post(model.base_url + PATH if isinstance(transport, Sending) else "http://app.local/", json=chat())

    with metering() as meter:
        once, twice = (run_task(meter, lambda n=n: agent(Sending(n))) for n in (1, 2))
        served = run_task(meter, lambda: agent(httpx2.WSGITransport(app)))

    assert [(one.fanout, one.slugs) for one in (once, twice, served)] == [
        (1, []),
        (1, ["resent-by-transport"]),
        (1, []),
    ]


def test_the_real_key_goes_out_and_only_there(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent holds a dummy, the server gets the key, in the header and in the query."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("GEMINI_API_KEY", "g-real/+")

    def agent() -> Any:

        url = f"{model.base_url}{PATH}?key={os.environ['GEMINI_API_KEY']}&n=1"
        request = urllib.request.Request(url, BODY, {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
        with urllib.request.urlopen(request) as answer:
            return answer.url, request.headers

    with metering("record") as meter:
        result = run_task(meter, agent)

    assert model.log[0].headers["authorization"] == "Bearer sk-real"
    assert model.log[0].query == "key=g-real%2F%2B&n=1"
    assert "real" not in repr(result.value) + repr(result.trace.exchanges)


def test_everything_is_put_back() -> None:
    """After stop() no patch is left on the connections."""

    def patched() -> list[Any]:
        names = ("connect", "endheaders", "send", "getresponse", "close")
        return [*(vars(http.client.HTTPConnection)[n] for n in names), vars(http.client.HTTPSConnection)["connect"]]

    before = patched()
    with metering():
        during = patched()

    assert patched() == before
    assert all(one is not two for one, two in zip(before, during, strict=True))


def test_a_blind_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that sees nothing is a problem of the run, by name."""
    monkeypatch.setattr(via_http_client._Hook, "endheaders", lambda hook, original: lambda *a, **k: original(*a, **k))
    meter = Meter(mode="live", measure=MeasureRules(), environ={})
    problems = meter.start()
    meter.stop()

    assert [problem.text for problem in problems] == [
        "the hook http.client.HTTPConnection.endheaders did not see a request that was sent through it exactly once"
    ]
