"""A load test that pins concurrency: in virtual time, against a server that batches as a published one does."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from pytest_fanout.capacity.calibrate import Subject, calibrate
from pytest_fanout.capacity.sweep import Answer, Bounds, levels_up_to, load_of, sweep, target_of
from pytest_fanout.records import Sweep, SweepOpened

T = TypeVar("T")
#: Milliseconds between tokens at so many calls in flight, published (MiniMax-M2.5, InferenceX).
CURVE = {1: 14.0, 2: 14.6, 4: 15.34, 8: 16.39, 16: 17.56, 32: 19.07, 64: 21.11}


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer: hours pass in no time, and always the same."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()


def virtually(work: Callable[[], Awaitable[T]]) -> T:
    loop = VirtualTime()
    try:
        return loop.run_until_complete(asyncio.wait_for(work(), None))
    finally:
        loop.close()


class Batching:
    """A server of some slots: each of its calls gets a token every ITL(calls in flight), and the others wait."""

    def __init__(self, slots: int, output: int = 4, fail_above: int | None = None) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.output = output
        self.running = 0
        self.waiting = 0
        self.most = 0
        self.sent = 0
        self.fail_above = fail_above

    def itl_s(self) -> float:
        at = min(self.running, max(CURVE))
        low = max(c for c in CURVE if c <= at)
        high = min(c for c in CURVE if c >= at)
        part = 0.0 if low == high else math.log(at / low) / math.log(high / low)
        return ((1 - part) * CURVE[low] + part * CURVE[high]) / 1_000

    async def send(self) -> Answer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.sent += 1
        if self.fail_above is not None and self.waiting + self.running >= self.fail_above:
            await asyncio.sleep(0.001)
            return Answer(loop.time() - began, fault="status 429")
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.running += 1
            self.most = max(self.most, self.running)
            times = []
            for _ in range(self.output):
                await asyncio.sleep(self.itl_s())
                times.append(loop.time())
            self.running -= 1
        itl = (times[-1] - times[0]) / (self.output - 1)
        return Answer(loop.time() - began, times[0] - began, itl, 100, self.output, 0)


def swept(server: Callable[[], Batching], most: int, calls: int = 100_000, seconds: float = 1e6) -> tuple[Sweep, Any]:
    made: list[Batching] = []

    async def work() -> Sweep:
        made.append(server())
        return await sweep(made[0].send, levels_up_to(most), Bounds(calls, seconds))

    return virtually(work), made[0]


def test_levels_double():
    """Up to the one that was asked for."""
    assert levels_up_to(64) == (1, 2, 4, 8, 16, 32, 64)
    assert levels_up_to(12) == (1, 2, 4, 8, 12)
    assert levels_up_to(1) == (1,)


@pytest.fixture(scope="module")
def curve() -> tuple[Sweep, Any]:
    """A sweep up to as many calls as the server has slots."""
    return swept(lambda: Batching(slots=64), 64)


def test_the_published_curve_is_found_again(curve: tuple[Sweep, Any]):
    """At each level the time between tokens is the published one, and so many calls are in flight, not one more."""
    found, server = curve

    assert {level.concurrency: pytest.approx(level.itl_ms, rel=0.01) for level in found.levels} == CURVE
    assert (found.ended, server.most) == ("top", 64)
    assert all(level.failed == 0 and level.counted == target_of(level.concurrency) for level in found.levels)


def test_little_holds_at_every_level(curve: tuple[Sweep, Any]):
    """Throughput x residency is what was kept in flight, within 2 %: no place is empty while it is counted."""
    found, _ = curve

    for level in found.levels:
        assert level.per_s * level.residency_ms / 1_000 == pytest.approx(level.concurrency, rel=0.02)


def test_residency_turns_where_the_slots_are_taken():
    """Eight slots: with 16 in flight half of them wait, with 32 three of four, and no more are done: it ends."""
    found, server = swept(lambda: Batching(slots=8), 64)

    full, double, last = found.levels[-3:]
    assert (found.ended, server.most) == ("residency", 8)
    assert [level.concurrency for level in (full, double, last)] == [8, 16, 32]
    assert [level.residency_ms / full.residency_ms for level in (double, last)] == pytest.approx([2, 4], rel=0.05)
    assert [level.per_s / full.per_s for level in (double, last)] == pytest.approx([1, 1], rel=0.03)


def test_one_busy_moment_is_not_the_end():
    """A level that was slowed down by something else, and the next one gains again: the sweep goes on."""
    loads = iter([1.0] * 21 + [5.0] * 22 + [1.0] * 1_000)

    async def disturbed() -> Answer:
        await asyncio.sleep(seconds := next(loads))
        return Answer(seconds)

    found = virtually(lambda: sweep(disturbed, (1, 2, 4), Bounds(500, 1e6)))

    assert [level.per_s for level in found.levels] == pytest.approx([1.0, 0.4, 4.0], rel=0.1)
    assert found.ended == "top"


class Faulty:
    """A server of any number of places, on which many of twenty requests fail, spread evenly, beyond a concurrency."""

    def __init__(self, failing: int, above: int) -> None:
        self.failing, self.above = failing, above
        self.running = self.sent = self.ill = 0

    async def send(self) -> Answer:
        self.sent += 1
        self.running += 1
        await asyncio.sleep(0.1)
        fault = None
        if self.running > self.above:
            self.ill += 1
            fault = "status 503" if self.ill * self.failing % 20 < self.failing else None
        self.running -= 1
        return Answer(0.1, fault=fault)


def test_errors_turn():
    """From 17 in flight on one request of twenty fails: the level of 32 is the first with failures, and the last."""
    server = Faulty(1, above=16)

    found = virtually(lambda: sweep(server.send, levels_up_to(64), Bounds(10_000, 1e6)))

    assert (found.ended, found.levels[-1].concurrency, found.holds, found.opened) == ("errors", 32, 16, None)
    assert found.levels[-1].failed > 0
    assert found.levels[-1].first_fault == "status 503"
    assert [level.failed for level in found.levels[:-1]] == [0] * 5


def test_a_server_that_refuses_opens_the_breaker():
    """A server that refuses the 17th call at once: of 32 in flight 16 fail, and again, and nothing more is sent.

    The twentieth answer is the first of which a share is made: by then twenty of twenty have failed. The 16 that are
    served end as they began.
    """
    found, server = swept(lambda: Batching(slots=64, fail_above=16), 64)

    before = sum(target_of(level.concurrency) for level in found.levels)
    assert (found.ended, found.holds) == ("breaker", 16)
    assert found.opened == SweepOpened(32, 20, 20, 60.0, "status 429")
    assert [level.concurrency for level in found.levels] == [1, 2, 4, 8, 16]
    # each level before sent its places once to warm up, and all but one are under way when it ends
    warm = sum(2 * level.concurrency - 1 for level in found.levels)
    # 32 at once; 16 fail and are sent again, and the fourth of these opens it, after three more
    assert (found.calls, server.sent - before - warm) == (server.sent, 32 + 16 + 3)


@pytest.mark.parametrize(("failing", "ended"), [(8, "breaker"), (7, "errors")])
def test_40_percent_of_a_level_open_the_breaker(failing: int, ended: str):
    """8 of each twenty are 40 %: the level is not finished; 7 are 35 %, and it is, as one with errors."""
    server = Faulty(failing, above=1)

    found = virtually(lambda: sweep(server.send, (1, 2), Bounds(10_000, 1e6)))

    assert (found.ended, found.holds) == (ended, 1)
    assert (found.opened is None) == (ended == "errors")


def test_the_breaker_of_one_level_knows_nothing_of_another():
    """Of 60 s all answers of the first level are good ones: the 8 of 20 that fail at the next open it all the same."""
    count = itertools.count()

    async def send() -> Answer:
        await asyncio.sleep(0.01)
        return Answer(0.01, fault="status 500" if next(count) >= 21 + 12 else None)

    found = virtually(lambda: sweep(send, (1, 2), Bounds(1_000, 1e6)))

    assert (found.holds, found.opened) == (1, SweepOpened(2, 8, 20, 60.0, "status 500"))


def test_no_probe_follows_a_request_that_outlives_the_cool_down():
    """Nineteen places fail again and again, one answers after an hour: it sends nothing more."""
    sent = itertools.count()

    async def send() -> Answer:
        seconds = 3_600.0 if next(sent) == 0 else 0.01
        await asyncio.sleep(seconds)
        return Answer(seconds, fault=None if seconds > 1 else "ConnectError")

    found = virtually(lambda: sweep(send, (20,), Bounds(1_000, 1e6)))

    assert found.opened == SweepOpened(20, 20, 20, 60.0, "ConnectError")
    # 20, and one more of each of the 19 that failed: of these the first opens it, and the others end
    assert (found.calls, found.seconds) == (39, 3_600.0)


def test_no_more_calls_than_allowed():
    """A level that would not fit is not begun: 1 and 2 take 20 each and some to warm up, 4 would take 40 more."""
    found, server = swept(lambda: Batching(slots=64), 64, calls=70)

    assert [level.concurrency for level in found.levels] == [1, 2]
    assert (found.ended, found.calls) == ("calls", server.sent)
    assert server.sent <= 70


def test_no_longer_than_allowed():
    """16 tokens take 0.224 s: a level of one 4.7 s, of two 2.6 s; in the 1.7 s left the third is cut, and not told."""
    found, _ = swept(lambda: Batching(slots=64, output=16), 64, seconds=9.0)

    assert [level.concurrency for level in found.levels] == [1, 2]
    assert found.ended == "seconds"
    assert found.seconds == pytest.approx(9.0)


def test_a_server_that_never_answers_ends_with_the_time():
    """No level, and no hanging."""

    async def silent() -> Answer:
        await asyncio.sleep(1e9)
        raise AssertionError

    found = virtually(lambda: sweep(silent, (1, 2), Bounds(100, 5.0)))

    assert (found.levels, found.ended, found.calls) == ((), "seconds", 1)


def test_a_server_that_always_fails_ends_at_once():
    """The twentieth answer that failed is the last that was asked for: nothing is tried for ever."""

    async def broken() -> Answer:
        await asyncio.sleep(0.01)
        return Answer(0.01, fault="ConnectError")

    found = virtually(lambda: sweep(broken, (1, 2), Bounds(100, 50.0)))

    assert (found.ended, found.levels, found.holds, found.calls) == ("breaker", (), None, 20)
    assert found.opened == SweepOpened(1, 20, 20, 60.0, "ConnectError")


def test_a_sweep_is_a_calibration():
    """Levels become points, with the knee that was met; a level of agent tasks, without tokens, is none."""
    found, _ = swept(lambda: Batching(slots=8), 64)
    loads = [load_of(level, "http://server/v1", "m") for level in found.levels]

    made = calibrate([load for load in loads if load], Subject("ours", "a sweep", "g", 1, None, 50_000.0))

    assert [point.concurrency for point in made.calibration.points] == [1, 2, 4, 8, 16, 32]
    assert made.calibration.points[3].itl_ms == pytest.approx(16.39, rel=0.01)
    assert (made.calibration.knee_reached, made.notes) == (True, ())
    assert load_of(virtually(lambda: sweep(lambda: _task(), (1,), Bounds(50, 1e3))).levels[0], "u", None) is None


async def _task() -> Answer:
    await asyncio.sleep(1.0)
    return Answer(1.0)
