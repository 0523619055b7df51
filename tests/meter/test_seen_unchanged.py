"""The agent sees exactly what it would have seen without us, whatever a server sends; and we count what it was."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import httpx2
import pytest
from metering import metering, run_task
from other_clients import OTHER_CLIENTS
from raw_server import HANG_UP, RawServer, chunked, whole

ANSWER = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m-x",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Grüße"}}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
}  # fmt: skip
PLAIN = json.dumps(ANSWER).encode()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c1", "model": "m-x", **fields}).encode() + b"\n\n"


TEXT = event(choices=[{"index": 0, "delta": {"content": "word"}, "finish_reason": None}])
STOP = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
USAGE = event(choices=[], usage={"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16})
DONE = b"data: [DONE]\n\n"
STREAM = TEXT * 3 + STOP + USAGE + DONE
#: The usage event with its data split over lines, as a JSON text may be.
SPLIT = b'data: {"id":"c1","choices":[],\ndata: "usage":{"prompt_tokens":11,\ndata: "completion_tokens":5}}\n\n'

#: name -> (what the server sends, usage source, input tokens). Tokens are exact or not known; never something else.
ANSWERS: dict[str, tuple[Sequence[bytes], str | None, int | None]] = {
    "whole": (whole(PLAIN), "final", 11),
    "byte by byte": ([bytes([byte]) for byte in whole(PLAIN)[0]], "final", 11),
    "gzip": (whole(gzip.compress(PLAIN), "content-encoding: gzip"), "final", 11),
    "deflate": (whole(zlib.compress(PLAIN), "content-encoding: deflate"), "final", 11),
    "said to be gzip": (whole(PLAIN, "content-encoding: gzip"), None, None),
    "gzip cut off": (whole(gzip.compress(PLAIN)[:40], "content-encoding: gzip"), None, None),
    "said twice to be gzip": (whole(gzip.compress(PLAIN), "content-encoding: gzip", "x: 1"), "final", 11),
    "unknown coding": (whole(PLAIN, "content-encoding: x-mine"), "final", 11),
    "types twice": (whole(PLAIN, "content-type: text/html"), "final", 11),
    "a stream said to be JSON": (whole(STREAM), "final", 11),
    "JSON said to be a stream": (whole(PLAIN, kind="text/event-stream"), "final", 11),
    "no type": (whole(PLAIN, kind=""), "final", 11),
    "not UTF-8": (whole(PLAIN.replace(b"Gr\\u00fc\\u00dfe", b"\xff\xfe\xfa")), "final", 11),
    "UTF-16": (whole(json.dumps(ANSWER).encode("utf-16")), None, None),
    "empty": (whole(b""), "missing", None),
    "not JSON": (whole(b"<html>busy</html>"), "missing", None),
    "deep": (whole(b"[" * 100_000), "missing", None),
    "shorter than said": ([whole(PLAIN)[0][:-20]], None, None),
    "hangs up at once": ([HANG_UP], "none", None),
    "hangs up in the head": ([b"HTTP/1.1 200 OK\r\ncontent-", HANG_UP], "none", None),
    "not HTTP": ([b"SSH-2.0-OpenSSH_9.9\r\n\r\n"], "none", None),
    "a stream": (chunked(TEXT, TEXT, STOP, USAGE, DONE), "final", 11),
    "a stream with CR LF": (chunked(STREAM.replace(b"\n", b"\r\n")), "final", 11),
    "a stream in odd pieces": (chunked(*(STREAM[at : at + 7] for at in range(0, len(STREAM), 7))), "final", 11),
    "a stream with comments": (chunked(b": hello\n\n", TEXT, b": ping\n\n", STOP, USAGE, DONE), "final", 11),
    "a stream with split data": (chunked(TEXT, STOP, SPLIT, DONE), "final", 11),
    "a stream in gzip": (chunked(gzip.compress(STREAM), headers=["content-encoding: gzip"]), "final", 11),
    "a stream without usage": (chunked(TEXT, STOP, DONE), "missing", None),
    "a stream cut between events": ([*chunked(TEXT, TEXT)[:-1], HANG_UP], "missing", None),
    "a stream cut in a chunk": ([*chunked(TEXT)[:-1], b"40\r\ndata: {", HANG_UP], "missing", None),
    "a stream that ends early in order": (chunked(TEXT, TEXT), "missing", None),
    "429 in HTML": (whole(b"<html>", status="429 Too Many Requests", kind="text/html"), "none", None),
    "500 without a body": (whole(b"", status="500 Oops"), "none", None),
    "204": ([b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"], None, None),
    "early hints": ([b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n", *whole(PLAIN)], "final", 11),
    "header twice": (whole(PLAIN, "x-request-id: a", "x-request-id: b"), "final", 11),
    "Latin-1 header": (whole(PLAIN, "x-who: Grüße"), "final", 11),
}  # fmt: skip
PATH = "/v1/chat/completions"
BODY = json.dumps({"model": "m-x", "messages": [{"role": "user", "content": "hi"}]}).encode()
TLS = ssl.create_default_context()

Client = Callable[[str], Any]


def told(response: Any) -> list[Any]:
    return [response.status_code, sorted(response.headers.multi_items()), response.http_version]


def whole_by(module: Any) -> Client:
    def ask(url: str) -> Any:
        with module.Client(verify=TLS) as client:
            response = client.post(url, content=BODY)
            return [*told(response), response.content, response.text]

    return ask


def raw_by(module: Any) -> Client:
    def ask(url: str) -> Any:
        with module.Client(verify=TLS) as client, client.stream("POST", url, content=BODY) as response:
            return [*told(response), b"".join(response.iter_raw())]

    return ask


def lines_by_async(module: Any) -> Client:
    async def ask(url: str) -> Any:
        async with module.AsyncClient(verify=TLS) as client:
            async with client.stream("POST", url, content=BODY) as response:
                return [*told(response), [line async for line in response.aiter_lines()]]

    return lambda url: asyncio.run(ask(url))


CLIENTS: dict[str, Client] = {
    f"{module.__name__} {name}": make(module)
    for module in (httpx, httpx2)
    for name, make in (("whole", whole_by), ("raw", raw_by), ("async lines", lines_by_async))
} | OTHER_CLIENTS


def seen(client: Client, url: str) -> tuple[str, str]:
    """What the agent gets out of a call, exceptions included, as text that can be compared."""
    try:
        return "answer", repr(client(url))
    except Exception as error:
        return type(error).__module__ + "." + type(error).__qualname__, f"{error} from {error.__cause__!r:.300}"


@pytest.fixture(scope="module")
def server() -> Any:
    with RawServer({f"/{at}{PATH}": answer[0] for at, answer in enumerate(ANSWERS.values())}) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
@pytest.mark.parametrize("name", ANSWERS)
def test_the_agent_sees_what_it_would_have_seen(server: RawServer, client: Client, name: str) -> None:
    """Status, headers, body and exceptions are the same with a meter and without, and the call is counted as it was."""
    _, source, tokens = ANSWERS[name]
    if name == "early hints" and client in OTHER_CLIENTS.values():
        source = None  # http.client takes the hints for the answer
    url = f"{server.base_url}/{list(ANSWERS).index(name)}{PATH}"

    without = seen(client, url)
    with metering("live") as meter:
        result = run_task(meter, lambda: seen(client, url))

    assert result.value == without
    (call,) = result.measured.calls
    assert len(call.attempts) == 1
    if source is not None:
        assert (call.last.usage_source, call.last.input_tokens) == (source, tokens)
    else:  # what clients and codecs can make of it differs; it is never a wrong number
        assert call.last.input_tokens in (None, 11)
    if call.last.input_tokens is None and call.reached_model:
        assert result.measured.samples["input_tokens"] is None
        assert result.measured.unknown_usage == 1
