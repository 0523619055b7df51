"""Draws the picture of docs/statistics.md: what chance does to a bare number, and how the judge comes to a verdict.

    python benchmarks/statistics_picture.py [docs/statistics.svg]

Needs matplotlib, which is no dependency: install it where you run this.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from agent_draws import MEDIUM, Change, Ints, agent_of
from judged_runs import BASE_RUNS, MOST_RUNS, samples_of

from pytest_fanout.judge import compare

TASKS = 20
PAIRS = 2_000
BLUE, RED, GREY = "#2a6f97", "#c1121f", "#8a8a8a"
#: Seeds that show a typical case each.
EXAMPLES = ((4, Change(), "unchanged agent", BLUE), (2, Change(0.25), "agent with 25 % more calls", RED))


def main() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "statistics", "font.size": 9}
    import matplotlib.pyplot as plt

    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs" / "statistics.svg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    _luck(left)
    _looks(right)
    figure.savefig(target, metadata={"Date": None, "Creator": None})
    print(f"{target}: {target.stat().st_size / 1024:.0f} KB")


def _luck(axes: Any) -> None:
    """The p95 of an agent beside its own p95, nothing changed: how often 10 % is exceeded."""
    rng = np.random.default_rng(1)
    ratios = []
    for _ in range(PAIRS):
        agent = agent_of(MEDIUM, TASKS, rng)
        base, new = agent.runs(1, rng)[..., 0], agent.runs(1, rng)[..., 0]
        ratios.append(_p95(new) / _p95(base) - 1)
    growth = 100 * np.array(ratios)
    counts, edges = np.histogram(growth, bins=np.arange(-60, 105, 5))
    colours = [RED if edge >= 10 else BLUE for edge in edges[:-1]]
    axes.bar(edges[:-1], 100 * counts / PAIRS, width=4.5, align="edge", color=colours)
    axes.axvline(10, color="black", linewidth=1)
    above = (growth > 10).mean()
    title = f"its p95 grew by more than 10 % in {100 * above:.0f} % of the pairs"
    axes.set_title(f"The same agent twice, {TASKS} tasks, one run each:\n{title}", fontsize=10)
    axes.set_xlabel("growth of p95 that is seen, %")
    axes.set_ylabel("share of the pairs, %")


def _p95(values: Ints) -> float:
    return float(np.quantile(values, 0.95, method="inverted_cdf"))


def _looks(axes: Any) -> None:
    """Two agents, run by run: effect and interval of the calls, until the verdict stands."""
    axes.axhline(10, color="black", linewidth=1)
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    for place, (seed, change, name, colour) in enumerate(EXAMPLES):
        rng = np.random.default_rng(seed)
        agent = agent_of(MEDIUM, TASKS, rng)
        base = agent.runs(BASE_RUNS, rng)
        new = agent.runs(MOST_RUNS, rng, change)
        for runs in range(1, MOST_RUNS + 1):
            result = compare(samples_of(base), samples_of(new[:, :runs]))
            shown = next(m for m in result.metrics if (m.name, m.statistic) == ("fanout", "body"))
            low, high = (100 * (end - 1) for end in shown.interval)
            x, middle = runs + 0.12 * (2 * place - 1), 100 * (shown.effect - 1)
            if shown.found_at is not None and runs > shown.found_at:  # what this run says alone
                alone = np.log(new[:, shown.found_at : runs, 0]).mean(axis=1) - np.log(base[..., 0]).mean(axis=1)
                high = 100 * (float(np.exp(alone.mean())) - 1)
                axes.plot(x, high, "D", color=colour, fillstyle="none")
                words = "confirmed by\nrun {runs} alone:\n{verdict}"
            else:
                spread = [[middle - low], [high - middle]]
                axes.errorbar(x, middle, spread, fmt="o", color=colour, capsize=3, label=name if runs == 1 else None)
                words = "{verdict}" if not result.needs else "found" if shown.found_at else ""
            told = words.format(runs=runs, verdict=result.verdict)
            axes.annotate(told, (x, high), (0, 5), textcoords="offset points", color=colour, ha="center", fontsize=8)
            if not result.needs:
                break
    axes.set_xticks(range(1, 4))
    axes.set_xlim(0.6, 3.8)
    axes.set_ylim(-18, 52)
    axes.set_xlabel("runs of each task so far")
    axes.set_ylabel("growth of the calls, %, with 90 % interval")
    axes.set_title("The judge compares task by task,\nand asks for runs until it can tell", fontsize=10)
    axes.legend(loc="upper right", frameon=False, fontsize=8)


if __name__ == "__main__":
    main()
