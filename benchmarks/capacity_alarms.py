"""How often limits on capacity are red or inconclusive for agents that did not change, and how often for grown ones.

    python benchmarks/capacity_alarms.py [--gates 200] [--tasks 20] [--trials 5] [--growth 0 0.25 0.5 1]

Each gate draws an anchor and a run of the *medium* agent of docs/statistics.md, new draws both, and asks the limit
``capacity.gpus_p95`` with an increase of 10 % and of 25 %, as a session does; nothing is called, and git plays no part.
The figures are those of the seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from agent_draws import SHAPES, Change, agent_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gate_world import make_run, redrawn  # noqa: E402

from pytest_fanout.config import Settings  # noqa: E402
from pytest_fanout.gate.capacity_limits import CapacityLimits  # noqa: E402
from pytest_fanout.gate.completeness import measure  # noqa: E402
from pytest_fanout.records import Run  # noqa: E402
from pytest_fanout.store.baselines import build_baseline  # noqa: E402
from pytest_fanout.store.budget import parse_budget  # noqa: E402

#: Demand that the *medium* agent needs some 100 GPUs for: whole replicas of one GPU are then 1 % of it.
FLEET = """schema = 1
[demand.support]
dau = 3_000_000
tasks_per_user_day = 4
peak_factor = 3
"""
BUDGET = """schema = 1
[default.limits]
"fanout.p95" = {{ max = 100_000 }}
"capacity.gpus_p95" = {{ increase = "{increase}" }}
"""
SETTINGS = Settings(
    root=Path("/p"), source="pyproject.toml", baselines=Path("/p/baselines"), recordings=Path("/p/r"), agents={}
)


class Committed:
    """Stands for a repository whose one commit holds the fleet."""

    def read(self, rev: str, where: str) -> bytes | None:
        return FLEET.encode() if where.endswith("fleet.toml") else None


def run_of(drawn: np.ndarray) -> Run:
    """A run with these calls and tokens, task by task and trial by trial; four of five tokens are input."""
    run = make_run({f"t{place:03d}": [int(calls) for calls in row[:, 0]] for place, row in enumerate(drawn)})
    tasks = []
    for task in run.tasks:
        whole = int(drawn[int(task.task[1:]), task.trial - 1, 1])
        given = 4 * whole // 5
        samples = {**task.samples, "input_tokens": given, "output_tokens": whole - given}
        tasks.append(replace(task, samples=samples))
    return replace(run, tasks=tuple(tasks))


def outcome(anchor: Run, run: Run, increase: str) -> str:
    """What the limit says: pass, regressed or inconclusive."""
    budget = parse_budget(BUDGET.format(increase=increase).encode())
    base = build_baseline(anchor, "support")
    limits = CapacityLimits(budget, run, {"support": base}, Committed(), ["rev"], SETTINGS)  # type: ignore[arg-type]
    priced = limits.judge("support", base, measure(run, "support", base, base, ()), None)
    return next((problem.verdict for problem in priced.problems), "pass")


def main() -> None:
    """Try each growth, and print a markdown table of shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--growth", type=float, nargs="+", default=[0.0, 0.25, 0.5, 1.0])
    args = parser.parse_args()
    print("| agent | limit | gates | red | inconclusive | pass |")
    print("|---|---|---|---|---|---|")
    for growth in args.growth:
        found = {increase: Counter[str]() for increase in ("10%", "25%")}
        for seed in range(args.gates):
            rng = np.random.default_rng(seed)
            agent = agent_of(SHAPES["medium"], args.tasks, rng)
            anchor = run_of(agent.runs(args.trials, rng))
            run = redrawn(run_of(agent.runs(args.trials, rng, Change(growth))))
            for increase, counted in found.items():
                counted[outcome(anchor, run, increase)] += 1
        for increase, counted in found.items():
            red, unclear, passed = (counted[name] / args.gates for name in ("regressed", "inconclusive", "pass"))
            print(
                f"| {Change(growth).name} | +{increase} | {args.gates} | {red:.1%} | {unclear:.1%} | {passed:.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
