"""Mimi over reordered matrices against moshi's own layers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi
from gpu_worker.codec_layout import (
    DepthwiseConvTranspose,
    SettledConv,
    SettledConvTranspose,
    SettledLinear,
    mimi_bytes,
    settle_mimi,
)
from gpu_worker.model import products
from tests.gpu_worker.tiny import random_mimi

pytestmark = pytest.mark.usefixtures("in_inference_mode")

LANES, FRAMES = 3, 40
EVERY = torch.ones(LANES, dtype=torch.bool)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A small Mimi with every layer replaced that could be."""
    monkeypatch.setattr(products, "REORDERED_FROM_BYTES", 0)
    mimi = random_mimi()
    settle_mimi(mimi)
    return mimi


def codes(frames: int = FRAMES) -> Tensor:
    return torch.randint(2048, (frames, LANES, 32), generator=torch.Generator().manual_seed(5))


def copied(mimi: Any) -> Any:
    """Another Mimi of the same weights."""
    tensors = {id(each): each for each in (*mimi.parameters(), *mimi.buffers())}
    return copy.deepcopy(mimi, tensors)


def waves(codec: StreamingMimi, frames: Tensor, active: Tensor = EVERY) -> Tensor:
    """[frames, lanes, 1920] float samples."""
    found = []
    for frame in frames:
        codec._active.copy_(active)
        found.append(codec._decode(frame))
    return torch.stack(found)


def test_every_kind_of_layer_is_replaced(settled: Any) -> None:
    """Linear layers, convolutions and both kinds of transposed ones; nothing is kept twice."""
    kinds = {type(layer) for layer in settled.modules()}

    assert {SettledLinear, SettledConv, SettledConvTranspose, DepthwiseConvTranspose} <= kinds
    assert mimi_bytes(settled) == mimi_bytes(random_mimi())


def test_entries_are_held_once(settled: Any) -> None:
    """All streams look codes up in one table, whose rows moshi's codebooks hold too, to the bit."""
    parts = [settled.quantizer.rvq_first, settled.quantizer.rvq_rest]
    theirs = random_mimi().quantizer

    streams = [StreamingMimi(mimi, LANES) for mimi in (copied(settled), settled)]

    for codec in streams:
        held = [each.entries.data_ptr() for each in codec._sums]
        assert held == [part.vq.layers[0]._codebook.embedding_sum.data_ptr() for part in parts]
    for part, other in zip(parts, (theirs.rvq_first, theirs.rvq_rest), strict=True):
        for layer, untouched in zip(part.vq.layers, other.vq.layers, strict=True):
            assert torch.equal(layer.embedding, untouched.embedding)


def test_samples_are_those_of_the_untouched_layers(settled: Any) -> None:
    """Frame by frame the same samples, to the rounding of another order of sums."""
    theirs = waves(StreamingMimi(random_mimi(), LANES), codes())

    ours = waves(StreamingMimi(settled, LANES), codes())

    assert ours.shape == theirs.shape == (FRAMES, LANES, 1920)
    assert theirs.abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_lanes_stay_apart_bit_for_bit(settled: Any) -> None:
    """A lane's samples are the same in another lane, beside other neighbours and after a pause."""
    codec = StreamingMimi(settled, LANES)
    frames = codes()
    straight = waves(codec, frames)
    for lane in range(LANES):
        codec.reset(lane)

    turned = frames.roll(1, dims=1)
    turned[:, 0] = frames.flip(0)[:, 0]
    first = waves(codec, turned[:7])
    waves(codec, frames.flip(0)[:2], torch.tensor([True, False, False]))
    rest = waves(codec, turned[7:])

    assert torch.equal(torch.cat([first, rest])[:, 1:], straight[:, :2])


def test_copies_share_the_weights(settled: Any) -> None:
    """A copied Mimi streams on its own without a second set of weights."""
    again = copied(settled)

    frames = codes(3)

    assert torch.equal(
        waves(StreamingMimi(again, LANES), frames), waves(StreamingMimi(settled, LANES), frames)
    )
    linears = [
        [layer.product for layer in mimi.modules() if isinstance(layer, SettledLinear)]
        for mimi in (settled, again)
    ]
    assert all(one is other for one, other in zip(*linears, strict=True))
