"""GPU profiles: how many tokens a second one GPU reads and writes, and where the numbers come from.

A profile has two rates. Its cost of a task is new input / P + output / D GPU-seconds. The built-in ones are fitted to
published rows, which hold no prefix reuse and cannot tell the cost of reading input from that of writing beside a long
context. So there are two fits of the same rows: ``fit2`` puts all of it into the input, ``fit3`` as much as the rows
allow into the context. What lies between them is not known.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.contexts import gpu_name, model_name
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import Calibration, Fleet

INDICATIVE = "indicative, within a factor of 2"
_TRTLLM = "TensorRT-LLM performance overview, NVIDIA, max load, no prefix reuse; two-point fit"
_TRTLLM3 = "TensorRT-LLM performance overview, NVIDIA, max load, no prefix reuse; fit with a cost of context"


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates of one GPU under full load, tokens a second. ``layout`` ends in the GPUs of one replica (TP1, DEP4)."""

    name: str
    gpu: str
    layout: str
    prefill_tokens_per_s: float  # P: input tokens that were not cached
    decode_tokens_per_s: float  # D: output tokens
    source: str
    context_s: float = 0.0  # seconds that each token of its context adds to an output token
    model: str = ""
    weights: str = ""  # FP8, FP4
    other: Profile | None = None  # another fit of the same measurements: the far end of the band

    @property
    def gpus_per_replica(self) -> int:
        digits = re.search(r"\d+\Z", self.layout)
        return max(1, int(digits.group())) if digits else 1

    @property
    def title(self) -> str:
        return f"{self.name} ({self.source})"

    def gpu_seconds(self, new_input: float, output: float, context: float = 0.0) -> float:
        """GPU-seconds for so many uncached input and output tokens, written at a mean ``context`` (tokens)."""
        written = output / self.decode_tokens_per_s
        return new_input / self.prefill_tokens_per_s + written + output * context * self.context_s


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


#: (input, output) tokens a request of the published rows.
SHAPES = ((1_000, 1_000), (1_024, 1_024), (1_024, 8_192), (1_024, 32_768), (8_192, 1_024), (32_768, 1_024))


def fit3(rows: Sequence[tuple[int, int, float]]) -> tuple[float, float, float] | None:
    """Seconds per uncached input token, per output token, and per output token and token of its context.

    One output token costs 1/X = (input/output) p + d + (input + output/2) c; the three are fitted to all rows by least
    squares of the relative error. Rows of one output length cannot tell p from c.

    Args:
        rows: input tokens, output tokens, output tokens/s per GPU.

    Returns:
        None where the rows do not tell the three apart, or give one of them that is not positive.
    """
    lines = [((i / o * x, x, (i + o / 2) * x), 1.0) for i, o, x in rows]
    if len({o for _, o, _ in rows}) < 2 or len(rows) < 3:
        return None
    # normal equations of three unknowns, each column scaled to the same size
    scale = [math.sqrt(math.fsum(line[k] ** 2 for line, _ in lines)) for k in range(3)]
    left = [[math.fsum(a[r] / scale[r] * a[c] / scale[c] for a, _ in lines) for c in range(3)] for r in range(3)]
    right = [math.fsum(a[r] / scale[r] * y for a, y in lines) for r in range(3)]
    whole = _determinant(left)
    if abs(whole) < 1e-9:
        return None
    found = []
    for column in range(3):
        swapped = [[right[r] if c == column else left[r][c] for c in range(3)] for r in range(3)]
        found.append(_determinant(swapped) / whole / scale[column])
    return (found[0], found[1], found[2]) if min(found) > 0 else None


def _determinant(m: Sequence[Sequence[float]]) -> float:
    return (
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    )


def _published(model: str, gpu: str, layout: str, weights: str, row: Sequence[int | None]) -> Profile:
    """A profile by two fits of one published row; the second is its ``other``."""
    points = {shape: value for shape, value in zip(SHAPES, row, strict=True) if value is not None}
    prefill, decode = fit2(points[1_024, 1_024], points[8_192, 1_024])
    name = f"{model}-{gpu}-{layout}".lower()
    second = fit3([(given, written, x) for (given, written), x in points.items()])
    other = None
    if second is not None:
        other = Profile(
            f"{name}-by-context", gpu, layout, 1 / second[0], 1 / second[1], f"{INDICATIVE}: {weights}, {_TRTLLM3}",
            second[2], model, weights,
        )  # fmt: skip
    source = f"{INDICATIVE}: {weights}, {_TRTLLM}"
    return Profile(name, gpu, layout, round(prefill), round(decode), source, 0.0, model, weights, other)


