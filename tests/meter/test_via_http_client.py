"""urllib.request and http.client by hand: counted, sent as without us, read as without us, replayed."""

from __future__ import annotations

import gc
import http.client
import io
import json
import threading
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest
import urllib3
from byte_server import CUT, RawServer, chunked, plain
from metering import Result, Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter import Meter, via_http_client
from pytest_fanout.records import MeasureRules

PATH = "/v1/chat/completions"
BODY = json.dumps(chat("one two")).encode()
EVENTS = [b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n' % n for n in range(4)]
EVENTS += [b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}\n\n', b"data: [DONE]\n\n"]
SAID = b"".join(EVENTS)


def connection(url: str, timeout: float = 20) -> Any:
    return closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout))


def by_urlopen(url: str) -> Any:
    with urllib.request.urlopen(url + PATH, data=BODY) as answer:
        return answer.status, answer.msg, answer.geturl(), answer.read()


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


def by_read(answer: Any) -> Any:
    return answer.read()


def by_read_of_some(answer: Any) -> Any:
    return list(iter(lambda: answer.read(50), b""))


def by_read1(answer: Any) -> Any:
    return b"".join(iter(answer.read1, b""))


def by_readinto(answer: Any) -> Any:
    buffer, said = bytearray(50), []
    while count := answer.readinto(buffer):
        said.append(bytes(buffer[:count]))
    return said


def by_readline(answer: Any) -> Any:
    return list(iter(answer.readline, b""))


def by_lines(answer: Any) -> Any:
    return list(answer)


def by_text(answer: Any) -> Any:
    return list(io.TextIOWrapper(answer, "utf-8"))


def by_buffer(answer: Any) -> Any:
    return io.BufferedReader(answer).read()


def by_peeking(answer: Any) -> Any:
    return answer.peek()[:5], answer.read()


WAYS = [by_read, by_read_of_some, by_read1, by_readinto, by_readline, by_lines, by_text, by_buffer, by_peeking]
FRAMINGS = {
    "chunks": chunked(EVENTS),
    "length": plain(SAID, content_type="text/event-stream"),
    "to-the-end": [b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", SAID, CUT],
}


def three(agent: Callable[[str], Any], pieces: Any) -> tuple[Any, Result, Result]:
    """What the agent gets without us, recorded, and replayed; the server is asked twice."""
    with RawServer(pieces if callable(pieces) else lambda asked: pieces) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        assert len(server.log) == 2
        assert server.log[0] == server.log[1]
    return bare, recorded, replayed


def ask(url: str, read: Callable[[Any], Any]) -> Any:
    with connection(url) as conn:
        conn.request("POST", PATH, BODY)
        answer = conn.getresponse()
        assert isinstance(answer, http.client.HTTPResponse)
        assert type(answer).__name__ == "HTTPResponse"
        try:
            return read(answer)
        finally:
            conn.close()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("read", WAYS, ids=lambda read: read.__name__)
def test_each_way_of_reading(read: Any, framing: str) -> None:
    """However a body is framed and read, the agent gets what it gets without us, and we keep all of it."""
    bare, recorded, replayed = three(lambda url: ask(url, read), FRAMINGS[framing])

    assert bare == recorded.value == replayed.value
    answer = recorded.trace.exchanges[0].answer
    assert (answer.body, answer.outcome) == (SAID, "complete")
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7


def test_first_chunk_is_not_held() -> None:
    """The first event is with the agent before the server sends the second."""
    read = threading.Event()

    def pieces(asked: Any) -> Iterator[bytes]:
        head, first, *rest = chunked(EVENTS)
        yield head + first
        assert read.wait(20)
        yield from rest

    def reads(answer: Any) -> bytes:
        said = answer.read1()
        read.set()
        return bytes(said + answer.read())

    with RawServer(pieces) as server, metering() as meter:
        result = run_task(meter, lambda: ask(server.base_url, reads))

    assert (result.value, result.error) == (SAID, None)


def leave(answer: Any) -> Any:
    said = answer.readline()
    answer.close()
    return said


def forget(answer: Any) -> Any:
    return answer.readline()


def ignore(answer: Any) -> None:
    """Reads nothing."""


@pytest.mark.parametrize(("read", "outcome"), [(leave, "closed_early"), (forget, "closed_early"), (ignore, "unread")])
def test_answers_that_are_not_read_to_the_end(read: Any, outcome: str) -> None:
    """An answer that is closed, or dropped by its reader, or never read, is told apart from a whole one, and counts."""

    def agent(url: str) -> Any:
        request = urllib.request.Request(url + PATH, data=BODY)
        answer = urllib.request.urlopen(request)
        said = read(answer)
        del answer
        gc.collect()
        return said

    bare, recorded, replayed = three(agent, chunked(EVENTS))

    assert bare == recorded.value == replayed.value
    assert [one.trace.exchanges[0].answer.outcome for one in (recorded, replayed)] == [outcome] * 2
    assert (recorded.fanout, recorded.measured.unknown_usage, replayed.slugs) == (1, 1, [])


def test_connection_closed_before_the_answer() -> None:
    """A request whose answer nobody asks for has been sent, and counts as an attempt."""

    def agent(url: str) -> None:
        with connection(url) as conn:
            conn.request("POST", PATH, BODY)
            conn.close()

    got = threading.Event()

    def pieces(asked: Any) -> list[bytes]:
        got.set()
        return plain(b"{}")

    with RawServer(pieces) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.base_url))
        assert got.wait(20)

    assert [(one.answer.outcome, one.answer.status) for one in result.trace.exchanges] == [("closed_early", None)]
    assert result.measured.samples["attempts"] == 1


