"""Every noun that crosses a room, as frozen records. No logic beyond sums of their own fields.

Units: tokens are counts, times are integer milliseconds unless the name says otherwise, ``begun_at`` is
unix seconds. ``None`` means *not known*; ``0`` is a measured zero. The vocabulary is that of docs/concepts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

# --- metrics -------------------------------------------------------------------------------------------------------

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
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p99.9", "max")

#: One value a metric; ``None`` where the provider did not say. Keys: METRICS, ``tool_calls[NAME]``, ``tool_ms[NAME]``.
Samples = Mapping[str, "int | None"]

# --- the wire ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a URL asks for. ``api`` is None where no API family is named (counting, polling, storage)."""

    api: str | None
    kind: str  # generate compact embed rerank moderate count batch agent_run channel other


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A client tool invocation asked for by a model answer; ``arguments`` is the text as received."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class SideCall:
    """Inference that a provider ran inside a call and did not include in its totals."""

    type: str
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where in the agent a call comes from: a fingerprint of system prompt, tool names, model and API."""

    fingerprint: str  # 16 hex digits
    api: str
    model: str | None
    tools: tuple[str, ...]
    label: str  # the first words of the system prompt, one line, at most 60 characters


@dataclass(frozen=True, slots=True)
class Attempt:
    """One physical request to a model endpoint, failed ones included (wire-level facts, then the meter's times).

    ``input_tokens`` holds **all** prompt tokens: cached and cache-written ones are subsets of it. ``output_tokens``
    holds all generated tokens: ``reasoning_tokens`` is a subset.
    """

    api: str
    kind: str = "generate"
    provider: str | None = None  # a label made from the host, never used to parse
    model_requested: str | None = None
    model_served: str | None = None
    stream: bool = False
    choices: int = 0
    status: str = "ok"  # ok error incomplete pending
    http_status: int | None = None
    error_type: str | None = None
    retry_after_s: float | None = None
    finish: str | None = None
    finish_raw: str | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_reported: int | None = None
    usage_source: str = "missing"  # final partial estimated missing none
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results_in: tuple[str, ...] = ()  # ids (or names) of the tool results that the request carries
    server_tool_calls: Mapping[str, int] = field(default_factory=dict)
    side_calls: tuple[SideCall, ...] = ()
    inner_iterations: int | None = None
    response_id: str | None = None
    request_id: str | None = None
    parent_id: str | None = None
    attempt: int | None = None  # the SDK's own retry counter, where it sends one
    body_hash: str = ""  # SHA-256 hex of the request body
    site: CallSite | None = None
    notes: tuple[str, ...] = ()
    # filled by the meter
    url: str = ""  # without query
    started_ms: int | None = None  # from the start of the task
    ended_ms: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input plus output, None where either is unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One logical call: its attempts in order. The last attempt is the one that the agent went on with."""

    attempts: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def reached_model(self) -> bool:
        """Whether generation began on any attempt; a call that was only ever rejected is no fanout."""
        return any(a.status in ("ok", "incomplete", "pending") or a.usage_source != "none" for a in self.attempts)


# --- the seam: one HTTP request and what came back ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as the client handed it to its transport. Headers in order, names in lower case."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One response, as chunks in arrival order. ``chunk_ms`` counts from the start of the request.

    ``outcome``: complete, closed_early (the client stopped reading), unread, error (``error`` names the exception;
    ``status`` may be None when no response began), partial (only a prefix is known).
    """

    status: int | None
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[bytes, ...]
    chunk_ms: tuple[int, ...]
    ended_ms: int  # from the start of the request
    outcome: str = "complete"
    error: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a recording answers to a request. ``started_ms``: when it was sent, from the start of the task."""

    answer: HttpAnswer
    started_ms: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that a task sent and what it heard back: the unit that is counted, recorded and replayed.

    ``role``: model, tool (other HTTP of the agent), refused (never sent: a cap, a miss, a missing key).
    ``bucket``: "agent", or the name given to ``aside()``.
    """

    seq: int  # order of sending within the trial, from 0
    layer: str  # httpx, httpx2
    role: str
    bucket: str
    request: HttpRequest
    answer: HttpAnswer
    started_ms: int  # from the start of the task
    replayed: bool = False
    live_input: bool = False
    raw_body: str = ""  # of a loaded recording: SHA-256 hex of the body as sent (what is kept is its canonical form)


# --- measuring -----------------------------------------------------------------------------------------------------


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
    begun_at: int | None = None
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    unknown_usage: int = 0  # model calls whose usage is missing
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


# --- what is measured, and what it said and heard ---------------------------------------------------------------------


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


# --- what is committed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What the anchor keeps of one trial beside its samples."""

    recording: str | None
    status: str
    passed: bool
    begun_at: int | None
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    shared_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class BaselineTask:
    """The approved samples of one task: for each metric one integer a trial."""

    definition: str
    samples: Mapping[str, tuple[int | None, ...]]
    trials: tuple[TrialFacts, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The anchor of an agent class. ``digest`` is that of its canonical form."""

    agent: str
    digest: str
    evalset: str | None
    tasks: Mapping[str, BaselineTask]


@dataclass(frozen=True, slots=True)
class SiteStats:
    """Call sites of an anchor: sums over ``trials`` trials of ``tasks`` tasks, so that means can be made."""

    agent: str
    weight: int  # trials that the sums are over
    sites: tuple[CallSite, ...]
    calls: Mapping[str, int]
    tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Limit:
    """``<metric>.<statistic>``: over when above base x (1 + increase) and by at_least, or above max."""

    metric: str
    statistic: str
    increase: Fraction | None = None
    at_least: int = 0
    max: int | None = None
    evidence: bool = True

    @property
    def name(self) -> str:
        return f"{self.metric}.{self.statistic}"


@dataclass(frozen=True, slots=True)
class JudgeRules:
    """How strictly a class is judged."""

    trials: int = 5
    alpha: Fraction = Fraction(5, 100)
    sessions: int = 3
    inconclusive: str = "fail"
    drift: Fraction = Fraction(25, 100)
    drift_days: int = 90
    max_age_days: int | None = None


@dataclass(frozen=True, slots=True)
class MeasureRules:
    """How requests are measured and matched; loosening any of it needs an approval like a limit does."""

    volatile: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    live_inputs: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    model_hosts: tuple[str, ...] = ()
    seal_keys: bool = True
    strict_egress: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """budget.toml with its defaults applied. ``digest`` is that of the canonical parsed document."""

    digest: str
    limits: Mapping[str, tuple[Limit, ...]]  # "default" and each agent that is named
    caps: Mapping[str, Caps]
    judge: Mapping[str, JudgeRules]
    measure: MeasureRules = MeasureRules()
    is_default: bool = False  # no file: the defaults of the documentation

    def limits_for(self, agent: str) -> tuple[Limit, ...]:
        return self.limits.get(agent, self.limits["default"])

    def caps_for(self, agent: str) -> Caps:
        return self.caps.get(agent, self.caps["default"])

    def judge_for(self, agent: str) -> JudgeRules:
        return self.judge.get(agent, self.judge["default"])


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """Demand of one class as fleet.toml states it.

    ``dau``: daily active users. ``peak_factor``: rate of the peak hour over the mean rate of the day (ratio, >= 1).
    ``iod``: index of dispersion of arrivals, variance over mean of the count in a window; 1 is Poisson.
    """

    agent: str
    dau: int
    tasks_per_user_day: float
    peak_factor: float = 3.0
    iod: float = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens and GPUs cost, US dollars. The three token prices are known together or not at all."""

    usd_per_million_new_input_tokens: float | None = None
    usd_per_million_cached_input_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """fleet.toml with its defaults applied. ``digest`` is that of the canonical parsed document.

    ``target_utilisation``: share (0-1) of its throughput that a GPU is planned for at peak.
    ``defaulted``: dotted keys whose value was not in the file, so that reports can say so.
    """

    digest: str
    source: str  # path of the file, for messages
    demand: Mapping[str, ClassDemand] = field(default_factory=dict)
    profile: str = "gpt-oss-120b-h200-tp1"
    target_utilisation: float = 0.70
    prices: Prices = Prices()
    defaulted: frozenset[str] = frozenset()
    is_default: bool = False  # no file: the defaults of the documentation


@dataclass(frozen=True, slots=True)
class Change:
    """A line of an approval for the reviewer; information, never binding."""

    what: str  # metric task_added task_removed task_redefined class_added class_removed budget drift
    name: str
    scope: str | None = None
    old: int | str | None = None
    new: int | str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A committed, reviewed permission. ``ceilings``: limit name -> largest raw value that it covers."""

    path: str
    kind: str  # baseline budget waiver
    subject: str  # agent class, or "budget", "fleet"
    from_digest: str | None
    to_digest: str | None
    evalset: str | None
    ceilings: Mapping[str, int]
    changes: tuple[Change, ...]
    reason: str
    requested_by: str
    requested_on: str  # ISO date
    nonce: str
    expires_at: int | None = None  # waivers: unix seconds


# --- judging -------------------------------------------------------------------------------------------------------

#: Worst first; the worst class decides.
VERDICTS = (
    "integrity",
    "no-base",
    "invalid",
    "incomplete",
    "stale",
    "no-baseline",
    "unapproved",
    "mismatch",
    "regressed",
    "inconclusive",
    "waived",
    "approved",
    "shard",
    "pass",
)
OUTCOMES: Mapping[str, str] = {
    "integrity": "not_measured",
    "no-base": "not_measured",
    "invalid": "not_measured",
    "incomplete": "not_measured",
    "stale": "not_measured",
    "no-baseline": "not_measured",
    "unapproved": "over",
    "mismatch": "over",
    "regressed": "over",
    "inconclusive": "over",
    "waived": "waived",
    "approved": "within",
    "shard": "not_measured",
    "pass": "within",
}


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric of one class, base beside run. Values are what the statistic gives; None: not known."""

    name: str  # e.g. "fanout.p95"
    base: int | None
    run: int | None
    limit: int | None  # the largest value that is not over
    over: bool
    gated: bool
    n: int  # tasks
    trials: int
    max: int | None = None  # largest single trial of the run
    max_task: str | None = None
    ceiling: int | None = None  # of the approval in force
    scope: str = "all"  # all, or common (tasks that base and run share)
    interval: tuple[int | None, int | None] | None = None


@dataclass(frozen=True, slots=True)
class TaskDelta:
    """A task that moved: mean fanout and tokens over its trials, base and run."""

    task: str
    fanout_base: tuple[int | None, ...]
    fanout_run: tuple[int | None, ...]
    tokens_base: tuple[int | None, ...]
    tokens_run: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The verdict on one agent class."""

    agent: str
    verdict: str
    draw: str  # same, new, mixed, none
    metrics: tuple[MetricResult, ...]
    problems: tuple[Problem, ...]
    tasks_expected: int
    tasks_ran: int
    trials: int
    pass_share: tuple[int, int] = (0, 0)  # trials passed, trials
    pass_share_base: tuple[int, int] = (0, 0)
    top: tuple[TaskDelta, ...] = ()
    stale: tuple[str, ...] = ()  # tasks
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    approval: str | None = None  # path of the one in force
    approval_why: str | None = None  # why none covers it
    notices: tuple[Problem, ...] = ()
    baseline_base: str | None = None  # digests
    baseline_head: str | None = None

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.verdict]


@dataclass(frozen=True, slots=True)
class SiteDelta:
    """Calls per task at one call site, in hundredths, base beside run; ``change``: new, gone, more, fewer, same."""

    agent: str
    site: CallSite
    calls_base: int | None  # hundredths of a call per trial
    calls_run: int | None
    tokens_base: int | None  # tokens per trial
    tokens_run: int | None
    change: str


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one class at peak. Without figures ``per_1000`` is True and the rate is 1,000 tasks an hour."""

    agent: str
    tasks_per_second: float
    per_1000: bool


@dataclass(frozen=True, slots=True)
class Load:
    """What one class asks of the fleet at peak. Tokens a second; concurrency by Little's law. None: not known."""

    calls_per_s: float | None
    new_input_per_s: float | None
    cached_input_per_s: float | None
    output_per_s: float | None
    tokens_per_s: float | None
    tasks_in_flight: float | None
    gpus: float | None  # before rounding up; None without a profile or without known tokens
    tasks_in_flight_p99: int | None = None  # of the spread that arrivals alone cause
    usd_per_1000_tasks: float | None = None  # by token prices
    usd_per_day: float | None = None  # of the GPUs, rounded up, held all day


@dataclass(frozen=True, slots=True)
class Projection:
    """Capacity of one class, anchor beside run, with the assumptions that it stands on."""

    agent: str
    demand: Demand
    base: Load | None
    run: Load
    profile: str  # name of the GPU profile and its source
    gpus_base: int | None  # rounded up
    gpus_run: int | None
    assumptions: tuple[str, ...] = ()
    ratio_calls: float | None = None  # run over base, on the tasks that both have
    ratio_gpu_time: float | None = None
    tasks_shared: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole judgement of a run: the worst class decides."""

    verdict: str
    classes: tuple[ClassResult, ...]
    problems: tuple[Problem, ...]  # of the run as a whole; those with verdict "notice" only inform
    base: Base
    head: Head
    projections: tuple[Projection, ...] = ()
    sites: tuple[SiteDelta, ...] = ()
    next: tuple[str, ...] = ()  # commands or actions, most useful first

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.verdict]
