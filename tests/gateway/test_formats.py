"""Compressed formats: every sample of the job, under the right name, and nothing held back."""

from __future__ import annotations

import array
import base64
import gc
import io
import json
import math
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import fakeredis
import pytest
import redis
from av.audio.resampler import AudioResampler

from gateway import encoders
from gateway.encoders import ENCODINGS, UNSAID_DELAY_SAMPLES, Encoder, encode, working_encoders
from gateway.formats import CONTENT_TYPES, PLAIN_FORMATS
from shared.digests import sha256_hex, wav_pcm16_digest
from shared.errors import SpeechError
from shared.settings import GatewaySettings
from shared.wav import FRAME_BYTES, FRAME_SAMPLES, SAMPLE_RATE, wav_file
from tests.gateway.world import SPEECH, Answer, World, pcm, running, statement

HELLO: dict[str, Any] = {"input": "Hello.", "request_id": "r1", "max_audio_length_ms": 480}
NAMES = tuple(ENCODINGS)
COUNTS = (1, 2, 3, 13)


def sweep(frames: int) -> bytes:
    """A rising tone, so that samples at the wrong place or from elsewhere show."""
    rates = (200 + 0.08 * index for index in range(frames * FRAME_SAMPLES))
    waves = (math.sin(2 * math.pi * rate * n / SAMPLE_RATE) for n, rate in enumerate(rates))
    return array.array("h", (int(12_000 * wave) for wave in waves)).tobytes()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a player makes of a body. ``samples`` are 16-bit, at the file's own rate."""

    container: str
    rate: int
    samples: array.array[int]

    @property
    def count(self) -> int:
        """In samples at 24 kHz."""
        return len(self.samples) * SAMPLE_RATE // self.rate


def decode(body: bytes) -> Decoded:
    samples = array.array("h")
    with av.open(io.BytesIO(body), "r") as container:
        stream = container.streams.audio[0]
        assert stream.layout.name == "mono"
        to_s16 = AudioResampler(format="s16", layout="mono", rate=stream.rate)
        for frame in container.decode(stream):
            for piece in to_s16.resample(frame):
                samples.frombytes(bytes(piece.planes[0])[: 2 * piece.samples])
        return Decoded(container.format.name, stream.rate, samples)


def likeness(decoded: Decoded, source: bytes, delay: int) -> float:
    """Correlation of a body's samples from ``delay`` on with the source: 1.0 for the same.

    The ends are left out, so that a ``delay`` a little off, either way, can be tried too.
    """
    expected = array.array("h", source)[8:-8]
    step = decoded.rate // SAMPLE_RATE
    heard = decoded.samples[(delay + 8) * step :: step][: len(expected)]
    product = sum(a * b for a, b in zip(heard, expected, strict=True))
    return product / math.sqrt(sum(a * a for a in heard) * sum(b * b for b in expected))


def check_place(decoded: Decoded, source: bytes, delay: int) -> None:
    """The source is there, after exactly ``delay`` samples."""
    alike = {off: likeness(decoded, source, delay + off) for off in range(-3, 4)}
    assert max(alike, key=lambda off: alike[off]) == 0
    assert alike[0] > 0.99


def streamed(name: str, source: bytes) -> list[bytes]:
    """The pieces of a streamed body: one for each frame, and the rest."""
    encoder = Encoder(name)
    frames = range(0, len(source), FRAME_BYTES)
    pieces = [encoder.feed(source[start : start + FRAME_BYTES]) for start in frames]
    return [*pieces, encoder.finish()]


def test_all_formats_are_made_here() -> None:
    """The wheel that the extra brings encodes each of them."""
    assert working_encoders() == ("mp3", "opus", "aac", "flac")


