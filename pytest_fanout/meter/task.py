"""One running task: its counters, its caps, and what it sent and heard."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter.ledger import AGENT, Place
from pytest_fanout.meter.outflow import SPEND_LIMIT, is_over
from pytest_fanout.records import Caps, Exchange, HttpRequest, ModelCall, Problem, Replayed

if TYPE_CHECKING:
    from pytest_fanout.meter.flight import Flight
    from pytest_fanout.meter.outflow import Outflow
    from pytest_fanout.meter.samples import Measured

#: How long calls in flight may go on when their task has been stopped: what they cost is known then.
FINISH_S = 2.0
#: ``(task, cap, share)``: told once a task and cap, when 80 % of it is used.
CapWarning = Callable[[str, str, float], object]


class Source(Protocol):
    """Where recorded answers come from. It keeps the misses itself: they make the trial stale."""

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        """The next recorded answer to this request, None when there is none. Called from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """What one trial said and heard. ``duration_ms`` is by the clock: in replay the recording's counts instead."""

    exchanges: tuple[Exchange, ...]
    problems: tuple[Problem, ...]
    capped: str | None  # name of the cap that stopped it
    begun_at: int  # unix seconds
    duration_ms: int
    misses: int  # requests that were not on the recording
    hosts: tuple[str, ...]  # host:port of the model calls
    spent_calls: int  # generation requests that really went out
    replayed_calls: int = 0  # those that were answered from a recording


@dataclass(slots=True)
class _Counters:
    """What one bucket has used so far, as the caps see it."""

    fanout: int = 0
    attempts: int = 0
    tokens: int = 0
    tool_calls: int = 0
    in_flight: int = 0


@dataclass(slots=True)
class _Failures:
    """The last failing request and how many times it came in a row."""

    key: tuple[str, str, bytes] | None = None
    count: int = 0


class _Over:
    """The source of a task that has ended."""

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        return None


