"""Through the gateway an agent sees what it would have seen without it, byte for byte where HTTP lets it."""

from __future__ import annotations

import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gatewaying import (
    CHAT,
    STREAMED,
    Child,
    behind,
    open_socket,
    raw_server,
    read_all,
    read_one,
    request_bytes,
    talk,
)
from model_server import ModelServer

from pytest_fanout.records import Caps, Exchange

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def bearer(child: Child) -> dict[str, str]:
    return {"Authorization": f"Bearer {child.key}"}


def exchanges(child: Child) -> tuple[Exchange, ...]:
    if child.trace is None:
        child.close()
    assert child.trace is not None
    return child.trace.exchanges


def names(head: bytes) -> list[bytes]:
    return [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]


def test_headers_of_one_connection_stay_on_it() -> None:
    """What RFC 9110 keeps on one connection, and what Connection names, is not handed on; all else is, as written."""
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        connection.sendall(
            b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
            b"Keep-Alive: timeout=9\r\n"
            b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Request-Id: req_1\r\nServer: model\r\nDate: now\r\n"
            b"Content-Type: application/json\r\nX-Latin: caf\xe9\r\n\r\n{}"
        )

    with raw_server(answer) as url, behind(url) as child:
        sent = {
            **bearer(child), "X-Case-Kept": "1", "Connection": "close, X-Private", "X-Private": "1", "TE": "trailers",
            "Proxy-Connection": "keep-alive", "Upgrade": "h2c", "HTTP2-Settings": "AAA",
            "Accept-Encoding": "br;q=0.5, zstd", "Cookie": "c=3",
        }  # fmt: skip
        got = talk(child.chat, CHAT, sent)

    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert body == CHAT
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert sorted(names(head)) == sorted(
        [b"Host", b"Authorization", b"X-Case-Kept", b"Accept-Encoding", b"Cookie", b"Content-Length"]
    )
    assert b"Accept-Encoding: br;q=0.5, zstd" in head
    head, _, body = got.partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 Fine", b"{}")
    assert names(head).count(b"Set-Cookie") == 2
    assert not {b"X-Hop", b"Keep-Alive"} & set(names(head))
    assert {b"Server: model", b"Date: now", b"X-Request-Id: req_1"} <= set(head.split(b"\r\n"))


def test_an_answer_of_an_upstream_that_fails_is_the_agents(model: ModelServer) -> None:
    """Status, body and headers of an error are those of the provider, and an SDK's retry afterwards is one call."""
    model.restart([{"status": 529, "retry_after": 3, "headers": {"x-ratelimit-remaining": "0"}}])
    with behind(model) as child:
        first, second = (talk(child.chat, CHAT, bearer(child)) for _ in range(2))
        samples = child.close().samples

    assert first.startswith(b"HTTP/1.1 529 ")
    assert b"\r\nretry-after: 3\r\n" in first
    assert b"\r\nx-ratelimit-remaining: 0\r\n" in first
    assert b'"overloaded_error"' in first
    assert second.startswith(b"HTTP/1.1 200 ")
    assert (samples["fanout"], samples["attempts"]) == (1, 2)


def test_an_upstream_that_is_down_is_a_502_that_says_so() -> None:
    """Nothing listens: the agent gets a 502 that it may retry; the attempt is counted, and reached nobody."""
    with behind("http://127.0.0.1:9") as child:
        answer = talk(child.chat, CHAT, bearer(child))
        samples = child.close().samples

    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"x-should-retry" not in answer
    assert b"pytest-fanout: http://127.0.0.1:9/v1/chat/completions could not be reached: " in answer
    assert b"docs/messages.md#upstream-unreachable" in answer
    (exchange,) = exchanges(child)
    assert (exchange.answer.status, exchange.answer.outcome, exchange.answer.error) == (None, "error", "ConnectError")
    assert (samples["fanout"], samples["attempts"]) == (0, 1)