ERRORS: dict[str, tuple[Callable[[str], str], list[bytes], float]] = {
    "refused": (lambda url: "http://127.0.0.1:1", [], 20),
    "no-such-host": (lambda url: "http://nobody.invalid", [], 20),
    "hung-up": (lambda url: url, [CUT], 20),
    "nonsense": (lambda url: url, [b"nonsense\r\n\r\n", CUT], 20),
    "too-slow": (lambda url: url, [], 0.05),
    "cut-chunks": (lambda url: url, [*chunked(EVENTS)[:3], CUT], 20),
    "cut-length": (lambda url: url, [plain(SAID)[0][:-50], CUT], 20),
    "not-found": (lambda url: url, plain(b'{"error": 1}', 404), 20),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    """urllib.request and http.client raise what they raise without us, live and replayed: URLError where it was one."""
    where, pieces, timeout = ERRORS[case]
    hold = threading.Event()

    def answer(asked: Any) -> list[bytes]:
        return pieces or [b""] * hold.wait(5) + [CUT]

    def agent(url: str) -> Any:
        kinds = []
        for name in ("urllib.request", "http.client"):
            try:
                if name == "http.client":
                    with connection(where(url), timeout) as conn:
                        conn.request("POST", PATH, BODY)
                        kinds.append(conn.getresponse().read())
                else:
                    kinds.append(urllib.request.urlopen(where(url) + PATH, data=BODY, timeout=timeout).read())
            except urllib.error.HTTPError as error:
                with error:
                    kinds.append((error.code, error.read()))
            except urllib.error.URLError as error:
                kinds.append((type(error), type(error.reason)))
            except (OSError, http.client.HTTPException) as error:
                kinds.append(type(error))
        return kinds

    with RawServer(answer) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        hold.set()

    assert recorded.value == replayed.value == bare
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] == 2


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


def opened_by_hand(url: str) -> Any:
    with connection(url) as conn:
        conn.connect()
        conn.sock.settimeout(5)
        conn.request("POST", PATH, BODY)
        return conn.getresponse().read()


def test_a_connection_opened_by_hand(model: ModelServer) -> None:
    """A connection that the agent opens before it sends is no bypass; in replay it is not opened at all."""
    with metering("record", hosts=[f"127.0.0.1:{model.port}"]) as meter:
        recorded = run_task(meter, lambda: opened_by_hand(model.base_url))
    model.__exit__()
    with metering("replay", hosts=[f"127.0.0.1:{model.port}"]) as meter:
        replayed = run_task(meter, lambda: opened_by_hand(model.base_url), source=Tape(recorded.trace.exchanges))
    model.__init__()  # type: ignore[misc]
    model.__enter__()

    assert (recorded.fanout, recorded.slugs, replayed.fanout, replayed.slugs) == (1, [], 1, [])
    assert recorded.value == replayed.value


def stray_bytes(url: str) -> None:
    with connection(url) as conn:
        conn.request("POST", PATH, BODY)
        conn.getresponse().read()
        conn.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        conn.sock.recv(10)


def never_used(url: str) -> None:
    with connection(url) as conn:
        conn.connect()
        conn.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        conn.sock.recv(10)


def past_the_pool(url: str) -> None:
    with closing(urllib3.connection.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]))) as conn:
        conn.request("POST", PATH, BODY)
        conn.getresponse()


ODD = {
    stray_bytes: "bytes were sent on a connection of http.client outside any request: {} {}\n"
    "  mend: send them by request(), or between putrequest() and getresponse()",
    never_used: "a connection of http.client was opened by hand, and no request sent on it: {} {}\n"
    "  mend: send a request on it, or do not open it",
    past_the_pool: f"a connection of urllib3 {urllib3.__version__} was used that no hooked pool drives: {{}} {{}}\n"
    "  mend: upgrade to urllib3 2, and send by its pools (PoolManager, requests, botocore)",
}


@pytest.mark.parametrize("agent", ODD, ids=lambda agent: agent.__name__)
def test_what_cannot_be_booked_is_told(agent: Any, model: ModelServer) -> None:
    """Odd uses of a connection reach the model uncounted, so the task is invalid; in replay they reach nothing."""
    peer = f"127.0.0.1:{model.port}"
    with metering("record", hosts=[peer]) as meter:
        run_task(meter, lambda: by_urlopen(model.base_url))  # from now on the peer is a model server
        live = run_task(meter, lambda: agent(model.base_url))
    sent = len(model.log)
    with metering("replay", hosts=[peer]) as meter:
        replayed = run_task(meter, lambda: agent(model.base_url), source=Tape(live.trace.exchanges))

    told = [(p.text, p.verdict) for p in live.trace.problems if p.slug == "unbooked-request"]
    assert told == [(ODD[agent].format(peer, "was called uncounted"), "invalid")]
    assert isinstance(replayed.error, ConnectionRefusedError)
    assert sent == len(model.log) > 1


def test_a_second_request_too_early(model: ModelServer) -> None:
    """A request before the answer to the last one is refused by the library itself and is none; the first one stays."""

    def agent() -> tuple[str, bytes]:
        with connection(model.base_url) as conn:
            conn.request("POST", PATH, BODY)
            try:
                conn.request("POST", PATH, BODY)
            except http.client.CannotSendRequest as error:
                return str(error), conn.getresponse().read()
        return "", b""

    bare = agent()
    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert bare[0] == recorded.value[0] == replayed.value[0] == "Request-sent"
    assert recorded.value[1] == replayed.value[1]
    assert (recorded.measured.samples["attempts"], len(model.log)) == (1, 2)


def test_the_real_key_goes_out_and_only_there(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent holds a dummy, the server gets the key, in the header and in the query."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("GEMINI_API_KEY", "g-real/+")

    def agent() -> Any:
        import os

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
