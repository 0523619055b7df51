"""As a forward proxy the gateway sees all HTTP of a child: its tools, and models that it calls without a base URL."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from gatewaying import CHAT, Child, behind, open_socket, read_all, request_bytes
from metering import Tape
from model_server import ModelServer

from pytest_fanout.records import MeasureRules


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model server that speaks TLS; the environment of this process, and so the gateway, trusts who signed for it."""
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(str(roots))
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = ModelServer()
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    server.base_url = server.base_url.replace("http:", "https:")
    with server:
        yield server


def roles(child: Child) -> list[tuple[str, str, str]]:
    """(role, method, URL) of what the task sent."""
    child.close()
    assert child.trace is not None
    return [(e.role, e.request.method, e.request.url) for e in child.trace.exchanges]


def bearer(child: Child) -> tuple[str, str]:
    return "-H", f"Authorization: Bearer {child.key}"


def test_tools_are_seen_and_models_called_directly_are_counted(model: ModelServer, secure: ModelServer) -> None:
    """curl's HTTP and HTTPS go through the proxy by its environment alone: tools are tools, a model call is a call and
    goes out with the real key, and the certificate of each server is checked on the way."""
    with behind(model, proxy=True, OPENAI_API_KEY="sk-real") as child:
        plain = child.curl(f"{model.base_url}/tool/search?q=1")
        secret = child.curl(f"{secure.base_url}/tool/fetch", body=b'{"url":"x"}')
        direct = child.curl(*bearer(child), f"{secure.base_url}/v1/chat/completions", body=CHAT)
        by_base = child.curl(*bearer(child), child.chat, body=CHAT)
        samples = child.meter.finish(), roles(child)

    assert json.loads(plain.stdout)["tool"] == "search"
    assert json.loads(secret.stdout) == {"tool": "fetch", "query": "", "got": {"url": "x"}}
    assert json.loads(direct.stdout) == json.loads(by_base.stdout) | {"id": "chatcmpl-2"}
    assert secure.generated[0].headers["authorization"] == "Bearer sk-real"
    assert "proxy-authorization" not in {name for entry in (*model.log, *secure.log) for name in entry.headers}
    assert samples[1] == [
        ("tool", "GET", f"{model.base_url}/tool/search?q=1"),
        ("tool", "POST", f"{secure.base_url}/tool/fetch"),
        ("model", "POST", f"{secure.base_url}/v1/chat/completions"),
        ("model", "POST", f"{model.base_url}/v1/chat/completions"),
    ]
    assert child.slugs == []


AGENT = """
import json, os, sys, urllib.request
import httpx

model, tool = sys.argv[1:]
key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
with httpx.Client() as client:
    said = client.post(model, headers=key, content=b'{"model":"m","messages":[{"role":"user","content":"hi"}]}').json()
    found = client.get(tool + "/httpx").json()["tool"]
request = urllib.request.Request(tool + "/urllib", data=b"{}", headers={"content-type": "application/json"})
with urllib.request.urlopen(request) as answer:
    also = json.load(answer)["tool"]
print(said["choices"][0]["message"]["content"], found, also)
"""


