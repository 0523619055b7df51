"""What a live run may spend: read from the option, shared by all workers, held at each call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from model_server import ModelServer
from project import Project

from pytest_fanout.config import find_settings
from pytest_fanout.errors import StorageError, UsageError
from pytest_fanout.meter import Meter
from pytest_fanout.meter.outflow import Turn
from pytest_fanout.records import Budget, Caps, JudgeRules, MeasureRules, Problem
from pytest_fanout.session.flow.allowance import PATIENCE_S, Allowance, Slowed, Spent, create
from pytest_fanout.session.flow.flow import Flow
from pytest_fanout.session.flow.limits import Pace, SpendLimit, parse_spend_limit
from pytest_fanout.session.flow.told import slowed_problem, stopped_problem
from pytest_fanout.session.items import MeasuredTask
from pytest_fanout.session.proof import Proof
from pytest_fanout.session.trial import TrialRunner
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.wire.canonical import compile_volatile

BUDGET = Budget("digest", {"default": ()}, {"default": Caps()}, {"default": JudgeRules()}, MeasureRules())
SEE = "\n  see: docs/messages.md#"


# --- the option --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("500calls", SpendLimit(500, "calls")),
        ("1call", SpendLimit(1, "calls")),
        ("2000000tokens", SpendLimit(2_000_000, "tokens")),
        ("2_000_000 tokens", SpendLimit(2_000_000, "tokens")),
        (" 1,500 Tokens ", SpendLimit(1500, "tokens")),
    ],
)
def test_a_limit_is_a_number_and_its_unit(text: str, limit: SpendLimit) -> None:
    """Thousands may be set apart, and blanks and capitals do not matter."""
    assert parse_spend_limit(text) == limit


@pytest.mark.parametrize("text", ["", "500", "calls", "0calls", "-1calls", "1.5tokens", "5e3calls", "_1calls", "$5"])
def test_bad_spend_limit(text: str) -> None:
    """Whatever is no number of calls or tokens from 1 up is refused, and the text shows both forms."""
    with pytest.raises(UsageError) as caught:
        parse_spend_limit(text)

    assert str(caught.value) == (
        f"--fanout-spend-limit={text} is not a number of calls or of tokens, from 1 up\n"
        f"  mend: --fanout-spend-limit=500calls, or --fanout-spend-limit=2_000_000tokens{SEE}bad-spend-limit"
    )


# --- the allowance -----------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create(tmp_path)


def over(turn: object, tokens: int | None = 10, *, reached: bool = True, status: int = 200, wait_s: float = 0) -> None:
    turn.over(tokens, reached=reached, status=status, retry_after_s=wait_s)  # type: ignore[attr-defined]


def place(run: Allowance, agent: str, tokens: int) -> Turn:
    """A place that is given for sure."""
    turn = run.ask(agent, tokens)
    assert turn is not None
    return turn


def test_calls_are_shared_by_all_workers(path: Path) -> None:
    """Two workers with a limit of 5 calls make 5 together, whoever comes first; the sixth is refused."""
    one, two = (Allowance(path, name, SpendLimit(5, "calls")) for name in ("gw0", "gw1"))
    given = [worker.ask("a", 0) is not None for worker in (one, two, one, one, two, two, one)]

    assert given == [True] * 5 + [False] * 2
    assert one.spent() == two.spent() == Spent(5, 0, refused=True, cut=0, unbegun=0)


def test_a_call_that_reached_no_model_gives_its_place_back(path: Path) -> None:
    """A 503 is not spent: the retry takes the place that it leaves."""
    run = Allowance(path, "gw0", SpendLimit(1, "calls"))
    first = run.ask("a", 7)
    over(first, None, reached=False, status=503)
    again = run.ask("a", 7)
    assert again is not None
    over(again, 20)

    assert run.spent() == Spent(1, 20, refused=False, cut=0, unbegun=0)
    assert run.ask("a", 7) is None


def test_tokens_are_reserved_before_and_booked_after_the_answer(path: Path) -> None:
    """A call reserves its request's estimate, and as much on top as the call that went furthest beyond its own."""
    run = Allowance(path, "gw0", SpendLimit(1000, "tokens"))
    first = run.ask("a", 100)
    assert run.spent().tokens == 100
    over(first, 350)  # 250 beyond its estimate
    assert run.spent().tokens == 350
    second = run.ask("a", 100)
    assert run.spent().tokens == 350 + 100 + 250
    # 700 + 60 + 250 = 1,010 would pass the limit of 1,000; 50 would not
    assert run.ask("a", 60) is None
    assert run.ask("a", 50) is not None
    over(second, 120)
    assert run.spent().tokens == 350 + 120 + 300


