"""Keys and values of all lanes, allocated once and written in place.

Three ways to attend, one per shape of call: one position in every lane (``LaneStep``), a chunk of
positions in one lane (``LaneChunk``), one fixed position of the depth decoder in every lane
(``DepthStep``). Query heads that share a key head are folded into the query length, so that no key
is ever repeated; where a call has one position per lane, key heads are folded into the batch, so
that the kernel's result lies as the next product reads it.

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
from gpu_worker.model.rotary import Turned

SPAN: Final = 512
"""Slots per block of torch's CPU attention kernel (``kvSplitSize`` of its flash attention)."""

Reach = list[tuple[Tensor, Tensor]]
"""Each layer's keys and values up to some slot, [lanes x kv_heads, 1, slots, head_dim] each."""


class KVCache:
    """[layers, 2, lanes, kv_heads, slots, head_dim], keys then values, zeroed: always finite."""

    def __init__(
        self,
        config: TransformerConfig,
        lanes: int,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (config.num_layers, 2, lanes, config.num_kv_heads, slots, config.head_dim)
        self.pairs = torch.zeros(shape, dtype=dtype, device=device)
        self.keys, self.values = self.pairs[:, 0], self.pairs[:, 1]
        self.config, self.lanes, self.slots = config, lanes, slots
        self.layers = list(self.pairs)
        self.rows = [layer.view(-1, config.head_dim) for layer in self.layers]
        folded = self.pairs.flatten(2, 3).unsqueeze(3)
        self._folded = list(zip(folded[:, 0], folded[:, 1], strict=True))

    @property
    def nbytes(self) -> int:
        return self.pairs.nbytes

    def reach(self, span: int) -> Reach:
        """Views of the first ``span`` slots of every layer."""
        return [(keys[:, :, :span], values[:, :, :span]) for keys, values in self._folded]

    def clear_unless(self, lane: int, finite: Tensor) -> None:
        """Zero a lane, unless ``finite``, bool []. A mask does not hide a NaN.

        Only a CPU is asked: another device would first have to do all that it was given. To look
        at every number of the lane costs it less.
        """
        if finite.device.type != "cpu":
            self.pairs[:, :, lane].masked_fill_(~finite, 0.0)
        elif not finite:
            self.pairs[:, :, lane].zero_()

    def copy_out(self, lane: int, positions: int) -> Prefix:
        """A copy of a lane's first ``positions``."""
        return Prefix(self.pairs[:, :, lane, :, :positions].clone())

    def copy_in(self, lane: int, prefix: Prefix) -> None:
        """Start a lane with the positions of ``prefix``."""
        self.pairs[:, :, lane, :, : prefix.positions].copy_(prefix.pairs)


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of a prompt, [layers, 2, kv_heads, positions, head_dim]."""

    pairs: Tensor

    @property
    def positions(self) -> int:
        return self.pairs.shape[3]


class LaneStep:
    """One position in each lane: row i is lane i, turned by row i of ``rotation``.

    ``slot`` [lanes] is where each row's key goes; a row that must not touch its lane points at a
    slot beyond every span. ``position`` [lanes] is the last slot that it may look at: at least 0,
    so that no row is ever fully masked.
    """

    def __init__(
        self,
        cache: KVCache,
        turned: Turned,
        rotation: Tensor,
        slot: Tensor,
        position: Tensor,
        span: int,
    ) -> None:
        self.cache, self.turned, self.rotation = cache, turned, rotation
        _, _, lanes, kv_heads, slots, _ = cache.pairs.shape
        rows = torch.arange(2 * lanes * kv_heads, device=slot.device) * slots
        # [2, lanes, kv] -> [lanes, 2, kv], as key_value lies
        rows = rows.view(2, lanes, kv_heads).transpose(0, 1) + slot.view(lanes, 1, 1)
        self.index = (rows,)
        self.reach = cache.reach(span)
        reachable = torch.arange(span, device=slot.device) <= position.unsqueeze(1)
        mask = _additive(reachable, cache.pairs.dtype)
        self.mask = mask.repeat_interleave(kv_heads, dim=0)[:, None, None, :]
        self.query = _by_key_head(turned.query, cache)

    def __call__(self, layer: int, projected: Tensor) -> Tensor:
        turned, rows = self.turned, self.cache.rows[layer]
        turned.take(projected, self.rotation)
        rows.index_put_(self.index, turned.key_value.to(rows.dtype))
        keys, values = self.reach[layer]
        mixed = functional.scaled_dot_product_attention(self.query, keys, values, self.mask)
        return mixed.view_as(turned.query)


class LaneChunk:
    """A chunk of positions ``start`` .. in one lane: row i is position ``start`` + i."""

    def __init__(self, cache: KVCache, lane: int, start: int, rotation: Tensor, span: int) -> None:
        config, device, rows = cache.config, cache.pairs.device, rotation.shape[0]
        self.rotation, self.heads = rotation, config.num_kv_heads
        self.turned = Turned(config, rows, cache.pairs.dtype, device)
        # [rows, 2, kv, dim] -> [2, kv, rows, dim]
        self.key_value = self.turned.key_value.permute(1, 2, 0, 3)
        self.slots = [layer[:, lane, :, start : start + rows] for layer in cache.layers]
        self.reach = [layer[:, lane, None, :, :span] for layer in cache.layers]
        last = torch.arange(start, start + rows, device=device).clamp_(max=span - 1)
        reachable = torch.arange(span, device=device) <= last.unsqueeze(1)
        group = config.queries_per_kv_head
        self.mask = _additive(reachable, cache.pairs.dtype).repeat(group, 1)

    def __call__(self, layer: int, projected: Tensor) -> Tensor:
        turned, size = self.turned, self.turned.key_value.shape[-1]
        turned.take(projected, self.rotation)
        self.slots[layer].copy_(self.key_value)
        rows = turned.query.shape[0]
        # [rows, kv, group, dim] -> [1, kv, group x rows, dim]
        grouped = turned.query.view(rows, self.heads, -1, size).permute(1, 2, 0, 3)
        grouped = grouped.reshape(1, self.heads, -1, size)
        keys, values = self.reach[layer]
        mixed = functional.scaled_dot_product_attention(grouped, keys, values, self.mask)
        return mixed.view(self.heads, -1, rows, size).permute(2, 0, 1, 3).reshape(rows, -1)


class DepthStart:
    """Positions 0 and 1 of one frame in every lane. Rows are lane-major: lane 0's two, lane 1's.

    ``table`` holds the rotations of all positions. Every slot is rewritten in each frame before it
    is read, so a new frame needs no clearing. A frame has dozens of depth calls: all views are made
    beforehand.
    """

    def __init__(self, cache: KVCache, table: Tensor) -> None:
        config, lanes, dtype = cache.config, cache.lanes, cache.pairs.dtype
        kv_heads, size = config.num_kv_heads, config.head_dim
        self.turned = Turned(config, 2 * lanes, dtype, cache.pairs.device)
        self.rotation = table[:2].repeat(lanes, 1, 1)
        # [lanes x 2, 2, kv, dim] -> [2, lanes, kv, 2, dim]
        pairs = self.turned.key_value.view(lanes, 2, 2, kv_heads, size)
        self.key_value = pairs.permute(2, 0, 3, 1, 4)
        self.slots = [layer[:, :, :, :2] for layer in cache.layers]
        self.reach = cache.reach(2)
        # [lanes, 2, kv, group, dim] -> [lanes, kv, group, 2, dim]
        query = self.turned.query.view(lanes, 2, kv_heads, -1, size)
        self.query = query.permute(0, 2, 3, 1, 4)
        reachable = torch.ones((2, 2), dtype=torch.bool, device=cache.pairs.device).tril()
        self.mask = _additive(reachable, dtype).repeat(config.queries_per_kv_head, 1)

    def __call__(self, layer: int, projected: Tensor) -> Tensor:
        self.turned.take(projected, self.rotation)
        self.slots[layer].copy_(self.key_value)
        keys, values = self.reach[layer]
        query = self.query.flatten(2, 3).flatten(0, 1).unsqueeze(1)
        mixed = functional.scaled_dot_product_attention(query, keys, values, self.mask)
        mixed = mixed.view(self.query.shape).permute(0, 3, 1, 2, 4)
        return mixed.reshape(self.turned.query.shape)


class DepthStep:
    """One position, from 2 on, in every lane; otherwise as ``DepthStart``.

    ``turned`` has a row per lane and is shared by the calls of a frame.
    """

    def __init__(self, cache: KVCache, turned: Turned, table: Tensor, position: int) -> None:
        self.position, self.turned = position, turned
        self.rotation = table[position]
        # [lanes, 2, kv, dim] -> [2, lanes, kv, 1, dim]
        self.key_value = turned.key_value.transpose(0, 1).unsqueeze(3)
        self.slots = [layer[:, :, :, position : position + 1] for layer in cache.layers]
        self.reach = cache.reach(position + 1)
        self.query = _by_key_head(turned.query, cache)

    def __call__(self, layer: int, projected: Tensor) -> Tensor:
        self.turned.take(projected, self.rotation)
        self.slots[layer].copy_(self.key_value)
        keys, values = self.reach[layer]
        mixed = functional.scaled_dot_product_attention(self.query, keys, values)
        return mixed.view_as(self.turned.query)


def span_for(positions: int, limit: int) -> int:
    """The fewest whole blocks that hold ``positions``, at most ``limit`` slots."""
    return min(-(-positions // SPAN) * SPAN, limit)


def spans(limit: int) -> list[int]:
    """All that ``span_for`` may say, rising."""
    return [*range(SPAN, limit, SPAN), limit]


def _by_key_head(query: Tensor, cache: KVCache) -> Tensor:
    """[lanes, heads x dim] -> [lanes x kv_heads, 1, group, dim], as ``KVCache.reach`` lies."""
    config = cache.config
    rows = cache.lanes * config.num_kv_heads
    return query.view(rows, 1, config.queries_per_kv_head, config.head_dim)


def _additive(reachable: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key may be looked at, minus infinity elsewhere."""
    zero = torch.zeros((), dtype=dtype, device=reachable.device)
    return zero.expand(reachable.shape).masked_fill(~reachable, float("-inf"))
