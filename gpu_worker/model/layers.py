"""The parts of a Llama transformer as CSM uses them, under torchtune's parameter names.

Rows are positions: every function here works on ``[rows, hidden]`` and does not know whether the
rows are lanes or the positions of one lane; what a row may look at is the attention's business
(``gpu_worker.model.cache``). Norms run in fp32 and round before they scale, as torchtune does.

Projections that read the same input are one matrix in memory (``q k v`` and ``w1 w3``); the named
parameters are row slices of it, so that a checkpoint loads by name and a step runs one product.
Once ``settle`` has been called, a matrix exists only inside its product
(``gpu_worker.model.products``) and no longer has a name.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_worker.model.config import TransformerConfig
from gpu_worker.model.even import evenly
from gpu_worker.model.products import Int8, Make, Product


class Attention(Protocol):
    """Turns this call's rows by their positions, keeps keys and values and answers the queries.

    ``projected`` is [rows, (heads + 2 x kv_heads) x head_dim]: queries, keys, values, as they come
    from one product. Returns [rows, heads x head_dim].
    """

    def __call__(self, layer: int, projected: Tensor) -> Tensor: ...


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

    @property
    def settled(self) -> Product:
        """Rows times the matrix. Raises RuntimeError before it has settled."""
        if self.product is None:
            raise RuntimeError("this matrix has not settled")
        return self.product

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
    """The scale of a root mean square norm, [size]."""

    def __init__(self, size: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.empty(size, dtype=dtype, device=device), False)


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
        output = torch.empty((config.hidden_size, query), dtype=dtype, device=device)
        self.output_proj = Projection(output)


class FeedForward(PackedRows):
    """SwiGLU: ``w2(silu(w1 x) * w3 x)``."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        names = {"w1": config.intermediate_size, "w3": config.intermediate_size}
        super().__init__(names, config.hidden_size, dtype, device)
        shape = (config.hidden_size, config.intermediate_size)
        self.w2 = Projection(torch.empty(shape, dtype=dtype, device=device))


class Layer(nn.Module):
    """One transformer block, pre-norm."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.attn = SelfAttention(config, dtype, device)
        self.mlp = FeedForward(config, dtype, device)
        self.sa_norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)
        self.mlp_norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)


class Norm:
    """Root mean square norm: fp32 inside, rounded to the row's dtype before the scale."""

    __slots__ = ("_eps", "_scale", "_shape")

    def __init__(self, norm: RmsNorm) -> None:
        self._shape, self._eps, self._scale = norm.scale.shape, norm.eps, norm.scale

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.rms_norm(rows, self._shape, None, self._eps).mul_(self._scale)


class Block:
    """A settled layer as a step runs it, without the lookups that a module's parts cost."""

    __slots__ = ("_down", "_mlp_norm", "_output", "_projections", "_sa_norm", "_up")

    def __init__(self, layer: Layer) -> None:
        self._sa_norm, self._mlp_norm = Norm(layer.sa_norm), Norm(layer.mlp_norm)
        self._projections = layer.attn.settled
        self._output = layer.attn.output_proj.settled
        self._up, self._down = layer.mlp.settled, layer.mlp.w2.settled

    def __call__(self, rows: Tensor, index: int, attention: Attention) -> Tensor:
        """[rows, hidden] in and out; ``index`` is the layer's number."""
        mixed = attention(index, self._projections(self._sa_norm(rows)))
        return self.feed(self._output.onto(mixed, rows))

    def feed(self, rows: Tensor) -> Tensor:
        gate, up = self._up(self._mlp_norm(rows)).chunk(2, dim=-1)
        return self._down.onto(evenly(functional.silu, gate).mul_(up), rows)


class Transformer(nn.Module):
    """A stack of blocks and the final norm; no embeddings, no head."""

    def __init__(self, config: TransformerConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, dtype, device) for _ in range(config.num_layers))
        self.norm = RmsNorm(config.hidden_size, config.norm_eps, dtype, device)

    def blocks(self) -> Blocks:
        """What a step runs, once every matrix has settled."""
        layers = [layer for layer in self.layers if isinstance(layer, Layer)]
        return Blocks([Block(layer) for layer in layers], Norm(self.norm))


class Blocks:
    """A settled transformer."""

    def __init__(self, blocks: list[Block], norm: Norm) -> None:
        self._blocks, self._norm = blocks, norm

    def __call__(self, rows: Tensor, attention: Attention) -> Tensor:
        """[rows, hidden] in and out, after the final norm."""
        for index, block in enumerate(self._blocks):
            rows = block(rows, index, attention)
        return self._norm(rows)
