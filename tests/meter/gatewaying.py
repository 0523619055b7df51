"""Helpers of the gateway's tests: a task behind the gateway, curl, and HTTP by hand for what no client would send."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from metering import Tape, metering
from model_server import ModelServer

from pytest_fanout.meter import Measured, Meter, Trace, measure_trial
from pytest_fanout.meter.gateway import Gateway
from pytest_fanout.meter.task import TaskScope
from pytest_fanout.records import Caps

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAMED = CHAT[:-1] + b',"stream":true,"stream_options":{"include_usage":true}}'


@dataclass
class Child:
    """One task behind the gateway, and the environment of its child."""

    meter: Meter
    gateway: Gateway
    scope: TaskScope
    env: dict[str, str]
    trace: Trace | None = None

    @property
    def chat(self) -> str:
        """Where the OpenAI SDK would send a chat request."""
        return self.env["OPENAI_BASE_URL"] + "/chat/completions"

    @property
    def key(self) -> str:
        return self.env["OPENAI_API_KEY"]

    def curl(self, *arguments: str, body: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """curl in this environment, with what it writes; its exit code is left as it is."""
        data = () if body is None else ("-H", "content-type: application/json", "--data-binary", "@-")
        return subprocess.run(
            ["curl", "-sS", "-m", "30", *data, *arguments], input=body, capture_output=True, check=False, env=self.env
        )

    def ask(self, body: bytes = CHAT) -> Any:
        """One chat request by curl; the answer as JSON."""
        return json.loads(self.curl("-H", f"Authorization: Bearer {self.key}", self.chat, body=body).stdout)

    def close(self) -> Measured:
        """End the task; its numbers."""
        self.trace = self.meter.close_task(self.scope)
        return measure_trial(self.trace.exchanges, self.trace.duration_ms)

    @property
    def slugs(self) -> list[str]:
        return [problem.slug for problem in self.scope.problems if problem.verdict != "notice"]


def child_of(
    meter: Meter, model: ModelServer | str, *, caps: Caps | None = None, source: Tape | None = None, task: str = "t",
    proxy: bool = False, **more: str,
) -> Child:  # fmt: skip
    """A further task behind the gateway of ``meter``, whose upstream is ``model`` (a server or its URL)."""
    url = model if isinstance(model, str) else model.base_url
    scope = meter.open_task("shop", task, 1, caps or Caps(), source, beside=True)
    gateway = meter.gateway()
    base = {"PATH": "/usr/bin:/bin", "OPENAI_BASE_URL": url + "/v1", "ANTHROPIC_BASE_URL": url, **more}
    return Child(meter, gateway, scope, gateway.environ_for(scope, base, proxy=proxy))


@contextmanager
def behind(model: ModelServer | str, mode: str = "live", **settings: Any) -> Iterator[Child]:
    """One task behind a gateway of its own. ``measure`` goes to the meter, all else to ``child_of``."""
    measure = {"measure": settings.pop("measure")} if "measure" in settings else {}
    with metering(mode, **measure) as meter:
        yield child_of(meter, model, **settings)


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.split("/")[2].rpartition(":")
    return host.rpartition("@")[2], int(port)


def open_socket(url: str) -> socket.socket:
    """A connection to the server of a URL; reading gives up after ten seconds."""
    connection = socket.create_connection(address_of(url), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request_bytes(
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    *,
    absolute: bool = False,
) -> bytes:
    """A request as it stands on the wire, with exactly these headers besides Host and Content-Length."""
    target = url if absolute else "/" + url.split("/", 3)[3]
    lines = [f"{method} {target} HTTP/1.1", f"Host: {url.split('/')[2]}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes, in whatever way."""
    parts = []
    with suppress(ConnectionResetError):
        while data := connection.recv(65536):
            parts.append(data)
    return b"".join(parts)


def read_one(connection: socket.socket) -> bytes:
    """One answer with a Content-Length, on a connection that stays open."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = got.partition(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < length:
        body += connection.recv(1 << 20)
    return head + b"\r\n\r\n" + body


def talk(
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    *,
    absolute: bool = False,
) -> bytes:
    """One request by hand on a connection of its own; the whole answer as it stands on the wire."""
    with open_socket(url) as connection:
        given = {"Connection": "close", **(headers or {})}
        connection.sendall(request_bytes(url, body, given, method, absolute=absolute))
        return read_all(connection)


@contextmanager
def raw_server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """A server that reads one request a connection and lets ``answer`` write what it likes; its URL."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection:
            got = b""
            while b"\r\n\r\n" not in got:
                data = connection.recv(65536)
                if not data:
                    return
                got += data
            head, _, body = got.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            while len(body) < length:
                body += connection.recv(1 << 20)
            answer(connection, head + b"\r\n\r\n" + body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
