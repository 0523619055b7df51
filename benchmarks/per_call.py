"""(b, c) What counting adds to one call of the OpenAI SDK: CPU time, and the wait for the first streamed chunk.

Counted and bare calls alternate in small blocks inside one run of one process, on one client; the server is another
process. Reported: the median of the differences of neighbouring blocks, with its 95 % interval (order statistics).

    python benchmarks/per_call.py [--pairs 60] [--calls 20]
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import openai

from pytest_fanout.meter import Meter
from pytest_fanout.records import Caps, MeasureRules


@contextmanager
def counted() -> Iterator[None]:
    """A live meter with one task open; every cap is on, so that it is checked, and too high to be reached."""
    high = 1 << 40
    unreached = Caps(fanout=high, attempts=high, tokens=high, tool_calls=high, wall_seconds=900)
    meter = Meter(mode="live", measure=MeasureRules(seal_keys=False), hosts=())
    meter.start()
    try:
        scope = meter.open_task("bench", "block", 1, unreached)
        try:
            yield
        finally:
            meter.close_task(scope)
    finally:
        meter.stop()


def block(call: Callable[[], float], calls: int) -> float:
    """The mean of ``calls`` measurements, in microseconds, without the collector in between."""
    gc.collect()
    gc.disable()
    try:
        return sum(call() for _ in range(calls)) / calls * 1e6
    finally:
        gc.enable()


def compare(name: str, call: Callable[[], float], pairs: int, calls: int) -> None:
    """Print the median difference of counted and bare blocks; which of the two comes first alternates."""
    bare, differences = [], []
    block(call, calls)
    for pair in range(pairs):
        values = {}
        for is_counted in (False, True) if pair % 2 else (True, False):
            if is_counted:
                with counted():
                    call()  # the first call under new hooks warms them up
                    values[True] = block(call, calls)
            else:
                call()
                values[False] = block(call, calls)
        bare.append(values[False])
        differences.append(values[True] - values[False])
    differences.sort()
    reach = math.ceil(1.96 * math.sqrt(pairs) / 2)
    low, high = differences[max(0, pairs // 2 - reach)], differences[min(pairs - 1, pairs // 2 + reach)]
    print(f"{name}: bare {statistics.median(bare):.0f} µs, counted {statistics.median(differences):+.0f} µs"
          f" (95 %: {low:+.0f} to {high:+.0f}; {pairs} pairs of {calls} calls)", flush=True)  # fmt: skip


@contextmanager
def answering() -> Iterator[str]:
    """The base URL of a model server in another process."""
    command = [sys.executable, str(Path(__file__).with_name("answering.py"))]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    finally:
        server.stdin.close()
        server.wait(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    with answering() as base_url:
        client = openai.OpenAI(api_key="bench", base_url=base_url, max_retries=0)

        def plain(context: int) -> Callable[[], float]:
            messages = [{"role": "system", "content": "x" * context}, {"role": "user", "content": "Go on."}]

            def call() -> float:
                begun = time.process_time()
                client.chat.completions.create(model="fixed", messages=messages)  # type: ignore[arg-type]
                return time.process_time() - begun

            return call

        def first_chunk() -> float:
            begun = time.perf_counter()
            stream = client.chat.completions.create(
                model="fixed", messages=[{"role": "user", "content": "Go on."}], stream=True
            )
            next(iter(stream))
            waited = time.perf_counter() - begun
            for _ in stream:
                pass
            return waited

        compare("CPU of a call, 1 KB of context", plain(1_000), options.pairs, options.calls)
        compare("CPU of a call, 40 KB of context", plain(40_000), options.pairs, options.calls)
        compare("wait for the first streamed chunk", first_chunk, options.pairs, options.calls)


if __name__ == "__main__":
    main()
