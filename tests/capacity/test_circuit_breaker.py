"""A client's breaker of 40 % failures in 60 seconds: when it opens, what passes then, what that does to a shortfall."""

from __future__ import annotations

import pytest

from pytest_fanout.capacity.breaker import Breaker, Opening, State


def asked(breaker: Breaker, at_s: float) -> int:
    found = breaker.ask(at_s)
    assert found is not None
    return found


def told(breaker: Breaker, at_s: float, failed: bool) -> Opening | None:
    """A request that is answered at once."""
    return breaker.answered(asked(breaker, at_s), at_s, failed=failed)


def opened(at_s: float = 0.0) -> Breaker:
    """One that 20 failures at that time have opened."""
    breaker = Breaker()
    for _ in range(20):
        told(breaker, at_s, failed=True)
    assert breaker.state(at_s) is State.OPEN
    return breaker


@pytest.mark.parametrize(("failures", "opening"), [(40, Opening(59.4, 40, 100)), (39, None)])
def test_40_of_100_in_a_minute_open_it(failures: int, opening: Opening | None):
    """100 requests, one each 0.6 s, of which the last so many fail: 40 open it with the hundredth, 39 do not."""
    breaker = Breaker()

    found = [told(breaker, 0.6 * number, failed=number >= 100 - failures) for number in range(100)]

    assert found[:-1] == [None] * 99
    assert found[-1] == (opening and Opening(pytest.approx(opening.at_s), opening.failed, opening.answered))
    assert breaker.state(60.0) is (State.OPEN if opening else State.CLOSED)


def test_fewer_than_20_answers_are_no_share():
    """19 failures of 19 leave it closed, the twentieth opens it; 8 of 20 are 40 %."""
    breaker = Breaker()

    assert [told(breaker, 1.0, failed=True) for _ in range(19)] == [None] * 19
    assert told(breaker, 1.0, failed=True) == Opening(1.0, 20, 20)
    mixed = Breaker()
    assert [told(mixed, 1.0, failed=number >= 12) for number in range(20)][-1] == Opening(1.0, 8, 20)


def test_a_failure_is_forgotten_after_a_minute():
    """19 failures at 0 s are 19 of 20 at 59.9 s, and nothing at 60 s."""
    for later, opening in ((59.9, Opening(59.9, 19, 20)), (60.0, None)):
        breaker = Breaker()
        for _ in range(19):
            told(breaker, 0.0, failed=True)

        assert told(breaker, later, failed=False) == opening


def test_an_open_one_lets_nothing_pass_for_20_minutes():
    """Opened at 5 s: nothing is sent at 1,204.9 s; at 1,205 s one request is, and no second one beside it."""
    breaker = opened(5.0)

    assert (breaker.ask(5.0), breaker.ask(1_204.9)) == (None, None)
    assert breaker.state(1_204.9) is State.OPEN
    assert breaker.state(1_205.0) is State.HALF_OPEN
    assert breaker.ask(1_205.0) is not None
    assert (breaker.ask(1_205.0), breaker.ask(9_999.0)) == (None, None)


def test_a_probe_that_comes_back_closes_it():
    """And nothing of the time before counts: 19 new failures leave it closed."""
    breaker = opened()

    assert told(breaker, 1_200.0, failed=False) is None
    assert breaker.state(1_200.0) is State.CLOSED
    assert [told(breaker, 1_201.0, failed=True) for _ in range(19)] == [None] * 19


def test_a_probe_that_fails_opens_it_for_another_20_minutes():
    """Counted from the failure on."""
    breaker = opened()

    assert told(breaker, 1_230.0, failed=True) == Opening(1_230.0, 1, 1)
    assert (breaker.state(2_429.9), breaker.state(2_430.0)) == (State.OPEN, State.HALF_OPEN)


def test_late_answers_say_nothing():
    """What was sent before it opened neither opens it again, nor is it taken for the probe."""
    breaker = Breaker()
    late = [asked(breaker, 0.0) for _ in range(3)]
    for _ in range(20):
        told(breaker, 0.0, failed=True)

    assert breaker.answered(late[0], 10.0, failed=True) is None
    assert breaker.state(1_200.0) is State.HALF_OPEN
    probe = asked(breaker, 1_200.0)
    assert breaker.answered(late[1], 1_201.0, failed=False) is None
    assert breaker.state(1_202.0) is State.HALF_OPEN
    breaker.answered(probe, 1_203.0, failed=False)
    assert breaker.answered(late[2], 1_204.0, failed=True) is None
    assert breaker.state(1_204.0) is State.CLOSED


@pytest.mark.parametrize(("shortfall", "served"), [(0.39, 0.61), (0.45, 0.006)])
def test_what_a_breaker_does_to_a_shortfall(shortfall: float, served: float):
    """A hundred requests a minute for a day; under load the share fails that the fleet is short by, a probe never.

    Short by 39 %, 61 % are served. Short by 45 %, 20 answers in 12 s open it, and a probe closes it 20 minutes later:
    12 are served each time, and the probe is one of them, of the 2,020 that are asked for.
    """
    breaker, owed, done = Breaker(), 0.0, 0
    requests = 100 * 60 * 24

    for number in range(requests):
        at = 0.6 * number
        is_probe = breaker.state(at) is State.HALF_OPEN
        permit = breaker.ask(at)
        if permit is None:
            continue
        owed += 0.0 if is_probe else shortfall
        failed = owed >= 1
        owed -= failed
        breaker.answered(permit, at, failed=failed)
        done += not failed

    assert done / requests == pytest.approx(served, rel=0.05)
