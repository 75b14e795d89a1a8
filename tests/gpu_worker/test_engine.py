"""The engine: lanes that speak, are stopped, and neither see nor wait for each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi
from gpu_worker.engine import Engine
from gpu_worker.generation import Ended, Event, Frame, Released
from gpu_worker.landing import Spoken
from gpu_worker.sampling import Draw, LaneSampling, noise_table
from tests.gpu_worker.tiny import (
    LANES,
    PROMPTED,
    Log,
    generation,
    make_engine,
    random_mimi,
    run,
    run_until,
    voice_context,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")


# Speaking


def test_speaks_to_its_budget(engine: Engine) -> None:
    """A generation gives frames 0, 1, 2 .. of 64 and 3840 bytes, then ends by length, once."""
    log = run(engine, [generation("a", max_frames=5)])

    frames = log.frames("a")
    assert [frame.index for frame in frames] == [0, 1, 2, 3, 4]
    assert {(len(frame.codes), len(frame.pcm)) for frame in frames} == {(64, 3840)}
    assert log.events[-1] == log.end("a")
    assert log.end("a") == Ended("a", "length", None, None, "", 5, 13)
    assert len(log.events) == 6


def test_speech_is_not_silence(engine: Engine) -> None:
    """The samples are those of the codec, not zeros."""
    log = run(engine, [generation("a")])

    assert all(any(pcm) for pcm in log.pcm("a"))
    assert len(set(log.pcm("a"))) == 6


def test_nothing_of_the_voice_s_prompt_is_heard(engine: Engine) -> None:
    """The samples of a prompted answer are its own codes through a codec that heard nothing else,
    and none of its frames is one of the prompt's.
    """
    log = run(engine, [generation("a", context_policy=PROMPTED)])

    fresh, active = StreamingMimi(random_mimi(), LANES), torch.tensor([True] + [False] * 3)
    codes = torch.zeros((LANES, 32), dtype=torch.int64)
    heard = []
    for frame in log.codes("a"):
        codes[0] = torch.frombuffer(bytearray(frame), dtype=torch.int16)
        heard.append(fresh.step(codes, active)[0].numpy().tobytes())
    assert heard == log.pcm("a")
    prompt = voice_context().tokens[:, :32].to(torch.int16)
    assert not {row.numpy().tobytes() for row in prompt} & set(log.codes("a"))


def test_one_batch_per_step(engine: Engine) -> None:
    """All lanes' frames of a step leave together, in lane order."""
    log = run(engine, [generation(key, max_frames=8, text="x") for key in "abcd"])

    together = [batch for batch in log.batches if len({event.key for event in batch}) == 4]
    assert len(together) >= 5
    assert [event.key for event in together[0]] == ["a", "b", "c", "d"]


def test_frames_leave_before_the_backbone_runs_again() -> None:
    """The first samples don't wait for the next hidden state."""
    engine, step = make_engine()
    engine.submit(generation("a", text="x"))
    order: list[str] = []
    feed = step.feed

    def watched(span: int) -> None:
        order.append("feed")
        feed(span)

    step.feed = watched  # type: ignore[method-assign]

    engine.tick(lambda batch: order.append("emit"))

    assert order == ["emit", "feed"]


def test_seed_text_and_voice_shape_the_speech(engine: Engine) -> None:
    """Another seed, text or context gives other codes, the same request the same ones."""
    base = generation("a")
    variants = [
        base,
        replace(base, seed=2),
        replace(base, text="hello"),
        replace(base, context_policy=PROMPTED),
        replace(base, temperature=0.0),
    ]

    spoken = [tuple(run(engine, [each]).codes("a")) for each in variants]

    assert len(set(spoken)) == len(variants)
    assert spoken[0] == tuple(run(engine, [base]).codes("a"))


def test_every_frame_draws_with_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame f of a request takes row f of its seed's noise, in its lane, after a replay too."""
    seen: list[Tensor] = []

    class Watched(Draw):
        def __init__(self, sampling: LaneSampling, noise: Tensor, *rest: Any) -> None:
            seen.append(noise.clone())
            super().__init__(sampling, noise, *rest)

    monkeypatch.setattr("gpu_worker.step.Draw", Watched)
    engine, _ = make_engine()
    first, second = (generation(key, "x", seed=seed) for key, seed in (("a", 7), ("b", 8)))
    codes = tuple(run(engine, [first]).codes("a"))
    assert torch.equal(torch.stack(seen)[:, 0], noise_table(7, 6, 32))
    seen.clear()

    run(engine, [second, replace(first, replay=codes[:4])])

    noise = torch.stack(seen)
    assert torch.equal(noise[:6, 0], noise_table(8, 6, 32))
    assert torch.equal(noise[1:3, 1], noise_table(7, 6, 32)[4:])


