"""Mimi as a stream of lanes: the contract's samples, and no lane hears of another."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi, check_codes, pcm16
from gpu_worker.model.checkpoint import load_config, load_mimi
from shared.digests import wav_pcm16_digest
from shared.governance.artifacts import Artifact
from shared.wav import FRAME_SAMPLES

LANES = 3
ALL = torch.ones(LANES, dtype=torch.bool)


def new_mimi(artifact: Artifact) -> Any:
    return load_mimi(artifact, load_config(artifact))


def codes_of(frames: int, seed: int = 0) -> Tensor:
    """[frames, LANES, 32] codes."""
    return torch.randint(2048, (frames, LANES, 32), generator=torch.Generator().manual_seed(seed))


def play(stream: StreamingMimi, codes: Tensor) -> Tensor:
    """[LANES, frames * 1920]: the frames one after another, all lanes active."""
    return torch.cat([stream.step(frame, ALL) for frame in codes], dim=1)


@pytest.fixture
def stream(tiny_artifact: Artifact) -> StreamingMimi:
    return StreamingMimi(new_mimi(tiny_artifact), LANES)


def test_pcm_vector() -> None:
    """Clamped, times 32767, halves away from zero: the contract's five samples and digest."""
    samples = pcm16(torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]))

    assert samples.tolist() == [-32767, -16384, 0, 16384, 32767]
    assert (
        wav_pcm16_digest([samples.numpy().tobytes()])
        == "sha256:8693c9c2de0009a832983a56d7a27209b518b291c3abd8efec00b98649f63055"
    )


def test_pcm_of_what_is_no_sample() -> None:
    """NaN is silence, and what is too loud is clamped."""
    wave = torch.tensor([math.nan, math.inf, -math.inf, 1.5, -7.0])

    assert pcm16(wave).tolist() == [0, 32767, -32767, 32767, -32767]


def test_pcm_just_below_a_half_is_not_rounded_up() -> None:
    """The largest value below one half stays 0, which adding 0.5 in float32 would not give."""
    below = torch.nextafter(torch.tensor(0.5), torch.tensor(0.0)) / 32767.0
    below = torch.nextafter(below, torch.tensor(0.0))

    assert float(below * 32767.0) < 0.5
    assert pcm16(below).item() == 0


@pytest.mark.parametrize("frames", [1, 2, 59, 120])
def test_streaming_equals_decoding_the_whole(tiny_artifact: Artifact, frames: int) -> None:
    """Within Mimi's window one-frame calls give what moshi's decode of the whole gives."""
    codes = codes_of(frames)
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)

    streamed = torch.cat([stream._decode(frame) for frame in codes], dim=1)
    with torch.no_grad():
        whole = new_mimi(tiny_artifact).decode(codes.permute(1, 2, 0))[:, 0]

    assert streamed.shape == whole.shape == (LANES, frames * FRAME_SAMPLES)
    assert (streamed - whole).abs().max().item() < 1e-5
    assert whole.abs().max().item() > 0.01


def test_far_beyond_the_window(tiny_artifact: Artifact) -> None:
    """After 265 frames a lane still is what moshi streams alone, and deaf to its neighbours.

    Beyond 250 positions, two a frame, the whole decode is another one: one-frame calls define it.
    """
    mine, others = codes_of(265), codes_of(265, seed=1)
    mixed = torch.cat([mine[:, :1], others[:, 1:]], dim=1)
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)
    lanes = torch.cat([stream._decode(frame) for frame in mine], dim=1)
    accompanied = StreamingMimi(new_mimi(tiny_artifact), LANES)
    company = torch.cat([accompanied._decode(frame) for frame in mixed], dim=1)

    alone = new_mimi(tiny_artifact)
    with torch.no_grad(), alone.streaming(1):
        single = torch.cat([alone.decode(frame[:1, :, None])[0] for frame in mine], dim=1)[0]
    with torch.no_grad():
        whole = new_mimi(tiny_artifact).decode(mine[:, :1].permute(1, 2, 0))[0, 0]

    assert lanes.shape == (LANES, 265 * FRAME_SAMPLES)
    assert (lanes[0] - single).abs().max().item() < 1e-5
    assert lanes[0].equal(company[0])
    assert not lanes[1].equal(company[1])
    assert (lanes[0] - whole)[: 120 * FRAME_SAMPLES].abs().max().item() < 1e-5
    assert (lanes[0] - whole)[130 * FRAME_SAMPLES :].abs().max().item() > 1e-5


def test_lanes_are_independent(tiny_artifact: Artifact) -> None:
    """What neighbours say changes not one bit of a lane's samples."""
    mine, others = codes_of(12), codes_of(12, seed=1)
    mixed = torch.cat([mine[:, :1], others[:, 1:]], dim=1)

    alone = play(StreamingMimi(new_mimi(tiny_artifact), LANES), mine)
    accompanied = play(StreamingMimi(new_mimi(tiny_artifact), LANES), mixed)

    assert alone[0].equal(accompanied[0])
    assert not alone[1].equal(accompanied[1])


def test_the_place_of_a_lane_does_not_matter(stream: StreamingMimi) -> None:
    """The same codes in every lane give the same samples in every lane."""
    codes = codes_of(8)[:, :1].expand(-1, LANES, -1)

    samples = play(stream, codes)

    assert samples[1:].equal(samples[:1].expand(LANES - 1, -1))


