"""Stale trials that keep their recorded answers up to the first changed request: recorded, proved, replayed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from model_server import ModelServer

from pytest_fanout.errors import UsageError
from pytest_fanout.meter import Meter
from pytest_fanout.records import (
    Budget,
    Caps,
    Exchange,
    HttpAnswer,
    HttpRequest,
    JudgeRules,
    MeasureRules,
    Problem,
    Recording,
    TaskRun,
)
from pytest_fanout.session import api
from pytest_fanout.session.branching import Branching, check_option, why_not
from pytest_fanout.session.items import MeasuredTask
from pytest_fanout.session.proof import Proof
from pytest_fanout.session.recorded import recorded
from pytest_fanout.session.trial import TrialRunner
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.wire.canonical import compile_volatile

LOOKED_UP: list[str] = []


@recorded
def look_up(sku: str) -> str:
    """A tool of the agent; the list tells how often it really ran."""
    LOOKED_UP.append(sku)
    return f"{sku} costs {len(LOOKED_UP)}"


class Shop:
    """An agent of four steps: plan, look up and read, draft, close. Each step's prompt can be edited."""

    def __init__(self, url: str, **prompts: str) -> None:
        self.url = url
        self.prompts = {"plan": "Plan.", "read": "Read.", "draft": "Draft.", "close": "Close."} | prompts

    def ask(self, step: str, text: str) -> str:
        messages = [{"role": "system", "content": self.prompts[step]}, {"role": "user", "content": text}]
        with httpx.Client(verify=False) as client:  # a TLS context that nobody needs takes longer than all else
            said = client.post(self.url + "/v1/chat/completions", json={"model": "m", "messages": messages})
        return str(said.raise_for_status().json()["choices"][0]["message"]["content"])

    def __call__(self) -> None:
        plan = self.ask("plan", "a refund")
        rule = self.ask("read", f"{plan} {look_up('lamp')}")
        draft = self.ask("draft", rule)
        self.ask("close", f"{draft} {look_up('cup')}")


class Trials:
    """Runs an agent as a trial of task ``refund``."""

    def __init__(self, folder: Path) -> None:
        self.store = RecordingStore(folder, {})
        self.beginnings: Collection[str] = ()
        self.redact: Any = lambda request, answer: (request, answer)

    def run(
        self, mode: str, call: Callable[[], Any], trial: int = 1, *, branch: bool = True, rules: Any = None
    ) -> TaskRun:
        rules = rules or MeasureRules()
        budget = Budget("digest", {"default": ()}, {"default": Caps()}, {"default": JudgeRules()}, rules)
        meter = Meter(mode=mode, measure=rules)
        assert meter.start() == ()
        api.activate(meter)
        volatile = compile_volatile((), "")
        try:
            runner = TrialRunner(
                meter=meter,
                store=self.store,
                budget=budget,
                mode=mode,
                volatile=volatile,
                codecs=(),
                redact=self.redact,
            )
            runner.prover = ProvedHere(runner, call)  # type: ignore[assignment]
            if branch and mode == "record":
                runner.branching = Branching(
                    self.store, rules, volatile, lambda *_: self.beginnings, lambda: {"support", "support::refund"}
                )
            return runner.run(MeasuredTask("support", "refund", trial, "definition"), call)[0]
        finally:
            api.activate(None)
            meter.stop()

    def load(self, trial: int = 1) -> Recording:
        return self.store.load("support", "refund", trial)


class ProvedHere:
    """The proof, in this process."""

    def __init__(self, runner: TrialRunner, call: Callable[[], Any]) -> None:
        self.runner, self.call = runner, call

    def begin(self) -> None:
        return

    def prove(self, work: MeasuredTask, folder: Path, wall_seconds: int | None) -> Proof:
        return self.runner.proof_of(work, self.call, RecordingStore(folder).load(work.agent, work.task, work.trial))


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    LOOKED_UP.clear()
    return Trials(tmp_path)


def heard(recording: Recording) -> list[Any]:
    return [(e.request.body, e.answer, e.started_ms) for e in recording.exchanges]


def texts(run: TaskRun) -> list[str]:
    return [problem.text for problem in run.problems]


def test_a_late_edit_costs_only_its_own_calls(trials: Trials, model: ModelServer) -> None:
    """The prompt of the third of four calls is edited: plan, reading and the first look-up come from the recording and
    nothing of them reaches the server; the draft, the second look-up and the closing are made anew."""
    trials.run("record", Shop(model.base_url))
    before, ran = trials.load(), len(LOOKED_UP)
    model.restart()
    run = trials.run("record", Shop(model.base_url, draft="Draft it."))
    after = trials.load()

    assert ran == 2
    assert [entry.json["messages"][0]["content"] for entry in model.generated] == ["Draft it.", "Close."]
    assert LOOKED_UP == ["lamp", "cup", "cup"]
    assert (run.status, texts(run), run.samples["fanout"]) == ("ok", [], 4)
    assert (run.spent_calls, run.saved_calls) == (2, 2)
    assert run.shared_prefix == before.digest
    assert (after.branched_from, after.shared, after.replaced) == (before.digest, 3, (before.digest,))
    assert heard(after)[:3] == heard(before)[:3]
    assert after.draw == 2


