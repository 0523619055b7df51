"""Compute, memory, latency: what binds, what is not known, and where there is no number. Worked by hand (R1)."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_fanout.capacity.contexts import MODELS, grouped, model_name, pool_gb
from pytest_fanout.capacity.profiles import BUILT_IN, calibrated, find_profile, fit3
from pytest_fanout.capacity.project import project
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Calibration, CalibrationPoint, ClassDemand, Fleet, Memory, Slo
from pytest_fanout.report.capacity import of_class

PEAK = ClassDemand("support", 200_000, 2.4, 3.0)  # 16.667 tasks a second
POOL = Memory(kv_pool_gb_per_gpu=55.0)
#: At a utilisation of 0.6 a call takes 2.5 times its time on an idle server: 2.94 s recorded are 7.35 s under load.
IDLE_S = 7.35 * 0.4


def trial(calls=8, given=54_400, cached=44_800, written=2_000, tool_s=0.0, idle_s=IDLE_S, longest=None):
    context = (given + written / 2) / calls
    return {
        "fanout": calls,
        "input_tokens": given,
        "cached_input_tokens": cached,
        "output_tokens": written,
        "context_max": longest,
        "context_token_ms": round(calls * idle_s * 1_000 * context),
        "model_ms": round(calls * idle_s * 1_000),
        "tool_ms": round(calls * tool_s * 1_000),
        "tool_ms[search]": round(calls * tool_s * 1_000),
        "duration_ms": round(calls * (idle_s + tool_s) * 1_000),
    }


def A(**more):
    return {"loop": [trial(**more)]}


def B(**more):
    return {"loop": [trial(22, 272_800, 252_000, 5_500, **more)]}


def fleet(rho=0.6, memory=POOL, **more):
    more.setdefault("demand", {"support": PEAK})
    return Fleet("", "baselines/fleet.toml", target_utilisation=rho, memory=memory, **more)


def gpus(load, name):
    return next(constraint.gpus for constraint in load.constraints if constraint.name == name)


# --- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-3.3-70b", 327_680), ("qwen3-32b", 262_144), ("minimax-m2.5", 253_952), ("qwen3-235b-a22b", 192_512),
        ("llama-3.1-8b", 131_072), ("qwen3-30b-a3b", 98_304), ("glm-5", 89_856), ("deepseek-r1-0528", 70_272),
        ("kimi-k2.5", 70_272), ("gpt-oss-120b", 36_864), ("gpt-oss-20b", 24_576), ("qwen3.5-397b", 30_720),
        ("qwen3.5-35b-a3b", 20_480),
    ],
)  # fmt: skip
def test_bytes_of_a_token(model, expected):
    """Keys and values of the layers that see the whole context, two bytes each; one compressed vector for MLA."""
    assert MODELS[model].bytes_per_token == expected


def test_layers_that_see_a_window_are_not_counted_by_the_token():
    """All 36 layers of gpt-oss-120b would be 73,728 bytes a token; 18 of them see 128 tokens: 4.72 MB a sequence."""
    assert grouped(36, 8, 64) == 73_728
    assert MODELS["gpt-oss-120b"].bytes_per_sequence == 4_718_592


def test_what_is_left_for_contexts():
    """141 GB x 0.90 - 65.4 GB of weights - 3 GB are 58.5; an unknown model or GPU has no figure."""
    assert pool_gb("gpt-oss-120b", "H200", "FP8", 1) == pytest.approx(58.5)
    assert pool_gb("llama-3.3-70b", "H200", "FP8", 2) == pytest.approx(126.9 - 35.3 - 3)
    assert pool_gb("gpt-oss-120b", "A100", "FP8", 1) is None
    assert pool_gb("gpt-6", "H200", "FP8", 1) is None
    assert pool_gb("llama-3.3-70b", "H100", "FP8", 1) is None  # the weights leave nothing


@pytest.mark.parametrize(
    ("side", "tool_s", "sequences", "gb", "held_on"),
    [(A, 0.0, 980, 250, 4.55), (B, 0.0, 2_695, 1_244, 22.6), (A, 1.5, 1_180, 301, 5.48), (B, 1.5, 3_245, 1_498, 27.2)],
)
def test_memory_of_the_worked_regression(side, tool_s, sequences, gb, held_on):
    """7.35 s a call: 980 sequences of 6,925 tokens are 250 GB; 2,695 of 12,525 are 1,244; tools add to them."""
    bare = Memory(kv_pool_gb_per_gpu=55.0, kv_bytes_per_token=36_864)  # as the example counts, without windows

    load = project("support", None, side(tool_s=tool_s), fleet(memory=bare)).run

    calls_per_s = load.calls_per_s
    assert calls_per_s * (7.35 + tool_s) == pytest.approx(sequences, rel=0.001)
    assert load.kv_gb == pytest.approx(gb, rel=0.002)
    assert gpus(load, "memory") == pytest.approx(held_on, rel=0.002)


def test_sliding_layers_take_memory_as_well():
    """980 sequences of 4.72 MB are 4.6 GB beside the 250 GB of the other layers."""
    assert project("support", None, A(), fleet()).run.kv_gb == pytest.approx(250.2 + 4.62, rel=0.002)


def test_the_largest_constraint_binds():
    """At 7.35 s a call compute asks for 20.23 GPUs and memory for 4.6; at 20 times the time memory binds with 92.7."""
    usual, slow = (project("support", None, A(idle_s=IDLE_S * f), fleet()).run for f in (1, 20))

    assert (usual.binding, usual.gpus) == ("compute", pytest.approx(20.23, abs=0.005))
    assert slow.binding == "memory"
    assert slow.gpus == pytest.approx(20 * 254.8 / 55, rel=0.002) == gpus(slow, "memory")


def test_contexts_that_cannot_be_kept_are_read_anew():
    """At 2,000 s a tool keeping 266,667 contexts takes 1,000 times the GPUs: nothing counts as cached, 91 GPUs."""
    result = project("support", None, A(tool_s=2_000.0), fleet())

    assert result.run.keeps_prefixes is False
    assert result.run.gpus == pytest.approx(16.6667 * 3.288 / 0.6, rel=0.001)
    assert (
        "Contexts do not stay cached while tools run: keeping them takes more GPUs than reading them anew."
        in result.assumptions
    )
    assert project("support", None, A(tool_s=1.5), fleet()).run.keeps_prefixes is True


def test_a_context_that_no_replica_holds():
    """55 GB hold 1,491,842 tokens beside one window: a longer one gives no number, and says why."""
    load = project("support", None, A(longest=1_500_000), fleet()).run

    assert (load.gpus, load.binding) == (None, None)
    assert load.refused == (
        "a context of 1,500,000 tokens (support) does not fit one replica of 1 GPU, which holds 1,491,842"
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("openai/gpt-oss-120b", "gpt-oss-120b"), ("GPT-OSS-120B", "gpt-oss-120b"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.3-70b"), ("/models/Qwen3-32B-AWQ/", "qwen3-32b"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-r1-0528-qwen3-8b"),
    ],
)  # fmt: skip
def test_a_model_is_known_by_what_servers_call_it(name: str, known: str):
    """Owner, folder, capitals and the format of the weights are no part of a name; a distilled model is another one."""
    assert model_name(name) == known


def test_a_calibration_of_a_served_model_counts_memory():
    """vLLM's openai/gpt-oss-120b on an NVIDIA H200: 126.9 - 65.4 - 3 GB are left, whatever the weights' format is."""
    assert pool_gb("openai/gpt-oss-120b", "NVIDIA H200", "", 1) == pytest.approx(126.9 - 65.4 - 3)
    assert pool_gb("meta-llama/Llama-3.3-70B-Instruct", "h200", "", 2) is None  # FP8 or BF16: nobody says
    assert pool_gb("nvidia/Llama-3.3-70B-Instruct-FP8", "h200", "", 2) == pytest.approx(126.9 - 35.3 - 3)
    by_name = project("support", None, A(), fleet(memory=Memory(), model="openai/GPT-OSS-120B", gpu="nvidia h200"))
    assert gpus(by_name.run, "memory") is not None


def test_memory_that_is_not_counted_is_told_first():
    """Not only among the assumptions: beside the GPUs stands that they may be too few."""
    left_out = project("support", None, A(), fleet(memory=Memory(), model="llama4-maverick", gpu="B200"))

    assert of_class(left_out)[-1] == (
        "GPU memory is NOT counted, so that these GPUs may be too few: the KV cache of llama4-maverick is not known: "
        "give [memory] kv_bytes_per_token"
    )
    assert not any("NOT counted" in line for line in of_class(project("support", None, A(), fleet())))


def test_unknown_memory_is_said():
    """A model whose layers are not known, and a GPU whose pool is not, leave memory out, and the report says so."""
    result = project("support", None, A(), fleet(memory=Memory(), model="llama4-maverick", gpu="B200"))

    assert gpus(result.run, "memory") is None
    assert (
        "Not among what GPUs are counted for: memory (the KV cache of llama4-maverick is not known: give [memory] "
        "kv_bytes_per_token); latency (the time between tokens under load is not known without a calibration)."
    ) in result.assumptions


# --- cache ---------------------------------------------------------------------------------------------------------


def test_production_caches_less_than_the_eval_set():
    """44,800 of 54,400 input tokens are cached; at most half of them leaves 27,200, and the GPUs rise."""
    load = project("support", None, A(), fleet(cached_input_share_max=0.5)).run

    assert load.cached_input_per_s == pytest.approx(16.6667 * 27_200, rel=1e-4)
    assert load.new_input_per_s == pytest.approx(16.6667 * 27_200, rel=1e-4)
    assert gpus(load, "compute") == pytest.approx(16.6667 * (27_200 / 17_502 + 2_000 / 11_115) / 0.6, rel=1e-4)


# --- two fits ------------------------------------------------------------------------------------------------------


def test_two_fits_of_one_table():
    """The same regression costs 2.31 times by one fit of the published rows and 4.16 times by the other."""
    result = project("support", A(), B(), fleet())

    assert result.ratio_gpu_time == pytest.approx(2.311, abs=0.001)
    assert result.ratio_gpu_time_other == pytest.approx(4.162, abs=0.001)
    # GPU-seconds a task, times 16.667 tasks a second, at 60 %
    assert result.base.gpus_other == pytest.approx(16.6667 * 0.8432 / 0.6, rel=0.001)
    assert result.run.gpus_other == pytest.approx(16.6667 * 3.509 / 0.6, rel=0.001)


def test_rows_of_one_length_cannot_be_told_apart():
    """With one output length the cost of reading and that of a long context are the same column: no fit."""
    assert fit3([(1_024, 1_024, 6_798.0), (8_192, 1_024, 1_828.0), (32_768, 1_024, 519.0)]) is None
    assert fit3([(1_024, 1_024, 6_798.0), (1_024, 8_192, 3_543.0)]) is None


def test_profiles_without_a_second_fit():
    """One published model writes faster at 1k in and 8k out than any cost of context allows: it has one fit only."""
    assert [profile.name for profile in BUILT_IN if profile.other is None] == ["llama4-maverick-h200-dep8"]


# --- names ---------------------------------------------------------------------------------------------------------


def test_model_and_gpu_name_a_profile():
    """Whatever the case, model and GPU find the profile that is of both."""
    assert find_profile(Fleet("", "f", model="GPT-OSS-120B", gpu="h200")).name == "gpt-oss-120b-h200-tp1"


def test_unknown_model_suggests_the_nearest():
    """unknown-model: what is known, and the nearest name."""
    with pytest.raises(ConfigError) as error:
        find_profile(Fleet("", "baselines/fleet.toml", model="gpt-oss-120", gpu="H200"))

    assert str(error.value) == (
        "baselines/fleet.toml: [fleet] model: no GPU profile is of a model 'gpt-oss-120'; known: deepseek-r1-0528, "
        "gpt-oss-120b, gpt-oss-20b, llama-3.3-70b, llama4-maverick, qwen3-235b-a22b, qwen3-30b-a3b\n"
        '  mend: model = "gpt-oss-120b", or a calibration of your own\n'
        "  see: docs/messages.md#unknown-model"
    )


def test_unknown_gpu_suggests_the_nearest():
    """unknown-gpu: the GPUs that the model has a profile for."""
    with pytest.raises(ConfigError) as error:
        find_profile(Fleet("", "baselines/fleet.toml", model="gpt-oss-20b", gpu="H20"))

    assert str(error.value) == (
        "baselines/fleet.toml: [fleet] gpu: no GPU profile is of gpt-oss-20b on 'H20'; known for it: H100, H200, B200\n"
        '  mend: gpu = "H200", or a calibration of your own\n'
        "  see: docs/messages.md#unknown-gpu"
    )


# --- calibrations --------------------------------------------------------------------------------------------------

#: 18 ms alone and 1.8 ms more a call, up to 64: at 64 calls 64 / 133.2 ms = 480 tokens/s.
POINTS = tuple(CalibrationPoint(c, 1_000 * c / (18 + 1.8 * c), 18 + 1.8 * c) for c in (1, 8, 16, 32, 64))
OURS = Calibration(
    "ours", "vllm bench serve, 2026-11-29", "gpt-oss-120b", "H200", 1, POINTS, 20_000.0, 1_024, 1_024, 32_768
)


def test_rates_of_a_calibration():
    """480.5 tokens/s at 1,024 in and out, with input read at 20,000 tokens/s, are 492.3 tokens/s of output alone."""
    profile = calibrated(OURS)

    assert profile.decode_tokens_per_s == pytest.approx(1 / (1 / 480.48 - 1 / 20_000), rel=1e-4)
    assert profile.title == "ours (calibrated: vllm bench serve, 2026-11-29)"
    assert profile.other is None


def test_latency_binds_where_the_promise_is_tight():
    """50 ms between tokens are reached at 17.8 calls in flight; to stay there 95 % of the time takes many replicas."""
    small = fleet(memory=Memory(kv_pool_gb_per_gpu=1_000.0))

    tight = project("support", None, A(), small, calibration=OURS)
    loose = project("support", None, A(), dataclasses.replace(small, slo=Slo(itl_ms_max=130.0)), calibration=OURS)

    assert tight.run.binding == "latency"
    assert tight.gpus_run > loose.gpus_run
    text = next(c.text for c in tight.run.constraints if c.name == "latency")
    assert text.startswith("17 calls in flight a replica at most (itl_ms_max), ")


@pytest.mark.parametrize(
    ("slo", "longest", "why"),
    [
        (Slo(itl_ms_max=19.0), None,
         "[slo] itl_ms_max of 19 does not hold even at the lowest measured load (ours)"),
        (Slo(), 40_000, "outside calibration: contexts of 40,000 tokens, measured up to 32,768 (ours)"),
    ],
)  # fmt: skip
def test_outside_the_calibration_there_is_no_number(slo, longest, why):
    """A promise that was never kept, or a context that was never measured, is refused in words."""
    load = project("support", None, A(longest=longest), fleet(slo=slo), calibration=OURS).run

    assert (load.gpus, load.refused) == (None, why)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"points": POINTS[:1]}, "has 1 points, and two are needed at least"),
        ({"points": (POINTS[1], POINTS[0])}, "has points that do not rise in concurrency"),
        ({"prefill_tokens_per_s": float("nan")}, "holds a rate, time or count that is no positive number"),
        ({"prefill_tokens_per_s": 400.0},
         "says that input alone would take all the time: its prefill rate is too low for its throughput"),
    ],
)  # fmt: skip
def test_calibrations_that_cannot_be(changes, what):
    """bad-calibration: too few points, out of order, no numbers, or more input than there is time for."""
    with pytest.raises(ConfigError) as error:
        calibrated(dataclasses.replace(OURS, **changes))

    assert str(error.value) == (
        f"ours: {what}\n  mend: measure again, one shape of requests\n  see: docs/messages.md#bad-calibration"
    )


# --- in flight -----------------------------------------------------------------------------------------------------


def test_little_at_each_boundary():
    """133.3 calls a second of 7.35 s under load are 980 at the model; with 1.5 s of tools 200 calls of the tool."""
    places = {place.name: place for place in project("support", None, A(tool_s=1.5), fleet()).run.boundaries}

    assert places["model"].in_flight == pytest.approx(980, rel=0.001)
    assert places["tool search"].in_flight == pytest.approx(200, rel=0.001)
    assert places["tool search"].in_flight_p99 == 234  # Poisson of 200
    assert places["front"].in_flight == pytest.approx(1_180, rel=0.001)


def test_ten_times_the_calls_held_are_ten_times_in_flight():
    """900 tasks that hold 3 calls each are 2,700 calls in flight; at 30 each 27,000."""
    demand = {"support": ClassDemand("support", 864_000, 1.0, 1.0)}  # 10 a second
    held = []
    for width in (3, 30):
        sample = trial() | {"model_ms": width * 90_000, "duration_ms": 90_000}
        load = project("support", None, {"t": [sample]}, fleet(demand=demand, serves="provider")).run
        held.append(next(place.in_flight for place in load.boundaries if place.name == "model"))

    assert held == pytest.approx([2_700, 27_000])


# --- properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"demand": {"support": ClassDemand("support", 260_000, 2.4, 3.0)}},
        {"cached_input_share_max": 0.7},
        {"rho": 0.5},
    ],
)
def test_more_demand_or_less_cache_never_takes_fewer_gpus(more):
    """More users, a worse cache or a lower utilisation: GPUs never fall."""
    for side in (A(), B(), A(tool_s=5.0)):
        before, after = project("support", None, side, fleet()), project("support", None, side, fleet(**more))
        assert after.run.gpus >= before.run.gpus


def test_spare_replicas_stand_beside_the_load():
    """One spare replica is one GPU more; without any load there is none."""
    assert project("support", None, A(), fleet(spare_replicas=1)).gpus_run == 22
    nothing = {"t": [trial(1, 0, 0, 0, idle_s=0.0)]}
    assert project("support", None, nothing, fleet(spare_replicas=1)).gpus_run == 0
