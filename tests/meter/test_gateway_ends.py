"""What a process sent last, and the gateway had not read when it ended, belongs to the task that ran then."""

from __future__ import annotations

import base64
import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from gatewaying import CHAT, behind, child_of, open_socket, read_all, request_bytes
from metering import metering
from model_server import ModelServer

from pytest_fanout.meter import Meter
from pytest_fanout.meter.gateway.server import Server
from pytest_fanout.records import Caps, MeasureRules


class BusyGateway:
    """A meter whose gateway reads nothing from when a cap is near until it is asked to drain, or the block ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_deaf, self.may_read = threading.Event(), threading.Event()
        drain = Server.drain

        def drained(server: Server, most_s: float) -> None:
            self.may_read.set()
            drain(server, most_s)

        monkeypatch.setattr(Server, "drain", drained)

    def _stay_deaf(self, task: str, cap: str, share: float) -> None:
        self.is_deaf.set()
        self.may_read.wait(10)

    @contextmanager
    def meter(self) -> Iterator[Meter]:
        with metering(cap_warning=self._stay_deaf) as meter:
            try:
                yield meter
            finally:
                self.may_read.set()

    def stop_reading(self, meter: Meter, model: ModelServer) -> None:
        """A call of another task, which reaches a cap of it, keeps the gateway busy."""
        other = child_of(meter, model, caps=Caps(fanout=1), task="other")
        with open_socket(other.chat) as connection:
            connection.sendall(request_bytes(other.chat, CHAT, {"Authorization": f"Bearer {other.key}"}))
            assert self.is_deaf.wait(10)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> BusyGateway:
    return BusyGateway(monkeypatch)


def last_words(busy: BusyGateway, url: str, key: str) -> None:
    """What a process that is ended leaves behind: a call which is being booked, and two that nobody has read yet: on a
    connection that was accepted, and on one that was not."""
    headers = {"Authorization": f"Bearer {key}"}
    with open_socket(url) as used, open_socket(url) as known, open_socket(url) as new:
        known.sendall(request_bytes(url.replace("/v1/chat/completions", "/v1/models"), b"", headers, "GET"))
        known.recv(65536)
        used.sendall(request_bytes(url, CHAT, headers))
        assert busy.is_deaf.wait(10)
        known.sendall(request_bytes(url, CHAT, headers))
        new.sendall(request_bytes(url, CHAT, headers))


def test_the_last_words_of_a_server_are_those_of_the_task_that_it_was_ended_for(
    model: ModelServer, busy: BusyGateway
) -> None:
    """A server that is ended at a cap has sent calls which are read only afterwards: refused, and nobody else's."""
    with busy.meter() as meter:
        env = meter.gateway().environ_for(None, {"OPENAI_BASE_URL": model.base_url + "/v1"})
        scope = meter.open_task("shop", "t", 1, Caps(fanout=1))
        last_words(busy, env["OPENAI_BASE_URL"] + "/chat/completions", env["OPENAI_API_KEY"])
        trace = meter.close_task(scope)
        facts = meter.finish()

    assert (facts.unattributed, facts.late, facts.problems) == (0, 0, ())
    assert len(model.generated) == 1
    roles = [exchange.role for exchange in trace.exchanges if exchange.role != "tool"]
    # A call whose client has gone before it was sent gives its place back: seen first, the next one takes it.
    assert (roles, trace.capped) in ((["model", "refused"], "fanout"), (["model", "model"], None))


def test_the_last_words_of_a_command_are_those_of_its_task(model: ModelServer, busy: BusyGateway) -> None:
    """A call that a command has sent when it ends by itself is counted to its task, and is not late."""
    with busy.meter() as meter:
        child = child_of(meter, model)
        busy.stop_reading(meter, model)
        with open_socket(child.chat) as connection:
            headers = {"Authorization": f"Bearer {child.key}", "Connection": "close"}
            connection.sendall(request_bytes(child.chat, CHAT, headers))
            measured = child.close()
            answer = read_all(connection)
        facts = meter.finish()

    assert answer.startswith(b"HTTP/1.1 200")
    assert (measured.samples["fanout"], facts.late, child.slugs) == (1, 0, [])


def test_the_last_words_between_tasks_are_told(model: ModelServer, busy: BusyGateway) -> None:
    """What a server has sent when no task ran is unattributed, also when it is read only as the run ends."""
    with busy.meter() as meter:
        env = meter.gateway().environ_for(None, {"OPENAI_BASE_URL": model.base_url + "/v1"})
        url = env["OPENAI_BASE_URL"] + "/chat/completions"
        busy.stop_reading(meter, model)
        with open_socket(url) as connection:
            connection.sendall(request_bytes(url, CHAT, {"Authorization": f"Bearer {env['OPENAI_API_KEY']}"}))
        facts = meter.finish()

    assert facts.unattributed == 1
    assert [problem.slug for problem in facts.problems] == ["unattributed-call"]


def test_a_stopped_task_that_is_long_gone_gets_no_call_in(model: ModelServer) -> None:
    """A process that outlives the end of its stopped task is refused also when nothing else is left of the task, and
    changes no number."""
    with metering() as meter:
        child = child_of(meter, model, caps=Caps(fanout=1))
        child.ask()
        child.ask()
        measured = child.close()
        stray = replace(child, scope=None)
        del child
        gc.collect()
        answers = [stray.ask()["error"]["message"] for _ in range(2)]
        facts = meter.finish()

    assert (measured.samples["fanout"], len(model.generated), facts.late, facts.problems) == (1, 1, 0, ())
    refusal = (
        "pytest-fanout: 't' of shop reached its cap fanout = 1: it was stopped and every further call of it is refused;"
        " see docs/messages.md#capped"
    )
    assert answers == [refusal, refusal]


def test_clients_that_say_nothing_hold_up_no_end(model: ModelServer) -> None:
    """An idle connection, half a request, and a tunnel whose client has said all it has to say delay no task's end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            behind(model, proxy=True, measure=MeasureRules(passthrough=(at,))) as child,
            open_socket(child.gateway.url),
            open_socket(child.gateway.url) as half,
            open_socket(child.gateway.url) as tunnel,
        ):
            half.sendall(b"POST /v1/chat/comp")
            credentials = base64.b64encode(urlsplit(child.env["HTTP_PROXY"]).netloc.partition("@")[0].encode()).decode()
            tunnel.sendall(f"CONNECT {at} HTTP/1.1\r\nProxy-Authorization: Basic {credentials}\r\n\r\n".encode())
            assert tunnel.recv(1000).startswith(b"HTTP/1.1 200 ")
            tunnel.sendall(b"*1 all")
            tunnel.shutdown(socket.SHUT_WR)
            with listener.accept()[0] as server:
                assert read_all(server) == b"*1 all"
                began = time.monotonic()
                child.close()
                took_s = time.monotonic() - began

    assert took_s < 2
