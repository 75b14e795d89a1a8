"""The model's caches and calls against themselves; against transformers' CSM: test_parity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpu_worker.model.cache import DepthStep, KVCache, LaneChunk, LaneStep
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.csm import CsmModel
from gpu_worker.prompt import text_frames
from tests.gpu_worker.tiny import TINY, random_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def test_depth_decoder_reads_the_hidden_state_first() -> None:
    """Positions 0 and 1 in one call give what two calls of one position give."""
    model = random_model()
    rows = torch.randn(2, 2, 48)
    together = KVCache(TINY.depth, 2, 32, torch.float32, CPU)
    apart = KVCache(TINY.depth, 2, 32, torch.float32, CPU)
    turns = model._depth_turns

    both = model.decoder.apply_to(
        rows.flatten(0, 1), turns[:2].repeat(2, 1, 1), DepthStep(together, 0, 2)
    )
    model.decoder.apply_to(rows[:, 0], turns[[0, 0]], DepthStep(apart, 0, 1))
    second = model.decoder.apply_to(rows[:, 1], turns[[1, 1]], DepthStep(apart, 1, 1))

    torch.testing.assert_close(both.view(2, 2, -1)[:, 1], second, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.keys, apart.keys, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_longer_span_changes_no_bit(dtype: torch.dtype) -> None:
    """Keys masked in whole blocks leave a row's attention as it is, so neighbours don't matter."""
    config = TINY.backbone
    cache = KVCache(config, 3, 2080, dtype, CPU)
    cache.keys.normal_()
    cache.values.normal_()
    position = torch.tensor([0, 17, 500])
    query = torch.randn(3, 4, 16).to(dtype)
    row = torch.randn(3, 2, 16).to(dtype)

    short = LaneStep(cache, position, position, 512)(1, query, row, row)
    longer = [
        LaneStep(cache, position, position, span)(1, query, row, row) for span in (1024, 1536, 2048)
    ]

    assert all(torch.equal(short, each) for each in longer)


def test_rows_of_other_lanes_stay_untouched() -> None:
    """A step writes each lane's own slot and nothing else; a resting lane's goes to the side."""
    cache = KVCache(TINY.backbone, 3, 600, torch.float32, CPU)
    position, slot = torch.tensor([4, 0, 9]), torch.tensor([4, 599, 9])
    row = torch.ones(3, 2, 16)

    LaneStep(cache, slot, position, 512)(0, torch.randn(3, 4, 16), row, row)

    written = cache.keys[0].ne(0).any(dim=-1).any(dim=1).nonzero().tolist()
    assert written == [[0, 4], [1, 599], [2, 9]]
    assert not cache.keys[1:].any()


def test_prefix_copy_is_a_prefill() -> None:
    """A lane that starts from copied keys and values goes on as the lane they came from."""
    model = random_model()
    cache = KVCache(TINY.backbone, 3, 600, torch.float32, CPU)
    prompt = text_frames([TINY.bos_id, *range(20), TINY.eos_id])
    rows = model.embed_frames(prompt.tokens, prompt.mask)
    head, tail = torch.arange(16), torch.arange(16, 22)
    model.backbone_rows(rows[:16], head, LaneChunk(cache, 0, 0, 16, 512))

    cache.copy_in(2, cache.copy_out(0, 16))
    straight = model.backbone_rows(rows[16:], tail, LaneChunk(cache, 0, 16, 6, 512))
    copied = model.backbone_rows(rows[16:], tail, LaneChunk(cache, 2, 16, 6, 512))

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