@dataclass(eq=False)
class TaskScope:
    """The running task. ``fanout``, ``attempts``, ``tokens``, ``tool_calls`` and ``calls`` tell where it stands now,
    by the same rules as the final samples."""

    agent: str
    task: str
    trial: int
    caps: Caps
    source: Source | None
    codecs: tuple[object, ...] = ()
    model_hosts: tuple[str, ...] = ()
    cap_warning: CapWarning | None = None
    begun_at: int = field(default_factory=lambda: int(time.time()))
    t0: int = field(default_factory=time.perf_counter_ns)
    closed: bool = False
    settled: bool = False  # the agent's code has ended: nothing is raised into it any more
    overdue: bool = False  # it goes on although a cap was reached: it may be stopped anywhere
    capped: str | None = None
    stopped_at: float = 0.0  # monotonic, when it was capped
    misses: int = 0
    spent_calls: int = 0
    flights: list[Flight] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    on_stop: Callable[[], object] = lambda: None  # called once a cap is reached, and when its clock was moved on
    resumes_ms: Callable[[int], int] | None = None  # it branches: when it goes on live, given how long it was idle
    error: type[TaskStopped] = TaskStopped  # what is raised then
    outflow: Outflow | None = None
    at_recorded_speed: bool = False  # replayed answers come when they came
    paused_ns: int = 0  # in which its calls did nothing but wait for their turn
    waiting: int = 0  # calls that wait for it now

    def __post_init__(self) -> None:
        self.home = Place(self, AGENT)
        self.lock = threading.RLock()  # a stream that is collected while it is held releases its flight
        self._numbers = itertools.count()
        self._used: dict[str, _Counters] = {}
        self._failures: dict[str, _Failures] = {}
        self._broken: dict[str, list[tuple[str, bytes]]] = {}  # url -> attempts that a retry continues
        self._warned: set[str] = set()
        self._refused = False
        self._paused_from: int | None = None
        self._final: Measured | None = None
        self.pending: dict[str, str] = {}  # id of a background run -> bucket, until a poll tells what it has cost

    # --- what a test may ask ------------------------------------------------------------------------------------

    def measured(self) -> Measured:
        """The samples as they would be if the task ended now."""
        from pytest_fanout.meter.samples import measure_trial

        if self._final is not None:
            return self._final
        return measure_trial(self.exchanges(), self.now_ms(), self.codecs, self.model_hosts)

    def conclude(self, measured: Measured) -> None:
        """Keep the numbers of the closed task, and nothing of what it sent and heard: that may be megabytes, which the
        collector would find only many tasks later."""
        self._final = measured
        self.flights.clear()
        self.source = None if self.source is None else _Over()

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(call for call in self.measured().calls if call.reached_model)

    @property
    def fanout(self) -> int:
        return self.measured().samples["fanout"] or 0

    @property
    def attempts(self) -> int:
        return self.measured().samples["attempts"] or 0

    @property
    def tool_calls(self) -> int:
        return self.measured().samples["tool_calls"] or 0

    @property
    def tokens(self) -> int | None:
        """Input plus output so far; None where a call's usage is not known."""
        samples = self.measured().samples
        used, made = samples["input_tokens"], samples["output_tokens"]
        return None if used is None or made is None else used + made

    # --- what the seam does ------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.elapsed_ns() // 1_000_000

    def elapsed_ns(self) -> int:
        """Time since its start, without that in which its calls only waited for their turn."""
        now, since = time.perf_counter_ns(), self._paused_from
        return now - self.t0 - self.paused_ns - (now - since if since is not None else 0)

    def waits(self, change: int) -> None:
        """A call begins to wait for its turn (1), has it (-1), or something else began or ended meanwhile (0)."""
        with self.lock:
            now = time.perf_counter_ns()
            if self._paused_from is not None:
                self.paused_ns += now - self._paused_from
            self.waiting += change
            is_busy = any(flight.outcome is None and not flight.waits for flight in self.flights)
            self._paused_from = now if self.waiting and not is_busy else None

    def number(self) -> int:
        return next(self._numbers)

    def exchanges(self) -> tuple[Exchange, ...]:
        """Everything sent so far, in order of sending; streams that nobody has finished reading are ``unread``."""
        flights = sorted(self.flights, key=lambda flight: flight.seq)
        return tuple(flight.exchange() for flight in flights if flight.kept)

    def add_problem(self, slug: str, text: str, verdict: str = "invalid") -> Problem:
        """Add a problem of this task once, however often it is seen."""
        problem = Problem(slug, text, verdict, self.agent, self.task, self.trial)
        with self.lock:
            if problem not in self.problems:
                self.problems.append(problem)
        return problem

    def stop(self, cap: str) -> None:
        """Mark the task as stopped by ``cap``; every further call of it is refused."""
        with self.lock:
            if self.capped is None:
                self.capped, self.stopped_at = cap, time.monotonic()
        self.on_stop()

    @property
    def is_finishing(self) -> bool:
        """Whether the task has been stopped, and calls that were sent before it may still be answered."""
        if self.capped is None or time.monotonic() > self.stopped_at + FINISH_S:
            return False
        return self.is_flying

    @property
    def is_flying(self) -> bool:
        """Whether a call of it is in flight."""
        return any(used.in_flight for used in list(self._used.values()))

    def stopped(self) -> TaskStopped:
        cap = self.capped or ""
        if cap == SPEND_LIMIT:
            return self.error(f"pytest-fanout: {self.task!r} of {self.agent} was stopped: the run may spend no more")
        return self.error(
            f"pytest-fanout: {self.task!r} of {self.agent} reached its cap {cap} = {getattr(self.caps, cap, None)}:"
            " it was stopped and every further call of it is refused"
        )

    def note_cut_calls(self) -> None:
        """A stopped task has ended: name the calls whose answer nobody could wait for."""
        cut = sum(flight.was_cut for flight in self.flights)
        if cut and self.capped is not None:
            text = f"{cut} model call{'s were' if cut > 1 else ' was'} under way when {self.task!r} of {self.agent} was"
            cap = f"{self.capped} = {getattr(self.caps, self.capped, None)}"
            self.add_problem("calls-cut-off", f"{text} stopped by its cap {cap}: what they cost is not known", "notice")

    def note_given_up_calls(self) -> None:
        """The task has ended: say how many calls the agent gave up before any answer."""
        given_up = sum(flight.was_given_up for flight in self.flights)
        if given_up:
            text = (
                f"{given_up} model call{'s' if given_up > 1 else ''} of {self.task!r} of {self.agent} given up by the"
            )
            self.add_problem(
                "calls-given-up",
                f"{text} agent before an answer came: they were sent and are counted; what they cost is not known",
                "notice",
            )

    def reserve(self, flight: Flight) -> None:
        """Take a place for one attempt before it is sent, or stop the task.

        Raises:
            TaskStopped: the attempt would go beyond a cap, or the task has been stopped before.
        """
        warnings: list[tuple[str, float]] = []
        with self.lock:
            if self.capped is None and flight.counted:
                used = self._used.get(flight.bucket) or self._used.setdefault(flight.bucket, _Counters())
                again = self._is_retry(flight)
                full = self._full(flight, used, again)
                if full is not None:
                    self.capped, self.stopped_at = full, time.monotonic()
                else:
                    used.fanout += not again
                    used.attempts += 1
                    used.in_flight += 1
                    flight.holds = True
                    self._warn_from(used, warnings)
            if self.capped is not None:
                flight.refuse("TaskStopped")
                flight.kept = not self._refused
                self._refused = True
            if flight.kept:
                self.flights.append(flight)
        self._warn(warnings)
        if self.capped is not None and not flight.holds:
            self.on_stop()
            raise self.stopped()

    def release(self, flight: Flight) -> None:
        """Book what an attempt has cost, once it has ended."""
        warnings: list[tuple[str, float]] = []
        tokens, asked, reached = flight.cost()
        if flight.turn is not None:
            is_over(flight, tokens, reached=reached)
        with self.lock:
            if not flight.holds:
                return
            flight.holds = False
            used = self._used[flight.bucket]
            used.in_flight -= 1
            used.tokens += tokens
            used.tool_calls += asked
            if not reached:
                used.fanout -= 1  # nothing was generated: the place is free for the retry
            elif flight.pending is not None:
                self.pending[flight.pending] = flight.bucket
            elif flight.broke:
                self._broken.setdefault(flight.url, []).append((flight.method, flight.body))
            self._count_failure(flight)
            self._warn_from(used, warnings)
        self._warn(warnings)

    def near_caps(self) -> tuple[tuple[str, float], ...]:
        """Caps of which 80 % or more is used, with the share."""
        found: dict[str, float] = {}
        with self.lock:
            for used in self._used.values():
                for name in ("fanout", "attempts", "tokens", "tool_calls"):
                    cap, value = getattr(self.caps, name), getattr(used, name)
                    if cap and value * 5 >= cap * 4:
                        found[name] = max(found.get(name, 0.0), value / cap)
        limit = self.caps.wall_seconds
        if limit is not None and self.now_ms() >= limit * 800:
            found["wall_seconds"] = self.now_ms() / (limit * 1000)
        return tuple(found.items())

    def poll(self, flight: Flight) -> None:
        """Book what a background run has cost, once a poll of it tells."""
        told = flight.told()
        warnings: list[tuple[str, float]] = []
        with self.lock:
            bucket = self.pending.pop(told.response_id or "", None) if told is not None else None
            if told is None or bucket is None:
                return
            used = self._used[bucket]
            if self.outflow is not None:
                self.outflow.add((told.input_tokens or 0) + (told.output_tokens or 0))
            used.tokens += (told.input_tokens or 0) + (told.output_tokens or 0)
            used.tool_calls += len(told.tool_calls)
            self._warn_from(used, warnings)
        self._warn(warnings)

    def _is_retry(self, flight: Flight) -> bool:
        broken = self._broken.get(flight.url)
        if not broken:
            return False
        key = (flight.method, flight.body)
        if key not in broken:
            return False
        broken.remove(key)
        return True

    def _full(self, flight: Flight, used: _Counters, again: bool) -> str | None:
        caps = self.caps
        failures = self._failures.get(flight.bucket)
        if caps.spawn_depth is not None and (flight.depth or 0) > caps.spawn_depth:
            return "spawn_depth"
        if caps.fanout is not None and used.fanout >= caps.fanout and not again:
            return "fanout"
        if caps.attempts is not None and used.attempts >= caps.attempts:
            return "attempts"
        if caps.tokens is not None and used.tokens >= caps.tokens:
            return "tokens"
        if caps.tool_calls is not None and used.tool_calls > caps.tool_calls:
            return "tool_calls"
        if caps.parallel_calls is not None and used.in_flight >= caps.parallel_calls:
            return "parallel_calls"
        limit = caps.identical_errors
        if limit is None or failures is None or failures.count < limit:
            return None
        return "identical_errors" if failures.key == (flight.method, flight.url, flight.body) else None

    def _count_failure(self, flight: Flight) -> None:
        if not flight.failed:
            self._failures.pop(flight.bucket, None)
            return
        failures = self._failures.setdefault(flight.bucket, _Failures())
        key = (flight.method, flight.url, flight.body)
        failures.count = failures.count + 1 if key == failures.key else 1
        failures.key = key

    def _warn_from(self, used: _Counters, warnings: list[tuple[str, float]]) -> None:
        if self.cap_warning is None:
            return
        for name in ("fanout", "attempts", "tokens", "tool_calls"):
            cap, value = getattr(self.caps, name), getattr(used, name)
            if cap and value * 5 >= cap * 4 and name not in self._warned:
                self._warned.add(name)
                warnings.append((name, value / cap))

    def warn(self, cap: str, share: float) -> None:
        """Tell once that ``share`` of a cap is used."""
        with self.lock:
            new = cap not in self._warned
            self._warned.add(cap)
        if new:
            self._warn([(cap, share)])

    def _warn(self, warnings: list[tuple[str, float]]) -> None:
        for cap, share in warnings:
            try:
                if self.cap_warning is not None:
                    self.cap_warning(self.task, cap, share)
            except Exception as error:  # a hook of the user's must not change what the agent sees
                self.add_problem(
                    "hook-raised", f"pytest_fanout_cap_warning raised {type(error).__name__}: {error}", "notice"
                )
