"""Trials whose requests are redacted, whose hook fails, or that hold a secret: recorded, proved, replayed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
    TaskRun,
)
from pytest_fanout.session import api
from pytest_fanout.session.failures import failed_inputs
from pytest_fanout.session.items import MeasuredTask
from pytest_fanout.session.proof import Proof
from pytest_fanout.session.trial import TrialRunner
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.wire import estimate
from pytest_fanout.wire.canonical import compile_volatile

BUDGET = Budget("digest", {"default": ()}, {"default": Caps()}, {"default": JudgeRules()}, MeasureRules())
Redact = Callable[[HttpRequest, Any], tuple[HttpRequest, Any]]
SECRET = "sk-proj-" + "Ab1" * 10


class Trials:
    """Runs one call as trial 1 of task `refund`, in a mode, with a hook."""

    def __init__(self, folder: Path) -> None:
        self.store = RecordingStore(folder, {})

    def run(self, mode: str, call: Callable[[], Any], redact: Redact) -> TaskRun:
        meter = Meter(mode=mode, measure=BUDGET.measure)
        assert meter.start() == ()
        api.activate(meter)
        try:
            runner = TrialRunner(
                meter=meter,
                store=self.store,
                budget=BUDGET,
                mode=mode,
                volatile=compile_volatile((), ""),
                codecs=(),
                redact=redact,
            )
            runner.prover = ProvedHere(runner, call)  # type: ignore[assignment]
            return runner.run(MeasuredTask("support", "refund", 1, "definition"), call)[0]
        finally:
            api.activate(None)
            meter.stop()


class ProvedHere:
    def __init__(self, runner: TrialRunner, call: Callable[[], Any]) -> None:
        self.runner, self.call = runner, call

    def begin(self) -> None:
        return

    def prove(self, work: MeasuredTask, folder: Path, wall_seconds: int | None) -> Proof:
        return self.runner.proof_of(work, self.call, RecordingStore(folder).load(work.agent, work.task, work.trial))


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    return Trials(tmp_path)


def ask(base_url: str, text: str, **more: Any) -> None:
    """One call; what comes of it does not matter to this agent."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    httpx.post(base_url + "/v1/chat/completions", json=body)


def without_names(request: HttpRequest, answer: Any) -> tuple[HttpRequest, Any]:
    return replace(request, body=request.body.replace(b"Mallory", b"a customer whose name is withheld")), answer


def as_it_is(request: HttpRequest, answer: Any) -> tuple[HttpRequest, Any]:
    return request, answer


def failing(request: HttpRequest, answer: Any) -> tuple[HttpRequest, Any]:
    raise UsageError(
        "bad-hook", "pytest_fanout_redact raised KeyError: 'x'", where="conftest.py:1", mend="mend the hook"
    )


BAD_HOOK = Problem(
    "bad-hook",
    "conftest.py:1: pytest_fanout_redact raised KeyError: 'x'\n  mend: mend the hook\n  see: docs/messages.md#bad-hook",
    "invalid",
    "support",
    "refund",
    1,
)


@pytest.mark.parametrize(
    ("redact", "text"),
    [(without_names, "I am Mallory"), (as_it_is, '{"password": "hunter2 and many more words"}')],
    ids=["hook", "field"],
)
def test_estimated_tokens_are_those_of_the_recorded_text(
    trials: Trials, model: ModelServer, monkeypatch: pytest.MonkeyPatch, redact: Redact, text: str
) -> None:
    """A stream without usage is estimated from the request; redaction makes that longer or shorter, replay does not."""
    monkeypatch.setattr(estimate, "tokenizer", lambda: len)
    call = lambda: ask(model.base_url, text, stream=True)  # noqa: E731
    recorded = trials.run("record", call, redact)
    replayed = trials.run("replay", call, redact)

    assert [problem.slug for problem in recorded.problems if problem.verdict != "notice"] == []
    assert recorded.recording is not None
    assert recorded.samples["input_tokens"]
    assert replayed.status == "ok"
    assert dict(replayed.samples) == dict(recorded.samples)


