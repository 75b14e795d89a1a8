"""What the routes answer, as types. The OpenAPI document is made of them, and tests hold the real
answers to it; the answers themselves are built elsewhere.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


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


class Refusal(Answer):
    code: str
    reason: str
    pending_phases: list[str]


class RuntimeSummary(Answer):
    requested_backend: str
    residency: str
    backend: str
    execution_engine: str
    state: str
    loaded_at_unix_ms: int | None
    load_latency_ms: int | None
    tokenizer_loaded: bool
    csm_config_loaded: bool
    csm_model_loaded: bool
    mimi_loaded: bool
    accelerated_backend: str
    gpu_model: str
    cpu_fallback_reason: str | None
    refusal: Refusal | None


class QueueLoad(Answer):
    queue_depth: int
    in_flight_requests: int
    capacity_lanes: int
    estimated_wait_ms: int
    oldest_wait_ms: int


class WorkerRpc(QueueLoad):
    worker_id: str
    rpc_schema: str
    request_fields: list[str]
    response_metadata_fields: list[str]
    idempotency_key: str
    cancellation: str
    timeout_ms_default: int
    timeout_ms_max: int
    metrics: list[str]
    governance_fields: list[str]
    business_authority: str


class Phase(Answer):
    code: str
    reason: str
    required_phase: str


class CodecCapabilities(Answer):
    mimi_decode: str
    mimi_decode_engine: str
    reference_audio_encode: str
    reference_audio_encode_refusal: Phase


class SafetyCapabilities(Answer):
    watermarking: str
    watermarking_refusal: Phase


class PromptCodebooks(Answer):
    source: str
    sample_rate_hz: int
    codebook_count: int
    frame_count: int
    prefix_frame_count: int
    prefix_codebook_count: int
    tokens_sha256: str | None


class Voice(Answer):
    """A governed profile, as its manifest says it."""

    id: str
    display_name: str
    approval_status: str
    runtime_admission: str
    source_prompt_profile_id: str
    speaker: int
    source: str
    prompt_transcript_sha256: str
    prompt_audio_sha256: str
    mimi_tokens_sha256: str | None
    prompt_codebooks: PromptCodebooks | None
    consent_posture: str
    allowed_product_surfaces: list[str]
    disallowed_product_surfaces: list[str]
    retention_policy: str
    redaction_policy: str
    watermarking: str
    watermarking_refusal_code: str


class ArtifactDigests(Answer):
    csm_config_digest: str
    csm_model_digest: str
    llama_tokenizer_digest: str
    mimi_weight_digest: str


class FrameContract(Answer):
    frame_lanes: int
    audio_codebook_lanes: int
    text_lane_index: int
    max_seq_len: int
    generation_frame_ms: int
    sample_rate_hz: int


class ArtifactDescriptor(Answer):
    artifact_id: str
    model_id: str
    csm_repo: str
    llama_tokenizer_repo: str
    mimi_repo: str
    mimi_weight: str
    frame_contract: FrameContract


class Governance(Answer):
    """What the manifests of the artifact and of its voices say, and what is still missing."""

    schema_version: str
    voice_profile_governance_schema_version: str
    artifact_id: str
    artifact_hash: str
    model_id: str
    model_version: str
    source_repositories: list[str]
    license_posture: str
    runtime_image_ref: str
    quantization: str
    tokenizer_dependency: str
    audio_codec_dependency: str
    allowed_voice_profile_ids: list[str]
    disallowed_voice_use_cases: list[str]
    watermark_status: str
    watermark_refusal_code: str
    canary_promotion: str
    primary_promotion: str
    rollback_target: str
    missing_governance_blocks: list[str]
    autopilot_consumption: list[str]


class Health(Answer):
    status: str
    model: str
    capability: str
    served_backend: str
    execution_mode: str
    execution_engine: str
    supported_endpoints: list[str]
    supported_response_formats: list[str]
    supported_text_normalizations: list[str]
    voice_profiles: list[Voice]
    artifact_digests: ArtifactDigests
    artifact_descriptor: ArtifactDescriptor
    governance: Governance
    runtime: RuntimeSummary
    worker: WorkerRpc
    codec_capabilities: CodecCapabilities
    safety_capabilities: SafetyCapabilities
    execution_refusal: Refusal = Refusal(code="", reason="", pending_phases=[])


class Worker(Answer):
    """A live worker, as it says of itself; null where it says nothing."""

    worker_id: str | None
    host: str | None
    pid: int | None
    state: str | None
    requested_backend: str | None
    served_backend: str | None
    execution_engine: str | None
    accelerated_backend: str | None
    gpu_model: str | None
    gpu_model_label: str | None
    artifact_id: str | None
    artifact_digest: str | None
    lanes: int | None
    in_flight: int | None
    memory_required_bytes: int | None
    memory_used_bytes: int | None
    utilization: float | None
    load_latency_ms: int | None
    refusal: Refusal | None
    cpu_fallback_reason: str | None
    image_ref: str | None
    determinism_class: str | None
    heartbeat_age_ms: int | None


class Metadata(Health):
    workers: list[Worker]


class ModelCard(Answer):
    """``psionic_*`` repeats the sections of the health document."""

    id: str
    object: str
    owned_by: str
    psionic_capability: str
    psionic_supported_endpoints: list[str]
    psionic_supported_response_formats: list[str]
    psionic_supported_text_normalizations: list[str]
    psionic_served_backend: str
    psionic_execution_mode: str
    psionic_execution_engine: str
    psionic_voice_profiles: list[Voice]
    psionic_artifact_digests: ArtifactDigests
    psionic_artifact_descriptor: ArtifactDescriptor
    psionic_governance: Governance
    psionic_runtime: RuntimeSummary
    psionic_worker: WorkerRpc
    psionic_codec_capabilities: CodecCapabilities
    psionic_safety_capabilities: SafetyCapabilities
    psionic_execution_refusal: Refusal = Refusal(code="", reason="", pending_phases=[])


class Models(Answer):
    object: str
    data: list[ModelCard]


class ArtifactLoad(QueueLoad):
    queue: str
    artifact_id: str | None
    batch_queue_depth: int
    mean_service_ms: float
    mean_frame_ms: float
    budget_used: float
    estimated_wait_error_ms: float
    estimated_wait_bias_ms: float


class GatewayEntry(Answer):
    gateway_id: str
    waiting_callers: int
    heartbeat_age_ms: int


class Load(QueueLoad):
    estimated_wait_error_ms: float
    waiting_callers: int
    refused_recently: int
    artifacts: list[ArtifactLoad]
    workers: list[Worker]
    gateways: list[GatewayEntry]


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


class Probe(BaseModel):
    """``reasons`` are codes, there when the answer is no."""

    model_config = ConfigDict(extra="forbid")

    status: str
    reasons: list[str] = []
