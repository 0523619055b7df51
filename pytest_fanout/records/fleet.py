"""What fleet.toml states, defaults applied, and what a calibration measured. Units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """Demand of one class as fleet.toml states it.

    ``dau``: daily active users. ``peak_factor``: rate of the peak hour over the mean rate of the day (ratio, >= 1).
    ``iod``: index of dispersion of arrivals, variance over mean of the count in a window; 1 is Poisson.
    ``onboarding_dau``: users of a customer who may come at once, a cliff.
    ``hourly_shares``: relative rate of each of 24 hours; empty: a bell with that peak factor.
    """

    agent: str
    dau: int
    tasks_per_user_day: float
    peak_factor: float = 3.0
    iod: float = 1.0
    onboarding_dau: int = 0
    hourly_shares: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens and GPUs cost, US dollars. The three token prices are known together or not at all."""

    usd_per_million_new_input_tokens: float | None = None
    usd_per_million_cached_input_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_gpu_hour: float | None = None
    usd_per_million_cache_write_tokens: float | None = None  # None: written at the price of new input


@dataclass(frozen=True, slots=True)
class Memory:
    """What one GPU holds of contexts. ``kv_pool_gb_per_gpu`` None: HBM x 0.90 - weights - 3 GB, where those are known.

    GB are 10**9 bytes.
    """

    kv_pool_gb_per_gpu: float | None = None
    kv_bytes_per_token: float | None = None  # None: that of the model, where it is known
    sequences_per_replica_max: int | None = None  # the server's own limit, e.g. max_num_seqs of vLLM


@dataclass(frozen=True, slots=True)
class Slo:
    """What users are promised: milliseconds between tokens, and to the first one."""

    itl_ms_max: float = 50.0
    ttft_ms_max: float = 2_000.0


@dataclass(frozen=True, slots=True)
class Quota:
    """What a provider lets through. None: not limited. Each field names its unit.

    ``counts_cached_tokens``: whether cache reads count in ``tokens_per_minute`` and ``input_tokens_per_minute``; a
    provider with two buckets has ``uncached_tokens_per_minute`` beside. ``reserved_output_tokens_per_call``: what is
    booked for the output of a call before it is known (its max_tokens), where the provider does that.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    uncached_tokens_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent_requests: int | None = None
    counts_cached_tokens: bool = True
    reserved_output_tokens_per_call: int | None = None


@dataclass(frozen=True, slots=True)
class CliffInputs:
    """Steps of demand that the fleet is tried on. A ratio that is None is no cliff of this project.

    ``survive``: ``all``: every combination of so many cliffs has to fit; ``any``: one of them.
    """

    fanout_ratio: float | None = None
    tasks_per_user_ratio: float | None = None
    survive: str = "all"


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """One load of a measured model server, per replica."""

    concurrency: int  # requests in flight
    output_tokens_per_s: float
    itl_ms: float  # mean time between two tokens of a stream
    ttft_ms: float | None = None
    kv_share: float | None = None  # 0-1 of the KV pool in use
    queue_depth: float | None = None  # requests that waited


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model server as somebody measured it: what stands in place of a built-in profile.

    ``points`` rise in concurrency, two at least, all of one shape of requests (``input_tokens``, ``output_tokens``).
    ``prefill_tokens_per_s`` is of one GPU, uncached input. Nothing beyond the last point is ever projected.
    """

    name: str
    source: str  # tool, file, day
    model: str
    gpu: str
    gpus_per_replica: int
    points: tuple[CalibrationPoint, ...]
    prefill_tokens_per_s: float
    input_tokens: int
    output_tokens: int
    context_tokens_max: int  # the longest context that was measured
    knee_reached: bool = False  # False: throughput still rose at the last point, a lower bound of what it can do


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """One load of a model server as a benchmark wrote it, of the whole server. None: the file does not say.

    Token counts are means per request, times are means. ``pinned``: whether so many requests were kept in flight, so
    that throughput x residency has to give the same number.
    """

    source: str  # file, and which of its runs
    tool: str
    concurrency: float | None
    pinned: bool
    completed: int
    input_tokens: float
    output_tokens: float
    requests_per_s: float
    output_tokens_per_s: float
    residency_ms: float | None  # from sending a request to its last token
    itl_ms: float | None = None
    ttft_ms: float | None = None
    failed: int | None = None
    model: str | None = None
    hardware: str | None = None


@dataclass(frozen=True, slots=True)
class ServerState:
    """A scrape of vLLM's /metrics while a load ran. None: not among the metrics."""

    source: str
    running: float
    waiting: float
    kv_share: float | None = None  # 0-1
    prefix_hit_share: float | None = None  # 0-1 of the tokens asked for since the server started
    model: str | None = None


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
    serves: str = "gpus"  # own GPUs, or "provider": an API with quotas and token prices
    model: str | None = None  # with ``gpu``: names a profile by what it runs on
    gpu: str | None = None
    calibration: str | None = None  # file beside fleet.toml
    gpus_reserved: int | None = None  # None: the fleet is to be sized, nothing is held against it
    gpus_burst: int = 0  # that can be had beside the reserved ones within minutes
    spare_replicas: int = 0
    cached_input_share_max: float = 1.0  # of input tokens: caps what the eval set says is cached
    cache_loss_points: float = 15.0  # the scenario of a worse cache, percentage points
    burst_price_ratio: float = 2.5  # price of a burst GPU hour over that of a reserved one
    memory: Memory = Memory()
    slo: Slo = Slo()
    quota: Quota | None = None
    cliffs: CliffInputs = CliffInputs()