def test_a_branched_recording_replays_as_any_other(trials: Trials, model: ModelServer) -> None:
    """Replay gives the numbers of the record run, names the shared beginning, and asks no server."""
    trials.run("record", Shop(model.base_url))
    made = trials.run("record", Shop(model.base_url, close="Close now."))
    model.restart()
    replayed = trials.run("replay", Shop(model.base_url, close="Close now."))

    assert made.recording is not None
    assert replayed.status == "ok"
    assert dict(replayed.samples) == dict(made.samples)
    assert (replayed.recording, replayed.shared_prefix) == (made.recording, made.shared_prefix)
    assert (len(model.log), replayed.saved_calls) == (0, 0)


def test_times_go_on_from_the_recorded_ones(trials: Trials, model: ModelServer) -> None:
    """The beginning took two seconds when it was recorded, and none when it was kept: the call after it is told as sent
    when the one was that it stands for, its round comes after theirs, and the duration holds both."""
    trials.run("record", Shop(model.base_url))
    old = trials.load()
    slow = [
        replace(e, started_ms=1000 * at, answer=replace(e.answer, ended_ms=900)) for at, e in enumerate(old.exchanges)
    ]
    trials.store.save(replace(old, exchanges=tuple(slow), duration_ms=6000))
    run = trials.run("record", Shop(model.base_url, draft="Draft it."))
    starts = [exchange.started_ms for exchange in trials.load().exchanges]

    assert starts[:3] == [0, 1000, 2000]
    assert 3000 <= starts[3] < 3500
    assert starts[3] <= starts[4] < 4000
    assert run.samples["rounds"] == 4
    assert 3000 <= (run.samples["duration_ms"] or 0) < 4500


def test_an_additional_call_follows_the_last_recorded_answer(trials: Trials, model: ModelServer) -> None:
    """No recorded request stands for it, so that it is sent when the last answer had come."""
    trials.run("record", Shop(model.base_url))
    last = trials.load().exchanges[-1]

    class Chatty(Shop):
        def __call__(self) -> None:
            super().__call__()
            self.ask("plan", "anything else?")

    run = trials.run("record", Chatty(model.base_url))
    added = trials.load().exchanges[-1]

    assert (run.spent_calls, run.saved_calls, run.samples["fanout"]) == (1, 4, 5)
    assert added.started_ms >= last.started_ms + last.answer.ended_ms
    assert run.samples["rounds"] == 5


def test_after_the_first_changed_request_nothing_is_taken_from_the_recording(
    trials: Trials, model: ModelServer
) -> None:
    """The closing is asked as before, word by word, but after the edit: its answer has to be the model's of now."""

    class Repeats(Shop):
        def __call__(self) -> None:
            self.ask("plan", "a")
            self.ask("draft", "b")
            self.ask("close", "c")

    trials.run("record", Repeats(model.base_url))
    model.restart({"default": {"text": "another day"}})
    trials.run("record", Repeats(model.base_url, draft="Draft it."))

    answers = [exchange.answer.body for exchange in trials.load().exchanges]
    assert len(model.generated) == 2
    assert [b"another day" in answer for answer in answers] == [False, True, True]