def test_tokens_that_nobody_tells_stay_reserved(path: Path) -> None:
    """An answer without usage is not free."""
    run = Allowance(path, "gw0", SpendLimit(1000, "tokens"))
    over(run.ask("a", 400), None)

    assert run.spent().tokens == 400


def test_a_background_run_is_booked_when_it_tells(path: Path) -> None:
    """What a poll tells comes on top of what its call had reserved."""
    run = Allowance(path, "gw0", SpendLimit(1000, "tokens"))
    over(run.ask("a", 100), None)
    run.add(500)

    assert run.spent().tokens == 600


def test_nothing_live_begins_after_a_refusal(path: Path) -> None:
    """Trials that are not begun are counted, and so are those that were cut."""
    run = Allowance(path, "gw0", SpendLimit(1, "calls"))
    assert run.may_begin()
    run.ask("a", 0)
    assert run.may_begin()
    run.ask("a", 0)
    run.cut()

    assert [run.may_begin(), run.may_begin()] == [False, False]
    assert run.spent() == Spent(1, 0, refused=True, cut=1, unbegun=2)


def test_workers_that_ask_at_once_never_pass_the_limit(path: Path) -> None:
    """Three processes with four threads each, all asking 20 times, are given exactly the 100 calls that there are."""
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from pytest_fanout.session.flow.allowance import Allowance\n"
        "from pytest_fanout.session.flow.limits import SpendLimit\n"
        "run = Allowance(Path(sys.argv[1]), sys.argv[2], SpendLimit(100, 'calls'))\n"
        "given = []\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "def ask():\n    given.extend(run.ask('a', 1) is not None for _ in range(20))\n"
        "threads = [threading.Thread(target=ask) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print(sum(given), len(given))\n"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), f"gw{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    told = [worker.communicate(timeout=60)[0].split() for worker in workers]

    assert [asked for _, asked in told] == ["80"] * 3
    assert sum(int(given) for given, _ in told) == 100
    assert Allowance(path, "controller").spent() == Spent(100, 100, refused=True, cut=0, unbegun=0)


def test_after_its_end_nothing_is_asked(path: Path) -> None:
    """A call that ends after the run has, in a thread that was left behind, is not booked and raises nothing."""
    run = Allowance(path, "gw0")
    turn = run.ask("a", 1)
    run.close()
    over(turn)

    assert run.ask("a", 1) is None


def test_allowance_not_shared(tmp_path: Path) -> None:
    """A worker that cannot see the file of the run does not begin: without it nobody would hold its limit."""
    config = SimpleNamespace(
        getoption=lambda name: None, workerinput={"fanout_flow": str(tmp_path / "elsewhere"), "workerid": "gw0"}
    )
    session: Any = SimpleNamespace(config=config, settings=find_settings(tmp_path), is_worker=True)
    with pytest.raises(StorageError) as caught:
        Flow(session)

    assert str(caught.value) == (
        f"{tmp_path}/elsewhere/allowance.sqlite: cannot be opened: all workers of a live run share it\n"
        f"  mend: run all workers on one machine, with one temporary folder{SEE}allowance-not-shared"
    )


# --- whose turn it is --------------------------------------------------------------------------------------------


def test_requests_are_spread_over_the_minute(path: Path, clock: Clock) -> None:
    """30 requests a minute are one every two seconds, for all workers of the class together; other classes go on."""
    paces = {"a": Pace(requests_per_minute=30)}
    one, two = (Allowance(path, name, paces=paces, clock=clock) for name in ("gw0", "gw1"))
    turns = [place(worker, "a", 1) for worker in (one, two, one)]
    other = place(two, "b", 1)
    went: list[tuple[int, float]] = []
    while len(went) < 3:
        for number, turn in enumerate(turns):
            if number not in [n for n, _ in went] and turn.wait_s() == 0:
                went.append((number, clock.now))
        clock.now += 0.25

    assert other.wait_s() == 0
    assert went == [(0, 1000.0), (1, 1002.0), (2, 1004.0)]


