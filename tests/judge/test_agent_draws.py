"""The agents that the judge is tried on are like the public runs that they stand for (docs/statistics.md)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, and modules beside it, look it up
    spec.loader.exec_module(module)
    return module


draws = _loaded("agent_draws")
TASKS = 4_000


@pytest.fixture(scope="module")
def runs() -> dict[str, np.ndarray]:
    """Four runs of 4,000 tasks of each agent: calls and tokens."""
    return {
        name: draws.agent_of(shape, TASKS, rng).runs(4, rng)
        for name, shape in draws.SHAPES.items()
        for rng in [np.random.default_rng(1)]
    }


@pytest.mark.parametrize(
    ("agent", "place", "within", "between", "icc"),
    [("thin", 0, 0.22, 0.59, 0.88), ("medium", 0, 0.33, 0.43, 0.64), ("fat", 1, 0.68, 0.66, 0.49)],
)
def test_spreads_are_those_of_the_public_runs(
    runs: dict[str, np.ndarray], agent: str, place: int, within: float, between: float, icc: float
) -> None:
    """SD of logs within and between tasks, and the tasks' share of the variance: OpenHands, tau, Orchestrator."""
    sd_w, sd_b = draws.spreads(list(np.log(runs[agent][..., place])))

    assert sd_w == pytest.approx(within, rel=0.06)
    assert sd_b == pytest.approx(between, rel=0.10)
    assert sd_b**2 / (sd_b**2 + sd_w**2) == pytest.approx(icc, abs=0.05)


@pytest.mark.parametrize(
    ("agent", "place", "median", "p95_ratio", "times"),
    [("thin", 0, 30, 83 / 30, 1.4), ("medium", 0, 11, 23 / 11, 1.8), ("fat", 1, 42_000, 196 / 42, 1.7)],
)
def test_percentiles_are_those_of_the_public_runs(
    runs: dict[str, np.ndarray], agent: str, place: int, median: float, p95_ratio: float, times: float
) -> None:
    """Median, p95 over it, and how many times its cheapest run the dearest of a middling task takes."""
    values = runs[agent][..., place]
    p50, p95 = np.quantile(values, [0.5, 0.95], method="inverted_cdf")

    assert p50 == pytest.approx(median, rel=0.08)
    assert p95 / p50 == pytest.approx(p95_ratio, rel=0.20)
    assert np.median(values.max(axis=1) / values.min(axis=1)) == pytest.approx(times, abs=0.15)


def test_only_the_fat_tail_runs_away(runs: dict[str, np.ndarray]) -> None:
    """7 % of its tasks differ ten times between runs, by up to a thousand times; of the other agents hardly one."""
    shares = {name: (table[..., 1].max(axis=1) > 10 * table[..., 1].min(axis=1)).mean() for name, table in runs.items()}

    assert shares["fat"] == pytest.approx(0.07, abs=0.015)
    assert max(shares["thin"], shares["medium"]) < 0.005
    assert (runs["fat"][..., 1].max(axis=1) / runs["fat"][..., 1].min(axis=1)).max() > 1_000


@pytest.mark.parametrize("agent", ["thin", "medium", "fat"])
def test_calls_and_tokens_move_together(runs: dict[str, np.ndarray], agent: str) -> None:
    """Within a task the logarithms of both are correlated by .94 to .99, and all values are integers of at least 1."""
    logs = np.log(runs[agent])
    inside = logs - logs.mean(axis=1, keepdims=True)

    assert 0.94 <= np.corrcoef(inside[..., 0].ravel(), inside[..., 1].ravel())[0, 1] <= 0.99
    assert runs[agent].dtype == np.int64
    assert runs[agent].min() >= 1


@pytest.mark.parametrize(
    ("change", "of_all", "of_tail"),
    [({"growth": 0.25}, 1.25, 1.25), ({"tail": 2.0}, None, 2.0), ({"doubled": True}, 1.30, 1.30)],
)
def test_a_change_grows_what_it_says(change: dict[str, float], of_all: float | None, of_tail: float) -> None:
    """+25 % of everything; twice as much in the dearest tenth and nothing elsewhere; 30 % of the calls twice."""
    rng = np.random.default_rng(2)
    agent = draws.agent_of(draws.THIN, TASKS, rng)
    before = agent.runs(4, np.random.default_rng(3)).sum(axis=1)[:, 0]
    after = agent.runs(4, np.random.default_rng(3), draws.Change(**change)).sum(axis=1)[:, 0]
    tail = agent.tail

    assert tail.sum() == TASKS // 10
    assert after[tail].sum() / before[tail].sum() == pytest.approx(of_tail, rel=0.03)
    if of_all is None:
        assert (after[~tail] == before[~tail]).all()
    else:
        assert after.sum() / before.sum() == pytest.approx(of_all, rel=0.03)


def test_real_runs_are_drawn_again_with_their_spread(tmp_path: Path) -> None:
    """Tasks of a file of real runs keep their noise; missing runs are no measured zeros, and a cap holds."""
    lines = ["agent,config,task_id,model_calls,input_tokens,output_tokens"]
    noise = np.random.default_rng(4)
    for task in range(60):
        calls = np.exp(2.4 + 0.43 * noise.standard_normal() + 0.33 * noise.standard_normal(4)).round().astype(int)
        lines += [f"tau-airline-gpt-4o,x,{task},{count},," for count in calls]
    lines.append("tau-airline-gpt-4o,x,0,,,")
    (tmp_path / "runs_tau-bench-airline.csv").write_text("\n".join(lines), encoding="utf-8")
    pool = draws.pools_in(tmp_path)["real medium (tau-bench)"]
    rng = np.random.default_rng(5)
    sample = pool.agent(2_000, rng).runs(4, rng)[..., 0]
    within, between = draws.spreads(list(np.log(sample)))

    assert len(pool.tasks["0"]) == 4
    assert within == pytest.approx(0.33, abs=0.04)
    assert between == pytest.approx(0.43, abs=0.06)
    assert sample.max() == 30
    assert draws.pools_in(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("times", "verdict", "runs"),
    [(1, "pass", 1), (2, "regressed", 2)],
)
def test_the_driver_runs_what_the_judge_needs(times: int, verdict: str, runs: int) -> None:
    """Twenty tasks that repeat exactly: one run settles that nothing grew; twice the calls are confirmed by another."""
    driver = _loaded("judged_runs")
    calls = np.repeat(np.arange(4, 24)[:, None], 5, axis=1)  # sum of one run of all tasks: 270
    table = np.stack([calls, 1_000 * calls], axis=-1)
    outcome = driver.gate(table, times * table)

    assert (outcome.verdict, outcome.runs) == (verdict, runs)
    assert (outcome.calls, outcome.calls_fixed) == (270 * times * runs, 270 * times * 5)


def test_the_worst_of_like_chains_is_what_counting_alone_gives() -> None:
    """Two chains of one gate that is red half of the time: in three of four worlds one of them is red."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        driver = _loaded("operating_characteristics")
    finally:
        sys.path.remove(str(BENCHMARKS))

    assert driver.worst_if_alike(0.5, 1, 2) == pytest.approx(0.75)
    # one chain of many gates has its own share
    assert driver.worst_if_alike(0.04, 50, 1) == pytest.approx(0.04)
