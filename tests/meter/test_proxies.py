"""An HTTP proxy from the environment: each call is counted once, its peer is the model, and replay asks nobody."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import trustme
import urllib3
from byte_server import Proxy, RawServer, plain
from metering import Tape, chat, metering, run_task

from pytest_fanout.records import MeasureRules

PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 7, "completion_tokens": 2}
ANSWER = plain(json.dumps({"choices": [], "usage": USAGE}).encode(), connection="close")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[RawServer]:
    context = None
    if request.param == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
    with RawServer(lambda asked: ANSWER, context) as made:
        yield made


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy() as made:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, made.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        yield made


def by_requests(url: str, trusted: str) -> Any:
    with requests.Session() as session:
        return [session.post(url + PATH, json=chat(str(n)), verify=trusted).json() for n in range(2)]


def by_proxy_manager(url: str, trusted: str) -> Any:
    where = urllib.request.getproxies()["http"]
    with urllib3.ProxyManager(where, ca_certs=trusted) as pools:
        return [pools.request("POST", url + PATH, json=chat(str(n))).json() for n in range(2)]


def by_urllib(url: str, trusted: str) -> Any:
    context = ssl.create_default_context(cafile=trusted)
    said = []
    for number in range(2):
        request = urllib.request.Request(url + PATH, data=json.dumps(chat(str(number))).encode())
        with urllib.request.urlopen(request, context=context) as answer:
            said.append(json.loads(answer.read()))
    return said


AGENTS = [by_requests, by_proxy_manager, by_urllib]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_calls_through_a_proxy(agent: Any, server: RawServer, proxy: Proxy, trusted: str) -> None:
    """Plain and by CONNECT two calls are two, of the model's own host; no alarm is raised, and replay opens nothing."""
    url, rules = server.base_url, MeasureRules(strict_egress=True)
    with metering("record", measure=rules) as meter:
        recorded = run_task(meter, lambda: agent(url, trusted))
    asked = len(proxy.log)
    with metering("replay", measure=rules) as meter:
        replayed = run_task(meter, lambda: agent(url, trusted), source=Tape(recorded.trace.exchanges))

    peer = url.partition("//")[2]
    tunnels = url.startswith("https")
    assert set(proxy.log) == ({f"CONNECT {peer}"} if tunnels else {f"POST {url}{PATH}"})
    assert len(server.log) == 2
    assert len(proxy.log) == asked
    for result in (recorded, replayed):
        assert (result.error, result.fanout, result.measured.samples["attempts"]) == (None, 2, 2)
        assert (result.trace.hosts, result.slugs) == ((peer,), [])
    assert recorded.value == replayed.value
    assert {exchange.request.url for exchange in recorded.trace.exchanges} == {url + PATH}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_a_proxy_that_is_not_there(agent: Any, monkeypatch: pytest.MonkeyPatch, trusted: str) -> None:
    """What goes wrong on the way to the proxy is raised as without us, live and replayed, and is an attempt."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    def failing() -> Any:
        kinds = []
        for scheme in ("http", "https"):
            try:
                agent(f"{scheme}://localhost:9", trusted)
            except Exception as error:
                kinds.append((type(error), type(getattr(error, "reason", None))))
        return kinds

    bare = failing()
    with metering("record") as meter:
        recorded = run_task(meter, failing)
    with metering("replay") as meter:
        replayed = run_task(meter, failing, source=Tape(recorded.trace.exchanges))

    assert len(bare) == 2
    assert recorded.value == replayed.value == bare
    assert recorded.measured.samples["attempts"] == replayed.measured.samples["attempts"] >= 2


def test_tls_without_a_proxy(authority: trustme.CA, trusted: str) -> None:
    """Over TLS each stack is counted and replayed as well; a certificate that is not trusted fails as without us."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    def agent(url: str) -> Any:
        said = [by_requests(url, trusted), by_urllib(url, trusted)]
        try:
            requests.post(url + PATH, json=chat("untrusted"))
        except requests.exceptions.SSLError as error:
            said.append([type(error)])
        return said

    with RawServer(lambda asked: ANSWER, context) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert (recorded.error, recorded.value[2]) == (None, [requests.exceptions.SSLError])
    assert recorded.value == replayed.value
    assert (recorded.fanout, replayed.fanout, len(server.log)) == (4, 4, 4)
