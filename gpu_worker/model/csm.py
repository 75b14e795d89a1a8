"""CSM: a backbone over frames of 33 lanes and a depth decoder over the 32 codebooks of one frame.

Parameter names are those of ``sesame/csm-1b``'s ``model.safetensors``, so that ``fill`` with a
checkpoint's tensors is the loader's whole conversion. The model holds weights only;
what changes from frame to frame lives in caches and buffers that the caller owns
(``gpu_worker.model.cache``, ``gpu_worker.step``).

One frame, for every lane at once: the backbone's hidden state gives codebook 0; the depth decoder
reads that state and then code after code, and gives codebooks 1 .. 31; the sum of the 32 codes'
embeddings goes through the backbone and gives the next hidden state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_worker.model.cache import DepthStep, KVCache
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.layers import (
    Attention,
    Multiplier,
    Projection,
    Transformer,
    Weight,
    rotary_table,
)
from gpu_worker.model.layouts import SCALE
from gpu_worker.model.products import Int8, Make, Product, product_of


class Choose(Protocol):
    """Picks one id per lane: ``logits`` [lanes, audio_vocab_size] -> int64 [lanes]."""

    def __call__(self, codebook: int, logits: Tensor) -> Tensor: ...


class CsmModel(nn.Module):
    """The weights, uninitialised until a checkpoint is loaded into them. Inference only.

    Made with ``allocate=False`` it has names and shapes but no memory until ``fill``.
    """

    def __init__(
        self,
        config: CsmConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        *,
        allocate: bool = True,
    ) -> None:
        super().__init__()
        self.dtype, self.device = dtype, torch.device(device)
        place = self.device if allocate else torch.device("meta")
        hidden, depth = config.backbone.hidden_size, config.depth.hidden_size
        vocab, rows = config.audio_vocab_size, config.audio_vocab_size * config.num_codebooks

        def matrix(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=place)

        self.config = config
        self.backbone = Transformer(config.backbone, dtype, place)
        self.decoder = Transformer(config.depth, dtype, place)
        self.text_embeddings = Weight(matrix(config.text_vocab_size, hidden))
        self.audio_embeddings = Weight(matrix(rows, hidden))
        if not config.tie_codebooks_embeddings:
            self.decoder_embeddings = Weight(matrix(rows, hidden))
        self.projection = Projection(matrix(depth, hidden))
        self.codebook0_head = Projection(matrix(vocab, hidden))
        self.audio_head = nn.Parameter(matrix(config.num_codebooks - 1, depth, vocab), False)
        self._heads: list[Product] = []
        self._head_scale: Tensor | None = None
        self._offsets = torch.arange(config.num_codebooks, device=self.device) * vocab
        self._turns = rotary_table(config.backbone, 2 * config.max_seq_len, self.device)
        self._depth_turns = rotary_table(config.depth, config.num_codebooks, self.device)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        named = sum(parameter.nbytes for parameter in self.parameters())
        products = [each.product for each in self.modules() if isinstance(each, Multiplier)]
        return named + sum(product.nbytes for product in (*products, *self._heads) if product)

    def fill(self, state: dict[str, Tensor], make: Make = product_of) -> None:
        """Take the weights over from ``state``, on this device and in this dtype, and settle.

        Leaves ``state`` empty: part after part moves, so that at most one layer exists twice.
        Matrices may be int8, with a scale beside each (``layouts.SCALE``).
        """
        for path, part in self._parts():
            own = {name: state.pop(f"{path}.{name}") for name in part.state_dict()}
            part.load_state_dict(own, strict=True, assign=True)
            own.clear()
            _take_scales(part, path, state)
            _settle(part, make)
        self.audio_head = nn.Parameter(state.pop("audio_head"), False)
        self._head_scale = state.pop(f"audio_head{SCALE}", None)
        self.settle(make)

    def settle(self, make: Make = product_of) -> None:
        """Fix every matrix in the layout of ``make``; only tables and norms keep their names.

        Does nothing to what has settled before.
        """
        _settle(self, make)
        if self._heads:
            return
        scales = self._head_scale
        self._heads = [
            make(head.T) if scales is None else Int8(head.T, scales[index])
            for index, head in enumerate(self.audio_head)
        ]
        del self.audio_head

    def _parts(self) -> Iterator[tuple[str, nn.Module]]:
        for name, child in self.named_children():
            if isinstance(child, Transformer):
                yield f"{name}.norm", child.norm
                yield from (
                    (f"{name}.layers.{index}", layer) for index, layer in enumerate(child.layers)
                )
            else:
                yield name, child

    def embed_frames(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Frames [rows, 33] of ids (codebooks 0 .. 31, then text), summed where ``mask``."""
        codebooks = self.config.num_codebooks
        audio = functional.embedding(
            tokens[:, :codebooks] + self._offsets, self.audio_embeddings.weight
        )
        text = functional.embedding(tokens[:, codebooks:], self.text_embeddings.weight)
        lanes = torch.cat([audio, text], dim=1)
        return torch.where(mask.unsqueeze(-1), lanes, torch.zeros_like(lanes)).sum(dim=1)

    def embed_codes(self, codes: Tensor) -> Tensor:
        """[lanes, 32] codes of one frame each -> [lanes, hidden]."""
        return functional.embedding(codes + self._offsets, self.audio_embeddings.weight).sum(dim=1)

    def backbone_rows(self, rows: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """One pass over embedded rows at ``positions`` [rows]; gives their hidden states."""
        return self.backbone.apply_to(rows, self._turns[positions], attention)

    def decode_frame(self, hidden: Tensor, steps: Sequence[DepthStep], choose: Choose) -> Tensor:
        """The 32 codes of each lane's next frame, int64 [lanes, 32], from ``hidden``.

        ``steps`` are those of ``depth_steps``. The position of code c is c + 1: position 0 is the
        hidden state itself, and the head of position p > 0 gives codebook p.
        """
        lanes = hidden.shape[0]
        codes = [choose(0, self.codebook0_head.times(hidden))]
        rows = torch.stack([hidden, self._depth_embedding(0, codes[0])], dim=1).flatten(0, 1)
        for step in steps:
            position = step.start + step.count - 1
            turns = self._depth_turns[step.start : position + 1]
            if step.count > 1:
                turns = turns.repeat(lanes, 1, 1)
            rows = self.projection.times(rows)
            rows = self.decoder.apply_to(rows, turns, step)
            rows = rows.view(lanes, step.count, -1)[:, -1]
            codes.append(choose(position, self._head(position, rows)))
            rows = self._depth_embedding(position, codes[-1])
        return torch.stack(codes, dim=1)

    def _head(self, codebook: int, rows: Tensor) -> Tensor:
        if self._heads:
            return self._heads[codebook - 1](rows)
        return rows @ self.audio_head[codebook - 1]

    def _depth_embedding(self, codebook: int, code: Tensor) -> Tensor:
        table = (
            self.audio_embeddings
            if self.config.tie_codebooks_embeddings
            else self.decoder_embeddings
        )
        return functional.embedding(code + codebook * self.config.audio_vocab_size, table.weight)


def _take_scales(part: nn.Module, path: str, state: dict[str, Tensor]) -> None:
    for inner, module in part.named_modules(prefix=path):
        if isinstance(module, Multiplier) and f"{inner}.{module.names[0]}{SCALE}" in state:
            scales = [state.pop(f"{inner}.{name}{SCALE}") for name in module.names]
            module.scale = torch.cat(scales)


def _settle(part: nn.Module, make: Make) -> None:
    for module in list(part.modules()):
        if isinstance(module, Multiplier) and module.product is None:
            module.settle(make)


def depth_steps(cache: KVCache, codebooks: int) -> tuple[DepthStep, ...]:
    """The depth decoder's calls for one frame: positions 0 and 1 together, then one by one."""
    return (DepthStep(cache, 0, 2), *(DepthStep(cache, p, 1) for p in range(2, codebooks)))
