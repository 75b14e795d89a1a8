"""Governed voices: who may be spoken as, on what evidence, bound to which artifact.

A voice is never an upload. ``voices.json`` beside an artifact's manifest names each profile, its
prompt, consent and surfaces, and the digests of every file it depends on; a profile that does not
match its artifact is refused when the artifact is loaded.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from shared.digests import transcript_sha256
from shared.errors import SpeechError
from shared.governance.manifests import Digest, FileName, Label, Manifest, parse_manifest
from shared.wav import CODEBOOKS, SAMPLE_RATE

VOICES_SCHEMA: Final = "psionic.csm.voice_profiles.v1"
DEFAULT_PROFILE_ID: Final = "openagents/default_female_v1"
FRAME_CONTRACT: Final = "33_lanes_text_lane_32_audio_lanes_0_31_generation_frame_80ms"
UNREADABLE: Final = "voice_profile_descriptor_unavailable"
MISMATCH: Final = "voice_profile_digest_mismatch"

DIGEST_NAMES: Final = (
    "csm_config_digest",
    "csm_model_digest",
    "llama_tokenizer_digest",
    "mimi_weight_digest",
)


class WatermarkPolicy(Manifest):
    """What stands in for a watermark, and the code that says so."""

    status: Literal["unsupported_fail_closed", "unsupported_operator_accepted_limited_dogfood"]
    refusal_code: Label
    required_phase: Label
    public_demo_key_status: Literal["not_a_production_safety_control"]
    production_cutover: Literal[
        "admitted_for_openagents_operated_autopilot_dogfood_only",
        "blocked_until_private_watermark_or_equivalent_control",
    ]


class Compatibility(Manifest):
    csm_model_id: Label
    frame_contract: Literal["33_lanes_text_lane_32_audio_lanes_0_31_generation_frame_80ms"]
    mimi: Label
    prompt_codebooks: Label


class PromptSource(Manifest):
    """Where a profile's context segment comes from.

    ``file`` holds the codebooks [32, audio_frame_count]. ``segment_frame_count`` is the whole
    segment as the model sees it: text frames, audio frames and the audio's end frame.
    """

    file: FileName
    source: Label
    transcript: str = Field(min_length=1, max_length=4096)
    sample_rate_hz: Literal[24_000]
    codebook_count: Literal[32]
    audio_frame_count: int = Field(ge=1, le=2045)
    segment_frame_count: int = Field(ge=3, le=2047)

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        # BOS and EOS of the text and the end frame of the audio are always there.
        if self.segment_frame_count < self.audio_frame_count + 3:
            raise ValueError("segment_frame_count leaves no room for the transcript")
        return self


class VoiceProfile(Manifest):
    profile_id: Label
    display_name: str = Field(min_length=1, max_length=200)
    approval_status: Literal[
        "approved_internal_placeholder", "approved_openagents_operated_dogfood"
    ]
    runtime_admission: Literal[
        "admitted_internal_development", "admitted_openagents_operated_autopilot_production_dogfood"
    ]
    source_prompt_profile_id: Label
    speaker: int = Field(ge=0, le=65_535)
    prompt_transcript_sha256: Digest
    prompt_audio_sha256: Digest
    prompt_codebook_tokens_sha256: Digest | None
    csm_config_digest: Digest
    csm_model_digest: Digest
    llama_tokenizer_digest: Digest
    mimi_weight_digest: Digest
    compatibility: Compatibility
    source_provenance: Label
    consent_posture: Label
    allowed_product_surfaces: tuple[Label, ...] = Field(min_length=1)
    disallowed_product_surfaces: tuple[Label, ...]
    retention_policy: Label
    redaction_policy: Label
    watermark_policy: WatermarkPolicy
    prompt: PromptSource | None

    @model_validator(mode="after")
    def _prompt_agrees(self) -> Self:
        if set(self.allowed_product_surfaces) & set(self.disallowed_product_surfaces):
            raise ValueError("a surface is both allowed and disallowed")
        if self.prompt is None:
            return self
        if self.prompt_codebook_tokens_sha256 is None:
            raise ValueError("a prompt needs prompt_codebook_tokens_sha256")
        if transcript_sha256(self.prompt.transcript) != self.prompt_transcript_sha256:
            raise ValueError("prompt_transcript_sha256 is not the transcript's digest")
        return self

    @property
    def has_prompt(self) -> bool:
        """Whether ``context_policy: prompt_profile_only`` can be served."""
        return self.prompt is not None

    @property
    def prompt_frame_count(self) -> int:
        """Positions that the profile's context segment takes; 0 without a prompt."""
        return self.prompt.segment_frame_count if self.prompt else 0

    def published(self) -> dict[str, Any]:
        """The entry of ``voice_profiles[]`` in /health and /v1/models."""
        return {
            "id": self.profile_id,
            "display_name": self.display_name,
            "approval_status": self.approval_status,
            "runtime_admission": self.runtime_admission,
            "source_prompt_profile_id": self.source_prompt_profile_id,
            "speaker": self.speaker,
            "source": "committed_voice_governance_manifest",
            "prompt_transcript_sha256": self.prompt_transcript_sha256,
            "prompt_audio_sha256": self.prompt_audio_sha256,
            "mimi_tokens_sha256": self.prompt_codebook_tokens_sha256,
            "prompt_codebooks": self._published_codebooks(),
            "consent_posture": self.consent_posture,
            "allowed_product_surfaces": list(self.allowed_product_surfaces),
            "disallowed_product_surfaces": list(self.disallowed_product_surfaces),
            "retention_policy": self.retention_policy,
            "redaction_policy": self.redaction_policy,
            "watermarking": self.watermark_policy.status,
            "watermarking_refusal_code": self.watermark_policy.refusal_code,
        }

    def _published_codebooks(self) -> dict[str, Any] | None:
        if self.prompt is None:
            return None
        return {
            "source": self.prompt.source,
            "sample_rate_hz": SAMPLE_RATE,
            "codebook_count": CODEBOOKS,
            "frame_count": self.prompt.audio_frame_count,
            "prefix_frame_count": self.prompt.audio_frame_count,
            "prefix_codebook_count": CODEBOOKS,
            "tokens_sha256": self.prompt_codebook_tokens_sha256,
        }


