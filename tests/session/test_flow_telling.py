"""What a live run says of itself: a forecast before its first call, and a line of progress now and then."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import Baseline, BaselineTask, Prices, Recording, Samples, TaskRun, TrialFacts
from pytest_fanout.session.flow.flow import Flow
from pytest_fanout.session.flow.forecast import MOST_READ, LastDraw, Trial, forecast, last_draw
from pytest_fanout.session.flow.limits import Pace, SpendLimit
from pytest_fanout.session.flow.progress import Progress

PRICES = Prices(3.0, 0.3, 15.0)


def samples(fanout: int, given: int | None, cached: int | None, made: int | None, duration_ms: int) -> Samples:
    return {
        "fanout": fanout,
        "input_tokens": given,
        "cached_input_tokens": cached,
        "output_tokens": made,
        "duration_ms": duration_ms,
    }


def recording(task: str, trial: int) -> Recording:
    return Recording("support", task, trial, None, 0, 0, "ok", True, ())


def draw(rows: dict[tuple[str, int], Samples], anchor: Baseline | None = None) -> LastDraw | None:
    """The last draw of a class whose recordings measure so."""
    return last_draw(
        "support",
        list(rows),
        lambda agent, task, trial: recording(task, trial),
        lambda loaded: rows[loaded.task, loaded.trial],
        anchor,
    )


#: Three trials: per task the means are 3 and 6 calls, 2,000 and 4,000 new, 1,000 and 2,000 cached, 300 and 600 made.
DRAW = draw(
    {
        ("one", 1): samples(2, 2500, 1000, 200, 10_000),
        ("one", 2): samples(4, 3500, 1000, 400, 20_000),
        ("two", 1): samples(6, 6000, 2000, 600, 45_000),
    }
)
TRIALS = [Trial("support", task, trial) for task in ("one", "two") for trial in (1, 2, 3, 4)]


def lines(mode: str, *, recorded: Sequence[Trial] = (), trials: Sequence[Trial] = TRIALS, **more: Any) -> list[str]:
    told: dict[str, Any] = {"draw": DRAW, "prices": Prices(), "workers": 1, "paces": {}, "limit": None} | more
    known = told.pop("draw")
    draw_of = known if callable(known) else lambda agent: known
    return list(forecast(mode, trials, lambda trial: trial in recorded, draw_of, **told))


# --- the forecast ------------------------------------------------------------------------------------------------


def test_a_new_draw_costs_what_the_last_one_did() -> None:
    """8 trials at a mean of 4.5 calls, 3,000 new, 1,500 cached and 450 made tokens, and 30 seconds (15 and 45)."""
    # 8 x (3,000 x 3 + 1,500 x 0.3 + 450 x 15) / 1e6 = 8 x 0.0162 dollars
    assert lines("rerecord", recorded=TRIALS, prices=PRICES, workers=2) == [
        "fanout: support: 8 trials of 2 tasks run live: about 36 calls, 39,600 tokens, $0.13, 2 minutes, "
        "by 3 recordings"
    ]


def test_in_record_mode_only_missing_trials_are_sure() -> None:
    """What is stale is known when it is met: so the least and the most are told."""
    assert lines("record", recorded=TRIALS[:5]) == [
        "fanout: support: at least 3 trials of 1 task are missing: about 14 calls, 14,850 tokens, 2 minutes; "
        "stale ones come on top, at most 5: about 22 calls, 24,750 tokens, 2 minutes, by 3 recordings"
    ]
    assert lines("record", recorded=TRIALS) == [
        "fanout: support: no trial is missing; stale ones come on top, at most 8: about 36 calls, 39,600 tokens, "
        "4 minutes, by 3 recordings"
    ]
    assert lines("record", trials=TRIALS[:1]) == [
        "fanout: support: at least 1 trial of 1 task is missing: about 4 calls, 4,950 tokens, 30 seconds, "
        "by 3 recordings"
    ]


def test_what_is_not_known_is_never_nothing() -> None:
    """Without recording and anchor all is unknown; without usage the tokens are; beside a class that is known the sum
    is unknown too."""
    no_usage = draw({("one", 1): samples(2, None, None, None, 1000)})

    assert lines("live", draw=None) == [
        "fanout: support: 8 trials of 2 tasks run live: calls, tokens and time unknown, "
        "for there is no recording and no anchor"
    ]
    assert lines("live", draw=no_usage, prices=PRICES) == [
        "fanout: support: 8 trials of 2 tasks run live: about 16 calls, 8 seconds, tokens unknown, by 1 recording"
    ]
    both = [*TRIALS, Trial("research", "three", 1)]
    assert lines("live", trials=both, draw=lambda agent: DRAW if agent == "support" else None) == [
        "fanout: research: 1 trial of 1 task runs live: calls, tokens and time unknown, "
        "for there is no recording and no anchor",
        "fanout: support: 8 trials of 2 tasks run live: about 36 calls, 39,600 tokens, 4 minutes, by 3 recordings",
        "fanout: in all: calls, tokens and time unknown",
    ]


def test_classes_are_summed() -> None:
    """What is sure, and what may come on top where anything is recorded."""
    both = [*TRIALS, Trial("research", "three", 1)]

    assert lines("record", trials=both)[2:] == ["fanout: in all, at least: about 40 calls, 44,550 tokens, 4 minutes"]
    assert lines("record", trials=both, recorded=TRIALS[:4])[2:] == [
        "fanout: in all, at least: about 22 calls, 24,750 tokens, 2 minutes; stale ones come on top, at most about 18 "
        "calls, 19,800 tokens, 2 minutes"
    ]


def test_a_provider_limit_takes_its_time() -> None:
    """36 calls at 6 a minute take 6 minutes, whatever the workers; 39,600 tokens at 3,960 a minute take 10."""
    (by_requests,) = lines("live", workers=8, paces={"support": Pace(requests_per_minute=6)})
    (by_tokens,) = lines("live", workers=8, paces={"support": Pace(6, 3960)})

    assert ", 6 minutes, by" in by_requests
    assert ", 10 minutes, by" in by_tokens


def test_a_limit_that_will_be_reached_is_said_before() -> None:
    """36 calls are more than 35 and no more than 36."""
    assert lines("live", limit=SpendLimit(36, "calls"))[1:] == []
    assert lines("live", limit=SpendLimit(35, "calls"))[1:] == [
        "fanout: that is more than its spend limit of 35 calls, before which it will stop"
    ]
    assert lines("live", limit=SpendLimit(39_599, "tokens"))[1:] == [
        "fanout: that is more than its spend limit of 39,599 tokens, before which it will stop"
    ]


def test_the_anchor_stands_in_for_recordings_that_are_not_there() -> None:
    """Only its trials that were measured count."""
    facts = [TrialFacts(None, status, True, None) for status in ("ok", "crashed")]
    columns = {
        "fanout": (3, 900),
        "input_tokens": (50, 0),
        "cached_input_tokens": (None, None),
        "output_tokens": (7, 0),
    }
    entry = BaselineTask("d", columns | {"duration_ms": (2000, 0)}, tuple(facts))
    anchor = Baseline("support", "digest", None, {"one": entry})

    assert lines("live", trials=TRIALS[:2], draw=draw({}, anchor)) == [
        "fanout: support: 2 trials of 1 task run live: about 6 calls, 114 tokens, 4 seconds, by HEAD's anchor"
    ]


def test_a_large_class_is_sampled() -> None:
    """At most 24 recordings are read, spread over all of them; one that is altered is passed over."""
    read: list[int] = []

    def load(agent: str, task: str, trial: int) -> Recording:
        read.append(trial)
        if trial == 1:
            raise IntegrityError("recording-altered", "was altered")
        return recording(task, trial)

    found = last_draw(
        "support", [("one", n) for n in range(1, 241)], load, lambda r: samples(r.trial, 1, 0, 1, 1), None
    )

    assert read == list(range(1, 241, 10))
    assert len(read) == MOST_READ
    assert found is not None
    assert found.source == "23 recordings"


# --- progress ----------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def trial_run(task: str, trial: int, *, live: bool = True, tokens: int | None = 1_000_000, calls: int = 3) -> TaskRun:
    values = {"fanout": calls, "input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": 0}
    return TaskRun(
        "support", task, trial, "ok", True, values, new_draw=live, spent_calls=calls if live else 0
    )  # fmt: skip


def test_progress_tells_tasks_calls_tokens_spend_and_time_left() -> None:
    """Of 8 trials 5 took 50 seconds, one of them replayed for nothing: 30 seconds are left, 4 millions at $3 spent."""
    clock = Clock()
    progress = Progress(TRIALS, PRICES, clock)
    clock.now = 50.0
    for trial in (1, 2, 3, 4):
        progress.add(trial_run("one", trial))
    progress.add(trial_run("two", 1, live=False))

    assert progress.line() == (
        "fanout: 1 of 2 tasks done (5 of 8 trials), 12 live calls, 4,000,000 tokens, $12.00, about 30 seconds left"
    )


def test_progress_never_takes_unknown_tokens_for_none() -> None:
    """A trial without usage makes the tokens a lower bound, and the spend unknown."""
    progress = Progress(TRIALS[:2], PRICES, Clock())
    progress.add(trial_run("one", 1))
    progress.add(trial_run("one", 2, tokens=None))

    assert progress.line() == "fanout: 1 of 1 task done (2 of 2 trials), 6 live calls, at least 1,000,000 tokens"


def test_progress_comes_now_and_then() -> None:
    """A line with each tenth that is 5 seconds or more after the last one, and after 30 seconds in any case."""
    clock = Clock()
    progress = Progress([Trial("support", "one", n) for n in range(1, 101)], Prices(), clock)
    told = []
    for trial in range(1, 101):
        # at first two trials a second, which makes a tenth every 5 seconds; from trial 50 on one every 10 seconds
        clock.now += 0.5 if trial <= 50 else 10
        if progress.add(trial_run("one", trial)) is not None:
            told.append((trial, clock.now))

    assert told[:6] == [(10, 5.0), (20, 10.0), (30, 15.0), (40, 20.0), (50, 25.0), (53, 55.0)]
    assert told[6:9] == [(56, 85.0), (59, 115.0), (60, 125.0)]


@pytest.mark.parametrize(("verbose", "shown"), [(0, True), (-1, True), (-2, False)])
def test_progress_is_silent_with_q_q(verbose: int, shown: bool) -> None:
    """The line stands on its own, after whatever pytest has begun to write; with -q -q it is left out."""
    written: list[str] = []
    terminal = SimpleNamespace(
        ensure_newline=lambda: written.append("\\n"),
        write_line=written.append,
        _tw=SimpleNamespace(fullwidth=60),
    )
    config = SimpleNamespace(
        option=SimpleNamespace(verbose=verbose), pluginmanager=SimpleNamespace(get_plugin=lambda name: terminal)
    )
    flow = Flow.__new__(Flow)
    runs = [trial_run("one", 1)]
    flow._session = SimpleNamespace(told=SimpleNamespace(task_runs=runs), config=config)  # type: ignore[assignment]
    clock = Clock()
    flow._told, flow._progress = 0, Progress(TRIALS, Prices(), clock)
    clock.now = 31.0
    for _ in range(2):  # the second report is of another phase of the same trial
        flow.pytest_runtest_logreport(None)  # type: ignore[arg-type]

    line = [
        "\\n",
        "fanout: 0 of 2 tasks done (1 of 8 trials), 3 live calls,",
        "  1,000,000 tokens, about 4 minutes left",
    ]
    assert written == (line if shown else [])
