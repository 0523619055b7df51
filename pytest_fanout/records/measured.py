"""What a run measured: metrics, caps, trials, recordings, the run itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.records.exchange import CallSite, Exchange, ModelCall

#: The samples of one trial, in the order they are written. ``tokens`` is derived: input + output.
METRICS = (
    "fanout",
    "attempts",
    "tool_calls",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "context_max",
    "context_token_ms",
    "duration_ms",
    "model_ms",
    "tool_ms",
    "peak_concurrency",
    "rounds",
    "spawn_depth",
)
#: Metrics whose value needs the provider's usage; without it they are ``None``.
TOKEN_METRICS = frozenset(
    {
        "tokens",
        "input_tokens",
        "cached_input_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "context_max",
        "context_token_ms",
    }
)
#: Statuses of a trial that count in the distribution; the others were not measured.
MEASURED = frozenset({"ok", "failed", "capped", "timeout"})
#: Metrics of the clock, ``tool_ms[NAME]`` among them; ``None`` where no durations were recorded.
TIMING_METRICS = frozenset({"context_token_ms", "duration_ms", "model_ms", "tool_ms", "peak_concurrency", "rounds"})
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p99.9", "max")

#: One value a metric; ``None`` where the provider did not say. Keys: METRICS, ``tool_calls[NAME]``, ``tool_ms[NAME]``.
Samples = Mapping[str, "int | None"]


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard limits of one task, shared by all that it starts. None: unbounded."""

    fanout: int | None = 200
    attempts: int | None = 600
    tokens: int | None = 2_000_000
    tool_calls: int | None = 400
    parallel_calls: int | None = 32
    spawn_depth: int | None = 8
    wall_seconds: int | None = 900
    identical_errors: int | None = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that stops a number from being trusted, or a notice. ``slug`` is an anchor of docs/messages.md.

    ``verdict``: the verdict it forces (integrity, invalid, incomplete, stale, …), or "notice".
    """

    slug: str
    text: str
    verdict: str = "invalid"
    agent: str | None = None
    task: str | None = None
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class StaleNote:
    """Why a trial does not fit its recording: the first request that differs, and what changed in it."""

    call: int  # number of the exchange in the trial, from 1
    role: str  # model or tool
    changes: tuple[str, ...]  # one line each, e.g. "system prompt: …"
    recorded: int  # exchanges on the recording
    requested: int  # exchanges that the agent asked for, at least
    leftover: int = 0
    kinds: tuple[str, ...] = ()  # the changes without the words around them: alike where the same thing was changed


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One trial of one task, as measured."""

    agent: str
    task: str
    trial: int  # from 1
    status: str  # ok failed capped timeout stale invalid crashed
    passed: bool  # the agent finished, `expect` and `check` held
    samples: Samples
    calls: tuple[ModelCall, ...] = ()
    aside: Mapping[str, int] = field(default_factory=dict)  # model calls by bucket name
    problems: tuple[Problem, ...] = ()
    definition: str | None = None  # digest of the eval line without its weight
    recording: str | None = None  # digest of the recording that it ran on or made
    new_draw: bool = False  # it ran live, now
    draw: int = 1  # how many times this trial has been recorded
    redraws: int = 0  # how many times in a row the same requests were drawn anew
    begun_at: int | None = None
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    unknown_usage: int = 0  # model calls whose usage no provider has counted in full
    capped: str | None = None  # which cap
    error: str | None = None  # one line
    no_calls: bool = False  # the eval line says that it makes none
    stale: StaleNote | None = None
    leftover: int = 0  # recorded exchanges that this run did not ask for
    sites: Mapping[str, int] = field(default_factory=dict)  # fingerprint -> model calls
    site_tokens: Mapping[str, int] = field(default_factory=dict)  # fingerprint -> tokens, known ones
    call_sites: tuple[CallSite, ...] = ()
    hosts: tuple[str, ...] = ()  # host:port of counted calls
    other: int = 0  # counted requests that are not model calls
    unclassified: int = 0
    spent_calls: int = 0  # live calls that this run cost
    ignored: Mapping[str, int] = field(default_factory=dict)  # entry of `volatile` -> requests that it made alike
    volatile: tuple[str, ...] = ()  # entries of budget.toml that would have let its recording be proved
    failures: Mapping[str, int] = field(default_factory=dict)  # "HTTP 429", "broken off", … -> attempts that ended so
    shared_prefix: str | None = None  # digest of the recording whose beginning it keeps; None: it has one of its own
    saved_calls: int = 0  # model calls of that beginning, which this run did not make

    @property
    def is_unrecorded(self) -> bool:
        """Whether it is stale because there has never been a recording of it."""
        note = self.stale
        return (
            note is not None
            and self.recording is None
            and not note.recorded
            and all(problem.verdict != "integrity" for problem in self.problems)
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a run. ``aside`` counts calls of graders and set-up, ``other`` requests that are no model calls."""

    calls: int = 0
    attempts: int = 0
    tokens: int = 0
    aside: int = 0
    late: int = 0
    unattributed: int = 0
    unclassified: int = 0
    other: int = 0


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What pytest did: item counts are trials, ``expected`` are tasks."""

    expected: int = 0
    collected: int = 0
    ran: int = 0
    deselected: int = 0
    skipped: int = 0
    shard: str | None = None  # "I/N"
    pytest_exit: int = 0
    partial: bool = False  # tasks are missing and a selection explains it
    stopped: str | None = None  # why it ended early
    withheld: int = 0  # collected, and not run because no look needed them


@dataclass(frozen=True, slots=True)
class Base:
    """The commit that the verdict compares with. ``rev`` None: there is none, and ``problem`` says why."""

    rev: str | None
    source: str  # e.g. "event.pull_request:HEAD^1", "merge-base origin/main", "option"
    is_gate: bool = True  # False: base equals HEAD, "not a gate result"
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The commit that is measured. ``rev`` None: no commit yet or no git."""

    rev: str | None
    dirty: bool = False
    merges: str | None = None  # its second parent: the pull request's own commit, where CI checks out the merge


@dataclass(frozen=True, slots=True)
class ControlTrial:
    """A trial of the base commit's agent, run live beside the head's."""

    agent: str
    task: str
    trial: int
    status: str
    passed: bool
    samples: Samples
    models_served: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: everything the gate needs to know of it."""

    run_id: str
    mode: str  # replay record rerecord live
    begun_at: int
    agents: tuple[str, ...]  # classes of the settings and of the marked tests that ran
    tasks: tuple[TaskRun, ...]
    definitions: Mapping[str, Mapping[str, str]]  # agent -> task -> definition digest, from the eval sets
    evalsets: Mapping[str, str | None]  # agent -> digest of its eval set (None: marked tests only)
    session: SessionFacts
    totals: Totals = Totals()
    problems: tuple[Problem, ...] = ()  # of the run as a whole
    base: Base | None = None
    head: Head | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)  # name -> digest
    ci: bool = False
    sealed: bool = True
    volatile: tuple[str, ...] = ()  # entries of budget.toml that were in force: what matching ignores
    control: tuple[ControlTrial, ...] = ()
    # name and version of what wrote its report; None: it was not read from one
    tool: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One line of an eval set."""

    id: str
    input: Any
    expect: Any  # None, a text that the answer must contain, or {equals|contains|matches|json: …}
    tags: tuple[str, ...]
    weight: float  # share in production, relative; serves capacity only
    no_calls: bool
    definition: str  # digest of the line without its weight and tags
    line: int


@dataclass(frozen=True, slots=True)
class EvalSet:
    """The tasks of an agent class, in file order."""

    agent: str
    path: str
    digest: str
    tasks: tuple[EvalTask, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What one trial said to models and tools and heard back. ``digest`` is that of its stored form."""

    agent: str
    task: str
    trial: int
    definition: str | None
    begun_at: int
    duration_ms: int
    status: str
    passed: bool
    exchanges: tuple[Exchange, ...]
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    draw: int = 1
    replaced: tuple[str, ...] = ()  # digests of the draws that it replaces, oldest first
    digest: str = ""
    redraws: int = 0  # how many times in a row the same requests were drawn anew
    imported: tuple[str, ...] = ()  # the cassettes that it was made from: no durations, no order of concurrent calls
    branched_from: str | None = None  # digest of the recording whose beginning it keeps, the one that first drew it
    shared: int = 0  # of its exchanges, the first ones: those of that beginning
    version: str | None = field(default=None, compare=False)  # of pytest-fanout, that wrote it
