"""Pure functions from records to records: distributions, limits, comparison. No files, no git, no clock."""

from __future__ import annotations

from pytest_fanout.judge.comparison import TrialTable, beside, stats_of, table_of_baseline, table_of_runs, value_of
from pytest_fanout.judge.distribution import percentile, statistic
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.judge.limits import is_over, limit_value
from pytest_fanout.judge.samples import compare

__all__ = [
    "Draw",
    "TrialTable",
    "beside",
    "compare",
    "is_over",
    "judge_draws",
    "limit_value",
    "percentile",
    "statistic",
    "stats_of",
    "table_of_baseline",
    "table_of_runs",
    "value_of",
]
