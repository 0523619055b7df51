"""One trial: replayed, or run live, recorded and proved; in every case told as a TaskRun."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fanout.errors import FanoutError, IntegrityError, TaskStopped
from pytest_fanout.meter import Measured, Meter, TaskScope, Trace, measure_trial
from pytest_fanout.meter.outflow import SPEND_LIMIT
from pytest_fanout.meter.seam import UNREPLAYED
from pytest_fanout.records import (
    Budget,
    Exchange,
    HttpAnswer,
    HttpRequest,
    Problem,
    Recording,
    Replayed,
    StaleNote,
    TaskRun,
)
from pytest_fanout.session.branching import Branch, Branching, first_changed, ordered
from pytest_fanout.session.failures import TrialFailed, failed_inputs
from pytest_fanout.session.items import MeasuredTask
from pytest_fanout.session.proof import Proof, Prover, Replay, compared, unproved_text
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource

if TYPE_CHECKING:
    from pytest_fanout.session.flow.allowance import Allowance

Redact = Callable[[HttpRequest, HttpAnswer | None], tuple[HttpRequest, HttpAnswer | None]]
_SKIPPED = pytest.skip.Exception
_XFAILED = pytest.xfail.Exception


@dataclass(slots=True)
class Played:
    """What one execution of a trial left behind."""

    trace: Trace
    measured: Measured
    error: BaseException | None
    duration_ms: int
    note: StaleNote | None = None
    leftover: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    fault: FanoutError | None = None  # of a redact hook


class RedactedSource:
    """Matching works on what was stored, so requests are redacted before they are looked up."""

    def __init__(self, source: ReplaySource, redact: Redact) -> None:
        self._source = source
        self._redact = redact
        self.fault: FanoutError | None = None  # of a hook: what the agent made of it is no number

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        try:
            request = self._redact(request, None)[0]
        except FanoutError as error:
            self.fault = self.fault or error
            return None
        return self._source.answer(request, role)


class TrialRunner:
    """Runs trials under a meter, against the recordings of a store."""

    def __init__(
        self,
        *,
        meter: Meter,
        store: RecordingStore,
        budget: Budget,
        mode: str,
        volatile: Any,
        codecs: Sequence[Any],
        redact: Redact,
        shown: Callable[[str], str] = str,
        prover: Prover | None = None,
    ) -> None:
        self.meter = meter
        self.store = store
        self.budget = budget
        self.mode = mode
        self.volatile = volatile
        self.codecs = codecs
        self.redact = redact
        self.shown = shown  # how a text may stand in a report
        self.scope: Any = None  # of the execution that runs now
        self._work: MeasuredTask | None = None
        self.prover = prover  # where recordings are made
        self.allowance: Allowance | None = None  # of a live run
        self.branching: Branching | None = None  # where it was asked for

    def run(self, work: MeasuredTask, call: Callable[[], Any]) -> tuple[TaskRun, BaseException | None]:
        """Measure one trial.

        Args:
            call: runs the task; called once, or again for a new recording.

        Returns:
            The record, and the exception that the item is to end with (None: it passed).
        """
        if self.mode == "live":
            played = self._play(work, call, None)
            return self._task_run(work, played, None, new_draw=True), played.error
        recording, problem = self._load(work)
        # what a newer version has recorded is for that one to renew
        if self.mode == "replay" or (problem is not None and problem.slug == "recording-format"):
            played = self._play(work, call, recording, replayed=True)
            return self._task_run(work, played, recording, problems=(problem,) if problem else ()), played.error
        if self.mode == "record" and recording is not None:
            played = self._play(work, call, recording, replayed=True)
            if played.note is None and not played.leftover:
                return self._task_run(work, played, recording), played.error
        return self._record(work, call, recording)

    def _load(self, work: MeasuredTask) -> tuple[Recording | None, Problem | None]:
        if work.trial not in self.store.trials(work.agent, work.task):
            return None, None
        try:
            return self.store.load(work.agent, work.task, work.trial), None
        except IntegrityError as error:
            return None, Problem(error.slug, str(error), "integrity", work.agent, work.task, work.trial)

    def _play(
        self,
        work: MeasuredTask,
        call: Callable[[], Any],
        recording: Recording | None,
        *,
        replayed: bool = False,
        source: ReplaySource | None = None,
        branch: Branch | None = None,
    ) -> Played:
        if self.allowance is not None and not replayed and not self.allowance.may_begin():
            pytest.skip("not begun: the run has come to its spend limit")
        if replayed:
            source = ReplaySource(recording, self.volatile, work.label)
        elif branch is not None:
            recording, source = branch.recording, branch.source
        redacted = RedactedSource(source, self.redact) if source is not None else None
        caps = self.budget.caps_for(work.agent)
        resumes_ms = branch.source.resumes_ms if branch is not None else None
        scope = self.meter.open_task(work.agent, work.task, work.trial, caps, redacted, resumes_ms=resumes_ms)
        self.scope = scope
        work.duration_ms = None
        work.agent_ended = lambda: self._agent_ended(work, scope)
        self._work = work
        error: BaseException | None = None
        try:
            call()
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException as raised:
            error = raised
            if scope.capped is not None:
                error = None  # and with it all that the agent has left half done
        finally:
            trace = self.meter.close_task(scope)
        if self.allowance is not None and not replayed:
            self.allowance.trial_ended()
            if trace.capped == SPEND_LIMIT:
                self.allowance.cut()
                pytest.skip("stopped in the middle, by the spend limit of the run")
        if trace.capped is not None:
            # whatever the agent made of it (a group of exceptions, an answer), the cap is why the trial ended
            error = TaskStopped(str(scope.stopped()))
        if isinstance(error, _SKIPPED):
            called = any(exchange.role != "tool" for exchange in trace.exchanges)
            if not called and all(problem.verdict == "notice" for problem in trace.problems):
                raise error
            # what was spent is measured: a skip would take the trial out of the distribution
            error = TrialFailed(f"skipped after it had called a model: {error.msg}")
        elif isinstance(error, _XFAILED):
            # left as it is, pytest would pass it over: whether a failure fails the item, the anchor says
            error = TrialFailed(f"called pytest.xfail: {error.msg}")
        duration = trace.duration_ms if work.duration_ms is None else work.duration_ms
        if branch is not None:
            branch.went_live = scope.source is None
        if source is None or redacted is None or (branch is not None and branch.went_live):
            played = Played(trace, self._measure(trace.exchanges, duration), error, duration)
        else:
            duration = replayed_duration(recording, trace.exchanges, source.leftover)
            is_timed = recording is None or not recording.imported
            measured = self._measure(trace.exchanges, duration if is_timed else None)
            ignored = dict(source.ignored)
            played = Played(trace, measured, error, duration, source.note(), source.leftover, ignored)
        if redacted is not None:
            played.fault = redacted.fault
        scope.conclude(played.measured)
        return played

    def _agent_ended(self, work: MeasuredTask, scope: TaskScope) -> None:
        """The entry point has returned: what follows (checks, graders) is no part of the task's time."""
        self.meter.settle(scope)
        if work.duration_ms is None:
            work.duration_ms = scope.now_ms()

    def agent_has_ended(self) -> None:
        """The same, told by an entry point that has more to do afterwards."""
        if self._work is not None:
            self._work.agent_ended()

    def _record(
        self, work: MeasuredTask, call: Callable[[], Any], old: Recording | None
    ) -> tuple[TaskRun, BaseException | None]:
        begun_at = int(time.time())
        assert self.prover is not None
        self.prover.begin()
        branch, told = self.branching.begin(work, old) if self.branching is not None else (None, ())
        live = self._play(work, call, None, branch=branch)
        if branch is not None and old is None and not branch.went_live:
            branch, live = None, self._play(work, call, None)  # else it would be another trial once more
        live.leftover = 0
        shared = sum(exchange.replayed for exchange in live.trace.exchanges)
        if branch is not None and not shared:
            told = (*told, first_changed(work.agent))
        status = status_of(live)
        problems: tuple[Problem, ...] = ()
        volatile: tuple[str, ...] = ()
        stored: Recording | None = None
        if not work.no_calls and not live.measured.samples.get("fanout"):
            if live.measured.samples.get("attempts"):
                problems = (_problem(work, "no-model-answered", no_answer_text(live)),)
        elif unreplayed := sorted({exchange.layer for exchange in live.trace.exchanges} & UNREPLAYED):
            stacks = ", ".join(unreplayed)
            text = (
                f"{work.label}: calls by {stacks} are counted, but not replayed yet: nothing was recorded\n"
                "  mend: measure this agent with --fanout-mode=live"
            )
            problems = (_problem(work, "stack-not-replayed", text),)
        else:
            try:
                made = Recording(
                    agent=work.agent,
                    task=work.task,
                    trial=work.trial,
                    definition=work.definition,
                    begun_at=begun_at,
                    duration_ms=live.duration_ms,
                    status=status,
                    passed=live.error is None,
                    exchanges=self._storable(live.trace.exchanges, branch),
                    models_requested=live.measured.models_requested,
                    models_served=live.measured.models_served,
                    draw=old.draw + 1 if old else 1,
                    replaced=(*old.replaced, old.digest) if old else (),
                    branched_from=branch.root if branch is not None and shared else None,
                    shared=shared,
                    redraws=self._redraws(work, old, live.trace.exchanges),
                )
                proof = self._prove(self.prover, work, made)
                if proof.differences:
                    text = unproved_text(proof, self.budget.measure.volatile)
                    problems, volatile = (_problem(work, "unproved-recording", text),), proof.volatile
                else:
                    stored = self.store.save(made)
            except FanoutError as error:
                problems = (_problem(work, error.slug, str(error)),)
        if stored is not None:
            # the same code over the stored form, so that every later replay gives exactly these numbers
            live.measured = self._measure(stored.exchanges, stored.duration_ms)
        task_run = self._task_run(work, live, stored, problems=(*told, *problems), new_draw=True)
        saved = live.trace.replayed_calls
        return replace(task_run, volatile=volatile, saved_calls=saved), live.error

    def _redraws(self, work: MeasuredTask, old: Recording | None, exchanges: Sequence[Exchange]) -> int:
        """How many times in a row this trial was drawn anew though the agent asked for the same as before.

        A new draw of an agent that has changed is none of them, however many there were: a stale recording is replaced
        because its requests differ, and a whole new draw counts where its first model request stands on the old one.
        """
        if old is None or self.mode != "rerecord":
            return 0
        first = next((exchange.request for exchange in exchanges if exchange.role == "model"), None)
        if first is None:
            return 0
        first = self.redact(first, None)[0]
        same = ReplaySource(old, self.volatile, work.label).answer(first, "model") is not None
        return old.redraws + 1 if same else 0

    def _prove(self, prover: Prover, work: MeasuredTask, made: Recording) -> Proof:
        """Have the trial replayed at once from its stored form.

        Raises:
            FanoutError: it cannot be stored, or not be proved.
        """
        with tempfile.TemporaryDirectory(prefix="fanout-proof-") as folder:
            try:
                self.store.elsewhere(Path(folder)).save(made)
            except FanoutError as error:
                if error.slug == "cannot-write":
                    raise
                path = self.store.path(made.agent, made.task, made.trial)  # where it was to be
                raise type(error)(error.slug, error.what, where=str(path), mend=error.mend) from None
            return prover.prove(work, Path(folder), self.budget.caps_for(work.agent).wall_seconds)

    def proof_of(self, work: MeasuredTask, call: Callable[[], Any], stored: Recording) -> Proof:
        """Replay a trial and say what does not come out as it was recorded. In the process that proves."""
        source = ReplaySource(stored, self.volatile, work.label, forgiving=True)
        expected = self._measure(stored.exchanges, stored.duration_ms).samples
        try:
            played = self._play(work, call, stored, source=source)
        except _SKIPPED as skipped:
            return compared(stored, expected, Replay((), 0, False, "", {}, str(skipped.msg)))
        if played.fault is not None:
            return Proof((played.fault.what,))
        passed, samples = played.error is None, played.measured.samples
        replay = Replay(source.missed, source.leftover, passed, one_line(played.error), samples)
        return compared(stored, expected, replay)

    def _measure(self, exchanges: Sequence[Exchange], duration_ms: int | None) -> Measured:
        return measure_trial(exchanges, duration_ms, self.codecs, self.budget.measure.model_hosts)

    def _storable(self, exchanges: Sequence[Exchange], branch: Branch | None) -> tuple[Exchange, ...]:
        kept = []
        for exchange in ordered(exchanges):
            if exchange.role == "refused" or exchange.live_input:
                continue
            if exchange.replayed and branch is not None:
                kept.append(branch.as_recorded(exchange))
                continue
            request, answer = self.redact(exchange.request, exchange.answer)
            assert answer is not None
            kept.append(replace(exchange, request=request, answer=answer))
        return tuple(kept)

    def _task_run(
        self,
        work: MeasuredTask,
        played: Played,
        recording: Recording | None,
        *,
        problems: tuple[Problem, ...] = (),
        new_draw: bool = False,
    ) -> TaskRun:
        measured = played.measured
        if played.fault is not None:
            problems = (*problems, _problem(work, played.fault.slug, str(played.fault)))
        problems = (*problems, *failed_inputs(played.trace.exchanges, work.agent))
        if recording is not None and recording.imported:
            problems = (*problems, Problem("imported-recording", IMPORTED, "notice", work.agent))
        status = "stale" if played.note is not None else status_of(played)
        return TaskRun(
            agent=work.agent,
            task=work.task,
            trial=work.trial,
            status=status,
            passed=played.error is None and status != "stale",
            samples=dict(measured.samples),
            calls=measured.calls,
            aside=dict(measured.aside),
            problems=(*problems, *_told(measured.problems, work), *played.trace.problems),
            definition=work.definition,
            recording=recording.digest if recording else None,
            new_draw=new_draw,
            draw=recording.draw if recording else 1,
            redraws=recording.redraws if recording else 0,
            begun_at=recording.begun_at if recording else played.trace.begun_at,
            models_requested=measured.models_requested,
            models_served=measured.models_served,
            unknown_usage=measured.unknown_usage,
            capped=played.trace.capped,
            error=one_line(played.error, self.shown) if played.error is not None else None,
            no_calls=work.no_calls,
            stale=played.note,
            leftover=played.leftover,
            sites=dict(measured.sites),
            site_tokens=dict(measured.site_tokens),
            call_sites=measured.call_sites,
            hosts=tuple(sorted(played.trace.hosts)),
            other=measured.other,
            unclassified=measured.unclassified,
            spent_calls=played.trace.spent_calls,
            ignored=played.ignored,
            failures=dict(measured.failures),
            shared_prefix=recording.branched_from if recording else None,
        )