def test_high_rates_allow_the_burst_of_a_second(path: Path, clock: Clock) -> None:
    """600 a minute are enforced as 10 a second: ten go at once, and the eleventh a tenth of a second later."""
    run = Allowance(path, "gw0", paces={"a": Pace(requests_per_minute=600)}, clock=clock)
    waits = [place(run, "a", 1).wait_s() for _ in range(12)]

    assert waits == [0] * 10 + [pytest.approx(0.1), pytest.approx(0.2)]


def test_tokens_a_minute_hold_back_the_next_call(path: Path, clock: Clock) -> None:
    """At 60,000 a minute a call of 10,000 fills ten seconds, one of them the burst; what it cost less comes back."""
    run = Allowance(path, "gw0", paces={"a": Pace(tokens_per_minute=60_000)}, clock=clock)
    first = place(run, "a", 10_000)
    assert first.wait_s() == 0
    second = place(run, "a", 1)
    assert second.wait_s() > 0
    clock.now += 9
    assert second.wait_s() == 0
    over(second, 1)
    over(first, 4_000)  # six seconds less
    clock.now += 0.01
    assert place(run, "a", 1).wait_s() == 0


def test_parallel_calls_are_counted_over_workers(path: Path, clock: Clock) -> None:
    """Of two that are allowed at once the third waits until one has ended, wherever that was."""
    paces = {"a": Pace(parallel_calls=2)}
    one, two = (Allowance(path, name, paces=paces, clock=clock) for name in ("gw0", "gw1"))
    first, second, third = place(one, "a", 1), place(two, "a", 1), place(two, "a", 1)
    assert (first.wait_s(), second.wait_s()) == (0, 0)
    assert third.wait_s() > 0
    over(first)

    assert third.wait_s() == 0


def test_a_task_never_waits_for_itself_for_ever(path: Path, clock: Clock) -> None:
    """An agent that calls while it reads an answer holds the only place: after its patience it goes on."""
    run = Allowance(path, "gw0", paces={"a": Pace(parallel_calls=1)}, clock=clock)
    outer, inner = place(run, "a", 1), place(run, "a", 1)
    assert outer.wait_s() == 0
    assert inner.wait_s() > 0
    clock.now += PATIENCE_S + 1

    assert inner.wait_s() == 0


@pytest.mark.parametrize("gone", ["trial", "worker"])
def test_what_will_never_end_is_not_waited_for(path: Path, clock: Clock, gone: str) -> None:
    """An answer that its task left unread, or whose worker died, frees its place, and is never freed twice."""
    paces = {"a": Pace(parallel_calls=1)}
    one, two = (Allowance(path, name, paces=paces, clock=clock) for name in ("gw1-77", "gw10-78"))
    left, waiting, after = place(one, "a", 1), place(two, "a", 1), place(two, "a", 1)
    assert left.wait_s() == 0
    assert waiting.wait_s() > 0
    if gone == "trial":
        one.trial_ended()
    else:
        two.forget("gw1")
    assert waiting.wait_s() == 0
    if gone == "trial":
        over(left)
        assert after.wait_s() > 0


def test_a_429_holds_all_workers_and_halves_what_runs_in_parallel(path: Path, clock: Clock) -> None:
    """The pause that was asked for holds for each worker of the class; then half as many go at once, and one more for
    each round that goes well."""
    one, two = (Allowance(path, name, clock=clock) for name in ("gw0", "gw1"))
    turns = [place(one, "a", 1) for _ in range(4)]
    assert [turn.wait_s() for turn in turns] == [0] * 4
    clock.now += 1
    for turn in turns:  # four refusals of one burst halve once
        over(turn, None, reached=False, status=429, wait_s=3)
    waiting = [place(two, "a", 1) for _ in range(3)]
    other = place(two, "b", 1)
    assert other.wait_s() == 0
    assert all(turn.wait_s() > 0 for turn in waiting)
    clock.now += 3
    assert [turn.wait_s() > 0 for turn in waiting] == [False, False, True]
    over(waiting[0])
    over(waiting[1])
    # 2 + 1/2 + 1/2.5 = 2.9: two at once, and three after the next that goes well
    more = place(two, "a", 1)
    assert (waiting[2].wait_s(), more.wait_s()) == (0, 0)
    assert one.slowed() == (Slowed("a", 4, pytest.approx(9.0)),)


