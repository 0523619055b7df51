"""What is judged, explained and priced: the results of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.records.evidence import Cause, Comparison
from pytest_fanout.records.exchange import CallSite
from pytest_fanout.records.explained import Explanation
from pytest_fanout.records.measured import Base, Head, Problem
from pytest_fanout.records.priced import FleetPlan, Projection

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
    interval: tuple[int | None, int | None] | None = None  # 90 % of a percentile of a new draw; None: not estimable
    evidence: str | None = None  # new draws: regressed unconfirmed high open low shown; None: judged by raw numbers


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
    evidence: Comparison | None = None  # of a new draw
    causes: tuple[Cause, ...] = ()  # where a control arm ran

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.verdict]


@dataclass(frozen=True, slots=True)
class SiteDelta:
    """Calls per task at one call site, in hundredths, base beside run; ``change``: new, gone, changed, more, fewer,
    same."""

    agent: str
    site: CallSite
    calls_base: int | None  # hundredths of a call per trial
    calls_run: int | None
    tokens_base: int | None  # tokens per trial
    tokens_run: int | None
    change: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole judgement of a run: the worst class decides."""

    verdict: str
    classes: tuple[ClassResult, ...]
    problems: tuple[Problem, ...]  # of the run as a whole; those with verdict "notice" only inform
    base: Base
    head: Head
    projections: tuple[Projection, ...] = ()
    fleet: FleetPlan | None = None  # where fleet.toml gives the demand of every class that was projected
    sites: tuple[SiteDelta, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    next: tuple[str, ...] = ()  # commands or actions, most useful first

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.verdict]
