"""How long the required check takes: `fanout-baseline verify` on 20 classes of 200 tasks, 5 trials each.

A repository is made in a temporary folder: anchors, 20,000 recordings of 2 KB, a base commit and a HEAD that differ in
one class, and the report of a replay. Then the command runs in a process of its own, as in CI.

    python benchmarks/verify_speed.py [--classes 20] [--tasks 200] [--trials 5] [--runs 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gate_world import World, git, make_run  # noqa: E402

from pytest_fanout.records import Base, Head, Run  # noqa: E402
from pytest_fanout.report.json import document  # noqa: E402
from pytest_fanout.store.recordings import slug_of  # noqa: E402
from pytest_fanout.store.reports import write_report  # noqa: E402

ALLOWED_SECONDS = 2.0


def whole(parts: list[Run]) -> Run:
    """One run of all classes."""
    return replace(
        parts[0],
        agents=tuple(part.agents[0] for part in parts),
        tasks=tuple(trial for part in parts for trial in part.tasks),
        definitions={agent: entries for part in parts for agent, entries in part.definitions.items()},
        evalsets={agent: entry for part in parts for agent, entry in part.evalsets.items()},
        session=replace(parts[0].session, expected=sum(part.session.expected for part in parts)),
    )


def lay_out(root: Path, classes: int, tasks: int, trials: int) -> Run:
    """The repository and the run of its HEAD."""
    world = World.make(root)
    fanout = {f"task-{number:04d}": [2 + (number + trial) % 9 for trial in range(trials)] for number in range(tasks)}
    agents = [f"class-{number:02d}" for number in range(classes)]
    parts = [make_run(fanout, agent) for agent in agents]
    for part, agent in zip(parts, agents, strict=True):
        world.anchor(part, agent)
        for task in fanout:
            for trial in range(1, trials + 1):
                world.write(f"fixtures/recordings/{agent}/{slug_of(task)}/t{trial}.jsonl", f"{agent} {task}\n" * 80)
    world.write(".gitignore", "fanout-report.json\n")
    world.write(
        "pyproject.toml",
        "".join(
            f'[tool.fanout.agents.{agent}]\nentrypoint = "shop:answer"\nevalset = "fixtures/{agent}.jsonl"\n'
            for agent in agents
        ),
    )
    world.commit("start")
    world.branch()
    lower = make_run({task: [value - 1 for value in values] for task, values in fanout.items()}, agents[0])
    world.anchor(lower, agents[0])
    world.commit("one class is cheaper now")
    run = world.measured(whole([lower, *parts[1:]]))
    repo = world.repo
    run = replace(run, base=Base(repo.resolve("main"), "merge-base main"), head=Head(repo.resolve("HEAD")))
    write_report(root / "fanout-report.json", document(run, world.judge(run)))
    return run


def main() -> int:
    """Print the median of some runs; 1 when it is over what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("classes", 20), ("tasks", 200), ("trials", 5), ("runs", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fanout-verify-") as folder:
        root = Path(folder) / "project"
        lay_out(root, options.classes, options.tasks, options.trials)
        assert git(root, "status", "--porcelain") == ""
        # an installed package has its byte code
        left_out = {"CI", "PYTHONDONTWRITEBYTECODE"}
        environ = {k: v for k, v in os.environ.items() if k not in left_out and not k.startswith("GITHUB_")}
        walls, cpus = [], []
        for turn in range(options.runs + 1):
            wall, before = time.perf_counter(), os.times()
            done = subprocess.run(
                [sys.executable, "-m", "pytest_fanout.cli.baseline", "verify"],
                cwd=root,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            after = os.times()
            if not turn:
                continue  # writes the byte code
            walls.append(time.perf_counter() - wall)
            cpus.append(after.children_user + after.children_system - before.children_user - before.children_system)
            if done.returncode:
                print(done.stdout[-2000:] + done.stderr[-2000:])
                return 2
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    print(
        f"verify of {options.classes} classes x {options.tasks} tasks x {options.trials} trials: "
        f"{wall:.2f} s wall, {cpu:.2f} s CPU (median of {options.runs}; allowed {ALLOWED_SECONDS} s)"
    )
    return 0 if cpu <= ALLOWED_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