#: Output tokens/s per GPU as published, by SHAPES; None: not published.
BUILT_IN: tuple[Profile, ...] = (
    _published("gpt-oss-120b", "H200", "TP1", "FP8", (6868, 6798, 3543, None, 1828, 519)),
    _published("gpt-oss-120b", "H100", "DEP4", "FP8", (4685, 4715, None, 1177, 1169, 333)),
    _published("gpt-oss-120b", "B200", "DEP2", "FP4", (25943, 25870, 17289, 6279, 6111, 1392)),
    _published("gpt-oss-120b", "GB200", "TP1", "FP4", (27198, 26609, 14800, 5556, 6835, 1645)),
    _published("gpt-oss-20b", "H100", "TP1", "FP8", (11557, 11403, 8617, None, 3366, 785)),
    _published("gpt-oss-20b", "H200", "TP1", "FP8", (13858, 13890, 12743, None, 4015, 915)),
    _published("gpt-oss-20b", "B200", "TP1", "FP4", (53812, 53491, 34702, 14589, 11904, 2645)),
    _published("llama-3.3-70b", "H200", "TP2", "FP8", (2587, 2582, 2009, None, 537, 120)),
    _published("llama-3.3-70b", "B200", "TP1", "FP4", (6920, 6842, 3242, None, 1362, 274)),
    _published("qwen3-235b-a22b", "H200", "DEP4", "FP8", (3288, 3268, 1417, None, 627, 134)),
    _published("qwen3-235b-a22b", "B200", "DEP4", "FP4", (5764, 5756, 3389, 1255, 1410, 319)),
    _published("qwen3-30b-a3b", "B200", "TP1", "FP4", (26971, 26611, 13497, 4494, 5735, 1265)),
    _published("deepseek-r1-0528", "B200", "DEP4", "FP4", (6463, 6430, 3862, 1451, 1168, None)),
    _published("llama4-maverick", "H200", "DEP8", "FP8", (4146, 4180, 1157, 679, 1276, None)),
    _published("llama4-maverick", "B200", "DEP4", "FP4", (11337, 11227, 5174, 2204, 3279, 859)),
)


def calibrated(calibration: Calibration) -> Profile:
    """The profile of a calibration: its decode rate is that of its highest throughput, prefill taken out.

    Raises:
        ConfigError: points that do not rise in concurrency, a figure that is not positive, or no time left to decode.
    """
    points, size = calibration.points, calibration.gpus_per_replica
    figures = [calibration.prefill_tokens_per_s, float(size), float(calibration.output_tokens)]
    figures += [value for point in points for value in (point.output_tokens_per_s, point.itl_ms, point.concurrency)]
    what = None
    if len(points) < 2:
        what = f"has {len(points)} points, and two are needed at least"
    elif not all(0 < value < math.inf for value in figures):
        what = "holds a rate, time or count that is no positive number"
    elif any(one.concurrency >= two.concurrency for one, two in itertools.pairwise(points)):
        what = "has points that do not rise in concurrency"
    if what is None:
        best = max(point.output_tokens_per_s for point in points) / size
        decode_s = 1 / best - calibration.input_tokens / calibration.output_tokens / calibration.prefill_tokens_per_s
        if decode_s > 0:
            source = f"calibrated: {calibration.source}"
            return Profile(
                calibration.name, calibration.gpu, f"x{size}", calibration.prefill_tokens_per_s, 1 / decode_s, source,
                0.0, calibration.model,
            )  # fmt: skip
        what = "says that input alone would take all the time: its prefill rate is too low for its throughput"
    raise ConfigError("bad-calibration", what, where=calibration.name, mend="measure again, one shape of requests")


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
    if fleet.model is not None and fleet.gpu is not None:
        return _by_model(fleet, fleet.model, fleet.gpu, list(known.values()))
    if fleet.profile not in known:
        raise ConfigError(
            "unknown-profile",
            f"no GPU profile is named {fleet.profile!r}; known: {', '.join(sorted(known))}",
            where=f"{fleet.source}: [fleet] profile",
            mend=f'profile = "{_nearest(fleet.profile, known)}"',
        )
    return known[fleet.profile]


def _by_model(fleet: Fleet, model: str, gpu: str, known: Sequence[Profile]) -> Profile:
    models = sorted({profile.model for profile in known if profile.model})
    ours = [profile for profile in known if profile.model and profile.model == model_name(model)]
    if not ours:
        raise ConfigError(
            "unknown-model",
            f"no GPU profile is of a model {model!r}; known: {', '.join(models)}",
            where=f"{fleet.source}: [fleet] model",
            mend=f'model = "{_nearest(model, models)}", or a calibration of your own',
        )
    gpus = [profile.gpu for profile in ours]
    found = next((profile for profile in ours if gpu_name(profile.gpu) == gpu_name(gpu)), None)
    if found is None:
        raise ConfigError(
            "unknown-gpu",
            f"no GPU profile is of {model} on {gpu!r}; known for it: {', '.join(gpus)}",
            where=f"{fleet.source}: [fleet] gpu",
            mend=f'gpu = "{_nearest(gpu, gpus)}", or a calibration of your own',
        )
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    return lower[near[0]] if near else names[0]
