"""From load tests to a calibration: what becomes of them, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_fanout.capacity.calibrate import Subject, calibrate, little
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import MeasuredLoad, ServerState

#: Published sweep of MiniMax-M2.5 (InferenceX) on 16 GPUs, 1,024 tokens in and out:
#: in flight, requests done, requests/s, output tokens/s, TTFT, ITL, residency (ms).
SWEEP = (
    (4, 40, 0.252705, 258.770, 117.13, 15.3406, 15_810.6),
    (8, 80, 0.472297, 483.632, 148.00, 16.3926, 16_917.7),
    (16, 160, 0.879777, 900.892, 177.28, 17.5647, 18_146.0),
    (32, 320, 1.618159, 1_656.995, 204.83, 19.0726, 19_716.1),
    (64, 640, 2.914745, 2_984.698, 272.48, 21.1058, 21_863.7),
    (128, 1_280, 5.242364, 5_368.180, 354.50, 23.3362, 24_227.4),
    (256, 2_560, 8.725072, 8_934.474, 499.92, 27.8898, 29_031.2),
    (512, 5_120, 12.487921, 12_787.631, 799.64, 38.7407, 40_431.4),
)
LOADS = tuple(
    MeasuredLoad(
        f"c{c}.json", "vllm bench serve", c, True, done, 1_024.0, 1_024.0, rate, written, residency, itl, ttft,
        0, "MiniMax-M2.5",
    )
    for c, done, rate, written, ttft, itl, residency in SWEEP
)  # fmt: skip
#: 32,000 tokens in, 100 out at high load: 9.6 requests/s read 307,200 tokens a second, 19,200 a GPU.
READING = MeasuredLoad(
    "prefill.json", "vllm bench serve", 64.0, True, 640, 32_000.0, 100.0, 9.6, 960.0, 6_666.7, 40.0, 2_000.0
)
OURS = Subject("ours", "a published sweep", "B200", 16)


def refused(loads: list[MeasuredLoad | ServerState], subject: Subject = OURS) -> str:
    with pytest.raises(ConfigError) as caught:
        calibrate(loads, subject)
    return str(caught.value)


def test_the_published_sweep():
    """Eight points as measured; reading from the run that mostly reads; the highest throughput still rose by 43 %."""
    made = calibrate([*LOADS, READING], OURS)

    found = made.calibration
    assert [(p.concurrency, p.output_tokens_per_s, p.itl_ms, p.ttft_ms) for p in found.points] == [
        (c, written, itl, ttft) for c, _, _, written, ttft, itl, _ in SWEEP
    ]
    assert found.prefill_tokens_per_s == pytest.approx(19_200.0)
    assert (found.model, found.input_tokens, found.output_tokens) == ("MiniMax-M2.5", 1_024, 1_024)
    assert (found.context_tokens_max, found.knee_reached) == (2_048, False)
    assert made.notes == ("throughput still rose at the highest load: what the server can do at most is not known",)


def test_little_holds_on_the_published_sweep():
    """Throughput x residency is 3.995, 63.73 and 504.9 at 4, 64 and 512 in flight: within 1.4 %."""
    found = {load.concurrency: little(load) for load in LOADS}

    assert found[4] == pytest.approx(3.995, abs=0.001)
    assert found[64] == pytest.approx(63.73, abs=0.01)
    assert found[512] == pytest.approx(504.9, abs=0.05)


def test_the_order_of_files_does_not_matter():
    """Points rise in concurrency, whatever the order of the files."""
    assert (
        calibrate([READING, *reversed(LOADS)], OURS).calibration.points
        == calibrate([*LOADS, READING], OURS).calibration.points
    )


def test_two_runs_of_one_load_are_their_mean():
    """40 requests at 15.3406 ms and 120 at 15.7406 ms are 15.6406 ms."""
    again = replace(LOADS[0], source="again.json", completed=120, itl_ms=15.7406)

    made = calibrate([*LOADS, again, READING], OURS)

    assert made.calibration.points[0].itl_ms == pytest.approx(15.6406)
    assert "2 runs with 4 in flight: their mean, by requests" in made.notes


def test_a_load_with_failures_is_left_out():
    """60 of 5,180 requests failed: the server does not carry that load. One of them is borne."""
    made = calibrate([*LOADS[:-1], replace(LOADS[-1], failed=60), READING], OURS)
    borne = calibrate([*LOADS[:-1], replace(LOADS[-1], failed=1), READING], OURS)

    assert made.calibration.points[-1].concurrency == 256
    assert made.notes[0] == "c512.json: 60 of 5180 requests failed: left out"
    assert borne.calibration.points[-1].concurrency == 512


def test_a_load_that_was_not_pinned_is_what_littles_law_says():
    """2.914745 requests a second x 21.8637 s are 63.7 in flight."""
    made = calibrate([LOADS[0], replace(LOADS[4], pinned=False, concurrency=None), READING], OURS)

    assert [point.concurrency for point in made.calibration.points] == [4, 64]
    assert "c64.json: its load was not pinned; 63.7 in flight by Little's law, unchecked" in made.notes


def test_scrapes_give_kv_share_and_queue():
    """Two scrapes under the load of 64 are averaged; a warm prefix cache is said."""
    scrapes = [ServerState("a.txt", 60.0, 4.0, 0.4, 0.25), ServerState("b.txt", 62.0, 0.0, 0.6)]

    made = calibrate([*LOADS, READING, *scrapes], OURS)

    point = made.calibration.points[4]
    assert (point.concurrency, point.kv_share, point.queue_depth) == (64, pytest.approx(0.5), 2.0)
    assert made.calibration.points[3].kv_share is None
    assert made.notes[0].startswith("a.txt: 25 % of the input was found in the prefix cache: the server reads new")


def test_a_rate_of_reading_can_be_given():
    """What is given wins over what was measured; it is of one GPU."""
    assert calibrate([*LOADS, READING], replace(OURS, prefill_tokens_per_s=5e4)).calibration.prefill_tokens_per_s == 5e4


def test_mixed_models_are_refused():
    """mixed-shapes: no curve is of two models."""
    other = replace(LOADS[1], source="other.json", model="another")

    assert refused([LOADS[0], other, READING]) == (
        "other.json: its model is 'another', and that of c4.json is 'MiniMax-M2.5': no curve is of both\n"
        "  mend: calibrate each of them by itself\n  see: docs/messages.md#mixed-shapes"
    )


def test_mixed_hardware_is_refused():
    """Where the files say what they ran on, it has to be one thing."""
    loads = [replace(LOADS[0], hardware="gpu H200"), replace(LOADS[1], hardware="gpu H100")]

    assert "its hardware is 'gpu H100', and that of c4.json is 'gpu H200'" in refused([*loads, READING])


def test_mixed_lengths_are_refused():
    """2,048 tokens out are not 1,024; lengths within 10 % are of one shape."""
    text = refused([LOADS[0], replace(LOADS[1], output_tokens=2_048.0), READING])

    assert text.startswith(
        "c8.json: its requests have 2,048 output tokens, and those of c4.json 1,024: no curve is of both\n"
    )
    assert len(calibrate([LOADS[0], replace(LOADS[1], output_tokens=1_100.0), READING], OURS).calibration.points) == 2


def test_a_load_that_little_contradicts_is_refused():
    """unsteady-load: a real run of 16 in flight whose warm-up and tail weigh too much: 14.1 by Little's law."""
    load = replace(LOADS[2], source="c16.json", requests_per_s=5.232, residency_ms=2_695.12)

    assert refused([LOADS[0], load, READING]) == (
        "c16.json: kept 16 requests in flight, and 5.23 a second x 2.7 s are 14.1: more than 10 % apart\n"
        "  mend: measure it for longer: 10 requests for each one in flight, after as many to warm up\n"
        "  see: docs/messages.md#unsteady-load"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"itl_ms": None}, "does not say the time between two tokens"),
        ({"residency_ms": None}, "does not say how long a request took, so that nothing can be checked"),
    ],
)
def test_a_load_that_says_too_little_is_refused(changes: dict[str, None], what: str):
    """Without the time between tokens, or of a request, there is no point."""
    assert refused([LOADS[0], replace(LOADS[1], **changes), READING]).startswith(f"c8.json: {what}\n")


