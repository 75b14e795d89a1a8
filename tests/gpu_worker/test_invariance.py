"""A request's bits are its own: alone, in any lane, in any company, at a fixed number of lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_worker.codec import StreamingMimi
from gpu_worker.engine import Engine
from gpu_worker.generation import Frame, Generation
from gpu_worker.model.config import LLAMA_1B, LLAMA_100M
from gpu_worker.model.csm import CsmModel
from gpu_worker.step import FrameStep
from shared.digests import CodebookDigest, Pcm16Digest
from tests.gpu_worker.parity import drawn
from tests.gpu_worker.tiny import (
    LANES,
    PROMPTED,
    TINY,
    Log,
    build,
    generation,
    make_engine,
    random_mimi,
    random_model,
    run,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")

CHUNK: Final = 8
REQUESTS: Final = {
    each.key: each
    for each in (
        generation("sampled", max_frames=9, seed=1),
        generation("greedy", text="x", max_frames=4, seed=2, temperature=0.0),
        generation("chunks", text="exactly three chunks..", max_frames=7, seed=3, top_k=300),
        generation("prompted", text="a voice", max_frames=6, seed=4, context_policy=PROMPTED),
        generation("hot", text="hot", max_frames=11, seed=1, temperature=2.0, top_k=3),
        generation("whole", text="y" * 14, max_frames=5, seed=6, top_k=100_000),
    )
}
"""Among them: one candidate, few, all; the same seed twice; a prompt of whole chunks."""


@dataclass(frozen=True)
class Sound:
    """What a request came to: its frames, and the two digests that go with its result."""

    frames: tuple[tuple[int, bytes, bytes], ...]
    codes_digest: str
    pcm_digest: str

    @classmethod
    def of(cls, frames: list[Frame]) -> Sound:
        codes, pcm = CodebookDigest(), Pcm16Digest()
        for each in frames:
            codes.update(each.codes)
            pcm.update(each.pcm)
        rows = tuple((each.index, each.codes, each.pcm) for each in frames)
        return cls(rows, str(codes), str(pcm))


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def world(request: pytest.FixtureRequest) -> tuple[Engine, dict[str, tuple[Log, Sound]]]:
    """An engine for many examples, and what each request is alone in lane 0 of a fresh one."""
    with torch.inference_mode():
        model = random_model(dtype=request.param)
        alone = {}
        for key, each in REQUESTS.items():
            engine, _ = make_engine(model, chunk=CHUNK)
            log = run(engine, [each])
            alone[key] = log, Sound.of(log.frames(key))
        return engine, alone


Act = tuple[str, Any]
ACTS = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(sorted(REQUESTS))),
    st.tuples(st.just("noise"), st.tuples(st.integers(1, 30), st.sampled_from([1, 50, 900]))),
    st.tuples(st.just("stop"), st.integers(0, LANES - 1)),
    st.tuples(st.just("tick"), st.integers(1, 4)),
)


def play(engine: Engine, acts: list[Act]) -> tuple[Log, dict[str, str]]:
    """Lets requests join, be stopped and speak; the log, and which key is which request."""
    log, here, kinds = Log(), list[str](), dict[str, str]()
    for number, (act, what) in enumerate(acts):
        ended = {event.key for event in log.events if not isinstance(event, Frame)}
        here = [key for key in here if key not in ended]
        if act == "tick":
            for _ in range(what):
                engine.tick(log)
        elif act == "stop" and what < len(here):
            engine.stop(here.pop(what))
        elif act in ("join", "noise") and len(here) < LANES:
            key = f"{act}{number}"
            if act == "join":
                kinds[key] = what
                engine.submit(replace(REQUESTS[what], key=key))
            else:
                length, top_k = what
                text = "n" * length
                engine.submit(generation(key, text, max_frames=30, seed=number, top_k=top_k))
            here.append(key)
    while not engine.is_idle:
        engine.tick(log)
    return log, kinds


@settings(max_examples=7, deadline=None, suppress_health_check=list(HealthCheck))
@given(acts=st.lists(ACTS, min_size=8, max_size=24))
def test_company_changes_nothing(
    world: tuple[Engine, dict[str, tuple[Log, Sound]]], acts: list[Act]
) -> None:
    """Codes, samples and digests are those of the request alone, whoever joins or leaves when.

    A request that was stopped in mid-speech has spoken the beginning of it.
    """
    engine, alone = world
    with torch.inference_mode():
        log, kinds = play(engine, acts)

    stopped = log.released()
    for key, kind in kinds.items():
        (lonely, expected), sound = alone[kind], Sound.of(log.frames(key))
        if key in stopped:
            assert sound.frames == expected.frames[: len(sound.frames)]
        else:
            assert sound == expected
            assert log.end(key) == replace(lonely.end(kind), key=key)


@pytest.mark.parametrize("lane", range(LANES))
def test_lane_number_changes_nothing(
    world: tuple[Engine, dict[str, tuple[Log, Sound]]], lane: int
) -> None:
    """The same request gives the same bits in every lane."""
    engine, alone = world
    fillers = [generation(f"filler{n}", max_frames=60) for n in range(lane)]
    log = Log()
    for filler in fillers:
        engine.submit(filler)
    engine.submit(REQUESTS["prompted"])
    for filler in fillers:
        engine.stop(filler.key)
    while not engine.is_idle:
        engine.tick(log)

    assert Sound.of(log.frames("prompted")) == alone["prompted"][1]


def test_the_same_request_in_every_lane(
    world: tuple[Engine, dict[str, tuple[Log, Sound]]],
) -> None:
    """One request in all lanes at once, one seed, gives the same bits four times."""
    engine, alone = world

    log = run(engine, [replace(REQUESTS["hot"], key=str(lane)) for lane in range(LANES)])

    for lane in range(LANES):
        assert Sound.of(log.frames(str(lane))) == alone["hot"][1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_long_neighbour_changes_nothing(dtype: torch.dtype) -> None:
    """A neighbour passing positions 511, 512, 513 widens what all lanes attend to."""
    engine, _ = make_engine(random_model(dtype=dtype), chunk=64)
    alone = run(engine, [generation("a", max_frames=12)])
    long = generation("long", text="l" * 505, max_frames=12)
    long_alone = run(engine, [long])
    log = Log()
    engine.submit(long)
    while len(log.frames("long")) < 2:
        engine.tick(log)

    engine.submit(generation("a", max_frames=12))
    while not engine.is_idle:
        engine.tick(log)

    assert log.end("long").prompt_frame_count == 507
    assert log.frames("a") == alone.frames("a")
    assert log.frames("long") == long_alone.frames("long")


def ticks_to_speech(engine: Engine, request: Generation, log: Log) -> int:
    """Rounds of the engine until the request's first frame; then it speaks to its end."""
    engine.submit(request)
    ticks = 0
    while not log.frames(request.key):
        engine.tick(log)
        ticks += 1
    while not engine.is_idle:
        engine.tick(log)
    return ticks


