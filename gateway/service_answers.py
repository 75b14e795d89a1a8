"""What the routes answer about the service, as types; see ``answers`` for those about a request."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gateway.governed_answers import (
    Answer,
    ArtifactDescriptor,
    ArtifactDigests,
    Governance,
    Phase,
    SafetyCapabilities,
    SpeechLimits,
    Voice,
)


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


class CodecCapabilities(Answer):
    mimi_decode: str
    mimi_decode_engine: str
    reference_audio_encode: str
    reference_audio_encode_refusal: Phase


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
    speech_limits: SpeechLimits = SpeechLimits(note="", vocabulary=None)


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
    deadline_margin_ms: int


class GatewayEntry(Answer):
    gateway_id: str
    waiting_callers: int
    heartbeat_age_ms: int


class Load(QueueLoad):
    estimated_wait_error_ms: float
    waiting_callers: int
    redis_memory_ratio: float
    refused_recently: int
    refused_codes: dict[str, int]
    artifacts: list[ArtifactLoad]
    workers: list[Worker]
    gateways: list[GatewayEntry]


class Probe(BaseModel):
    """``reasons`` are codes, there when the answer is no."""

    model_config = ConfigDict(extra="forbid")

    status: str
    reasons: list[str] = []
