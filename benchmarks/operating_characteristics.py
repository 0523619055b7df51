"""How often the judge of new draws is right, on agents whose growth is known, and what that costs in model calls.

The judge is the public ``pytest_fanout.judge.compare``, driven trial by trial as a session drives it; every other judge
sees the same runs. No model is called. Prints markdown tables.

    python benchmarks/operating_characteristics.py [--quick] [--seed 5] [--cores 2] [--data ../shared/data]
        [--parts targets cells chains real sessions others] [--scale 1.0]
        [--chains medium-20 medium-50 fat-20] [--anchor-runs 5 10 20] [--anchor-sessions 0 1 5]

``--data`` is a folder with ``runs_*.csv`` of real agents; without it that part is skipped. The packages that are
compared with are no dependency; to have them (and scipy, for Wilcoxon's test) in an environment of their own:

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install -e . scipy agentassay agentrial agent-regress-cli evalstats
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import comb
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from agent_draws import SHAPES, Agent, Change, Ints, Pool, agent_of, pools_in
from judged_runs import BASE_RUNS, MOST_RUNS, Outcome, gate
from other_judges import PEERS, bare_rules, peers

PARTS = ("targets", "cells", "chains", "real", "sessions", "others")
UNCHANGED = Change()
CHANGES = (
    UNCHANGED,
    Change(0.10),
    Change(0.25),
    Change(0.50),
    Change(1.75),
    Change(tail=1.5),
    Change(tail=2.0),
    Change(tail=2.75),
    Change(doubled=True),
)
#: Gates of a cell: unchanged agents, grown ones. More tasks take longer and vary less.
GATES = {10: (400, 200), 20: (400, 200), 30: (400, 200), 50: (200, 100), 100: (100, 50), 200: (60, 30)}
CHAIN = 50  # innocent changes on one baseline
BASELINES = 20
SESSION = 0.05  # SD of the log shift that a whole session has, of which evidence within tasks knows nothing
PIECE = 10  # gates of one piece of work


@dataclass(frozen=True)
class Cell:
    """Gates of one kind: an agent, its number of tasks, a change, and how they are judged.

    ``kind``: gate; ten (up to ten new runs, five looks); chain (50 gates on one baseline); session (each gate's new
    runs have a shift of their own); others (every other judge too). ``sessions``: in how many sessions, each with a
    shift of its own, the anchor was drawn, and every gate in another one; 0: sessions do not differ.
    """

    agent: str
    n: int
    change: Change = UNCHANGED
    kind: str = "gate"
    anchor: int = BASE_RUNS
    sessions: int = 0


@dataclass(frozen=True)
class Work:
    """A piece of a cell, its gates ``first`` … ``last`` - 1; what a gate's runs are depends on its number and seed."""

    cell: Cell
    first: int
    last: int
    seed: int
    data: Path


@dataclass
class Tally:
    """The outcomes of a cell."""

    verdicts: Counter[str] = field(default_factory=Counter)
    runs: float = 0.0
    calls: int = 0
    calls_fixed: int = 0
    of_baseline: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    reds: Counter[str] = field(default_factory=Counter)  # of the other judges

    @property
    def gates(self) -> int:
        return sum(self.verdicts.values())

    @property
    def red(self) -> int:
        return self.gates - self.verdicts["pass"]

    def add(self, number: int, outcome: Outcome) -> None:
        self.verdicts[outcome.verdict] += 1
        self.runs += outcome.runs
        self.calls += outcome.calls
        self.calls_fixed += outcome.calls_fixed
        self.of_baseline[number].append(outcome.verdict)

    @property
    def calls_share(self) -> float:
        return self.calls / max(self.calls_fixed, 1)


@cache
def _pools(data: Path) -> dict[str, Pool]:
    return pools_in(data)


def _agent(work: Work, rng: np.random.Generator) -> Agent:
    cell = work.cell
    return (
        agent_of(SHAPES[cell.agent], cell.n, rng)
        if cell.agent in SHAPES
        else _pools(work.data)[cell.agent].agent(cell.n, rng)
    )


