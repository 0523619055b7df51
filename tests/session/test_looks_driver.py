"""When looks are taken at all, what a draw leaves behind when it ends early, and what is said beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.records import (
    Baseline,
    BaselineTask,
    Budget,
    Caps,
    EvalSet,
    EvalTask,
    Exchange,
    HttpAnswer,
    HttpRequest,
    JudgeRules,
    Limit,
    MeasureRules,
    Prices,
    Problem,
    Recording,
    TaskRun,
    TrialFacts,
)
from pytest_fanout.session.flow.forecast import Trial, forecast
from pytest_fanout.session.flow.progress import Progress
from pytest_fanout.session.looks.driver import Looks, looks_of
from pytest_fanout.session.looks.ending import beyond, end_draws, left_out, remove_superseded, superseded
from pytest_fanout.store.recordings import RecordingStore

BUDGET = Budget(
    "digest", {"default": (Limit("fanout", "p95", at_least=1),)}, {"default": Caps()}, {"default": JudgeRules()},
    MeasureRules(),
)  # fmt: skip
ANCHOR = Baseline(
    "support",
    "digest",
    None,
    {task: BaselineTask("d", {"fanout": (4,)}, (TrialFacts("r1", "ok", True, 0),)) for task in ("a", "redefined")},
)


def session_of(**more: Any) -> Any:
    """A session in record mode, alone in its process, in a project with an anchor."""
    lines = tuple(EvalTask(task, 1, None, (), 1.0, False, word, 1) for task, word in (("a", "d"), ("redefined", "e")))
    config = SimpleNamespace(getoption={"dist": "load"}.get, workerinput={})
    given: dict[str, Any] = {
        "mode": "record",
        "trials": None,
        "shard": None,
        "is_worker": False,
        "is_controller": False,
        "evalsets": {"support": EvalSet("support", "e.jsonl", "digest", lines)},
        "budget": BUDGET,
        "anchors": SimpleNamespace(compared=lambda: ({"support": ANCHOR}, BUDGET)),
        "config": config,
    }
    return SimpleNamespace(**given | more)


# --- when looks are taken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"mode": "rerecord"},
        {"mode": "replay"},
        {"trials": 3},
        {"shard": (1, 2)},
        {"anchors": SimpleNamespace(compared=lambda: None)},
        {"anchors": SimpleNamespace(compared=lambda: ({}, BUDGET))},
        {"is_worker": True},
        {"is_controller": True, "config": SimpleNamespace(getoption={"dist": "each"}.get)},
    ],
    ids=["rerecord", "replay", "fixed", "shard", "no git", "no anchor", "worker without", "dist each"],
)
def test_without_looks_every_trial_runs(more: dict[str, Any]) -> None:
    """A new draw of everything, a fixed number, a shard (only all of them are judged), a first anchor: all of it."""
    assert looks_of(session_of(**more)) is None


def test_looks_are_taken_of_new_draws() -> None:
    """In record and live mode, in a controller and in the workers that it has told."""
    told = SimpleNamespace(getoption={}.get, workerinput={"fanout_looks": True})

    assert looks_of(session_of()) is not None
    assert looks_of(session_of(mode="live")) is not None
    assert looks_of(session_of(is_controller=True)) is not None
    assert looks_of(session_of(is_worker=True, config=told)) is not None


def test_evidence_spares_only_what_can_be_compared() -> None:
    """A task that the anchor does not hold, or holds with another definition, is recorded whole, as a new class is."""
    looks = Looks(session_of(), {"support": ANCHOR}, BUDGET)

    assert looks.is_guided("support", "a")
    assert not looks.is_guided("support", "redefined")
    assert not looks.is_guided("support", "new")
    assert not looks.is_guided("research", "a")


# --- the forecast ------------------------------------------------------------------------------------------------


def lines(mode: str, recorded: frozenset[int] = frozenset()) -> list[str]:
    """The forecast of task ``a``, which is spared, and of ``new``, which is not: three trials each."""
    looks = Looks(session_of(), {"support": ANCHOR}, BUDGET)
    trials = [Trial("support", task, number) for task in ("a", "new") for number in (1, 2, 3)]
    return list(
        forecast(
            mode, trials, lambda trial: trial.trial in recorded, lambda agent: None, prices=Prices(), workers=1,
            paces={}, limit=None, is_spared=looks.may_spare(trials),
        )
    )  # fmt: skip


def test_the_forecast_is_a_range() -> None:
    """At least one trial of the task that the anchor holds and all three of the other; at most two more."""
    unknown = "calls, tokens and time unknown"
    source = ", for there is no recording and no anchor"

    assert lines("live") == [
        f"fanout: support: at least 4 trials of 2 tasks run live: {unknown}; those that evidence needs come on top, "
        f"at most 2: {unknown}{source}"
    ]
    assert lines("record", frozenset({1})) == [
        f"fanout: support: at least 2 trials of 1 task are missing: {unknown}; stale ones and those that evidence "
        f"needs come on top, at most 4: {unknown}{source}"
    ]
    assert lines("record", frozenset({1, 2, 3})) == [
        f"fanout: support: stale trials run live, and those that evidence needs: none to at most 6, {unknown}{source}"
    ]


def test_progress_counts_what_was_asked_for() -> None:
    """Its total grows with each look, and a task of which another trial is wanted is not done."""
    progress = Progress((), Prices(), lambda: 0.0)
    progress.asked([Trial("support", "a", 1), Trial("support", "b", 1)])
    for task in ("a", "b"):
        progress.add(TaskRun("support", task, 1, "ok", True, {"input_tokens": 1, "output_tokens": 1}))
    assert progress.line() == "fanout: 2 of 2 tasks done (2 of 2 trials), 0 live calls, 0 tokens"

    progress.asked([Trial("support", "a", 2)])
    assert progress.line().startswith("fanout: 1 of 2 tasks done (2 of 3 trials), ")


# --- the end of a draw -------------------------------------------------------------------------------------------


def recording(trial: int, draw: int = 1, replaced: tuple[str, ...] = (), said: str = "old") -> Recording:
    url = "https://api.openai.com/v1/chat/completions"
    request = HttpRequest("POST", url, (), b'{"model":"m","messages":[{"role":"user","content":"q"}]}')
    body = f'{{"choices":[{{"message":{{"content":"{said}"}}}}]}}'.encode()
    exchange = Exchange(0, "httpx", "model", "agent", request, HttpAnswer(200, (), (body,), (1,), 2), 0)
    return Recording("support", "a", trial, "d", 0, 5, "ok", True, (exchange,), draw=draw, replaced=replaced)


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    """Two draws: trial 1 was drawn anew twice, trial 2 not since the first of them, trial 3 never."""
    made = RecordingStore(tmp_path, {})
    made.save(recording(1, draw=3, replaced=("one", "two"), said="new"))
    made.save(recording(2, draw=2, replaced=("three",)))
    made.save(recording(3))
    return made


def run_of(store: RecordingStore, trial: int, *, new: bool = True) -> TaskRun:
    found = store.load("support", "a", trial)
    return TaskRun(
        "support", "a", trial, "ok", True, {"fanout": 1}, recording=found.digest, draw=found.draw, new_draw=new
    )  # fmt: skip


def test_a_draw_that_ends_early_removes_what_is_stale_and_keeps_its_digests(store: RecordingStore) -> None:
    """Only the new draw's recording is left; it names all that was there, and the report its new digest."""
    old = [store.digest("support", "a", trial) for trial in (2, 3)]
    runs, problems = end_draws(store, [run_of(store, 1)], {("support", "a"): [2, 3, 4]})

    kept = store.load("support", "a", 1)
    assert problems == []
    assert store.trials("support", "a") == (1,)
    assert kept.replaced == ("one", "two", "three", *old)
    assert kept.draw == 3
    assert [run.recording for run in runs] == [kept.digest]


