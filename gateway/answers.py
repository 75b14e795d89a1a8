"""What the routes answer about a request, as types. The OpenAPI document is made of them, and tests
hold the real answers to it; the answers themselves are built elsewhere.
"""

from __future__ import annotations

from typing import Literal

from gateway.governed_answers import Answer, ArtifactDigests, Governance, Voice


class Error(Answer):
    message: str
    type: str
    code: str
    served_backend: str
    execution_mode: str
    execution_engine: str
    request_id: str | None
    retryable: bool
    fallback_recommended: bool
    rollback_target: str | None
    param: str | None


class ErrorEnvelope(Answer):
    error: Error


class Hit(Answer):
    request_id: str
    was: str


class CancellationReport(Answer):
    hits: list[Hit]
    remembered: bool


class Terminal(Answer):
    """Everything that is known of a generation, null where it isn't."""

    model: str | None
    artifact_id: str | None
    governance_schema: str | None
    license_posture: str | None
    voice_profile_id: str | None
    runtime_admission: str | None
    watermarking: str | None
    watermarking_refusal_code: str | None
    backend: str | None
    execution_engine: str | None
    residency: str | None
    accelerated_backend: str | None
    gpu_model: str | None
    cpu_fallback_reason: str | None
    generated_frame_count: int
    prompt_frame_count: int | None
    hit_eos: bool
    first_audio_latency_ms: int | None
    full_generation_latency_ms: int | None
    output_duration_ms: int
    wav_bytes: int
    chunk_count: int
    codebook_frames_sha256: str | None
    wav_pcm16_digest: str | None
    pcm16_sha256: str | None
    request_id: str
    cancellation_id: str | None
    finish_reason: str | None
    stop_cause: str | None
    failure_code: str | None
    runtime_state: str | None
    queue_wait_ms: int | None
    seed: int | None
    attempt: int | None
    worker_id: str | None
    source_prompt_profile_id: str | None
    runtime_image_ref: str | None
    determinism_class: str | None
    replayed: bool
    fallback_recommended: bool
    rollback_target: str | None
    text_normalization: str | None
    spoken_text_sha256: str | None


class Result(Answer):
    request_id: str
    cancellation_id: str | None
    state: str
    attempt: int
    generated_frame_count: int
    terminal: Terminal | None


class Asked(Answer):
    model: str
    artifact_id: str
    voice_profile_id: str
    seed: int
    text_normalization: str | None
    spoken_text_sha256: str | None
    input_sha256: str
    input_characters: int
    context_policy: str
    max_audio_length_ms: int
    temperature: float
    top_k: int
    priority: str
    timeout_ms: int
    voice_turn_budget_ms: int | None
    response_format: str
    stream_format: str | None


class Governed(Answer):
    """All but the digest null at a gateway that has another manifest."""

    manifest_sha256: str | None
    artifact: Governance | None
    artifact_digests: ArtifactDigests | None
    voice_profile: Voice | None


class BusinessOutcome(Answer):
    outcome: str
    mode: str
    reason: str | None
    played_ms: int | None
    reference: str | None
    recorded_at_unix_ms: int


class RecordedOutcome(Answer):
    request_id: str
    business_outcome: BusinessOutcome


class Evidence(Result):
    """``request`` is null of what an older gateway admitted."""

    schema_version: str
    business_authority: str
    admitted_at_unix_ms: int
    ended_at_unix_ms: int | None
    read_at_unix_ms: int
    kept_until_unix_ms: int | None
    request: Asked | None
    governance: Governed
    business_outcome: BusinessOutcome | None


class StartEvent(Answer):
    event: Literal["start"]
    encoding: str
    chunk_transport: str
    streaming_mode: str


class AudioEvent(Answer):
    """One frame of ``jsonl_base64``; ``multipart_mixed`` has the same facts as a part's headers."""

    event: Literal["audio"]
    content_type: str
    encoding: str
    chunk_index: int
    chunk_bytes: int
    duration_ms: int
    generated_frame_count: int
    elapsed_ms: int
    final_chunk: bool
    data_base64: str


class Fallback(Answer):
    reason: str
    elapsed_ms: int
    rollback_target: str | None


class FallbackEvent(Fallback):
    event: Literal["fallback"]


class TerminalEvent(Terminal):
    """``chunk_transport`` in ``jsonl_base64`` alone."""

    event: Literal["terminal"]
    chunk_transport: str | None = None


class ErrorEvent(Terminal):
    event: Literal["error"]
    error: Error


class SpeechAudioDelta(Answer):
    type: Literal["speech.audio.delta"]
    audio: str


class SpeechAudioFallback(Fallback):
    type: Literal["fallback"]


class SpeechAudioDone(Terminal):
    type: Literal["speech.audio.done"]


class SpeechAudioError(Terminal):
    type: Literal["error"]
    error: Error


PARTS = (StartEvent, FallbackEvent, TerminalEvent, ErrorEvent)
LINES = (StartEvent, AudioEvent, FallbackEvent, TerminalEvent, ErrorEvent)
SERVER_SENT = (SpeechAudioDelta, SpeechAudioFallback, SpeechAudioDone, SpeechAudioError)
"""What may come in ``multipart_mixed`` as JSON, in ``jsonl_base64``, and in ``sse``."""