def _do(work: Work) -> tuple[Cell, list[tuple[int, Outcome, list[str]]]]:
    """Draw and judge; of each gate its number, its outcome, and which other judges were red."""
    cell = work.cell
    judges = {**bare_rules(), **peers()[0]} if cell.kind == "others" else {}
    out: list[tuple[int, Outcome, list[str]]] = []
    for number in range(work.first, work.last):
        # Two streams, so that baseline and noise are the same for every change, kind and judge.
        key = [work.seed, zlib.crc32(f"{cell.agent} {cell.n}".encode()), number]
        rng, new_rng = np.random.default_rng([*key, 0]), np.random.default_rng([*key, 1])
        agent = _agent(work, rng)
        if cell.kind == "chain":
            base = _anchor(cell, agent, rng)
            out += [(number, gate(base, _session(cell, agent, MOST_RUNS, new_rng)), []) for _ in range(CHAIN)]
            continue
        base = agent.runs(BASE_RUNS, rng)
        if cell.kind == "ten":
            out.append((number, gate(base, agent.runs(10, new_rng, cell.change), most=10), []))
        elif cell.kind == "session":
            shift = Change(growth=float(np.exp(SESSION * rng.standard_normal())) - 1)
            out.append((number, gate(base, agent.runs(MOST_RUNS, new_rng, shift)), []))
        else:
            new = agent.runs(MOST_RUNS, new_rng, cell.change)
            red = [name for name, judge in judges.items() if judge(base, new)]
            out.append((number, gate(base, new), red))
    return cell, out


