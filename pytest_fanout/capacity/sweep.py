"""A load test that pins concurrency, level by level, until more in flight only waits longer or fails.

Closed loops: each of n places sends its next request when the one before has come back. A level is counted from the
moment when every place has been through once (nothing is cold, no place is empty) until enough have come back, so that
Little's law holds on what was counted. Where so much fails that a client's breaker would open, nothing more is sent.
Who sends, and what, is not known here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.breaker import Breaker
from pytest_fanout.capacity.calibrate import FAILED_SHARE
from pytest_fanout.records import MeasuredLoad, Sweep, SweepLevel, SweepOpened

#: A level has to bring so much more throughput than the best before it, or residency has turned.
LEAST_GAIN = 1.05
_FLAT = 2
#: Counted at each level: so many for each place, and so many at least.
PER_PLACE, FEWEST = 10, 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request or task. ``fault`` None: it did not fail. Times in seconds; None: not known."""

    residency_s: float
    ttft_s: float | None = None
    itl_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    fault: str | None = None


Send = Callable[[], Awaitable[Answer]]


@dataclass(slots=True)
class Bounds:
    """What a sweep may take: it never sends more calls, and never takes longer but for requests that are under way."""

    calls: int
    seconds: float
    spent: int = 0
    started: float | None = None  # when the first level began

    def left_s(self) -> float:
        """Seconds that are left; the first question starts the clock."""
        now = asyncio.get_running_loop().time()
        if self.started is None:
            self.started = now
        return self.seconds - (now - self.started)


def levels_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 4, … and the last one as asked for."""
    doubled = [2**step for step in range(most.bit_length()) if 2**step <= most]
    return tuple(sorted({*doubled, most}))


def target_of(concurrency: int) -> int:
    """How many requests a level counts."""
    return max(FEWEST, PER_PLACE * concurrency)


async def sweep(send: Send, levels: Sequence[int], bounds: Bounds) -> Sweep:
    """Each level in turn, until residency or errors turn, a breaker would open, or a bound is met.

    Args:
        levels: requests in flight, rising.
    """
    found: list[SweepLevel] = []
    ended, flat = "top", 0
    opened: SweepOpened | None = None
    holds: int | None = None
    for concurrency in levels:
        target = target_of(concurrency)
        # to warm up, to count, and what is under way when enough have come back
        if bounds.spent + target + 2 * concurrency > bounds.calls:
            ended = "calls"
            break
        level = await measure(send, concurrency, target, bounds)
        if isinstance(level, SweepOpened):
            ended, opened = "breaker", level
            break
        if level is None:
            ended = "calls" if bounds.spent >= bounds.calls else "seconds"
            break
        best = max((each.per_s for each in found), default=0.0)
        found.append(level)
        if level.failed > FAILED_SHARE * level.counted:
            ended = "errors"
            break
        holds = concurrency
        # one level that brings nothing may be a busy moment, two in a row are the end
        flat = flat + 1 if level.per_s < LEAST_GAIN * best else 0
        if flat == _FLAT:
            ended = "residency"
            break
    return Sweep(tuple(found), ended, bounds.spent, bounds.seconds - bounds.left_s(), opened, holds)


async def measure(send: Send, concurrency: int, target: int, bounds: Bounds) -> SweepLevel | SweepOpened | None:
    """One level; None where calls or time ran out before enough had come back.

    Each level has a breaker of its own: that of a client which keeps so many in flight and knows nothing else.
    """
    clock = asyncio.get_running_loop().time
    warm: set[int] = set()
    counted: list[Answer] = []
    times: list[float] = []  # begun, ended
    breaker = Breaker()
    opened: list[SweepOpened] = []

    async def place(number: int) -> None:
        while len(times) < 2 and bounds.spent < bounds.calls:
            asked = breaker.ask(clock())
            # the sweep is over: whoever comes back after the cool-down sends no probe
            if opened or asked is None:
                return
            bounds.spent += 1
            answer = await send()
            opening = breaker.answered(asked, clock(), failed=answer.fault is not None)
            if opening is not None and len(times) < 2:
                window_s = breaker.policy.window_s
                opened.append(SweepOpened(concurrency, opening.failed, opening.answered, window_s, answer.fault))
            if not times:
                warm.add(number)
                if len(warm) == concurrency:
                    times.append(clock())
            elif len(times) == 1:
                counted.append(answer)
                if len(counted) >= target:
                    times.append(clock())

    left = bounds.left_s()
    if left <= 0:
        return None
    try:
        async with asyncio.timeout(left):
            await asyncio.gather(*(place(number) for number in range(concurrency)))
    except TimeoutError:
        pass
    if opened:
        return opened[0]
    return _level(concurrency, counted, times[1] - times[0]) if len(times) == 2 else None


def _level(concurrency: int, counted: Sequence[Answer], seconds: float) -> SweepLevel:
    good = [answer for answer in counted if answer.fault is None]
    ordered = sorted(answer.residency_s for answer in good)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else None
    residency, ttft = (_mean([getattr(answer, name) for answer in good]) for name in ("residency_s", "ttft_s"))
    # an answer of one token has no time between two
    itl = _mean([answer.itl_s for answer in good if answer.itl_s is not None])
    return SweepLevel(
        concurrency=concurrency,
        counted=len(counted),
        failed=len(counted) - len(good),
        seconds=seconds,
        per_s=len(good) / seconds if seconds > 0 else 0.0,
        residency_ms=_ms(residency),
        residency_p95_ms=_ms(p95),
        ttft_ms=_ms(ttft),
        itl_ms=_ms(itl),
        input_tokens=_mean([answer.input_tokens for answer in good]),
        output_tokens=_mean([answer.output_tokens for answer in good]),
        cached_input_tokens=_mean([answer.cached_input_tokens for answer in good]),
        first_fault=next((answer.fault for answer in counted if answer.fault is not None), None),
    )


def load_of(level: SweepLevel, source: str, model: str | None) -> MeasuredLoad | None:
    """The level as a load of a model server; None where its tokens are not known, or all failed."""
    if level.input_tokens is None or level.output_tokens is None:
        return None
    return MeasuredLoad(
        source=f"{source} at {level.concurrency}",
        tool="fanout-capacity sweep",
        concurrency=float(level.concurrency),
        pinned=True,
        completed=level.counted - level.failed,
        input_tokens=level.input_tokens,
        output_tokens=level.output_tokens,
        requests_per_s=level.per_s,
        output_tokens_per_s=level.per_s * level.output_tokens,
        residency_ms=level.residency_ms,
        itl_ms=level.itl_ms,
        ttft_ms=level.ttft_ms,
        failed=level.failed,
        model=model,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """None where one of them is not known, or there are none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1_000
