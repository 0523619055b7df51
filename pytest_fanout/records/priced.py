"""What a class and a fleet of classes cost: the results of the capacity room. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of one class at peak. Without figures ``per_1000`` is True and the rate is 1,000 tasks an hour."""

    agent: str
    tasks_per_second: float
    per_1000: bool


@dataclass(frozen=True, slots=True)
class Constraint:
    """How many GPUs one thing asks for: compute, memory or latency. ``gpus`` None: not known, and ``text`` says why."""

    name: str
    gpus: float | None  # before rounding up
    text: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """What is in flight at one place at peak: front (tasks), model (calls), or ``tool NAME`` (calls of that tool)."""

    name: str
    in_flight: float  # mean
    in_flight_p99: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """One quota of the provider beside what 99 % of minutes ask for, in the quota's own unit."""

    name: str
    used_p99: float
    quota: int
    share: float


@dataclass(frozen=True, slots=True)
class Load:
    """What one class asks of the fleet at peak. Tokens a second; concurrency by Little's law. None: not known."""

    calls_per_s: float | None
    new_input_per_s: float | None
    cached_input_per_s: float | None
    output_per_s: float | None
    tokens_per_s: float | None
    tasks_in_flight: float | None
    gpus: float | None  # the largest of the constraints, before rounding up; None without known tokens
    tasks_in_flight_p99: int | None = None
    usd_per_1000_tasks: float | None = None  # by token prices
    usd_per_day: float | None = None  # of the GPUs, rounded up, held all day; of the tokens with a provider
    constraints: tuple[Constraint, ...] = ()
    binding: str | None = None  # name of the constraint that asks for most
    gpus_other: float | None = None  # by the other fit of the same measurements; None: calibrated, or no other fit
    kv_gb: float | None = None  # 10**9 bytes of contexts held at peak
    boundaries: tuple[Boundary, ...] = ()
    keeps_prefixes: bool | None = None  # whether contexts stay cached while tools run; None: not checked
    refused: str | None = None  # why there is no number: saturated, outside calibration, too long for one replica


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over windows of 60 s at peak: the median over eval sets of a percentile of arrivals.

    The intervals (90 %) are what another eval set of the same size could give for the same percentile; the estimate
    always lies in its own.
    """

    p50: float
    p95: float
    p99: float
    p50_interval: tuple[float, float]
    p95_interval: tuple[float, float]
    p99_interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Growth:
    """Run minus base and run over base at the 95th percentile; intervals (90 %) over eval sets put to both sides.

    ``ratio`` None: base is 0.
    """

    delta: float
    delta_interval: tuple[float, float]
    ratio: float | None
    ratio_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Projection:
    """Capacity of one class, anchor beside run, with the assumptions that it stands on."""

    agent: str
    demand: Demand
    base: Load | None
    run: Load
    profile: str  # name of the GPU profile and its source
    gpus_base: int | None  # for the mean, in whole replicas, with the spare ones
    gpus_run: int | None
    assumptions: tuple[str, ...] = ()
    ratio_calls: float | None = None  # run over base, on the tasks that both have
    ratio_gpu_time: float | None = None
    tasks_shared: int = 0
    ratio_gpu_time_other: float | None = None  # by the other fit
    gpus_spread_base: Spread | None = None
    gpus_spread_run: Spread | None = None
    gpus_growth: Growth | None = None
    serves: str = "gpus"  # or "provider": no GPUs of our own
    gpus_for_p95_base: int | None = None  # for the 95th percentile, in whole replicas, with the spare ones
    gpus_for_p95_run: int | None = None


@dataclass(frozen=True, slots=True)
class CliffCell:
    """One combination of cliffs. ``gpus`` None: saturated or not known, which does not fit."""

    cliffs: tuple[str, ...]  # onboarding, fanout, behavioural
    gpus: float | None
    demand_ratio: float | None  # GPUs over those without any cliff
    fits: bool
    degradation: float | None  # share (0-1) of the demand that cannot be served; 0 where it fits


@dataclass(frozen=True, slots=True)
class Cliffs:
    """Every combination of the cliffs on one fleet. ``survivable``: how many at once, by the rule of fleet.toml."""

    cells: tuple[CliffCell, ...]
    survivable: int | None  # None: not even the load without a cliff fits, or it is not known
    gpus_available: float


@dataclass(frozen=True, slots=True)
class WorstCase:
    """What the caps let through when every slot is taken by a task at its cap. None: unbounded, or not known.

    ``wall_s_min``: the shortest time of any task of the eval set. As often a slot may be taken anew, so that
    ``tokens_per_s`` and ``usd_per_day`` are what no hour and no day can pass.
    """

    agent: str
    tokens_per_task: int | None
    calls_per_task: int | None
    tokens_in_flight: float | None
    usd_per_task: float | None
    wall_s_min: float | None = None
    tokens_per_s: float | None = None
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """How many GPUs to reserve and how many to rent by the hour. Costs in hours of a reserved GPU, per hour."""

    gpus_newsvendor: int  # the k-th is reserved when demand reaches k in more than 1 / price ratio of hours
    gpus_minimum: int  # what every hour needs
    cost_newsvendor: float
    cost_minimum: float
    cost_peak: float  # all reserved, up to the 99th percentile of hours
    blended_index: float  # cost over the hours that are used: 1 is a fleet that is always full
    burst_share: float  # of GPU hours


@dataclass(frozen=True, slots=True)
class Side:
    """The whole fleet by its anchors, or by its run."""

    gpus: int | None  # for the mean, in whole replicas, with the spare ones
    load: Load
    gpus_spread: Spread | None
    calls_per_s: Spread
    new_input_per_s: Spread
    cached_input_per_s: Spread
    output_per_s: Spread
    quotas: tuple[QuotaUse, ...] = ()
    usd_per_month: float | None = None  # 30 days
    cliffs: Cliffs | None = None
    reservation: Reservation | None = None
    eval_share: float | None = None  # of the variance of GPUs that another eval set would change
    gpus_p95_bursty: float | None = None  # with an index of dispersion of 10
    gpus_worse_cache: float | None = None
    gpus_for_p95: int | None = None  # for the 95th percentile, in whole replicas, with the spare ones


@dataclass(frozen=True, slots=True)
class ScalingSignal:
    """What an autoscaler adds a replica at, its unit in ``name``. Never GPU utilisation, which is high long before."""

    name: str  # calls_in_flight ttft_ms kv_share queue_depth, of one replica
    value: float


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All classes of fleet.toml on one fleet, anchors beside run."""

    classes: tuple[str, ...]
    base: Side | None
    run: Side
    growth: Growth | None
    worst_case: tuple[WorstCase, ...]
    notes: tuple[str, ...] = ()
    scaling: tuple[ScalingSignal, ...] = ()  # where there is a calibration
