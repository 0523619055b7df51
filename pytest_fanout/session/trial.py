"""One trial: replayed, or run live, recorded and proved; in every case told as a TaskRun."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fanout.errors import FanoutError, IntegrityError, TaskStopped
from pytest_fanout.meter import Measured, Meter, TaskScope, Trace, measure_trial
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
from pytest_fanout.session.failures import TrialFailed
from pytest_fanout.session.items import MeasuredTask
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource

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


class RedactedSource:
    """Matching works on what was stored, so requests are redacted before they are looked up."""

    def __init__(self, source: ReplaySource, redact: Redact) -> None:
        self._source = source
        self._redact = redact

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        return self._source.answer(self._redact(request, None)[0], role)


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
    ) -> None:
        self.meter = meter
        self.store = store
        self.budget = budget
        self.mode = mode
        self.volatile = volatile
        self.codecs = codecs
        self.redact = redact
        self.scope: Any = None  # of the execution that runs now
        self._work: MeasuredTask | None = None
        self.proving = False  # that execution proves a recording

    def run(self, work: MeasuredTask, call: Callable[[], Any]) -> tuple[TaskRun, BaseException | None]:
        """Measure one trial.

        Args:
            call: runs the task; called once, or again for a new recording and for its proof.

        Returns:
            The record, and the exception that the item is to end with (None: it passed).
        """
        if self.mode == "live":
            played = self._play(work, call, None)
            return self._task_run(work, played, None, new_draw=True), played.error
        recording, problem = self._load(work)
        if self.mode == "replay":
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
        self, work: MeasuredTask, call: Callable[[], Any], recording: Recording | None, *, replayed: bool = False
    ) -> Played:
        source = ReplaySource(recording, self.volatile, work.label) if replayed else None
        scope = self.meter.open_task(
            work.agent,
            work.task,
            work.trial,
            self.budget.caps_for(work.agent),
            RedactedSource(source, self.redact) if source is not None else None,
        )
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
        if source is None:
            played = Played(trace, self._measure(trace.exchanges, duration), error, duration)
        else:
            duration = replayed_duration(recording, trace.exchanges, source.leftover)
            is_timed = recording is None or not recording.imported
            measured = self._measure(trace.exchanges, duration if is_timed else None)
            played = Played(trace, measured, error, duration, source.note(), source.leftover)
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
        live = self._play(work, call, None)
        status = status_of(live)
        problems: tuple[Problem, ...] = ()
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
            made = Recording(
                agent=work.agent,
                task=work.task,
                trial=work.trial,
                definition=work.definition,
                begun_at=begun_at,
                duration_ms=live.duration_ms,
                status=status,
                passed=live.error is None,
                exchanges=self._storable(live.trace.exchanges),
                models_requested=live.measured.models_requested,
                models_served=live.measured.models_served,
                draw=old.draw + 1 if old else 1,
                replaced=(*old.replaced, old.digest) if old else (),
            )
            try:
                stored, differences = self._prove(work, call, made)
                if differences:
                    problems = (_problem(work, "unproved-recording", unproved_text(work, differences)),)
                    stored = None
                else:
                    stored = self.store.save(made)
            except FanoutError as error:
                problems = (_problem(work, error.slug, str(error)),)
                stored = None
        if stored is not None:
            # the same code over the stored form, so that every later replay gives exactly these numbers
            live.measured = self._measure(stored.exchanges, stored.duration_ms)
        return self._task_run(work, live, stored, problems=problems, new_draw=True), live.error

    def _prove(self, work: MeasuredTask, call: Callable[[], Any], made: Recording) -> tuple[Recording, tuple[str, ...]]:
        """Replay the trial from its stored form at once. Returns that form, and what did not come out the same."""
        with tempfile.TemporaryDirectory(prefix="fanout-proof-") as folder:
            scratch = RecordingStore(Path(folder))
            scratch.save(made)
            stored = scratch.load(work.agent, work.task, work.trial)
        try:
            self.proving = True
            try:
                proof = self._play(work, call, stored, replayed=True)
            finally:
                self.proving = False
        except _SKIPPED as skipped:
            return stored, (f"the task was skipped on replay: {skipped.msg}",)
        expected = self._measure(stored.exchanges, stored.duration_ms)
        differences: list[str] = []
        if proof.note is not None:
            differences += [f"call {proof.note.call}: {change}" for change in proof.note.changes]
        elif proof.leftover:
            differences.append(f"{proof.leftover} recorded requests were not made again")
        elif (proof.error is None) != made.passed:
            differences.append(f"the task {'failed' if made.passed else 'passed'} on replay: {one_line(proof.error)}")
        elif dict(proof.measured.samples) != dict(expected.samples):
            moved = sorted(k for k, v in expected.samples.items() if proof.measured.samples.get(k) != v)
            differences.append(f"other numbers on replay: {', '.join(moved)}")
        return stored, tuple(differences)

    def _measure(self, exchanges: Sequence[Exchange], duration_ms: int | None) -> Measured:
        return measure_trial(exchanges, duration_ms, self.codecs, self.budget.measure.model_hosts)

    def _storable(self, exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
        kept = []
        for exchange in exchanges:
            if exchange.role == "refused" or exchange.live_input:
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
            problems=(*problems, *measured.problems, *played.trace.problems),
            definition=work.definition,
            recording=recording.digest if recording else None,
            new_draw=new_draw,
            draw=recording.draw if recording else 1,
            begun_at=recording.begun_at if recording else played.trace.begun_at,
            models_requested=measured.models_requested,
            models_served=measured.models_served,
            unknown_usage=measured.unknown_usage,
            capped=played.trace.capped,
            error=one_line(played.error) if played.error is not None else None,
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
        )


IMPORTED = (  # without numbers, so that a report tells it once for all tasks
    "recordings were imported from cassettes: counts and tokens are theirs, durations and the order of concurrent "
    "calls are unknown\n  mend: record them anew for those: pytest --fanout-budget --fanout-mode=rerecord"
)


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


def unproved_text(work: MeasuredTask, differences: Sequence[str]) -> str:
    """Why a new recording was not stored, and what would make it replay."""
    return (
        f"{work.label}: the recording does not replay, so it was not stored: {'; '.join(differences)}; "
        "mend: make the requests steady from run to run, or name what changes in `volatile` of budget.toml"
    )


def one_line(error: BaseException | None) -> str:
    """An exception as one printable line of at most 300 characters."""
    if error is None:
        return ""
    text = str(error) if isinstance(error, TaskStopped) else f"{type(error).__name__}: {error}"
    return "".join(c if c.isprintable() else " " for c in text)[:300]


def _problem(work: MeasuredTask, slug: str, text: str) -> Problem:
    return Problem(slug, text, "invalid", work.agent, work.task, work.trial)
