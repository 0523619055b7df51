"""How often the control arm says rightly what is behind a growth: the code, the provider's model, or both.

Each world is one agent of ``agent_draws.py``: 20 tasks, an anchor of five runs. The base commit's agent (the control
arm) and the head's then run a few times on the same tasks, the environment having moved both and the code the head's
alone. What ``fanout-record`` and ``--fanout-control=20`` print is the label counted here. No model is called.

    python benchmarks/control_arm.py [--seed 9] [--worlds 400] [--trials 2 3]
"""

from __future__ import annotations

import argparse
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from agent_draws import SHAPES, Change, Ints, agent_of

from pytest_fanout.judge import TrialTable
from pytest_fanout.judge.causes import causes
from pytest_fanout.records import JudgeRules, Limit

TASKS = 20
BASE_RUNS = 5
LIMITS = (Limit("fanout", "p95", Fraction(1, 10), 1), Limit("tokens", "p95", Fraction(1, 10), 1))
LABELS = ("environment", "code", "both", "unknown")
#: growth by the environment, growth by the code; 0.5 is half as much again
CASES = ((0.0, 0.0), (0.25, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 0.25), (0.0, 0.5), (0.0, 1.0), (0.5, 0.5), (1.0, 1.0))


def table(runs: Ints) -> TrialTable:
    """Calls and tokens, shape (tasks, trials, 2), as the judge takes them; all tokens count as input."""
    samples: dict[str, Any] = {}
    for task, rows in enumerate(runs.tolist()):
        calls, tokens = zip(*rows, strict=True)
        samples[f"{task:03d}"] = {"fanout": calls, "input_tokens": tokens, "output_tokens": (0,) * len(calls)}
    trials = runs.shape[1]
    return TrialTable(samples, dict.fromkeys(samples, ("ok",) * trials), dict.fromkeys(samples, (True,) * trials))


def labels(shape: str, case: tuple[float, float], trials: int, worlds: int, seed: int) -> Counter[str]:
    """How often each label was given to the growth of model calls."""
    found: Counter[str] = Counter()
    by_environment, by_code = case
    for world in range(worlds):
        rng = np.random.default_rng((seed, world, sorted(SHAPES).index(shape)))
        agent = agent_of(SHAPES[shape], TASKS, rng)
        anchor = agent.runs(BASE_RUNS, rng)
        control = agent.runs(trials, rng, Change(by_environment))
        head = agent.runs(trials, rng, Change((1 + by_environment) * (1 + by_code) - 1))
        told = causes(table(anchor), table(head), table(control), LIMITS, JudgeRules())
        found[next(cause.label for cause in told if cause.metric == "fanout")] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--trials", type=int, nargs="+", default=[2, 3])
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.worlds} worlds a row, {TASKS} tasks\n")
    print("| agent | runs a task | environment | code | " + " | ".join(LABELS) + " |")
    print("|---|---|---|---|" + "---|" * len(LABELS))
    for shape in SHAPES:
        for trials in given.trials:
            for case in CASES:
                found = labels(shape, case, trials, given.worlds, given.seed)
                shares = " | ".join(f"{100 * found[label] / given.worlds:.1f} %" for label in LABELS)
                print(f"| {shape} | {trials} | {case[0]:+.0%} | {case[1]:+.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
