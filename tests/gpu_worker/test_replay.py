"""A second attempt goes on from delivered codes as the first would have, bit for bit.

Always in an engine that has seen nothing of the first attempt, as in another process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from gpu_worker.engine import REPLAYED_PER_TICK, Engine
from gpu_worker.generation import Generation
from gpu_worker.lane import QUIET_PEAK
from gpu_worker.model.csm import CsmModel
from tests.gpu_worker.tiny import (
    LANES,
    PROMPTED,
    Log,
    Tone,
    generation,
    make_engine,
    random_model,
    run,
    run_until,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")

DTYPES: Final = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"]
)


def fresh(model: CsmModel, lanes: int = 2) -> Engine:
    return make_engine(model, lanes=lanes)[0]


def assert_seamless(second: Engine, whole: Generation, log: Log, delivered: int) -> None:
    """What ``log`` has after ``delivered`` frames is what a second attempt emits, with its end."""
    again = run(second, [replace(whole, replay=tuple(log.codes(whole.key)[:delivered]))])

    assert again.frames(whole.key) == log.frames(whole.key)[delivered:]
    assert again.end(whole.key) == log.end(whole.key)


@DTYPES
@pytest.mark.parametrize("policy", ["none", PROMPTED])
def test_stopped_at_any_frame(dtype: torch.dtype, policy: str) -> None:
    """After each number of frames, none and all included, the rest is the undisturbed rest.

    The second attempts are another engine's, whose first is the longest: it has spoken nothing yet.
    """
    model = random_model(dtype=dtype)
    whole = generation("a", max_frames=11, context_policy=policy, top_k=300)
    undisturbed, second = run(fresh(model), [whole]), fresh(model)

    for delivered in reversed(range(12)):
        assert_seamless(second, whole, undisturbed, delivered)


def assert_all_seamless(
    model: CsmModel, whole: Generation, delivered: list[int], chunk: int = 8, lanes: int = LANES
) -> Log:
    """The same for several second attempts that replay beside each other, a lane each."""
    undisturbed = run(make_engine(model, chunk=chunk, lanes=lanes)[0], [whole])
    codes = undisturbed.codes("a")
    attempts = [replace(whole, key=str(each), replay=tuple(codes[:each])) for each in delivered]

    log = run(make_engine(model, chunk=chunk, lanes=lanes)[0], attempts)

    for each in delivered:
        assert log.codes(str(each)) == codes[each:]
        assert log.pcm(str(each)) == undisturbed.pcm("a")[each:]
        assert log.end(str(each)) == replace(undisturbed.end("a"), key=str(each))
    return undisturbed


def test_around_and_far_beyond_mimis_window() -> None:
    """Samples go on exactly where Mimi's window of 250 positions, two a frame, fills and wraps.

    They also do when the ring has wrapped twice before the first attempt ended.
    """
    delivered = [123, 124, 125, 126, 131, 249, 250, 256]

    log = assert_all_seamless(random_model(), generation("a", max_frames=258), delivered, lanes=8)

    assert len(set(log.pcm("a"))) == 258


@DTYPES
def test_across_a_block_of_the_attention(dtype: torch.dtype) -> None:
    """Stopped before, at and behind position 512, where lanes begin to look at another block."""
    whole = generation("a", text="t" * 503, max_frames=12)

    log = assert_all_seamless(random_model(dtype=dtype), whole, [6, 7, 8, 9], chunk=64)

    assert log.end("a").prompt_frame_count == 505


@pytest.mark.parametrize("delivered", range(13))
def test_with_a_silence_stop(delivered: int) -> None:
    """The quiet frames among the delivered ones count, and a sound among them starts anew."""
    loud = {2, 6}
    whole = generation("a", max_frames=40, silence_stop_frames=5)

    def engine() -> Engine:
        tone = Tone(LANES, lambda frame: 9000 if frame in loud else QUIET_PEAK)
        return make_engine(codec=tone)[0]

    undisturbed = run(engine(), [whole])
    codes = tuple(undisturbed.codes("a"))
    again = run(engine(), [replace(whole, replay=codes[:delivered])])

    assert undisturbed.end("a").stop_cause == "silence"
    assert len(codes) == 12
    assert again.codes("a") == list(codes[delivered:])
    assert again.end("a") == undisturbed.end("a")


def test_a_stop_in_mid_replay_leaves_nothing() -> None:
    """A lane whose request was stopped while it replayed is a fresh lane, and so is the codec's."""
    model = random_model()
    whole = generation("a", max_frames=30)
    undisturbed = run(make_engine(model)[0], [whole])
    engine, _ = make_engine(model)
    log = Log()
    engine.submit(replace(whole, key="gone", replay=tuple(undisturbed.codes("a")[:25])))
    for _ in range(4):
        engine.tick(log)
    assert not log.events
    engine.stop("gone")

    engine.submit(whole)
    while not engine.is_idle:
        engine.tick(log)

    assert log.released() == ["gone"]
    assert log.frames("a") == undisturbed.frames("a")


