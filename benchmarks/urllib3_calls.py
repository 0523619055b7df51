"""(b, e) What counting adds on urllib3 and http.client: to a call, 1 KB and 40 KB sent, whole and streamed; to a chunk.

As per_call.py: blocks of counted and bare calls alternate in one run of one process; the server is another process. For
the chunks there is no server: they come from memory, in the transfer coding.

    python benchmarks/urllib3_calls.py [--pairs 40] [--calls 50] [--only requests]
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
import requests
import urllib3
from botocore.config import Config
from per_call import answering, compare, counted

CHUNKS = 20_000
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + (b"%x\r\n%b\r\n" % (len(EVENT), EVENT)) * CHUNKS
    + b"0\r\n\r\n"
)


def payload(context: int, *, stream: bool) -> bytes:
    messages = [{"role": "system", "content": "x" * context}, {"role": "user", "content": "Go on."}]
    return json.dumps({"model": "fixed", "messages": messages, "stream": stream}).encode()


def by_requests(base_url: str) -> Callable[[bytes], None]:
    session = requests.Session()
    session.trust_env = False  # reading the environment for proxies would take as long as all else

    def ask(body: bytes) -> None:
        with session.post(base_url + "/chat/completions", data=body, stream=True) as answer:
            for _ in answer.iter_content(None):
                pass

    return ask


def by_urllib3(base_url: str) -> Callable[[bytes], None]:
    pools = urllib3.PoolManager()

    def ask(body: bytes) -> None:
        answer = pools.request("POST", base_url + "/chat/completions", body=body, preload_content=False)
        for _ in answer.stream():
            pass

    return ask


def by_urllib_request(base_url: str) -> Callable[[bytes], None]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(body: bytes) -> None:
        with opener.open(base_url + "/chat/completions", data=body) as answer:
            answer.read()

    return ask


def by_boto3(base_url: str) -> Callable[[bytes], None]:
    named = {"region_name": "us-east-1", "aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "example"}
    url, config = base_url.removesuffix("/v1"), Config(parameter_validation=False)
    client = boto3.client("bedrock-runtime", endpoint_url=url, config=config, **named)

    def ask(body: bytes) -> None:
        client.invoke_model(modelId="m", body=body)["body"].read()

    return ask


STACKS = {"requests": by_requests, "urllib3": by_urllib3, "urllib.request": by_urllib_request, "boto3": by_boto3}


def timed(ask: Callable[[bytes], None], body: bytes) -> Callable[[], float]:
    def call() -> float:
        begun = time.process_time()
        ask(body)
        return time.process_time() - begun

    return call


class Memory:
    """A socket that says ``STREAM``."""

    def makefile(self, *args: Any, **more: Any) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(STREAM), 65536)  # type: ignore[arg-type]

    def sendall(self, data: Any) -> None:
        """Nobody listens."""

    def settimeout(self, timeout: Any) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is open."""


def chunks_by_urllib3() -> None:
    class Connection(urllib3.connection.HTTPConnection):
        def connect(self) -> None:
            self.sock = Memory()  # type: ignore[assignment]

    pool = urllib3.HTTPConnectionPool("model.test")
    pool.ConnectionCls = Connection
    for _ in pool.request("POST", "/v1/chat/completions", body=b"{}", preload_content=False).stream():
        pass


def chunks_by_http_client() -> None:
    connection = http.client.HTTPConnection("model.test")
    connection.sock = Memory()
    connection.request("POST", "/v1/chat/completions", b"{}")
    answer = connection.getresponse()
    while answer.read1():
        pass


def of_a_chunk(name: str, read: Callable[[], None], pairs: int) -> None:
    def a_chunk() -> float:
        begun = time.process_time()
        read()
        return (time.process_time() - begun) / CHUNKS * 1e6

    bare, more = [], []
    for _ in range(pairs):
        bare.append(a_chunk())
        with counted():
            more.append(a_chunk() - bare[-1])
    print(f"a chunk, {name}: bare {statistics.median(bare):.2f} µs, counted {statistics.median(more):+.2f} µs"
          f" ({min(more):+.2f} to {max(more):+.2f}; {pairs} pairs of {CHUNKS} chunks)", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--only", choices=[*STACKS, "chunks"])
    options = parser.parse_args()
    with answering() as base_url:
        for name, make in STACKS.items():
            if options.only not in (None, name):
                continue
            ask = make(base_url)
            for size, text in ((1_000, "1 KB"), (40_000, "40 KB")):
                for stream, form in ((False, "whole"), (True, "streamed")):
                    body = payload(size, stream=stream)
                    compare(f"{name}, {form}, {text}", timed(ask, body), options.pairs, options.calls)
    if options.only in (None, "chunks"):
        of_a_chunk("urllib3", chunks_by_urllib3, 10)
        of_a_chunk("http.client", chunks_by_http_client, 10)


if __name__ == "__main__":
    main()