def test_a_pause_has_an_end(path: Path, clock: Clock) -> None:
    """A provider that asks for an hour is asked again after a minute."""
    run = Allowance(path, "gw0", clock=clock)
    over(place(run, "a", 1), None, reached=False, status=429, wait_s=3600)
    turn = place(run, "a", 1)
    clock.now += 60

    assert turn.wait_s() == 0


# --- what is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kept", "goes_on"),
    [
        (
            "record",
            " and stored",
            "pytest --fanout-budget --fanout-mode=record --fanout-spend-limit=500calls goes on with what is missing",
        ),
        (
            "rerecord",
            " and stored",
            "--fanout-mode=rerecord with a higher limit draws all of it; what was not drawn anew keeps its older "
            "recordings, and --fanout-mode=record runs only what is missing of it",
        ),
        ("live", "", "run it again with a higher limit: live mode keeps nothing"),
    ],
)
def test_spend_limit(mode: str, kept: str, goes_on: str) -> None:
    """The run says how far it came, what was lost, and how it goes on; it is incomplete."""
    problem = stopped_problem(SpendLimit(500, "calls"), Spent(499, 9000, refused=True, cut=1, unbegun=21), mode, 38, 60)

    assert problem == Problem(
        "spend-limit",
        f"the run stopped before its spend limit of 500 calls, after 499 calls: 38 of 60 trials are complete{kept}, "
        f"1 was stopped in the middle and not kept, 21 were not begun; mend: {goes_on}",
        "incomplete",
    )


def test_spend_limit_in_tokens_tells_what_went_beyond() -> None:
    """Calls that were under way may cost more than was reserved for them: by how much is said."""
    spent = Spent(12, 2_000_450, refused=True, cut=0, unbegun=1)
    problem = stopped_problem(SpendLimit(2_000_000, "tokens"), spent, "live", 1, 2)

    assert problem.text == (
        "the run stopped before its spend limit of 2,000,000 tokens, after 2,000,450 tokens, 450 tokens over it by "
        "calls that were under way: 1 of 2 trials is complete, 1 was not begun; "
        "mend: run it again with a higher limit: live mode keeps nothing"
    )


def test_calls_slowed() -> None:
    """Waiting is left out of the durations, and what it did change is said."""
    assert slowed_problem(Slowed("support", 3, 75.0)) == Problem(
        "calls-slowed",
        "support: model calls waited 1 minute in all for their turn, after 3 answers 429; that is left out of "
        "duration_ms, but peak_concurrency and rounds are as they went",
        "notice",
        "support",
    )


# --- whole trials and runs ---------------------------------------------------------------------------------------


class ProvedHere:
    """Proves in this process: another one would be beside the point."""

    def __init__(self, runner: TrialRunner, call: Callable[[], None]) -> None:
        self.runner, self.call = runner, call

    def begin(self) -> None:
        return

    def prove(self, work: MeasuredTask, folder: Path, wall_seconds: int | None) -> Proof:
        return self.runner.proof_of(work, self.call, RecordingStore(folder).load(work.agent, work.task, work.trial))


class Trials:
    """Trials of one task in record mode, each of so many calls, with a limit for all of them."""

    def __init__(self, folder: Path, base_url: str, limit: str) -> None:
        self.meter = Meter(mode="record", measure=BUDGET.measure)
        assert self.meter.start() == ()
        (folder / "shared").mkdir()
        self.allowance = Allowance(create(folder / "shared"), "alone", parse_spend_limit(limit))
        self.meter.ask_first(self.allowance)
        self.store = RecordingStore(folder / "recordings")
        self.runner = TrialRunner(
            meter=self.meter,
            store=self.store,
            budget=BUDGET,
            mode="record",
            volatile=compile_volatile((), ""),
            codecs=(),
            redact=lambda request, answer: (request, answer),
        )
        self.runner.allowance = self.allowance
        self.url = base_url + "/v1/chat/completions"

    def run(self, trial: int, calls: int, text: str = "hi") -> str:
        """How the trial ended: its status, or the reason why it gave no number."""

        def agent() -> None:
            for number in range(calls):
                body = {"model": "m", "messages": [{"role": "user", "content": f"{text} {number}"}]}
                httpx.post(self.url, json=body).raise_for_status()

        self.runner.prover = ProvedHere(self.runner, agent)  # type: ignore[assignment]
        try:
            return self.runner.run(MeasuredTask("support", "refund", trial, "definition"), agent)[0].status
        except pytest.skip.Exception as skipped:
            return str(skipped.msg)


