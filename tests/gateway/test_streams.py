"""Streams: exact bytes, each event as it exists, and one end."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shared.wav import STREAMING_HEADER, wav_file
from tests.gateway.streamed import (
    AUDIO,
    FRAMED,
    JSONL,
    MULTIPART,
    SSE,
    TERMINAL_KEYS,
    events,
    parts,
    stream_name,
    whole,
)
from tests.gateway.world import World, pcm, statement


async def test_multipart_bytes(world: World) -> None:
    """Start, a WAV part per frame, terminal, close: to the byte."""
    answer = await whole(world, MULTIPART)

    assert answer.headers["content-type"] == "multipart/mixed; boundary=psionic-csm-stream"
    start = (
        b"--psionic-csm-stream\r\nContent-Type: application/json\r\n\r\n"
        b'{"event":"start","encoding":"wav","chunk_transport":"multipart_mixed",'
        b'"streaming_mode":"generation_time_windowed"}\r\n'
    )
    assert answer.body.startswith(start)
    assert answer.body.endswith(b"}\r\n--psionic-csm-stream--\r\n")
    audio = parts(answer.body)[1:-1]
    assert [payload for _, payload in audio] == [wav_file(pcm(index)) for index in range(3)]
    for index, (lines, _) in enumerate(audio):
        assert lines[:-1] == [
            "Content-Type: audio/wav",
            f"X-Psionic-Chunk-Index: {index}",
            "X-Psionic-Chunk-Bytes: 3884",
            f"X-Psionic-Final-Chunk: {'true' if index == 2 else 'false'}",
            "X-Psionic-Chunk-Duration-Ms: 80",
            f"X-Psionic-Generated-Frame-Count: {index + 1}",
        ]
        name, _, elapsed = lines[-1].partition(": ")
        assert name == "X-Psionic-Chunk-Elapsed-Ms"
        assert int(elapsed) >= 0


async def test_jsonl_lines(world: World) -> None:
    """Start, a line per frame, terminal: each with exactly its keys."""
    answer = await whole(world, JSONL)

    assert answer.headers["content-type"] == "application/x-ndjson"
    start, *audio, terminal = events(answer.body, "jsonl_base64")
    assert start == {
        "event": "start",
        "encoding": "wav",
        "chunk_transport": "jsonl_base64",
        "streaming_mode": "generation_time_windowed",
    }
    for index, event in enumerate(audio):
        assert event.pop("elapsed_ms") >= 0
        assert base64.b64decode(event.pop("data_base64"), validate=True) == wav_file(pcm(index))
        assert event == {
            "event": "audio",
            "content_type": "audio/wav",
            "encoding": "wav",
            "chunk_index": index,
            "chunk_bytes": 3884,
            "duration_ms": 80,
            "generated_frame_count": index + 1,
            "final_chunk": index == 2,
        }
    assert len(audio) == 3
    assert terminal["chunk_transport"] == "jsonl_base64"


async def test_sse_events(world: World) -> None:
    """OpenAI's events: the deltas join to the body that a raw stream would be."""
    answer = await whole(world, SSE)

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events(answer.body, "sse")
    assert [set(delta) for delta in deltas] == [{"type", "audio"}] * 3
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    joined = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert joined == STREAMING_HEADER + pcm(0) + pcm(1) + pcm(2)
    assert done["type"] == "speech.audio.done"
    assert list(done)[1:] == TERMINAL_KEYS[1:]


@pytest.mark.parametrize(("form", "head"), [("wav", STREAMING_HEADER), ("pcm", b"")])
async def test_raw_audio(world: World, form: str, head: bytes) -> None:
    """One header with open sizes, or none, and the samples chunk by chunk."""
    answer = await whole(world, {**AUDIO, "response_format": form})

    assert answer.headers["content-type"] == f"audio/{form}"
    assert answer.body == head + pcm(0) + pcm(1) + pcm(2)
    assert "content-length" not in answer.headers


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
async def test_stream_headers(world: World, body: dict[str, Any]) -> None:
    """A stream has the execution headers and the stream's own, and none of a one-shot's."""
    headers = (await whole(world, body)).headers

    expected = {
        "x-psionic-streaming-mode": "generation_time_windowed",
        "x-psionic-stream-format": stream_name(body),
        "x-psionic-stream-window-frames": "1",
        "x-psionic-request-id": "r1",
        "x-request-id": "r1",
        "x-psionic-served-backend": "cpu",
        "x-psionic-execution-engine": "torch_csm_cpu",
        "x-psionic-runtime-state": "ready",
        "x-psionic-csm-artifact-id": world.artifact.artifact_id,
    }
    assert {name: headers.get(name) for name in expected} == expected
    assert "x-psionic-csm-frames-sha256" not in headers
    assert "content-length" not in headers