@pytest.mark.parametrize("frames", COUNTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_the_samples_of_the_job(name: str, frames: int) -> None:
    """Delay and padding are declared and cut off; for ADTS, which can't, they are as documented."""
    source = sweep(frames)

    decoded = decode(encode(name, source))

    delay = UNSAID_DELAY_SAMPLES[name] if name == "aac" else 0
    padding = decoded.count - delay - frames * FRAME_SAMPLES
    assert 0 <= padding < 1024 if name == "aac" else padding == 0
    check_place(decoded, source, delay)


@pytest.mark.parametrize("frames", COUNTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_has_the_samples_of_the_job(name: str, frames: int) -> None:
    """Nothing is lost at the end; what a stream can't declare is as documented."""
    source = sweep(frames)

    decoded = decode(b"".join(streamed(name, source)))

    delay = UNSAID_DELAY_SAMPLES.get(name, 0)
    padding = decoded.count - delay - frames * FRAME_SAMPLES
    assert 0 <= padding < {"mp3": 576, "aac": 1024}.get(name, 1)
    check_place(decoded, source, delay)


@pytest.mark.parametrize("whole", [True, False])
def test_flac_is_lossless(whole: bool) -> None:
    """The very samples come back."""
    source = sweep(3)

    body = encode("flac", source) if whole else b"".join(streamed("flac", source))

    assert decode(body).samples.tobytes() == source


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_has_one_head_and_goes_out_as_it_is_made(name: str) -> None:
    """No head is repeated, and each frame but AAC's first brings bytes at once."""
    pieces = streamed(name, sweep(6))

    head = {"opus": b"OpusHead", "flac": b"fLaC", "mp3": b"Info", "aac": b"ID3"}[name]
    assert b"".join(pieces).count(head) == (1 if name in ("opus", "flac") else 0)
    assert [bool(piece) for piece in pieces[1:6]] == [True] * 5
    assert bool(pieces[0]) is (name != "aac")
    assert pieces[0].startswith(ENCODINGS[name].magic) or name == "aac"


@pytest.mark.parametrize("name", NAMES)
def test_equal_samples_give_equal_bytes(name: str) -> None:
    """A replay is the same file, without the time or the library's version in it."""
    source = sweep(2)

    assert encode(name, source) == encode(name, source)
    assert streamed(name, source) == streamed(name, source)
    assert b"Lavf6" not in encode(name, source)


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_may_be_left_at_any_time(name: str) -> None:
    """A client that hangs up leaves an encoder behind that was never finished."""
    for frames in range(3):
        encoder = Encoder(name)
        for _ in range(frames):
            encoder.feed(pcm(0))
        del encoder
    gc.collect()


@pytest.mark.parametrize("name", NAMES)
async def test_one_shot(world: World, name: str) -> None:
    """A whole file of its type, with the exact length; the digests are the WAV file's."""
    call = world.post({**HELLO, "response_format": name})
    await world.worker.speak(3)
    answer = await call.answer()

    source = b"".join(map(pcm, range(3)))
    assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPES[name])
    assert answer.body == encode(name, source)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["x-psionic-csm-wav-pcm16-digest"] == sha256_hex(wav_file(source))
    assert answer.headers["x-psionic-csm-pcm16-sha256"] == sha256_hex(source)
    assert answer.headers["x-psionic-output-duration-ms"] == "240"


@pytest.mark.parametrize("name", NAMES)
async def test_raw_stream(world: World, name: str) -> None:
    """The body is encoded frame by frame, under its type."""
    call = world.post({**HELLO, "response_format": name, "stream_format": "audio"})
    await world.worker.speak(3)
    answer = await call.answer()

    assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPES[name])
    assert "content-length" not in answer.headers
    assert answer.body == b"".join(streamed(name, b"".join(map(pcm, range(3)))))


async def test_a_raw_stream_leaves_as_it_is_made(world: World) -> None:
    """The first frame's bytes are there before the second frame is."""
    call = world.post({**HELLO, "response_format": "opus", "stream_format": "audio"})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    status, _ = await call.start()
    first = await call.part()

    assert status == 200
    assert first == streamed("opus", pcm(0))[0]


def deltas(answer: Answer) -> tuple[bytes, dict[str, Any]]:
    """The audio of an event stream, and its last event."""
    events = [json.loads(line[6:]) for line in answer.body.splitlines() if line[:5] == b"data:"]
    audio = [event["audio"] for event in events if event["type"] == "speech.audio.delta"]
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * len(audio)
    assert all(audio)
    return b"".join(map(base64.b64decode, audio)), events[-1]


@pytest.mark.parametrize("name", NAMES)
async def test_event_stream(world: World, name: str) -> None:
    """The deltas, joined, are the raw stream; none is empty; the terminal speaks of the WAV."""
    call = world.post({**HELLO, "response_format": name, "stream_format": "sse"})
    await world.worker.speak(3)
    audio, done = deltas(await call.answer())

    source = b"".join(map(pcm, range(3)))
    assert audio == b"".join(streamed(name, source))
    assert done["type"] == "speech.audio.done"
    assert (done["wav_bytes"], done["chunk_count"]) == (len(wav_file(source)), 3)
    assert done["wav_pcm16_digest"] == wav_pcm16_digest([source])


@pytest.mark.parametrize("name", NAMES)
async def test_replays_in_another_format(world: World, name: str) -> None:
    """A retry may take the same speech in another format, whole or streamed."""
    first = world.post(HELLO)
    await world.worker.speak(2)
    await first.answer()

    whole = await world.refused({**HELLO, "response_format": name})
    raw = await world.refused({**HELLO, "response_format": name, "stream_format": "audio"})

    source = pcm(0) + pcm(1)
    assert whole.headers["x-psionic-csm-replayed"] == "true"
    assert whole.body == encode(name, source)
    assert raw.body == b"".join(streamed(name, source))


@pytest.mark.parametrize("name", NAMES)
async def test_a_failure_breaks_the_transfer_off(world: World, name: str) -> None:
    """After the first byte, a raw body that is not whole has no end."""
    call = world.post({**HELLO, "response_format": name, "stream_format": "audio"})
    claim = await world.worker.claim()
    world.worker.post(claim, 0, 1)
    await call.start()
    world.worker.end(claim, 2, "error", failure_code="csm_synthesis_failed")

    body = b"".join([piece async for piece in parts(call)])

    assert not call.finished
    assert body == b"".join(streamed(name, pcm(0) + pcm(1))[:2])


