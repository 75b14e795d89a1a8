"""Mimi's transformer for one frame of every lane, from moshi's weights.

moshi's own layers each keep a ring of keys and values and work out anew where its entries lie. Here
that is done once a frame for all of them; the samples are the same to the rounding of rotations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_worker.model.config import TransformerConfig
from gpu_worker.model.even import evenly
from gpu_worker.model.rotary import Turned

UNLIKE: Final = "this Mimi's decoder_transformer is not of the published kind"


class CodecTransformer:
    """Streams of ``lanes`` lanes through a ``ProjectedTransformer``, ``steps`` positions a frame.

    ``tensors`` are all that a frame changes, with the lane as first axis: zeroed, a lane is fresh.
    A lane that pauses keeps what it can still look at: what it writes meanwhile, its own next frame
    overwrites. Raises ValueError for a transformer that is put together in another way.
    """

    def __init__(self, module: Any, lanes: int, steps: int, device: torch.device) -> None:
        _check(module)
        layers = list(module.transformer.layers)
        attention = layers[0].self_attn
        heads, size = attention.num_heads, attention.embed_dim // attention.num_heads
        width = attention.embed_dim
        config = TransformerConfig(width, len(layers), heads, heads, size, 1)
        self.lanes, self.steps, self.context = lanes, steps, int(attention.context)
        self._layers = [_Block.of(layer) for layer in layers]
        ring = (lanes, len(layers), 2, heads, self.context, size)
        self._ring = torch.zeros(ring, device=device)
        self._offset = torch.zeros(lanes, dtype=torch.int64, device=device)
        self.tensors = [self._ring, self._offset]
        self._turned = Turned(config, lanes * steps, torch.float32, device)
        # [lanes x steps, 2, heads, size] -> [lanes, steps, 2, heads, size], as the ring is indexed
        self._key_value = self._turned.key_value.view(lanes, steps, 2, heads, size)
        self._query = self._turned.query.view(lanes, steps, heads, size).transpose(1, 2)
        self._rings = [ring.unbind(1) for ring in self._ring.unbind(1)]
        # [lanes, context, 2, heads, size]: what one index for lane and slot reaches
        self._slots = [ring.permute(0, 3, 1, 2, 4) for ring in self._ring.unbind(1)]
        self._places = torch.arange(self.context, device=device)
        self._ahead = torch.arange(steps, device=device)
        self._rows = torch.arange(lanes, device=device).unsqueeze(1)
        pairs = torch.arange(size // 2, dtype=torch.float32, device=device)
        self._frequencies = torch.exp(pairs * (-math.log(module.transformer.max_period) * 2 / size))

    def __call__(self, hidden: Tensor, active: Tensor) -> Tensor:
        """[lanes, width, steps] -> the same shape; only ``active`` lanes' streams [lanes] move."""
        positions = self._offset.unsqueeze(1) + self._ahead
        angles = positions.view(-1, 1, 1) * self._frequencies
        rotation = torch.complex(angles.cos(), angles.sin())
        index = (self._rows, positions % self.context)
        mask = self._mask(positions)
        rows = hidden.transpose(1, 2).reshape(self.lanes * self.steps, -1)
        for number, block in enumerate(self._layers):
            self._turned.take(block.project(block.norm1(rows)), rotation)
            self._slots[number].index_put_(index, self._key_value)
            keys, values = self._rings[number]
            mixed = functional.scaled_dot_product_attention(self._query, keys, values, mask)
            mixed = mixed.transpose(1, 2).reshape(rows.shape)
            rows = rows + block.scale1(block.output(mixed))
            inner = evenly(functional.gelu, block.linear1(block.norm2(rows)))
            rows = rows + block.scale2(block.linear2(inner))
        self._offset.add_(active, alpha=self.steps)
        return rows.view(self.lanes, self.steps, -1).transpose(1, 2)

    def _mask(self, positions: Tensor) -> Tensor:
        """[lanes, 1, steps, context]: which entries of the ring each position may look at.

        ``age`` is how many positions before the frame's last one an entry was written.
        """
        last = positions[:, -1:]
        age = (last - self._places) % self.context
        written = (age <= last).unsqueeze(1)
        passed = age.unsqueeze(1) >= (last - positions).unsqueeze(2)
        return (written & passed).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class _Block:
    """The parts of one of moshi's layers."""

    norm1: nn.Module
    project: nn.Module
    output: nn.Module
    scale1: nn.Module
    norm2: nn.Module
    linear1: nn.Module
    linear2: nn.Module
    scale2: nn.Module

    @classmethod
    def of(cls, layer: Any) -> _Block:
        attention = layer.self_attn
        return cls(
            layer.norm1,
            attention.in_projs[0],
            attention.out_projs[0],
            layer.layer_scale_1,
            layer.norm2,
            layer.linear1,
            layer.linear2,
            layer.layer_scale_2,
        )


def _check(module: Any) -> None:
    transformer = module.transformer
    plain = (
        module.conv_layout
        and module.input_proj is None
        and [type(each) for each in module.output_projs] == [nn.Identity]
        and transformer.positional_embedding == "rope"
    )
    if not (plain and all(_is_plain(layer) for layer in transformer.layers)):
        raise ValueError(UNLIKE)


def _is_plain(layer: Any) -> bool:
    attention = layer.self_attn
    return bool(
        layer.gating is None
        and layer.cross_attention is None
        and layer.activation is functional.gelu
        and attention.causal
        and attention.context
        and attention.kv_repeat == 1
        and len(attention.in_projs) == 1
    )