def test_without_a_rate_of_reading_there_is_no_calibration():
    """no-prefill-rate: it cannot be told from a curve of one shape."""
    assert refused(list(LOADS)) == (
        "no run says how fast the server reads new input\n"
        "  mend: add a run of 4,000 tokens in or more and 100 out or fewer at high load, or give "
        "--prefill-tokens-per-s of one GPU\n  see: docs/messages.md#no-prefill-rate"
    )


def test_one_load_is_no_curve():
    """Two points are needed at least."""
    assert "ours: has 1 points, and two are needed at least" in refused([LOADS[0], READING])


def test_a_scrape_of_no_load_is_refused():
    """scrape-of-no-load: 10 in flight are neither 8 nor 16."""
    assert refused([*LOADS, READING, ServerState("s.txt", 10.0, 0.0)]) == (
        "s.txt: 10 requests ran and 0 waited, and no load had so many in flight\n"
        "  mend: scrape /metrics while a load runs, or leave the file out\n"
        "  see: docs/messages.md#scrape-of-no-load"
    )


def test_a_load_of_no_requests_in_flight_is_checked_by_nothing():
    """A tool that writes 0 for its limit had none: as where the load was not pinned, Little's law says it."""
    made = calibrate([replace(LOADS[0], concurrency=0.0), *LOADS[1:], READING], OURS)

    assert made.calibration.points[0].concurrency == 4
    assert made.notes[0] == "c4.json: its load was not pinned; 4.0 in flight by Little's law, unchecked"
