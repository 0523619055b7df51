"""(b) What the hook of httpx and httpx2 adds to a bare call: sync and async, whole and streamed, 1 KB and 40 KB sent.

As per_call.py: blocks of counted and bare calls alternate in one run of one process; the server is another process.

    python benchmarks/httpx_calls.py [--pairs 40] [--calls 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import time
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
from per_call import answering, compare


def payload(context: int, *, stream: bool) -> bytes:
    messages = [{"role": "system", "content": "x" * context}, {"role": "user", "content": "Go on."}]
    return json.dumps({"model": "fixed", "messages": messages, "stream": stream}).encode()


def sync_call(client: Any, url: str, body: bytes) -> Callable[[], float]:
    def call() -> float:
        begun = time.process_time()
        with client.stream("POST", url, content=body) as response:
            for _ in response.iter_bytes():
                pass
        return time.process_time() - begun

    return call


def async_call(runner: asyncio.Runner, client: Any, url: str, body: bytes) -> Callable[[], float]:
    async def ask() -> None:
        async with client.stream("POST", url, content=body) as response:
            async for _ in response.aiter_bytes():
                pass

    def call() -> float:
        begun = time.process_time()
        runner.run(ask())
        return time.process_time() - begun

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    context = ssl.create_default_context()
    with answering() as base_url, asyncio.Runner() as runner:
        url = base_url + "/chat/completions"
        for module in (httpx, httpx2):
            with module.Client(verify=context) as client:
                aclient = module.AsyncClient(verify=context)
                for size, name in ((1_000, "1 KB"), (40_000, "40 KB")):
                    for stream, form in ((False, "whole"), (True, "streamed")):
                        body = payload(size, stream=stream)
                        title = f"{module.__name__}, {form}, {name}"
                        compare(f"{title}, sync", sync_call(client, url, body), options.pairs, options.calls)
                        compare(f"{title}, async", async_call(runner, aclient, url, body), options.pairs, options.calls)
                runner.run(aclient.aclose())


if __name__ == "__main__":
    main()
