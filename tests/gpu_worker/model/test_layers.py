"""Norm, rotary and packed projections, each against another way to compute it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, TransformerConfig
from gpu_worker.model.layers import (
    Block,
    Layer,
    Norm,
    RmsNorm,
    SelfAttention,
)
from gpu_worker.model.products import Plain
from gpu_worker.model.rotary import Turned, rotary_frequencies, rotary_table
from tests.gpu_worker.tiny import TINY

CPU = torch.device("cpu")


def rotate(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """[rows, heads, size] turned as the queries of a call are."""
    rows, count, size = heads.shape
    config = replace(TINY.backbone, num_heads=count, num_kv_heads=1, head_dim=size)
    turned = Turned(config, rows, heads.dtype, CPU)
    turned.take(torch.cat([heads, torch.zeros(rows, 2, size)], dim=1).flatten(1), rotation)
    return turned.query.view(heads.shape)


def llama3_frequencies(config: TransformerConfig) -> torch.Tensor:
    """transformers' own scaled frequencies."""
    theirs = LlamaConfig(
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_heads,
        head_dim=config.head_dim,
        rope_theta=config.rope_theta,
        max_position_embeddings=2048,
        rope_scaling={
            "rope_type": "llama3",
            "factor": config.rope_factor,
            "low_freq_factor": config.rope_low_freq_factor,
            "high_freq_factor": config.rope_high_freq_factor,
            "original_max_position_embeddings": config.rope_original_max_position,
        },
    )
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, CPU)
    return torch.as_tensor(frequencies)


@pytest.mark.parametrize("config", [LLAMA_1B, LLAMA_100M, TINY.backbone, TINY.depth])
def test_llama3_scaling(config: TransformerConfig) -> None:
    """Scaled frequencies are transformers', to one part in ten million."""
    torch.testing.assert_close(
        rotary_frequencies(config), llama3_frequencies(config), rtol=1e-6, atol=0
    )


def test_scaling_slows_only_the_slow_pairs() -> None:
    """The fastest pair keeps its frequency, the slowest has a 32nd of it."""
    plain = rotary_frequencies(replace(LLAMA_1B, rope_factor=1.0))
    scaled = rotary_frequencies(LLAMA_1B)

    assert plain[0] == scaled[0] == 1.0
    assert scaled[-1].item() == pytest.approx(plain[-1].item() / 32, rel=1e-6)
    assert plain[-1].item() == pytest.approx(500_000 ** -(62 / 64), rel=1e-5)


def test_interleaved_rotary_is_half_split_rotary_permuted() -> None:
    """Rotating neighbouring pairs equals transformers' rotation of the halves, reordered."""
    heads = torch.randn(9, 3, 16)
    positions = torch.arange(40, 49)
    angles = positions[:, None].float() * rotary_frequencies(TINY.backbone)
    angles = torch.cat([angles, angles], dim=-1)[None]

    ours = rotate(heads, rotary_table(TINY.backbone, 64, CPU)[positions])

    split = torch.cat([heads[..., 0::2], heads[..., 1::2]], dim=-1).transpose(0, 1)[None]
    theirs, _ = apply_rotary_pos_emb(split, split, angles.cos(), angles.sin())
    theirs = theirs[0].transpose(0, 1)
    torch.testing.assert_close(ours[..., 0::2], theirs[..., :8], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours[..., 1::2], theirs[..., 8:], rtol=1e-5, atol=1e-5)


def test_rotation_keeps_length_and_position_zero() -> None:
    """Position 0 is not turned, and turning changes no norm."""
    heads = torch.randn(2, 4, 16)
    table = rotary_table(TINY.backbone, 2048, CPU)

    assert torch.equal(rotate(heads, table[[0, 0]]), heads)
    turned = rotate(heads, table[[3, 2047]])
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm(dtype: torch.dtype) -> None:
    """The norm rounds before it scales, as Llama's does, so bf16 is equal to the bit."""
    rows = (torch.randn(5, 64) * 30).to(dtype)
    ours, theirs = RmsNorm(64, 1e-5, dtype, CPU), LlamaRMSNorm(64, 1e-5).to(dtype)
    scale = torch.randn(64).to(dtype)
    with torch.no_grad():
        ours.scale.copy_(scale)
        theirs.weight.copy_(scale)

        expected, actual = theirs(rows), Norm(ours)(rows)

    if dtype == torch.bfloat16:
        assert torch.equal(expected, actual)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_feed_forward() -> None:
    """SwiGLU of the normed rows, added to them: the gate w1 goes through silu, w3 doesn't."""
    config = replace(TINY.backbone, norm_eps=0.5)
    layer = Layer(config, torch.float32, CPU)
    layer.load_state_dict(
        {name: torch.randn(each.shape) for name, each in layer.state_dict().items()}
    )
    w1, w2, w3 = (layer.get_parameter(f"mlp.{name}.weight").clone() for name in ("w1", "w2", "w3"))
    rows, scale = torch.randn(3, 64), layer.mlp_norm.scale
    for each in (layer.attn, layer.attn.output_proj, layer.mlp, layer.mlp.w2):
        each.settle(Plain)

    normed = rows / (rows.square().mean(dim=1, keepdim=True) + 0.5).sqrt() * scale
    gate = normed @ w1.T
    expected = rows + (gate / (1 + torch.exp(-gate)) * (normed @ w3.T)) @ w2.T

    torch.testing.assert_close(Block(layer).feed(rows), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("assign", [False, True])
def test_packed_rows_follow_their_names(assign: bool) -> None:
    """The matrix a step multiplies by holds what was loaded, copied in or assigned."""
    layer = SelfAttention(TINY.backbone, torch.float32, CPU)
    state = {name: torch.randn(each.shape) for name, each in layer.state_dict().items()}

    layer.load_state_dict(state, strict=True, assign=assign)

    names = [f"{name}.weight" for name in ("q_proj", "k_proj", "v_proj")]
    assert list(state) == [*names, "output_proj.weight"]
    assert torch.equal(layer.packed, torch.cat([state[name] for name in names]))
    assert layer.get_parameter(names[1]).data_ptr() == layer.packed[64:].data_ptr()
    assert math.prod(layer.packed.shape) == sum(state[name].numel() for name in names)
