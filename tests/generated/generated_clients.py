"""One request to a model by each client that agents use: sync or async, read whole, streamed, or closed early.

Every function takes an Op, sends it, and swallows what the server or the network does to it: an agent that goes on
whatever happens is the hardest one to count.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

REAL_KEY = "key-of-the-generated-agents"
KEY_VARIABLE = "OPENAI_API_KEY"
HOW = ("whole", "stream", "early")


@dataclass(frozen=True)
class Op:
    """One thing that an agent asks of the server.

    ``fault``: none, 429 (refused once, then answered), 500 (always), cut (dies in the middle of the answer), redirect.
    ``what``: model, tool_call (the model asks for two tools), tool (an HTTP tool), count, models, embed.
    """

    client: str
    how: str
    fault: str
    what: str
    text: str
    url: str  # of the server, without path

    @property
    def tries(self) -> int:
        """How often an agent that retries by itself sends the request."""
        return 2 if self.fault == "429" else 1

    @property
    def path(self) -> str:
        path = {
            "tool": "/tool/search", "count": "/v1/messages/count_tokens", "models": "/v1/models",
            "embed": "/v1/embeddings",
        }.get(self.what, "/v1/chat/completions")  # fmt: skip
        return "/redirect" + path if self.fault == "redirect" else path

    @property
    def method(self) -> str:
        return "GET" if self.what == "models" else "POST"

    @property
    def marked(self) -> str:
        return f"{self.text} [{self.fault}] [{self.what}]"

    @property
    def body(self) -> dict[str, Any]:
        if self.what in ("tool", "models"):
            return {"query": self.text}
        if self.what == "embed":
            return {"model": "e", "input": self.text}
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": self.marked}]}
        if self.how != "whole" and self.what != "count":
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    @property
    def payload(self) -> bytes:
        return json.dumps(self.body).encode() if self.method == "POST" else b""

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {os.environ[KEY_VARIABLE]}", "content-type": "application/json"}


SyncClient = Callable[[Op], None]
AsyncClient = Callable[[Op], Awaitable[None]]


@cache
def tls() -> ssl.SSLContext:
    """One for all clients: nothing here speaks TLS, and making one for each would be most of the time spent."""
    return ssl.create_default_context()


def swallowing(send: SyncClient) -> SyncClient:
    def sent(op: Op) -> None:
        for _ in range(op.tries):
            try:
                send(op)
                return
            except Exception:
                continue

    return sent


def async_swallowing(send: AsyncClient) -> AsyncClient:
    async def sent(op: Op) -> None:
        for _ in range(op.tries):
            try:
                await send(op)
                return
            except Exception:
                continue

    return sent


# --- plain HTTP clients -------------------------------------------------------------------------------------


def _of_httpx(module: Any) -> SyncClient:
    def send(op: Op) -> None:
        with module.Client(follow_redirects=True, timeout=20, verify=tls()) as client:
            with client.stream(op.method, op.url + op.path, content=op.payload, headers=op.headers) as answer:
                answer.raise_for_status()
                for _ in answer.iter_bytes():
                    if op.how == "early":
                        break

    return send


def _of_async_httpx(module: Any) -> AsyncClient:
    async def send(op: Op) -> None:
        async with module.AsyncClient(follow_redirects=True, timeout=20, verify=tls()) as client:
            async with client.stream(op.method, op.url + op.path, content=op.payload, headers=op.headers) as answer:
                answer.raise_for_status()
                async for _ in answer.aiter_bytes():
                    if op.how == "early":
                        break

    return send


def _requests(op: Op) -> None:
    import requests

    with requests.request(
        op.method, op.url + op.path, data=op.payload, headers=op.headers, stream=op.how != "whole", timeout=20
    ) as answer:
        answer.raise_for_status()
        for _ in answer.iter_content(64):
            if op.how == "early":
                break


def _urllib3(op: Op) -> None:
    import urllib3

    with urllib3.PoolManager() as pool:
        answer = pool.request(
            op.method, op.url + op.path, body=op.payload, headers=op.headers, preload_content=op.how == "whole",
            retries=urllib3.Retry(total=3, redirect=3, status=0), timeout=20,
        )  # fmt: skip
        if op.how != "whole":
            for _ in answer.stream(64):
                if op.how == "early":
                    break
            answer.close()
        if answer.status >= 400:
            raise OSError(answer.status)


def _urllib(op: Op) -> None:
    class Following(urllib.request.HTTPRedirectHandler):
        """The library's own follows no 307 of a POST."""

        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            return urllib.request.Request(newurl, data=req.data, headers=dict(req.header_items()), method=req.method)

    request = urllib.request.Request(
        op.url + op.path, data=op.payload or None, headers=op.headers, method=op.method
    )  # fmt: skip
    with urllib.request.build_opener(Following).open(request, timeout=20) as answer:
        if op.how == "early":
            answer.read(16)
        elif op.how == "stream":
            for _ in answer:
                continue
        else:
            answer.read()