def test_a_hook_that_fails_while_recording_stores_nothing(trials: Trials, model: ModelServer) -> None:
    """What it was to take out would be stored otherwise."""
    task_run = trials.run("record", lambda: ask(model.base_url, "hi"), failing)

    assert task_run.problems == (BAD_HOOK,)
    assert trials.store.trials("support", "refund") == ()


def test_a_hook_that_fails_in_replay_makes_the_trial_invalid(trials: Trials, model: ModelServer) -> None:
    """This agent passes over the refusal and makes fewer calls: that is no improvement."""
    call = lambda: ask(model.base_url, "hi")  # noqa: E731
    trials.run("record", call, as_it_is)

    task_run = trials.run("replay", call, failing)

    assert BAD_HOOK in task_run.problems
    assert task_run.samples["fanout"] == 0


def test_a_secret_is_told_with_the_place_of_the_recording(trials: Trials, model: ModelServer) -> None:
    """Not with that of the copy that was to be proved, which nobody knows."""
    task_run = trials.run("record", lambda: ask(model.base_url, f"use {SECRET}"), as_it_is)

    (problem,) = task_run.problems
    assert problem.text.startswith(
        f"{trials.store.path('support', 'refund', 1)}: not saved: messages[0].content of request 1"
    )
    assert trials.store.trials("support", "refund") == ()


def test_live_inputs_that_do_not_answer_are_told() -> None:
    """By method, URL and reason, each once; those that answer are not."""
    request = HttpRequest("GET", "https://flags.example/v1/flags?user=7", (), b"")
    down = HttpAnswer(None, (), (), (), 1, "error", "ConnectError: refused")
    exchanges = [
        Exchange(at, "httpx", "tool", "agent", request, answer, 0, live_input=live)
        for at, (answer, live) in enumerate(
            [(down, True), (down, True), (down, False), (HttpAnswer(200, (), (), (), 1), True)]
        )
    ]

    assert failed_inputs(exchanges, "support") == (
        Problem(
            "live-input-failed",
            "a live input did not answer, and the agent went on without it "
            "(GET https://flags.example/v1/flags: ConnectError: refused)\n"
            "  mend: see that it can be reached, or take its host out of live_inputs and record its answers",
            "notice",
            "support",
        ),
    )


def test_a_recording_of_a_newer_format_is_not_recorded_over(trials: Trials, model: ModelServer) -> None:
    """Somebody with a newer version has made it: this one says so, and leaves it alone."""
    call = lambda: ask(model.base_url, "hi")  # noqa: E731
    trials.run("record", call, as_it_is)
    path = trials.store.path("support", "refund", 1)
    lines = path.read_bytes().replace(b"recording/1", b"recording/2").split(b"\n")[:-2]
    newer = b"\n".join(
        [*lines, b'{"end":"sha256:' + hashlib.sha256(b"\n".join(lines)).hexdigest().encode() + b'"}', b""]
    )
    path.write_bytes(newer)
    asked = len(model.log)

    task_run = trials.run("record", call, as_it_is)

    assert [problem.slug for problem in task_run.problems if problem.verdict == "integrity"] == ["recording-format"]
    assert path.read_bytes() == newer
    assert len(model.log) == asked


def test_only_draws_of_the_same_requests_are_counted_as_repeated(trials: Trials, model: ModelServer) -> None:
    """Three draws of one request are two repeated ones, whatever is redacted; another request begins anew, and a stale
    recording is none of them."""
    asking = lambda text: lambda: ask(model.base_url, text)  # noqa: E731
    modes = [("record", "I am Mallory"), *[("rerecord", "I am Mallory")] * 2, ("rerecord", "hi"), ("record", "you")]
    runs = [trials.run(mode, asking(text), without_names) for mode, text in modes]

    assert [(run.draw, run.redraws) for run in runs] == [(1, 0), (2, 1), (3, 2), (4, 0), (5, 0)]
    assert trials.run("replay", asking("you"), without_names).draw == 5
