"""Streams as they are asked for and as they are read, by their framing alone."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.gateway.world import Answer, World

HELLO: Final[dict[str, Any]] = {"input": "Hello.", "request_id": "r1", "max_audio_length_ms": 240}
MULTIPART: Final = {**HELLO, "stream": True}
JSONL: Final = {**HELLO, "stream": True, "stream_format": "jsonl_base64"}
SSE: Final = {**HELLO, "stream_format": "sse"}
AUDIO: Final = {**HELLO, "stream_format": "audio"}
FRAMED: Final = [MULTIPART, JSONL, SSE]

TERMINAL_KEYS: Final = [
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
