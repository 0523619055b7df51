"""Responses over a WebSocket are replayed: the library's own connection leads to a far end of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
import websockets
from metering import Result, metering, run_task
from responses_socket import ResponsesSocket, answer, events, response
from websockets.asyncio import client as asynchronous
from websockets.sync import client as threaded

from pytest_fanout.records import Caps, Recording
from pytest_fanout.store.replay import ReplaySource
from pytest_fanout.store.tape import decode, encode

# from 17.1 on the library warns of the form in which the OpenAI SDK, and everybody else, has used it so far
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")


def taped(
    agent: Callable[[str], Any], script: Callable[..., None] = answer, **more: Any
) -> tuple[Result, Result, ReplaySource]:
    """One trial against a server, and the same from the file of its recording, with the server gone."""
    with ResponsesSocket(script) as server, metering("record") as meter:
        url = server.url
        live = run_task(meter, lambda: agent(url), **more)
    recording = Recording("shop", "t", 1, "d", 0, live.trace.duration_ms, "ok", True, live.trace.exchanges)
    source: Any = ReplaySource(decode(encode(recording), "t.jsonl", ""))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(url), source=source, **more)
    return live, replayed, source


def same(live: Result, replayed: Result, source: ReplaySource) -> None:
    assert (source.note(), source.leftover, replayed.error, replayed.slugs) == (None, 0, live.error, [])
    assert replayed.value == live.value
    samples = dict(live.measured.samples)
    assert {name: replayed.measured.samples[name] for name in samples if not name.endswith("_ms")} == {
        name: value for name, value in samples.items() if not name.endswith("_ms")
    }
    assert (replayed.trace.spent_calls, len(replayed.trace.exchanges)) == (0, len(live.trace.exchanges))


def two_turns(url: str) -> list[str]:
    said: list[str] = []
    parent: dict[str, Any] = {}
    with openai.OpenAI(base_url=url) as client, client.responses.connect() as socket:
        for _ in range(2):
            socket.response.create(model="m-x", input="hi", instructions="Be kind.", **parent)
            for event in socket:
                said.append(event.to_json())
                if event.type == "response.completed":
                    parent = {"previous_response_id": event.response.id}
                    break
    return said


async def two_turns_async(url: str) -> list[str]:
    said: list[str] = []
    parent: dict[str, Any] = {}
    async with openai.AsyncOpenAI(base_url=url) as client, client.responses.connect() as socket:
        for _ in range(2):
            await socket.response.create(model="m-x", input="hi", instructions="Be kind.", **parent)
            async for event in socket:
                said.append(event.to_json())
                if event.type == "response.completed":
                    parent = {"previous_response_id": event.response.id}
                    break
    return said


@pytest.mark.parametrize("turns", [two_turns, two_turns_async], ids=["sync", "async"])
def test_replay_equals_recording(turns: Callable[[str], Any]) -> None:
    """The OpenAI SDK hears the same events on a socket that leads nowhere, and the samples are the same."""
    live, replayed, source = taped(turns)

    same(live, replayed, source)
    assert (live.fanout, len(live.value)) == (2, 6)


def read(socket: Any) -> list[str]:
    """The types of events up to the end of an answer."""
    types: list[str] = []
    while not types or types[-1] not in ("response.completed", "error"):
        types.append(json.loads(socket.recv())["type"])
    return types


def ask(socket: Any, text: str = "hi", **more: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": text, **more}))


def at(url: str) -> str:
    return url.replace("http", "ws", 1) + "/responses"


#: What a client hears of one whole answer.
TYPES = ["response.created", "response.output_text.delta", "response.completed"]


def plain(url: str) -> list[Any]:
    with threaded.connect(at(url), compression="deflate") as socket:
        ask(socket)
        ask(socket, "x" * 300_000)  # more than a socket's buffer holds
        return [read(socket), read(socket), socket.ping().wait(5)]


async def plain_async(url: str) -> list[Any]:
    async with asynchronous.connect(at(url)) as socket:
        said = []
        for text in ("hi", "x" * 300_000):
            await socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": text}))
            said += [json.loads(await socket.recv())["type"] for _ in range(3)]
        await (await socket.ping())
        return said


@pytest.mark.parametrize("agent", [plain, plain_async], ids=["threads", "asyncio"])
def test_sockets_of_the_library(agent: Callable[[str], Any]) -> None:
    """The library's own sockets hear each answer in the order of the questions, and pings come back."""
    live, replayed, source = taped(agent)

    same(live, replayed, source)
    heard = [TYPES, TYPES, True] if agent is plain else TYPES * 2
    assert (replayed.fanout, replayed.value) == (2, heard)


