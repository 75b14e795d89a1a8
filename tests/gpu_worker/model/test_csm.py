"""The model's caches and calls against themselves; against transformers' CSM: test_parity."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_worker.model.cache import DepthStart, DepthStep, KVCache, LaneChunk, LaneStep
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.rotary import Turned, rotary_table
from gpu_worker.prompt import text_frames
from tests.gpu_worker.tiny import TINY, random_model

pytestmark = pytest.mark.usefixtures("in_inference_mode")

CPU = torch.device("cpu")


def test_depth_decoder_reads_the_hidden_state_first() -> None:
    """Positions 0 and 1 in one call give what two calls of one position give."""
    model = random_model()
    model.settle()
    rows = torch.randn(2, 2, 48)
    together = KVCache(TINY.depth, 2, 32, torch.float32, CPU)
    apart = KVCache(TINY.depth, 2, 32, torch.float32, CPU)
    table, turned = rotary_table(TINY.depth, 2, CPU), Turned(TINY.depth, 2, torch.float32, CPU)

    both = model.settled.decoder(rows.flatten(0, 1), DepthStart(together, table))
    model.settled.decoder(rows[:, 0], DepthStep(apart, turned, table, 0))
    second = model.settled.decoder(rows[:, 1], DepthStep(apart, turned, table, 1))

    torch.testing.assert_close(both.view(2, 2, -1)[:, 1], second, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.keys, apart.keys, rtol=1e-5, atol=1e-5)


def lane_step(cache: KVCache, slot: Tensor, position: Tensor, span: int) -> LaneStep:
    turned = Turned(cache.config, cache.lanes, cache.pairs.dtype, CPU)
    rotation = rotary_table(cache.config, 512, CPU)[position]
    return LaneStep(cache, turned, rotation, slot, position, span)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_longer_span_changes_no_bit(dtype: torch.dtype) -> None:
    """Keys masked in whole blocks leave a row's attention as it is, so neighbours don't matter."""
    cache = KVCache(TINY.backbone, 3, 2080, dtype, CPU)
    cache.pairs.normal_()
    position = torch.tensor([0, 17, 500])
    projected = torch.randn(3, 8 * 16).to(dtype)

    short = lane_step(cache, position, position, 512)(1, projected)
    longer = [
        lane_step(cache, position, position, span)(1, projected) for span in (1024, 1536, 2048)
    ]

    assert all(torch.equal(short, each) for each in longer)


def test_rows_of_other_lanes_stay_untouched() -> None:
    """A step writes each lane's own slot and nothing else; a resting lane's goes to the side.

    Its row of queries, keys and values is split as the product lays it out; values aren't turned.
    """
    cache = KVCache(TINY.backbone, 3, 600, torch.float32, CPU)
    position, slot = torch.tensor([4, 0, 9]), torch.tensor([4, 599, 9])
    projected = torch.randn(3, 8 * 16)

    lane_step(cache, slot, position, 512)(0, projected)

    for half in (cache.keys[0], cache.values[0]):
        written = half.ne(0).any(dim=-1).any(dim=1).nonzero().tolist()
        assert written == [[0, 4], [1, 599], [2, 9]]
    assert torch.equal(cache.values[0, 2, :, 9], projected[2].view(8, 16)[6:])
    assert torch.equal(cache.keys[0, 1, :, 599], projected[1].view(8, 16)[4:6])
    assert not cache.pairs[1:].any()


def test_prefix_copy_is_a_prefill() -> None:
    """A lane that starts from copied keys and values goes on as the lane they came from."""
    model = random_model()
    model.settle()
    cache = KVCache(TINY.backbone, 3, 600, torch.float32, CPU)
    prompt = text_frames([TINY.bos_id, *range(20), TINY.eos_id])
    rows = model.embed_frames(prompt.tokens, prompt.mask)
    head, tail = (model.rotation(torch.arange(*ends)) for ends in ((16,), (16, 22)))
    model.backbone_rows(rows[:16], LaneChunk(cache, 0, 0, head, 512))

    cache.copy_in(2, cache.copy_out(0, 16))
    straight = model.backbone_rows(rows[16:], LaneChunk(cache, 0, 16, tail, 512))
    copied = model.backbone_rows(rows[16:], LaneChunk(cache, 2, 16, tail, 512))

    assert torch.equal(straight, copied)


def test_parameters_are_those_of_the_published_file() -> None:
    """CSM-1B's tensors by torchtune's names and shapes, 1.6 G parameters in all."""
    model = CsmModel(CsmConfig.csm_1b(), torch.bfloat16, "meta")
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}

    assert shapes["backbone.layers.15.attn.k_proj.weight"] == (512, 2048)
    assert shapes["decoder.layers.3.attn.output_proj.weight"] == (1024, 1024)
    assert shapes["decoder.layers.0.mlp.w2.weight"] == (1024, 8192)
    assert shapes["backbone.norm.scale"] == (2048,)
    assert shapes["audio_head"] == (31, 1024, 2051)
    assert shapes["audio_embeddings.weight"] == (32 * 2051, 2048)
    assert shapes["projection.weight"] == (1024, 2048)
    assert len(shapes) == 20 * 9 + 2 + 5
    assert 1.5e9 < sum(each.numel() for each in model.parameters()) < 1.7e9