async def parts(call: Any) -> AsyncIterator[bytes]:
    while piece := await call.part():
        yield piece


async def test_the_result_by_id_stays_a_wav(world: World) -> None:
    """Whoever reads the audio later gets the WAV file, whatever was asked at first."""
    call = world.post({**HELLO, "response_format": "opus"})
    await world.worker.speak(1)
    await call.answer()

    audio = await world.get(f"{SPEECH}/r1/audio")

    assert (audio.headers["content-type"], audio.body) == ("audio/wav", wav_file(pcm(0)))


@pytest.mark.parametrize("stream_format", ["multipart_mixed", "jsonl_base64"])
@pytest.mark.parametrize("name", NAMES)
async def test_chunked_wav_carries_nothing_else(
    world: World, name: str, stream_format: str
) -> None:
    """Transports of WAV chunks refuse another format."""
    answer = await world.refused(
        {**HELLO, "response_format": name, "stream": True, "stream_format": stream_format}
    )

    assert (answer.status, answer.code) == (400, "unsupported_response_format")
    assert answer.error["param"] == "response_format"


async def test_what_works_is_published(world: World) -> None:
    """The documents name every format that is served."""
    health = (await world.get("/health")).json()

    assert health["supported_response_formats"] == [*PLAIN_FORMATS, *NAMES]


@pytest.fixture
async def bare(
    settings: GatewaySettings,
    tmp_path: Path,
    fake_server: fakeredis.FakeServer,
    fake_redis: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    """A gateway in whose installation PyAV is missing."""
    monkeypatch.setitem(sys.modules, "av", None)
    working_encoders.cache_clear()
    clients = [fakeredis.FakeAsyncRedis(server=fake_server) for _ in range(2)]
    async with running(settings, tmp_path, fake_redis, *clients) as world:
        yield world
    working_encoders.cache_clear()


async def test_without_pyav_compressed_formats_are_refused(bare: World) -> None:
    """The service starts, publishes what it has, and refuses the rest before the queue."""
    before = bare.redis_keys()

    refused = [await bare.refused({**HELLO, "response_format": name}) for name in NAMES]

    assert {(answer.status, answer.code) for answer in refused} == {
        (400, "unsupported_response_format")
    }
    assert bare.redis_keys() == before
    health = (await bare.get("/health")).json()
    assert health["supported_response_formats"] == ["wav", "pcm"]


def broken(name: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    encoding = replace(ENCODINGS[name], **changes)
    monkeypatch.setattr(encoders, "ENCODINGS", {**ENCODINGS, name: encoding})


@pytest.mark.parametrize(
    "changes", [{"codec": "no_such_codec"}, {"container": "none"}, {"container": "matroska"}]
)
def test_the_self_test_leaves_out_what_does_not_work(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """A build without an encoder or a container, or whose bytes are something else, loses that
    format alone."""
    broken("mp3", monkeypatch, **changes)

    assert working_encoders.__wrapped__() == ("opus", "aac", "flac")


async def test_an_encoder_that_fails_is_a_defect(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be encoded after all is an error, never another format's bytes."""
    broken("mp3", monkeypatch, codec="no_such_codec")
    asked = {**HELLO, "response_format": "mp3"}
    one_shot = world.post(asked)
    await world.worker.speak(1)
    refused = await one_shot.answer()
    stream = await world.refused({**asked, "stream_format": "audio"})

    assert (refused.status, refused.code) == (500, "internal_error")
    assert (stream.status, stream.code) == (500, "internal_error")


async def test_a_stream_that_waits_holds_no_encoder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder costs up to 7 MiB: a stream has one from its first frame on, not in the queue."""
    made: list[str] = []

    class Counted(Encoder):
        def __init__(self, name: str) -> None:
            made.append(name)
            super().__init__(name)

    monkeypatch.setattr("gateway.formats.Encoder", Counted)
    call = world.post({**HELLO, "response_format": "flac", "stream_format": "audio"})
    claim = await world.worker.claim()
    assert made == []

    world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    assert (await call.answer()).status == 200
    assert made == ["flac"]


async def test_a_tail_that_fails_ends_in_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that fails at the very end spoils the stream: an error event, and no terminal."""

    def fail(_: Encoder) -> bytes:
        raise SpeechError("internal_error", "the audio could not be encoded")

    monkeypatch.setattr(Encoder, "finish", fail)
    call = world.post({**HELLO, "response_format": "opus", "stream_format": "sse"})
    await world.worker.speak(1)
    _, last = deltas(await call.answer())

    assert (last["type"], last["error"]["code"]) == ("error", "internal_error")


async def test_a_statement_that_does_not_fit_is_not_encoded(world: World) -> None:
    """Samples that are not those that the worker states never leave as a finished file."""
    call = world.post({**HELLO, "response_format": "flac"})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1, pcm16_sha256=statement(2, "stop", "eos").pcm16_sha256)

    assert (await call.answer()).code == "internal_error"
