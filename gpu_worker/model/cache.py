"""Keys and values of all lanes, allocated once and written in place.

Three ways to attend, one per shape of call: one position in every lane (``LaneStep``), a chunk of
positions in one lane (``LaneChunk``), one fixed position of the depth decoder in every lane
(``DepthStep``). Query heads that share a key head are folded into the query length, so that no key
is ever repeated.

Whoever attends sees only the first ``span`` slots, a multiple of ``SPAN`` that the host picks to
cover every position in use. A longer span adds whole blocks of masked keys, which the kernel's
running softmax multiplies by exactly zero: the result is bitwise that of the shorter one (shown by
a test), so a long neighbour changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from gpu_worker.model.config import TransformerConfig

SPAN: Final = 512
"""Slots per block of torch's CPU attention kernel (``kvSplitSize`` of its flash attention)."""


class KVCache:
    """[layers, lanes, kv_heads, slots, head_dim] twice, zeroed: finite wherever it is read."""

    def __init__(
        self,
        config: TransformerConfig,
        lanes: int,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (config.num_layers, lanes, config.num_kv_heads, slots, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.slots = slots
        self.group = config.queries_per_kv_head

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def clear(self, lane: int) -> None:
        """Zero a lane. Needed after a non-finite row: a mask does not hide a NaN."""
        self.keys[:, lane].zero_()
        self.values[:, lane].zero_()

    def copy_out(self, lane: int, positions: int) -> Prefix:
        """A copy of a lane's first ``positions``."""
        return Prefix(
            self.keys[:, lane, :, :positions].clone(), self.values[:, lane, :, :positions].clone()
        )

    def copy_in(self, lane: int, prefix: Prefix) -> None:
        """Start a lane with the positions of ``prefix``."""
        self.keys[:, lane, :, : prefix.positions].copy_(prefix.keys)
        self.values[:, lane, :, : prefix.positions].copy_(prefix.values)


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of a prompt, [layers, kv_heads, positions, head_dim] each."""

    keys: Tensor
    values: Tensor

    @property
    def positions(self) -> int:
        return self.keys.shape[2]


class LaneStep:
    """One position in each lane: row i is lane i.

    ``slot`` [lanes] is where each row's key goes; a row that must not touch its lane points at a
    slot beyond every span. ``position`` [lanes] is the last slot that it may look at: at least 0,
    so that no row is ever fully masked.
    """

    def __init__(self, cache: KVCache, slot: Tensor, position: Tensor, span: int) -> None:
        _, lanes, kv_heads, slots, _ = cache.keys.shape
        self.cache, self.span = cache, span
        first = torch.arange(lanes * kv_heads, device=slot.device) * slots
        self.index = first + slot.repeat_interleave(kv_heads)
        reachable = torch.arange(span, device=slot.device) <= position.unsqueeze(1)
        self.mask = _additive(reachable, cache.keys.dtype)[:, None, None, :]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        lanes, kv_heads, _, head_dim = keys.shape
        keys.view(-1, head_dim).index_copy_(0, self.index, key.reshape(-1, head_dim))
        values.view(-1, head_dim).index_copy_(0, self.index, value.reshape(-1, head_dim))
        mixed = functional.scaled_dot_product_attention(
            query.reshape(lanes, kv_heads, -1, head_dim),
            keys[:, :, : self.span],
            values[:, :, : self.span],
            attn_mask=self.mask,
        )
        return mixed.reshape(lanes, -1)


class LaneChunk:
    """A chunk of positions ``start`` .. in one lane: row i is position ``start`` + i."""

    def __init__(self, cache: KVCache, lane: int, start: int, rows: int, span: int) -> None:
        self.cache, self.lane, self.start, self.span = cache, lane, start, span
        device = cache.keys.device
        last = torch.arange(start, start + rows, device=device).clamp_(max=span - 1)
        reachable = torch.arange(span, device=device) <= last.unsqueeze(1)
        self.mask = _additive(reachable, cache.keys.dtype).repeat(cache.group, 1)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer, self.lane], self.cache.values[layer, self.lane]
        rows, kv_heads, head_dim = key.shape
        keys[:, self.start : self.start + rows].copy_(key.transpose(0, 1))
        values[:, self.start : self.start + rows].copy_(value.transpose(0, 1))
        # [rows, kv, group, dim] -> [1, kv, group x rows, dim]
        grouped = query.reshape(rows, kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(
            grouped.reshape(1, kv_heads, -1, head_dim),
            keys[None, :, : self.span],
            values[None, :, : self.span],
            attn_mask=self.mask,
        )
        return mixed.view(kv_heads, -1, rows, head_dim).permute(2, 0, 1, 3).reshape(rows, -1)


class DepthStep:
    """Positions ``start`` .. ``start`` + ``count`` - 1 of one frame, the same in every lane.

    Rows are lane-major: lane 0's positions, then lane 1's. Every slot is rewritten in each frame
    before it is read, so a new frame needs no clearing. More than one position at once only makes
    sense at ``start`` 0. A frame has dozens of these calls, so the cache is sliced beforehand.
    """

    def __init__(self, cache: KVCache, start: int, count: int) -> None:
        self.start, self.count = start, count
        _, self.lanes, self.kv_heads, _, self.head_dim = cache.keys.shape
        end = start + count
        self.slots = [
            (keys[:, :, start:end], values[:, :, start:end])
            for keys, values in zip(cache.keys, cache.values, strict=True)
        ]
        self.reach = [
            (keys[:, :, :end], values[:, :, :end])
            for keys, values in zip(cache.keys, cache.values, strict=True)
        ]
        self.mask: Tensor | None = None
        if count > 1:
            reachable = torch.ones((count, end), dtype=torch.bool, device=cache.keys.device)
            reachable = reachable.tril(start)
            self.mask = _additive(reachable, cache.keys.dtype).repeat(cache.group, 1)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        slot_keys, slot_values = self.slots[layer]
        shape = (self.lanes, self.count, self.kv_heads, self.head_dim)
        slot_keys.copy_(key.reshape(shape).transpose(1, 2))
        slot_values.copy_(value.reshape(shape).transpose(1, 2))
        mixed = functional.scaled_dot_product_attention(
            self._by_key_head(query), *self.reach[layer], attn_mask=self.mask
        )
        if self.count == 1:
            return mixed.reshape(self.lanes, -1)
        # [lanes, kv, group x count, dim] -> [lanes, count, kv, group, dim]
        mixed = mixed.view(self.lanes, self.kv_heads, -1, self.count, self.head_dim)
        return mixed.permute(0, 3, 1, 2, 4).reshape(self.lanes * self.count, -1)

    def _by_key_head(self, query: Tensor) -> Tensor:
        """[rows, heads, dim] -> [lanes, kv, group x count, dim]."""
        if self.count == 1:
            return query.reshape(self.lanes, self.kv_heads, -1, self.head_dim)
        grouped = query.reshape(self.lanes, self.count, self.kv_heads, -1, self.head_dim)
        return grouped.permute(0, 2, 3, 1, 4).reshape(self.lanes, self.kv_heads, -1, self.head_dim)


def span_for(positions: int, limit: int) -> int:
    """The fewest whole blocks that hold ``positions``, at most ``limit`` slots."""
    return min(-(-positions // SPAN) * SPAN, limit)


def _additive(reachable: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key may be looked at, minus infinity elsewhere."""
    zero = torch.zeros((), dtype=dtype, device=reachable.device)
    return zero.expand(reachable.shape).masked_fill(~reachable, float("-inf"))
