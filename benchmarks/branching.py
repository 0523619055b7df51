"""Branching on the demo agents: calls saved, and what is found, beside whole re-runs of the same changes.

    python benchmarks/branching.py [--gates 200] [--seed 5]

Simulated from the recorded conversations of the demo agents: every trial of every task in ``fixtures/recordings`` is
read as its model calls in order, each with its step (by its system prompt) and tokens. An agent is edited at one step:
from the first call of that step on a trial is drawn anew. What follows a beginning is drawn from what followed the same
step in some trial of the same task, so that a world's unchanged agent is one whose beginnings and continuations have
just these distributions, in the anchor and in the new draw. A grown agent makes the calls after the edit more often.

Anchor and new draw are judged by the shipped judge, trial by trial as it asks for them, twice on the same anchors: new
trials as whole re-runs, and as branched ones that keep the beginning of the anchor's trial of the same number (or,
with ``--points 1``, all that of the first one: several continuations of one branch point).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fanout.judge import Draw, TrialTable, judge_draws
from pytest_fanout.judge.shuffles import Block, Sum, p_values
from pytest_fanout.meter import measure_trial
from pytest_fanout.records import JudgeRules, Limit
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.recordings import RecordingStore

ROOT = Path(__file__).resolve().parents[1]
TRIALS = 5


@dataclass(frozen=True, slots=True)
class Call:
    """One model call: the step of the agent that made it, and its tokens."""

    step: str
    tokens: int


Trial = tuple[Call, ...]


def conversations(agent: str) -> dict[str, list[Trial]]:
    """The recorded trials of a class, by task."""
    store = RecordingStore(ROOT / "fixtures/recordings")
    found: dict[str, list[Trial]] = {}
    for folder, trials in store.folders(agent):
        task = store.task_in(agent, folder, trials[0])
        for trial in trials:
            recording = store.load(agent, task, trial)
            calls = measure_trial(recording.exchanges, recording.duration_ms).calls
            last = [call.last for call in sorted(calls, key=lambda call: call.last.started_ms or 0)]
            made = tuple(Call(a.site.label if a.site else "", a.total_tokens or 0) for a in last)
            found.setdefault(task, []).append(made)
    return found


class World:
    """One agent, edited at one step: how its trials begin, and how they go on."""

    def __init__(self, recorded: Mapping[str, Sequence[Trial]], step: str) -> None:
        self.recorded = recorded
        self.ends: dict[str, list[Trial]] = {}  # by task: what followed the edited step
        for task, trials in recorded.items():
            self.ends[task] = [trial[at:] for trial in trials if (at := first_of(trial, step)) is not None]
        self.step = step

    def beginning(self, task: str, chance: random.Random) -> tuple[Trial, bool]:
        """Of one trial: its calls before the edited step, and whether it comes to that step at all."""
        trial = chance.choice(self.recorded[task])
        at = first_of(trial, self.step)
        return (trial, False) if at is None else (trial[:at], True)

    def whole(self, task: str, begun: tuple[Trial, bool], growth: float, chance: random.Random) -> Trial:
        """A trial that goes on from a beginning; the calls after the edit are made ``growth`` times as often."""
        calls, goes_on = begun
        if not goes_on:
            return calls
        return (*calls, *grown(chance.choice(self.ends[task]), growth, chance))


def first_of(trial: Trial, step: str) -> int | None:
    return next((at for at, call in enumerate(trial) if call.step == step), None)


def grown(calls: Trial, growth: float, chance: random.Random) -> Trial:
    """Each call once, and once more with the chance that makes ``growth`` of it in the mean."""
    out: list[Call] = []
    for call in calls:
        more = growth - 1
        out += [call] * (1 + int(more) + (chance.random() < more % 1))
    return tuple(out)


@dataclass(slots=True)
class Drawn:
    """What one design has made of a gate."""

    verdict: str
    calls: int  # live
    trials: int


def gate(
    world: World, growth: float, rules: JudgeRules, limits: Sequence[Limit], seed: int, points: int
) -> tuple[Drawn, Drawn]:
    """One anchor, judged with whole re-runs and with branched trials."""
    tasks = sorted(world.recorded)
    chance = random.Random(seed)
    begun = {task: [world.beginning(task, chance) for _ in range(TRIALS)] for task in tasks}
    anchor = {task: [world.whole(task, begin, 1.0, chance) for begin in begun[task]] for task in tasks}
    # what has no beginning to keep is no branch: the trial is a whole one
    named = {
        task: tuple(f"{task} {at}" if calls else None for at, (calls, _) in enumerate(begun[task])) for task in tasks
    }
    again = {
        task: [world.whole(task, world.beginning(task, chance), growth, chance) for _ in range(TRIALS)]
        for task in tasks
    }
    # whose beginning each new trial keeps; one that would be another trial once more is drawn whole, as in a session
    kept = {
        task: [
            at % points if at < points or (begun[task][at % points][1] and named[task][at % points]) else None
            for at in range(TRIALS)
        ]
        for task in tasks
    }
    branched = {
        task: [
            world.whole(task, begun[task][at] if at is not None else world.beginning(task, chance), growth, chance)
            for at in kept[task]
        ]
        for task in tasks
    }
    of_kept = {task: tuple(named[task][at] if at is not None else None for at in kept[task]) for task in tasks}
    base = table(anchor, dict.fromkeys(tasks, TRIALS), named)

    def judged(new: Mapping[str, Sequence[Trial]], keep: bool) -> Drawn:
        counts = dict.fromkeys(tasks, 1)
        while True:
            run = table(new, counts, of_kept if keep else {})
            found = judge_draws({"": Draw(base, run, tuple(limits), rules)})[""]
            asked = [task for task in found.needs.tasks if counts[task] < TRIALS]
            if not asked:
                break
            for task in asked:
                counts[task] = min(TRIALS, counts[task] + found.needs.trials)
        calls = sum(len(new[task][at]) for task in tasks for at in range(counts[task]))
        saved = [len(begun[task][at][0]) for task in tasks for at in kept[task][: counts[task]] if at is not None]
        live = calls - (sum(saved) if keep else 0)
        return Drawn(found.verdict, live, sum(counts.values()))

    return judged(again, keep=False), judged(branched, keep=True)


def table(
    trials: Mapping[str, Sequence[Trial]], counts: Mapping[str, int], named: Mapping[str, tuple[str | None, ...]]
) -> TrialTable:
    cut = {task: rows[: counts[task]] for task, rows in trials.items()}
    samples = {
        task: {
            "fanout": tuple(len(calls) for calls in rows),
            "tokens": tuple(sum(call.tokens for call in calls) for calls in rows),
        }
        for task, rows in cut.items()
    }
    beginnings = {task: row[: counts[task]] for task, row in named.items()}
    return TrialTable(samples, {task: ("ok",) * len(rows) for task, rows in cut.items()}, {}, beginnings)


def steps_of(recorded: Mapping[str, Sequence[Trial]]) -> list[tuple[str, float]]:
    """The steps of an agent with the part of a trial's calls that lies before the first of each, in the mean."""
    every = [trial for trials in recorded.values() for trial in trials]
    out = []
    for step in dict.fromkeys(call.step for trial in every for call in trial):
        before = sum(len(trial) if (at := first_of(trial, step)) is None else at for trial in every)
        out.append((step, before / sum(map(len, every))))
    return sorted(out, key=lambda pair: pair[1])