def test_what_an_interrupted_draw_left_is_removed_when_it_has_ended(store: RecordingStore) -> None:
    """Its first trial is replayed, and the others are known by the numbers of their draws to be older."""
    end_draws(store, [run_of(store, 1, new=False)], {("support", "a"): [2, 3]})

    assert store.trials("support", "a") == (1,)


def test_a_trial_that_was_never_recorded_before_ends_the_older_draw_too(store: RecordingStore) -> None:
    """It is the first draw of this trial, and newer than all that stands there."""
    store.remove("support", "a", 1)
    store.save(recording(1, said="new"))
    end_draws(store, [run_of(store, 1)], {("support", "a"): [2, 3]})

    assert store.trials("support", "a") == (1,)


def test_recordings_of_the_same_draw_stay(store: RecordingStore) -> None:
    """Trial 2 is as old as trial 3's run: nobody knows it to be stale."""
    same = [replace(run_of(store, 3, new=False))]
    runs, problems = end_draws(store, same, {("support", "a"): [2]})

    assert (runs, problems) == (same, [])
    assert store.trials("support", "a") == (1, 2, 3)


def test_trials_that_were_added_to_a_draw_later_stay(store: RecordingStore) -> None:
    """They are the first draw of theirs, and were paid for after the third draw of trial 1: nothing removes them."""
    later = replace(store.load("support", "a", 1), begun_at=1000)
    store.save(later)
    store.save(replace(recording(3), begun_at=2000))
    run = replace(run_of(store, 1, new=False), begun_at=1000)
    end_draws(store, [run], {("support", "a"): [2, 3]})

    assert store.trials("support", "a") == (1, 3)


