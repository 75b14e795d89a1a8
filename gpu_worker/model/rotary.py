"""Rotary positions: how far each pair of a head turns, and the rows of a call turned.

In fp32, rounded once, as torchtune does. Pairs are neighbours: one of them is one complex number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpu_worker.model.config import TransformerConfig
from gpu_worker.model.even import evenly


class Turned:
    """Projected rows, queries and keys turned, in buffers that every ``take`` writes anew.

    ``query`` is [rows, heads x head_dim] in the model's dtype. ``key_value`` is a view of fp32
    [rows, 2, kv_heads, head_dim]; whoever copies it out rounds it.
    """

    def __init__(
        self, config: TransformerConfig, rows: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
        self.query = torch.zeros((rows, heads * size), dtype=dtype, device=device)
        self._wide = torch.zeros((rows, (heads + 2 * kv_heads) * size), device=device)
        self._wide_query = self._wide[:, : heads * size]
        turning = self._wide[:, : (heads + kv_heads) * size]
        self._turning = torch.view_as_complex(turning.view(rows, heads + kv_heads, -1, 2))
        self.key_value = self._wide[:, heads * size :].view(rows, 2, kv_heads, size)

    def take(self, projected: Tensor, rotation: Tensor) -> None:
        """Turn [rows, width] by complex64 [rows or 1, 1, head_dim / 2]."""
        self._wide.copy_(projected)
        evenly(lambda pairs: pairs.mul_(rotation), self._turning)
        self.query.copy_(self._wide_query)


def rotary_frequencies(config: TransformerConfig) -> Tensor:
    """Radians per position of each rotary pair, fp32 [head_dim / 2], with Llama 3's scaling.

    Pairs that turn less than ``low`` times within the original length are slowed by ``factor``,
    those that turn more than ``high`` times are kept, those between are blended (Llama 3.1's
    published rule).
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_factor == 1.0:
        return frequencies
    turns = config.rope_original_max_position * frequencies / (2 * math.pi)
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1.0 - kept) * frequencies / config.rope_factor + kept * frequencies


def rotary_table(config: TransformerConfig, positions: int, device: torch.device) -> Tensor:
    """Rotations of positions 0 .. ``positions`` - 1, complex64 [positions, 1, head_dim / 2]."""
    steps = torch.arange(positions, dtype=torch.float32)
    angles = torch.outer(steps, rotary_frequencies(config))
    return torch.complex(angles.cos(), angles.sin()).unsqueeze(1).to(device)
