"""Calls in flight under load: the closed form, measured curves, and where nothing is estimated."""

from __future__ import annotations

import pytest

from pytest_fanout.capacity.saturation import (
    Replica,
    fleet_in_flight_quantile,
    itl_ms,
    most_in_flight,
    pearson_quantile,
    replica_near,
    replicas_within,
)
from pytest_fanout.records import Calibration, CalibrationPoint, Slo

#: 18 ms between tokens when alone, and 1.8 ms more for each other call: r = 11.
SMALL = Replica(0.018, 0.0018)
#: Published sweep of MiniMax-M2.5 (InferenceX, ISL = OSL = 1,024): concurrency, output tokens/s, ITL, end to end (ms).
SWEEP = (
    (4, 258.770, 15.3406, 15_810.6),
    (8, 483.632, 16.3926, 16_917.7),
    (16, 900.892, 17.5647, 18_145.9),
)


def calibration(*points: tuple[int, float, float], **more: object) -> Calibration:
    made = tuple(CalibrationPoint(c, x, t, *rest) for c, x, t, *rest in points)
    return Calibration("ours", "a test", "m", "g", 1, made, 10_000.0, 1_024, 1_024, 32_768, **more)


#: ITL of the published sweep at each measured concurrency.
CURVE = calibration(
    *((c, 1_000 * c / t, t) for c, t in zip(
        (4, 8, 16, 32, 64, 128, 256, 512), (15.34, 16.39, 17.56, 19.07, 21.11, 23.34, 27.89, 38.74), strict=True
    ))
)  # fmt: skip


def test_closed_form_at_70_percent():
    """r = 11 at rho 0.7 has 25.67 calls in flight on average, 42 in 95 % and 51 in 99 % of moments."""
    assert SMALL.size == pytest.approx(11)
    assert SMALL.in_flight(0.7) == pytest.approx(25.67, abs=0.005)
    assert [SMALL.in_flight_quantile(0.7, share) for share in (0.95, 0.99)] == [42, 51]


def test_residency_under_load_is_three_times_that_of_an_idle_server():
    """700 tokens of work, 8 calls, 1.5 s a tool, two replicas at rho 0.7: 380 s, 52.8 tasks; idle: 121 s, 16.9."""
    tasks_per_s = 2 * 0.7 / 0.0018 / (8 * 700)
    calls_each_per_s = tasks_per_s * 8 / 2
    loaded_s = 8 * SMALL.in_flight(0.7) / calls_each_per_s + 7 * 1.5
    idle_s = 8 * 700 * (0.018 + 0.0018) + 7 * 1.5

    assert tasks_per_s == pytest.approx(0.1389, abs=0.0001)
    assert loaded_s == pytest.approx(380, abs=0.5)
    assert tasks_per_s * loaded_s == pytest.approx(52.8, abs=0.05)
    assert idle_s == pytest.approx(121, abs=0.5)
    assert tasks_per_s * idle_s == pytest.approx(16.9, abs=0.1)


def test_tail_of_the_fleet_is_wider_than_poisson():
    """Two replicas at rho 0.7: 86 calls in 99 % of moments, 87 tasks with 1.46 at tools, where Poisson says 70."""
    from pytest_fanout.capacity.littles_law import in_flight_quantile

    assert fleet_in_flight_quantile(SMALL, 0.7, 2, 0.0, 0.99) == 86
    assert fleet_in_flight_quantile(SMALL, 0.7, 2, 0.1389 * 7 * 1.5, 0.99) == 87
    assert in_flight_quantile(52.8, 0.99) == 70


def test_long_sums_and_the_shifted_gamma_agree():
    """On both sides of 1,000 in flight the quantiles per replica differ by less than 1 in 100."""
    below = fleet_in_flight_quantile(SMALL, 0.7, 38, 20.0, 0.99)  # 995 on average, summed
    above = fleet_in_flight_quantile(SMALL, 0.7, 39, 20.0, 0.99)  # 1,021, by the gamma

    assert above / below == pytest.approx(39 / 38, rel=0.01)


def test_shifted_gamma_without_skew_is_the_bell_curve():
    """z of 95 % is 1.645; an exponential (skew 2) has its 95 % point 1.996 deviations above its mean."""
    assert pearson_quantile(0.0, 0.95) == pytest.approx(1.645, abs=0.001)
    assert pearson_quantile(2.0, 0.95) == pytest.approx(1.996, rel=0.02)


@pytest.mark.parametrize("rho", [0.86, 1.0, 1.5, float("nan"), -0.1])
def test_saturated_is_refused(rho):
    """Above a utilisation of 0.85 there is no number, nor for one that is none."""
    with pytest.raises(ValueError, match="saturated: utilisation"):
        SMALL.in_flight(rho)


@pytest.mark.parametrize(("concurrency", "rate", "_", "e2e_ms"), SWEEP)
def test_littles_law_on_a_published_sweep(concurrency, rate, _, e2e_ms):
    """Requests a second times seconds a request are the concurrency, to 1.4 %."""
    assert rate / 1_024 * e2e_ms / 1_000 == pytest.approx(concurrency, rel=0.014)


