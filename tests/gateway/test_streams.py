"""Streams: exact bytes, each event as it exists, and one end."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shared.wav import STREAMING_HEADER, wav_file
from tests.gateway.world import Answer, Call, World, pcm, statement

HELLO: dict[str, Any] = {"input": "Hello.", "request_id": "r1", "max_audio_length_ms": 240}
MULTIPART = {**HELLO, "stream": True}
JSONL = {**HELLO, "stream": True, "stream_format": "jsonl_base64"}
SSE = {**HELLO, "stream_format": "sse"}
AUDIO = {**HELLO, "stream_format": "audio"}
FRAMED = [MULTIPART, JSONL, SSE]

TERMINAL_KEYS = [
    "event",
    "model",
    "artifact_id",
    "governance_schema",
    "license_posture",
    "voice_profile_id",
    "runtime_admission",
    "watermarking",
    "watermarking_refusal_code",
    "backend",
    "execution_engine",
    "residency",
    "accelerated_backend",
    "gpu_model",
    "cpu_fallback_reason",
    "generated_frame_count",
    "prompt_frame_count",
    "hit_eos",
    "first_audio_latency_ms",
    "full_generation_latency_ms",
    "output_duration_ms",
    "wav_bytes",
    "chunk_count",
    "codebook_frames_sha256",
    "wav_pcm16_digest",
    "pcm16_sha256",
    "request_id",
    "cancellation_id",
    "finish_reason",
    "stop_cause",
    "failure_code",
    "runtime_state",
    "queue_wait_ms",
    "seed",
    "attempt",
    "worker_id",
    "source_prompt_profile_id",
    "runtime_image_ref",
    "determinism_class",
    "replayed",
    "fallback_recommended",
    "rollback_target",
    "text_normalization",
    "spoken_text_sha256",
]


def stream_name(body: dict[str, Any]) -> str:
    return str(body.get("stream_format", "multipart_mixed"))


def parts(body: bytes) -> list[tuple[list[str], bytes]]:
    """The parts of a multipart body by its framing alone: header lines, payload."""
    found = []
    while body != b"--psionic-csm-stream--\r\n":
        head, _, rest = body.partition(b"\r\n\r\n")
        boundary, *lines = head.decode().split("\r\n")
        assert boundary == "--psionic-csm-stream"
        sizes = [line for line in lines if line.startswith("X-Psionic-Chunk-Bytes: ")]
        size = int(sizes[0].split(": ")[1]) if sizes else rest.index(b"\r\n")
        assert rest[size : size + 2] == b"\r\n"
        found.append((lines, rest[:size]))
        body = rest[size + 2 :]
    return found


def events(body: bytes, kind: str) -> list[dict[str, Any]]:
    """The JSON of a framed stream's events, the audio ones included where they are JSON."""
    if kind == "multipart_mixed":
        return [json.loads(p) for lines, p in parts(body) if lines[0].endswith("json")]
    if kind == "jsonl_base64":
        assert body.endswith(b"\n")
        return [json.loads(line) for line in body.splitlines()]
    found = []
    for block in body.decode().removesuffix("\n\n").split("\n\n"):
        event, data = block.split("\n")
        document = json.loads(data.removeprefix("data: "))
        assert event == f"event: {document['type']}"
        found.append(document)
    return found


async def whole(world: World, body: dict[str, Any], frames: int = 3, **how: Any) -> Answer:
    call = world.post(body)
    await world.worker.speak(frames, **how)
    return await call.answer()


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


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
async def test_a_failure_before_the_first_audio_is_an_http_error(
    world: World, body: dict[str, Any]
) -> None:
    """Until audio leaves, a stream's failure has its status and the envelope."""
    answer = await whole(world, body, 0, reason="error", failure_code="no_audio_generated")

    assert (answer.status, answer.code) == (502, "no_audio_generated")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-psionic-csm-failure-code"] == "no_audio_generated"


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
async def test_a_deadline_before_the_first_audio_is_an_http_error(
    world: World, body: dict[str, Any]
) -> None:
    """A stream that nobody claimed is a plain 504."""
    answer = await world.refused({**body, "timeout_ms": 500})

    assert (answer.status, answer.code) == (504, "queue_timeout")


@pytest.mark.parametrize("body", FRAMED, ids=stream_name)
async def test_a_failure_after_the_first_audio_is_an_error_event(
    world: World, body: dict[str, Any]
) -> None:
    """One error event ends the stream, with the envelope and all that is known."""
    answer = await whole(world, body, 2, reason="worker_lost", failure_code="worker_lost")

    last = events(answer.body, stream_name(body))[-1]
    assert answer.status == 200
    assert last.get("event", last.get("type")) == "error"
    assert (last["error"]["code"], last["error"]["type"]) == ("worker_lost", "generation_error")
    assert set(TERMINAL_KEYS) - {"event"} <= set(last)
    assert (last["finish_reason"], last["failure_code"]) == ("worker_lost", "worker_lost")
    assert (last["request_id"], last["chunk_count"]) == ("r1", 2)
    assert last["fallback_recommended"] is True
    assert b"terminal" not in answer.body
    assert b"audio.done" not in answer.body