def test_replay_in_company(engine: Engine) -> None:
    """Replayed rows disturb no neighbour and are not disturbed, over many frames."""
    first = generation("a", max_frames=30, context_policy=PROMPTED)
    other = generation("b", max_frames=25, seed=9)
    alone = {each.key: run(engine, [each]) for each in (first, other)}

    log = run(engine, [replace(first, replay=tuple(alone["a"].codes("a")[:20])), other])

    assert log.frames("a") == alone["a"].frames("a")[20:]
    assert log.frames("b") == alone["b"].frames("b")


def test_replay_runs_no_depth_decoder() -> None:
    """Delivered frames cost a backbone pass and a decode each, a few per tick."""
    engine, step = make_engine()
    codes = tuple(run(engine, [generation("a", max_frames=9)]).codes("a"))
    calls = {"speak": 0, "repeat": 0}
    speak, repeat = step.speak, step.repeat

    def counted(name: str, call: Any) -> Any:
        def wrapper(*arguments: Any) -> Any:
            calls[name] += 1
            return call(*arguments)

        return wrapper

    step.speak = counted("speak", speak)  # type: ignore[method-assign]
    step.repeat = counted("repeat", repeat)  # type: ignore[method-assign]
    log = run(engine, [generation("a", max_frames=10, replay=codes[:9])])

    assert calls == {"speak": 1, "repeat": 9}
    assert [frame.index for frame in log.frames("a")] == [9]


def test_replay_leaves_room_for_the_others() -> None:
    """Between two frames of a speaking row at most a few frames are replayed."""
    engine, step = make_engine()
    codes = tuple(run(engine, [generation("b", max_frames=40)]).codes("b"))
    log, marks = Log(), []
    run_until(engine, log, generation("a", text="x", max_frames=60), frames=1)
    repeat = step.repeat
    step.repeat = lambda *a: (marks.append(len(log.frames("a"))), repeat(*a))[1]  # type: ignore
    engine.submit(generation("b", text="x", max_frames=41, replay=codes))
    while not engine.is_idle:
        engine.tick(log)

    assert max(marks.count(mark) for mark in marks) == REPLAYED_PER_TICK


def test_replay_of_everything(engine: Engine) -> None:
    """An attempt that had delivered its whole budget ends at once, emitting nothing."""
    whole = generation("a", max_frames=5)
    undisturbed = run(engine, [whole])

    again = run(engine, [replace(whole, replay=tuple(undisturbed.codes("a")))])

    assert again.events == [undisturbed.end("a")]


@pytest.mark.parametrize(
    "replay",
    [(b"short",), (b"\xff" * 64,), (bytes(64),), (b"\x01\x00" * 32,) * 7],
    ids=["short", "foreign", "end-frame", "too-many"],
)
def test_replay_of_nonsense_is_refused(engine: Engine, replay: tuple[bytes, ...]) -> None:
    """Codes that this model can't have made end the row and reach neither model nor codec."""
    log = run(engine, [generation("a", replay=replay)])

    assert log.end("a").failure_code == "csm_synthesis_failed"
    assert log.frames("a") == []
