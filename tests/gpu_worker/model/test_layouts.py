"""Both published layouts of CSM's weights name the same model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import CsmConfig as TransformersConfig
from transformers import CsmForConditionalGeneration

from gpu_worker.model.config import CsmConfig, TransformerConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.layouts import interleave_rotary, to_torchtune, torchtune_shapes
from gpu_worker.model.weights import BadFile, parse_safetensors, read_verified
from shared.digests import file_sha256

CONFIG = CsmConfig(
    backbone=TransformerConfig(32, 2, 4, 2, 8, 48),
    depth=TransformerConfig(16, 1, 2, 1, 8, 24),
    text_vocab_size=60,
    bos_id=50,
    eos_id=51,
)


def torchtune_weights(config: CsmConfig = CONFIG) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator)
        for name, shape in torchtune_shapes(config).items()
    }


@pytest.fixture(scope="module")
def transformers_model() -> CsmForConditionalGeneration:
    """transformers' own CSM with random weights, described by our config.json."""
    torch.manual_seed(0)
    codec = {
        "hidden_size": 32,
        "num_filters": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
        "codebook_dim": 8,
        "vector_quantization_hidden_dimension": 8,
        "upsample_groups": 32,
    }
    document = json.loads(to_json(CONFIG))
    document["codec_config"] |= codec
    return CsmForConditionalGeneration(TransformersConfig(**document)).eval()


def test_transformers_checkpoint_file_loads(
    transformers_model: CsmForConditionalGeneration, tmp_path: Path
) -> None:
    """A file saved by transformers gives every tensor of the model, and no codec."""
    transformers_model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"

    tensors = parse_safetensors(read_verified(path, file_sha256(path)))
    named = to_torchtune(tensors, CONFIG)

    state = transformers_model.state_dict()
    assert {name: tuple(each.shape) for name, each in named.items()} == torchtune_shapes(CONFIG)
    assert any(name.startswith("codec_model") for name in tensors)
    assert named["audio_head"].equal(state["depth_decoder.codebooks_head.weight"])
    assert named["text_embeddings.weight"].equal(state["embed_text_tokens.weight"])
    assert named["audio_embeddings.weight"].equal(state["depth_decoder.model.embed_tokens.weight"])
    assert named["backbone.layers.1.mlp.w2.weight"].equal(
        state["backbone_model.layers.1.mlp.down_proj.weight"]
    )
    assert named["decoder.layers.0.mlp_norm.scale"].equal(
        state["depth_decoder.model.layers.0.post_attention_layernorm.weight"]
    )


def rotate_halves(x: Tensor, angles: Tensor) -> Tensor:
    """transformers: row i of a head turns with row i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ],
        dim=-1,
    )


def rotate_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """torchtune: row 2i of a head turns with row 2i + 1."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def test_rotary_permutation_keeps_attention_scores() -> None:
    """Rotating pairs after the permutation scores as rotating halves did before it."""
    heads, head_dim, hidden = 4, 8, 32
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, heads * head_dim, hidden, generator=generator)
    states = torch.randn(6, hidden, generator=generator)
    angles = torch.arange(6)[:, None, None] * torch.tensor([1.0, 0.3, 0.1, 0.03])

    def scores(q: Tensor, k: Tensor, rotate: object) -> Tensor:
        assert callable(rotate)
        turned_q = rotate((states @ q.T).view(6, heads, head_dim), angles)
        turned_k = rotate((states @ k.T).view(6, heads, head_dim), angles)
        return torch.einsum("qhd,khd->hqk", turned_q, turned_k) / math.sqrt(head_dim)

    ours = scores(interleave_rotary(query, heads), interleave_rotary(key, heads), rotate_pairs)

    torch.testing.assert_close(ours, scores(query, key, rotate_halves))
    assert not torch.allclose(scores(query, key, rotate_pairs), ours)


def test_torchtune_weights_pass_as_they_are() -> None:
    """Weights in torchtune's layout are not touched, and what is not the model's is left out."""
    weights = torchtune_weights()

    named = to_torchtune(weights | {"something.else": torch.zeros(1)}, CONFIG)

    assert named.keys() == weights.keys()
    assert all(named[name] is weights[name] for name in weights)


def test_untied_tables_are_both_kept(transformers_model: CsmForConditionalGeneration) -> None:
    """A model whose depth decoder has audio embeddings of its own keeps the two tables apart."""
    state = dict(transformers_model.state_dict())
    state["depth_decoder.model.embed_tokens.weight"] = (
        state["depth_decoder.model.embed_tokens.weight"] + 1
    )

    named = to_torchtune(state, replace(CONFIG, tie_codebooks_embeddings=False))

    assert (named["decoder_embeddings.weight"] - named["audio_embeddings.weight"]).gt(0.5).all()
    with pytest.raises(BadFile, match="two tables"):
        to_torchtune(state, CONFIG)


@pytest.mark.parametrize("name", ["audio_head", "backbone.layers.1.attn.k_proj.weight"])
def test_missing_tensor_is_named(name: str) -> None:
    """A tensor that is not there is named in the refusal."""
    weights = torchtune_weights()
    del weights[name]

    with pytest.raises(BadFile, match=name):
        to_torchtune(weights, CONFIG)


def test_missing_tensor_of_the_other_layout_is_named(
    transformers_model: CsmForConditionalGeneration,
) -> None:
    """The same for a transformers file, by the name that the model knows."""
    state = dict(transformers_model.state_dict())
    del state["backbone_model.layers.0.self_attn.q_proj.weight"]

    with pytest.raises(BadFile, match=r"backbone\.layers\.0\.attn\.q_proj"):
        to_torchtune(state, CONFIG)


def test_misshapen_tensors_of_the_other_layout_are_refused(
    transformers_model: CsmForConditionalGeneration,
) -> None:
    """A projection that is no matrix, and a table that is there twice in two types."""
    state = dict(transformers_model.state_dict())
    query, table = (
        "backbone_model.layers.0.self_attn.q_proj.weight",
        "depth_decoder.model.embed_tokens.weight",
    )

    with pytest.raises(BadFile, match="no matrix"):
        to_torchtune(state | {query: torch.zeros(8)}, CONFIG)
    with pytest.raises(BadFile, match="two tables"):
        to_torchtune(state | {table: state[table].double()}, CONFIG)


def test_misshapen_and_integer_tensors_are_refused() -> None:
    """Weights of another model, or of another kind, don't load by accident."""
    weights = torchtune_weights()

    with pytest.raises(BadFile, match="projection"):
        to_torchtune(weights | {"projection.weight": torch.zeros(16, 31)}, CONFIG)
    with pytest.raises(BadFile, match="floating"):
        to_torchtune(
            weights | {"projection.weight": torch.zeros(16, 32, dtype=torch.int16)}, CONFIG
        )


def test_unknown_layout_is_refused() -> None:
    """A file with neither layout's names is not guessed at."""
    with pytest.raises(BadFile, match="neither"):
        to_torchtune({"weight": torch.zeros(1)}, CONFIG)