def test_of_calls_side_by_side_those_answered_before_the_miss_stay(trials: Trials, model: ModelServer) -> None:
    """Three threads ask at once; the one in the middle is changed. What was answered before it keeps its answer, what
    comes after it goes out, and each call is on the recording once."""

    class Parallel(Shop):
        def __call__(self) -> None:
            turns = [threading.Event() for _ in range(4)]
            turns[0].set()

            def ask(at: int) -> None:
                turns[at].wait(10)
                with contextlib.suppress(httpx.HTTPStatusError):  # of the replay that finds it stale
                    self.ask(("plan", "draft", "close")[at], str(at))
                turns[at + 1].set()

            threads = [threading.Thread(target=ask, args=(at,)) for at in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    trials.run("record", Parallel(model.base_url))
    model.restart()
    run = trials.run("record", Parallel(model.base_url, draft="Draft it."))

    assert [entry.json["messages"][1]["content"] for entry in model.generated] == ["1", "2"]
    assert (run.samples["fanout"], run.saved_calls, trials.load().shared) == (3, 1, 1)


def test_an_agent_that_leaves_out_its_end_costs_nothing(trials: Trials, model: ModelServer) -> None:
    """Every request that it makes is recorded: its trial is the beginning alone, and takes as long as that did."""

    class Short(Shop):
        def __call__(self) -> None:
            self.ask("read", f"{self.ask('plan', 'a refund')} {look_up('lamp')}")

    trials.run("record", Shop(model.base_url))
    old = trials.load()
    model.restart()
    run = trials.run("record", Short(model.base_url))

    assert len(model.log) == 0
    assert (run.status, run.samples["fanout"], run.leftover) == ("ok", 2, 0)
    assert (run.spent_calls, run.saved_calls) == (0, 2)
    assert run.shared_prefix == old.digest
    assert len(trials.load().exchanges) == 3


def test_what_was_redacted_is_not_redacted_again(trials: Trials, model: ModelServer) -> None:
    """A hook that adds to what it finds would change the kept part each time; no request would be found on it then."""
    trials.redact = lambda request, answer: (
        replace(request, body=request.body.replace(b"a refund", b"a refund *")),
        answer,
    )
    trials.run("record", Shop(model.base_url))
    run = trials.run("record", Shop(model.base_url, close="Close now."))

    assert (run.problems, run.saved_calls) == ((), 3)
    assert b"a refund *" in trials.load().exchanges[0].request.body
    assert b"a refund * *" not in trials.load().exchanges[0].request.body


def test_a_changed_first_request_leaves_nothing_to_keep(trials: Trials, model: ModelServer) -> None:
    """The trial is a whole new one, shares nothing, and the run says why."""
    trials.run("record", Shop(model.base_url))
    model.restart()
    run = trials.run("record", Shop(model.base_url, plan="Plan well."))

    assert len(model.generated) == 4
    assert (run.shared_prefix, run.saved_calls, trials.load().branched_from) == (None, 0, None)
    assert run.problems == (
        Problem(
            "not-branched",
            "support: not branched: the first request of a trial differs, so that there is no beginning to keep; "
            "such trials ran again whole",
            "notice",
            "support",
        ),
    )


@pytest.mark.parametrize("entry", ["support", "support::refund"])
def test_tools_that_have_state_are_declared_and_run_again(trials: Trials, model: ModelServer, entry: str) -> None:
    """The first look-up may have booked something that the second one needs: both run, with all calls."""
    rules = MeasureRules(stateful_tools=(entry,))
    trials.run("record", Shop(model.base_url), rules=rules)
    model.restart()
    run = trials.run("record", Shop(model.base_url, close="Close now."), rules=rules)

    assert (len(model.generated), len(LOOKED_UP)) == (4, 4)
    assert run.shared_prefix is None
    assert texts(run) == ["support: not branched: stateful_tools of budget.toml names it; such trials ran again whole"]


def test_a_misspelt_declaration_is_no_declaration(trials: Trials, model: ModelServer) -> None:
    """Else a task would be branched whose tools have state, and nobody would know."""
    rules = MeasureRules(stateful_tools=("suport",))
    trials.run("record", Shop(model.base_url), rules=rules)
    run = trials.run("record", Shop(model.base_url, close="Close now."), rules=rules)

    assert run.problems == (
        Problem(
            "stateful-of-no-task",
            "[measure] stateful_tools of budget.toml names 'suport', and no class and no task is called so; "
            'mend: name a class ("support") or a task ("support::refund")',
        ),
    )


def test_without_the_option_a_stale_trial_runs_whole(trials: Trials, model: ModelServer) -> None:
    """As it did before there was one."""
    trials.run("record", Shop(model.base_url))
    model.restart()
    run = trials.run("record", Shop(model.base_url, close="Close now."), branch=False)

    assert (len(model.generated), run.shared_prefix, run.saved_calls, run.problems) == (4, None, 0, ())


def test_branched_again_the_first_recording_stays_the_root(trials: Trials, model: ModelServer) -> None:
    """Two edits in a row, each of a later step than the last: both trials share a beginning with the first one."""
    trials.run("record", Shop(model.base_url))
    root = trials.load().digest
    trials.run("record", Shop(model.base_url, draft="Draft it."))
    run = trials.run("record", Shop(model.base_url, draft="Draft it.", close="Close now."))

    assert (run.shared_prefix, trials.load().branched_from, trials.load().shared) == (root, root, 5)
    assert run.spent_calls == 1


def test_several_continuations_of_one_branch_point(trials: Trials, model: ModelServer) -> None:
    """Of two recorded trials both are renewed; the third and the fourth go on from their beginnings, in turn, and make
    only the calls after them."""
    for trial in (1, 2):
        trials.run("record", Shop(model.base_url), trial)
    roots = [trials.load(trial).digest for trial in (1, 2)]
    trials.beginnings = roots
    edited = Shop(model.base_url, close="Close now.")
    runs = [trials.run("record", edited, trial) for trial in (1, 2, 3, 4)]

    assert [run.shared_prefix for run in runs] == [*roots, *roots]
    assert [run.spent_calls for run in runs] == [1, 1, 1, 1]
    assert [trials.load(trial).draw for trial in (1, 2, 3, 4)] == [2, 2, 1, 1]


def test_a_beginning_that_no_anchor_holds_is_not_gone_on_from_twice(trials: Trials, model: ModelServer) -> None:
    """Trials that share one among themselves alone would count for several, and be hardly more than one."""
    trials.run("record", Shop(model.base_url))
    trials.beginnings = ["sha256:that of another recording"]
    edited = Shop(model.base_url, close="Close now.")
    runs = [trials.run("record", edited, trial) for trial in (1, 2)]

    assert [run.spent_calls for run in runs] == [1, 4]
    assert runs[1].shared_prefix is None


def test_a_trial_is_never_another_one_once_more(trials: Trials, model: ModelServer) -> None:
    """The recorded trial is still valid, so that there is no branch point: a second trial is drawn whole."""
    trials.run("record", Shop(model.base_url))
    trials.beginnings = [trials.load().digest]
    run = trials.run("record", Shop(model.base_url), 2)

    assert (run.spent_calls, run.saved_calls, run.shared_prefix) == (4, 0, None)


def exchange(method: str, url: str, body: bytes = b"{}", role: str = "model") -> Exchange:
    return Exchange(0, "httpx", role, "agent", HttpRequest(method, url, (), body), HttpAnswer(200, (), (), (), 1), 0)


OPENAI = "https://api.openai.com/v1"
HELD = "its calls go on from what the provider holds, and it holds nothing of replayed ones"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (exchange("POST", f"{OPENAI}/chat/completions"), None),
        (exchange("POST", f"{OPENAI}/embeddings"), None),
        (exchange("GET", f"{OPENAI}/models"), None),
        (exchange("POST", "http://tools.internal/search", b'{"q": "initialize"}', "tool"), None),
        (exchange("POST", f"{OPENAI}/responses", b'{"previous_response_id": "resp_1"}'), HELD),
        (exchange("POST", f"{OPENAI}/responses", b'{"previous_response_id": null}'), None),
        (exchange("POST", f"{OPENAI}/files"), HELD),
        (exchange("GET", f"{OPENAI}/responses/resp_1"), HELD),
        (
            exchange("MCP", "mcp:///server/tools", role="tool"),
            "it speaks over a connection that stays open (a WebSocket, MCP over stdio), and replay opens none",
        ),
        (
            exchange("POST", "http://tools.internal/mcp", b'{"jsonrpc":"2.0","method":"initialize"}', "tool"),
            "it has a session with a tool server (MCP over HTTP), and the server knows nothing of a replayed one",
        ),
    ],
)
def test_what_no_trial_can_go_on_from_is_found(held: Exchange, why: str | None) -> None:
    """Whatever the provider or a tool server holds of the recorded beginning was never told to it by this trial."""
    assert why_not(Recording("support", "refund", 1, None, 0, 1, "ok", True, (held,))) == why