def test_the_tools_of_a_python_agent_replay(model: ModelServer, secure: ModelServer) -> None:
    """An agent in a process of its own, its model by base URL and its tools by httpx and urllib over TLS: recorded
    whole, and replayed without either server."""

    def run(child: Child) -> str:
        words = [sys.executable, "-c", AGENT, child.chat, f"{secure.base_url}/tool"]
        done = subprocess.run(words, env=child.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with behind(model, "record", proxy=True) as child:
        live, sent = run(child), roles(child)
        assert child.trace is not None
        tape = Tape(child.trace.exchanges)
    asked = len(model.log), len(secure.log)
    with behind(model, "replay", proxy=True, source=tape) as child:
        replayed, again = run(child), roles(child)

    assert live == replayed == "echo: hi httpx urllib\n"
    assert [role for role, _, _ in sent] == ["model", "tool", "tool"]
    assert (again, tape.missed, (len(model.log), len(secure.log))) == (sent, [], asked)


def test_the_rules_of_the_budget_hold(model: ModelServer, secure: ModelServer) -> None:
    """passthrough is not recorded, an ignored exporter is answered 204 and goes nowhere, a live input is marked."""
    ports = {name: ModelServer() for name in ("let by", "ignored", "asked")}
    names = {name: f"127.0.0.1:{server.port}" for name, server in ports.items()}
    rules = MeasureRules(passthrough=(names["let by"],), ignore=(names["ignored"],), live_inputs=(names["asked"],))
    with ports["let by"], ports["ignored"], ports["asked"]:
        with behind(model, proxy=True, measure=rules) as child:
            codes = {
                name: child.curl("-w", "%{http_code}", "-o", "/dev/null", f"http://{at}/tool/x").stdout
                for name, at in names.items()
            }
            child.close()

    assert codes == {"let by": b"200", "ignored": b"204", "asked": b"200"}
    assert {name: len(server.log) for name, server in ports.items()} == {"let by": 1, "ignored": 0, "asked": 1}
    assert child.trace is not None
    assert [(e.request.url.split("/")[2], e.live_input) for e in child.trace.exchanges] == [(names["asked"], True)]


@pytest.mark.parametrize(
    ("credentials", "told"), [(None, []), ("fanout:0123456789abcdef", ["gateway-unattributed"])], ids=["none", "others"]
)
def test_without_the_token_of_a_task_the_proxy_is_closed(
    credentials: str | None, told: list[str], model: ModelServer, secure: ModelServer
) -> None:
    """Without credentials it asks for them, as proxies do; with somebody else's that is told. Nothing goes out."""
    with behind(model, proxy=True) as child:
        user = ("--proxy-user", credentials) if credentials else ()
        proxy = child.gateway.url
        codes = [
            child.curl("-x", proxy, *user, "-w", "%{http_code}", "-o", "/dev/null", f"{model.base_url}/tool/x").stdout,
            child.curl("-x", proxy, *user, "-w", "%{http_connect}", "-o", "/dev/null", f"{secure.base_url}/x").stdout,
        ]
        facts = child.meter.finish()

    assert codes == [b"407", b"407"]
    assert (len(model.log), len(secure.log), facts.unattributed) == (0, 0, 0)
    assert sorted({problem.slug for problem in facts.problems}) == told
    assert {problem.verdict for problem in facts.problems} <= {"notice"}


def test_the_gateway_is_reached_through_itself(model: ModelServer) -> None:
    """A client that asks its proxy even for the gateway, in either way, gets there all the same."""
    with behind(model, proxy=True) as child:
        said = [
            child.curl("--noproxy", "", *tunnel, *bearer(child), child.chat, body=CHAT).stdout
            for tunnel in ((), ("-p",))
        ]
        sent = roles(child)

    assert [json.loads(text)["choices"][0]["message"]["content"] for text in said] == ["echo: hi"] * 2
    assert sent == [("model", "POST", f"{model.base_url}/v1/chat/completions")] * 2


def test_plain_http_in_a_tunnel_is_read(model: ModelServer) -> None:
    """Clients that open a tunnel for plain HTTP too are seen as well."""
    with behind(model, proxy=True) as child:
        done = child.curl("-p", f"{model.base_url}/tool/x")
        sent = roles(child)

    assert json.loads(done.stdout)["tool"] == "x"
    assert sent == [("tool", "GET", f"{model.base_url}/tool/x")]


def test_a_server_that_nobody_vouches_for_is_not_spoken_to(model: ModelServer, tmp_path: Path) -> None:
    """TLS to the upstream is verified as ever: an unknown certificate is a 502, and the agent's request stays here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = ModelServer()
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    with server, behind(model, proxy=True) as child:
        done = child.curl("-w", "%{http_code}", f"https://127.0.0.1:{server.port}/tool/x")

    assert done.stdout.endswith(b"502")
    assert b"certificate verify failed" in done.stdout
    assert server.log == []


def test_a_client_that_does_not_trust_the_authority_is_told_of(model: ModelServer, secure: ModelServer) -> None:
    """Who keeps to roots of its own sends nothing; the notice says how to mend it."""
    with behind(model, proxy=True) as child:
        done = child.curl("--cacert", os.environ["SSL_CERT_FILE"], f"{secure.base_url}/tool/x")
        child.close()

    assert done.returncode == 60  # curl: the certificate could not be verified
    assert secure.log == []
    where = secure.base_url.removeprefix("https://")
    assert [(p.slug, p.verdict, p.text) for p in child.scope.problems] == [
        (
            "proxy-not-trusted",
            "notice",
            f"a client did not accept the gateway's certificate for {where}: it sent nothing\n"
            "  mend: let it heed one of the CA variables of its environment, or name the host in passthrough",
        )
    ]


def echo() -> tuple[socket.socket, str]:
    """A server of some other protocol: it says back what it hears, in capitals."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            while data := connection.recv(100):
                connection.sendall(data.upper())

    threading.Thread(target=serve, daemon=True).start()
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("allowed", "strict"), [(True, False), (False, False), (False, True)])
def test_what_is_no_http_passes_only_where_it_is_named(allowed: bool, strict: bool, model: ModelServer) -> None:
    """Another protocol in a tunnel is cut and told, invalid under strict_egress, unless its host is in passthrough."""
    listener, at = echo()
    with (
        listener,
        behind(
            model, proxy=True, measure=MeasureRules(passthrough=(at,) if allowed else (), strict_egress=strict)
        ) as child,
    ):
        token = child.env["HTTP_PROXY"].partition("//")[2].partition("@")[0]
        with open_socket(child.gateway.url) as connection:
            credentials = base64.b64encode(token.encode()).decode()
            connection.sendall(f"CONNECT {at} HTTP/1.1\r\nProxy-Authorization: Basic {credentials}\r\n\r\n".encode())
            head = connection.recv(1000)
            connection.sendall(b"*1 hello")
            with suppress(OSError):  # it may have been cut by now
                connection.shutdown(socket.SHUT_WR)
            said = read_all(connection)
        child.close()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert said == (b"*1 HELLO" if allowed else b"")
    text = (
        f"{at} was asked for through the proxy with a protocol that is not HTTP: it was refused\n"
        "  mend: name it in passthrough of budget.toml"
    )
    told = [] if allowed else [("proxy-not-http", "invalid" if strict else "notice", text)]
    assert [(p.slug, p.verdict, p.text) for p in child.scope.problems] == told


