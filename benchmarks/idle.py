"""(a) What an installed but unused plugin costs: modules left at exit, and import time of its own.

Runs `pytest` on an empty folder in child processes, with and without the plugin, all other plugins off.

    python benchmarks/idle.py [--runs 20]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)")
AT_EXIT = "import atexit, os, sys; atexit.register(lambda: open(os.environ['OUT'], 'w').write(' '.join(sys.modules)))"


def left_at_exit(folder: Path, *options: str) -> set[str]:
    """Modules that are loaded when pytest, run on an empty folder, ends."""
    (folder / "probe_at_exit.py").write_text(AT_EXIT, encoding="utf-8")
    out = folder / "modules.txt"
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder), "OUT": str(out)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "probe_at_exit", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 5:  # nothing collected: what an empty folder gives
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr[-2000:]}")
    return set(out.read_text(encoding="utf-8").split())


def own_time(modules: set[str]) -> int:
    """Microseconds that importing these modules takes, once pytest itself is there."""
    code = f"import pytest; import {', '.join(sorted(modules))}"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    after_pytest = done.stderr.split("| pytest\n", 1)[1]
    return sum(int(own) for own, _, _ in LINE.findall(after_pytest))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        more = left_at_exit(folder, "-p", "fanout") - left_at_exit(folder)
    times = [own_time(more) for _ in range(runs)]
    print(f"modules more at exit: {len(more)} ({', '.join(sorted(more))})")
    print(
        f"own import time: median {statistics.median(times) / 1000:.2f} ms over {runs} runs"
        f" (lowest {min(times) / 1000:.2f}, highest {max(times) / 1000:.2f})"
    )


if __name__ == "__main__":
    main()
