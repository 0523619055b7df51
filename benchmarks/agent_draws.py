"""Agents to try a judge on: what they spend, task by task and run by run, with nothing called.

Three are made up and fitted to public runs (docs/statistics.md says how well): ``thin`` (a coding agent in one loop),
``medium`` (a customer service agent), ``fat`` (an orchestrator with sub-agents, some of whose tasks run away now and
then). Others are drawn again from files of real runs. Each has calls and tokens of every run, as integers, and the two
move together within a task.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from math import ceil, log, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TAIL = 0.10  # share of the tasks, the dearest ones, that a growth of the tail touches
CALL_TYPE = 0.30  # share of the calls that are of the one type that doubles
SHAPES_OF_CALL_TYPE = (6.0, 14.0)  # of a beta distribution with that mean: tasks differ in it


@dataclass(frozen=True)
class Change:
    """What a commit did to the agent: all grows, the dearest tenth of the tasks grows, one type of calls doubles."""

    growth: float = 0.0  # 0.25 is 25 % more of everything
    tail: float = 1.0  # times as much in the tasks of the tail
    doubled: bool = False

    @property
    def name(self) -> str:
        if self.doubled:
            return "one call type x2"
        if self.tail != 1.0:
            return f"tail x{self.tail:g}"
        return f"{self.growth:+.0%}" if self.growth else "unchanged"


@dataclass(frozen=True)
class Shape:
    """A kind of agent. Spreads are standard deviations of logarithms."""

    name: str
    median_calls: float
    between: float  # tasks, of their log means
    within: float  # runs of one task, around its log mean, runaways left out
    unequal: float  # how much ``within`` differs between tasks
    flat: bool = False  # the log means of tasks are uniform instead of normal: as many dear tasks, no very dear ones
    prone: float = 0.0  # share of tasks that can run away
    runaway: float = 0.0  # share of their runs that do
    jump: tuple[float, float] = (0.0, 0.0)  # log of how many times the calls are then, uniform between the two
    tokens_a_call: float = 1500.0
    tokens_noise: float = 0.2  # SD of the log tokens a call between runs, in units of ``within``


THIN = Shape("thin", median_calls=30, between=0.59, within=0.22, unequal=0.5)
MEDIUM = Shape("medium", median_calls=11, between=0.43, within=0.33, unequal=0.3, flat=True)
FAT = Shape(
    "fat",
    median_calls=12,
    between=0.58,
    within=0.36,
    unequal=0.6,
    prone=0.07,
    runaway=0.25,
    jump=(2.5, 7.0),
    tokens_a_call=3300.0,
    tokens_noise=0.5,
)
SHAPES = {shape.name: shape for shape in (THIN, MEDIUM, FAT)}


@dataclass(frozen=True)
class Agent:
    """The tasks of one agent: arrays hold one entry a task. ``residuals`` of a task, if any, replace normal noise."""

    log_calls: Floats
    within: Floats
    runaway: Floats
    jump: tuple[float, float]
    tokens_a_call: Floats
    tokens_noise: float
    of_type: Floats  # share of calls of the one type
    residuals: tuple[Floats, ...] = ()
    most_calls: float = float("inf")  # a cap on the calls of a run, before any growth

    @property
    def tail(self) -> NDArray[np.bool_]:
        """Which tasks are the dearest tenth, at least one, by their true mean."""
        last = np.argsort(self.log_calls, kind="stable")[-ceil(TAIL * len(self.log_calls)) :]
        marked = np.zeros(len(self.log_calls), dtype=bool)
        marked[last] = True
        return marked

    def runs(self, trials: int, rng: np.random.Generator, change: Change = Change()) -> Ints:
        """Calls and tokens of ``trials`` runs of each task: shape (tasks, trials, 2).

        The same ``rng`` gives the same runs before the change, whatever the change is.
        """
        n = len(self.log_calls)
        noise = rng.standard_normal((n, trials))
        jumps = rng.uniform(*self.jump, (n, trials)) * (rng.random((n, trials)) < self.runaway[:, None])
        token_noise = rng.standard_normal((n, trials))
        rounding = rng.random((n, trials))
        picks = rng.random((n, trials))
        own = self.within[:, None] * noise
        if self.residuals:
            own = np.stack(
                [pool[(row * len(pool)).astype(int)] for pool, row in zip(self.residuals, picks, strict=True)]
            )
        before = np.minimum(np.exp(self.log_calls[:, None] + own + jumps), self.most_calls)
        grown = before * (1 + change.growth) * np.where(self.tail, change.tail, 1.0)[:, None]
        calls = np.maximum(np.floor(grown + rounding), 1).astype(np.int64)
        if change.doubled:
            calls = calls + rng.binomial(calls, self.of_type[:, None])
        each = self.tokens_a_call[:, None] * np.exp(self.tokens_noise * self.within[:, None] * token_noise)
        return np.stack([calls, np.maximum(np.rint(calls * each), 1).astype(np.int64)], axis=-1)


def agent_of(shape: Shape, n: int, rng: np.random.Generator) -> Agent:
    """``n`` tasks of an agent of this shape."""
    place = rng.uniform(-sqrt(3), sqrt(3), n) if shape.flat else rng.standard_normal(n)
    # About mean square 1; no task is more than exp(2 unequal) times as noisy as the middle one.
    unequal = np.exp(shape.unequal * np.clip(rng.standard_normal(n), -2, 2) - shape.unequal**2)
    return Agent(
        log_calls=log(shape.median_calls) + shape.between * place,
        within=shape.within * unequal,
        runaway=np.where(rng.random(n) < shape.prone, shape.runaway, 0.0),
        jump=shape.jump,
        tokens_a_call=shape.tokens_a_call * np.exp(0.3 * rng.standard_normal(n)),
        tokens_noise=shape.tokens_noise,
        of_type=rng.beta(*SHAPES_OF_CALL_TYPE, n),
    )


@dataclass(frozen=True)
class Pool:
    """Real runs of one agent: task -> its values; ``metric`` is what was recorded, calls or tokens."""

    name: str
    metric: str
    tasks: dict[str, list[int]]
    most_calls: float = float("inf")

    def agent(self, n: int, rng: np.random.Generator) -> Agent:
        """``n`` tasks like the real ones.

        Their means are drawn again from the real means, which are first drawn in by the share of noise in them; their
        residuals from the five real tasks nearest in size, widened by sqrt(k / (k - 1)) for k runs of a task. Where
        only tokens were recorded, a run at their median has 12 calls; where only calls were, each is some 1,500 tokens.
        """
        logs = [np.log(values) for values in self.tasks.values()]
        means = np.array([values.mean() for values in logs])
        within, between = spreads(logs)
        runs = float(np.mean([len(values) for values in logs]))
        shrunk = means.mean() + (means - means.mean()) * sqrt(between**2 / max(between**2 + within**2 / runs, 1e-12))
        picked = rng.integers(len(means), size=n)
        jitter = 0.05 * rng.standard_normal(n) if n > len(means) else np.zeros(n)
        pools = []
        for index in picked:
            near = np.argsort(np.abs(means - means[index]), kind="stable")[:5]
            pools.append(np.concatenate([(logs[i] - means[i]) * sqrt(len(logs[i]) / (len(logs[i]) - 1)) for i in near]))
        scale = 0.0 if self.metric == "calls" else log(12) - float(np.median(np.concatenate(logs)))
        a_call = 1500.0 if self.metric == "calls" else float(np.exp(-scale))
        return Agent(
            log_calls=shrunk[picked] + jitter + scale,
            within=np.full(n, within),
            runaway=np.zeros(n),
            jump=(0.0, 0.0),
            tokens_a_call=a_call * np.exp(0.3 * rng.standard_normal(n)),
            tokens_noise=0.2,
            of_type=rng.beta(*SHAPES_OF_CALL_TYPE, n),
            residuals=tuple(pools),
            most_calls=self.most_calls,
        )


def spreads(logs: list[Floats]) -> tuple[float, float]:
    """SD of logarithms within tasks (pooled), and between tasks (the noise in their means taken off)."""
    inside = sum(float(((values - values.mean()) ** 2).sum()) for values in logs)
    within = sqrt(inside / max(sum(len(values) - 1 for values in logs), 1))
    runs = float(np.mean([len(values) for values in logs]))
    means = np.array([values.mean() for values in logs])
    between = float(means.var(ddof=1)) - within**2 / runs if len(means) > 1 else 0.0
    return within, sqrt(max(between, 0.0))


#: file, agent, config, what was recorded, cap on calls
POOLS = {
    "real thin (OpenHands)": ("runs_terminal-bench.csv", "tb-openhands_claude-4-sonnet", "", "calls", float("inf")),
    "real medium (tau-bench)": ("runs_tau-bench-airline.csv", "tau-airline-gpt-4o", "", "calls", 30.0),
    "real fat (Orchestrator)": (
        "runs_terminal-bench.csv",
        "tb-orchestrator_claude-4-sonnet",
        "",
        "tokens",
        float("inf"),
    ),
    "real short (code repair)": (
        "runs_code-repair.csv",
        "code-repair",
        "deepseek-deepseek-v4-pro",
        "calls",
        float("inf"),
    ),
}


def pools_in(folder: Path) -> dict[str, Pool]:
    """The pools of real runs whose files are in ``folder``; none where it is absent."""
    found = {}
    for name, (file, agent, config, metric, most) in POOLS.items():
        path = folder / file
        if path.is_file():
            found[name] = Pool(name, metric, _tasks_of(path, agent, config, metric), most)
    return found


def _tasks_of(path: Path, agent: str, config: str, metric: str) -> dict[str, list[int]]:
    tasks: dict[str, list[int]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["agent"] != agent or (config and row["config"] != config):
                continue
            cells = [row["model_calls"]] if metric == "calls" else [row["input_tokens"], row["output_tokens"]]
            value = int(sum(float(cell) for cell in cells)) if all(cells) else 0
            if value > 0:  # missing and never started: not a measured zero
                tasks[row["task_id"]].append(value)
    return {task: values for task, values in tasks.items() if len(values) > 1}
