"""Responses over a WebSocket: each response is a model call, whoever began it, on whatever socket of the library."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import websockets
from metering import Tape, metering, run_task
from responses_socket import ResponsesSocket, answer, events, response
from websockets.asyncio import client as asynchronous
from websockets.sync import client as threaded

from pytest_fanout.meter import measure_trial, via_websockets
from pytest_fanout.records import Caps, Exchange, HttpAnswer, HttpRequest, MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES

# from 17.1 on the library warns of the form in which the OpenAI SDK, and everybody else, has used it so far
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")


@pytest.fixture
def server() -> Iterator[ResponsesSocket]:
    with ResponsesSocket() as made:
        yield made


def ask(socket: Any, text: str = "hi", **more: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": text, **more}))


def read_to_end(socket: Any) -> dict[str, Any]:
    """The last event of the answer that is running."""
    while True:
        event: dict[str, Any] = json.loads(socket.recv())
        if event["type"] in ("response.completed", "response.incomplete", "error"):
            return event


def two_turns(url: str) -> list[str]:
    ids: list[str] = []
    with openai.OpenAI(base_url=url) as client, client.responses.connect() as socket:
        for _ in range(2):
            more = {"previous_response_id": ids[-1]} if ids else {}
            socket.response.create(model="m-x", input="hi", instructions="Be kind.", **more)
            ids.append(next(event.response.id for event in socket if event.type == "response.completed"))
    return ids


async def two_turns_async(url: str) -> list[str]:
    ids: list[str] = []
    async with openai.AsyncOpenAI(base_url=url) as client, client.responses.connect() as socket:
        for _ in range(2):
            more = {"previous_response_id": ids[-1]} if ids else {}
            await socket.response.create(model="m-x", input="hi", instructions="Be kind.", **more)
            async for event in socket:
                if event.type == "response.completed":
                    ids.append(event.response.id)
                    break
    return ids


@pytest.mark.parametrize("turns", [two_turns, two_turns_async], ids=["sync", "async"])
def test_two_responses_on_one_socket(turns: Callable[[str], Any]) -> None:
    """S4: two creates on one socket of the OpenAI SDK are two calls of 5 and 2 tokens; the real key is in the handshake
    alone, and what is kept holds the dummy's name."""
    with ResponsesSocket(key="sk-real") as server, metering() as meter:
        result = run_task(meter, lambda: turns(server.url))

    assert (result.error, result.value, len(server.handshakes)) == (None, ["resp_1", "resp_2"], 1)
    assert (result.fanout, result.measured.samples["attempts"], result.trace.spent_calls) == (2, 2, 2)
    assert [(c.last.input_tokens, c.last.output_tokens) for c in result.measured.calls] == [(5, 2), (5, 2)]
    assert [(c.last.api, c.last.kind, c.last.status) for c in result.measured.calls] == [
        ("openai.responses", "generate", "ok")
    ] * 2
    assert [call.last.parent_id for call in result.measured.calls] == [None, "resp_1"]
    assert list(result.measured.sites.values()) == [2]
    exchanges = result.trace.exchanges
    assert [(e.layer, e.request.method, e.request.url) for e in exchanges] == [
        ("websockets", "WS", f"ws://127.0.0.1:{server.port}/v1/responses")
    ] * 2
    assert [json.loads(e.request.body)["type"] for e in exchanges] == ["response.create"] * 2
    assert [json.loads(chunk)["type"] for chunk in exchanges[0].answer.chunks] == [
        "response.created",
        "response.output_text.delta",
        "response.completed",
    ]
    assert "sk-real" not in repr(exchanges)
    assert ("authorization", "Bearer fanout-sealed-OPENAI_API_KEY") in exchanges[0].request.headers
    assert (result.slugs, result.trace.problems) == ([], ())
    assert result.trace.hosts == (f"127.0.0.1:{server.port}",)


def test_the_agent_sees_its_own_handshake(server: ResponsesSocket) -> None:
    """The connection that the agent holds shows the headers that the agent gave, and the library's own types."""

    def agent() -> Any:
        with openai.OpenAI(base_url=server.url) as client, client.responses.connect() as socket:
            inner = socket._connection
            return type(inner).__module__, inner.request.headers["Authorization"], inner.response.status_code

    with metering() as meter:
        result = run_task(meter, agent)

    module, key, status = result.value
    assert (module, status) == ("websockets.sync.client", 101)
    assert key.startswith("Bearer fanout-sealed-OPENAI_API_KEY-")
    assert server.handshakes[0]["authorization"] == "Bearer sk-real"