@pytest.mark.parametrize("length", [b"Content-Length: 2\r\n", b""], ids=["whole", "until the end"])
def test_no_header_is_added(length: bytes) -> None:
    """What an upstream does not say of its answer is not made up: no type, no date, no server."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n" + length + b"\r\n{}")

    with raw_server(answer) as url, behind(url) as child:
        head, _, body = talk(child.chat, CHAT, bearer(child)).partition(b"\r\n\r\n")

    assert not {b"content-type", b"date", b"server"} & {name.lower() for name in names(head)}
    assert b"{}" in body


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"half"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", b"5\r\nfirst\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n40\r\npart", b"9\r\nfirstpart\r\n"),
    ],
    ids=["before the head", "amid a plain body", "between chunks", "amid a chunk"],
)
def test_a_death_amid_an_answer_is_no_clean_end(sent: bytes, got: bytes) -> None:
    """When the upstream hangs up, the agent's connection ends too, after what came and without an end mark."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(sent)

    with raw_server(answer) as url, behind(url) as child:
        heard = talk(child.chat, CHAT, bearer(child)).partition(b"\r\n\r\n")[2]

    assert not heard.endswith(b"0\r\n\r\n")
    assert heard.replace(b"5\r\nfirst\r\n4\r\npart\r\n", b"9\r\nfirstpart\r\n") == got
    (exchange,) = exchanges(child)
    assert (exchange.answer.outcome, exchange.answer.error) == ("error", "ReadError")
    assert exchange.answer.status == (200 if sent else None)


def test_the_first_byte_arrives_when_it_is_sent() -> None:
    """A stream is passed on chunk by chunk: the agent reads the first one while the upstream holds the second back."""
    read_it = threading.Event()
    early: list[bool] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"9\r\ndata: 1\n\n\r\n")
        early.append(read_it.wait(10))
        connection.sendall(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    with raw_server(answer) as url, behind(url) as child, open_socket(child.chat) as connection:
        connection.sendall(request_bytes(child.chat, STREAMED, {**bearer(child), "Connection": "close"}))
        first = b""
        while b"data: 1" not in first:
            first += connection.recv(65536)
        read_it.set()
        rest = read_all(connection)
        samples = child.close().samples

    assert early == [True]
    assert b"data: 2" not in first
    assert rest == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
    assert samples["fanout"] == 1


def test_who_hangs_up_closes_the_upstream() -> None:
    """A client that leaves amid a stream ends the request to the provider at once; it is counted as closed early."""
    gone = threading.Event()

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        if connection.recv(1) == b"":
            gone.set()

    with raw_server(answer) as url, behind(url) as child:
        with open_socket(child.chat) as connection:
            connection.sendall(request_bytes(child.chat, STREAMED, bearer(child)))
            got = b""
            while b"data: 1" not in got:
                got += connection.recv(65536)
        assert gone.wait(10)
        (exchange,) = exchanges(child)

    assert (exchange.answer.outcome, exchange.answer.body) == ("closed_early", b"data: 1\n\n")


def test_who_hangs_up_before_the_answer_closes_it_as_well() -> None:
    """A client that gives up waiting ends the request to the provider too."""
    asked, gone = threading.Event(), threading.Event()

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.set()
        if connection.recv(1) == b"":
            gone.set()

    with raw_server(answer) as url, behind(url) as child:
        with open_socket(child.chat) as connection:
            connection.sendall(request_bytes(child.chat, CHAT, bearer(child)))
            assert asked.wait(10)
        assert gone.wait(10)
        (exchange,) = exchanges(child)

    assert (exchange.answer.status, exchange.answer.outcome, exchange.answer.error) == (None, "error", "CancelledError")


def test_content_codings_are_left_alone() -> None:
    """A compressed request and a compressed answer pass as they are, and the answer's usage is read all the same."""
    usage = b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":11,"completion_tokens":7}}'
    zipped, sent = gzip.compress(usage, mtime=0), gzip.compress(CHAT, mtime=0)
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request.partition(b"\r\n\r\n")[2])
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        )
        connection.sendall(head % len(zipped) + zipped)

    with raw_server(answer) as url, behind(url) as child:
        got = talk(child.chat, sent, {**bearer(child), "Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
        samples = child.close().samples

    assert (seen, got.partition(b"\r\n\r\n")[2]) == ([sent], zipped)
    assert b"\r\nContent-Encoding: gzip\r\n" in got
    assert (samples["input_tokens"], samples["output_tokens"]) == (11, 7)


def test_fifty_megabytes_pass_both_ways(tmp_path: Path) -> None:
    """50 MB go up and 50 MB come down, with curl's Expect: 100-continue; nothing is lost or changed."""
    size = 50_000_000
    big = CHAT[:-1] + b',"pad":"' + b"p" * (size - len(CHAT) - 9) + b'"}'
    assert len(big) == size
    seen: list[bool] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request.partition(b"\r\n\r\n")[2] == big)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size + big
        )

    (tmp_path / "body").write_bytes(big)
    with raw_server(answer) as url, behind(url) as child:
        done = child.curl(
            "-H", f"Authorization: Bearer {child.key}", "-H", "Expect: 100-continue", "--expect100-timeout", "60",
            "--data-binary", f"@{tmp_path / 'body'}", child.chat,
        )  # fmt: skip
        (exchange,) = exchanges(child)

    assert (done.returncode, seen, done.stdout == big) == (0, [True], True)
    assert (len(exchange.request.body), len(exchange.answer.body)) == (size, size)


