"""CSM's own classes, ``gpu_worker.model``, with gradients: what is trained is what serves.

The service's model has no gradients and keeps no probabilities. Here its matrices become leaves of
the graph: it settles in products of them (``Trained``), and an ``Attention`` of whole sequences
takes the place of the caches. Layers, norms, rotary tables, embeddings and heads are the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from demo_voice.profiles import Profile
from demo_voice.tokens import begin_and_end, vocabulary_size
from gpu_worker.model.config import CsmConfig, TransformerConfig
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.layers import PackedRows
from gpu_worker.model.products import Plain
from gpu_worker.model.rotary import rotary_table


def csm_config(profile: Profile) -> CsmConfig:
    begin, end = begin_and_end()
    return CsmConfig(
        backbone=profile.backbone,
        depth=profile.depth,
        text_vocab_size=vocabulary_size(),
        audio_vocab_size=profile.codebook_size + 3,
        codebook_size=profile.codebook_size,
        codebook_pad_id=profile.codebook_size + 2,
        bos_id=begin,
        eos_id=end,
    )


class Trained(Plain):
    """A product by a leaf of the graph, whose sums are new: gradients need the old ones."""

    def onto(self, rows: Tensor, sums: Tensor) -> Tensor:
        return self(rows) + sums


class Whole:
    """Attention over whole sequences, as many positions as ``rotation`` has.

    Rows are sequence after sequence. Layers in ``watched`` leave the probabilities of their first
    two heads in ``seen``, [sequences, 2, positions, positions] each.
    """

    def __init__(
        self,
        config: TransformerConfig,
        rotation: Tensor,
        watched: Sequence[int] = (),
    ) -> None:
        self._config, self._rotation, self._watched = config, rotation, watched
        self._hidden = torch.full((len(rotation), len(rotation)), -1e4).triu(1)
        self.seen: list[Tensor] = []

    def __call__(self, layer: int, projected: Tensor) -> Tensor:
        config = self._config
        parts = projected.view(
            -1, len(self._rotation), config.num_heads + 2 * config.num_kv_heads, config.head_dim
        )
        turning, value = parts.split_with_sizes(
            [config.num_heads + config.num_kv_heads, config.num_kv_heads], dim=2
        )
        turned = self._turn(turning).transpose(1, 2)
        query, key = turned.split_with_sizes([config.num_heads, config.num_kv_heads], dim=1)
        shared = config.queries_per_kv_head
        key = key.repeat_interleave(shared, dim=1)
        value = value.transpose(1, 2).repeat_interleave(shared, dim=1)
        scores = (query / math.sqrt(config.head_dim)) @ key.transpose(-1, -2)
        chances = (scores.float() + self._hidden).softmax(dim=-1)
        if layer in self._watched:
            self.seen.append(chances[:, :2])
        return (chances.to(value.dtype) @ value).transpose(1, 2).reshape(len(projected), -1)

    def _turn(self, heads: Tensor) -> Tensor:
        """[sequences, positions, heads, head_dim], as ``gpu_worker.model.rotary`` turns them."""
        pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self._rotation).flatten(-2).type_as(heads)


class Pupil:
    """A ``CsmModel`` that can be trained."""

    def __init__(self, config: CsmConfig) -> None:
        self.model = CsmModel(config)
        # These share their memory with the leaves, and settling takes their names away.
        self._named = self.model.state_dict()
        self._leaves = _leaves(self.model)
        self._audio_head = self._leaves["audio_head"]
        self.model.settle(Trained)
        place = self.model.device
        self._turns = rotary_table(config.backbone, config.max_seq_len, place)
        self._depth_turns = rotary_table(config.depth, config.num_codebooks, place)

    def weights(self) -> dict[str, Tensor]:
        """The leaves, by name; packed projections as one."""
        return self._leaves

    def state(self) -> dict[str, Tensor]:
        """Every tensor by torchtune's name, as the artifact has it."""
        return {name: each.detach() for name, each in self._named.items()}

    def initialise(self, centres: Tensor, generator: torch.Generator) -> None:
        """Draw all weights; audio embeddings begin as one projection of the codec's centroids.

        centres: [32, codes, dimension]. So the sum of a frame's embeddings begins as its latent.
        """
        for name, weight in self._leaves.items():
            with torch.no_grad():
                if weight.ndim == 1:
                    weight.fill_(1.0)
                else:
                    weight.normal_(
                        0.0, _spread(name, weight, self.model.config), generator=generator
                    )
        vocabulary, size = (
            self.model.config.audio_vocab_size,
            self.model.config.backbone.hidden_size,
        )
        projection = torch.randn(centres.shape[2], size, generator=generator)
        projection /= math.sqrt(centres.shape[2])
        with torch.no_grad():
            table = self.model.audio_embeddings.weight.view(len(centres), vocabulary, size)
            table[1:, : centres.shape[1]] += centres[1:] @ projection
            table[0].normal_(0.0, 0.4, generator=generator)

    def embed(self, text: Tensor, is_text: Tensor, codes: Tensor, is_audio: Tensor) -> Tensor:
        """As ``CsmModel.embed_frames``, for [rows, positions] with text or audio: [.., hidden]."""
        model, codebooks = self.model, self.model.config.num_codebooks
        words = functional.embedding(text, model.text_embeddings.weight) * is_text.unsqueeze(-1)
        offsets = torch.arange(codebooks) * model.config.audio_vocab_size
        sums = functional.embedding_bag(
            (codes + offsets).view(-1, codebooks), model.audio_embeddings.weight, mode="sum"
        )
        return words + sums.view(*codes.shape[:2], -1) * is_audio.unsqueeze(-1)

    def backbone(
        self, embedded: Tensor, watched: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """[rows, positions, hidden] in and out, and what the watched layers looked at."""
        rows, positions, size = embedded.shape
        attention = Whole(self.model.config.backbone, self._turns[:positions], watched)
        hidden = self.model.backbone_rows(embedded.reshape(-1, size), attention)
        return hidden.view(rows, positions, size), attention.seen

    def first(self, hidden: Tensor) -> Tensor:
        """Logits of codebook 0 [frames, vocabulary]."""
        return self.model.settled.heads[0](hidden)

    def depth(self, hidden: Tensor, codes: Tensor, count: int) -> Tensor:
        """Logits of codebooks 1 .. ``count`` - 1 [frames, count - 1, vocabulary].

        hidden: [frames, hidden]; codes: [frames, 32], the true ones.
        """
        parts, config = self.model.settled, self.model.config
        known = codes[:, : count - 1] + torch.arange(count - 1) * config.audio_vocab_size
        said = functional.embedding(known, self.model.audio_embeddings.weight)
        rows = torch.cat([hidden.unsqueeze(1), said.to(hidden.dtype)], dim=1).flatten(0, 1)
        attention = Whole(config.depth, self._depth_turns[:count])
        rows = parts.decoder(parts.projection(rows), attention)
        rows = rows.view(len(hidden), count, -1)[:, 1:]
        heads = self._audio_head[: count - 1].to(rows.dtype)
        return torch.einsum("fkd,kdv->fkv", rows, heads)


def _leaves(model: CsmModel) -> dict[str, Tensor]:
    """Packed projections are the leaves, not their named parts, which share their memory."""
    packed = {name: each for name, each in model.named_modules() if isinstance(each, PackedRows)}
    parts = {f"{name}.{part}" for name, each in packed.items() for part in each.names}
    leaves: dict[str, Tensor] = {f"{name}.packed": each.packed for name, each in packed.items()}
    leaves |= {name: each for name, each in model.named_parameters() if name not in parts}
    for leaf in leaves.values():
        leaf.requires_grad_(True)
    return leaves


def _spread(name: str, weight: Tensor, config: CsmConfig) -> float:
    """The standard deviation to begin with."""
    if name == "text_embeddings.weight":
        return 0.5
    if name == "audio_embeddings.weight":
        return 0.02
    inputs = weight.shape[1]
    if name == "audio_head":
        return 0.5 / math.sqrt(inputs)
    if name == "projection.weight":
        return 1 / math.sqrt(inputs)
    if name.endswith(("output_proj.weight", "w2.weight")):
        part = config.depth if name.startswith("decoder.") else config.backbone
        return 0.3 / math.sqrt(inputs * 2 * part.num_layers)
    return 0.7 / math.sqrt(inputs)