IMPORTED = (  # without numbers, so that a report tells it once for all tasks
    "recordings were imported from cassettes: counts and tokens are theirs, durations and the order of concurrent "
    "calls are unknown\n  mend: record them anew for those: pytest --fanout-budget --fanout-mode=rerecord"
)


def _told(problems: Sequence[Problem], work: MeasuredTask) -> tuple[Problem, ...]:
    """Those worth telling: a task that is to make no calls makes other requests by right."""
    return tuple(problem for problem in problems if not (work.no_calls and problem.slug == "only-other-requests"))


def status_of(played: Played) -> str:
    """ok, failed, capped or timeout, for a trial that is not stale."""
    if played.trace.capped == "wall_seconds":
        return "timeout"
    if played.trace.capped is not None:
        return "capped"
    return "ok" if played.error is None else "failed"


def replayed_duration(recording: Recording | None, exchanges: Sequence[Exchange], leftover: int) -> int:
    """Residency of a replayed trial in ms, never from the clock: the recorded one; when fewer requests were made than
    recorded, the end of the last one that was made plus the recorded time after the last recorded one."""
    if recording is None:
        return 0
    if not leftover or not recording.exchanges:
        return recording.duration_ms
    tail = recording.duration_ms - max(e.started_ms + e.answer.ended_ms for e in recording.exchanges)
    return max((e.started_ms + e.answer.ended_ms for e in exchanges if e.replayed), default=0) + max(tail, 0)


def no_answer_text(live: Played) -> str:
    """Why a live trial has no number: what the model endpoints said."""
    refusals = [e.answer for e in live.trace.exchanges if e.role == "model"]
    reason = next((a.error or f"HTTP {a.status}" for a in reversed(refusals)), "no request was sent")
    hosts = ", ".join(sorted({e.request.url.split("/")[2] for e in live.trace.exchanges if e.role == "model"}))
    return f"no model answered ({reason}, at {hosts}); nothing was recorded. Is its server up, are URL and key set?"


def one_line(error: BaseException | None, shown: Callable[[str], str] = str) -> str:
    """An exception as one printable line of at most 300 characters, cut off after ``shown`` has looked at the whole."""
    if error is None:
        return ""
    text = str(error) if isinstance(error, TaskStopped) else f"{type(error).__name__}: {error}"
    return "".join(c if c.isprintable() else " " for c in shown(text))[:300]


def _problem(work: MeasuredTask, slug: str, text: str) -> Problem:
    return Problem(slug, text, "invalid", work.agent, work.task, work.trial)
