"""A model server that costs nearly nothing: fixed answers in the OpenAI chat dialect, asyncio, TCP_NODELAY.

    python benchmarks/answering.py        prints its port, answers until its input is closed

A request with `"stream":true` in its body hears one chunk at once and the rest 5 ms later; with `"long": true` instead
it hears 500 chunks of text, and its usage, at once.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

USAGE = {"prompt_tokens": 200, "completion_tokens": 8, "total_tokens": 208}
PLAIN = json.dumps(
    {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fixed",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "eight words"}}],
        "usage": USAGE,
    }
).encode()  # fmt: skip
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(PLAIN)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(delta: dict[str, str], **more: object) -> bytes:
    document = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fixed",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more,
    }  # fmt: skip
    data = b"data: " + json.dumps(document).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


FIRST = event({"role": "assistant", "content": "eight"})
REST = event({"content": " words"}) + event({}, usage=USAGE) + b"e\r\ndata: [DONE]\n\n\r\n" + b"0\r\n\r\n"
LONG = event({"content": " word"}) * 500 + event({}, usage=USAGE) + b"e\r\ndata: [DONE]\n\n\r\n" + b"0\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            if b"transfer-encoding: chunked" in lines:
                body = await reader.readuntil(b"\r\n0\r\n\r\n")
            else:
                lengths = (int(line[15:]) for line in lines if line.startswith(b"content-length:"))
                body = await reader.readexactly(next(lengths, 0))
            if b'"long": true' in body:
                writer.write(STREAM_HEAD + LONG)
            elif b'"stream":true' in body or b'"stream": true' in body:
                writer.write(STREAM_HEAD + FIRST)
                await asyncio.sleep(0.005)
                writer.write(REST)
            else:
                writer.write(HEAD + PLAIN)
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
