"""Other ways to judge the same runs: bare rules as people write them, and packages that compare agent runs.

Each takes the calls and tokens of five old and five new runs of each task, shape (tasks, runs, 2), and says whether the
build would be red. The packages are no part of pytest-fanout; each is used by its public functions, with its own
defaults, where it is installed.
"""

from __future__ import annotations

import importlib.metadata
import logging
import warnings
from collections.abc import Callable

import numpy as np
from agent_draws import Ints

TOLERANCE = 0.10
ALPHA = 0.05
Judge = Callable[[Ints, Ints], bool]


def bare_rules() -> dict[str, Judge]:
    """The rules that need no package, and Wilcoxon's test where scipy is there."""
    rules: dict[str, Judge] = {
        "p95 > 1.10, 1 run": lambda base, new: _either(_p95_over, base, new[:, :1]),
        "p95 > 1.10, 5 runs": lambda base, new: _either(_p95_over, base, new),
        "mean > 1.10, 1 run": lambda base, new: _either(_mean_over, base, new[:, :1]),
        "mean > 1.10, 5 runs": lambda base, new: _either(_mean_over, base, new),
        "median ratio > 1.10, 5 runs": lambda base, new: _either(_median_ratio_over, base, new),
    }
    try:
        import scipy.stats  # noqa: F401
    except ImportError:
        return rules
    rules["Wilcoxon and ratio > 1.10, 5 runs"] = lambda base, new: _either(_wilcoxon_over, base, new)
    return rules


def _either(rule: Callable[[Ints, Ints], bool], base: Ints, new: Ints) -> bool:
    """Red by calls or by tokens: both are limited."""
    return rule(base[..., 0], new[..., 0]) or rule(base[..., 1], new[..., 1])


def _p95_over(base: Ints, new: Ints) -> bool:
    old, now = (np.quantile(values, 0.95, method="inverted_cdf") for values in (base, new))
    return bool(now > (1 + TOLERANCE) * old)


def _mean_over(base: Ints, new: Ints) -> bool:
    return bool(new.mean() > (1 + TOLERANCE) * base.mean())


def _median_ratio_over(base: Ints, new: Ints) -> bool:
    return bool(np.median(new.mean(axis=1) / base.mean(axis=1)) > 1 + TOLERANCE)


def _wilcoxon_over(base: Ints, new: Ints) -> bool:
    from scipy.stats import wilcoxon

    change = np.log(new).mean(axis=1) - np.log(base).mean(axis=1)
    if not change.any():
        return False
    return bool(wilcoxon(change, alternative="greater").pvalue < ALPHA and change.mean() > np.log1p(TOLERANCE))


#: distribution on PyPI -> what it is asked
PEERS = {
    "agent-regress-cli": "`compare()` of each metric: Mann-Whitney over all runs, Cohen's d; score 1 - log(value) / 25",
    "agentassay": "`fingerprint_regression_test()`: Hotelling's T-squared over all runs; one step a call",
    "agentrial": "`compare_with_snapshot()`: Mann-Whitney by task, Benjamini-Hochberg; latency = calls, cost = tokens",
    "evalstats": "`vs_baseline()`: nested bootstrap of the paired difference, two-sided 5 %, for each metric",
}


def peers() -> tuple[dict[str, Judge], list[str]]:
    """The packages that are installed, with their versions, and a line for each that is not."""
    found: dict[str, Judge] = {}
    absent = []
    judges = {
        "agent-regress-cli": _agent_regress,
        "agentassay": _agentassay,
        "agentrial": _agentrial,
        "evalstats": _evalstats,
    }
    for package, judge in judges.items():
        try:
            found[f"{package} {importlib.metadata.version(package)}"] = judge
        except importlib.metadata.PackageNotFoundError:
            absent.append(
                f"skipped: {package} is not installed here (see the first lines of operating_characteristics.py)"
            )
    return found, absent


def _agent_regress(base: Ints, new: Ints) -> bool:
    from agent_regress import Verdict, compare

    def agent(table: Ints) -> Callable[[dict[str, int]], float]:
        left = [iter(row) for row in table]
        return lambda case: float(next(left[case["task"]]))

    def cost_as_score(value: float, case: dict[str, int]) -> float:
        return 1 - float(np.log(value)) / 25

    suite = [{"task": task} for task in range(len(base))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that five runs are few
        reports = [
            compare(agent(base[..., k]), agent(new[..., k]), suite, base.shape[1], scorer=cost_as_score, max_workers=1)
            for k in (0, 1)
        ]
    return any(report.verdict == Verdict.REGRESSED for report in reports)


def _agentassay(base: Ints, new: Ints) -> bool:
    from agentassay.core.models import ExecutionTrace, StepTrace
    from agentassay.efficiency.regression import fingerprint_regression_test

    most = 2000  # steps of a trace: a runaway of 10,000 takes it minutes
    steps = [
        StepTrace.model_construct(
            step_index=index, action="llm_response", llm_output="", tool_name=None, duration_ms=0.0, metadata={}
        )
        for index in range(min(most, int(max(base[..., 0].max(), new[..., 0].max()))))
    ]

    def traces(table: Ints) -> list[ExecutionTrace]:
        return [
            ExecutionTrace.model_construct(
                scenario_id=str(task),
                steps=steps[: int(calls)],
                output_data=None,
                total_duration_ms=0.0,
                metadata={"total_tokens": int(tokens)},
            )
            for task, row in enumerate(table)
            for calls, tokens in row
        ]

    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scipy, where a dimension never varies
        return bool(fingerprint_regression_test(traces(base), traces(new))["regression_detected"])


def _agentrial(base: Ints, new: Ints) -> bool:
    from agentrial.snapshots import compare_with_snapshot, create_snapshot
    from agentrial.types import (
        AgentInput,
        AgentOutput,
        ConfidenceInterval,
        EvalResult,
        Suite,
        SuiteResult,
        TestCase,
        TrialResult,
    )

    sure = ConfidenceInterval(1.0, 1.0)
    done = AgentOutput(output="")

    def suite(table: Ints) -> SuiteResult:
        results = []
        for task, row in enumerate(table):
            case = TestCase(name=str(task), input=AgentInput(query=""))
            runs = [
                TrialResult(k, case, done, True, duration_ms=1000.0 * calls, cost=3e-6 * tokens, tokens=int(tokens))
                for k, (calls, tokens) in enumerate(row)
            ]
            cost, latency = 3e-6 * float(row[:, 1].mean()), 1000.0 * float(row[:, 0].mean())
            results.append(EvalResult(case, runs, 1.0, sure, cost, sure, latency, sure, float(row[:, 1].mean())))
        return SuiteResult(Suite("bench", "none", table.shape[1]), results, 1.0, sure, 0.0, 0.0, True)

    return bool(compare_with_snapshot(suite(new), create_snapshot(suite(base))).regressions)


def _evalstats(base: Ints, new: Ints) -> bool:
    import evalstats

    reds = []
    for k in (0, 1):
        scores = np.stack([new[..., k], base[..., k]]).astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (result,) = evalstats.vs_baseline(scores, ["new", "base"], "base", rng=np.random.default_rng(1))
        reds.append(result.p_value < ALPHA and result.point_diff > 0)
    return any(reds)
