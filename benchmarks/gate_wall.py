"""(d) Time of `pytest --fanout-budget` on the demo agents of this repository, in replay.

python benchmarks/gate_wall.py [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    walls, cpus = [], []
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fanout-budget"]
        command.append(f"--fanout-report={report}")
        for _ in range(runs):
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            begun = time.perf_counter()
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            walls.append(time.perf_counter() - begun)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpus.append(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)
            if done.returncode:
                raise SystemExit(f"the gate ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        facts = json.loads(report.read_text(encoding="utf-8"))
    ran, calls = facts["session"]["ran"], facts["totals"]["calls"]
    print(
        f"{ran} trials, {calls} model calls replayed: wall {statistics.median(walls):.1f} s,"
        f" CPU {statistics.median(cpus):.1f} s (median of {runs}; lowest wall {min(walls):.1f} s)"
    )


if __name__ == "__main__":
    main()