class VoiceManifest(Manifest):
    schema_version: Literal["psionic.csm.voice_profiles.v1"]
    generated_at: Label
    model_id: Label
    watermark_policy: WatermarkPolicy
    profiles: tuple[VoiceProfile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        ids = [profile.profile_id for profile in self.profiles]
        if len(set(ids)) < len(ids):
            raise ValueError("a profile_id is given twice")
        return self

    @property
    def default(self) -> VoiceProfile:
        """``openagents/default_female_v1``, or the first profile where that one is not governed."""
        named = (each for each in self.profiles if each.profile_id == DEFAULT_PROFILE_ID)
        return next(named, self.profiles[0])

    def find(self, profile_id: str, param: str = "voice_profile_id") -> VoiceProfile:
        """The governed profile of that id; ``param`` is the field that named it.

        Raises SpeechError("voice_profile_unavailable").
        """
        for profile in self.profiles:
            if profile.profile_id == profile_id:
                return profile
        raise SpeechError(
            "voice_profile_unavailable",
            "the voice is not a governed profile of this artifact",
            param=param,
        )

    def check_bound_to(self, model_id: str, digests: dict[str, str]) -> None:
        """Raises SpeechError("voice_profile_digest_mismatch") unless every profile names them."""
        for profile in self.profiles:
            wrong = [name for name in DIGEST_NAMES if getattr(profile, name) != digests[name]]
            if profile.compatibility.csm_model_id != model_id or self.model_id != model_id:
                wrong.append("model_id")
            if wrong:
                raise SpeechError(
                    MISMATCH,
                    f"{profile.profile_id} is bound to another artifact: {', '.join(wrong)}",
                )


def parse_voices(data: bytes, name: str = "voices.json") -> VoiceManifest:
    """Raises SpeechError("voice_profile_descriptor_unavailable") for anything but the schema."""
    return parse_manifest(VoiceManifest, data, name, UNREADABLE)
