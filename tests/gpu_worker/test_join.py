"""A newcomer's prompt, chunk by chunk, beside lanes that speak."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_worker.engine import Engine
from gpu_worker.generation import Frame, Generation
from gpu_worker.landing import Spoken
from gpu_worker.step import FrameStep
from tests.gpu_worker.tiny import (
    PROMPTED,
    Log,
    build,
    generation,
    make_engine,
    run,
    run_until,
    voice_context,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")

CHUNK = 32
POSITIONS = 500


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


def test_a_newcomer_costs_one_chunk_per_step() -> None:
    """A long prompt never runs more than one chunk between two frames of those who speak."""
    engine, step = make_engine(chunk=8)
    log, chunks = Log(), []
    prefill = step.prefill
    step.prefill = lambda *a: (chunks.append(len(log.frames("a"))), prefill(*a))  # type: ignore
    run_until(engine, log, generation("a", text="x", max_frames=40), frames=2)
    chunks.clear()
    engine.submit(generation("b", text="y" * 60, max_frames=3))
    while not engine.is_idle:
        engine.tick(log)

    assert chunks == list(range(2, 10))
    assert log.end("a").frame_count == 40


def prefilled(engine: Engine, step: FrameStep, each: Generation) -> tuple[Tensor, int]:
    """The state that lane 0 is in when it speaks for the first time, and its position."""
    states: list[tuple[Tensor, int]] = []
    speak = step.speak

    def watched(active: Tensor, candidates: int) -> Spoken:
        states.append((step.hidden[0].clone(), int(step.position[0])))
        return speak(active, candidates)

    step.speak = watched  # type: ignore[method-assign]
    run(engine, [each])
    return states[0]


@pytest.mark.parametrize("policy", ["none", PROMPTED])
def test_chunked_prefill_is_prefill(policy: str) -> None:
    """Whatever the chunk, the prompt leaves the same hidden state, to rounding."""
    states = []
    for chunk in (4, 16, 64):
        engine, step = make_engine(chunk=chunk)
        states.append(
            prefilled(
                engine, step, generation("a", "a text of several chunks", context_policy=policy)
            )
        )

    assert len({position for _, position in states}) == 1
    for hidden, _ in states[1:]:
        torch.testing.assert_close(hidden, states[0][0], rtol=1e-4, atol=1e-4)


def test_cached_context_is_the_context() -> None:
    """A prompt from the cached prefix leaves the state of one computed in full, to rounding."""
    engine, step = make_engine(chunk=64)
    whole = build(generation("a", context_policy=PROMPTED))
    step.prefill(1, whole.tokens, whole.mask, 0)
    expected = step.hidden[1].clone()

    found, _ = prefilled(engine, step, generation("a", context_policy=PROMPTED))

    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_prompt_frames_count_the_context(engine: Engine) -> None:
    """The prompt's count is context, text and both ends; the context's own end frame included."""
    log = run(engine, [generation("a", text="abc", context_policy=PROMPTED)])

    assert log.end("a").prompt_frame_count == len(voice_context()) + 5 == 16
