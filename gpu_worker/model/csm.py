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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_worker.model.cache import DepthStart, DepthStep, KVCache
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.layers import (
    Attention,
    Blocks,
    Multiplier,
    Projection,
    Transformer,
    Weight,
)
from gpu_worker.model.layouts import SCALE
from gpu_worker.model.products import Int8, Make, Product, product_of
from gpu_worker.model.rotary import Turned, rotary_table


class Choose(Protocol):
    """Picks one id per lane: ``logits`` [lanes, audio_vocab_size] -> int64 [lanes]."""

    def __call__(self, codebook: int, logits: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class DepthCalls:
    """The depth decoder's calls for one frame: positions 0 and 1 together, then one by one."""

    start: DepthStart
    steps: tuple[DepthStep, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """A model as a step runs it, without the lookups that modules cost.

    ``heads`` and ``tables`` are those of each codebook: its logits' product, and its rows of the
    depth decoder's embeddings.
    """

    backbone: Blocks
    decoder: Blocks
    projection: Product
    heads: tuple[Product, ...]
    tables: tuple[Tensor, ...]


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
        self._settled: Settled | None = None
        self._head_scale: Tensor | None = None
        self._offsets = torch.arange(config.num_codebooks, device=self.device) * vocab
        self._turns = rotary_table(config.backbone, 2 * config.max_seq_len, self.device)
        self._depth_turns = rotary_table(config.depth, config.num_codebooks, self.device)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        named = sum(parameter.nbytes for parameter in self.parameters())
        products = [each.product for each in self.modules() if isinstance(each, Multiplier)]
        heads = self._settled.heads[1:] if self._settled else ()
        return named + sum(product.nbytes for product in (*products, *heads) if product)

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

        Needed before frames are decoded. Does nothing to what has settled before.
        """
        _settle(self, make)
        if self._settled:
            return
        scales = self._head_scale
        heads = [
            make(head.T) if scales is None else Int8(head.T, scales[index])
            for index, head in enumerate(self.audio_head)
        ]
        del self.audio_head
        tied = self.config.tie_codebooks_embeddings
        table = self.audio_embeddings if tied else self.decoder_embeddings
        self._settled = Settled(
            backbone=self.backbone.blocks(),
            decoder=self.decoder.blocks(),
            projection=self.projection.settled,
            heads=(self.codebook0_head.settled, *heads),
            tables=torch.split(table.weight, self.config.audio_vocab_size),
        )

    @property
    def settled(self) -> Settled:
        """What a step runs. Raises RuntimeError before ``settle``."""
        if self._settled is None:
            raise RuntimeError("the model has not settled")
        return self._settled

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

    def backbone_rows(self, rows: Tensor, attention: Attention) -> Tensor:
        """One pass over embedded rows; gives their hidden states."""
        return self.settled.backbone(rows, attention)

    def rotation(self, positions: Tensor) -> Tensor:
        """The backbone's rotations at ``positions`` [rows], as its attention takes them."""
        return self._turns[positions]

    def depth_calls(self, cache: KVCache) -> DepthCalls:
        """Calls that keep a frame's keys and values in ``cache``, in buffers of their own."""
        turned = Turned(self.config.depth, cache.lanes, self.dtype, self.device)
        table = self._depth_turns
        steps = (DepthStep(cache, turned, table, p) for p in range(2, self.config.num_codebooks))
        return DepthCalls(DepthStart(cache, table), tuple(steps))

    def decode_frame(self, hidden: Tensor, calls: DepthCalls, choose: Choose) -> Tensor:
        """The 32 codes of each lane's next frame, int64 [lanes, 32], from ``hidden``.

        ``calls`` are those of ``depth_calls``. The position of code c is c + 1: position 0 is the
        hidden state itself, and the head of position p > 0 gives codebook p.
        """
        parts = self.settled
        codes = [choose(0, parts.heads[0](hidden))]
        rows = torch.stack([hidden, torch.embedding(parts.tables[0], codes[0])], dim=1)
        rows = parts.decoder(parts.projection(rows.flatten(0, 1)), calls.start)[1::2]
        codes.append(choose(1, parts.heads[1](rows)))
        for step in calls.steps:
            rows = torch.embedding(parts.tables[step.position - 1], codes[-1])
            rows = parts.decoder(parts.projection(rows), step)
            codes.append(choose(step.position, parts.heads[step.position](rows)))
        return torch.stack(codes, dim=1)


def _take_scales(part: nn.Module, path: str, state: dict[str, Tensor]) -> None:
    for inner, module in part.named_modules(prefix=path):
        if isinstance(module, Multiplier) and f"{inner}.{module.names[0]}{SCALE}" in state:
            scales = [state.pop(f"{inner}.{name}{SCALE}") for name in module.names]
            module.scale = torch.cat(scales)


def _settle(part: nn.Module, make: Make) -> None:
    for module in list(part.modules()):
        if isinstance(module, Multiplier) and module.product is None:
            module.settle(make)