async def test_a_raw_stream_that_fails_is_never_finished(world: World) -> None:
    """The last piece of a raw body never comes, so that the transfer is seen to be broken."""
    call = world.post(AUDIO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    await call.start()
    assert await call.part() == STREAMING_HEADER + pcm(0)
    world.worker.end(claim, 1, "error", failure_code="csm_synthesis_failed")

    assert await call.part() == b""
    await call.task

    assert not call.finished
    record = (await world.get("/psionic/csm/speech/r1")).json()
    assert record["terminal"]["failure_code"] == "csm_synthesis_failed"


async def test_a_cancel_ends_a_running_stream_with_its_code(world: World) -> None:
    """A stream that has begun hears of its cancellation in an error event; a retry, to whom it is
    known from the start, in a plain 409.
    """
    call = world.post(JSONL)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    await call.start()
    await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations")
    assert world.worker.post(claim, 1) == ["cancelled"]
    world.worker.end(claim, 1, "cancelled", failure_code="cancelled")

    body = b""
    while not call.finished:
        body += await call.part()

    last = events(body, "jsonl_base64")[-1]
    assert (last["event"], last["error"]["code"]) == ("error", "cancelled")
    assert last["finish_reason"] == "cancelled"
    for stream_format in ("jsonl_base64", "multipart_mixed", "sse", "audio"):
        retry = await world.refused({**JSONL, "stream_format": stream_format})
        assert (retry.status, retry.code) == (409, "cancelled")
        assert retry.headers["x-psionic-csm-replayed"] == "true"


async def test_a_silent_worker_ends_a_running_stream_at_the_deadline(world: World) -> None:
    """The caller's own deadline ends a stream that has begun, too."""
    call = world.post({**JSONL, "timeout_ms": 500})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    answer = await call.answer()

    last = events(answer.body, "jsonl_base64")[-1]
    assert (last["event"], last["error"]["code"]) == ("error", "generation_timeout")
    assert last["finish_reason"] == "timeout"
    assert (last["attempt"], last["worker_id"]) == (1, "w1")
    assert last["first_audio_latency_ms"] >= last["queue_wait_ms"] >= 0


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
async def test_a_voice_turn_over_budget_hears_of_the_fallback(
    world: World, body: dict[str, Any]
) -> None:
    """When the first audio is late, one fallback event opens the stream and the work goes on."""
    call = world.post({**body, "voice_turn_budget_ms": 20})
    claim = await world.worker.claim()
    status, headers = await call.start()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    sent = b""
    while not call.finished:
        sent += await call.part()

    assert status == 200
    assert headers["x-psionic-csm-voice-turn-budget-exceeded"] == "true"
    heard = events(sent, stream_name(body))
    fallback = [e for e in heard if "fallback" in (e.get("event"), e.get("type"))]
    assert len(fallback) == 1
    assert fallback[0]["reason"] == "voice_turn_budget_exceeded"
    assert fallback[0]["elapsed_ms"] >= 20
    assert fallback[0]["rollback_target"] == "fallback_to_current_autopilot_tts_provider"
    assert heard.index(fallback[0]) == (0 if body is SSE else 1)
    assert heard[-1]["finish_reason"] == "stop"
    assert heard[-1]["generated_frame_count"] == 1


async def test_a_voice_turn_in_budget_hears_nothing_of_it(world: World) -> None:
    """In time there is no fallback event."""
    answer = await whole(world, {**JSONL, "voice_turn_budget_ms": 30_000})

    assert [e["event"] for e in events(answer.body, "jsonl_base64")] == [
        "start",
        "audio",
        "audio",
        "audio",
        "terminal",
    ]


async def test_a_failure_after_the_fallback_is_an_error_event(world: World) -> None:
    """The fallback event commits the status; what fails after it is told in the stream."""
    call = world.post({**JSONL, "voice_turn_budget_ms": 1})
    await world.worker.hints.get()
    await call.start()
    await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations")

    body = b""
    while not call.finished:
        body += await call.part()

    heard = events(body, "jsonl_base64")
    assert [e["event"] for e in heard] == ["start", "fallback", "error"]
    assert heard[-1]["error"]["code"] == "cancelled"


async def hang_up_after(world: World, call: Call, frames: int, pieces: int) -> str:
    claim = await world.worker.claim()
    world.worker.post(claim, *range(frames))
    if frames:
        await call.start()
    for _ in range(pieces):
        await call.part()
    await call.hang_up()
    return world.worker.verdict(claim)


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
@pytest.mark.parametrize(("frames", "pieces"), [(0, 0), (1, 0), (1, 1), (2, 2)])
async def test_hanging_up_stops_the_work_at_every_event(
    world: World, body: dict[str, Any], frames: int, pieces: int
) -> None:
    """A client that is gone before, between or after events has its lane freed."""
    assert await hang_up_after(world, world.post(body), frames, pieces) == "cancelled"
    assert len(world.gateway.listeners) == 0
