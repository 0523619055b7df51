"""Responses over a WebSocket through the gateway: each response is a call, as on a socket of this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gatewaying import Child, behind
from metering import Tape
from responses_socket import ResponsesSocket, answer, response

from pytest_fanout.records import Caps

#: Asks for each word on one socket, and prints the last event of each answer, or how the socket ended.
CLIENT = """
import json, os, sys
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

url = os.environ["OPENAI_BASE_URL"].replace("http", "ws", 1) + "/responses"
try:
    with connect(url, additional_headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}) as socket:
        for word in sys.argv[1:]:
            socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": word}))
            while True:
                event = json.loads(socket.recv())
                if event["type"] in ("response.completed", "error"):
                    break
            print(event["type"], event.get("response", event.get("error")).get("id") or event["error"]["code"])
except ConnectionClosed as closed:
    print("closed", closed.rcvd and closed.rcvd.code)
except InvalidStatus as refused:
    print(refused.response.status_code, json.loads(refused.response.body)["error"].get("code"))
"""


@pytest.fixture
def server() -> Iterator[ResponsesSocket]:
    with ResponsesSocket() as made:
        yield made


def talk(child: Child, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *words], env=child.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def at(server: ResponsesSocket) -> str:
    return server.url.removesuffix("/v1")


def test_each_response_is_a_call(server: ResponsesSocket) -> None:
    """Three responses on one socket are three calls with their tokens; the real key gets there and is not kept."""
    server.key = "sk-real"
    with behind(at(server), OPENAI_API_KEY="sk-real") as child:
        said = talk(child, "one", "two", "three")
        measured = child.close()

    samples = measured.samples
    assert said == ["response.completed resp_1", "response.completed resp_2", "response.completed resp_3"]
    assert (samples["fanout"], samples["attempts"], len(server.creates)) == (3, 3, 3)
    assert (samples["input_tokens"], samples["output_tokens"], samples["spawn_depth"]) == (15, 6, 0)
    assert (child.slugs, measured.unknown_usage, measured.problems) == ([], 0, ())
    assert child.trace is not None
    assert "sk-real" not in repr(child.trace.exchanges)


def test_a_cap_holds_on_a_socket(server: ResponsesSocket) -> None:
    """What goes beyond the cap is not sent: the agent hears an error that names it, and the socket is closed."""
    with behind(at(server), caps=Caps(fanout=2)) as child:
        said = talk(child, "one", "two", "three", "four")
        samples = child.close().samples

    assert said == ["response.completed resp_1", "response.completed resp_2", "error capped", "closed 1008"]
    assert (samples["fanout"], len(server.creates), child.scope.capped) == (2, 2, "fanout")


def test_a_server_that_hangs_up(server: ResponsesSocket) -> None:
    """The agent's socket ends without a close, as the server's did; what was said of the response is kept."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        send({"type": "response.created", "response": response(number, "in_progress")})
        send({"type": "hang up"})

    server.script = script
    with behind(at(server)) as child:
        said = talk(child, "one")
        child.close()

    assert said == ["closed None"]
    assert child.trace is not None
    (exchange,) = child.trace.exchanges
    assert (exchange.answer.outcome, exchange.answer.error) == ("error", "ConnectionClosedError")
    assert json.loads(exchange.answer.body)["type"] == "response.created"


def test_an_error_of_the_server_is_an_attempt(server: ResponsesSocket) -> None:
    """An error event ends the call that it answers; it reached no model, and the socket stays."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        if number == 1:
            send({"type": "error", "status": 429, "error": {"code": "slow_down", "id": None}})
        else:
            answer(message, number, send)

    server.script = script
    with behind(at(server)) as child:
        said = talk(child, "one", "two")
        samples = child.close().samples

    assert said == ["error slow_down", "response.completed resp_2"]
    assert (samples["fanout"], samples["attempts"]) == (1, 2)


def test_a_refused_handshake_is_the_agents(server: ResponsesSocket) -> None:
    """The provider's own refusal reaches the agent with its status."""
    server.key = "sk-other"
    with behind(at(server), OPENAI_API_KEY="sk-real") as child:
        refused = talk(child, "one")

    assert refused == ["401 None"]
    assert len(server.handshakes) == 1


def test_replay(server: ResponsesSocket) -> None:
    """In replay the gateway opens nothing: the agent hears what was recorded, and the calls are the same; a question
    that is not on the recording is answered with an error event, and the socket is closed."""
    with behind(at(server), "record") as child:
        live = talk(child, "one", "two")
        recorded = child.close()
    assert child.trace is not None
    with behind(at(server), "replay", source=Tape(child.trace.exchanges)) as again:
        replayed = talk(again, "one", "two", "three", "four")
        measured = again.close()

    assert live == ["response.completed resp_1", "response.completed resp_2"]
    assert replayed == [*live, "error request-not-recorded", "closed 1008"]
    assert (len(server.handshakes), measured.samples["fanout"], again.slugs) == (1, 2, [])
    assert measured.samples["input_tokens"] == recorded.samples["input_tokens"] == 10


def test_a_replayed_server_hangs_up(server: ResponsesSocket) -> None:
    """A socket that broke in the middle of an answer breaks there again."""

    def script(message: dict[str, Any], number: int, send: Any) -> None:
        send({"type": "response.created", "response": response(number, "in_progress")})
        send({"type": "hang up"})

    server.script = script
    with behind(at(server), "record") as child:
        live = talk(child, "one")
        child.close()
    assert child.trace is not None
    with behind(at(server), "replay", source=Tape(child.trace.exchanges)) as again:
        replayed = talk(again, "one")
        measured = again.close()

    assert live == replayed == ["closed None"]
    assert (len(server.handshakes), measured.samples["attempts"], again.slugs) == (1, 1, [])