def test_without_a_recording_of_the_new_draw_the_old_one_stays(store: RecordingStore) -> None:
    """A trial that could not be stored replaces nothing."""
    run = replace(run_of(store, 1), recording=None)
    end_draws(store, [run], {("support", "a"): [2, 3]})

    assert store.trials("support", "a") == (1, 2, 3)


def test_a_recording_that_cannot_be_removed_is_told(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make the task stale, so that the run is invalid; the others have their say."""
    monkeypatch.setattr(Path, "unlink", lambda *args, **more: (_ for _ in ()).throw(PermissionError(13, "denied")))
    run = run_of(store, 1)
    runs, problems = end_draws(store, [run], {("support", "a"): [2, 3]})

    assert [(problem.slug, problem.verdict, problem.task) for problem in problems] == [("cannot-write", "invalid", "a")]
    assert runs == [replace(run, recording=store.digest("support", "a", 1))]


def test_a_damaged_recording_has_no_digest_to_keep(store: RecordingStore) -> None:
    """It is removed all the same where its header tells its draw."""
    path = store.path("support", "a", 2)
    path.write_text(path.read_text().replace("old", "odd"))
    end_draws(store, [run_of(store, 1)], {("support", "a"): [2, 3]})

    assert store.trials("support", "a") == (1,)
    assert "three" not in store.load("support", "a", 1).replaced


def test_a_fixed_number_ends_a_draw_where_all_of_it_ran(store: RecordingStore) -> None:
    """`--fanout-trials=2` leaves trial 3; a run of trial 1 alone, by `-k` or after an interruption, ends nothing."""
    both = [run_of(store, 1), run_of(store, 2)]

    assert beyond(store, both, 2) == {("support", "a"): [3]}
    assert beyond(store, both[:1], 2) == {}


@pytest.fixture
def laid_over(store: RecordingStore, tmp_path: Path) -> RecordingStore:
    """A draw that ended with trial 1 was made elsewhere, and its recording laid over the older three here."""
    elsewhere = RecordingStore(tmp_path / "elsewhere", {})
    for trial in (1, 2, 3):
        elsewhere.save(store.load("support", "a", trial))
    end_draws(elsewhere, [run_of(elsewhere, 1)], {("support", "a"): [2, 3]})
    store.save(elsewhere.load("support", "a", 1))
    return store


def test_recordings_superseded(laid_over: RecordingStore) -> None:
    """What a recording beside them names as replaced is no trial of the task: told, and neither missing nor stale."""
    run = run_of(laid_over, 1, new=False)

    assert laid_over.trials("support", "a") == (1, 2, 3)
    assert laid_over.superseded("support", "a") == (2, 3)
    assert left_out(laid_over, [run]) == []
    folder = laid_over.path("support", "a", 1).parent.relative_to(laid_over.folder).as_posix()
    assert superseded(laid_over, [run]) == [
        Problem(
            "recordings-superseded",
            "support: 2 recordings are of a draw that others beside them have replaced, and did not run: "
            f"{folder}/t2.jsonl, {folder}/t3.jsonl; mend: remove them, as the next --fanout-mode=record does",
            "notice",
            "support",
        )
    ]


def test_the_next_record_run_removes_what_was_superseded(laid_over: RecordingStore) -> None:
    """As it had been removed where the newer draw was made. What nothing names stays, whatever it is."""
    laid_over.save(recording(4, said="another"))
    remove_superseded(laid_over, [("support", "a")])

    assert laid_over.trials("support", "a") == (1, 4)
    assert superseded(laid_over, [run_of(laid_over, 1, new=False)]) == []


def test_a_damaged_recording_supersedes_nothing(laid_over: RecordingStore) -> None:
    """Its header cannot be read, or its end mark is gone: then the file is met as it is, and refused by name."""
    path = laid_over.path("support", "a", 2)
    path.write_bytes(path.read_bytes()[:-40])
    assert laid_over.superseded("support", "a") == (3,)
    path = laid_over.path("support", "a", 1)
    path.write_bytes(b"{" + path.read_bytes())
    assert laid_over.superseded("support", "a") == ()


def test_trials_left_out(store: RecordingStore) -> None:
    """Who runs trial 2 alone, by `-k` or a number, has chosen its numbers; whole tasks may be left out."""
    whole = [run_of(store, trial, new=False) for trial in (1, 2, 3)]

    assert left_out(store, whole[1:2]) == [
        Problem(
            "trials-left-out",
            "support: recorded trials were left out: a (1, 3); mend: run without --fanout-trials, "
            "and without -k or skips that choose among the trials of a task",
            "incomplete",
            "support",
        )
    ]
    assert left_out(store, whole) == []
    assert left_out(store, []) == []
