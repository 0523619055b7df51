"""GPU profiles: two rates fitted to published rows, found by name."""

from __future__ import annotations

import pytest

from pytest_fanout.capacity.profiles import BUILT_IN, INDICATIVE, Profile, find_profile, fit2
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Fleet


def test_fit_gives_both_rates():
    """6,798 tokens/s at 1k in and 1,828 at 8k in, both 1k out, give 17,502 in and 11,115 out."""
    prefill, decode = fit2(6798, 1828)

    assert (round(prefill), round(decode)) == (17_502, 11_115)


def test_fit_predicts_a_row_that_it_has_not_seen():
    """At 32k in and 1k out the fit says 521 tokens/s, where 519 are published."""
    prefill, decode = fit2(6798, 1828)

    predicted = 1 / (32 / prefill + 1 / decode)

    assert round(predicted) == 521
    assert predicted == pytest.approx(519, rel=0.01)


def test_how_far_off_the_fits_are_at_32k():
    """Of the built-in profiles with a published row at 32,768 in: 2 % too low once, else up to 33 % too high."""
    published = {
        "llama-3.3-70b-h200-tp2": 120, "llama-3.3-70b-b200-tp1": 274, "gpt-oss-120b-h100-dep4": 333,
        "gpt-oss-120b-h200-tp1": 519, "gpt-oss-120b-b200-dep2": 1_392, "gpt-oss-20b-h100-tp1": 785,
        "gpt-oss-20b-h200-tp1": 915, "qwen3-235b-a22b-h200-dep4": 134, "qwen3-235b-a22b-b200-dep4": 319,
        "qwen3-30b-a3b-b200-tp1": 1_265,
    }  # fmt: skip
    rates = {each.name: (each.prefill_tokens_per_s, each.decode_tokens_per_s) for each in BUILT_IN}

    errors = {name: 1 / (32 / rates[name][0] + 1 / rates[name][1]) / row - 1 for name, row in published.items()}

    assert errors.pop("gpt-oss-120b-h100-dep4") == pytest.approx(-0.018, abs=0.005)
    assert errors.pop("gpt-oss-120b-h200-tp1") == pytest.approx(0.004, abs=0.005)
    assert (min(errors.values()), max(errors.values())) == (
        pytest.approx(0.21, abs=0.01),
        pytest.approx(0.33, abs=0.01),
    )


@pytest.mark.parametrize(
    ("x_1k", "x_8k"), [(1000, 1000), (1000, 2000), (1000, 0), (float("nan"), 1), (1000, 100), (float("inf"), 5)]
)
def test_rows_that_allow_no_fit_are_refused(x_1k, x_8k):
    """Longer input that is not slower, or that leaves no time to decode, gives no profile (8:1 is too steep)."""
    with pytest.raises(ValueError, match="no fit from"):
        fit2(x_1k, x_8k)


def test_default_profile_is_one_of_the_built_in():
    """Without a word in fleet.toml it is gpt-oss-120b on one H200, labelled indicative, with its source."""
    profile = find_profile(Fleet("", "baselines/fleet.toml"))

    assert (profile.name, profile.gpu, profile.layout) == ("gpt-oss-120b-h200-tp1", "H200", "TP1")
    assert (profile.prefill_tokens_per_s, profile.decode_tokens_per_s) == (17_502, 11_115)
    assert profile.source.startswith(INDICATIVE)
    assert "TensorRT-LLM performance overview" in profile.source


@pytest.mark.parametrize(
    ("name", "prefill", "decode"),
    [
        ("gpt-oss-120b-h100-dep4", 10_881, 8_321),
        ("gpt-oss-20b-h100-tp1", 33_430, 17_306),
        ("llama-3.3-70b-h200-tp2", 4_746, 5_663),
        ("qwen3-235b-a22b-h200-dep4", 5_431, 8_206),
        ("qwen3-30b-a3b-b200-tp1", 51_174, 55_441),
        ("deepseek-r1-0528-b200-dep4", 9_991, 18_041),
    ],
)
def test_built_in_rates(name, prefill, decode):
    """The rates are those worked out from the published rows, to the token."""
    profile = find_profile(Fleet("", "f", profile=name))

    assert (profile.prefill_tokens_per_s, profile.decode_tokens_per_s) == (prefill, decode)


def test_every_built_in_profile_says_how_far_it_can_be_trusted():
    """Names are unique, and each source begins with the label."""
    assert len({profile.name for profile in BUILT_IN}) == len(BUILT_IN)
    assert all(profile.source.startswith(INDICATIVE) for profile in BUILT_IN)


@pytest.mark.parametrize(("layout", "size"), [("TP1", 1), ("DEP4", 4), ("TP16", 16), ("pipeline", 1), ("TP0", 1)])
def test_replica_size_is_read_from_the_layout(layout, size):
    """The number at the end of a layout is how many GPUs one replica needs."""
    assert Profile("p", "g", layout, 1.0, 1.0, "mine").gpus_per_replica == size


def test_profile_of_a_plugin_is_found():
    """A profile that a plugin gives is used like a built-in one."""
    mine = Profile("ours", "H100", "TP8", 5_000.0, 2_000.0, "measured by us")

    assert find_profile(Fleet("", "f", profile="ours"), [mine]) is mine


def test_unknown_profile_names_the_nearest():
    """A mistyped profile is an error with file, key, what is known and what to write."""
    with pytest.raises(ConfigError) as error:
        find_profile(Fleet("", "baselines/fleet.toml", profile="gpt-oss-120b-H200"))

    assert str(error.value) == (
        "baselines/fleet.toml: [fleet] profile: no GPU profile is named 'gpt-oss-120b-H200'; known: "
        "deepseek-r1-0528-b200-dep4, gpt-oss-120b-b200-dep2, gpt-oss-120b-gb200-tp1, gpt-oss-120b-h100-dep4, "
        "gpt-oss-120b-h200-tp1, gpt-oss-20b-b200-tp1, gpt-oss-20b-h100-tp1, gpt-oss-20b-h200-tp1, "
        "llama-3.3-70b-b200-tp1, llama-3.3-70b-h200-tp2, llama4-maverick-b200-dep4, llama4-maverick-h200-dep8, "
        "qwen3-235b-a22b-b200-dep4, qwen3-235b-a22b-h200-dep4, qwen3-30b-a3b-b200-tp1\n"
        '  mend: profile = "gpt-oss-120b-h200-tp1"\n'
        "  see: docs/messages.md#unknown-profile"
    )


def test_profile_name_that_is_taken():
    """A plugin cannot quietly replace a built-in profile."""
    with pytest.raises(ConfigError) as error:
        find_profile(Fleet("", "f"), [Profile("gpt-oss-120b-h200-tp1", "H200", "TP1", 1e9, 1e9, "trust me")])

    assert str(error.value) == (
        "pytest_fanout_profiles: two GPU profiles are named 'gpt-oss-120b-h200-tp1'\n"
        "  mend: rename yours\n"
        "  see: docs/messages.md#profile-twice"
    )


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_profile_with_an_impossible_rate(rate):
    """A rate that is no positive number never becomes a GPU count."""
    with pytest.raises(ConfigError) as error:
        find_profile(Fleet("", "f"), [Profile("ours", "H100", "TP8", rate, 2_000.0, "measured")])

    assert str(error.value) == (
        f"pytest_fanout_profiles: GPU profile 'ours' has a rate of {rate} tokens a second; it must be a positive "
        "number\n"
        "  mend: give both rates in tokens a second\n"
        "  see: docs/messages.md#bad-profile"
    )