def _anchor(cell: Cell, agent: Agent, rng: np.random.Generator) -> Ints:
    sessions = max(cell.sessions, 1)
    sizes = [(cell.anchor + place) // sessions for place in range(sessions)]
    return np.concatenate([_session(cell, agent, size, rng) for size in sizes if size], axis=1)


def _session(cell: Cell, agent: Agent, trials: int, rng: np.random.Generator) -> Ints:
    """Runs of one session; where sessions differ, all of them shifted together."""
    shift = SESSION * rng.standard_normal() if cell.sessions else 0.0
    return agent.runs(trials, rng, Change(growth=float(np.expm1(shift))))


@contextmanager
def _mapper(cores: int) -> Iterator[Callable[[Callable[[Work], Any], list[Work]], Iterable[Any]]]:
    if cores == 1:
        yield map
        return
    with get_context("spawn").Pool(cores) as pool:
        yield pool.imap_unordered


def run(todo: list[tuple[Cell, int]], args: argparse.Namespace) -> dict[Cell, Tally]:
    """Every cell with its number of gates (of baselines, for chains)."""
    work = []
    for cell, gates in todo:
        size = 1 if cell.kind in ("chain", "others") else PIECE
        work += [Work(cell, at, min(at + size, gates), args.seed, args.data) for at in range(0, gates, size)]
    work.sort(key=lambda piece: -piece.cell.n)  # the long ones first, so that no core waits at the end
    tallies = {cell: Tally() for cell, _ in todo}
    started = time.monotonic()
    with _mapper(args.cores) as mapped:
        for done, (cell, outcomes) in enumerate(mapped(_do, work), start=1):
            for number, outcome, red in outcomes:
                tallies[cell].add(number, outcome)
                tallies[cell].reds.update(red)
            if done % 50 == 0 or done == len(work):
                print(f"{done} of {len(work)} pieces, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return tallies


def share(count: int, of: int) -> str:
    """A share in percent, with its 95 % interval by Wilson's formula."""
    low, high = wilson(count, of)
    return f"{100 * count / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def wilson(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share."""
    middle, reach = count + z**2 / 2, z * (count * (of - count) / of + z**2 / 4) ** 0.5
    return max(0.0, (middle - reach) / (of + z**2)), min(1.0, (middle + reach) / (of + z**2))


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.0f}" if of else "–"


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


MEDIUM_20, MEDIUM_50 = ("medium", 20), ("medium", 50)
FAT_20, FAT_30 = ("fat", 20), ("fat", 30)
#: What is promised: words, cell, what is counted, "at most" or "at least", the bound in percent, gates.
Target = tuple[str, Cell, str, str, float, int]
TARGETS: tuple[Target, ...] = (
    *(
        (f"unchanged, {agent} {n}: `regressed`", Cell(agent, n), "regressed", "at most", 5.0, 1000)
        for agent, n in (("thin", 20), MEDIUM_20, MEDIUM_50, FAT_20, FAT_30)
    ),
    ("unchanged, thin 20: red for any reason", Cell("thin", 20), "red", "at most", 10.0, 1000),
    ("unchanged, medium 20: red for any reason", Cell(*MEDIUM_20), "red", "at most", 10.0, 1000),
    ("unchanged, medium 50: red for any reason", Cell(*MEDIUM_50), "red", "at most", 5.0, 1000),
    ("unchanged, fat 20: red for any reason", Cell(*FAT_20), "red", "at most", 25.0, 1000),
    ("+25 %, medium 20: found", Cell(*MEDIUM_20, Change(0.25)), "regressed", "at least", 95.0, 500),
    ("+25 %, fat 30, five runs: found", Cell(*FAT_30, Change(0.25)), "regressed", "at least", 90.0, 500),
    ("+25 %, fat 30, up to ten runs: found", Cell(*FAT_30, Change(0.25), "ten"), "regressed", "at least", 90.0, 500),
    ("unchanged, fat 30, up to ten runs: `regressed`", Cell(*FAT_30, kind="ten"), "regressed", "at most", 5.0, 500),
    *(
        (f"+175 %, {agent} {n}: missed", Cell(agent, n, Change(1.75)), "missed", "at most", 0.0, 250)
        for agent, n in (("thin", 20), MEDIUM_20, FAT_20, ("medium", 10))
    ),
    ("tail x2, medium 20: found", Cell(*MEDIUM_20, Change(tail=2.0)), "regressed", "at least", 85.0, 500),
    ("tail x2, medium 50: found", Cell(*MEDIUM_50, Change(tail=2.0)), "regressed", "at least", 98.0, 500),
    ("unchanged, medium 50: calls of the five-run design", Cell(*MEDIUM_50), "calls", "at most", 50.0, 1000),
)
CHAINS = {f"{agent}-{n}": (agent, n) for agent, n in (MEDIUM_20, MEDIUM_50, FAT_20)}


def print_targets(tallies: dict[Cell, Tally]) -> None:
    """What issue and page promise beside what was measured."""
    rows = []
    for words, cell, what, sense, bound, _ in TARGETS:
        tally = tallies[cell]
        if what == "calls":
            value, told = 100 * tally.calls_share, f"{100 * tally.calls_share:.1f} %"
        else:
            counts = {"red": tally.red, "missed": tally.gates - tally.verdicts["regressed"]}
            count = counts.get(what, tally.verdicts[what])
            value, told = 100 * count / tally.gates, share(count, tally.gates)
        met = value <= bound if sense == "at most" else value >= bound
        rows.append([words, f"{sense} {bound:g} %", told, str(tally.gates), "yes" if met else "**missed**"])
    table(["target", "asked", "measured (95 % interval)", "gates", "met"], rows)


def print_cells(tallies: dict[Cell, Tally], cells: list[Cell]) -> None:
    """Each cell in a line; shares in percent of its gates."""
    rows = []
    for cell in cells:
        tally = tallies[cell]
        gates = tally.gates
        counts = [tally.verdicts["regressed"], tally.verdicts["inconclusive"], tally.verdicts["pass"]]
        spent = [f"{tally.runs / gates:.1f}", f"{100 * tally.calls_share:.0f} %", str(gates)]
        shares = [_percent(count, gates) for count in counts]
        rows.append([cell.agent, str(cell.n), cell.change.name, *shares, *spent])
    head = [
        "agent",
        "tasks",
        "change",
        "regressed",
        "inconclusive",
        "pass",
        "runs a task",
        "calls of five runs",
        "gates",
    ]
    table(head, rows)


def print_chains(tallies: dict[Cell, Tally], cells: list[Cell]) -> None:
    """50 innocent changes on one baseline: how many are blocked, on average and on the worst baseline."""
    rows = []
    for cell in cells:
        chains = [Counter(verdicts) for verdicts in tallies[cell].of_baseline.values()]
        chains.sort(key=lambda chain: (chain.total() - chain["pass"], chain["regressed"]))
        blocked = [(chain.total() - chain["pass"]) / chain.total() for chain in chains]
        worst = " / ".join(_percent(chains[-1][word], chains[-1].total()) for word in ("regressed", "inconclusive"))
        mean = sum(blocked) / len(blocked)
        alike = worst_if_alike(mean, chains[0].total(), len(chains))
        shares = [f"{100 * each:.0f} %" for each in (mean, blocked[len(blocked) // 2], blocked[-1], alike)]
        met = "yes" if blocked[-1] <= 0.10 else "**missed**"
        start = [cell.agent, str(cell.n), str(cell.anchor), str(cell.sessions or "-"), str(len(blocked))]
        rows.append([*start, *shares, worst, str(sum(share > 0.10 for share in blocked)), met])
    head = ["agent", "tasks", "anchor's runs", "sessions", "anchors", "blocked", "on the middle anchor", "on the worst"]
    head += [
        "worst, were all alike",
        "regressed / inconclusive on the worst",
        "anchors above 10 %",
        "worst at most 10 %",
    ]
    table(head, rows)


def worst_if_alike(share: float, gates: int, chains: int) -> float:
    """What the worst of so many chains is expected to show where each gate of all of them is red with this chance."""
    of_count = [comb(gates, count) * share**count * (1 - share) ** (gates - count) for count in range(gates + 1)]
    return sum(1 - min(1.0, sum(of_count[: count + 1])) ** chains for count in range(gates)) / gates


OTHERS = tuple(
    Cell(agent, n, change, "others")
    for agent, n in (MEDIUM_20, FAT_30)
    for change in (UNCHANGED, Change(0.25), Change(1.75), Change(tail=2.0), Change(doubled=True))
)


def print_others(tallies: dict[Cell, Tally]) -> None:
    """How often each judge is red, in percent, on the same runs."""
    names = [*bare_rules(), *peers()[0]]
    rows = [["**pytest-fanout**, `regressed`"], ["**pytest-fanout**, red for any reason"]]
    rows += [[name] for name in names]
    for cell in OTHERS:
        tally = tallies[cell]
        reds = [tally.verdicts["regressed"], tally.red, *(tally.reds[name] for name in names)]
        for row, count in zip(rows, reds, strict=True):
            row.append(_percent(count, tally.gates))
    table(["judge", *(f"{cell.agent} {cell.n} {cell.change.name}" for cell in OTHERS)], rows)
    print(f"{tallies[OTHERS[0]].gates} gates a cell. How the packages were asked:\n")
    for name, how in PEERS.items():
        print(f"- {name}: {how}")
    print(*peers()[1], "", sep="\n")


def main() -> None:
    """Run what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the gates, fewer cells: some minutes")
    parser.add_argument("--scale", type=float, help="times as many gates as the full size")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--chains", nargs="+", choices=list(CHAINS), default=list(CHAINS))
    parser.add_argument("--anchor-runs", type=int, nargs="+", default=[BASE_RUNS], help="of the chains' anchors")
    parser.add_argument("--anchor-sessions", type=int, nargs="+", default=[0], help="0: sessions do not differ")
    args = parser.parse_args()
    scale = args.scale or (0.1 if args.quick else 1.0)

    def sized(gates: int) -> int:
        return max(2, round(gates * scale))

    cells = [Cell(a, n, change) for a in SHAPES for n in _sizes(a, quick=args.quick) for change in CHANGES]
    real = [
        Cell(name, n, change)
        for name in _pools(args.data)
        for n in (20, 50)
        for change in (UNCHANGED, Change(0.25), Change(1.75), Change(tail=2.0))
    ]
    sessions = [Cell("thin", 20, kind="session"), Cell(*MEDIUM_20, kind="session"), Cell(*MEDIUM_50, kind="session")]
    chains = [
        Cell(*CHAINS[name], kind="chain", anchor=runs, sessions=sessions)
        for name in args.chains
        for sessions in args.anchor_sessions
        for runs in args.anchor_runs
    ]
    wanted: dict[Cell, int] = defaultdict(int)

    def want(part: str, these: Iterable[tuple[Cell, int]]) -> None:
        for cell, gates in these if part in args.parts else ():
            wanted[cell] = max(wanted[cell], gates)

    want("targets", ((target[1], sized(target[5])) for target in TARGETS))
    want("cells", ((cell, sized(GATES[cell.n][cell.change != UNCHANGED])) for cell in cells))
    want("chains", ((cell, sized(BASELINES)) for cell in chains))
    want("real", ((cell, sized(GATES[cell.n][1])) for cell in real))
    want("sessions", ((cell, sized(400)) for cell in sessions))
    want("others", ((cell, sized(60)) for cell in OTHERS))
    tallies = run(list(wanted.items()), args)
    print(f"seed {args.seed}, {scale:g} of the full size\n")
    if "targets" in args.parts:
        print_targets(tallies)
    if "cells" in args.parts:
        print_cells(tallies, cells)
    if "chains" in args.parts:
        print_chains(tallies, chains)
    if "real" in args.parts and real:
        print_cells(tallies, real)
    elif "real" in args.parts:
        print(f"skipped: no runs_*.csv in {args.data}\n")
    if "sessions" in args.parts:
        print(f"Every session of new runs shifted as a whole, SD {SESSION:.0%}:\n")
        print_cells(tallies, sessions)
    if "others" in args.parts:
        print_others(tallies)


def _sizes(agent: str, *, quick: bool) -> tuple[int, ...]:
    if quick:
        return (20, 50)
    return (10, 20, 30, 50, 100, 200) if agent == "fat" else (10, 20, 50, 100, 200)


if __name__ == "__main__":
    main()