def test_socket_without_a_question(server: ResponsesSocket) -> None:
    """A socket that is opened and closed again is no call, and hides none."""

    def agent() -> None:
        with threaded.connect(server.url.replace("http", "ws") + "/responses"):
            pass

    with metering() as meter:
        result = run_task(meter, agent)

    assert (len(server.handshakes), result.fanout, result.trace.exchanges, result.slugs) == (1, 0, (), [])


def test_steered_response() -> None:
    """After `response.steer` the server begins a response by itself: it is a call too, of the same call site."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if message["type"] == "response.create":
            send({"type": "response.created", "response": response(1, "in_progress")})
            return
        send(
            {
                "type": "response.steer.accepted",
                "sequence_number": 1,
                "steer": {"id": "s", "previous_response_id": "resp_1"},
            }
        )
        why = {"incomplete_details": {"reason": "steered"}}
        send({"type": "response.incomplete", "response": response(1, "incomplete", (5, 1), **why)})
        for event in events(2, (8, 3), previous="resp_1"):
            send(event)

    def agent(url: str) -> None:
        with openai.OpenAI(base_url=url) as client, client.responses.connect() as socket:
            socket.response.create(model="m-x", input="hi", instructions="Be kind.")
            for event in socket:
                if event.type == "response.created" and event.response.id == "resp_1":
                    socket.response.steer(input="shorter", previous_response_id="resp_1")
                if event.type == "response.completed":
                    return

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.url))

    first, second = (call.last for call in result.measured.calls)
    assert (result.error, result.fanout, len(server.creates)) == (None, 2, 1)
    assert [(a.status, a.finish, a.input_tokens, a.output_tokens) for a in (first, second)] == [
        ("ok", "steered", 5, 1),
        ("ok", "stop", 8, 3),
    ]
    assert (second.parent_id, second.site) == ("resp_1", first.site)
    assert json.loads(result.trace.exchanges[1].request.body)["input"] == "shorter"


def test_lanes_run_side_by_side() -> None:
    """Calls with a `stream_id` interleave on one socket, and each keeps its own events and tokens."""
    held: list[dict[str, Any]] = []

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        held.append(message)
        if len(held) == 2:
            mixed = zip(*(events(n, (n, 10 * n), stream_id=m["stream_id"]) for n, m in enumerate(held, 1)), strict=True)
            for event in (event for pair in mixed for event in reversed(pair)):
                send(event)

    def agent(url: str) -> None:
        with threaded.connect(url) as socket:
            ask(socket, "a", stream_id="lane-a")
            ask(socket, "b", stream_id="lane-b")
            read_to_end(socket)
            read_to_end(socket)

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(f"ws://127.0.0.1:{server.port}/v1/responses"))

    assert (result.error, result.fanout, result.measured.samples["peak_concurrency"]) == (None, 2, 2)
    assert [(c.last.input_tokens, c.last.output_tokens) for c in result.measured.calls] == [(1, 10), (2, 20)]
    assert [len(exchange.answer.chunks) for exchange in result.trace.exchanges] == [3, 3]


def test_refused_and_asked_again() -> None:
    """An `error` event instead of a response is a failed attempt; the same create afterwards is the same call."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if number == 1:
            send(
                {
                    "type": "error",
                    "status": 429,
                    "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "slow"},
                }
            )
        else:
            answer(message, number, send)

    def agent(url: str) -> None:
        with threaded.connect(url) as socket:
            for _ in range(2):
                ask(socket)
                read_to_end(socket)

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(f"ws://127.0.0.1:{server.port}/v1/responses"))

    (call,) = result.measured.calls
    assert [(a.status, a.http_status, a.error_type, a.usage_source) for a in call.attempts] == [
        ("error", 429, "rate_limit_exceeded", "none"),
        ("ok", 200, None, "final"),
    ]
    assert (result.fanout, result.measured.samples["input_tokens"]) == (1, 5)


def test_error_amid_a_response() -> None:
    """An error after a response has begun is a call whose usage is not known."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        send({"type": "response.created", "response": response(1, "in_progress")})
        send({"type": "error", "error": {"type": "server_error", "code": None, "message": "oops"}})

    def agent(url: str) -> None:
        with threaded.connect(url) as socket:
            ask(socket)
            read_to_end(socket)

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(f"ws://127.0.0.1:{server.port}/v1/responses"))

    (call,) = result.measured.calls
    assert (call.last.status, call.last.error_type, call.last.usage_source) == ("error", "server_error", "missing")
    assert (result.fanout, result.measured.unknown_usage, result.measured.samples["input_tokens"]) == (1, 1, None)


@pytest.mark.parametrize(
    ("begun", "who", "outcome", "fanout"),
    [(True, "server", "error", 1), (True, "client", "closed_early", 1), (False, "server", "error", 0)],
)
def test_socket_closed_amid_a_response(begun: bool, who: str, outcome: str, fanout: int) -> None:
    """A socket that goes away leaves an incomplete call with unknown usage; before any event, a failed attempt."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if begun:
            send({"type": "response.created", "response": response(1, "in_progress")})
        if who == "server":
            send({"type": "hang up"})

    def agent(url: str) -> None:
        with threaded.connect(url) as socket:
            ask(socket)
            socket.recv()
            if who == "server":
                socket.recv()

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(f"ws://127.0.0.1:{server.port}/v1/responses"))

    (call,) = result.measured.calls
    assert isinstance(result.error, websockets.ConnectionClosedError if who == "server" else type(None))
    assert (call.last.status, call.last.usage_source) == (("incomplete", "missing") if begun else ("error", "none"))
    assert (result.trace.exchanges[0].answer.outcome, result.fanout) == (outcome, fanout)
    assert result.measured.samples["input_tokens"] == (None if begun else 0)


