"""Odd uses of a connection: booked where that can be, told where it cannot."""

from __future__ import annotations

import http.client
from contextlib import closing
from typing import Any

import pytest
import urllib3
from byte_server import RawServer, plain
from metering import Tape, metering, run_task
from model_server import ModelServer
from stdlib_agents import BODY, PATH, by_urlopen, connection

from pytest_fanout.records import MeasureRules


def opened_by_hand(url: str) -> Any:
    with connection(url) as conn:
        conn.connect()
        conn.sock.settimeout(5)
        conn.request("POST", PATH, BODY)
        return conn.getresponse().read()


def test_a_connection_opened_by_hand() -> None:
    """A connection that the agent opens before it sends is no bypass; in replay it is not opened at all."""
    with ModelServer() as gone, metering("record", hosts=[f"127.0.0.1:{gone.port}"]) as meter:
        recorded = run_task(meter, lambda: opened_by_hand(gone.base_url))
    with metering("replay", hosts=[f"127.0.0.1:{gone.port}"]) as meter:
        replayed = run_task(meter, lambda: opened_by_hand(gone.base_url), source=Tape(recorded.trace.exchanges))

    assert (recorded.fanout, recorded.slugs, replayed.fanout, replayed.slugs) == (1, [], 1, [])
    assert recorded.value == replayed.value


def stray_bytes(url: str) -> None:
    with connection(url) as conn:
        conn.request("POST", PATH, BODY)
        conn.getresponse().read()
        conn.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        conn.sock.recv(10)


def by_its_socket(url: str) -> None:
    with connection(url) as conn:
        conn.connect()
        conn.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        conn.sock.recv(10)


def past_the_pool(url: str, path: str = PATH) -> None:
    with closing(urllib3.connection.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]))) as conn:
        conn.request("POST", path, BODY)
        conn.getresponse()


ODD = {
    stray_bytes: "bytes were sent on a connection of http.client outside any request: {} {}\n"
    "  mend: send them by request(), or between putrequest() and getresponse()",
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


def test_a_connection_used_past_itself(model: ModelServer) -> None:
    """A connection that is opened only for its socket is a bypass, told as any other; in replay it reaches nothing."""
    peer = f"127.0.0.1:{model.port}"
    with metering("record", hosts=[peer]) as meter:
        live = run_task(meter, lambda: by_its_socket(model.base_url))
    sent = len(model.log)
    with metering("replay", hosts=[peer]) as meter:
        replayed = run_task(meter, lambda: by_its_socket(model.base_url), source=Tape(()))

    assert live.slugs == ["unhooked-model-traffic"]
    assert isinstance(replayed.error, ConnectionRefusedError)
    assert [(problem.slug, problem.text) for problem in replayed.trace.problems] == [
        (
            "unbooked-request",
            f"the socket of a connection of http.client was used by hand: {peer} was not reached\n"
            "  mend: send requests by the connection",
        )
    ]
    assert sent == len(model.log) == 1


def test_strict_egress_and_a_connection_opened_by_hand() -> None:
    """Where other peers are invalid, a tool's connection that is opened by hand and then asked is none of them."""
    rules = MeasureRules(strict_egress=True)

    def agent(url: str) -> Any:
        with connection(url) as conn:
            conn.connect()
            conn.request("GET", "/look")
            return conn.getresponse().read()

    with RawServer(lambda asked: plain(b"{}")) as server, metering("record", measure=rules) as meter:
        result = run_task(meter, lambda: agent(server.base_url))

    assert (result.value, result.trace.problems) == (b"{}", ())


def test_tools_of_an_uncounted_pool() -> None:
    """A tool by a connection that cannot be booked passes live; in replay it would go out, and is refused and told."""
    with RawServer(lambda asked: plain(b"{}")) as server:
        with metering("record") as meter:
            live = run_task(meter, lambda: past_the_pool(server.base_url, "/look"))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: past_the_pool(server.base_url, "/look"), source=Tape(()))

    assert (live.error, live.slugs, len(server.log)) == (None, [], 1)
    assert isinstance(replayed.error, ConnectionRefusedError)
    assert replayed.slugs == ["unbooked-request"]


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
