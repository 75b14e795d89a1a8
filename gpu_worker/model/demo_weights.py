"""The demo's seeded weights and the tone that its voice is made of."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gpu_worker.codec import default_mimi_config, mimi_shapes
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.demo_sizes import DemoSize
from gpu_worker.model.layouts import torchtune_shapes
from shared.wav import FRAME_SAMPLES, SAMPLE_RATE

SEED: Final = "psionic csm demo 1"
LOUDNESS: Final = 1 / 128
"""Of the last layer's weights; found by trial to make noise at about a tenth of full scale."""


def seeded(name: str, shape: tuple[int, ...], std: float) -> Tensor:
    """A bfloat16 tensor of odd integers in -255..255 times a power of two, near ``std``.

    Each is a function of SEED and ``name`` alone, through SHAKE-256.
    """
    stream = hashlib.shake_256(f"{SEED}/{name}".encode()).digest(math.prod(shape))
    odd = 2 * np.frombuffer(stream, dtype=np.uint8).astype(np.int16) - 255
    # The standard deviation of the odd integers is 256 / sqrt(3).
    exponent = round(math.log2(std * math.sqrt(3) / 256))
    scaled = torch.from_numpy(odd).to(torch.float32) * 2.0**exponent
    return scaled.to(torch.bfloat16).view(shape)


def csm_weights(config: CsmConfig) -> dict[str, Tensor]:
    """Seeded weights in torchtune's layout."""
    return {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith(".scale")
        else seeded(name, shape, _csm_std(name, shape))
        for name, shape in torchtune_shapes(config).items()
    }


def _csm_std(name: str, shape: tuple[int, ...]) -> float:
    if name == "text_embeddings.weight":
        return 1.0
    if name == "audio_embeddings.weight":
        return 1.0 / math.sqrt(32)  # 32 of them are summed in one frame
    if name == "audio_head":
        return 2.0 / math.sqrt(shape[1])
    if name == "codebook0_head.weight":
        return 2.0 / math.sqrt(shape[1])  # logits near 2: neither flat nor decided
    return 1.0 / math.sqrt(shape[1])


def reduced_mimi_config(recipe: DemoSize) -> dict[str, Any]:
    """moshi's configuration of Mimi with smaller widths; rates and codebooks as published."""
    published, dim = default_mimi_config(), recipe.mimi_dim
    sizes: dict[str, dict[str, Any]] = {
        "seanet": {"n_filters": recipe.mimi_filters, "dimension": dim},
        "quantizer": {
            "dimension": recipe.codebook_dim,
            "input_dimension": dim,
            "output_dimension": dim,
        },
        "transformer": {
            "d_model": dim,
            "num_heads": 4,
            "num_layers": 2,
            "dim_feedforward": 2 * dim,
            "input_dimension": dim,
            "output_dimensions": [dim],
        },
    }
    return published | {part: published[part] | sizes[part] for part in sizes}


def mimi_weights(config: dict[str, Any]) -> dict[str, Tensor]:
    """Seeded weights for a Mimi of that configuration, by moshi's names."""
    return {name: _mimi_weight(name, shape) for name, shape in mimi_shapes(config).items()}


def _mimi_weight(name: str, shape: tuple[int, ...]) -> Tensor:
    if name.endswith((".bias", "._initialized")):
        return torch.full(shape, float(name.endswith("_initialized")), dtype=torch.bfloat16)
    if name.endswith(".scale"):
        return torch.full(shape, 0.125, dtype=torch.bfloat16)
    if len(shape) == 1:  # norms and cluster usage
        return torch.ones(shape, dtype=torch.bfloat16)
    if name.startswith("decoder.model.") and shape[0] == 1:
        return _output_kernel(seeded(name, shape, LOUDNESS))
    return seeded(name, shape, _mimi_std(name, shape))


def _output_kernel(weight: Tensor) -> Tensor:
    """Taps (a, -a, 0) per channel: no constant offset reaches the speaker."""
    return torch.stack([weight[..., 0], -weight[..., 0], torch.zeros_like(weight[..., 0])], dim=-1)


def _mimi_std(name: str, shape: tuple[int, ...]) -> float:
    if "embedding_sum" in name:
        return 0.125
    if "upsample" in name or ".convtr." in name:
        fan_in = (1 if "upsample" in name else shape[0]) * 2  # kernels are two strides long
    else:
        fan_in = math.prod(shape[1:])
    return 1.4 / math.sqrt(fan_in)  # about keeps the level through an ELU


def synthetic_clip(frames: int) -> Tensor:
    """[frames * 1920] float32: a 120 Hz buzz under three formants that glide."""
    time = torch.arange(frames * FRAME_SAMPLES, dtype=torch.float64) / SAMPLE_RATE
    glide = 0.5 + 0.5 * torch.sin(2 * math.pi * 1.5 * time)
    wave = torch.zeros_like(time)
    for harmonic in range(1, 30):
        frequency = 120.0 * harmonic
        gain = sum(
            torch.exp(-(((frequency - low - (high - low) * glide) / width) ** 2))
            for low, high, width in ((300, 750, 120), (900, 1900, 180), (2400, 2800, 250))
        )
        wave += gain * torch.sin(2 * math.pi * frequency * time)
    return (0.5 * wave / wave.abs().max()).to(torch.float32)
