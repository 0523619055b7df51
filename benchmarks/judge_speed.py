"""How long the judge of new draws takes: two limits, ten trials, one class, of a thousand to 100,000 tasks.

    python benchmarks/judge_speed.py [--tasks 1000 10000 100000] [--trials 10] [--repeat 3]

Told are seconds of CPU time, the least of the repeats, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from agent_draws import MEDIUM, Change, agent_of
from judged_runs import samples_of

from pytest_fanout.judge import compare


def main() -> None:
    """Time ``compare`` on drawn runs, unchanged and grown by a tenth, and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print("| tasks | trials | agent | CPU seconds | µs a task | verdict | peak memory of the process |")
    print("|---|---|---|---|---|---|---|")
    for tasks in args.tasks:
        for change in (Change(), Change(growth=0.10)):
            rng = np.random.default_rng(1)
            agent = agent_of(MEDIUM, tasks, rng)
            baseline = samples_of(agent.runs(args.trials, rng))
            measured = samples_of(agent.runs(args.trials, rng, change))
            seconds = []
            for _ in range(args.repeat):
                started = time.process_time()
                result = compare(baseline, measured, trials=args.trials)
                seconds.append(time.process_time() - started)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            least, trials = min(seconds), f"{args.trials} + {args.trials}"
            told = f"{least:.2f} | {1e6 * least / tasks:.0f} | {result.verdict} | {peak:,.0f} MB"
            print(f"| {tasks:,} | {trials} | {change.name} | {told} |", flush=True)


if __name__ == "__main__":
    main()