@pytest.fixture
def trials(tmp_path: Path, model: ModelServer) -> Iterator[Callable[[str], Trials]]:
    made: list[Trials] = []

    def make(limit: str) -> Trials:
        made.append(Trials(tmp_path, model.base_url, limit))
        return made[-1]

    yield make
    for one in made:
        one.meter.stop()


CUT, UNBEGUN = "stopped in the middle, by the spend limit of the run", "not begun: the run has come to its spend limit"


def test_a_trial_that_would_pass_the_limit_is_not_kept(trials: Callable[[str], Trials], model: ModelServer) -> None:
    """With 5 calls two trials of 2 are whole; the third is stopped before its second call; its proof and those of the
    others cost nothing; what comes after is not begun, but what is recorded still replays."""
    run = trials("5calls")
    ended = [run.run(trial, 2) for trial in (1, 2, 3, 4, 1)]

    assert ended == ["ok", "ok", CUT, UNBEGUN, "ok"]
    assert len(model.generated) == 5
    assert run.store.trials("support", "refund") == (1, 2)
    assert run.allowance.spent() == Spent(5, 5 * (2 + 3), refused=True, cut=1, unbegun=1)


def test_a_stale_trial_that_is_stopped_keeps_its_old_recording(trials: Callable[[str], Trials]) -> None:
    """Until a new recording is whole the old one stands."""
    run = trials("3calls")
    assert run.run(1, 2) == "ok"
    before = run.store.digest("support", "refund", 1)

    assert run.run(1, 2, "another prompt") == CUT
    assert run.store.digest("support", "refund", 1) == before


def test_a_call_of_set_up_is_refused_too(trials: Callable[[str], Trials], model: ModelServer) -> None:
    """A fixture's call is spent like any other; beyond the limit it gets a 400 that says why, and nothing is sent."""
    run = trials("1call")
    answers = []
    with run.meter.setup():
        for _ in range(2):
            answers.append(httpx.post(run.url, json={"model": "m", "messages": [{"role": "user", "content": "hi"}]}))

    assert [answer.status_code for answer in answers] == [200, 400]
    assert answers[1].json()["error"] == {
        "type": "pytest_fanout",
        "code": "spend-limit",
        "message": "pytest-fanout: the run may spend no more; see docs/messages.md#spend-limit",
    }
    assert len(model.generated) == 1


@pytest.mark.slow
def test_two_workers_stop_in_time_and_the_next_run_goes_on(project: Project, model: ModelServer) -> None:
    """Task n makes 1 + n calls, five times: 45 in all. Two workers that may spend 30 send 30 and no more; the run is
    incomplete, what it kept is whole, and the next run sends only what is missing."""
    stopped = project.pytest("-n", "2", "--fanout-mode=record", "--fanout-spend-limit=30calls")
    sent = len(model.generated)
    kept = stopped.report["totals"]["calls"]  # type: ignore[index]
    whole = project.pytest("--fanout-mode=record")

    assert sent == 30
    assert (stopped.verdict, stopped.exit) == ("incomplete", 1)
    assert "fanout: support: at least 15 trials of 3 tasks are missing: calls, tokens and time unknown" in " ".join(
        stopped.out.split()
    )
    assert "next      pytest --fanout-budget --fanout-mode=record --fanout-spend-limit=…" in stopped.out
    assert kept <= 30
    assert len(model.generated) - sent == 45 - kept
    assert (whole.verdict, len(whole.agent["tasks"])) == ("no-baseline", 15)
