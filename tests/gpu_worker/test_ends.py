"""Ways for a row to end: by its model, its budget, silence; one by one, and all in one batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from gpu_worker.engine import Engine
from gpu_worker.generation import Ended
from gpu_worker.lane import LEAD_IN_FRAMES, QUIET_PEAK
from gpu_worker.sampling import Draw
from gpu_worker.step import FrameStep
from tests.gpu_worker.tiny import (
    LANES,
    Log,
    Tone,
    generation,
    make_engine,
    random_model,
    run,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")


def choosing_ends(step: FrameStep, ends: dict[int, int]) -> AbstractContextManager[object]:
    """Lets the model choose the all-zero frame in some lanes: lane to number of the frame."""
    draw = Draw.__call__
    frames = torch.tensor([ends.get(lane, -1) for lane in range(step.lanes)])

    def chosen(self: Draw, codebook: int, logits: Tensor) -> Tensor:
        return torch.where(step.frame == frames, 0, draw(self, codebook, logits))

    return patch.object(Draw, "__call__", chosen)


def test_four_ends_in_one_batch() -> None:
    """End frame, budget, silence and NaN each end their own row, and no row but their own.

    The end frame is neither emitted nor counted nor decoded; the silent frames are all three.
    """
    tone = Tone(LANES, lambda frame: 9000 if frame < 4 else QUIET_PEAK)
    engine, step = make_engine(codec=tone)
    requests = [
        generation("eos", text="x", max_frames=40, seed=1),
        generation("length", text="x", max_frames=9, seed=2),
        generation("silence", text="x", max_frames=40, seed=3, silence_stop_frames=3),
        generation("nan", text="x", max_frames=40, seed=4),
    ]
    alone = {each.key: run(engine, [each]) for each in requests}
    log = Log()

    with choosing_ends(step, {0: 5}):
        for each in requests:
            engine.submit(each)
        while len(log.frames("nan")) < 6:
            engine.tick(log)
        step.hidden[3] = float("nan")
        while not engine.is_idle:
            engine.tick(log)

    assert log.end("eos") == Ended("eos", "stop", "eos", None, "", 5, 3)
    assert log.end("length") == Ended("length", "length", None, None, "", 9, 3)
    assert log.end("silence") == Ended("silence", "stop", "silence", None, "", 7, 3)
    assert (log.end("nan").finish_reason, log.end("nan").failure_code) == (
        "error",
        "csm_synthesis_failed",
    )
    assert log.end("nan").frame_count == 6
    for key, count in {"eos": 5, "length": 9, "silence": 7, "nan": 6}.items():
        assert log.codes(key) == alone[key].codes(key)[:count]
    assert tone._count == [5, 9, 7, 6]


def test_an_end_frame_first_is_no_audio() -> None:
    """A row whose first frame is the end frame fails as such; its neighbours go on undisturbed."""
    engine, step = make_engine()
    requests = [generation("mute", text="x"), generation("other", text="x", seed=5)]
    alone = run(engine, requests[1:])

    with choosing_ends(step, {0: 0}):
        log = run(engine, requests)

    end = log.end("mute")
    assert (end.finish_reason, end.failure_code, end.frame_count) == (
        "error",
        "no_audio_generated",
        0,
    )
    assert log.frames("mute") == []
    assert log.pcm("other") == alone.pcm("other")


def test_a_frame_with_one_code_is_no_end() -> None:
    """31 zeros and one other code are speech: only the all-zero frame ends a row."""
    engine, _ = make_engine()
    draw = Draw.__call__

    def mostly_zero(self: Draw, codebook: int, logits: Tensor) -> Tensor:
        return torch.full_like(draw(self, codebook, logits), int(codebook == 31))

    with patch.object(Draw, "__call__", mostly_zero):
        log = run(engine, [generation("a", max_frames=3)])

    assert log.end("a").finish_reason == "length"
    assert log.codes("a") == [bytes(62) + b"\x01\x00"] * 3


def test_to_the_last_position() -> None:
    """The longest prompt and budget together speak to the end of the window, and replay there."""
    model, longest = random_model(), generation("a", text="t" * 2030, max_frames=15)
    undisturbed = run(make_engine(model, chunk=64)[0], [longest])
    codes = tuple(undisturbed.codes("a")[:9])

    again = run(
        make_engine(model, chunk=64)[0], [generation("a", "t" * 2030, max_frames=15, replay=codes)]
    )

    assert undisturbed.end("a") == Ended("a", "length", None, None, "", 15, 2032)
    assert again.frames("a") == undisturbed.frames("a")[9:]


@pytest.mark.parametrize("frame", [1, 4])
def test_the_end_frame_ends_the_row(frame: int) -> None:
    """An all-zero frame stops the row; it is neither counted nor decoded nor emitted."""
    engine, step = make_engine()
    undisturbed = run(engine, [generation("a", max_frames=6)])

    with choosing_ends(step, {0: frame}):
        log = run(engine, [generation("a", max_frames=6)])

    assert log.end("a") == Ended("a", "stop", "eos", None, "", frame, 13)
    assert log.frames("a") == undisturbed.frames("a")[:frame]


def test_an_end_before_the_first_frame_is_no_speech() -> None:
    """A model that ends at once has said nothing, and that is a failure, not an empty success."""
    model = random_model()
    model.backbone.norm.scale.zero_()
    model.decoder.norm.scale.zero_()
    engine, _ = make_engine(model)

    log = run(engine, [generation("a", temperature=0.0)])

    end = log.end("a")
    assert (end.finish_reason, end.failure_code) == ("error", "no_audio_generated")
    assert (end.frame_count, log.frames("a")) == (0, [])


def test_replay_then_the_end_frame() -> None:
    """An end frame right after a replay is an end by eos: there was speech, delivered before."""
    engine, step = make_engine()
    codes = tuple(run(engine, [generation("a")]).codes("a")[:3])

    with choosing_ends(step, {0: 3}):
        log = run(engine, [generation("a", replay=codes)])

    assert log.events == [Ended("a", "stop", "eos", None, "", 3, 13)]


def silent_engine(level: Callable[[int], int]) -> Engine:
    return make_engine(codec=Tone(LANES, level))[0]


def test_silence_ends_the_row() -> None:
    """A run of near-silent frames as long as asked for ends the row with its cause."""
    engine = silent_engine(lambda frame: QUIET_PEAK if frame >= 4 else QUIET_PEAK + 1)

    log = run(engine, [generation("a", max_frames=40, silence_stop_frames=5)])

    assert log.end("a") == Ended("a", "stop", "silence", None, "", 9, 13)
    assert len(log.frames("a")) == 9


WAYS_TO_END = {"silence": "stop", "length": "length", "eos": "stop"}


def cut(way: str, after: int, delivered: int, level: Callable[[int], int]) -> Ended:
    """A row that comes to its end in one of these ways after so many frames."""
    codes = tuple(run(make_engine()[0], [generation("a", max_frames=7)]).codes("a")[:delivered])
    request = generation("a", max_frames=40, replay=codes)
    engine, step = make_engine(codec=Tone(LANES, level))
    if way == "silence":
        request = replace(request, silence_stop_frames=after)
    elif way == "length":
        request = replace(request, max_frames=after)
    with choosing_ends(step, {0: after} if way == "eos" else {}):
        return run(engine, [request]).end("a")


@pytest.mark.parametrize("delivered", [0, 4, 7])
@pytest.mark.parametrize("way", WAYS_TO_END)
def test_silence_alone_is_no_speech(way: str, delivered: int) -> None:
    """A row without one audible frame has failed however it ends, in a second attempt as well."""
    end = cut(way, 7, delivered, lambda _: QUIET_PEAK)

    assert (end.finish_reason, end.stop_cause, end.failure_code, end.frame_count) == (
        "error",
        None,
        "no_audio_generated",
        7,
    )


@pytest.mark.parametrize("after", [1, 5])
def test_a_model_that_ends_early_has_had_its_say(after: int) -> None:
    """An end frame after nothing but silence is a failure, however short the row."""
    assert cut("eos", after, 0, lambda _: QUIET_PEAK).failure_code == "no_audio_generated"


@pytest.mark.parametrize("after", [1, LEAD_IN_FRAMES])
def test_a_row_cut_in_its_lead_in_has_not_failed(after: int) -> None:
    """Who asks for less than the quiet before speech may get just that."""
    assert cut("length", after, 0, lambda _: QUIET_PEAK).finish_reason == "length"


@pytest.mark.parametrize("heard", range(7))
@pytest.mark.parametrize("way", ["length", "eos"])
def test_one_audible_frame_is_speech(way: str, heard: int) -> None:
    """However short an answer is and wherever its one sound, it is an answer."""
    end = cut(way, 7, 3, lambda frame: QUIET_PEAK + 1 if frame == heard else QUIET_PEAK)

    assert (end.finish_reason, end.failure_code) == (WAYS_TO_END[way], None)


def test_a_pause_is_not_the_end() -> None:
    """A sound in between starts the count anew, and samples below zero count too."""
    engine = silent_engine(lambda frame: -QUIET_PEAK - 1 if frame % 5 == 4 else 0)

    log = run(engine, [generation("a", max_frames=21, silence_stop_frames=5)])

    assert log.end("a").finish_reason == "length"


def test_silence_may_be_allowed() -> None:
    """0 turns the silence stop off."""
    log = run(silent_engine(lambda frame: 0 if frame else 9000), [generation("a", max_frames=30)])

    assert log.end("a").finish_reason == "length"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_lanes_of_every_depth_to_the_last_position(dtype: torch.dtype) -> None:
    """From the first positions to the last of 2048, lanes beside each other are those alone.

    They widen what all attend to three times in mid-speech, as Python and as scripts. One frame
    more than the window holds is refused at once, and nobody notices.
    """
    depths = {"near": 1, "second": 505, "last": 1529, "end": 2035}
    requests = [
        generation(key, text="t" * length, max_frames=10, seed=length)
        for key, length in depths.items()
    ]
    engine, step = make_engine(random_model(dtype=dtype), chunk=512)
    alone = {each.key: run(engine, [each]) for each in requests}

    for _ in range(2):
        log = run(engine, [generation("over", text="t" * 2035, max_frames=11), *requests])
        assert any([event.key for event in batch] == list(depths) for batch in log.batches)
        for key, length in depths.items():
            assert log.frames(key) == alone[key].frames(key)
            assert log.end(key) == Ended(key, "length", None, None, "", 10, length + 2)
        assert log.end("over").failure_code == "context_overflow"
        step.script()