def test_trio() -> None:
    """So do sockets on trio."""
    trio = pytest.importorskip("trio")
    client = pytest.importorskip("websockets.trio.client")

    async def talk(url: str) -> list[str]:
        async with client.connect(at(url)) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": "hi"}))
            return [json.loads(await socket.recv())["type"] for _ in range(3)]

    live, replayed, source = taped(lambda url: trio.run(talk, url))

    same(live, replayed, source)
    assert (replayed.fanout, replayed.value) == (1, TYPES)


def test_a_secure_address() -> None:
    """A wss:// address needs no certificate in replay, and its calls are those of the recorded host."""
    hosts = iter(["", "wss://model.invalid/v1/responses", "wss://model.invalid/v1/responses"])

    async def later(where: str) -> list[str]:
        async with asynchronous.connect(where) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": "hi"}))
            return [json.loads(await socket.recv())["type"] for _ in range(3)]

    def agent(url: str) -> list[str]:
        where = next(hosts) or at(url)
        with threaded.connect(where) as socket:
            ask(socket)
            said = read(socket)
        where = next(hosts) if where.startswith("wss") else where
        return said + asyncio.run(later(where))

    live, replayed, source = taped(agent)

    same(live, replayed, source)
    assert source.other_hosts == {"model.invalid:443"}


def lanes(message: dict[str, Any], number: int, send: Any) -> None:
    if number == 1:
        return
    for event in zip(events(1, (1, 10), stream_id="a"), events(2, (2, 20), stream_id="b"), strict=True):
        send(event[1])
        send(event[0])


def test_lanes() -> None:
    """Calls with a `stream_id` are answered each in its lane."""

    def agent(url: str) -> Any:
        with threaded.connect(at(url)) as socket:
            ask(socket, "a", stream_id="a")
            ask(socket, "b", stream_id="b")
            heard = [json.loads(socket.recv()) for _ in range(6)]
            return {lane: [e for e in heard if e["stream_id"] == lane] for lane in "ab"}

    live, replayed, source = taped(agent, lanes)

    same(live, replayed, source)
    assert {lane: [event["type"] for event in said] for lane, said in replayed.value.items()} == {
        "a": TYPES,
        "b": TYPES,
    }
    assert (replayed.fanout, replayed.measured.samples["output_tokens"]) == (2, 30)


def limited(message: dict[str, Any], number: int, send: Any) -> None:
    if number == 1:
        send({"type": "error", "status": 429, "error": {"type": "rate_limit_error", "code": "slow", "message": "m"}})
    else:
        answer(message, number, send)


def test_a_failed_attempt_and_its_retry() -> None:
    """A recorded error event comes back in its place, and the same create afterwards gets the recorded answer."""

    def agent(url: str) -> list[Any]:
        with threaded.connect(at(url)) as socket:
            said = []
            for _ in range(2):
                ask(socket)
                said.append(read(socket))
            return said

    live, replayed, source = taped(agent, limited)

    same(live, replayed, source)
    assert [a.http_status for call in replayed.measured.calls for a in call.attempts] == [429, 200]