def test_fragmented_and_compressed_messages(server: ResponsesSocket) -> None:
    """A create in several frames is one message, and compression of the socket hides nothing."""

    def agent() -> str:
        with threaded.connect(f"ws://127.0.0.1:{server.port}/v1/responses", compression="deflate") as socket:
            text = json.dumps({"type": "response.create", "model": "m-x", "input": "hi"})
            socket.send([text[:9], text[9:20], text[20:]])
            read_to_end(socket)
            return str(socket.response.headers["Sec-WebSocket-Extensions"])

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.value.startswith("permessage-deflate")
    assert (result.fanout, result.measured.samples["output_tokens"]) == (1, 2)


def test_cap(server: ResponsesSocket) -> None:
    """A create beyond a cap is refused before it is sent, and the task is capped."""

    def agent() -> None:
        with threaded.connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
            while True:
                ask(socket)
                read_to_end(socket)

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=2))

    assert (type(result.error).__name__, result.trace.capped) == ("TaskStopped", "fanout")
    assert (len(server.creates), result.fanout) == (2, 2)


def test_cap_async(server: ResponsesSocket) -> None:
    """The same on an asyncio socket, with an agent that swallows what it can."""

    async def agent() -> None:
        async with asynchronous.connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
            for _ in range(4):
                try:
                    await socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": "hi"}))
                    while json.loads(await socket.recv())["type"] != "response.completed":
                        pass
                except Exception:
                    continue

    with metering() as meter:
        result = run_task(meter, agent, caps=Caps(fanout=2))

    assert (len(server.creates), result.fanout, result.trace.capped) == (2, 2, "fanout")


def test_missing_key_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key nothing is sent, and the handshake fails as if the provider had answered 401."""
    monkeypatch.delenv("OPENAI_API_KEY")

    with metering() as meter:
        result = run_task(meter, lambda: two_turns("http://api.openai.com/v1"))

    assert isinstance(result.error, websockets.InvalidStatus)
    assert (result.error.response.status_code, result.slugs) == (401, ["missing-key"])


def test_handshake_that_is_refused_at_the_protocol(monkeypatch: pytest.MonkeyPatch, server: ResponsesSocket) -> None:
    """Where the opener was bound before the hooks, the handshake is refused by the library's own code, unsent."""
    ((owner, name, _),) = via_websockets._points(sys.modules["websockets.sync.client"])
    before = getattr(owner, name)

    with metering("replay") as meter, monkeypatch.context() as patch:
        patch.setattr(owner, name, before)
        result = run_task(meter, lambda: two_turns(server.url), source=Tape(()))

    assert isinstance(result.error, websockets.InvalidStatus)
    assert (result.error.response.status_code, result.slugs, server.handshakes) == (400, ["stack-not-replayed"], [])


def test_opener_that_was_bound_before(monkeypatch: pytest.MonkeyPatch, server: ResponsesSocket) -> None:
    """Live, such an opener is no bypass: what passes its socket is seen all the same, and counted."""
    ((owner, name, _),) = via_websockets._points(sys.modules["websockets.sync.client"])
    before = getattr(owner, name)

    with metering(hosts=[f"127.0.0.1:{server.port}"]) as meter, monkeypatch.context() as patch:
        patch.setattr(owner, name, before)
        result = run_task(meter, lambda: two_turns(server.url))

    assert (result.error, result.fanout, result.trace.problems) == (None, 2, ())
    assert server.handshakes[0]["authorization"] == "Bearer sk-real"