def shuffled(draws: int, seed: int) -> Iterator[tuple[str, float, float]]:
    """How often the shuffles call an unchanged agent grown: 20 tasks, 60 % of a trial's variance in its beginning.

    Returns:
        The design, and the part of p values up to 0.05 and up to 0.01.
    """
    import numpy as np

    chance, tasks, part = np.random.default_rng(seed), 20, 0.6
    designs = {
        "a pair a task": ([0], [0], True),
        "three continuations of one beginning": ([0], [0, 0, 0], True),
        "a pair, joined by a whole run": ([0], [0, 1], True),
        "three continuations among five runs, shuffled freely (not done)": ([0, 1, 2, 3, 4], [0, 0, 0], False),
    }
    for name, (base, run, is_stratum) in designs.items():
        found = []
        for _ in range(draws):
            begun = chance.normal(0, part**0.5, (tasks, 5))
            values = begun[:, [*base, *run]] + chance.normal(0, (1 - part) ** 0.5, (tasks, len(base) + len(run)))
            shares = np.ones(tasks) if is_stratum else 1.0
            block = Block(np.arange(tasks), values[None], len(base), shares=shares)
            (p,), _, _ = p_values([block], [Sum(0, np.full(tasks, 1 / tasks), 0)], 0.01)
            found.append(p)
        yield name, sum(p <= 0.05 for p in found) / draws, sum(p <= 0.01 for p in found) / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=200, help="unchanged agents a step; half as many grown ones")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--growth", type=float, nargs="*", default=[1.25, 1.5], help="of the calls after the edit")
    parser.add_argument("--agents", nargs="*", default=["research", "support"])
    parser.add_argument("--steps", type=int, nargs="*", help="only these, numbered by their place in a trial, from 0")
    parser.add_argument("--points", type=int, default=TRIALS, help="new trials go on from so many of the anchor's")
    parser.add_argument("--shuffles", type=int, metavar="N", help="instead: N draws of each design, by the test alone")
    given = parser.parse_args()
    if given.shuffles:
        for name, five, one in shuffled(given.shuffles, given.seed):
            print(f"{name}: p <= 0.05 in {five:.1%}, p <= 0.01 in {one:.1%}", flush=True)
        return
    budget = parse_budget((ROOT / "baselines/budget.toml").read_bytes())
    limits, rules = budget.limits_for("default"), JudgeRules(trials=TRIALS)
    for agent in given.agents:
        recorded = conversations(agent)
        print(f"{agent}: {len(recorded)} tasks")
        for number, (step, share) in enumerate(steps_of(recorded)):
            if given.steps is not None and number not in given.steps:
                continue
            world = World(recorded, step)
            for growth in (1.0, *given.growth):
                gates = given.gates if growth == 1 else max(1, given.gates // 2)
                pairs = [
                    gate(world, growth, rules, limits, given.seed * 1_000_003 + number, given.points)
                    for number in range(gates)
                ]
                row = {"step": step[:40], "before": round(share, 2), "growth": growth}
                row |= {"in all": round(1 + (1 - share) * (growth - 1), 2), "gates": gates}
                for name, side in (("whole", 0), ("branched", 1)):
                    of_side = [pair[side] for pair in pairs]
                    row |= {
                        f"{name} regressed": round(sum(d.verdict == "regressed" for d in of_side) / gates, 3),
                        f"{name} inconclusive": round(sum(d.verdict == "inconclusive" for d in of_side) / gates, 3),
                        f"{name} calls": round(sum(d.calls for d in of_side) / gates),
                        f"{name} trials": round(sum(d.trials for d in of_side) / gates / len(recorded), 2),
                    }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