def test_no_private_key_is_stored(model: ModelServer, secure: ModelServer) -> None:
    """The authority's folder is its owner's alone, holds certificates only, and is gone after the run."""
    with behind(model, proxy=True) as child:
        child.curl(f"{secure.base_url}/tool/x")
        folder = Path(child.env["SSL_CERT_FILE"]).parent
        mode = stat.S_IMODE(folder.stat().st_mode)
        texts = [path.read_text() for path in folder.iterdir()]

    assert mode == 0o700
    assert texts
    assert not [text for text in texts if "PRIVATE KEY" in text]
    assert not folder.exists()


def test_the_bundle_holds_what_was_trusted_before(model: ModelServer, authority: trustme.CA, tmp_path: Path) -> None:
    """A child's own roots stay beside the authority's; Node's extra roots hold what they held."""
    own, extra = tmp_path / "own.pem", tmp_path / "extra.pem"
    own.write_text("-- own --")
    extra.write_text("-- extra --")
    with behind(model, proxy=True, SSL_CERT_FILE=str(own), NODE_EXTRA_CA_CERTS=str(extra)) as child:
        bundle, node = (Path(child.env[name]).read_text() for name in ("REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"))

    assert bundle.startswith("-----BEGIN CERTIFICATE-----")
    assert "-- own --" in bundle
    assert node.startswith("-----BEGIN CERTIFICATE-----")
    assert node.endswith("-- extra --")


def test_nothing_is_left_out_of_the_proxy(model: ModelServer) -> None:
    """What NO_PROXY named before would go unseen: it names the gateway only, in both spellings, as the proxies do."""
    with behind(model, proxy=True, NO_PROXY="*", no_proxy="localhost", all_proxy="socks5://x") as child:
        env, at = child.env, child.gateway.url.removeprefix("http://")

    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    assert {env[name] for name in (*names, *map(str.lower, names))} == {env["HTTP_PROXY"]}
    assert env["HTTP_PROXY"] == f"http://fanout:{env['FANOUT_GATEWAY'][-16:]}@{at}"
    assert (env["NO_PROXY"], env["no_proxy"], env["NODE_USE_ENV_PROXY"]) == (at, at, "1")


def test_a_bad_request_to_open_a_tunnel_is_refused(model: ModelServer) -> None:
    """CONNECT to what is no host and port is a 400, one that never ends is cut, and the gateway lives on."""
    with behind(model, proxy=True) as child:
        said = []
        for line in (b"CONNECT nowhere HTTP/1.1\r\n\r\n", b"CONNECT a:0 HTTP/1.1\r\n\r\n", b"CONNECT a:1\r\n\r\n"):
            with open_socket(child.gateway.url) as connection:
                connection.sendall(line)
                said.append(read_all(connection)[:13])
        with open_socket(child.gateway.url) as connection, suppress(OSError):
            connection.sendall(b"CONNECT a:1 HTTP/1.1\r\n" + b"x: y\r\n" * 20_000)
            connection.shutdown(socket.SHUT_WR)
            read_all(connection)
        with open_socket(child.gateway.url) as connection:
            connection.sendall(b"CONN")
            connection.sendall(b"ECT" * 2)
        raw = request_bytes(child.chat, CHAT, {"Connection": "close"})
        with open_socket(child.chat) as connection:
            connection.sendall(raw[:3])
            connection.sendall(raw[3:])
            good = read_all(connection)

    assert said == [b"HTTP/1.1 400 "] * 3
    assert good.startswith(b"HTTP/1.1 200 ")