async def test_the_terminal_carries_everything(world: World) -> None:
    """Every key of the contract, in its order, and the digests of a one-shot of the same frames."""
    answer = await whole(world, {**MULTIPART, "cancellation_id": "c1"})
    terminal = events(answer.body, "multipart_mixed")[-1]

    assert list(terminal) == TERMINAL_KEYS
    stated = statement(3, "stop", "eos")
    expected = {
        "event": "terminal",
        "model": "sesame/csm-1b",
        "artifact_id": world.artifact.artifact_id,
        "governance_schema": "psionic.csm.artifact_governance.v1",
        "license_posture": "license_review_required",
        "voice_profile_id": "openagents/default_female_v1",
        "runtime_admission": "admitted_openagents_operated_autopilot_production_dogfood",
        "watermarking": "unsupported_operator_accepted_limited_dogfood",
        "watermarking_refusal_code": "csm_watermarking_unavailable",
        "backend": "cpu",
        "generated_frame_count": 3,
        "hit_eos": True,
        "output_duration_ms": 240,
        "wav_bytes": 44 + 3 * 3840,
        "chunk_count": 3,
        "codebook_frames_sha256": stated.codebook_frames_sha256,
        "wav_pcm16_digest": stated.wav_pcm16_digest,
        "pcm16_sha256": stated.pcm16_sha256,
        "request_id": "r1",
        "cancellation_id": "c1",
        "finish_reason": "stop",
        "stop_cause": "eos",
        "failure_code": None,
        "runtime_state": "ready",
        "attempt": 1,
        "worker_id": "w1",
        "source_prompt_profile_id": "conversational_b",
        "replayed": False,
        "fallback_recommended": False,
        "rollback_target": "fallback_to_current_autopilot_tts_provider",
    }
    assert {key: terminal[key] for key in expected} == expected


async def test_an_early_end_has_no_final_chunk(world: World) -> None:
    """No chunk claims to be the last when only the terminal can know."""
    answer = await whole(world, JSONL, frames=2)

    assert not any(event.get("final_chunk") for event in events(answer.body, "jsonl_base64"))


async def test_each_event_leaves_as_it_exists(world: World) -> None:
    """Nothing is held back: the start with the first frame, each frame as it is posted."""
    call = world.post(JSONL)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    status, _ = await call.start()
    start, first = json.loads(await call.part()), json.loads(await call.part())
    world.worker.post(claim, 1)
    second = json.loads(await call.part())
    world.worker.end(claim, 2)
    terminal = json.loads(await call.part())

    assert status == 200
    assert [event["event"] for event in (start, first, second, terminal)] == [
        "start",
        "audio",
        "audio",
        "terminal",
    ]
    assert call.finished


async def test_a_replay_streams_the_same_audio(world: World) -> None:
    """A retry of a finished request is streamed from the record, in any transport, and says so."""
    first = await whole(world, MULTIPART)

    again = await world.refused(JSONL)

    assert again.headers["x-psionic-csm-replayed"] == "true"
    audio = [e for e in events(again.body, "jsonl_base64") if e["event"] == "audio"]
    assert [base64.b64decode(each["data_base64"]) for each in audio] == [
        payload for lines, payload in parts(first.body) if lines[0].endswith("wav")
    ]
    terminal = events(again.body, "jsonl_base64")[-1]
    assert terminal["replayed"] is True
    assert terminal["wav_pcm16_digest"] == statement(3, "stop", "eos").wav_pcm16_digest


@pytest.mark.parametrize("body", FRAMED, ids=stream_name)
async def test_a_stream_that_was_cut_at_its_length_says_so(
    world: World, body: dict[str, Any]
) -> None:
    """Never in silence: ``length`` in the terminal, and the last chunk is marked as it is sent."""
    answer = await whole(world, {**body, "max_audio_length_ms": 240}, 3, reason="length")

    terminal = events(answer.body, stream_name(body))[-1]
    assert (terminal["finish_reason"], terminal["hit_eos"]) == ("length", False)
    assert terminal["stop_cause"] is None
    assert terminal["generated_frame_count"] == 3
    if body is JSONL:
        told = [e["final_chunk"] for e in events(answer.body, "jsonl_base64")[1:-1]]
        assert told == [False, False, True]
    if body is MULTIPART:
        assert answer.body.count(b"X-Psionic-Final-Chunk: true") == 1
