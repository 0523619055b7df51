"""Values for an autoscaler, from a measured server."""

from __future__ import annotations

import pytest

from pytest_fanout.capacity.saturation import Replica
from pytest_fanout.capacity.signals import scaling_signals
from pytest_fanout.records import Calibration, CalibrationPoint, Slo

#: 18 ms between tokens alone and 1.8 ms more a call: 42 calls are at 93.6 ms.
POINTS = tuple(
    CalibrationPoint(c, 1_000 * c / (18 + 1.8 * c), 18 + 1.8 * c, 100.0 * c, c / 64, max(0.0, c - 16.0))
    for c in (1, 16, 64)
)
OURS = Calibration("ours", "a test", "m", "g", 1, POINTS, 20_000.0, 1_024, 1_024, 32_768)


def signals(slo: Slo, **more: object) -> dict[str, float]:
    return {signal.name: signal.value for signal in scaling_signals(OURS, slo, **more)}


def test_scale_before_the_promise_breaks():
    """93.7 ms are reached at 40 calls, between the points of 16 and 64; 42 in 95 % of moments are 25.7 on average."""
    found = signals(Slo(itl_ms_max=93.7, ttft_ms_max=100_000.0))

    assert Replica(0.018, 0.0018).in_flight_quantile(0.7, 0.95) == 42
    assert 24.0 < found["calls_in_flight"] < 25.7
    assert 16 / 64 < found["kv_share"] < found["calls_in_flight"] / 64 + 0.1
    assert found["ttft_ms"] == pytest.approx(6_400 * found["kv_share"])
    assert 0 < found["queue_depth"] < 48


def test_the_servers_own_limit_counts():
    """With 16 requests at once the server scales earlier."""
    assert signals(Slo(1_000.0, 1e6), sequences_max=16)["calls_in_flight"] < 16


def test_what_was_not_measured_is_no_signal():
    """A promise that is never kept gives no value; a time to the first token that nobody measured neither."""
    bare = Calibration(
        "ours", "a test", "m", "g", 1,
        tuple(CalibrationPoint(p.concurrency, p.output_tokens_per_s, p.itl_ms) for p in POINTS),
        20_000.0, 1_024, 1_024, 32_768,
    )  # fmt: skip

    assert scaling_signals(OURS, Slo(itl_ms_max=1.0)) == ()
    assert [signal.name for signal in scaling_signals(bare, Slo(93.7))] == ["calls_in_flight"]
