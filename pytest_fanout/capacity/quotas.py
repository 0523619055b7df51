"""What 99 % of minutes ask of a provider, beside what its quotas let through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fanout.capacity.littles_law import in_flight_quantile
from pytest_fanout.records import Quota, QuotaUse

if TYPE_CHECKING:
    from pytest_fanout.capacity.windows import Array


@dataclass(frozen=True, slots=True)
class Asked:
    """Windows of demand (a second), tokens of a day, and calls in flight in 99 % of moments (None: not known)."""

    calls: Array
    new_input: Array
    cached_input: Array
    output: Array
    tokens_per_day: float
    calls_in_flight_p99: int | None
    iod: float = 1.0


def uses_of(quota: Quota, asked: Asked) -> tuple[QuotaUse, ...]:
    """The share of each quota that is given; above 1 the provider refuses calls. Largest first."""
    written = asked.output
    if quota.reserved_output_tokens_per_call is not None:
        written = asked.calls * float(quota.reserved_output_tokens_per_call)
    given = asked.new_input + (asked.cached_input if quota.counts_cached_tokens else 0.0)
    per_s = {
        "requests_per_minute": asked.calls,
        "tokens_per_minute": given + written,
        "uncached_tokens_per_minute": asked.new_input + written,
        "input_tokens_per_minute": given,
        "output_tokens_per_minute": written,
    }
    found = []
    for name, values in per_s.items():
        limit = getattr(quota, name)
        if limit is not None:
            found.append(_use(name, 60 * _p99(values), limit))
    if quota.requests_per_minute is not None:
        # some providers hold a quota of 600 a minute as 10 a second
        burst = in_flight_quantile(_p99(asked.calls), 0.99, asked.iod)
        found.append(_use("requests_per_second", float(burst), max(1, quota.requests_per_minute // 60)))
    if quota.tokens_per_day is not None:
        found.append(_use("tokens_per_day", asked.tokens_per_day, quota.tokens_per_day))
    if quota.concurrent_requests is not None and asked.calls_in_flight_p99 is not None:
        found.append(_use("concurrent_requests", float(asked.calls_in_flight_p99), quota.concurrent_requests))
    return tuple(sorted(found, key=lambda use: -use.share))


def _use(name: str, used: float, limit: int) -> QuotaUse:
    return QuotaUse(name, used, limit, used / limit)


def _p99(values: Array) -> float:
    import numpy as np

    return float(np.quantile(values, 0.99))