def test_imported_recordings_are_not_branched() -> None:
    """Their times are placeholders, which those of the calls after them cannot be added to."""
    imported = Recording("support", "refund", 1, None, 0, 1, "ok", True, (), imported=("a.yaml",))

    assert why_not(imported) == "it was imported from cassettes, which hold no times"


def refusal(**options: Any) -> str:
    given = {"fanout_branch": True, "fanout_mode": "record", "fanout_control": None} | options
    with pytest.raises(UsageError) as caught:
        check_option(SimpleNamespace(getoption=given.__getitem__))  # type: ignore[arg-type]
    return str(caught.value)


def test_other_modes_renew_nothing_that_could_be_branched() -> None:
    """Replay, the default, among them."""
    assert refusal(fanout_mode="replay") == (
        "--fanout-branch goes on from recordings that are stale, and --fanout-mode=replay renews none of them\n"
        "  mend: pytest --fanout-budget --fanout-mode=record --fanout-branch\n"
        "  see: docs/messages.md#branch-without-record"
    )


def test_a_control_arm_asks_another_question() -> None:
    """What the environment has done since is not seen in answers of that day."""
    assert refusal(fanout_control=5) == (
        "--fanout-branch keeps answers of the day of the recordings, and --fanout-control asks what has changed since: "
        "together they would take the one for the other\n"
        "  mend: leave out one of them; --fanout-control runs its trials whole, without --fanout-branch\n"
        "  see: docs/messages.md#branch-with-control"
    )
