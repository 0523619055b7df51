"""How long `fanout-capacity traces` takes on 10 and 40 million rows of calls, and how much memory.

Rows are made in Parquet in a temporary folder and removed afterwards. Each size runs in a process of its own; memory is
the peak of its resident set. With --rows tasks there is one row a task in place of one a call.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CALLS = """
    SELECT CAST(hash(i // 8) AS VARCHAR) AS task, 'class' || (i // 8) % 5 AS agent, 'u' || (i // 8) % 9973 AS user,
        TIMESTAMP '2026-06-01' + to_milliseconds(i * 2419200000 // {rows}) AS started_at,
        TIMESTAMP '2026-06-01 00:00:02' + to_milliseconds(i * 2419200000 // {rows}) AS ended_at,
        CASE WHEN i % 8 = 7 THEN 'tool' ELSE 'model' END AS kind,
        CAST(500 + hash(i) % 20000 AS BIGINT) AS input_tokens, CAST(10 + hash(i + 1) % 900 AS BIGINT) AS output_tokens
    FROM range({rows}) AS t(i)
"""
_TASKS = """
    SELECT CAST(hash(i) AS VARCHAR) AS task, 'class' || i % 5 AS agent, 'u' || i % 9973 AS user,
        TIMESTAMP '2026-06-01' + to_milliseconds(i * 2419200000 // {rows}) AS started_at,
        1 + CAST(hash(i) % 40 AS BIGINT) AS fanout, CAST(hash(i + 3) % 30 AS BIGINT) AS tool_calls,
        CAST(500 + hash(i + 1) % 900000 AS BIGINT) AS input_tokens,
        CAST(10 + hash(i + 2) % 9000 AS BIGINT) AS output_tokens,
        CAST(hash(i + 4) % 240000 AS BIGINT) AS duration_ms
    FROM range({rows}) AS t(i)
"""


def make(path: Path, shape: str, rows: int) -> None:
    import duckdb

    query = (_CALLS if shape == "calls" else _TASKS).format(rows=rows)
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def measure(path: Path, folder: Path) -> tuple[float, float, int, int]:
    """Wall seconds, CPU seconds, peak MB, model calls counted."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = (
        "import resource, sys; from pytest_fanout.cli.capacity import main\n"
        "try: main()\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    words = [sys.executable, "-W", "ignore", "-c", code, "traces", str(path), "--format", "json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    document = json.loads(done.stdout)
    return time.perf_counter() - start, cpu, int(done.stderr.split()[-1]) // 1024, document["calls"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=float, nargs="+", default=[10, 40])
    arguments.add_argument("--rows", choices=["calls", "tasks"], default="calls")
    given = arguments.parse_args()
    found = []
    for millions in given.millions:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "rows.parquet"
            make(path, given.rows, int(millions * 1_000_000))
            size = path.stat().st_size / 1e6
            load = os.getloadavg()[0]
            wall, cpu, peak, calls = measure(path, Path(name))
            found.append((millions, cpu))
            print(
                f"{millions:g} million rows of {given.rows} ({size:,.0f} MB): {wall:,.1f} s wall, {cpu:,.1f} s CPU, "
                f"{peak:,} MB at most, {calls:,} calls; load {load:.1f}",
                flush=True,
            )
    if len(found) > 1:
        (low, before), (high, after) = found[0], found[-1]
        print(f"slope: {(after - before) / (high - low):.2f} s CPU per million rows")


if __name__ == "__main__":
    main()