def test_paused_lane_goes_on_where_it_stopped(tiny_artifact: Artifact) -> None:
    """Pauses, long ones and beyond the attention window too, leave no trace in the samples."""
    codes = codes_of(160)
    plain = play(StreamingMimi(new_mimi(tiny_artifact), LANES), codes)
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)
    others = torch.tensor([False, True, True])

    heard = []
    for index, frame in enumerate(codes):
        for _ in range(index % 3):
            silent = stream.step(codes_of(1, seed=index)[0], others)[0]
            assert not silent.any()
        heard.append(stream.step(frame, ALL)[0])

    assert plain[0].equal(torch.cat(heard))


def test_reset_makes_a_fresh_lane(tiny_artifact: Artifact) -> None:
    """After a reset a lane sounds like the first one of a process; its neighbours don't notice."""
    before, after = codes_of(140), codes_of(10, seed=2)
    fresh = play(StreamingMimi(new_mimi(tiny_artifact), LANES), after)
    undisturbed = play(StreamingMimi(new_mimi(tiny_artifact), LANES), torch.cat([before, after]))
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)

    play(stream, before)
    stream.reset(1)
    samples = play(stream, after)

    assert fresh[1].equal(samples[1])
    assert undisturbed[0, -samples.shape[1] :].equal(samples[0])


def test_reset_clears_what_a_nan_left(tiny_artifact: Artifact) -> None:
    """A lane poisoned in every buffer, its attention ring included, is fresh after a reset.

    Long enough for the ring to be read whole again, behind the window too.
    """
    after = codes_of(130, seed=2)
    fresh = play(StreamingMimi(new_mimi(tiny_artifact), LANES), after)
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)
    play(stream, codes_of(4))
    for tensor in stream.by_lane:
        if tensor.is_floating_point():
            tensor[1].fill_(math.nan)

    stream.step(after[0], ALL)
    assert stream.finite.tolist() == [True, False, True]
    stream.reset(1)
    samples = play(stream, after)

    assert stream.finite.all()
    assert fresh[1].equal(samples[1])


def test_nan_stays_in_its_lane(tiny_artifact: Artifact) -> None:
    """One poisoned lane gives silence and leaves its neighbours' samples as they were."""
    codes = codes_of(10)
    plain = play(StreamingMimi(new_mimi(tiny_artifact), LANES), codes)
    stream = StreamingMimi(new_mimi(tiny_artifact), LANES)
    for tensor in stream.by_lane:
        if tensor.is_floating_point():
            tensor[1].fill_(math.nan)

    samples = play(stream, codes)

    assert plain[0].equal(samples[0])
    assert plain[2].equal(samples[2])


def test_every_changing_buffer_is_known(stream: StreamingMimi) -> None:
    """A frame changes no buffer that a reset would not clear."""
    known = {tensor.untyped_storage().data_ptr() for tensor in stream.by_lane}
    known.add(stream._active.untyped_storage().data_ptr())

    buffers = [
        tensor
        for part in stream._parts()
        for state in part.get_streaming_state().values()
        for holder in (state, getattr(state, "kv_cache", None))
        for tensor in vars(holder or object.__new__(StreamingMimi)).values()
        if isinstance(tensor, Tensor)
    ]
    unknown = [b for b in buffers if b.untyped_storage().data_ptr() not in known]
    before = [tensor.clone() for tensor in unknown]
    play(stream, codes_of(3))

    assert len(buffers) > len(unknown) > 0
    assert all(old.equal(new) for old, new in zip(before, unknown, strict=True))


@pytest.mark.parametrize("code", [-1, 2048, 2050])
def test_codes_outside_the_codebook_are_refused(stream: StreamingMimi, code: int) -> None:
    """A code that Mimi has no entry for never reaches it."""
    codes = codes_of(1)[0]
    codes[1, 31] = code

    with pytest.raises(ValueError, match=r"0\.\.2047"):
        stream.step(codes, ALL)
    with pytest.raises(ValueError, match=r"0\.\.2047"):
        check_codes(codes, 2048)


def test_codes_of_paused_lanes_are_ignored(stream: StreamingMimi) -> None:
    """A paused lane may hold anything: it is silent, and changes nothing for the others."""
    codes = codes_of(1)[0]
    active = torch.tensor([True, False, True])
    expected = stream.step(codes, active).clone()
    for lane in range(LANES):
        stream.reset(lane)
    codes[1] = 9999

    assert expected.equal(stream.step(codes, active))
    assert not expected[1].any()


def test_same_stream_in_inference_mode(tiny_artifact: Artifact) -> None:
    """Steps and resets work, and sound the same, inside and outside inference mode."""
    codes = codes_of(4)
    plain = play(StreamingMimi(new_mimi(tiny_artifact), LANES), codes)

    with torch.inference_mode():
        stream = StreamingMimi(new_mimi(tiny_artifact), LANES)
        first = play(stream, codes)
        stream.reset(0)
    stream.reset(1)
    second = play(stream, codes)

    assert plain.equal(first)
    assert plain[:2].equal(second[:2])


def test_a_closed_mimi_streams_anew(tiny_artifact: Artifact) -> None:
    """After close the same Mimi takes another number of lanes."""
    mimi = new_mimi(tiny_artifact)
    StreamingMimi(mimi, LANES).close()

    samples = StreamingMimi(mimi, 1).step(codes_of(1)[0, :1], torch.ones(1, dtype=torch.bool))

    assert samples.shape == (1, FRAME_SAMPLES)
    assert samples.dtype == torch.int16


def test_streams_say_what_they_hold(tiny_artifact: Artifact) -> None:
    """Each lane takes as much as the last: its attention ring above all."""
    few, more = (StreamingMimi(new_mimi(tiny_artifact), lanes) for lanes in (1, 3))

    assert more.nbytes == 3 * few.nbytes
    assert few.nbytes > few._transformer._ring.nbytes