def test_temperature_zero_is_top_k_one(engine: Engine) -> None:
    """Both say greedy, and greedy does not depend on the seed."""
    cold = run(engine, [generation("a", temperature=0.0, top_k=50, seed=1)])
    narrow = run(engine, [generation("a", temperature=0.9, top_k=1, seed=2)])

    assert cold.codes("a") == narrow.codes("a")


# Independence of lanes: see test_invariance


def test_a_used_lane_is_a_new_lane(engine: Engine) -> None:
    """The tenth request in a lane sounds as the first would have."""
    first = run(engine, [generation("a", context_policy=PROMPTED)])
    for number in range(8):
        run(engine, [generation("b", text="y" * (40 - number), seed=number, max_frames=9)])

    assert run(engine, [generation("a", context_policy=PROMPTED)]).pcm("a") == first.pcm("a")


def test_two_engines_agree() -> None:
    """A second worker of the same class gives the same bits."""
    logs = [run(make_engine()[0], [generation("a", context_policy=PROMPTED)]) for _ in range(2)]

    assert logs[0].pcm("a") == logs[1].pcm("a")


# Stopping


def test_stop_frees_the_lane_within_a_frame(engine: Engine) -> None:
    """After a stop nothing more comes for the key but one Released, and the lane is free."""
    log = Log()
    run_until(engine, log, generation("a", max_frames=50), frames=3)

    engine.stop("a")
    engine.tick(log)

    assert log.events[-1] == Released("a")
    assert len(log.frames("a")) == 3
    assert engine.is_idle
    full = run(engine, [generation(key, max_frames=1) for key in "bcde"[:LANES]])
    assert {full.end(key).finish_reason for key in "bcde"[:LANES]} == {"length"}


def test_stop_while_prefilling(engine: Engine) -> None:
    """A row that has not spoken yet can be stopped, and its neighbours go on."""
    log = Log()
    engine.submit(generation("a", text="long " * 20))
    engine.submit(generation("b"))
    engine.tick(log)

    engine.stop("a")
    while not engine.is_idle:
        engine.tick(log)

    assert log.frames("a") == []
    assert log.released() == ["a"]
    assert log.end("b").finish_reason == "length"


def test_stop_of_the_unknown_is_answered(engine: Engine) -> None:
    """Stopping what is not here, or twice, is answered each time and harms nobody."""
    log = Log()
    engine.stop("nobody")
    engine.stop("nobody")
    engine.tick(log)

    assert log.events == [Released("nobody"), Released("nobody")]


def test_events_of_a_tick_are_complete(engine: Engine) -> None:
    """A refusal, a release and frames of one tick leave in one batch."""
    batches: list[list[Event]] = []
    engine.submit(generation("a", text="x"))
    engine.submit(generation("b", top_k=0))
    engine.stop("c")

    engine.tick(batches.append)

    engine.stop("a")  # so that the engine is left as it was found
    engine.tick(batches.append)

    batch, left = batches
    assert [type(event) for event in batch] == [Ended, Released, Frame]
    assert left == [Released("a")]


# Steady


def test_lanes_that_stay_need_no_new_mask(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the same lanes speak, nothing is put on the device: on CUDA that would wait for the
    backbone pass of the frame before. Who joins or leaves is in the next mask.
    """
    masks: list[Tensor] = []
    speak = engine._step.speak

    def noted(mask: Tensor, candidates: int) -> Spoken:
        masks.append(mask)
        return speak(mask, candidates)

    monkeypatch.setattr(engine._step, "speak", noted)

    run(engine, [generation("a", max_frames=6), generation("b", max_frames=3)])

    said = [mask.tolist()[:2] for mask in masks]
    assert [rows for rows, _ in groupby(said)] == [[True, False], [True, True], [True, False]]
    assert all((a is b) == (a.tolist() == b.tolist()) for a, b in pairwise(masks))