@pytest.mark.parametrize("begun", [True, False])
def test_a_connection_that_broke(begun: bool) -> None:
    """It breaks again at the same place, with the library's own error, and a new one is opened for the retry."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if number > 1:
            answer(message, number, send)
            return
        if begun:
            send({"type": "response.created", "response": response(1, "in_progress")})
        send({"type": "hang up"})

    def agent(url: str) -> list[Any]:
        said: list[Any] = []
        with threaded.connect(at(url)) as socket:
            ask(socket)
            try:
                while True:
                    said.append(json.loads(socket.recv())["type"])
            except websockets.ConnectionClosedError as error:
                said.append(type(error).__name__)
        with threaded.connect(at(url)) as socket:
            ask(socket, "again")
            return [*said, read(socket)]

    live, replayed, source = taped(agent, script)

    same(live, replayed, source)
    assert live.value[-2] == "ConnectionClosedError"


def test_reading_on_where_the_recorded_run_stopped() -> None:
    """Of an answer that the recorded run left, only the first events are known: who waits for more is stale."""
    wanted = [1, 2]

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        send({"type": "response.created", "response": response(1, "in_progress")})

    def agent(url: str) -> None:
        with threaded.connect(at(url)) as socket:
            ask(socket)
            for _ in range(wanted.pop(0)):
                socket.recv()

    live, replayed, _ = taped(agent, script)

    assert (live.error, replayed.slugs) == (None, ["recording-prefix"])
    assert isinstance(replayed.error, websockets.ConnectionClosedError)


def test_a_changed_prompt_is_stale() -> None:
    """What is not on the recording is answered with an error event of status 400 and the end of the socket."""
    prompts = iter(["Be kind.", "Be brief."])
    heard: list[Any] = []

    def agent(url: str) -> list[Any]:
        with openai.OpenAI(base_url=url) as client, client.responses.connect() as socket:
            socket.response.create(model="m-x", input="hi", instructions=next(prompts))
            for event in socket:
                heard.append(event)
                if event.type == "response.completed":
                    break
        return []

    _, replayed, source = taped(agent)

    assert isinstance(replayed.error, websockets.ConnectionClosedError)
    assert replayed.error.rcvd is not None
    assert (replayed.error.rcvd.code, heard[-1].type, heard[-1].status) == (1008, "error", 400)
    assert "messages.md#request-not-recorded" in heard[-1].error.message
    note = source.note()
    assert note is not None
    assert note.changes == ('system prompt: "Be kind." -> "Be brief."',)
    assert replayed.fanout == 0


def test_what_follows_on_a_steer_is_not_replayed() -> None:
    """A response that the server begins by itself has no place on a recording: its steer is refused, and told."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if message["type"] == "response.create":
            send({"type": "response.created", "response": response(1, "in_progress")})
            return
        send({"type": "response.incomplete", "response": response(1, "incomplete", (5, 1))})
        for event in events(2, (8, 3), previous="resp_1"):
            send(event)

    def agent(url: str) -> list[str]:
        with threaded.connect(at(url)) as socket:
            ask(socket)
            socket.recv()
            socket.send(json.dumps({"type": "response.steer", "input": "x", "previous_response_id": "resp_1"}))
            return read(socket)

    live, replayed, source = taped(agent, script)

    assert (live.fanout, source.leftover) == (2, 1)
    (problem,) = replayed.trace.problems
    url = live.trace.exchanges[0].request.url
    assert (problem.slug, problem.verdict) == ("stack-not-replayed", "invalid")
    assert problem.text == (
        f"response.steer on {url} was refused: what follows on one is counted, but not replayed yet\n"
        "  mend: measure this agent with --fanout-mode=live"
    )


def test_cap() -> None:
    """A create beyond a cap is refused in replay as it was live."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if number == 1:
            answer(message, number, send)

    def agent(url: str) -> None:
        with threaded.connect(at(url)) as socket:
            while True:
                ask(socket)
                read(socket)

    live, replayed, _ = taped(agent, script, caps=Caps(fanout=1))

    assert (live.trace.capped, replayed.trace.capped, live.fanout, replayed.fanout) == ("fanout", "fanout", 1, 1)
    assert type(replayed.error) is type(live.error)
