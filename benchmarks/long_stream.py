"""(e) A stream of 100,000 chunks through the hook of httpx2: CPU time a chunk, and the memory that it takes.

Counted and bare streams alternate in one run of one process; the chunks come from memory, without a network. The
memory is the largest growth of the process during one stream, measured in a process of its own.

    python benchmarks/long_stream.py [--chunks 100000] [--pairs 10]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx2
from per_call import counted

CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}\n\n'
)
END = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}\n\ndata: [DONE]\n\n'
)


class Words(httpx2.SyncByteStream):
    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.chunks):
            yield CHUNK
        yield END


def read(chunks: int) -> float:
    """CPU seconds to read one stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Words(chunks))

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as client:
        begun = time.process_time()
        with client.stream("POST", "http://model.test/v1/chat/completions", json={"model": "m"}) as response:
            for _ in response.iter_raw():
                pass
        return time.process_time() - begun


def growth_kb(chunks: int) -> int:
    """By how much one counted stream raises the peak of this process's memory."""
    with counted():
        read(1_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        read(chunks)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--growth", action="store_true", help="only print the growth in KB")
    options = parser.parse_args()
    if options.growth:
        print(growth_kb(options.chunks))
        return
    read(1_000)
    bare, more = [], []
    for _ in range(options.pairs):
        bare.append(read(options.chunks) / options.chunks * 1e6)
        with counted():
            more.append(read(options.chunks) / options.chunks * 1e6 - bare[-1])
    print(f"a chunk: bare {statistics.median(bare):.2f} µs, counted {statistics.median(more):+.2f} µs"
          f" ({min(more):+.2f} to {max(more):+.2f}; {options.pairs} pairs of {options.chunks} chunks)")  # fmt: skip
    for chunks in (options.chunks // 10, options.chunks):
        grown = subprocess.run(
            [sys.executable, __file__, "--growth", "--chunks", str(chunks)], capture_output=True, text=True, check=True
        )
        print(f"memory of one counted stream of {chunks} chunks ({chunks * len(CHUNK) / 1e6:.1f} MB):"
              f" {int(grown.stdout):+d} KB")  # fmt: skip


if __name__ == "__main__":
    main()
