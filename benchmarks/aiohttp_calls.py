"""What counting adds to one call by aiohttp, plain and streamed, and to one streamed chunk: CPU time.

Measured as ``per_call.py`` does it: counted and bare blocks alternate inside one run, on one session; the server is
another process.

    python benchmarks/aiohttp_calls.py [--pairs 60] [--calls 20]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from per_call import compare

CHUNKS = 500  # of a long answer of the server


async def read_whole(response: aiohttp.ClientResponse) -> None:
    await response.json()


async def read_lines(response: aiohttp.ClientResponse) -> None:
    async for _ in response.content:
        pass


async def read_chunks(response: aiohttp.ClientResponse) -> None:
    async for _ in response.content.iter_chunks():
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    command = [sys.executable, str(Path(__file__).with_name("answering.py"))]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1/chat/completions"
        with asyncio.Runner() as runner:
            session = runner.run(opened())
            try:
                measure(runner, session, url, options.pairs, options.calls)
            finally:
                runner.run(session.close())
    finally:
        server.stdin.close()
        server.wait(timeout=10)


async def opened() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


def measure(runner: asyncio.Runner, session: aiohttp.ClientSession, url: str, pairs: int, calls: int) -> None:
    def asking(
        context: int, read: Callable[[aiohttp.ClientResponse], Awaitable[None]], per: int = 1, **more: Any
    ) -> Callable[[], float]:
        messages = [{"role": "system", "content": "x" * context}, {"role": "user", "content": "Go on."}]
        body = {"model": "fixed", "messages": messages, **more}

        async def ask() -> float:
            begun = time.process_time()
            async with session.post(url, json=body) as response:
                await read(response)
            return (time.process_time() - begun) / per

        return lambda: runner.run(ask())

    for name, context in (("1 KB", 1_000), ("40 KB", 40_000)):
        compare(f"CPU of a call, {name} of context", asking(context, read_whole), pairs, calls)
        compare(f"CPU of a streamed call, {name} of context", asking(context, read_lines, stream=True), pairs, calls)
    compare("CPU of a streamed chunk", asking(1_000, read_chunks, CHUNKS, long=True), pairs, max(1, calls // 4))


if __name__ == "__main__":
    main()
