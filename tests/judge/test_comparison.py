"""A run beside its anchor, by raw numbers."""

from __future__ import annotations

import random
from fractions import Fraction

from gate_world import TWENTY, make_run, with_trials

from pytest_fanout.judge import beside, table_of_baseline, table_of_runs, value_of
from pytest_fanout.judge.comparison import tasks_needed
from pytest_fanout.judge.movers import top_movers
from pytest_fanout.records import Limit, Run
from pytest_fanout.store.baselines import build_baseline

LIMITS = (Limit("fanout", "p95", Fraction(1, 10), 1), Limit("tokens", "p95", Fraction(1, 10), 500))


def compared(base: Run, run: Run, limits: tuple[Limit, ...] = LIMITS) -> dict[str, tuple[int | None, int | None, bool]]:
    anchor = table_of_baseline(build_baseline(base, "support"))
    return {m.name: (m.base, m.run, m.over) for m in beside(anchor, table_of_runs(run.tasks), limits)}


def test_gated_metrics_and_the_usual_ones_are_shown() -> None:
    """p50, p95 and max of fanout and tokens always; the gated ones know whether they are over."""
    found = compared(make_run(), make_run({**TWENTY, "t19": [21], "t20": [30]}))

    assert found == {
        "fanout.p95": (19, 21, True),
        "tokens.p95": (1900, 2100, False),
        "fanout.p50": (10, 10, False),
        "fanout.max": (20, 30, False),
        "tokens.p50": (1000, 1000, False),
        "tokens.max": (2000, 3000, False),
    }


def test_capped_failed_and_timed_out_trials_stay_in() -> None:
    """A4-like: dropping the runs that were stopped hides a regression; stale and crashed ones were not measured."""
    run = make_run({"a": [1], "b": [50], "c": [60], "d": [70], "e": [80]})
    for task, status in (("b", "capped"), ("c", "failed"), ("d", "timeout"), ("e", "stale")):
        run = with_trials(run, task, status=status)

    assert set(table_of_runs(run.tasks).statuses) == {"a", "b", "c", "d"}
    assert value_of(table_of_runs(run.tasks), "fanout", "max") == 70


def test_shares_are_limited_by_their_raw_percentage() -> None:
    """2 of 20 capped are 10 %; failed counts timeouts, too."""
    run = with_trials(with_trials(make_run(), ("t01", "t02"), status="capped"), "t03", status="timeout")
    limits = (Limit("capped", "share", None, 0, max=9), Limit("failed", "share", None, 0, max=5))

    found = compared(make_run(), run, limits)

    assert found["capped.share"] == (0, 10, True)
    assert found["failed.share"] == (0, 5, False)


def test_a_tool_that_was_never_called_counts_zero() -> None:
    """tool_calls[NAME] is absent where a trial did not call the tool."""
    run = with_trials(make_run(), "t20", samples={"tool_calls[search]": 7})
    found = compared(make_run(), run, (Limit("tool_calls[search]", "max", None, 0, max=6),))

    assert found["tool_calls[search].max"] == (0, 7, True)


def test_unknown_tokens_never_differ_from_their_own_replay() -> None:
    """The very same samples are equal even where one of them is unknown."""
    run = with_trials(make_run(), "t01", samples={"output_tokens": None})

    assert compared(run, run)["tokens.p95"] == (1900 + 100, 1900 + 100, False)


def test_unknown_tokens_rank_the_unfavourable_way() -> None:
    """In the run t01 counts as the largest: p95 moves up to the 20th known value."""
    run = with_trials(make_run(), "t01", samples={"output_tokens": None})

    assert compared(make_run(), run)["tokens.p95"][:2] == (1900, 2000)


def test_movers_are_ranked_by_fanout_then_tokens() -> None:
    """The task that moved most stands first; what did not move is left out."""
    base = table_of_baseline(build_baseline(make_run(), "support"))
    run = make_run({**TWENTY, "t05": [9], "t02": [3], "new": [50]})
    run = with_trials(run, "t07", samples={"input_tokens": 9000})

    assert [delta.task for delta in top_movers(base, table_of_runs(run.tasks))] == ["new", "t05", "t02", "t07"]


def test_percentiles_need_tasks() -> None:
    """A14: below 20 tasks p95 is the maximum, below 100 p99 is."""
    assert [tasks_needed(name) for name in ("p50", "p90", "p95", "p99", "p99.9", "max")] == [1, 10, 20, 100, 1000, 1]


def test_replaying_the_same_tape_twice_is_never_over() -> None:
    """A14: identical draws pass whatever their distribution, 100 fat-tailed classes of 20 tasks."""
    chance = random.Random(7)
    for _ in range(100):
        run = make_run({f"t{number}": [2 + int(chance.expovariate(0.5))] for number in range(20)})

        assert not any(over for _, _, over in compared(run, run).values())
