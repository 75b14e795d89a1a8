"""The parts of a Llama transformer as CSM uses them, under torchtune's parameter names.

Rows are positions: every function here works on ``[rows, hidden]`` and does not know whether the
rows are lanes or the positions of one lane; what a row may look at is the attention's business
(``gpu_worker.model.cache``). Norms and rotary run in fp32 and round once, as torchtune does.

Projections that read the same input are one matrix in memory (``q k v`` and ``w1 w3``); the named
parameters are row slices of it, so that a checkpoint loads by name and a step runs one product.
Once ``settle`` has been called, a matrix exists only inside its product
(``gpu_worker.model.products``) and no longer has a name.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_worker.model.config import TransformerConfig
from gpu_worker.model.products import Int8, Make, Product


class Attention(Protocol):
    """Keeps the keys and values of this call's rows and answers its queries.

    ``query`` is [rows, heads, head_dim], ``key`` and ``value`` [rows, kv_heads, head_dim], rotated.
    Returns [rows, heads x head_dim].
    """

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...


class Weight(nn.Module):
    """A matrix called ``weight``: an embedding [ids, size], or part of a projection [out, in]."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor, requires_grad=False)


class Multiplier(nn.Module):
    """Rows times one matrix; how that is done is decided when it settles."""

    product: Product | None = None
    scale: Tensor | None = None
    """Of the rows of an int8 matrix, fp32 [out]."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that make up the matrix, in the order of their rows."""
        raise NotImplementedError

    def matrix(self) -> Tensor:
        """The dense matrix [out, in], before it settles."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the dense matrix."""
        raise NotImplementedError

    def times(self, rows: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if self.product is None:
            return functional.linear(rows, self.matrix())
        return self.product(rows)

    def settle(self, make: Make) -> None:
        """From here on the matrix is fixed: only ``make``'s product holds it."""
        matrix = self.matrix()
        self.product = make(matrix) if self.scale is None else Int8(matrix, self.scale)
        self.scale = None
        self.forget()

    @property
    def nbytes(self) -> int:
        return self.matrix().nbytes if self.product is None else self.product.nbytes


class Projection(Multiplier):
    """A matrix called ``weight``, [out, in]."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensor, requires_grad=False)

    @property
    def names(self) -> tuple[str, ...]:
        return ("weight",)

    def matrix(self) -> Tensor:
        return self.weight

    def forget(self) -> None:
        del self.weight


class RmsNorm(nn.Module):
    """Root mean square norm: fp32 inside, rounded to the row's dtype before the scale."""

    def __init__(self, size: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.empty(size, dtype=dtype, device=device), False)

    def apply_to(self, rows: Tensor) -> Tensor:
        normed = functional.rms_norm(rows.float(), (rows.shape[-1],), None, self.eps)
        return normed.type_as(rows) * self.scale


class PackedRows(Multiplier):
    """Several projections of one input, stacked in one matrix that a step multiplies by once."""

    def __init__(
        self, names: dict[str, int], inputs: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self._names = tuple(names)
        self._sizes = list(names.values())
        self.packed = torch.empty((sum(self._sizes), inputs), dtype=dtype, device=device)
        for name, part in zip(self._names, torch.split(self.packed, self._sizes), strict=True):
            self.add_module(name, Weight(part))
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda module, _: module.repack()
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}.weight" for name in self._names)

    def matrix(self) -> Tensor:
        return self.packed

    def forget(self) -> None:
        del self.packed
        for name in self._names:
            delattr(self, name)

    def repack(self) -> None:
        """Stack the named parameters again if a loader replaced them instead of filling them."""
        weights = [self.get_parameter(f"{name}.weight") for name in self._names]
        views = torch.split(self.packed, self._sizes)
        if all(w.data_ptr() == v.data_ptr() for w, v in zip(weights, views, strict=True)):
            return
        self.packed = torch.cat([weight.data for weight in weights])
        for weight, view in zip(weights, torch.split(self.packed, self._sizes), strict=True):
            weight.data = view


class SelfAttention(PackedRows):
    """Grouped-query attention's four projections; ``output_proj`` is apart from ``q k v``."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        query = config.num_heads * config.head_dim
        key = config.num_kv_heads * config.head_dim
        names = {"q_proj": query, "k_proj": key, "v_proj": key}
        super().__init__(names, config.hidden_size, dtype, device)
        self.heads, self.kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        output = torch.empty((config.hidden_size, query), dtype=dtype, device=device)
        self.output_proj = Projection(output)

    def mix(self, rows: Tensor, rotation: Tensor, layer: int, attention: Attention) -> Tensor:
        """``rotation``: see ``rotary_table``, one row per row, or one for all."""
        projected = self.times(rows).view(rows.shape[0], -1, self.head_dim)
        turning, value = projected.split_with_sizes(
            [self.heads + self.kv_heads, self.kv_heads], dim=1
        )
        query, key = rotate(turning, rotation).split_with_sizes([self.heads, self.kv_heads], dim=1)
        mixed = attention(layer, query, key, value)
        return self.output_proj.times(mixed)


class FeedForward(PackedRows):
    """SwiGLU: ``w2(silu(w1 x) * w3 x)``."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        names = {"w1": config.intermediate_size, "w3": config.intermediate_size}
        super().__init__(names, config.hidden_size, dtype, device)
        shape = (config.hidden_size, config.intermediate_size)
        self.w2 = Projection(torch.empty(shape, dtype=dtype, device=device))

    def apply_to(self, rows: Tensor) -> Tensor:
        gate, up = self.times(rows).chunk(2, dim=-1)
        return self.w2.times(functional.silu(gate) * up)


class Layer(nn.Module):
    """One transformer block, pre-norm."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.attn = SelfAttention(config, dtype, device)
        self.mlp = FeedForward(config, dtype, device)
        self.sa_norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)
        self.mlp_norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)


class Transformer(nn.Module):
    """A stack of blocks and the final norm; no embeddings, no head."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, dtype, device) for _ in range(config.num_layers))
        self.norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)

    def apply_to(self, rows: Tensor, rotation: Tensor, attention: Attention) -> Tensor:
        """[rows, hidden] in and out, after the final norm."""
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            rows = rows + layer.attn.mix(layer.sa_norm.apply_to(rows), rotation, index, attention)
            rows = rows + layer.mlp.apply_to(layer.mlp_norm.apply_to(rows))
        return self.norm.apply_to(rows)


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


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Turn [rows, heads, head_dim] by [rows or 1, 1, head_dim / 2]; pairs are neighbours."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2).type_as(heads)
