"""What the demo artifacts say of themselves alike: the forms of its two manifests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from gpu_worker.codec import pcm16
from shared.digests import file_sha256, prompt_tokens_sha256, sha256_hex, transcript_sha256
from shared.governance.manifests import ARTIFACT_SCHEMA, Role, artifact_id_of
from shared.governance.voices import FRAME_CONTRACT, VOICES_SCHEMA
from shared.wav import SAMPLE_RATE, wav_file

VOICES_FILE: Final = "voices.json"
ROLES: Final[dict[str, Role]] = {
    "config.json": "csm_config",
    "model.safetensors": "csm_model",
    "tokenizer.json": "llama_tokenizer",
    "mimi.safetensors": "mimi_weight",
    "mimi.json": "mimi_config",
}
"""Of the files that each of them has; voices and prompts come after."""
WATERMARK: Final = {
    "status": "unsupported_fail_closed",
    "refusal_code": "csm_watermarking_unavailable",
    "required_phase": (
        "private_watermark_or_equivalent_voice_safety_control_before_public_voice_clone"
    ),
    "public_demo_key_status": "not_a_production_safety_control",
    "production_cutover": "blocked_until_private_watermark_or_equivalent_control",
}
GATE: Final = (
    "blocked_without_artifact_license_voice_profile_watermark_and_runtime_image_governance"
)


@dataclass(frozen=True, slots=True)
class BuiltVoice:
    """One voice and its prompt.

    clip: [samples] float32; codes: [32, frames], what the artifact's Mimi makes of it.
    """

    profile_id: str
    display_name: str
    prompt_id: str
    speaker: int
    mimi: str
    provenance: str
    consent: str
    file: str
    source: str
    transcript: str
    clip: Tensor
    codes: Tensor
    segment_frames: int


@dataclass(frozen=True, slots=True)
class BuiltArtifact:
    """An artifact's own words about itself. ``roles`` are those of its files.

    ``note`` says what can't be expected of its speech, ``vocabulary`` the words that it knows.
    """

    model_id: str
    version: str
    description: str
    tokenizer_repo: str
    mimi_repo: str
    roles: Mapping[str, str]
    quantization: str
    license_posture: str
    temperature: float
    top_k: int
    note: str
    vocabulary: Sequence[str] | None = None


def voices_manifest(
    model_id: str, generated_at: str, directory: Path, voices: Sequence[BuiltVoice]
) -> dict[str, Any]:
    """``voices.json``: one profile for each voice, bound to the files in ``directory``."""
    digests = _digests_of(directory)
    return {
        "schema_version": VOICES_SCHEMA,
        "generated_at": generated_at,
        "model_id": model_id,
        "watermark_policy": WATERMARK,
        "profiles": [_profile(voice, model_id, digests) for voice in voices],
    }


def _digests_of(directory: Path) -> dict[str, str]:
    """The four published digests, of the files in ``directory``."""
    return {
        "csm_config_digest": file_sha256(directory / "config.json"),
        "csm_model_digest": file_sha256(directory / "model.safetensors"),
        "llama_tokenizer_digest": file_sha256(directory / "tokenizer.json"),
        "mimi_weight_digest": file_sha256(directory / "mimi.safetensors"),
    }


def _profile(voice: BuiltVoice, model_id: str, digests: Mapping[str, str]) -> dict[str, Any]:
    return {
        "profile_id": voice.profile_id,
        "display_name": voice.display_name,
        "approval_status": "approved_internal_placeholder",
        "runtime_admission": "admitted_internal_development",
        "source_prompt_profile_id": voice.prompt_id,
        "speaker": voice.speaker,
        "prompt_transcript_sha256": transcript_sha256(voice.transcript),
        "prompt_audio_sha256": sha256_hex(wav_file(pcm16(voice.clip).numpy().tobytes())),
        "prompt_codebook_tokens_sha256": prompt_tokens_sha256(voice.codes.tolist()),
        **digests,
        "compatibility": {
            "csm_model_id": model_id,
            "frame_contract": FRAME_CONTRACT,
            "mimi": voice.mimi,
            "prompt_codebooks": "full_codebooks_beside_the_manifest",
        },
        "source_provenance": voice.provenance,
        "consent_posture": voice.consent,
        "allowed_product_surfaces": [
            "psionic_local_development",
            "autopilot_internal_development",
        ],
        "disallowed_product_surfaces": [
            "public_user_voice_clone",
            "arbitrary_reference_audio_upload",
        ],
        "retention_policy": "synthetic_prompt_rebuilt_at_any_time",
        "redaction_policy": "no_huggingface_token_no_provider_key_no_raw_user_voice_upload",
        "watermark_policy": WATERMARK,
        "prompt": {
            "file": voice.file,
            "source": voice.source,
            "transcript": voice.transcript,
            "sample_rate_hz": SAMPLE_RATE,
            "codebook_count": voice.codes.shape[0],
            "audio_frame_count": voice.codes.shape[1],
            "segment_frame_count": voice.segment_frames,
        },
    }


def artifact_manifest(artifact: BuiltArtifact, directory: Path) -> dict[str, Any]:
    """``manifest.json`` of the files in ``directory``."""
    weights = file_sha256(directory / "model.safetensors")
    return {
        "schema_version": ARTIFACT_SCHEMA,
        "artifact_id": artifact_id_of(artifact.model_id, weights),
        "model_id": artifact.model_id,
        "model_version": artifact.version,
        "description": artifact.description,
        "csm_repo": artifact.model_id,
        "llama_tokenizer_repo": artifact.tokenizer_repo,
        "mimi_repo": artifact.mimi_repo,
        "files": {
            name: {
                "role": role,
                "sha256": file_sha256(directory / name),
                "bytes": os.path.getsize(directory / name),
            }
            for name, role in artifact.roles.items()
        },
        "quantization": artifact.quantization,
        "license_posture": artifact.license_posture,
        "disallowed_voice_use_cases": [
            "public_user_voice_clone",
            "customer_voice_clone",
            "contact_voice_clone",
            "arbitrary_reference_audio_upload",
        ],
        "frame_contract": {
            "frame_lanes": 33,
            "audio_codebook_lanes": 32,
            "text_lane_index": 32,
            "max_seq_len": 2048,
            "generation_frame_ms": 80,
            "sample_rate_hz": SAMPLE_RATE,
        },
        "sampling_defaults": {"temperature": artifact.temperature, "top_k": artifact.top_k},
        "speech_limits": {
            "note": artifact.note,
            "vocabulary": None if artifact.vocabulary is None else list(artifact.vocabulary),
        },
        "rollback_target": "fallback_to_current_autopilot_tts_provider",
        "promotion": {"canary": GATE, "primary": GATE},
        "evidence": {
            "license_review": None,
            "voice_safety_control": None,
            "autopilot_shadow_business_outcome": None,
        },
    }
