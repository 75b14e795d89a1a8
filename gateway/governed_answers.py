"""What answers repeat of an artifact's manifests, as types: voices, digests, governance, limits."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Phase(Answer):
    code: str
    reason: str
    required_phase: str


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


class SpeechLimits(Answer):
    """What the artifact can't say; ``vocabulary`` null where it knows no bound of words."""

    note: str
    vocabulary: list[str] | None
