"""What is committed and reviewed: anchors, budget, fleet, approvals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pytest_fanout.records.exchange import CallSite
from pytest_fanout.records.measured import Caps


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What the anchor keeps of one trial beside its samples."""

    recording: str | None
    status: str
    passed: bool
    begun_at: int | None
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    shared_prefix: str | None = None  # digest of the recording whose beginning it keeps; None: it has one of its own

    @property
    def beginning(self) -> str | None:
        """The recording that its beginning was first drawn for: trials that share one are not independent."""
        return self.shared_prefix or self.recording


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
    """``<metric>.<statistic>``: over when above base x (1 + increase) and by at_least, or above max.

    ``min``: of ``capacity.cliffs`` alone, where less is worse.
    """

    metric: str
    statistic: str
    increase: Fraction | None = None
    at_least: int = 0
    max: int | None = None
    evidence: bool = True
    min: int | None = None

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
    stateful_tools: tuple[str, ...] = ()  # classes, and tasks as "class::task", whose trials are never branched
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
    capacity: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)  # limits on GPUs, money and cliffs

    def capacity_for(self, agent: str) -> tuple[Limit, ...]:
        return self.capacity.get(agent, self.capacity.get("default", ()))

    def limits_for(self, agent: str) -> tuple[Limit, ...]:
        return self.limits.get(agent, self.limits["default"])

    def caps_for(self, agent: str) -> Caps:
        return self.caps.get(agent, self.caps["default"])

    def judge_for(self, agent: str) -> JudgeRules:
        return self.judge.get(agent, self.judge["default"])


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
