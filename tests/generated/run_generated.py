"""Agents by seed; ends with 1 if one was counted wrong and green.

PYTHONPATH=tests python tests/generated/run_generated.py --first 1 --count 1000
"""

from __future__ import annotations

import argparse
from collections import Counter

from generated_agents import Outcome, World, run_plan, tally
from generated_plans import ASYNC_CARRIERS, SYNC_CARRIERS, make_plan
from model_server import ModelServer


def run(first: int, count: int, without: frozenset[str] = frozenset()) -> list[Outcome]:
    """The agents of ``count`` seeds from ``first`` on, one after the other."""
    carriers = frozenset(SYNC_CARRIERS) | frozenset(ASYNC_CARRIERS)
    with ModelServer() as server:
        world = World(server)
        try:
            sync = [name for name in world.sync if name not in without]
            asyncs = [name for name in world.asyncs if name not in without]
            plans = (
                make_plan(seed, server.base_url, sync, asyncs, carriers - without)
                for seed in range(first, first + count)
            )
            return [run_plan(world, plan) for plan in plans]
        finally:
            world.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--without", action="append", default=[], help="a client or carrier to leave out")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    outcomes = run(arguments.first, arguments.count, frozenset(arguments.without))
    for outcome in outcomes:
        if outcome.kind == "silent" or (arguments.verbose and outcome.kind != "exact"):
            print(f"{outcome.kind}: {outcome.plan}\n  server: {outcome.truth}\n  counted: {outcome.counted}")
            for problem in outcome.problems:
                print(f"  {problem.slug}: {problem.text.splitlines()[0][:150]}")
    kinds = tally(outcomes)
    reasons = Counter(slug for o in outcomes if not o.is_green for slug in {problem.slug for problem in o.problems})
    needless = sum(not o.is_green and o.is_exact for o in outcomes)
    last = arguments.first + arguments.count - 1
    print(f"agents of the seeds {arguments.first} to {last}: {kinds['exact']} exact, {kinds['not green']} not green, "
          f"{kinds['silent']} silently wrong")  # fmt: skip
    print("not green by reason: " + ", ".join(f"{slug} {n}" for slug, n in reasons.most_common()))
    print(f"not green although the numbers were right: {needless}")
    print(f"model calls that the server answered: {sum(o.truth.calls for o in outcomes)}")
    return 1 if kinds["silent"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
