"""The model against transformers' CSM on the same random weights, and against itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.model.cache import DepthStep, KVCache, LaneChunk, LaneStep
from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, CsmConfig
from gpu_worker.model.csm import CsmModel, depth_steps
from gpu_worker.model.layouts import to_torchtune
from gpu_worker.prompt import Frames, context_segment, join, text_frames
from tests.gpu_worker.tiny import TINY, oracle, random_model

CPU = torch.device("cpu")
FRAMES = 24
OTHER = CsmConfig(
    backbone=replace(
        LLAMA_1B,
        hidden_size=96,
        num_layers=2,
        num_heads=6,
        num_kv_heads=6,
        head_dim=32,
        intermediate_size=64,
    ),
    depth=replace(
        LLAMA_100M,
        hidden_size=32,
        num_layers=3,
        num_heads=8,
        num_kv_heads=4,
        head_dim=8,
        intermediate_size=160,
    ),
    text_vocab_size=400,
    bos_id=320,
    eos_id=321,
)


class Heads:
    """A greedy choice that keeps every head's logits: [lanes, vocabulary] per codebook."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def __call__(self, codebook: int, logits: Tensor) -> Tensor:
        self.logits.append(logits)
        return logits[:, :2048].argmax(dim=1)


def generate(
    model: CsmModel, prompt: Frames, frames: int, lane: int = 1, lanes: int = 2
) -> tuple[Tensor, list[Tensor]]:
    """Greedy codes [frames, 32] in ``lane``, and its logits of each head in order."""
    config, positions = model.config, len(prompt)
    cache = KVCache(config.backbone, lanes, 1024, model.dtype, CPU)
    steps = depth_steps(KVCache(config.depth, lanes, 32, model.dtype, CPU), 32)
    heads, codes = Heads(), []
    position = torch.zeros(lanes, dtype=torch.int64)
    hidden = torch.zeros(lanes, config.backbone.hidden_size, dtype=model.dtype)
    rows = model.backbone_rows(
        model.embed_frames(prompt.tokens, prompt.mask),
        torch.arange(positions),
        LaneChunk(cache, lane, 0, positions, 512),
    )
    hidden[lane], position[lane] = rows[-1], positions
    for _ in range(frames):
        frame = model.decode_frame(hidden, steps, heads)
        codes.append(frame[lane])
        attention = LaneStep(cache, position, position, 512)
        hidden = model.backbone_rows(model.embed_codes(frame), position, attention)
        position[lane] += 1
    return torch.stack(codes), [each[lane] for each in heads.logits]


@pytest.fixture(params=[TINY, OTHER], ids=["grouped", "other"], scope="module")
def pair(request: pytest.FixtureRequest) -> tuple[Any, CsmModel]:
    theirs = oracle(request.param)
    ours = CsmModel(request.param)
    ours.load_state_dict(to_torchtune(theirs.state_dict(), request.param), strict=True)
    return theirs, ours


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def listen(theirs: Any) -> list[Tensor]:
    """Collects the logits of every head that transformers' model runs, in order."""
    logits: list[Tensor] = []
    for module in (theirs.lm_head, theirs.depth_decoder.codebooks_head):
        module._forward_hooks.clear()
        module.register_forward_hook(lambda _, __, output: logits.append(output[0, -1]))
    return logits


def assert_equal_speech(
    ours: tuple[Tensor, list[Tensor]], codes: Tensor, logits: Sequence[Tensor]
) -> None:
    mine, my_logits = ours
    assert torch.equal(mine, codes)
    assert len(my_logits) == len(logits) == codes.numel()
    worst = max((a - b).abs().max().item() for a, b in zip(my_logits, logits, strict=True))
    assert worst < 1e-4


def test_parity_without_context(pair: tuple[Any, CsmModel]) -> None:
    """Text alone: greedy codes equal transformers', all 32 heads' logits within 1e-4."""
    theirs, ours = pair
    ids = [ours.config.bos_id, 5, 9, 33, 100, 7, ours.config.eos_id]

    logits = listen(theirs)
    expected = theirs.generate(
        input_ids=torch.tensor([ids]),
        max_new_tokens=FRAMES,
        do_sample=False,
        depth_decoder_do_sample=False,
    )

    assert_equal_speech(generate(ours, text_frames(ids), FRAMES), expected[0], logits)


def test_parity_with_audio_context(
    pair: tuple[Any, CsmModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context segment of text, audio and the audio's end frame goes in as transformers' does."""
    theirs, ours = pair
    config, said, length = ours.config, [20, 21, 22], 6
    codes = torch.randint(2048, (32, length), generator=torch.Generator().manual_seed(3))
    context = [config.bos_id, *said, config.eos_id]
    target = [config.bos_id, 40, 41, config.eos_id]
    audio, audio_end = theirs.config.audio_token_id, theirs.config.audio_eos_token_id
    encoded = SimpleNamespace(audio_codes=codes[None])
    monkeypatch.setattr(theirs.codec_model, "encode", lambda _: encoded)
    monkeypatch.setattr(
        theirs.codec_model, "get_audio_codes_mask", lambda _: torch.ones(1, length).bool()
    )

    ids = torch.tensor([[*context, *[audio] * length, audio_end, *target]])
    logits = listen(theirs)
    expected = theirs.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),  # audio and padding share an id
        input_values=torch.zeros(1, 1, 1920 * length),
        input_values_cutoffs=torch.tensor([[1920 * length]]),
        max_new_tokens=FRAMES,
        do_sample=False,
        depth_decoder_do_sample=False,
    )

    prompt = join([context_segment(context, codes), text_frames(target)])
    assert_equal_speech(generate(ours, prompt, FRAMES), expected[0], logits)


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


def test_untied_embeddings_feed_the_depth_decoder() -> None:
    """With untied tables the depth decoder reads its own; equal tables give the tied result."""
    tied = random_model()
    untied = CsmModel(replace(TINY, tie_codebooks_embeddings=False))
    state = dict(tied.state_dict())
    state["decoder_embeddings.weight"] = state["audio_embeddings.weight"].clone()
    untied.load_state_dict(state, strict=True)
    prompt = text_frames([TINY.bos_id, 1, 2, TINY.eos_id])

    same, _ = generate(untied, prompt, 2)
    untied.decoder_embeddings.weight.copy_(untied.decoder_embeddings.weight.flip(0))
    other, _ = generate(untied, prompt, 2)

    assert torch.equal(same, generate(tied, prompt, 2)[0])
    assert same[0, 0] == other[0, 0]
    assert not torch.equal(same[0, 2:], other[0, 2:])


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
