"""Requests that a row can't take, and rows that fail: each ends alone, with its code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_worker.codec import StreamingMimi
from gpu_worker.engine import Engine
from gpu_worker.generation import Generation
from gpu_worker.prompt import Prompt
from shared.errors import SpeechError
from tests.gpu_worker.tiny import (
    LANES,
    Log,
    generation,
    make_engine,
    random_mimi,
    random_model,
    run,
    run_until,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"max_frames": 2048 - 13}, "context_overflow"),
        ({"text": "t" * 2100}, "context_overflow"),
        ({"max_frames": 0}, "invalid_generation_window"),
        ({"max_frames": 2048}, "invalid_generation_window"),
        ({"temperature": float("nan")}, "unsupported_sampling"),
        ({"temperature": -1.0}, "unsupported_sampling"),
        ({"top_k": 0}, "unsupported_sampling"),
        ({"seed": -1}, "invalid_seed"),
        ({"seed": 1 << 53}, "invalid_seed"),
    ],
    ids=str,
)
def test_refusals(engine: Engine, change: dict[str, Any], code: str) -> None:
    """What can't be generated ends with its code and takes no lane; the next request is served."""
    log = run(engine, [generation("a", **change), generation("b")])

    end = log.end("a")
    assert (end.finish_reason, end.failure_code, end.frame_count) == ("error", code, 0)
    assert log.end("b").finish_reason == "length"


def test_the_largest_prompt_that_fits(engine: Engine) -> None:
    """One frame less than the limit is served, exactly as the rule of the window says."""
    longest = generation("a", text="t" * 40, max_frames=2048 - 42 - 1)
    log = Log()
    engine.submit(longest)
    for _ in range(8):
        engine.tick(log)
    engine.stop("a")
    engine.tick(log)

    assert log.frames("a")
    assert log.released() == ["a"]


def test_a_prompt_that_is_refused() -> None:
    """A SpeechError of the prompt's maker ends the row with that code."""

    def refuse(_: Generation) -> Prompt:
        raise SpeechError("voice_profile_unavailable", "no such voice")

    log = run(make_engine(prompts=refuse)[0], [generation("a")])

    assert log.end("a").failure_code == "voice_profile_unavailable"
    assert log.end("a").message == "no such voice"


@pytest.mark.parametrize("where", ["hidden", "keys", "values"])
def test_a_row_that_is_not_finite_ends_alone(where: str) -> None:
    """NaN in one lane fails that row, leaves the neighbours' bits alone, and is gone afterwards."""
    engine, step = make_engine()
    bad, good = generation("a", max_frames=30), generation("b", text="x", max_frames=12, seed=4)
    alone = run(engine, [good])
    log = Log()
    engine.submit(bad)
    engine.submit(good)
    while len(log.frames("a")) < 3 or len(log.frames("b")) < 2:
        engine.tick(log)
    poisoned = {"hidden": step.hidden, "keys": step.cache.keys[1], "values": step.cache.values[1]}
    poisoned[where][0] = float("nan")
    while not engine.is_idle:
        engine.tick(log)

    end = log.end("a")
    assert (end.finish_reason, end.failure_code) == ("error", "csm_synthesis_failed")
    assert end.frame_count == len(log.frames("a")) < 30
    assert log.pcm("b") == alone.pcm("b")
    assert run(engine, [good]).pcm("b") == alone.pcm("b")
    assert bool(step.cache.values.isfinite().all() & step.cache.keys.isfinite().all())


def test_a_word_whose_weights_are_not_finite_fails_who_says_it() -> None:
    """Each time, in any lane; its neighbours' bits and those of what comes next are as ever."""
    model = random_model()
    model.text_embeddings.weight[ord("z")] = float("nan")
    engine, step = make_engine(model)
    bad, good = generation("a", text="fizz"), generation("b", text="x", max_frames=12, seed=4)
    alone = run(engine, [good])

    beside = run(engine, [bad, good])
    everywhere = run(engine, [replace(bad, key=str(lane)) for lane in range(LANES)])

    assert beside.pcm("b") == alone.pcm("b")
    ends = [beside.end("a"), *(everywhere.end(str(lane)) for lane in range(LANES))]
    assert {(end.failure_code, end.frame_count) for end in ends} == {("csm_synthesis_failed", 0)}
    after = run(engine, [replace(good, key=str(lane)) for lane in range(LANES)])
    assert {after.pcm(str(lane)) == alone.pcm("b") for lane in range(LANES)} == {True}
    assert bool(step.cache.values.isfinite().all() & step.cache.keys.isfinite().all())


def test_samples_that_are_not_finite_end_the_row() -> None:
    """A codec that gives NaN for one lane fails that row and is fresh for the next request."""
    codec = StreamingMimi(random_mimi(), LANES)
    engine, _ = make_engine(codec=codec)
    expected = run(engine, [generation("a")])
    log = Log()
    run_until(engine, log, generation("a"), frames=2)
    for tensor in codec.by_lane:
        if tensor.is_floating_point():
            tensor[0] = float("nan")
    while not engine.is_idle:
        engine.tick(log)

    assert log.end("a").failure_code == "csm_synthesis_failed"
    assert run(engine, [generation("a")]).pcm("a") == expected.pcm("a")
