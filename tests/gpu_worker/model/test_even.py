"""Elementwise functions on threads that can't share a batch evenly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gpu_worker.codec import StreamingMimi
from gpu_worker.model.even import GRAIN, are_stretches_whole, evenly
from tests.gpu_worker.tiny import random_mimi


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@pytest.mark.parametrize("threads", [3, 5, 6], indirect=True)
@pytest.mark.parametrize("lanes", [10, 17])
def test_equal_rows_stay_equal(threads: int, lanes: int) -> None:
    """A row that a stretch ends in has the bits of the others, and the threads are given back."""
    row = torch.randn(8192, generator=torch.Generator().manual_seed(1)) * 2
    pairs = torch.randn(40 * 32, 2, generator=torch.Generator().manual_seed(2))
    rotation = torch.randn(1, 1, 32, dtype=torch.complex64)

    def turned(numbers: Tensor) -> Tensor:
        return numbers * rotation

    gates = evenly(functional.silu, row.expand(lanes, -1).contiguous())
    heads = torch.view_as_complex(pairs).view(1, 40, 32).expand(4 * lanes, -1, -1)
    turns = torch.view_as_real(evenly(turned, heads.contiguous()))

    assert gates.equal(gates[:1].expand_as(gates))
    assert turns.equal(turns[:1].expand_as(turns))
    assert torch.get_num_threads() == threads


def test_whole_stretches_are_shared() -> None:
    """Threads share what falls into whole rows and vectors, and nothing else."""
    assert are_stretches_whole(8 * 8192, 8192, 2)
    assert are_stretches_whole(GRAIN, 100, 7)
    assert not are_stretches_whole(10 * 8192, 8192, 3)
    assert not are_stretches_whole(10 * 8192, 8192, 4)
    assert not are_stretches_whole(2 * GRAIN, 24, 2)


@pytest.mark.parametrize("threads", [7], indirect=True)
def test_seven_threads_decode_every_lane_alike(threads: int) -> None:
    """The same codes in 31 lanes give the same samples, unrounded, in all of them."""
    codec = StreamingMimi(random_mimi(), 31)
    codes = torch.randint(2048, (3, 1, 32), generator=torch.Generator().manual_seed(3))

    with torch.inference_mode():
        for frame in codes:
            wave = codec._decode(frame.expand(31, -1))

            assert wave.equal(wave[:1].expand_as(wave))
