"""The caller's own check of what came back."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from cli.exits import NOT_GENUINE, CommandFailed
from cli.spoken import Spoken, check, from_events, from_response
from shared.digests import sha256_hex
from shared.wav import FRAME_BYTES, wav_file

FRAME = bytes(range(256)) * (FRAME_BYTES // 256)
WAV = wav_file(FRAME * 2)


def headers(**other: str) -> dict[str, str]:
    whole = {
        "x-psionic-request-id": "r",
        "x-psionic-csm-artifact-id": "a@sha256:0",
        "x-psionic-csm-voice-profile-id": "v",
        "x-psionic-served-backend": "cpu",
        "x-psionic-csm-generated-frame-count": "2",
        "x-psionic-output-duration-ms": "160",
        "x-psionic-csm-finish-reason": "stop",
        "x-psionic-csm-hit-eos": "true",
        "x-psionic-first-audio-latency-ms": "12",
        "x-psionic-full-generation-latency-ms": "34",
        "x-psionic-csm-seed": "7",
        "x-psionic-csm-wav-pcm16-digest": sha256_hex(WAV),
        "x-psionic-csm-pcm16-sha256": sha256_hex(FRAME * 2),
        "x-psionic-csm-frames-sha256": sha256_hex(b""),
    }
    return {**whole, **other}


def audio(index: int, pcm: bytes = FRAME) -> dict[str, Any]:
    return {
        "event": "audio",
        "chunk_index": index,
        "data_base64": base64.b64encode(wav_file(pcm)).decode(),
    }


def terminal() -> dict[str, Any]:
    return {
        "event": "terminal",
        "request_id": "r",
        "artifact_id": "a@sha256:0",
        "voice_profile_id": "v",
        "backend": "cpu",
        "generated_frame_count": 2,
        "output_duration_ms": 160,
        "finish_reason": "length",
        "stop_cause": None,
        "first_audio_latency_ms": 12,
        "full_generation_latency_ms": 34,
        "seed": 7,
        "wav_pcm16_digest": sha256_hex(WAV),
        "pcm16_sha256": sha256_hex(FRAME * 2),
        "codebook_frames_sha256": sha256_hex(b""),
    }


def gather(*events: dict[str, Any]) -> Spoken:
    return from_events(events, lambda *_: None)


def test_a_true_answer_passes() -> None:
    """A response whose file, counts and digests agree is taken, with its facts."""
    answer = from_response(WAV, headers())

    check(answer)

    assert (answer.frames, answer.duration_ms, answer.finish_reason) == (2, 160, "stop")
    assert (answer.stop_cause, answer.seed, answer.first_audio_latency_ms) == ("eos", 7, 12)


def test_a_stream_gives_the_same_file_as_one_piece() -> None:
    """The chunks' samples under one header are the one-shot file, and progress is heard."""
    heard: list[int] = []

    answer = from_events(
        [{"event": "start"}, audio(0), audio(1), terminal()], lambda size, _: heard.append(size)
    )

    check(answer)
    assert answer.wav == WAV
    assert heard == [0, FRAME_BYTES, 2 * FRAME_BYTES, 2 * FRAME_BYTES]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wav": WAV[:-1] + b"\x00"}, "the file's digest"),
        ({"wav": b"RIFX" + WAV[4:]}, "not a 24 kHz"),
        ({"wav": WAV[:-2]}, "samples are not 2 frames"),
        ({"frames": 3}, "are not 3 frames"),
        ({"duration_ms": 161}, "161 ms"),
        ({"pcm_digest": sha256_hex(b"x")}, "the samples' digest"),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(change: dict[str, Any], words: str) -> None:
    """Each disagreement between file, counts and digests is named."""
    answer = replace(from_response(WAV, headers()), **change)

    with pytest.raises(CommandFailed) as caught:
        check(answer)

    assert caught.value.exit_code == NOT_GENUINE
    assert any(words in line for line in caught.value.details)


def test_a_response_without_its_digest_is_refused() -> None:
    """A header that must be there and is not makes the answer worthless."""
    lacking = headers()
    del lacking["x-psionic-csm-wav-pcm16-digest"]

    with pytest.raises(CommandFailed, match="wav-pcm16-digest"):
        from_response(WAV, lacking)


@pytest.mark.parametrize(
    "name", ["csm-generated-frame-count", "output-duration-ms", "full-generation-latency-ms"]
)
def test_a_count_that_is_no_number_is_refused(name: str) -> None:
    """What must be a number and is none makes the answer worthless, too."""
    with pytest.raises(CommandFailed, match=f"{name} is no number") as caught:
        from_response(WAV, headers() | {f"x-psionic-{name}": "two"})

    assert caught.value.exit_code == NOT_GENUINE


@pytest.mark.parametrize(
    "events",
    [
        [audio(1)],
        [audio(0), audio(0)],
        [{"event": "audio", "chunk_index": 0}],
        [{"event": "audio", "chunk_index": 0, "data_base64": "@@"}],
        [{"event": "audio", "chunk_index": 0, "data_base64": "AAAA"}],
        [audio(0)],
        [{"event": "terminal"}],
        [{"event": "audio", "chunk_index": 0, "data_base64": "\u00e9"}],
        [audio(0), {**terminal(), "output_duration_ms": "160"}],
        [audio(0), {**terminal(), "full_generation_latency_ms": None}],
    ],
)
def test_a_damaged_stream_is_refused(events: list[dict[str, Any]]) -> None:
    """A gap, a repeat, bytes that are no WAV file, no terminal, an empty terminal: none passes."""
    with pytest.raises(CommandFailed) as caught:
        gather(*events)

    assert caught.value.exit_code == NOT_GENUINE


def test_an_error_event_is_the_service_s_failure() -> None:
    """The code and message of an error event reach the person."""
    error = {"event": "error", "error": {"code": "cancelled", "message": "stopped"}}

    with pytest.raises(CommandFailed) as caught:
        gather({"event": "start"}, audio(0), error)

    assert (caught.value.code, caught.value.message) == ("cancelled", "stopped")


def test_facts_leave_out_the_audio() -> None:
    """What --json prints holds every fact and no samples."""
    facts = from_response(WAV, headers()).facts()

    assert "wav" not in facts
    assert facts["wav_digest"] == sha256_hex(WAV)
