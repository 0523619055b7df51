"""Whatever way a connection to a model server is made and spelled, it is noticed; what is none of it is left alone."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import httpx2
import openai
import pytest
import raw_client
import respx
import trustme
from metering import Tape, chat, metering, run_task
from model_server import ModelServer
from relay import Relay

from pytest_fanout.records import MeasureRules

FILE = raw_client.__file__
PATH = "/v1/chat/completions"


def notes(result: Any) -> list[tuple[str, str]]:
    """Slug and first line of each problem of the trace, paths without their folders."""
    folder = os.path.dirname(os.path.abspath(__file__)) + os.sep
    return [(p.slug, p.text.split("\n")[0].replace(folder, "")) for p in result.trace.problems]


def counted(url: str, **more: Any) -> int:
    with httpx2.Client(**more) as client:
        return client.post(url + PATH, json=chat()).status_code


@pytest.fixture
def known(model: ModelServer) -> Iterator[Any]:
    """A meter that knows the model server from recordings alone."""
    with metering(hosts=[f"localhost:{model.port}"]) as meter:
        yield meter


# --- ways to connect -------------------------------------------------------------------------------------------------


def by_socket(url: str) -> int:
    return raw_client.call(url)


def by_streams(url: str) -> int:
    return asyncio.run(raw_client.call_by_streams(url))


def by_connect_ex(url: str) -> int:
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0
        return raw_client.talk(connection, url)


def by_loop(url: str) -> int:
    async def talk() -> int:
        with socket.socket() as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", int(url.rpartition(":")[2])))
            connection.setblocking(True)
            return raw_client.talk(connection, url)

    return asyncio.run(talk())


def by_duplicate(url: str) -> int:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        with connection.dup() as other:
            return raw_client.talk(other, url)


def by_thread(url: str) -> int:
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(raw_client.call(url)))
    thread.start()
    thread.join()
    return got[0]


WAYS = [by_socket, by_streams, by_connect_ex, by_loop, by_duplicate, by_thread]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_ways_to_connect(way: Callable[[str], int], known: Any, model: ModelServer) -> None:
    """A local model server that only recordings know: however a raw client connects, live, the task is invalid."""
    result = run_task(known, lambda: way(model.base_url))

    ((slug, text),) = notes(result)
    assert (result.value, len(model.generated), result.fanout) == (200, 1, 0)
    assert (slug, result.slugs) == ("unhooked-model-traffic", ["unhooked-model-traffic"])
    assert text.split(" ", 1)[1] == (
        f"connected to the model server 127.0.0.1:{model.port} outside every counting hook: its calls are not counted"
    )
    assert text.startswith(("raw_client.py:", "test_tripwire_peers.py:"))


@pytest.mark.parametrize("way", [by_socket, by_streams, by_connect_ex, by_loop], ids=lambda way: way.__name__)
def test_ways_to_connect_in_replay(way: Callable[[str], int], model: ModelServer) -> None:
    """In replay none of them reaches the server."""
    with metering("replay", hosts=[f"localhost:{model.port}"]) as meter:
        result = run_task(meter, lambda: way(model.base_url), source=Tape(()))

    assert (result.slugs, model.log) == (["unhooked-model-traffic"], [])
    assert "replay goes to no model server" in str(result.error)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("127.0.0.9", "127.0.0.9"),
        ("127.1", "127.1"),
        ("0x7f000001", "0x7f000001"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "[::1]"),
        ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]"),
    ],
)
def test_spellings_of_this_machine(host: str, name: str, known: Any, model: ModelServer) -> None:
    """A server on this machine is the same server under each of its addresses."""

    def agent() -> None:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as connection:
            connection.connect_ex((host, model.port))

    result = run_task(known, agent)

    assert [text.split(" ")[6] for _, text in notes(result)] == [f"{name}:{model.port}"]
    assert result.slugs == ["unhooked-model-traffic"]


@pytest.mark.parametrize("how", ["send to", "connect"])
def test_datagrams(how: str, known: Any, model: ModelServer) -> None:
    """HTTP over QUIC would go by datagrams: to a model server they are noticed as well; to a name server they are
    nothing of note, and to others they are listed."""

    def agent() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            for port in (model.port, 53, 9):
                if how == "send to":
                    datagrams.sendto(b"x", ("127.0.0.1", port))
                else:
                    datagrams.connect(("127.0.0.1", port))

    result = run_task(known, agent)

    assert [(slug, text.split(" ", 1)[1].split(" outside")[0]) for slug, text in notes(result)] == [
        ("unhooked-model-traffic", f"connected to the model server 127.0.0.1:{model.port}"),
        ("unhooked-peer", "connected to 127.0.0.1:9"),
    ]


def test_unix_sockets(model: ModelServer) -> None:
    """A client over a Unix socket is counted; a raw client on the socket that counted calls went through is a bypass,
    and other Unix sockets are listed."""
    with tempfile.TemporaryDirectory() as folder:
        ours, other = os.path.join(folder, "model.sock"), os.path.join(folder, "db.sock")

        def agent() -> None:
            counted("http://localhost", transport=httpx2.HTTPTransport(uds=ours))
            for path in (ours, other):
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect_ex(path)

        with Relay(model.port, path=ours), metering() as meter:
            result = run_task(meter, agent)

    assert (len(model.generated), result.fanout) == (1, 1)
    assert [(slug, text.split(" ", 1)[1].split(" outside")[0]) for slug, text in notes(result)] == [
        ("unhooked-model-traffic", f"connected to the model server unix:{ours}"),
        ("unhooked-peer", f"connected to unix:{other}"),
    ]


def test_system_sockets_are_no_peers() -> None:
    """The system log and the processes of multiprocessing use Unix sockets: no reader of a report needs to know."""

    def agent() -> None:
        for path in ("/dev/log", "\0listener-1-0", "/var/pymp-x/listener-y"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect_ex(path)

    with metering(measure=MeasureRules(strict_egress=True)) as meter:
        result = run_task(meter, agent)

    assert result.trace.problems == ()


# --- what becomes known later ----------------------------------------------------------------------------------------


def test_raw_before_counted(model: ModelServer) -> None:
    """A server that is met by a raw client first and serves a counted call afterwards was a model server all along."""

    def agent() -> None:
        raw_client.call(model.base_url)
        counted(model.base_url)

    with metering() as meter:
        result = run_task(meter, agent)

    assert (len(model.generated), result.fanout) == (2, 1)
    assert result.slugs == ["unhooked-model-traffic"]
    assert [slug for slug, _ in notes(result)] == ["unhooked-peer", "unhooked-model-traffic"]


def test_raw_before_recordings_are_known(model: ModelServer) -> None:
    """Which recordings matter is known after the collection: a raw connection that was made before is told then."""
    with metering() as meter:
        raw_client.call(model.base_url)
        meter.expect([f"127.0.0.1:{model.port}"])
        facts = meter.finish()

    assert [problem.slug for problem in facts.problems if problem.verdict == "invalid"] == ["unhooked-model-traffic"]


def test_raw_connection_of_a_fixture(model: ModelServer) -> None:
    """A raw connection that was opened while no task ran, to what turns out to be a model server, makes the run
    invalid: nobody sees what is sent on it."""
    with metering() as meter:
        with socket.create_connection(("127.0.0.1", model.port)) as connection:

            def agent() -> None:
                raw_client.talk(connection, model.base_url)
                counted(model.base_url)

            result = run_task(meter, agent)
        facts = meter.finish()

    assert (len(model.generated), result.fanout, result.slugs) == (2, 1, [])
    assert [(p.slug, p.verdict) for p in facts.problems] == [("unhooked-model-traffic", "invalid")]


def test_another_tasks_raw_connection(model: ModelServer) -> None:
    """The numbers of an earlier task cannot be called back: the run is invalid."""
    with metering() as meter:
        first = run_task(meter, lambda: raw_client.call(model.base_url), task="a")
        second = run_task(meter, lambda: counted(model.base_url), task="b")
        facts = meter.finish()

    assert (first.slugs, second.slugs) == ([], [])
    assert [p.slug for p in facts.problems] == ["unhooked-model-traffic"]


def test_thread_of_no_task(known: Any, model: ModelServer) -> None:
    """A raw call by a thread while no task runs makes the run invalid."""
    by_thread(model.base_url)
    facts = known.finish()

    assert [(p.slug, p.verdict, p.task) for p in facts.problems] == [("unhooked-model-traffic", "invalid", None)]


# --- names and proxies -----------------------------------------------------------------------------------------------


@pytest.fixture
def fake_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """``api.openai.com`` is this machine, as far as Python looks names up; looking up raises the audit event."""
    real = socket.getaddrinfo

    def lookup(host: Any, *args: Any, **named: Any) -> Any:
        if host not in ("api.openai.com", b"api.openai.com"):
            return real(host, *args, **named)
        sys.audit("socket.getaddrinfo", host, args[0] if args else named.get("port"), 0, 0, 0)
        return real("127.0.0.1", *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.usefixtures("fake_names")
@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda module: module.__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_hooked_client_by_name(is_async: bool, library: ModuleType, model: ModelServer) -> None:
    """A counted client that reaches a provider by its name raises no alarm, however it looks the name up."""
    url = f"http://api.openai.com:{model.port}{PATH}"

    async def agent_async() -> None:
        async with library.AsyncClient(trust_env=False) as client:
            await asyncio.gather(*(client.post(url, json=chat(str(n))) for n in range(4)))

    def agent() -> None:
        with library.Client(trust_env=False) as client:
            for n in range(4):
                client.post(url, json=chat(str(n)))

    with metering() as meter:
        result = run_task(meter, agent_async if is_async else agent)

    assert (result.error, len(model.generated), result.fanout) == (None, 4, 4)
    assert result.trace.problems == ()


@pytest.mark.usefixtures("fake_names")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_raw_client_by_name(is_async: bool, model: ModelServer) -> None:
    """A raw client that looks a provider's name up and connects is named by it, on threads of asyncio too."""

    def agent() -> Any:
        if is_async:
            return asyncio.run(raw_client.call_by_streams(model.base_url, "api.openai.com"))
        with socket.create_connection(("api.openai.com", model.port)) as connection:
            return raw_client.talk(connection, model.base_url)

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.value, result.slugs) == (200, ["unhooked-model-traffic"])
    assert f"connected to the model server api.openai.com:{model.port} outside" in notes(result)[0][1]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda module: module.__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_of_the_environment(
    scheme: str, is_async: bool, library: ModuleType, model: ModelServer, monkeypatch: pytest.MonkeyPatch,
    authority: trustme.CA,
) -> None:  # fmt: skip
    """Calls through a proxy that the environment names, plain or by CONNECT, are counted, and raise no alarm; a raw
    client that goes there may go on to a model, so it makes the task invalid."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("model.example").configure_cert(served)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    url = f"{scheme}://model.example{PATH}"

    async def call_async() -> None:
        async with library.AsyncClient(verify=trusted) as client:
            (await client.post(url, json=chat())).raise_for_status()

    def agent() -> None:
        if is_async:
            asyncio.run(call_async())
            return
        with library.Client(verify=trusted) as client:
            client.post(url, json=chat()).raise_for_status()

    def raw() -> None:
        socket.create_connection(("127.0.0.1", int(relay.url.rpartition(":")[2]))).close()

    with Relay(model.port, tls=served) as relay:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HTTPS_PROXY" if scheme == "https" else "http_proxy", relay.url)
        with metering() as meter:
            result = run_task(meter, agent)
            bypass = run_task(meter, raw)

    assert relay.asked == [
        b"CONNECT model.example:443 HTTP/1.1" if scheme == "https" else f"POST {url} HTTP/1.1".encode()
    ]
    assert (result.error, len(model.generated), result.fanout) == (None, 1, 1)
    assert result.trace.problems == ()
    assert bypass.slugs == ["unhooked-model-traffic"]
    assert f"connected to the proxy {relay.url.removeprefix('http://')} outside" in notes(bypass)[0][1]


# --- others ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
def test_database_driver(strict: bool) -> None:
    """A database driver on raw sockets is listed with its address, and does not make a task invalid, unless
    strict_egress asks for that."""
    with socket.socket() as database, socket.socket() as cache:
        for server in (database, cache):
            server.bind(("127.0.0.1", 0))
            server.listen()

        def agent() -> None:
            for server in (database, cache, database):
                with socket.create_connection(server.getsockname()) as connection:
                    connection.sendall(b"SELECT 1")

        with ModelServer() as model, metering(measure=MeasureRules(strict_egress=strict)) as meter:
            result = run_task(meter, lambda: (counted(model.base_url), agent()))

        names = [
            f"connected to 127.0.0.1:{server.getsockname()[1]} outside every counting hook"
            for server in (database, cache)
        ]

    assert [text.split(" ", 1)[1] for _, text in notes(result)] == names
    assert result.slugs == (["unhooked-peer"] * 2 if strict else [])
    assert result.fanout == 1


def test_client_that_leaks_out_of_respx(model: ModelServer) -> None:
    """respx mocks httpx alone: an OpenAI client on httpx2 reaches the server, and is counted; a raw one is noticed."""

    def agent() -> None:
        with respx.mock(assert_all_called=False) as router:
            router.route().respond(200, json={})
            with openai.OpenAI(base_url=model.base_url + "/v1", api_key="x") as client:
                client.chat.completions.create(**chat())
            raw_client.call(model.base_url)

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.error, len(model.generated), result.fanout) == (None, 2, 1)
    assert result.slugs == ["unhooked-model-traffic"]


def test_helpers_stand_in_the_file_that_is_named() -> None:
    """The line that is named is the client's, not one of the standard library."""
    assert Path(FILE).name == "raw_client.py"
