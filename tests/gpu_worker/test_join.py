"""A newcomer with a long prompt beside lanes that speak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpu_worker.lanes import Frame
from tests.gpu_worker.tiny import Log, generation, make_engine

CHUNK = 32
POSITIONS = 500


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def test_five_hundred_positions_stall_nobody_for_more_than_a_chunk() -> None:
    """Every tick of the newcomer's prefill is one chunk and one frame of the lane that speaks."""
    engine, step = make_engine(chunk=CHUNK)
    chunks: list[int] = []
    prefill = step.prefill

    def counted(lane: int, tokens: torch.Tensor, mask: torch.Tensor, start: int) -> None:
        chunks.append(tokens.shape[0])
        prefill(lane, tokens, mask, start)

    step.prefill = counted  # type: ignore[method-assign]
    log = Log()
    engine.submit(generation("a", text="x", max_frames=100))
    while not log.frames("a"):
        engine.tick(log)
    chunks.clear()

    engine.submit(generation("b", text="y" * (POSITIONS - 2), max_frames=2))
    ticks: list[tuple[int, int]] = []
    while not log.frames("b"):
        before = len(chunks), len(log.frames("a"))
        engine.tick(log)
        ticks.append((len(chunks) - before[0], len(log.frames("a")) - before[1]))

    assert ticks == [(1, 1)] * -(-POSITIONS // CHUNK)
    assert sum(chunks) == POSITIONS
    assert isinstance(log.events[-1], Frame)