def test_other_sockets(server: ResponsesSocket) -> None:
    """A socket of a tool is left alone and listed; one at a model host that is no Responses socket is unclassified."""

    def agent(path: str) -> None:
        with threaded.connect(f"ws://127.0.0.1:{server.port}{path}") as socket:
            ask(socket)
            read_to_end(socket)

    with metering() as meter:
        tool = run_task(meter, lambda: agent("/browser"))
    with metering(measure=MeasureRules(model_hosts=(f"127.0.0.1:{server.port}",))) as meter:
        hosted = run_task(meter, lambda: agent("/v1/realtime"))
        sorted_by_rules = measure_trial(hosted.trace.exchanges, 1, (), (f"127.0.0.1:{server.port}",))

    text = f"a WebSocket was opened at 127.0.0.1:{server.port}, which is not recorded"
    assert [(p.slug, p.text, p.verdict) for p in tool.trace.problems] == [("unhooked-peer", text, "notice")]
    assert (tool.error, tool.trace.exchanges) == (None, ())
    assert (hosted.trace.problems, sorted_by_rules.unclassified) == ((), 1)
    assert [problem.slug for problem in sorted_by_rules.problems] == ["unclassified-request"]


def test_channel_that_is_not_read() -> None:
    """A channel of which only the upgrade is known stays unobservable."""
    for method in ("WS", "GET"):
        request = HttpRequest(method, "wss://api.openai.com/v1/responses", (), b"")
        exchange = Exchange(0, "other", "model", "agent", request, HttpAnswer(101, (), (), (), 1), 0)
        measured = measure_trial([exchange], 1)

        assert (measured.samples["fanout"], [p.slug for p in measured.problems]) == (0, ["fanout-unobservable"])


def test_socket_of_a_fixture(server: ResponsesSocket) -> None:
    """A socket that was open before the task is read as well: what is sent on it belongs to who sends it."""
    with threaded.connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:

        def agent() -> None:
            ask(socket)
            read_to_end(socket)

        with metering() as meter:
            results = [run_task(meter, agent, task=name) for name in ("a", "b")]

    assert [result.fanout for result in results] == [1, 1]
    assert [problem.slug for result in results for problem in result.trace.problems] == []


def test_late_socket(server: ResponsesSocket) -> None:
    """A socket that a finished task opens is late once, and so is each response that it asks for."""
    go = threading.Event()

    def later() -> None:
        assert go.wait(30)
        with threaded.connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
            ask(socket)
            read_to_end(socket)

    thread = threading.Thread(target=later)
    with metering() as meter:
        run_task(meter, thread.start)
        go.set()
        thread.join()
        facts = meter.finish()

    assert (facts.late, len(server.creates), [problem.slug for problem in facts.problems]) == (2, 1, ["late-call"] * 2)


def test_key_in_the_query(server: ResponsesSocket) -> None:
    """A key that travels in the URL of a handshake is swapped there as well."""
    seen: list[str] = []

    def agent() -> None:
        url = f"ws://127.0.0.1:{server.port}/v1/responses?key={os.environ['OPENAI_API_KEY']}"
        with threaded.connect(url) as socket:
            seen.append(socket.request.path)

    with metering() as meter:
        run_task(meter, agent)

    assert seen[0].startswith("/v1/responses?key=fanout-sealed-OPENAI_API_KEY-")
    assert server.paths == ["/v1/responses?key=sk-real"]


def test_server_that_starts_by_itself_beyond_the_cap() -> None:
    """What the server begins cannot be refused; the task is capped, and nothing more of it goes out."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        answer(message, number, send)
        for event in events(99, (1, 1)):
            send(event)

    def agent(url: str) -> None:
        with threaded.connect(url) as socket:
            ask(socket)
            read_to_end(socket)
            read_to_end(socket)
            ask(socket)

    with ResponsesSocket(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(f"ws://127.0.0.1:{server.port}/v1/responses"), caps=Caps(fanout=1))

    assert (type(result.error).__name__, result.trace.capped, len(server.creates)) == ("TaskStopped", "fanout", 1)


def test_prove_finds_a_patch_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check names each hook that no longer sees what passes."""
    module = sys.modules["websockets.client"]
    with metering() as meter:
        assert via_websockets.prove(module, meter._seam) == []
        with monkeypatch.context() as patch:
            patch.setattr(module.ClientProtocol, "send_text", lambda *_: None)
            assert via_websockets.prove(module, meter._seam) == ["websockets.client.ClientProtocol.send_text"]


def test_patches_come_off() -> None:
    """After the run the library is as it was."""
    protocol = sys.modules["websockets.client"].ClientProtocol
    before = dict(vars(protocol))
    with metering():
        assert vars(protocol)["send_text"] is not before.get("send_text")

    assert dict(vars(protocol)) == before


def test_asyncio_task_group(server: ResponsesSocket) -> None:
    """Sockets in child tasks of the agent belong to its task."""

    async def agent() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(two_turns_async(server.url))

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.error, result.fanout, len(server.creates)) == (None, 6, 6)
    assert result.measured.samples["input_tokens"] == 30
