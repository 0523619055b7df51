"""What a load test of ours found: a row for each number of requests (or tasks) that was kept in flight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SweepLevel:
    """One level, counted while all its places were taken. Times are means of what did not fail. None: not known."""

    concurrency: int
    counted: int  # with the failed ones
    failed: int
    seconds: float  # that was counted for
    per_s: float  # requests or tasks that did not fail
    residency_ms: float | None
    residency_p95_ms: float | None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    input_tokens: float | None = None  # means per request
    output_tokens: float | None = None
    cached_input_tokens: float | None = None
    first_fault: str | None = None  # what the first failed one said


@dataclass(frozen=True, slots=True)
class SweepOpened:
    """Where so much failed that the breaker of a client would have opened; the level was not finished."""

    concurrency: int
    failed: int
    answered: int  # with the failed ones, within window_s
    window_s: float
    last_fault: str | None = None  # what the one said that opened it


@dataclass(frozen=True, slots=True)
class Sweep:
    """All levels, rising, and why the sweep ended.

    ``ended``: ``residency`` (more in flight only waited longer), ``errors``, ``breaker`` (as ``opened``
    says), ``calls`` or ``seconds`` (the bounds of the sweep), ``top`` (the last level that was asked for).
    """

    levels: tuple[SweepLevel, ...]
    ended: str
    calls: int
    seconds: float
    opened: SweepOpened | None = None
    holds: int | None = None  # the highest level that was finished with 1 % failures or fewer
