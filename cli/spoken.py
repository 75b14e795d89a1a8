"""One spoken answer: gathered from a one-shot response or from a stream, and checked.

The check is the caller's own: the file's digest is computed here and compared with what the service
said, and frames, samples and duration have to agree.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.exits import NOT_GENUINE, CommandFailed
from cli.failures import failure
from shared.digests import sha256_hex
from shared.wav import FRAME_BYTES, FRAME_MS, HEADER_BYTES, SAMPLE_RATE, wav_file, wav_header


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came back. Times in milliseconds, digests as ``sha256:<hex>``."""

    wav: bytes
    request_id: str
    artifact_id: str
    voice_profile_id: str
    backend: str
    frames: int
    duration_ms: int
    finish_reason: str
    stop_cause: str | None
    first_audio_latency_ms: int | None
    queue_wait_ms: int | None
    full_generation_latency_ms: int
    seed: int | None
    attempt: int | None
    worker_id: str | None
    wav_digest: str
    pcm_digest: str | None
    codes_digest: str
    replayed: bool

    def facts(self) -> dict[str, Any]:
        """Everything but the audio, for --json."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "wav"}


def from_response(wav: bytes, headers: Mapping[str, str]) -> Spoken:
    """A one-shot answer. Raises :class:`CommandFailed` if something that must be there is not."""

    def text(name: str) -> str | None:
        return headers.get(f"x-psionic-{name}")

    def needed(name: str) -> str:
        value = text(name)
        if value is None:
            raise CommandFailed(NOT_GENUINE, f"the response lacks the header x-psionic-{name}")
        return value

    def number(name: str) -> int | None:
        value = text(name)
        return int(value) if value is not None and value.isascii() and value.isdigit() else None

    def count(name: str) -> int:
        value = number(name)
        if value is None:
            needed(name)
            raise CommandFailed(NOT_GENUINE, f"the header x-psionic-{name} is no number")
        return value

    reason = text("csm-finish-reason") or "unknown"
    by_eos = text("csm-hit-eos") == "true"
    return Spoken(
        wav=wav,
        request_id=needed("request-id"),
        artifact_id=needed("csm-artifact-id"),
        voice_profile_id=needed("csm-voice-profile-id"),
        backend=text("generation-backend") or needed("served-backend"),
        frames=count("csm-generated-frame-count"),
        duration_ms=count("output-duration-ms"),
        finish_reason=reason,
        stop_cause=("eos" if by_eos else "silence") if reason == "stop" else None,
        first_audio_latency_ms=number("first-audio-latency-ms"),
        queue_wait_ms=number("csm-queue-wait-ms"),
        full_generation_latency_ms=count("full-generation-latency-ms"),
        seed=number("csm-seed"),
        attempt=number("csm-attempt"),
        worker_id=text("csm-worker-id"),
        wav_digest=needed("csm-wav-pcm16-digest"),
        pcm_digest=text("csm-pcm16-sha256"),
        codes_digest=needed("csm-frames-sha256"),
        replayed=text("csm-replayed") == "true",
    )


def from_events(
    events: Iterable[Mapping[str, Any]], heard: Callable[[int, Mapping[str, Any]], None]
) -> Spoken:
    """A streamed answer. ``heard(bytes of PCM so far, event)`` is called for each event.

    Raises :class:`CommandFailed` for an error event, a gap or a chunk that is no WAV file.
    """
    pcm = bytearray()
    chunks = 0
    for event in events:
        kind = event.get("event")
        if kind == "audio":
            if event.get("chunk_index") != chunks:
                raise CommandFailed(
                    NOT_GENUINE, f"chunk {event.get('chunk_index')} came where {chunks} was due"
                )
            chunks += 1
            pcm += _samples(event)
        elif kind == "error":
            raise _failed(event)
        heard(len(pcm), event)
        if kind == "terminal":
            return _from_terminal(event, wav_file(bytes(pcm)))
    raise CommandFailed(NOT_GENUINE, "the stream broke off without a terminal event")


def check(spoken: Spoken) -> None:
    """Raises :class:`CommandFailed` unless the file is what the service says that it is."""
    samples = spoken.wav[HEADER_BYTES:]
    problems = []
    if spoken.wav[:HEADER_BYTES] != wav_header(len(samples) - len(samples) % 2):
        problems.append("not a 24 kHz mono PCM16 WAV file")
    if len(samples) != spoken.frames * FRAME_BYTES:
        problems.append(f"{len(samples)} bytes of samples are not {spoken.frames} frames")
    if spoken.duration_ms != spoken.frames * FRAME_MS:
        problems.append(f"{spoken.duration_ms} ms are not {spoken.frames} frames")
    if sha256_hex(spoken.wav) != spoken.wav_digest:
        problems.append("the file's digest is not the one stated")
    if spoken.pcm_digest is not None and sha256_hex(samples) != spoken.pcm_digest:
        problems.append("the samples' digest is not the one stated")
    if problems:
        raise CommandFailed(
            NOT_GENUINE, "the audio is not what the service says", details=tuple(problems)
        )


def _samples(event: Mapping[str, Any]) -> bytes:
    try:
        wav = base64.b64decode(event["data_base64"], validate=True)
        rate, size = struct.unpack_from("<I12xI", wav, 24)
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise CommandFailed(NOT_GENUINE, "an audio event without a WAV file in it") from error
    if rate != SAMPLE_RATE or size != len(wav) - HEADER_BYTES:
        raise CommandFailed(NOT_GENUINE, "an audio event whose WAV header is wrong")
    return wav[HEADER_BYTES:]


def _failed(event: Mapping[str, Any]) -> CommandFailed:
    error = event.get("error")
    if not isinstance(error, Mapping):
        return CommandFailed(NOT_GENUINE, "an error event without an error in it")
    whole = {**event, **error}
    return failure(whole, str(error.get("code")), str(error.get("message")))


def _from_terminal(event: Mapping[str, Any], wav: bytes) -> Spoken:
    try:
        return Spoken(
            wav=wav,
            request_id=event["request_id"],
            artifact_id=event["artifact_id"],
            voice_profile_id=event["voice_profile_id"],
            backend=event["backend"],
            frames=_count(event, "generated_frame_count"),
            duration_ms=_count(event, "output_duration_ms"),
            finish_reason=event["finish_reason"],
            stop_cause=event.get("stop_cause"),
            first_audio_latency_ms=event["first_audio_latency_ms"],
            queue_wait_ms=event.get("queue_wait_ms"),
            full_generation_latency_ms=_count(event, "full_generation_latency_ms"),
            seed=event.get("seed"),
            attempt=event.get("attempt"),
            worker_id=event.get("worker_id"),
            wav_digest=event["wav_pcm16_digest"],
            pcm_digest=event.get("pcm16_sha256"),
            codes_digest=event["codebook_frames_sha256"],
            replayed=event.get("replayed") is True,
        )
    except KeyError as error:
        raise CommandFailed(NOT_GENUINE, f"the terminal event lacks {error}") from error


def _count(event: Mapping[str, Any], name: str) -> int:
    value = event[name]
    if type(value) is not int:
        raise CommandFailed(NOT_GENUINE, f"the terminal event's {name} is no whole number")
    return value
