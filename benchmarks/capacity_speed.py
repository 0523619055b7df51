"""How long the windows of capacity take, and how near they are to windows whose arrivals are each drawn.

    python benchmarks/capacity_speed.py [--windows 10000] [--classes 5] [--tasks 100] [--per-second 20]

Told are seconds of CPU time, the least of the repeats, the memory that the windows add to the process at their peak,
and the relative difference of p50, p95 and p99 of the fleet's GPU-seconds from exact thinning.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from pytest_fanout.capacity.windows import Rows, draw, summed, thinned

#: As many quantities of a task as a plan has.
QUANTITIES = 9


def rows_of(tasks: int, seed: int) -> Rows:
    """Tasks of a heavy tail: 95 % of them with 6 calls on average, 5 % with 46; costs in proportion, give or take."""
    rng = np.random.default_rng(seed)
    calls = np.where(rng.random(tasks) < 0.05, rng.geometric(1 / 46, tasks), rng.geometric(1 / 6, tasks))
    costs = np.outer(calls * rng.lognormal(0.0, 0.5, tasks), rng.uniform(0.5, 1.5, QUANTITIES))
    return Rows(tuple(f"t{n}" for n in range(tasks)), (1.0,) * tasks, tuple(map(tuple, costs.tolist())))


def main() -> None:
    """Time the windows of anchor and run, and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--per-second", type=float, default=20.0)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    classes = [rows_of(args.tasks, seed) for seed in range(args.classes)]
    draw("warm", (classes[0],), args.per_second, windows=10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("| sides | CPU seconds | memory | p50 | p95 | p99 |")
    print("|---|---|---|---|---|---|")
    for sides in (1, 2):
        seconds, fleet = [], np.zeros(0)
        for _ in range(args.repeat):
            started = time.process_time()
            made = [
                draw(f"class-{number}", (rows,) * sides, args.per_second, windows=args.windows)
                for number, rows in enumerate(classes)
            ]
            fleet = summed([each[0] for each in made]).rate[:, 0]
            seconds.append(time.process_time() - started)
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        exact = sum(
            thinned(rows, args.per_second, windows=4 * args.windows, seed=number)[:, 0]
            for number, rows in enumerate(classes)
        )
        apart = [float(np.quantile(fleet, share) / np.quantile(exact, share) - 1) for share in (0.5, 0.95, 0.99)]
        print(f"| {sides} | {min(seconds):.2f} | {memory:.0f} MB | " + " | ".join(f"{x:+.2%}" for x in apart) + " |")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
