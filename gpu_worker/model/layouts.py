"""The two published layouts of a CSM's weights. The model takes torchtune's names.

    torchtune       ``model.safetensors`` of sesame/csm-1b; rotary pairs interleaved
    transformers    ``CsmForConditionalGeneration``; rotary halves split, Mimi's weights included

Only names differ, and the order of rows in the query and key projections: transformers rotates
row i of a head with row i + head_dim / 2, torchtune row 2i with row 2i + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from gpu_worker.model.config import CsmConfig, TransformerConfig
from gpu_worker.model.weights import BadFile

SCALE: Final = "_scale"
"""Ends the name of an int8 matrix's scales: fp32, one per output."""
TORCHTUNE_MARK: Final = "codebook0_head.weight"
TRANSFORMERS_MARK: Final = "lm_head.weight"

# transformers' name: ours. Within a layer:
_LAYER: Final = {
    "self_attn.q_proj.weight": "attn.q_proj.weight",
    "self_attn.k_proj.weight": "attn.k_proj.weight",
    "self_attn.v_proj.weight": "attn.v_proj.weight",
    "self_attn.o_proj.weight": "attn.output_proj.weight",
    "mlp.gate_proj.weight": "mlp.w1.weight",
    "mlp.down_proj.weight": "mlp.w2.weight",
    "mlp.up_proj.weight": "mlp.w3.weight",
    "input_layernorm.weight": "sa_norm.scale",
    "post_attention_layernorm.weight": "mlp_norm.scale",
}
_BACKBONE_AUDIO: Final = "backbone_model.embed_tokens.embed_audio_tokens.weight"
_DEPTH_AUDIO: Final = "depth_decoder.model.embed_tokens.weight"
_OUTSIDE: Final = {
    "embed_text_tokens.weight": "text_embeddings.weight",
    "depth_decoder.model.inputs_embeds_projector.weight": "projection.weight",
    "lm_head.weight": "codebook0_head.weight",
    "depth_decoder.codebooks_head.weight": "audio_head",
    "backbone_model.norm.weight": "backbone.norm.scale",
    "depth_decoder.model.norm.weight": "decoder.norm.scale",
}


def torchtune_shapes(config: CsmConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model, by torchtune's name, with its shape."""
    hidden, depth = config.backbone.hidden_size, config.depth.hidden_size
    table = (config.num_codebooks * config.audio_vocab_size, hidden)
    return {
        "text_embeddings.weight": (config.text_vocab_size, hidden),
        "audio_embeddings.weight": table,
        **({} if config.tie_codebooks_embeddings else {"decoder_embeddings.weight": table}),
        "projection.weight": (depth, hidden),
        "codebook0_head.weight": (config.audio_vocab_size, hidden),
        "audio_head": (config.num_codebooks - 1, depth, config.audio_vocab_size),
        **dict(_transformer_shapes("backbone", config.backbone)),
        **dict(_transformer_shapes("decoder", config.depth)),
    }


def _transformer_shapes(
    name: str, part: TransformerConfig
) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = part.hidden_size, part.intermediate_size
    queries, keys = part.num_heads * part.head_dim, part.num_kv_heads * part.head_dim
    for index in range(part.num_layers):
        layer = f"{name}.layers.{index}"
        yield f"{layer}.attn.q_proj.weight", (queries, hidden)
        yield f"{layer}.attn.k_proj.weight", (keys, hidden)
        yield f"{layer}.attn.v_proj.weight", (keys, hidden)
        yield f"{layer}.attn.output_proj.weight", (hidden, queries)
        yield f"{layer}.mlp.w1.weight", (inner, hidden)
        yield f"{layer}.mlp.w2.weight", (hidden, inner)
        yield f"{layer}.mlp.w3.weight", (inner, hidden)
        yield f"{layer}.sa_norm.scale", (hidden,)
        yield f"{layer}.mlp_norm.scale", (hidden,)
    yield f"{name}.norm.scale", (hidden,)


def to_torchtune(tensors: Mapping[str, Tensor], config: CsmConfig) -> dict[str, Tensor]:
    """The model's tensors by torchtune's names, from either layout, checked against ``config``.

    Tensors that are no part of the model (transformers files carry the codec) are left out.
    Raises BadFile for a layout that is neither, and for a missing or misshapen tensor.
    """
    if TORCHTUNE_MARK in tensors:
        named = dict(tensors)
    elif TRANSFORMERS_MARK in tensors:
        named = _from_transformers(tensors, config)
    else:
        raise BadFile("the weights have neither torchtune's nor transformers' names")
    shapes = torchtune_shapes(config)
    for name, shape in shapes.items():
        if name not in named:
            raise BadFile(f"the weights lack {name}")
        if tuple(named[name].shape) != shape:
            raise BadFile(f"{name} is {tuple(named[name].shape)}, config.json makes it {shape}")
    if quantized := [name for name in shapes if named[name].dtype == torch.int8]:
        shapes |= _scale_shapes(named, shapes, quantized)
    for name in shapes.keys() - set(quantized):
        if not named[name].is_floating_point():
            raise BadFile(f"{name} is not of a floating type")
    return {name: named[name] for name in shapes}


def is_matrix(name: str) -> bool:
    """Whether a step multiplies by the tensor of that name; the others are tables and norms."""
    return not name.endswith(".scale") and "embeddings" not in name


def widen(named: dict[str, Tensor]) -> None:
    """Replace int8 matrices and their scales by their products, fp32, one after another."""
    for name in [name for name, each in named.items() if each.dtype == torch.int8]:
        scale = named.pop(name + SCALE)
        # [out] of [out, in], [heads, out] of [heads, in, out]
        scale = scale.unsqueeze(1)
        named[name] = named[name].float() * scale


def _scale_shapes(
    named: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], quantized: list[str]
) -> dict[str, tuple[int, ...]]:
    """The scales' shapes; BadFile unless all matrices are int8, nothing else is, and all fit."""
    if set(quantized) != {name for name in shapes if is_matrix(name)}:
        raise BadFile("either all matrices of the model are int8, or no tensor is")
    found: dict[str, tuple[int, ...]] = {}
    for name in quantized:
        shape = shapes[name]
        found[name + SCALE] = (shape[0], shape[2]) if len(shape) == 3 else (shape[0],)
    for name, expected in found.items():
        if name not in named or tuple(named[name].shape) != expected:
            raise BadFile(f"the weights lack {name} of shape {expected}")
    return found


