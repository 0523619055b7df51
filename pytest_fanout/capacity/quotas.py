"""What 99 % of minutes ask of a provider, beside what its quotas let through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.capacity.littles_law import in_flight_quantile
from pytest_fanout.records import Quota, QuotaUse

_PER_MINUTE = (
    "requests_per_minute", "tokens_per_minute", "uncached_tokens_per_minute", "input_tokens_per_minute",
    "output_tokens_per_minute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What 99 % of minutes ask for (a second, by quota), tokens of a day, and calls in flight in 99 % of moments."""

    p99: Mapping[str, float]
    tokens_per_day: float
    calls_in_flight_p99: int | None  # None: not known
    iod: float = 1.0


def kinds_of(quota: Quota) -> tuple[str, ...]:
    """The quotas of a minute that are given."""
    return tuple(name for name in _PER_MINUTE if getattr(quota, name) is not None)


def asked_of(
    quota: Quota, calls: float, new_input: float, cached_input: float, output: float
) -> tuple[float, ...]:  # fmt: skip
    """What one task counts towards each of ``kinds_of``."""
    written = output
    if quota.reserved_output_tokens_per_call is not None:
        written = calls * float(quota.reserved_output_tokens_per_call)
    given = new_input + (cached_input if quota.counts_cached_tokens else 0.0)
    counted = (calls, given + written, new_input + written, given, written)
    return tuple(value for name, value in zip(_PER_MINUTE, counted, strict=True) if getattr(quota, name) is not None)


def uses_of(quota: Quota, asked: Asked) -> tuple[QuotaUse, ...]:
    """The share of each quota that is given; above 1 the provider refuses calls. Largest first."""
    found = [_use(name, 60 * value, getattr(quota, name)) for name, value in asked.p99.items()]
    if quota.requests_per_minute is not None:
        # some providers hold a quota of 600 a minute as 10 a second
        burst = in_flight_quantile(asked.p99["requests_per_minute"], 0.99, asked.iod)
        found.append(_use("requests_per_second", float(burst), max(1, quota.requests_per_minute // 60)))
    if quota.tokens_per_day is not None:
        found.append(_use("tokens_per_day", asked.tokens_per_day, quota.tokens_per_day))
    if quota.concurrent_requests is not None and asked.calls_in_flight_p99 is not None:
        found.append(_use("concurrent_requests", float(asked.calls_in_flight_p99), quota.concurrent_requests))
    return tuple(sorted(found, key=lambda use: -use.share))


def _use(name: str, used: float, limit: int) -> QuotaUse:
    return QuotaUse(name, used, limit, used / limit)