def _http_client(op: Op) -> None:
    parts = urlsplit(op.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        path = op.path
        for _ in range(3):
            connection.request(op.method, path, body=op.payload or None, headers=op.headers)
            answer = connection.getresponse()
            if answer.status not in (307, 308):
                break
            answer.read()
            path = answer.headers["location"]
        if answer.status >= 400:
            answer.read()
            raise OSError(answer.status)
        answer.read(16 if op.how == "early" else None)
    finally:
        connection.close()


def _raw_socket(op: Op) -> None:
    parts = urlsplit(op.url)
    head = "".join(f"{name}: {value}\r\n" for name, value in op.headers.items())
    head = f"{op.method} {op.path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}content-length: {len(op.payload)}"
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=20) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + op.payload)
        while raw.recv(65536):
            if op.how == "early":
                break


async def _aiohttp(op: Op) -> None:
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:
        async with session.request(op.method, op.url + op.path, data=op.payload, headers=op.headers) as answer:
            answer.raise_for_status()
            if op.how == "whole":
                await answer.read()
                return
            async for _ in answer.content.iter_any():
                if op.how == "early":
                    break


# --- SDKs ---------------------------------------------------------------------------------------------------


def _openai(op: Op) -> None:
    import openai

    with openai.OpenAI(base_url=op.url + "/v1", http_client=openai.DefaultHttpxClient(verify=tls())) as client:
        if op.how == "whole":
            client.chat.completions.create(**op.body)
            return
        with client.chat.completions.create(**op.body) as stream:
            for _ in stream:
                if op.how == "early":
                    break


def _openai_responses(op: Op) -> None:
    import openai

    with openai.OpenAI(base_url=op.url + "/v1", http_client=openai.DefaultHttpxClient(verify=tls())) as client:
        if op.how == "whole":
            client.responses.create(model="m", input=op.marked)
            return
        with client.responses.create(model="m", input=op.marked, stream=True) as stream:
            for _ in stream:
                if op.how == "early":
                    break


def _anthropic(op: Op) -> None:
    import anthropic

    with anthropic.Anthropic(
        base_url=op.url, api_key=os.environ[KEY_VARIABLE], http_client=anthropic.DefaultHttpxClient(verify=tls())
    ) as client:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": op.body["messages"]}
        if op.how == "whole":
            client.messages.create(**asked)
            return
        with client.messages.create(**asked, stream=True) as stream:
            for _ in stream:
                if op.how == "early":
                    break


async def _async_openai(op: Op) -> None:
    import openai

    async with openai.AsyncOpenAI(
        base_url=op.url + "/v1", http_client=openai.DefaultAsyncHttpxClient(verify=tls())
    ) as client:
        if op.how == "whole":
            await client.chat.completions.create(**op.body)
            return
        async with await client.chat.completions.create(**op.body) as stream:
            async for _ in stream:
                if op.how == "early":
                    break


async def _async_anthropic(op: Op) -> None:
    import anthropic

    async with anthropic.AsyncAnthropic(
        base_url=op.url, api_key=os.environ[KEY_VARIABLE], http_client=anthropic.DefaultAsyncHttpxClient(verify=tls())
    ) as client:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": op.body["messages"]}
        if op.how == "whole":
            await client.messages.create(**asked)
            return
        async with await client.messages.create(**asked, stream=True) as stream:
            async for _ in stream:
                if op.how == "early":
                    break


#: SDKs retry by themselves, know no redirect of ours, and are only asked for model calls.
SDKS = frozenset({"openai", "openai-responses", "anthropic", "async openai", "async anthropic"})


def sync_clients() -> dict[str, SyncClient]:
    import httpx
    import httpx2

    plain = {
        "httpx": _of_httpx(httpx),
        "httpx2": _of_httpx(httpx2),
        "requests": _requests,
        "urllib3": _urllib3,
        "urllib": _urllib,
        "http.client": _http_client,
        "raw socket": _raw_socket,
    }
    sdks = {"openai": _openai, "openai-responses": _openai_responses, "anthropic": _anthropic}
    return {name: swallowing(client) for name, client in (plain | sdks).items()}


def async_clients() -> dict[str, AsyncClient]:
    import httpx
    import httpx2

    return {
        "async httpx": async_swallowing(_of_async_httpx(httpx)),
        "async httpx2": async_swallowing(_of_async_httpx(httpx2)),
        "aiohttp": async_swallowing(_aiohttp),
        "async openai": async_swallowing(_async_openai),
        "async anthropic": async_swallowing(_async_anthropic),
    }
