"""What contexts take of GPU memory: bytes of the KV cache by model, and what is left for them on a GPU."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

#: Bytes of one cached number: bf16.
BYTES = 2
#: Share of its memory that a server gives itself, and what its program takes; assumptions, said in the docs.
SERVED_SHARE = 0.90
PROGRAM_GB = 3.0

#: GB (10**9 bytes) of one GPU.
HBM_GB = {"H100": 80.0, "H200": 141.0, "B200": 180.0, "GB200": 186.0}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model keeps of a context. ``weights_gb`` by format, all GPUs together; empty: no built-in profile."""

    bytes_per_token: int
    weights_gb: dict[str, float]
    bytes_per_sequence: int = 0  # of sliding-window layers, whatever the length


def grouped(layers: int, kv_heads: int, head_dim: int) -> int:
    """Bytes a token of attention with (grouped) heads: keys and values of each layer."""
    return 2 * layers * kv_heads * head_dim * BYTES


def latent(layers: int, kv_lora_rank: int, rope_head_dim: int) -> int:
    """Bytes a token of multi-head latent attention: one compressed vector a layer."""
    return layers * (kv_lora_rank + rope_head_dim) * BYTES


def sliding(layers: int, kv_heads: int, head_dim: int, window: int) -> int:
    """Bytes a sequence of layers that see only the last ``window`` tokens."""
    return grouped(layers, kv_heads, head_dim) * window


def _weights(billions: float, **bytes_per_parameter: float) -> dict[str, float]:
    return {name: round(billions * each, 1) for name, each in bytes_per_parameter.items()}


# FP8 is a byte a parameter; FP4 4.5 bits with its scales. gpt-oss ships 4-bit weights whatever the GPU computes in.
_FP4, _MXFP4 = 0.5625, 0.56
MODELS: dict[str, ModelShape] = {
    # 18 of 36 layers see the whole context, the others 128 tokens
    "gpt-oss-120b": ModelShape(grouped(18, 8, 64), _weights(116.8, FP8=_MXFP4, FP4=_MXFP4), sliding(18, 8, 64, 128)),
    "gpt-oss-20b": ModelShape(grouped(12, 8, 64), _weights(20.9, FP8=_MXFP4, FP4=_MXFP4), sliding(12, 8, 64, 128)),
    "llama-3.3-70b": ModelShape(grouped(80, 8, 128), _weights(70.6, FP8=1.0, FP4=_FP4)),
    "llama-3.1-8b": ModelShape(grouped(32, 8, 128), {}),
    "qwen3-32b": ModelShape(grouped(64, 8, 128), {}),
    "qwen3-235b-a22b": ModelShape(grouped(94, 4, 128), _weights(235.0, FP8=1.0, FP4=_FP4)),
    "qwen3-30b-a3b": ModelShape(grouped(48, 4, 128), _weights(30.5, FP8=1.0, FP4=_FP4)),
    "minimax-m2.5": ModelShape(grouped(62, 8, 128), {}),
    "glm-5": ModelShape(latent(78, 512, 64), {}),
    "deepseek-r1-0528": ModelShape(latent(61, 512, 64), _weights(671.0, FP8=1.0, FP4=_FP4)),
    "kimi-k2.5": ModelShape(latent(61, 512, 64), {}),
    # beside layers of linear attention, whose state has one size
    "qwen3.5-397b": ModelShape(grouped(15, 2, 256), {}),
    "qwen3.5-35b-a3b": ModelShape(grouped(10, 2, 256), {}),
}


#: Ends of a name that say how weights are stored or that it was tuned, and nothing of its layers.
_ENDS = frozenset(
    [
        "instruct",
        "chat",
        "it",
        "hf",
        "bf16",
        "fp16",
        "fp8",
        "fp4",
        "nvfp4",
        "mxfp4",
        "awq",
        "gptq",
        "int4",
        "int8",
        "w4a16",
        "w8a8",
        "dynamic",
        "quantized",
    ]
)
_FORMATS = {"fp8": "FP8", "w8a8": "FP8", "fp4": "FP4", "nvfp4": "FP4"}


def model_name(model: str) -> str:
    """The name of a model as ``MODELS`` has it: ``openai/GPT-OSS-120B`` is ``gpt-oss-120b``.

    The owner before a slash, capitals, and ends like ``-Instruct-FP8`` say nothing of its layers.
    """
    parts = model.rstrip("/").rpartition("/")[2].lower().split("-")
    while len(parts) > 1 and parts[-1] in _ENDS and "-".join(parts) not in MODELS:
        parts.pop()
    return "-".join(parts)


def shape_of(model: str) -> ModelShape | None:
    """What a model keeps of a context; None: it is not known."""
    return MODELS.get(model_name(model))


def gpu_name(gpu: str) -> str:
    """The name of a GPU as ``HBM_GB`` has it: ``NVIDIA H100 80GB HBM3`` is ``H100``."""
    found = [part for part in re.split(r"[^A-Z0-9]+", gpu.upper()) if part in HBM_GB]
    return found[0] if len(found) == 1 else gpu


def weights_gb_of(model: str, weights: str) -> float | None:
    """GB of all weights together; by the end of its name where no format is said. None: not known."""
    shape = shape_of(model)
    if shape is None:
        return None
    known = shape.weights_gb
    said = weights or next((_FORMATS[part] for part in model.lower().split("-") if part in _FORMATS), "")
    if not said and len(set(known.values())) == 1:
        return next(iter(known.values()))
    return known.get(said)


def pool_gb(model: str, gpu: str, weights: str, gpus_per_replica: int) -> float | None:
    """GB for contexts on one GPU: HBM x 0.90 - its part of the weights - 3 GB. None: model, GPU or format not known."""
    hbm, held = HBM_GB.get(gpu_name(gpu)), weights_gb_of(model, weights)
    if hbm is None or held is None:
        return None
    left = hbm * SERVED_SHARE - held / gpus_per_replica - PROGRAM_GB
    return left if left > 0 and math.isfinite(left) else None