@pytest.mark.parametrize("index", [1, 2, 3, 4])
def test_interpolation_inside_the_curve(index):
    """A point left out is met to 1.4 % by its neighbours, in the logarithm of concurrency."""
    points = CURVE.points
    left = calibration(
        *((p.concurrency, p.output_tokens_per_s, p.itl_ms) for p in (*points[:index], *points[index + 1 :]))
    )

    assert itl_ms(left, points[index].concurrency) == pytest.approx(points[index].itl_ms, rel=0.014)


@pytest.mark.parametrize(("index", "error", "linear"), [(5, 0.040, 0.050), (6, 0.078, 0.113)])
def test_interpolation_at_the_top_is_on_the_safe_side(index: int, error: float, linear: float):
    """The two points before the last are met 4.0 % and 7.8 % too high; linear in the times it would be 5.0 and 11.3."""
    points = CURVE.points
    left = calibration(
        *((p.concurrency, p.output_tokens_per_s, p.itl_ms) for p in (*points[:index], *points[index + 1 :]))
    )

    assert itl_ms(left, points[index].concurrency) / points[index].itl_ms - 1 == pytest.approx(error, abs=0.001)
    assert (points[index - 1].itl_ms + points[index + 1].itl_ms) / 2 / points[index].itl_ms - 1 == pytest.approx(
        linear, abs=0.001
    )


def test_why_nothing_is_extrapolated():
    """A line through the points up to 128 says 47.3 ms at 512, where 38.74 were measured: 22 % off."""
    import numpy as np

    low = [point for point in CURVE.points if point.concurrency <= 128]
    slope, start = np.polyfit([point.concurrency for point in low], [point.itl_ms for point in low], 1)

    assert start + slope * 512 == pytest.approx(47.3, abs=0.1)
    assert (start + slope * 512) / 38.74 == pytest.approx(1.22, abs=0.005)
    times = [point.itl_ms for point in CURVE.points]
    slope, start = np.polyfit([p.concurrency for p in CURVE.points], times, 1, w=[1 / each for each in times])
    errors = [(start + slope * p.concurrency) / p.itl_ms - 1 for p in CURVE.points]
    assert (start, slope) == (pytest.approx(16.56, abs=0.01), pytest.approx(0.0456, abs=0.0001))
    assert (min(errors), max(errors)) == (pytest.approx(-0.077, abs=0.001), pytest.approx(0.091, abs=0.001))


@pytest.mark.parametrize("concurrency", [3.9, 513, 0])
def test_no_extrapolation(concurrency):
    """Outside 4 to 512 calls in flight nothing was measured and nothing is said."""
    assert itl_ms(CURVE, concurrency) is None
    assert (itl_ms(CURVE, 4), itl_ms(CURVE, 512)) == pytest.approx((15.34, 38.74))


def test_line_around_the_operating_point():
    """Between 256 and 512 the ITL rises by 10.85 ms in 256 calls, and would be 17.04 ms at none."""
    replica = replica_near(CURVE, 300)

    assert replica.t1_s == pytest.approx(0.01085 / 256)
    assert replica.t0_s == pytest.approx(0.01704)


def test_flat_curve_is_held_to_its_throughput():
    """Where the ITL does not rise between two points, the highest throughput bounds the server."""
    assert replica_near(calibration((1, 100.0, 10.0), (2, 200.0, 10.0)), 2).t1_s == 1 / 200


@pytest.mark.parametrize(
    ("slo", "sequences", "expected", "bound"),
    [
        (Slo(50.0), None, 512, "measured"),
        (Slo(27.89), None, 256, "itl"),
        (Slo(38.0), 256, 256, "sequences"),
        (Slo(15.0), None, None, "itl"),
    ],
)
def test_most_calls_within_the_promises(slo, sequences, expected, bound):
    """The promise, the last measured load or the server's own limit stops first; a promise never kept gives none."""
    found = most_in_flight(CURVE, slo, sequences)

    assert (found.concurrency, found.bound) == (expected if expected is None else pytest.approx(expected), bound)


def test_time_to_first_token_stops_as_well():
    """1 s to the first token at 16 calls in flight and 4 s at 64: 2 s are reached at 32."""
    measured = calibration((16, 100.0, 10.0, 1_000.0), (64, 300.0, 12.0, 4_000.0))

    found = most_in_flight(measured, Slo(), None)

    assert (found.concurrency, found.bound) == (pytest.approx(32), "ttft")


def test_fewest_replicas():
    """At rho 0.7 95 % of moments have 42 calls or fewer: with 42 allowed two replicas carry 777 tokens/s."""
    work = 2 * 0.7 / 0.0018

    found = replicas_within(SMALL, work, 42)

    assert (found.replicas, found.in_flight_p95) == (2, 42)
    assert found.rho == pytest.approx(0.7)
    assert replicas_within(SMALL, work, 41).replicas == 3


def test_no_work_needs_no_replica_and_no_room_none():
    """Nothing to do takes 0 replicas; less than one call in flight can never be kept."""
    assert replicas_within(SMALL, 0.0, 42).replicas == 0
    assert replicas_within(SMALL, 1e9, 0.5) is None