def test_connections_are_kept_alive(model: ModelServer) -> None:
    """32 clients at once, each with 10 calls on one connection: all are answered, in order, and counted."""
    with behind(model, caps=Caps(fanout=None)) as child:

        def client(number: int) -> int:
            right = 0
            with open_socket(child.chat) as connection:
                for call in range(10):
                    text = b"%d-%d" % (number, call)
                    connection.sendall(request_bytes(child.chat, CHAT.replace(b"hi", text), bearer(child)))
                    right += b'"echo: ' + text + b'"' in read_one(connection)
            return right

        with ThreadPoolExecutor(32) as pool:
            right = list(pool.map(client, range(32)))
        samples = child.close().samples

    assert right == [10] * 32
    assert (samples["fanout"], samples["attempts"], len(model.generated)) == (320, 320, 320)
    assert samples["input_tokens"] == sum(entry.usage["input"] for entry in model.generated if entry.usage)


@pytest.mark.parametrize("method", ["HEAD", "GET", "DELETE", "OPTIONS", "PATCH"])
def test_every_method_passes(method: str) -> None:
    """Methods without a body, and HEAD with a length but no content, reach the upstream and come back as they are."""
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        connection.sendall(OK[:-2] if method == "HEAD" else OK)

    with raw_server(answer) as url, behind(url) as child:
        target = child.env["OPENAI_BASE_URL"] + "/files/a%2Fb?x=%20y&z"
        got = talk(target, headers=bearer(child), method=method)

    assert seen[0].startswith(method.encode() + b" /v1/files/a%2Fb?x=%20y&z HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 2\r\n" in got
    assert got.partition(b"\r\n\r\n")[2] == (b"" if method == "HEAD" else b"{}")


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ],
    ids=["TLS", "no HTTP", "a version nobody speaks", "two lengths"],
)
def test_what_is_no_http_is_refused(junk: bytes, model: ModelServer) -> None:
    """Bytes that are no request get a 400 or a closed connection; nothing is sent on, and the gateway lives on."""
    with behind(model) as child:
        with open_socket(child.chat) as connection:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            said = read_all(connection)
        assert child.ask()["choices"][0]["message"]["content"] == "echo: hi"

    assert said == b"" or said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert len(model.log) == 1
