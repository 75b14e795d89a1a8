"""The engine: lanes that neither see nor wait for each other, ends, stops, replays and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_worker.codec import StreamingMimi
from gpu_worker.engine import QUIET_PEAK, REPLAYED_PER_TICK, Engine
from gpu_worker.lanes import Ended, Event, Frame, Generation, Released
from gpu_worker.model.csm import CsmModel
from gpu_worker.prompt import Prompt
from gpu_worker.step import FrameStep, Spoken
from shared.errors import SpeechError
from tests.gpu_worker.tiny import (
    LANES,
    Log,
    Tone,
    build,
    generation,
    make_engine,
    random_mimi,
    random_model,
    run,
    voice_context,
)

PROMPTED = "prompt_profile_only"


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def engine() -> Engine:
    """One for all tests that leave it idle: a lane that was used is a new lane."""
    with torch.inference_mode():
        return make_engine()[0]


def end_at(model: CsmModel, step: FrameStep, frame: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the model give the all-zero frame as frame number ``frame`` of every lane."""
    decode = model.decode_frame

    def decode_until(hidden: Tensor, steps: Any, choose: Any) -> Tensor:
        codes = decode(hidden, steps, choose)
        return torch.where((step.frame == frame).unsqueeze(1), 0, codes)

    monkeypatch.setattr(model, "decode_frame", decode_until)


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


# Joining and prefilling


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


def run_until(engine: Engine, log: Log, each: Generation, frames: int) -> None:
    engine.submit(each)
    while len(log.frames(each.key)) < frames:
        engine.tick(log)


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


# Replay


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


# Ends


@pytest.mark.parametrize("frame", [1, 4])
def test_the_end_frame_ends_the_row(frame: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An all-zero frame stops the row; it is neither counted nor decoded nor emitted."""
    model = random_model()
    engine, step = make_engine(model)
    undisturbed = run(engine, [generation("a", max_frames=6)])
    end_at(model, step, frame, monkeypatch)

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


def test_replay_then_the_end_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end frame right after a replay is an end by eos: there was speech, delivered before."""
    model = random_model()
    engine, step = make_engine(model)
    codes = tuple(run(engine, [generation("a")]).codes("a")[:3])
    end_at(model, step, 3, monkeypatch)

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


def test_a_pause_is_not_the_end() -> None:
    """A sound in between starts the count anew, and samples below zero count too."""
    engine = silent_engine(lambda frame: -QUIET_PEAK - 1 if frame % 5 == 4 else 0)

    log = run(engine, [generation("a", max_frames=21, silence_stop_frames=5)])

    assert log.end("a").finish_reason == "length"


def test_silence_may_be_allowed() -> None:
    """0 turns the silence stop off."""
    log = run(silent_engine(lambda _: 0), [generation("a", max_frames=30)])

    assert log.end("a").finish_reason == "length"


# Refusals and faults of one row


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


# The step


class NoSync(TorchDispatchMode):
    """Fails at operations that wait for the device or whose shape depends on data."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.forbidden, name
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_nothing_and_rebinds_nothing() -> None:
    """Speaking, replaying and feeding never read a value on the host and write state in place."""
    engine, step = make_engine()
    log = Log()
    run_until(engine, log, generation("a", max_frames=60), frames=1)
    state = (step.hidden, step.codes, step.position, step.frame, step.speaking, step.cache.keys)
    addresses = [tensor.data_ptr() for tensor in state]
    active = torch.tensor([True, False, False, False])

    with NoSync():  # type: ignore[no-untyped-call]
        step.speak(active, 64)
        step.feed(512)
        step.repeat(step.codes, active)
        step.feed(512)

    kept = (step.hidden, step.codes, step.position, step.frame, step.speaking, step.cache.keys)
    assert [tensor.data_ptr() for tensor in kept] == addresses


def test_resting_lanes_do_not_move() -> None:
    """A step of one lane leaves the state of all others as it was, bit for bit."""
    engine, step = make_engine()
    log = Log()
    for key in "abcd":
        engine.submit(generation(key, max_frames=60))
    while len(log.frames("d")) < 2:
        engine.tick(log)
    before = [t.clone() for t in (step.hidden, step.position, step.frame, step.cache.keys)]

    step.speak(torch.tensor([False, True, False, False]), 64)
    step.feed(512)

    after = (step.hidden, step.position, step.frame, step.cache.keys)
    others = [0, 2, 3]
    for old, new in zip(before[:3], after[:3], strict=True):
        assert torch.equal(old[others], new[others])
        assert not torch.equal(old[1], new[1])
    window = slice(0, step.window)
    assert torch.equal(before[3][:, others, :, window], after[3][:, others, :, window])


def test_events_of_a_tick_are_complete(engine: Engine) -> None:
    """A refusal, a release and frames of one tick leave in one batch."""
    batches: list[list[Event]] = []
    engine.submit(generation("a", text="x"))
    engine.submit(generation("b", top_k=0))
    engine.stop("c")

    engine.tick(batches.append)

    (batch,) = batches
    assert [type(event) for event in batch] == [Ended, Released, Frame]