@pytest.mark.parametrize("start", ["fresh", "used"])
def test_a_stop_in_mid_prefill_leaves_nothing(start: str) -> None:
    """A lane whose last request was stopped between two chunks is a fresh lane, at once.

    The request that is gone is not taken in any further: the next one need not wait for it.
    """
    model = random_model()
    engine, expected = make_engine(model)[0], Log()
    undisturbed = ticks_to_speech(engine, REQUESTS["prompted"], expected)
    engine, _ = make_engine(model)
    log = Log()
    if start == "used":
        run(engine, [generation(key, max_frames=9) for key in "abcd"])
    engine.submit(generation("gone", text="g" * 60, context_policy=PROMPTED))
    engine.tick(log)
    engine.tick(log)
    engine.stop("gone")

    assert ticks_to_speech(engine, REQUESTS["prompted"], log) == undisturbed
    assert log.frames("gone") == []
    assert log.frames("prompted") == expected.frames("prompted")


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("lanes", [3, 5])
def test_two_threads_sum_every_lane_alike(lanes: int) -> None:
    """Also where several threads share a product whose rows they can't share evenly.

    Logits and unrounded samples are compared, which show what codes would hide for long.
    """
    model, codec = random_model(), StreamingMimi(random_mimi(), lanes)
    model.settle()
    step = FrameStep(model, codec, lanes, CHUNK)
    hidden = torch.randn(64, generator=torch.Generator().manual_seed(1))
    codes = torch.randint(2048, (1, 32), generator=torch.Generator().manual_seed(2))
    seen, active = [], torch.ones(lanes, dtype=torch.bool)

    for place in range(lanes):
        step.hidden.normal_()
        step.hidden[place] = hidden
        with drawn() as logits:
            step.speak(active, 1)
        others = torch.randint(2048, (lanes, 32))
        others[place] = codes[0]
        codec.reset(place)
        wave = codec._decode(others)[place]
        seen.append(torch.cat([wave, *(each[place] for each in logits)]))

    assert len(seen[0]) == 1920 + 32 * 2051
    assert all(torch.equal(seen[0], each) for each in seen)


def wide_model(dtype: torch.dtype) -> CsmModel:
    """One layer each of CSM-1B's backbone and depth decoder, at their published widths."""
    config = replace(
        TINY,
        backbone=replace(LLAMA_1B, num_layers=1),
        depth=replace(LLAMA_100M, num_layers=1),
    )
    model, generator = CsmModel(config, dtype), torch.Generator().manual_seed(0)
    state = {
        name: torch.ones_like(each)
        if each.ndim == 1
        else torch.empty_like(each).normal_(0, 0.02, generator=generator)
        for name, each in model.state_dict().items()
    }
    model.load_state_dict(state, strict=True)
    model.settle()
    return model


@pytest.mark.fullsize
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_published_widths(dtype: torch.dtype, threads: int) -> None:
    """At CSM-1B's widths too, for batches with and without a remainder to the kernels' blocks.

    The request is in the first, a middle and the last lane at once, so that one run says it all.
    """
    model = wide_model(dtype)
    torch.set_num_threads(threads)
    try:
        for lanes in (3, 7, 8, 17):
            step = FrameStep(model, StreamingMimi(random_mimi(), lanes), lanes, 32)
            engine = Engine(step, build, {})
            alone = run(engine, [generation("a", max_frames=2)]).frames("a")
            places = {0: "first", lanes // 2: "middle", lanes - 1: "last"}
            requests = [
                generation(places.get(lane, f"other{lane}"), max_frames=2)
                if lane in places
                else generation(f"other{lane}", "o" * (1 + lane % 29), seed=lane, max_frames=3)
                for lane in range(lanes)
            ]
            log = run(engine, requests)
            for key in places.values():
                assert [replace(each, key="a") for each in log.frames(key)] == alone, (lanes, key)
    finally:
        torch.set_num_threads(1)