def _from_transformers(tensors: Mapping[str, Tensor], config: CsmConfig) -> dict[str, Tensor]:
    named = {ours: tensors[theirs] for theirs, ours in _names(config).items() if theirs in tensors}
    named |= _audio_embeddings(tensors, config)
    for name, part in (("backbone", config.backbone), ("decoder", config.depth)):
        for index in range(part.num_layers):
            for kind, heads in (("q", part.num_heads), ("k", part.num_kv_heads)):
                key = f"{name}.layers.{index}.attn.{kind}_proj.weight"
                if key in named:
                    named[key] = interleave_rotary(named[key], heads)
    return named


def _names(config: CsmConfig) -> dict[str, str]:
    layers = {
        f"{theirs}.layers.{index}.{inner}": f"{ours}.layers.{index}.{inner_ours}"
        for theirs, ours, count in (
            ("backbone_model", "backbone", config.backbone.num_layers),
            ("depth_decoder.model", "decoder", config.depth.num_layers),
        )
        for index in range(count)
        for inner, inner_ours in _LAYER.items()
    }
    return _OUTSIDE | layers


def _audio_embeddings(tensors: Mapping[str, Tensor], config: CsmConfig) -> dict[str, Tensor]:
    """The table that backbone and depth decoder share, from either of its names, or both tables."""
    backbone, depth = tensors.get(_BACKBONE_AUDIO), tensors.get(_DEPTH_AUDIO)
    if config.tie_codebooks_embeddings:
        if backbone is not None and depth is not None and not _are_one(backbone, depth):
            raise BadFile("config.json ties the audio embeddings, and the file has two tables")
        found = {"audio_embeddings.weight": depth if backbone is None else backbone}
    else:
        found = {"audio_embeddings.weight": backbone, "decoder_embeddings.weight": depth}
    return {name: table for name, table in found.items() if table is not None}


def _are_one(table: Tensor, other: Tensor) -> bool:
    return table.dtype == other.dtype and table.equal(other)


def interleave_rotary(weight: Tensor, heads: int) -> Tensor:
    """A query or key projection [heads * head_dim, hidden] from split halves to pairs."""
    if weight.ndim != 2:
        raise BadFile(f"a projection is {tuple(weight.shape)} and no matrix")
    rows, hidden = weight.shape
    if rows % (2 * heads):
        raise BadFile(f"{rows} rows don't divide into {heads} heads of rotary pairs")
    halves = weight.view(heads, 2, rows // heads // 2, hidden)
    return halves.transpose(1, 2).reshape(rows, hidden)
