"""A client that no hook can know: HTTP by hand, on sockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any

from metering import chat


def request(url: str, **headers: str) -> bytes:
    """One chat request, as bytes; by default with the key that the environment holds."""
    body = json.dumps(chat()).encode()
    given = {"authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}", **headers}
    head = ["POST /v1/chat/completions HTTP/1.1", f"host: {url.removeprefix('http://')}", "connection: close",
            f"content-length: {len(body)}", "content-type: application/json"]  # fmt: skip
    return "\r\n".join([*head, *(f"{name}: {value}" for name, value in given.items()), "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def talk(connection: Any, url: str) -> int:
    """Ask on a connected socket; the HTTP status of the answer."""
    connection.sendall(request(url))
    answer = b""
    while data := connection.recv(1 << 16):
        answer += data
    return status_of(answer)


def call(url: str, host: str = "127.0.0.1", family: int = socket.AF_INET) -> int:
    """Ask by a socket of one's own."""
    with socket.socket(family) as connection:
        connection.connect((host, int(url.rpartition(":")[2])))
        return talk(connection, url)


async def call_by_streams(url: str, host: str = "127.0.0.1") -> int:
    """Ask by the streams of asyncio."""
    reader, writer = await asyncio.open_connection(host, int(url.rpartition(":")[2]))
    writer.write(request(url))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return status_of(answer)
