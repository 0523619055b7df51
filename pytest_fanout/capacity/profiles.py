"""GPU profiles: how many tokens a second one GPU reads and writes, and where the numbers come from.

A profile has two rates. Its cost of a task is new input / P + output / D GPU-seconds. The built-in ones are fitted to
two published rows each (``fit2``); they hold no prefix reuse and no cost of reading a long cached context while
decoding, so they are indicative only.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Fleet

INDICATIVE = "indicative, within a factor of 2"
_TRTLLM = "TensorRT-LLM performance overview, NVIDIA, max load, no prefix reuse; two-point fit"


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates of one GPU under full load, tokens a second. ``layout`` ends in the GPUs of one replica (TP1, DEP4)."""

    name: str
    gpu: str
    layout: str
    prefill_tokens_per_s: float  # P: input tokens that were not cached
    decode_tokens_per_s: float  # D: output tokens
    source: str

    @property
    def gpus_per_replica(self) -> int:
        digits = re.search(r"\d+\Z", self.layout)
        return max(1, int(digits.group())) if digits else 1

    @property
    def title(self) -> str:
        return f"{self.name} ({self.source})"

    def gpu_seconds(self, new_input: float, output: float) -> float:
        """GPU-seconds for that many uncached input and output tokens."""
        return new_input / self.prefill_tokens_per_s + output / self.decode_tokens_per_s


def fit2(out_tokens_per_s_1k: float, out_tokens_per_s_8k: float) -> tuple[float, float]:
    """Prefill and decode rate (P, D, tokens/s) from output tokens/s measured at 1,024 and at 8,192 input tokens.

    Both rows write 1,024 tokens, so one output token costs 1/X = (input/1024)/P + 1/D seconds, hence
    P = 7 / (1/X_8k - 1/X_1k) and 1/D = 1/X_1k - 1/P.

    Raises:
        ValueError: the rows do not allow a fit (longer input must be slower, and leave time for decoding).
    """
    x1, x8 = out_tokens_per_s_1k, out_tokens_per_s_8k
    if not (0 < x8 < x1 < math.inf):
        raise ValueError(f"no fit from {x1} and {x8} tokens/s: longer input must be slower")
    prefill = 7 / (1 / x8 - 1 / x1)
    decode_s = 1 / x1 - 1 / prefill
    if decode_s <= 0:
        raise ValueError(f"no fit from {x1} and {x8} tokens/s: input alone would take all the time")
    return prefill, 1 / decode_s


def _published(model: str, gpu: str, layout: str, weights: str, x_1k: int, x_8k: int) -> Profile:
    prefill, decode = fit2(x_1k, x_8k)
    name = f"{model}-{gpu}-{layout}".lower()
    return Profile(name, gpu, layout, round(prefill), round(decode), f"{INDICATIVE}: {weights}, {_TRTLLM}")


#: Output tokens/s per GPU at 1,024 in / 1,024 out and at 8,192 in / 1,024 out, as published.
BUILT_IN: tuple[Profile, ...] = (
    _published("gpt-oss-120b", "H200", "TP1", "FP8", 6798, 1828),
    _published("gpt-oss-120b", "H100", "DEP4", "FP8", 4715, 1169),
    _published("gpt-oss-120b", "B200", "DEP2", "FP4", 25870, 6111),
    _published("gpt-oss-120b", "GB200", "TP1", "FP4", 26609, 6835),
    _published("gpt-oss-20b", "H100", "TP1", "FP8", 11403, 3366),
    _published("gpt-oss-20b", "H200", "TP1", "FP8", 13890, 4015),
    _published("gpt-oss-20b", "B200", "TP1", "FP4", 53491, 11904),
    _published("llama-3.3-70b", "H200", "TP2", "FP8", 2582, 537),
    _published("llama-3.3-70b", "B200", "TP1", "FP4", 6842, 1362),
    _published("qwen3-235b-a22b", "H200", "DEP4", "FP8", 3268, 627),
    _published("qwen3-235b-a22b", "B200", "DEP4", "FP4", 5756, 1410),
    _published("qwen3-30b-a3b", "B200", "TP1", "FP4", 26611, 5735),
    _published("deepseek-r1-0528", "B200", "DEP4", "FP4", 6430, 1168),
    _published("llama4-maverick", "H200", "DEP8", "FP8", 4180, 1276),
    _published("llama4-maverick", "B200", "DEP4", "FP4", 11227, 3279),
)


def find_profile(fleet: Fleet, extra: Sequence[Profile] = ()) -> Profile:
    """The profile that ``fleet`` names, among the built-in ones and those that plugins give.

    Raises:
        ConfigError: no profile has that name (the nearest is suggested); a plugin's profile has a name that is taken,
            or a rate that is no positive number.
    """
    known: dict[str, Profile] = {}
    for profile in (*BUILT_IN, *extra):
        if profile.name in known:
            raise ConfigError(
                "profile-twice",
                f"two GPU profiles are named {profile.name!r}",
                where="pytest_fanout_profiles",
                mend="rename yours",
            )
        for rate in (profile.prefill_tokens_per_s, profile.decode_tokens_per_s):
            if not 0 < rate < math.inf:
                raise ConfigError(
                    "bad-profile",
                    f"GPU profile {profile.name!r} has a rate of {rate} tokens a second; it must be a positive number",
                    where="pytest_fanout_profiles",
                    mend="give both rates in tokens a second",
                )
        known[profile.name] = profile
    if fleet.profile not in known:
        near = difflib.get_close_matches(fleet.profile.lower(), known, n=1, cutoff=0.4)
        raise ConfigError(
            "unknown-profile",
            f"no GPU profile is named {fleet.profile!r}; known: {', '.join(sorted(known))}",
            where=f"{fleet.source}: [fleet] profile",
            mend=f'profile = "{near[0] if near else BUILT_IN[0].name}"',
        )
    return known[fleet.profile]
